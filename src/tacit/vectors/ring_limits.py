"""What a ring of so many bits can hold, and what is wrong with settings that ask for more."""

from collections.abc import Mapping
from math import sqrt
from numbers import Real
from typing import Any

import numpy as np

from tacit.core.protocol import FARTHEST
from tacit.core.suite import Party

BITS = (16, 32, 64)

# Far outside what any model holds, and far inside what a float64 can divide by without losing digits.
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
    """Returns everything that is wrong with the settings of a ring, each as a sentence that says what would work.

    Of a vector and its noise, no smaller part is ever encoded than that.
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
        wrong.append(f"{bits} bits hold the sum of at most {most} parties, not {parties}; {remedy}")
    if not _between(max_weight):
        wrong.append(f"max_weight must be a positive number from {SMALLEST:g} to {LARGEST:g}, not {max_weight!r}")
    else:
        for party, weight in (weights or {}).items():
            wrong += weight_problems(f"the weight of {party}", weight, max_weight)
    if not _is_number(noise) or (noise != 0 and not _between(noise)):
        wrong.append(f"noise must be a standard deviation of 0, or from {SMALLEST:g} to {LARGEST:g}, not {noise!r}")
    elif noise and not wrong and noise * part < (step := span(clip, noise, parties, alone) / limit(bits, parties)):
        wrong.append(
            f"noise={noise:g} is less than a step of the ring, which is {step / part:.2g}; use more of it, more "
            f"bits, or a smaller clip"
        )
    if norm is not None and not _between(norm):
        wrong.append(f"norm must be a positive number between {SMALLEST:g} and {LARGEST:g}, not {norm!r}")
    return wrong


def span(clip: float, noise: float, parties: int, alone: bool) -> float:
    """Returns what there must be room for of each party's entries and their noise."""
    return float(clip + FARTHEST * noise / (1 if alone else sqrt(parties)))


def limit(bits: int, parties: int) -> int:
    """Returns the largest whole number that so many parties can each bring, and their sum does not overflow."""
    # Beyond 2^53 a float64 no longer tells neighbouring integers apart, so a larger scale would add no precision.
    return min(_capacity(bits) // parties, 1 << 53)


def _capacity(bits: int) -> int:
    return int((1 << int(bits) - 1) - 1)


def _between(value: Any) -> bool:
    return _is_number(value) and SMALLEST <= value <= LARGEST


def _is_number(value: Any) -> bool:
    # It is compared as it is, for a whole number may be too large to become a float at all.
    return isinstance(value, Real) and not isinstance(value, bool)


def weight_problems(what: str, weight: Any, max_weight: float) -> list[str]:
    """Returns what is wrong with a weight."""
    if _is_number(weight) and 0 < weight <= max_weight:
        return []
    return [f"{what} is {weight!r}; it must be above 0 and at most max_weight, which is {max_weight:g}"]
