import sys
from importlib.resources import files
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.designs import Groups, fields, groups, randomized_groups
from tacit.designs.groups import group_sizes, starters

pytestmark = pytest.mark.long

PRIME_POWERS = (2, 3, 4, 5, 7, 8, 9, 11, 13, 16)

OPTIMAL = [
    *((q * q, q) for q in PRIME_POWERS),
    *((q**k, q) for q, k in ((2, 3), (2, 6), (3, 3), (3, 4), (4, 3), (5, 3))),
    *((n, 3) for n in range(9, 100, 6)),
    *((n, 4) for n in (16, 28, 40, 52, 64, 76)),
    (65, 5),
    *((n, 2) for n in range(4, 101, 2)),
]


def plane() -> list[list[list[int]]]:
    """The four partitions of 9 users, to be spoilt."""
    return [[list(group) for group in partition] for partition in groups(9, 3).partitions]


def frozen(partitions: list[list[list[int]]]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(tuple(group) for group in partition) for partition in partitions)


@pytest.mark.parametrize(("n", "size"), OPTIMAL)
def test_as_many_as_there_can_be(n: int, size: int) -> None:
    found = groups(n, size)
    found.verify()
    assert found.gap == found.bound == (n - 1) // (size - 1)


def test_a_pair_that_meets_twice_is_named() -> None:
    spoilt = plane()
    spoilt[2] = spoilt[0]
    with pytest.raises(ConfigError, match="users 0 and 1 meet in partition 0 and again in 2"):
        Groups(9, 3, frozen(spoilt)).verify()


def test_a_user_left_out_is_named() -> None:
    spoilt = plane()
    spoilt[1] = [[user for user in group if user != 5] for group in spoilt[1]]
    with pytest.raises(ConfigError, match="partition 1: user 5 is in no group"):
        Groups(9, 3, frozen(spoilt)).verify()


def test_a_user_in_two_groups_is_named() -> None:
    spoilt = plane()
    spoilt[3] = [[4 if user == 5 else user for user in group] for group in spoilt[3]]
    with pytest.raises(ConfigError, match="partition 3: user 4 is in it 2 times"):
        Groups(9, 3, frozen(spoilt)).verify()


@pytest.mark.parametrize("stranger", [9, -1])
def test_a_stranger_is_named(stranger: int) -> None:
    spoilt = plane()
    spoilt[0] = [[stranger if user == 8 else user for user in group] for group in spoilt[0]]
    with pytest.raises(ConfigError, match=f"partition 0: user {stranger} is none of the 9 users"):
        Groups(9, 3, frozen(spoilt)).verify()


def test_groups_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"partition 0: the groups have \[2, 3, 4\] users, not \[3, 3, 3\]"):
        Groups(9, 3, (((0, 1), (2, 3, 4), (5, 6, 7, 8)),)).verify()


def test_an_empty_partition_is_refused() -> None:
    with pytest.raises(ConfigError, match="user 0 is in no group"):
        Groups(9, 3, ((),)).verify()


@pytest.mark.parametrize(
    ("n", "size", "sizes"),
    [(9, 3, [3, 3, 3]), (10, 3, [4, 3, 3]), (11, 3, [4, 4, 3]), (5, 3, [5]), (11, 4, [6, 5]), (3, 2, [3]), (2, 2, [2])],
)
def test_no_group_is_smaller_than_asked(n: int, size: int, sizes: list[int]) -> None:
    assert group_sizes(n, size) == sizes
    assert sorted(map(len, groups(n, size).partitions[0]), reverse=True) == sizes


