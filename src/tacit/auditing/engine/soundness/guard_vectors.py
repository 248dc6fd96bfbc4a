"""Test vectors of the soundness check: first vectors, and others that a linear protocol must treat in the same way."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Party, Update
from tacit.runtime.agreement import Agreement
from tacit.vectors.fixedpoint import FixedPoint

Brought: TypeAlias = Mapping[Party, Update]
"""The updates that parties contribute to a round."""
STRETCHES = (3.0, 2.0, 1.5, 1.25, 1.1, 1.03, 1.01, 1.003, 1.001)
"""Factors that are tried in this order to change an entry without changing the order of magnitudes."""
CLEARLY = 1e-5
"""The relative difference from which on one magnitude counts as larger than another, also in single precision."""


def pair(
    agreement: Agreement, ring: FixedPoint, number: int, groups: Sequence[Sequence[Party]]
) -> tuple[Brought, Brought]:
    """Returns first vectors for a round, and very different ones with other signs and weights.

    The sum over each group of parties is the same in both, weights included, to the last unit of the ring.
    """
    settings = agreement.settings
    # The ring may hold less than entries of 1, as the ring of ADMM does for a large ρ.
    size = min(min(1.0, settings.clip) * ring.scale, float(ring.limit))
    weighted = settings.weighted or agreement.protocol.server is not None
    first: dict[Party, Update] = {}
    others: dict[Party, Update] = {}
    for group in groups:
        entropies = [SeededEntropy("guard", party, number) for party in group]
        parts = [1.0 - 0.5 * entropy.unit() if weighted else 1.0 for entropy in entropies]
        units = np.array([entropy.secret_vector("guard", agreement.entries) * 0.2 - 0.1 for entropy in entropies])
        units = np.rint(units * size).astype(np.int64)
        if len(group) > 1:
            share, rest = np.divmod(units.sum(axis=0), len(group))
            units -= share
            units[0] -= rest
        steps = [round(part * ring.heaviest) for part in parts]
        turned = steps[1:] + steps[:1] if len(group) > 1 else [ring.heaviest - step // 4 for step in steps]
        middle = round(0.001 * size)
        for party, one, weight, other in zip(group, units, steps, turned if weighted else steps, strict=True):
            first[party] = _update(ring, middle + one, weight)
            others[party] = _update(ring, middle - 2 * one, other)
    return first, others


def _update(ring: FixedPoint, units: NDArray[np.int64], steps: int) -> Update:
    """Returns the update whose vector has the given ring units, with a weight of that many steps."""
    share = steps / ring.heaviest
    return Update(units / (ring.scale * share), share * ring.max_weight)


def edge_of(agreement: Agreement, ring: FixedPoint) -> float:
    """Returns the largest magnitude of an entry that is not clipped."""
    return min(agreement.settings.clip, ring.clip)


def of_several_scales(
    agreement: Agreement, ring: FixedPoint, number: int, groups: Sequence[Sequence[Party]], first: Brought
) -> Brought:
    """Returns vectors whose entries include zero, tiny, whole and equal numbers, numbers at the clip and beyond it.

    After clipping, the sum over each group of parties is that of the first vectors. At each place half of a group has
    such entries, and the others compensate for them. Where they cannot, the entries of the first vectors are used.
    """
    edge, entries = edge_of(agreement, ring), np.arange(agreement.entries)
    scales = np.array([3 * edge, 0.0, edge, ring.resolution, float(int(edge)), -edge / 2])
    vectors: dict[Party, Update] = {}
    for group in groups:
        before = np.array([first[party].vector for party in group])
        shares = np.array([[first[party].weight / ring.max_weight * ring.scale] for party in group])
        places = np.arange(len(group))[:, None]
        extreme = (entries // 2 + places) % 2 == 0
        signs = np.where(places // 2 % 2, -1.0, 1.0)
        after = np.where(extreme, signs * scales[(entries // 4 + places + number) % len(scales)], before)
        if len(group) > 1:
            total, made = _sum(ring, group, before, first), _sum(ring, group, after, first)
            each, rest = np.divmod(total - made, np.maximum((~extreme).sum(axis=0), 1))
            last = (~extreme).cumsum(axis=0) == (~extreme).sum(axis=0)
            after = np.where(extreme, after, after + (each + last * ~extreme * rest) / shares)
            after = np.where(_sum(ring, group, after, first) == total, after, before)
        vectors |= {party: first[party]._replace(vector=vector) for party, vector in zip(group, after, strict=True)}
    return vectors


def _sum(ring: FixedPoint, group: Sequence[Party], vectors: NDArray[np.float64], like: Brought) -> NDArray[np.int64]:
    """Returns the sum of some vectors in ring units, with the weights of other updates."""
    encoded = [
        ring.encode(like[party]._replace(vector=vector))[: ring.entries].view(np.int64)
        for party, vector in zip(group, vectors, strict=True)
    ]
    total: NDArray[np.int64] = np.sum(encoded, axis=0)
    return total


def in_order(updates: Brought) -> Brought:
    """Returns vectors with other signs and sizes, but with the same order of magnitudes."""
    others = {}
    for party, update in updates.items():
        sizes = np.abs(update.vector)
        largest = float(sizes.max(initial=0.0)) or 1.0
        others[party] = Update(-np.sign(update.vector) * largest * (sizes / largest) ** 1.5, update.weight)
    return others


def in_order_of_scales(updates: Brought, edge: float) -> Brought:
    """Returns vectors with the same order of magnitudes, which range from tiny to the clip, with one beyond it."""
    others = {}
    for party, update in updates.items():
        ranks = np.abs(update.vector).argsort().argsort()
        powers = np.linspace(-40.0, -0.5, len(ranks)) if len(ranks) > 1 else np.zeros(1)
        powers[-1] = 1.5
        others[party] = Update(np.sign(update.vector) * edge * 2.0 ** powers[ranks], update.weight)
    return others


def in_scale(updates: Brought, factors: float | NDArray[np.float64] = 2.0) -> Brought:
    """Returns vectors that are scaled by a factor and have other signs, the same for every party and round.

    If rounds are linear, whatever they compute from these is larger or smaller at the same places as before.
    """
    others = {}
    for party, update in updates.items():
        bits = np.unpackbits(np.frombuffer(SeededEntropy("signs").bytes(len(update.vector)), dtype=np.uint8))
        signs = np.where(bits[: len(update.vector)], 1.0, -1.0)
        others[party] = Update(signs * factors * update.vector, update.weight)
    return others


def stretch_entries(entries: int, compared: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns factors for entries that differ as much as possible without changing the order of some magnitudes."""
    factors = np.ones(entries)
    sizes = [np.asarray(each, dtype=np.float64) for each in compared if len(each) == entries]
    orders = [each.argsort(kind="stable") for each in sizes]
    for entry in range(entries):
        for factor in STRETCHES:
            tried = factors.copy()
            tried[entry] = factor
            if all(_is_ordered((each * tried)[order]) for each, order in zip(sizes, orders, strict=True)):
                factors = tried
                break
    return factors


def _is_ordered(sizes: NDArray[np.float64]) -> bool:
    """Says whether magnitudes are in ascending order, with clear differences unless they are zero."""
    return bool((sizes[1:] >= sizes[:-1] * (1 + CLEARLY)).all())
