"""Sparsifiers: selection of the entries of a vector that a node shares (paper 004, CESAR).

Random subsampling depends on a keystream and not on the vector. Everyone who has the seed of the stream computes the
same set, which reveals nothing about the vector. TopK depends on the vector, so its set leaks information, which audits
report.
"""

from abc import ABC, abstractmethod
from math import ceil
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError
from tacit.core.suite import Vector
from tacit.vectors.index_sets import Mask


class Sparsifier(ABC):
    """Selects the entries of a vector to share."""

    name: ClassVar[str]
    data_dependent: ClassVar[bool]
    """Whether the selection reveals something about the vector."""

    @abstractmethod
    def select(self, vector: Vector, share: float, words: NDArray[np.uint32]) -> Mask:
        """Returns a mask of the entries to share. `words` has one uniform word per entry, from a public seed."""


class RandomSubsampling(Sparsifier):
    """Selects each entry independently with the same probability."""

    name, data_dependent = "random", False

    def select(self, vector: Vector, share: float, words: NDArray[np.uint32]) -> Mask:
        """Returns a mask that depends on the words only."""
        if len(words) != len(vector):
            raise ValueError(f"{len(vector)} entries need one word each, not {len(words)}")
        return random_mask(words, share)


class TopK(Sparsifier):
    """Selects the entries with the largest magnitude, of a model or of its change."""

    name, data_dependent = "topk", True

    def select(self, vector: Vector, share: float, words: NDArray[np.uint32]) -> Mask:
        """Returns a mask that depends on the vector only."""
        del words
        return topk_mask(np.abs(vector), share)


SCORES = ("magnitude", "change")
"""Scores by which entries are ranked: their magnitude, or the magnitude of their change since the last average."""
SPARSIFIERS: dict[str, Sparsifier] = {each.name: each for each in (RandomSubsampling(), TopK())}


def problems(share: Any, sparsifier: Any, score: Any = SCORES[0]) -> list[str]:
    """Returns all problems of the settings, each with a remedy."""
    wrong = []
    if not _is_number(share) or not 0 < share <= 1:
        wrong.append(f"share must be a number above 0 and at most 1, not {share!r}")
    if sparsifier not in tuple(SPARSIFIERS):
        names = " or ".join(f'"{name}"' for name in SPARSIFIERS)
        wrong.append(f"sparsifier must be {names}, not {sparsifier!r}")
    if score not in SCORES:
        names = " or ".join(f'"{name}"' for name in SCORES)
        wrong.append(f"score must be {names}, not {score!r}")
    elif score != SCORES[0] and sparsifier == RandomSubsampling.name:
        wrong.append(f'score="{score}" ranks entries, which sparsifier="random" does not; try: use sparsifier="topk"')
    return wrong


def random_mask(words: NDArray[np.uint32], share: float) -> Mask:
    """Returns a mask of the words below share · 2^32. It selects an entry with probability `share`, and all at 1."""
    limit = _count_words(share)
    return words < limit if limit < 2**32 else np.ones(len(words), np.bool_)


def random_probability(share: float) -> float:
    """Returns the exact probability with which `random_mask` selects an entry, independently of the others."""
    return _count_words(share) / 2.0**32


def _count_words(share: float) -> int:
    """Returns the number of 32-bit words that select an entry."""
    _check_share(share)
    return ceil(share * 2.0**32)  # the product is exact; the ceiling counts the integers below it


def topk_mask(magnitudes: NDArray[Any], share: float) -> Mask:
    """Returns a mask of the round(share · d) largest magnitudes, at least one. On ties the first ones are selected."""
    _check_share(share)
    entries = len(magnitudes)
    if not entries:
        return np.zeros(0, np.bool_)
    if np.isnan(magnitudes).any():
        raise ConfigError(
            f"the vector has {np.isnan(magnitudes).sum()} NaN entries; their magnitudes cannot be compared"
        )
    count = max(1, round(share * entries))
    smallest = np.partition(magnitudes, entries - count)[entries - count]
    mask: Mask = magnitudes > smallest
    missing = count - int(np.count_nonzero(mask))
    mask[np.flatnonzero(magnitudes == smallest)[:missing]] = True
    return mask


def beta(alpha: float, degree: int, s: int = 1) -> float:
    """Returns β, the expected share of entries that one node sends another (Theorem 6).

    Each node selects an entry with probability α. It sends the entry if at least s of the receiver's δ - 1 other
    neighbours selected it too, so that s masks cover it.

    Args:
        alpha: The probability α.
        degree: The degree δ of the receiver.
        s: The masking requirement.
    """
    wrong = _masking_problems(degree, s)
    if not _is_number(alpha) or not 0 <= alpha <= 1:
        wrong.append(f"alpha must be a number from 0 to 1, not {alpha!r}")
    if wrong:
        raise ConfigError(wrong)
    from scipy.special import betainc

    # The sum over i is the upper tail of a binomial distribution. The incomplete beta function is its closed form, in
    # which no binomial coefficient overflows.
    return float(alpha * betainc(s, degree - s, alpha))


def alpha_for(beta: float, degree: int, s: int = 1) -> float:
    """Returns the α for which the expected share is `beta` (inverse of Theorem 6; Table 2 for s = 1)."""
    wrong = _masking_problems(degree, s)
    if not _is_number(beta) or not 0 < beta <= 1:
        wrong.append(f"beta must be a number above 0 and at most 1, not {beta!r}")
    if wrong:
        raise ConfigError(wrong)
    from scipy.optimize import brentq
    from scipy.special import betainc

    # β(α) rises from 0 to 1 with α, and β ≤ α, so the solution is between `beta` and 1.
    return float(brentq(lambda alpha: alpha * betainc(s, degree - s, alpha) - beta, beta, 1.0, xtol=1e-13))


def _masking_problems(degree: Any, s: Any) -> list[str]:
    wrong = []
    if not isinstance(degree, int | np.integer) or degree < 2:
        wrong.append(f"the degree must be at least 2, for somebody to mask with, not {degree!r}")
    elif not isinstance(s, int | np.integer) or not 1 <= s < degree:
        wrong.append(
            f"a receiver with {degree} neighbours allows from 1 to {degree - 1} masks on an entry, not s = {s!r}; try: "
            "lower s or raise the degree"
        )
    return wrong


def _check_share(share: float) -> None:
    if wrong := problems(share, RandomSubsampling.name):
        raise ConfigError(wrong)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
