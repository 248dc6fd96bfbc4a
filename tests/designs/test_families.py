"""Participation by a family of sets, with the matrices of paper 002."""

from itertools import combinations

import numpy as np
import pytest

import tacit
from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.designs import Batches, Family, multi_round_privacy, participation_from

PRINTED = np.array(
    [
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [1, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [0, 1, 1, 1, 1, 0],
    ]
)
"""B_new of the example (N = 6, K = 4, T = 2), as printed."""
RELAXED = Family.of_matrix(PRINTED[[0, 1, 2, 3, 5]])


def test_the_printed_matrix_lists_one_set_twice():
    assert Family.of_matrix(PRINTED).problems(6) == ["a set is listed twice; try: list each set once"]
    assert RELAXED.problems(6) == []


def test_the_relaxed_example_has_t_2_only_if_weights_may_differ():
    assert RELAXED.promise == 1
    assert multi_round_privacy(PRINTED) == 1
    assert smallest_support(RELAXED.family().astype(np.int64)) == 2


def test_a_family_of_whole_batches_promises_what_batches_do():
    batches = Batches(4, 2, users=6)
    family = Family.of_matrix(batches.family())
    assert family.promise == batches.promise == 2
    assert [family.batch(user) for user in range(6)] == [batches.batch(user) for user in range(6)]
    for size in (2, 3, 4, 5):
        for users in combinations(range(6), size):
            assert family.may_ask(users, 6) == batches.may_ask(users, 6)


@pytest.mark.parametrize(
    ("sets", "problem"),
    [
        ((), "sets is empty"),
        (((0,), (1,)), "leaves nobody to hide among"),
        (((0, 1), (2, 3, 4)), "different sizes"),
        (((0, 1), (2, 2)), "names a user twice"),
        (((0, 1), (2, 9)), "none of 0 to 4"),
        (((0, 1), (1, 0)), "listed twice"),
        (((0, 1), (2, 3)), "users 4 are in no set"),
    ],
)
def test_what_is_wrong_with_sets_is_told(sets, problem):
    assert any(problem in each for each in Family(sets).problems(5))
    with pytest.raises(ConfigError, match=problem):
        tacit.aggregate([np.zeros(2)] * 5, "secagg", participation=Family(sets))


def test_only_listed_sets_are_asked_and_the_rarest_first():
    counts, entropy = np.zeros(6, np.int64), SeededEntropy("family")
    seen = []
    for _ in range(20):
        asked = RELAXED.ask(range(6), counts, entropy)
        counts[asked] += 1
        seen.append(tuple(asked))
    assert set(seen) == set(RELAXED.sets)
    assert RELAXED.ask([0, 1, 2, 3, 5], counts, entropy) == [0, 1, 2, 3]
    assert RELAXED.ask([0, 1, 2, 5], counts, entropy) == []


def test_a_set_with_a_missing_member_is_not_summed():
    entropy = SeededEntropy("family")
    assert RELAXED.choose([3, 0, 1, 2], entropy) == [0, 1, 2, 3]
    assert RELAXED.choose([0, 1, 2], entropy) == []
    assert not RELAXED.allows([0, 1, 2, 4])
    assert not RELAXED.allows([0, 0, 1, 2])


def test_it_is_read_from_a_table_and_runs():
    table = {"kind": "family", "sets": [list(each) for each in RELAXED.sets]}
    assert participation_from(table) == RELAXED
    with pytest.raises(ConfigError, match="family needs sets"):
        participation_from({"kind": "family"})
    out = tacit.aggregate([np.full(2, float(place)) for place in range(6)], "secagg", participation=table, seed=1)
    assert tuple(sorted(int(name[1:]) for name in out.contributors)) in RELAXED.sets
    expected = np.mean([int(name[1:]) for name in out.contributors])
    assert out.average["p0"] == pytest.approx([expected, expected], abs=1e-6)


def test_the_server_learns_no_vector_of_the_relaxed_example_alone_and_all_with_one_user():
    """Its sums leave one unknown number in common, so an adversary who knows one vector knows all."""
    asked = {"parties": 6, "rounds": 40, "drift": "static", "participation": RELAXED, "allow_leaks": True}
    alone = tacit.audit("secagg", coalition=["server"], **asked)
    assert (alone.smallest_group, alone.smallest_support, list(alone.exposed)) == (1, 2, [])
    helped = tacit.audit("secagg", coalition=["server", "p0"], **asked)
    assert list(helped.exposed) == ["p1", "p2", "p3", "p4", "p5"]
    batches = tacit.audit("secagg", coalition=["server", "p0"], **asked | {"participation": Batches(4, 2)})
    assert list(batches.exposed) == ["p1"]


def test_the_worst_case_of_a_coalition_is_a_set_that_it_is_in():
    assert RELAXED.worst_order([5, 4], 6) == [4, 5, 0, 1]
    assert RELAXED.worst_order([0, 2, 4], 6)[:2] in ([0, 2], [0, 4], [2, 4])
    three = tacit.audit("secagg", parties=6, coalition=["server", "p0", "p1", "p2"], participation=RELAXED, threshold=4)
    assert list(three.exposed) == ["p3"] or three.at_worst == ("p3",)
    apart = tacit.audit("secagg", parties=6, coalition=["server", "p0", "p2", "p4"], participation=RELAXED, threshold=4)
    assert not apart.exposed
