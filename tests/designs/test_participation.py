import json
import time
import tracemalloc
from collections.abc import Callable
from itertools import combinations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.designs import (
    Batches,
    Everyone,
    Participation,
    Partition,
    Random,
    Sampled,
    cardinality,
    fairness_gap,
    multi_round_privacy,
    participation_from,
)


def run(policy: Participation, users: int, rounds: int, absent: float, late: float = 0.0) -> NDArray[np.bool]:
    """The participation matrix of a simulation: users absent before the selection, or gone (late) after it."""
    generator, entropy = np.random.default_rng(7), SeededEntropy("run")
    counts = np.zeros(users, dtype=np.int64)
    matrix = np.zeros((rounds, users), dtype=bool)
    for row in matrix:
        asked = policy.ask(np.flatnonzero(generator.random(users) >= absent).tolist(), counts, entropy)
        row[policy.choose([i for i in asked if generator.random() >= late], entropy)] = True
        counts += row
    return matrix


def names(*positions: int) -> list[str]:
    return [f"p{i}" for i in positions]


# The numbers of the paper.


def test_the_family_of_the_papers_example() -> None:
    policy = Batches(4, 2, users=8)
    assert policy.family_size() == 6
    assert policy.family().tolist() == [
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1],
    ]
    assert multi_round_privacy(policy.family()) == 2


def test_the_papers_expected_cardinality() -> None:
    assert Batches(users=120, per_round=12, privacy=6).expected_cardinality(dropout=0.2) == pytest.approx(
        11.77, abs=0.01
    )