@pytest.mark.parametrize(
    ("n", "size", "advice"),
    [
        (9, 1, "use size=2 or more"),
        (9, 0, "use size=2 or more"),
        (3, 4, "at least 4 users"),
        (0, 3, "at least 3 users"),
    ],
)
def test_impossible_requests_say_what_would_work(n: int, size: int, advice: str) -> None:
    for ask in (groups, lambda n, size: randomized_groups(n, size, entropy=SeededEntropy(0))):
        with pytest.raises(ConfigError, match=advice):
            ask(n, size)


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 6).flatmap(lambda size: st.tuples(st.integers(size, 100), st.just(size))))
def test_any_number_of_users_works(case: tuple[int, int]) -> None:
    n, size = case
    found = groups(n, size)
    found.verify()
    assert 1 <= found.gap <= max(found.bound, 1)
    assert all(list(group) == sorted(group) for partition in found.partitions for group in partition)


@pytest.mark.parametrize(
    ("n", "size"),
    [
        pytest.param(70, 7, marks=pytest.mark.slow),
        pytest.param(100, 10, marks=pytest.mark.slow),
        (102, 3),
        (401, 4),
        (1000, 10),
    ],
)
def test_numbers_without_a_stored_result_work(n: int, size: int) -> None:
    assert groups(n, size).gap > 1


@pytest.mark.parametrize(("n", "size"), [(45, 3), (50, 4), (53, 5), (104, 3)])
def test_the_same_call_gives_the_same_groups(n: int, size: int) -> None:
    first = groups(n, size)
    groups.cache_clear()
    assert groups(n, size) == first


def test_never_fewer_than_the_paper_finds() -> None:
    lines = files("tacit.designs").joinpath("data/randomized.txt").read_text().splitlines()
    measured = [tuple(map(int, line.split())) for line in lines if not line.startswith("#")]
    assert len(measured) > 200
    assert not [(n, size, gap) for n, size, gap in measured if groups(n, size).gap < gap]


def test_a_larger_largest_group_than_groups_allows_one_partition_only() -> None:
    # The four of the largest group of 10 users cannot be spread over three groups.
    assert groups(10, 3).gap == 1


def test_every_stored_result_is_used() -> None:
    assert not [(n, size) for n, size in starters() if groups(n, size).gap > len(starters()[n, size].develop(n))]


@pytest.mark.parametrize("q", [4, 8, 9, 16, 25, 27, 49])
def test_fields_are_fields(q: int) -> None:
    gf = fields.field(q)
    everything = set(range(q))
    assert all(set(row) == everything for row in gf.add.tolist())
    assert all(set(row[1:]) == everything - {0} for row in gf.times.tolist()[1:])
    a, b, c = 2, q // 2 + 1, q - 1
    assert gf.times[a, gf.add[b, c]] == gf.add[gf.times[a, b], gf.times[a, c]]
    assert all(gf.powers[gf.log(x)] == x for x in range(1, q))


def test_randomized_reaches_all_four_partitions_of_nine_users() -> None:
    for patience in (None, 1000):
        assert randomized_groups(9, 3, entropy=SeededEntropy(1), trials=10_000, patience=patience).gap == 4


def test_randomized_as_printed_gets_stuck() -> None:
    stuck = [randomized_groups(27, 3, entropy=SeededEntropy(seed), patience=None).gap for seed in range(5)]
    patient = randomized_groups(27, 3, entropy=SeededEntropy(0), trials=100_000).gap
    assert max(stuck) < patient < groups(27, 3).gap


@pytest.mark.parametrize(("n", "size"), [(5, 3), (10, 3), (23, 3), (26, 4), (37, 5)])
def test_randomized_is_valid_and_repeatable(n: int, size: int) -> None:
    first = randomized_groups(n, size, entropy=SeededEntropy(7), trials=20_000)
    first.verify()
    assert first == randomized_groups(n, size, entropy=SeededEntropy(7), trials=20_000)
    assert first.gap >= 1


def test_randomized_stops_by_trials_and_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert randomized_groups(30, 3, entropy=SeededEntropy(0), trials=5).gap == 0
    clock = count()
    monkeypatch.setattr(sys.modules[Groups.__module__], "process_time", lambda: float(next(clock)))
    randomized_groups(30, 3, entropy=SeededEntropy(0), seconds=50)
    assert 50 <= next(clock) < 100
