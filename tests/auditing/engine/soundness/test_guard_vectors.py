"""Vectors on which guards compare runs: as different as can be, with the same sums or in the same order."""

import numpy as np
import pytest

from tacit.auditing.engine.soundness.guard_vectors import (
    edge_of,
    in_order,
    in_order_of_scales,
    in_scale,
    of_several_scales,
    pair,
    stretch_entries,
)
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


def several_scales(groups, **settings):
    """Returns a ring, the edge of its clip, and vectors without and with entries of several scales."""
    scope = Scope.of("secagg", [party for group in groups for party in group], settings)
    agreement = SymbolicSimulation(scope.protocol, scope.terms, 24, scope.seed).agreement
    ring = agreement.ring(PROOF_BITS)
    first, _ = pair(agreement, ring, 1, groups)
    return ring, edge_of(agreement, ring), first, of_several_scales(agreement, ring, 1, groups, first)


@pytest.mark.parametrize("sizes", [(1, 1), (2,), (3,), (4, 1)])
@pytest.mark.parametrize("settings", [{}, {"clip": 0.01}, {"max_weight": 7.0}])
def test_vectors_of_several_scales_have_the_same_sums(sizes, settings):
    names = iter(f"p{i}" for i in range(sum(sizes)))
    groups = [[next(names) for _ in range(size)] for size in sizes]
    ring, edge, first, others_ = several_scales(groups, **settings)
    for group in groups:
        before, after = ([ring.encode(each[party]) for party in group] for each in (first, others_))
        if len(group) > 1:
            assert (np.sum(before, axis=0, dtype=ring.dtype) == np.sum(after, axis=0, dtype=ring.dtype)).all()
        assert any((one != other).any() for one, other in zip(before, after, strict=True))
    entries = np.concatenate([each.vector for each in others_.values()])
    if len(groups) > 1:
        assert (np.abs(entries) > edge).any()
        assert (np.abs(entries) == edge).any()
    assert (entries == 0).any()
    assert (np.abs(entries) == ring.resolution).any()


def test_vectors_in_the_same_order_range_from_tiny_ones_to_one_beyond_the_clip():
    updates = {"p0": Update(np.array([0.5, -0.25, 0.75, 0.1])), "p1": Update(np.array([1.0]))}
    others_ = in_order_of_scales(updates, 32.0)
    sizes = np.abs(others_["p0"].vector)
    assert sizes.argsort().tolist() == [3, 1, 0, 2]
    assert sizes[3] < 1e-10
    assert (sizes > 32.0).tolist() == [False, False, True, False]


def test_entries_are_stretched_without_another_order():
    rng = np.random.default_rng(1)
    compared = [np.abs(rng.normal(size=8)) for _ in range(3)]
    factors = stretch_entries(8, compared)
    assert len(set(factors.tolist())) > 2
    for sizes in compared:
        assert (sizes * factors).argsort().tolist() == sizes.argsort().tolist()
