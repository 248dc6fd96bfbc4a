"""Capacity of a ring of given bits, and checks of settings against it."""

from collections.abc import Mapping
from math import sqrt
from numbers import Real
from typing import Any

import numpy as np

from tacit.core.protocol import FARTHEST
from tacit.core.suite import Party

BITS = (16, 32, 64)

# Far beyond the values of any model, and small enough that a float64 divides by them without losing digits.
SMALLEST, LARGEST = 1e-100, 1e100


def ring_problems(
    bits: Any,
    clip: Any,
    parties: Any,
    max_weight: Any = 1.0,
    weights: Mapping[Party, Any] | None = None,
    *,
    noise: Any = 0.0,
    norm: Any = None,
    part: float = 1.0,
    alone: bool = False,
) -> list[str]:
    """Returns all problems of the settings of a ring, each with a remedy.

    Args:
        bits: Bits of a ring element.
        clip: Largest magnitude of an entry.
        parties: Number of vectors in a sum.
        max_weight: Largest weight of a party.
        weights: Weights to check against `max_weight`, by party.
        noise: Standard deviation of each party's noise, in the units of an entry.
        norm: Largest length (L2 norm) of a vector; None if it is not bounded.
        part: Smallest fraction that a vector and its noise are multiplied by before they are encoded.
        alone: Whether each vector has to fit its own share of the ring.
    """
    wrong = []
    if bits not in BITS:
        wrong.append(f"bits must be 16, 32 or 64, not {bits!r}")
    if not _between(clip):
        wrong.append(f"clip must be a positive number between {SMALLEST:g} and {LARGEST:g}, not {clip!r}")
    if not isinstance(parties, int | np.integer) or parties < 1:
        wrong.append(f"parties must be a whole number of at least 1, not {parties!r}")
    elif bits in BITS and parties > (most := _capacity(bits)):
        remedy = f"use {2 * bits} bits" if bits < BITS[-1] else "use fewer parties"
        wrong.append(f"{bits} bits hold the sum of at most {most} parties, not {parties}; try: {remedy}")
    if not _between(max_weight):
        wrong.append(f"max_weight must be a positive number from {SMALLEST:g} to {LARGEST:g}, not {max_weight!r}")
    else:
        for party, weight in (weights or {}).items():
            wrong += weight_problems(f"the weight of {party}", weight, max_weight)
    if not _is_number(noise) or (noise != 0 and not _between(noise)):
        wrong.append(f"noise must be a standard deviation of 0, or from {SMALLEST:g} to {LARGEST:g}, not {noise!r}")
    elif noise and not wrong and noise * part < (step := span(clip, noise, parties, alone) / limit(bits, parties)):
        wrong.append(
            f"noise={noise:g} is less than a step of the ring, which is {step / part:.2g}; try: use more of it, more "
            f"bits, or a smaller clip"
        )
    if norm is not None and not _between(norm):
        wrong.append(f"norm must be a positive number between {SMALLEST:g} and {LARGEST:g}, not {norm!r}")
    return wrong


def span(clip: float, noise: float, parties: int, alone: bool) -> float:
    """Returns the largest magnitude of an entry with its noise that the ring must hold, per party."""
    return float(clip + FARTHEST * noise / (1 if alone else sqrt(parties)))


def limit(bits: int, parties: int) -> int:
    """Returns the largest integer that each party can contribute without overflowing the sum."""
    # A float64 represents all integers only up to 2^53, so a larger scale would add no precision.
    return min(_capacity(bits) // parties, 1 << 53)


def _capacity(bits: int) -> int:
    return int((1 << int(bits) - 1) - 1)


def _between(value: Any) -> bool:
    return _is_number(value) and SMALLEST <= value <= LARGEST


def _is_number(value: Any) -> bool:
    # Compared without conversion to float, because an integer may be too large for one.
    return isinstance(value, Real) and not isinstance(value, bool)


def weight_problems(what: str, weight: Any, max_weight: float) -> list[str]:
    """Returns the problems of one weight."""
    if _is_number(weight) and 0 < weight <= max_weight:
        return []
    return [f"{what} is {weight!r}; it must be above 0 and at most max_weight, which is {max_weight:g}"]
