"""Vectors on which the soundness of an audit is checked: some, and others that a protocol must treat in the same way."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Party, Update
from tacit.runtime.agreement import Agreement
from tacit.vectors.fixedpoint import FixedPoint

Brought: TypeAlias = Mapping[Party, Update]
"""What parties bring to a round."""


def pair(
    agreement: Agreement, ring: FixedPoint, number: int, groups: Sequence[Sequence[Party]]
) -> tuple[Brought, Brought]:
    """Returns vectors for a round and quite other ones, with other signs and weights.

    The sum over each group of parties is the same, also of weights, to the last unit of the ring.
    """
    settings = agreement.settings
    # A ring may hold less than entries of 1, as that of ADMM does where ρ is large.
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
    """Returns what takes so many units of the ring, with a weight of so many steps."""
    share = steps / ring.heaviest
    return Update(units / (ring.scale * share), share * ring.max_weight)


def in_order(updates: Brought) -> Brought:
    """Returns vectors with other signs and sizes, of which those of larger entries are larger too."""
    others = {}
    for party, update in updates.items():
        sizes = np.abs(update.vector)
        largest = float(sizes.max(initial=0.0)) or 1.0
        others[party] = Update(-np.sign(update.vector) * largest * (sizes / largest) ** 1.5, update.weight)
    return others


def in_scale(updates: Brought) -> Brought:
    """Returns vectors of twice the size, with other signs: the same ones at every party, and in every round.

    Whatever rounds make of them is then larger or smaller where it was before, as long as it is linear.
    """
    others = {}
    for party, update in updates.items():
        bits = np.unpackbits(np.frombuffer(SeededEntropy("signs").bytes(len(update.vector)), dtype=np.uint8))
        signs = np.where(bits[: len(update.vector)], 2.0, -2.0)
        others[party] = Update(signs * update.vector, update.weight)
    return others