def test_expected_cardinality_trades_against_privacy() -> None:
    sizes = [Batches(12, t, 120).expected_cardinality(0.2) for t in (1, 2, 3, 4, 6, 12)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(12 * (1 - (1 - 0.8**12) ** 10))  # Partition: one of ten groups must be whole
    assert Partition(12, 120).expected_cardinality(0.2) == sizes[-1]
    assert Batches(12, 6, 120).expected_cardinality(0.0) == 12
    assert Batches(12, 6, 120).expected_cardinality(1.0) == 0


@pytest.mark.parametrize("policy", [Batches(8, 4, 40), Partition(8, 40), Batches(12, 6, 120)])
def test_simulated_availability_agrees_with_the_closed_form(policy: Batches | Partition) -> None:
    users, rounds = policy.users or 0, 3000
    sizes = run(policy, users, rounds, absent=0.2).sum(axis=1)
    error = sizes.std() / rounds**0.5
    assert 0 < error < 0.1
    assert abs(sizes.mean() - policy.expected_cardinality(0.2)) < 4 * error


def test_random_selection_ends_at_privacy_one_and_batches_do_not() -> None:
    random = run(Random(8), users=40, rounds=80, absent=0.2)
    batches = run(Batches(8, 2), users=40, rounds=80, absent=0.2, late=0.05)
    assert multi_round_privacy(random[:1]) == 8
    assert multi_round_privacy(random) == 1
    assert np.linalg.matrix_rank(random.astype(float)) == 40  # and every single model can be solved for
    assert multi_round_privacy(batches) == 2
    assert np.linalg.matrix_rank(batches.astype(float)) == 20


def test_summing_a_broken_batch_exposes_the_one_that_left() -> None:
    policy, entropy = Batches(4, 2, 8), SeededEntropy("late")
    first, second = [0, 1, 2, 3], [0, 1, 2]  # user 3 delivers, then once it does not
    rows = np.zeros((2, 2, 8), dtype=int)
    for row, delivered in enumerate((first, second)):
        rows[0, row, delivered] = 1
        rows[1, row, policy.choose(delivered, entropy)] = 1
    assert (rows[0, 0] - rows[0, 1]).tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert multi_round_privacy(rows[0]) == 1
    assert multi_round_privacy(rows[1]) == 2
    assert not policy.allows(second)
    assert policy.allows(policy.choose(second, entropy))


def test_rarest_first_is_fair_where_chance_is_not() -> None:
    rounds = 20 * 5
    assert fairness_gap(run(Batches(8, 2), users=40, rounds=rounds, absent=0.0)) == 0.0
    assert fairness_gap(run(Batches(8, 2), users=40, rounds=rounds + 1, absent=0.0)) == pytest.approx(1 / (rounds + 1))
    assert fairness_gap(run(Random(8), users=40, rounds=rounds, absent=0.0)) > 0.1


# Policies.


def test_selection_takes_the_rarest_of_the_whole_batches() -> None:
    policy, entropy = Batches(4, 2, 10), SeededEntropy("x")
    counts = np.array([5, 5, 1, 1, 2, 2, 0, 0, 3, 3])
    assert policy.ask(range(10), counts, entropy) == [2, 3, 6, 7]
    assert policy.ask([i for i in range(10) if i != 6], counts, entropy) == [2, 3, 4, 5]
    assert policy.ask([0, 1, 2, 4, 6, 8, 9], counts, entropy) == [0, 1, 8, 9]
    assert policy.ask([0, 1, 2, 4, 6, 8], counts, entropy) == []


def test_ties_are_broken_at_random_and_evenly() -> None:
    policy, entropy = Batches(4, 2, 10), SeededEntropy("ties")
    counts = np.array([0, 0, 1, 1, 1, 1, 1, 1, 9, 9])
    picked = [tuple(policy.ask(range(10), counts, entropy)) for _ in range(600)]
    assert set(picked) == {(0, 1, 2, 3), (0, 1, 4, 5), (0, 1, 6, 7)}
    assert all(150 < picked.count(each) < 250 for each in set(picked))


def test_selection_does_not_write_the_family_out() -> None:
    policy, entropy = Batches(12, 3, 120), SeededEntropy("fast")
    counts = np.zeros(120, dtype=np.int64)
    assert policy.family_size() == 91_390
    policy.ask(range(120), counts, entropy)
    tracemalloc.start()
    begin = time.perf_counter()
    for _ in range(20):
        policy.ask(range(120), counts, entropy)
    seconds = (time.perf_counter() - begin) / 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert seconds < 0.01  # 40 µs where it is quiet; tracing and a busy machine are why the bound is loose


def test_large_families_are_counted_but_not_written_out() -> None:
    policy = Batches(60, 3, 600)
    assert policy.family_size() == 1613587787967350073386147640
    with pytest.raises(ConfigError, match="1613587787967350073386147640 sets"):
        policy.family()


def test_sampled_sums_exactly_as_many_as_it_says() -> None:
    policy, entropy, counts = Sampled(5, of=8), SeededEntropy("s"), np.zeros(20, dtype=np.int64)
    asked = policy.ask(range(20), counts, entropy)
    assert len(asked) == 8
    assert asked == sorted(set(asked))
    assert len(policy.choose(asked, entropy)) == 5
    assert set(policy.choose(asked, entropy)) <= set(asked)
    assert {tuple(policy.choose(asked, entropy)) for _ in range(50)} != {tuple(policy.choose(asked, entropy))}
    assert policy.ask(range(6), counts, entropy) == [0, 1, 2, 3, 4, 5]
    assert policy.ask(range(4), counts, entropy) == []
    assert policy.choose(asked[:4], entropy) == []
    assert policy.allows(asked[:5])
    assert not policy.allows(asked[:4])
    assert not policy.allows(asked[:6])
    assert Sampled(5).ask(range(20), counts, entropy) == list(range(20))


def test_everyone_and_random() -> None:
    entropy, counts = SeededEntropy("e"), np.zeros(6, dtype=np.int64)
    assert Everyone().ask([4, 1, 3], counts, entropy) == [1, 3, 4]
    assert Everyone().choose([4, 1], entropy) == [1, 4]
    assert Everyone().choose([4], entropy) == []
    assert Everyone().ask([4], counts, entropy) == []
    assert len(Random(3).ask(range(6), counts, entropy)) == 3
    assert Random(3).ask([0, 1], counts, entropy) == []
    assert Random(3).choose([5, 0], entropy) == [0, 5]
    assert Random(3).allows([0, 5])
    assert not Random(3).allows([5])
    assert not Random(3).allows([0, 1, 2, 3])


@pytest.mark.parametrize("members", [[], [3], [9, 4], [7, 2, 5, 8], list(range(1, 10))])
@pytest.mark.parametrize("others", [1, 2])
def test_the_worst_sample_is_one_that_clients_accept(members, others):
    """It has as many members as leave room for others, and all that can hold shares are asked."""
    sampled = Sampled(4, of=6)
    worst, counts, entropy = sampled.prescribe_worst(members, others, 10), np.zeros(10, dtype=np.int64), None
    asked = worst.ask(range(10), counts, entropy)
    summed = worst.choose(asked, entropy)
    assert sampled.may_ask(asked, 10)
    assert sampled.allows(summed)
    assert set(summed) <= set(asked)
    outside = min(others, 10 - len(members))
    assert len(set(summed) & set(members)) == min(len(members), 4 - outside)
    assert len(set(asked) & set(members)) == min(len(members), 6 - outside)
    assert worst.ask(asked[:-1], counts, entropy) == worst.choose(summed[:-1], entropy) == []


@pytest.mark.parametrize("policy", [Everyone(), Random(4), Sampled(2), Batches(4, 1, 8), Batches(4, 2, 8)])
def test_a_user_named_twice_does_not_count_twice(policy: Participation) -> None:
    assert not policy.allows([1, 1])
    assert policy.choose([1, 1], SeededEntropy("twice")) == []


@pytest.mark.parametrize(
    "chosen", [[], [0], [0, 1, 2], [0, 2], [1, 2], [0, 1, 2, 3, 4, 5], [-2, -1], [8, 9], [0, 1, 8, 9], [0, 1, 2, 4]]
)
def test_clients_refuse_what_is_not_whole_batches(chosen: list[int]) -> None:
    assert not Batches(4, 2, 8).allows(chosen)


def test_a_single_user_is_never_a_batch_to_sum() -> None:
    policy = Batches(4, 1, 8)
    assert policy.choose([3], SeededEntropy("one")) == []
    assert policy.choose([3, 6], SeededEntropy("one")) == [3, 6]


WHOM: dict[str, tuple[Participation, Callable[[tuple[int, ...]], bool]]] = {
    "everyone": (Everyone(), lambda asked: len(asked) >= 2),
    "sampled": (Sampled(3), lambda asked: len(asked) >= 3),
    "sampled of some": (Sampled(3, of=5), lambda asked: 3 <= len(asked) <= 5),
    "random": (Random(4), lambda asked: len(asked) == 4),
    "batches": (Batches(4, 2), lambda asked: len(asked) == 4 and all(i ^ 1 in asked for i in asked)),
    "batches of one": (Batches(4, 1), lambda asked: len(asked) == 4),
    "partial batches": (
        Batches(4, 2, partial=True),
        lambda asked: len(asked) == 4 and all(i ^ 1 in asked for i in asked),
    ),
    "one batch": (Batches(4, 4), lambda asked: asked in ((0, 1, 2, 3), (4, 5, 6, 7))),
    "partition": (Partition(4), lambda asked: asked in ((0, 1, 2, 3), (4, 5, 6, 7))),
}
"""Policies, each with the sets of eight users in which a client takes part."""


@pytest.mark.parametrize("which", WHOM)
def test_of_all_sets_clients_take_part_in_those_that_the_policy_could_have_asked(which: str) -> None:
    policy, wanted = WHOM[which]
    for policy_ in (policy, policy.bind(8)):
        for size in range(9):
            for asked in combinations(range(8), size):
                assert policy_.may_ask(asked, 8) == wanted(asked)
                assert policy_.may_ask(frozenset(asked), 8) == wanted(asked)


@pytest.mark.parametrize("which", WHOM)
def test_of_no_set_with_strangers_or_with_somebody_twice(which: str) -> None:
    policy = WHOM[which][0].bind(8)
    assert policy.may_ask([0, 1, 2, 3], 8)
    for asked in ([0, 0, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3, 3], [-2, -1, 0, 1], [-4, -3, -2, -1], [8, 9, 10, 11]):
        assert not policy.may_ask(asked, 8)
    assert not policy.may_ask([4, 5, 6, 7, 8, 9], 8)
    assert not policy.may_ask([4, 5, 6, 7], 7), "there are fewer users than that"


@pytest.mark.parametrize("which", WHOM)
def test_the_server_asks_whom_it_may(which: str) -> None:
    policy, entropy, counts = WHOM[which][0].bind(8), SeededEntropy("may", which), np.zeros(8, dtype=np.int64)
    for _ in range(50):
        asked = policy.ask(range(8), counts, entropy)
        assert policy.may_ask(asked, 8)
        counts[asked] += 1


LOOSE = ["everyone", "sampled", "sampled of some", "random", "partial batches"]


@pytest.mark.parametrize("which", LOOSE)
def test_where_nothing_is_promised_everybody_may_be_summed_without_any_other(which: str) -> None:
    policy = WHOM[which][0].bind(8)
    assert policy.promise == 1
    assert [policy.batch(user) for user in range(8)] == [(user,) for user in range(8)]


@pytest.mark.parametrize("which", sorted(WHOM.keys() - set(LOOSE)))
def test_nobody_is_ever_summed_without_its_batch(which: str) -> None:
    policy = WHOM[which][0].bind(8)
    assert {len(policy.batch(user)) for user in range(8)} == {policy.promise}
    for size in range(9):
        for chosen in combinations(range(8), size):
            if policy.allows(chosen):
                assert all(set(policy.batch(user)) <= set(chosen) for user in chosen)


@pytest.mark.parametrize(
    ("policy", "most", "least", "promise"),
    [
        (Everyone(), 24, 2, 1),
        (Sampled(5), 24, 5, 1),
        (Sampled(5, 9), 9, 5, 1),
        (Random(8), 8, 2, 1),
        (Partition(8), 8, 8, 8),
        (Batches(8, 4), 8, 4, 4),
        (Batches(8, 1), 8, 2, 1),
    ],
)
def test_figures_of_a_policy(policy: Participation, most: int, least: int, promise: int) -> None:
    assert (policy.most(24), policy.least, policy.promise) == (most, least, promise)
    assert policy.problems(24) == []


@pytest.mark.parametrize(
    ("policy", "users", "complaints"),
    [
        (Everyone(), 1, ["at least 2 parties"]),
        (Random(9), 8, ["per_round=9 is more than the 8 users"]),
        (Random(1), 8, ["per_round=1 leaves nobody to hide among; try: use 2 or more"]),
        (Sampled(1), 8, ["exactly=1"]),
        (Sampled(9), 8, ["exactly=9 is more"]),
        (Sampled(5, of=4), 8, ["use of=5 or more"]),
        (Sampled(5, of=9), 8, ["of=9 is more than the 8 users"]),
        (Batches(12, 5), 120, ["per_round=12 is no multiple.*2, 3, 4, 6, 12, or per_round=10 or per_round=15"]),
        (Batches(8, 4), 42, ["users=42 is no multiple.*batches of 2, or users=40 or users=44"]),
        (Batches(8, 0), 40, ["privacy=0 must be at least 1"]),
        (Batches(12, 5), 8, ["at most 8", "per_round=12", "users=8"]),
        (Batches(12, 6, 120), 60, ["made for 120 users, not 60"]),
        (Partition(4), 10, ["users=10 is no multiple.*2, 5, 10, or users=8 or users=12"]),
    ],
)
def test_problems_are_all_named_with_a_cure(policy: Participation, users: int, complaints: list[str]) -> None:
    found = policy.problems(users)
    assert len(found) == len(complaints)
    for problem, complaint in zip(found, complaints, strict=True):
        with pytest.raises(ConfigError, match=complaint):
            raise ConfigError(problem)


def test_binding_fills_in_the_users() -> None:
    assert Batches(12, 6).bind(120) == Batches(users=120, per_round=12, privacy=6)
    assert Partition(12).bind(120) == Partition(12, 120)
    assert Random(12).bind(120) == Random(12)
    with pytest.raises(ConfigError, match="made for 120 users"):
        Batches(12, 6, 120).bind(60)


def test_figures_that_need_the_users_say_so() -> None:
    for ask in (Batches(12, 6).family_size, Partition(12).family, lambda: Batches(12, 6).expected_cardinality(0.1)):
        with pytest.raises(ConfigError, match="users="):
            ask()
    with pytest.raises(ConfigError, match="no multiple"):
        Batches(12, 5, 120).family_size()
    with pytest.raises(ConfigError, match="must be a probability"):
        Batches(12, 6, 120).expected_cardinality(1.2)


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("everyone", Everyone()),
        (Random(4), Random(4)),
        ({"kind": "everyone"}, Everyone()),
        ({"kind": "sampled", "exactly": 4, "of": 6}, Sampled(4, 6)),
        ({"kind": "random", "per_round": 8}, Random(8)),
        ({"kind": "partition", "per_round": 8}, Partition(8)),
        ({"kind": "batches", "per_round": 8, "privacy": 2}, Batches(8, 2)),
    ],
)
def test_policies_from_plain_data(value: Participation | str | dict[str, object], policy: Participation) -> None:
    assert participation_from(value) == policy
    assert participation_from(msgspec.to_builtins(policy)) == policy


