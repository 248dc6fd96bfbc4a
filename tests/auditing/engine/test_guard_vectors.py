"""Vectors on which guards compare runs: as different as can be, with the same sums or in the same order."""

import numpy as np
import pytest

from tacit.auditing.engine.guard_vectors import in_order, in_scale, pair
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.suite import Update

PARTIES = tuple(f"p{i}" for i in range(4))


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (2, 1, 4), (7,)])
def test_two_sets_of_vectors_are_quite_different_and_have_the_same_sums(sizes):
    names = iter(f"p{i}" for i in range(sum(sizes)))
    groups = [[next(names) for _ in range(size)] for size in sizes]
    parties = (*(party for group in groups for party in group), "q0", "q1")
    scope = Scope.of("secagg", parties, {"max_weight": 5.0, "clip": 0.3})
    agreement = SymbolicSimulation(scope.protocol, scope.terms, 8, scope.seed).agreement
    ring = agreement.ring(PROOF_BITS)
    first, others_ = pair(agreement, ring, 1, [*groups, ["q0"], ["q1"]])
    for group in groups:
        before, after = ([ring.encode(each[party]) for party in group] for each in (first, others_))
        if len(group) > 1:
            assert (np.sum(before, axis=0, dtype=ring.dtype) == np.sum(after, axis=0, dtype=ring.dtype)).all()
        for one, other in zip(before, after, strict=True):
            assert (one[:9] != other[:9]).all(), "all entries and the weight"
    signs = np.array([np.sign(first[party].vector) != np.sign(others_[party].vector) for party in parties])
    assert signs.mean() > 0.95
    assert ring.clipped == 0


def test_vectors_in_the_same_order_have_other_signs_and_sizes():
    updates = {"p0": Update(np.array([0.5, -0.25, 0.75, 0.0])), "p1": Update(np.zeros(3))}
    others_ = in_order(updates)
    assert np.argsort(np.abs(others_["p0"].vector)).tolist() == np.argsort(np.abs(updates["p0"].vector)).tolist()
    assert (np.sign(others_["p0"].vector) == -np.sign(updates["p0"].vector)).all()
    assert others_["p0"].vector[2] == -0.75
    assert abs(others_["p0"].vector[0]) != 0.5


def test_vectors_in_scale_keep_the_order_of_whatever_is_linear():
    rng = np.random.default_rng(0)
    rounds = [{party: Update(rng.normal(size=20)) for party in PARTIES} for _ in range(2)]
    others_ = [in_scale(updates) for updates in rounds]

    def came(rounds):
        """How far p1 is from the mean of the round before, entry by entry."""
        return np.abs(rounds[1]["p1"].vector - np.mean([each.vector for each in rounds[0].values()], axis=0))

    np.testing.assert_array_equal(came(others_), 2 * came(rounds))
    ratios = others_[0]["p0"].vector / rounds[0]["p0"].vector
    assert set(ratios.tolist()) == {-2.0, 2.0}