@pytest.mark.parametrize(
    "value",
    [
        "nobody",
        "random",
        {"per_round": 8},
        {"kind": "random", "per_round": "8"},
        {"kind": "everyone", "of": 1},
        5,
        None,
    ],
)
def test_bad_plain_data_is_told_how_to_write_it_on_one_line(value: object) -> None:
    with pytest.raises(ConfigError, match=r"; try: write it as \{.*\}, which is --set 'participation=") as caught:
        participation_from(value)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("nobody", "its kind must be one of everyone, sampled, random, partition, batches, family"),
        ("batches", "batches needs per_round and privacy"),
        ({"kind": "random", "per_round": 3, "users": 1}, "random has no 'users'; it has per_round"),
    ],
)
def test_what_it_is_told_to_write_is_a_policy(value: object, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        participation_from(value)  # type: ignore[arg-type]
    said = str(caught.value)
    assert said.startswith(f"participation {value!r}: {wrong}; ")
    written = said.partition("--set 'participation=")[2].partition("'")[0]
    assert not participation_from(json.loads(written)).problems(12)


# Measures.


def test_measures_of_a_small_matrix() -> None:
    matrix = [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert multi_round_privacy(matrix) == 2
    assert cardinality(matrix) == pytest.approx(8 / 3)
    assert fairness_gap(matrix) == 1.0
    assert multi_round_privacy([[1, 1, 1, 0], [1, 1, 0, 0]]) == 1


def test_measures_where_nothing_was_summed() -> None:
    assert multi_round_privacy(np.zeros((3, 5))) == 5
    assert multi_round_privacy(np.zeros((0, 5))) == 5
    assert multi_round_privacy([]) == 0
    assert cardinality(np.zeros((0, 5))) == fairness_gap(np.zeros((0, 5))) == 0.0


def test_columns_are_told_apart_in_every_round() -> None:
    # Nine rounds take two bytes a column; the ninth must count, and trailing padding must not.
    matrix = np.ones((9, 4), dtype=bool)
    assert multi_round_privacy(matrix) == 4
    matrix[8, 0] = False
    assert multi_round_privacy(matrix) == 1


def test_large_matrices() -> None:
    matrix = np.random.default_rng(0).random((2000, 200)) < 0.1
    assert multi_round_privacy(matrix) == 1
    assert cardinality(matrix) == pytest.approx(20, abs=0.5)
    assert 0 < fairness_gap(matrix) < 0.1
