"""Sparsifiers: selection of the entries of a vector that are shared, and their expected number (paper 004, CESAR).

Random subsampling depends on a keystream and not on the vector: everyone with the seed of the stream computes the same
set, and the set reveals nothing about the vector. TopK depends on the vector, so its set is a leak and is reported.
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
        """Returns which entries to share; `words` is one uniform word per entry, from a public seed."""


class RandomSubsampling(Sparsifier):
    """Selects every entry independently with the same probability."""

    name, data_dependent = "random", False

    def select(self, vector: Vector, share: float, words: NDArray[np.uint32]) -> Mask:
        """Returns the set that the words alone determine."""
        if len(words) != len(vector):
            raise ValueError(f"{len(vector)} entries need as many words, not {len(words)}")
        return random_mask(words, share)


class TopK(Sparsifier):
    """Selects the entries of largest magnitude, of a model or of its change."""

    name, data_dependent = "topk", True

    def select(self, vector: Vector, share: float, words: NDArray[np.uint32]) -> Mask:
        """Returns the set that the vector alone determines."""
        del words
        return topk_mask(np.abs(vector), share)


SCORES = ("magnitude", "change")
"""Scores to rank entries by: their magnitude, or that of their change since the last average."""
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
        wrong.append(f'score="{score}" ranks entries, which sparsifier="random" does not; use sparsifier="topk"')
    return wrong


def random_mask(words: NDArray[np.uint32], share: float) -> Mask:
    """Returns which of the uniform words are below share · 2^32: each entry with probability `share`, all at 1."""
    limit = _count_words(share)
    return words < limit if limit < 2**32 else np.ones(len(words), np.bool_)


def random_probability(share: float) -> float:
    """Returns the probability with which `random_mask` selects an entry, each independently of all others."""
    return _count_words(share) / 2.0**32


def _count_words(share: float) -> int:
    """Returns how many of the 2^32 words select an entry."""
    _check_share(share)
    return ceil(share * 2.0**32)  # the product is exact, and a whole number is below it if below the next one


def topk_mask(magnitudes: NDArray[Any], share: float) -> Mask:
    """Returns the round(share · d) entries of largest magnitude, at least one; of equal ones, those that come first."""
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
    """Returns the expected share of entries that one node sends another (Theorem 6).

    Nodes select each entry with probability α, and send those for which at least s of the receiver's δ - 1 other
    neighbours selected the same entry, so that there are s masks on it. δ is the degree of the receiver.
    """
    wrong = _masking_problems(degree, s)
    if not _is_number(alpha) or not 0 <= alpha <= 1:
        wrong.append(f"alpha must be a number from 0 to 1, not {alpha!r}")
    if wrong:
        raise ConfigError(wrong)
    from scipy.special import betainc

    # The sum over i is the upper tail of a binomial distribution, which the incomplete beta function gives in closed
    # form: no binomial coefficient overflows, whatever the degree.
    return float(alpha * betainc(s, degree - s, alpha))


def alpha_for(beta: float, degree: int, s: int = 1) -> float:
    """Returns the α for which the share `beta` is expected (the inverse of Theorem 6; Table 2 for s = 1)."""
    wrong = _masking_problems(degree, s)
    if not _is_number(beta) or not 0 < beta <= 1:
        wrong.append(f"beta must be a number above 0 and at most 1, not {beta!r}")
    if wrong:
        raise ConfigError(wrong)
    from scipy.optimize import brentq
    from scipy.special import betainc

    # It rises with α, from 0 to 1, and never exceeds α.
    return float(brentq(lambda alpha: alpha * betainc(s, degree - s, alpha) - beta, beta, 1.0, xtol=1e-13))


def _masking_problems(degree: Any, s: Any) -> list[str]:
    wrong = []
    if not isinstance(degree, int | np.integer) or degree < 2:
        wrong.append(f"the degree must be at least 2, for somebody to mask with, not {degree!r}")
    elif not isinstance(s, int | np.integer) or not 1 <= s < degree:
        wrong.append(
            f"a receiver with {degree} neighbours allows from 1 to {degree - 1} masks on an entry, not s = {s!r}; "
            "lower s or raise the degree"
        )
    return wrong


def _check_share(share: float) -> None:
    if wrong := problems(share, RandomSubsampling.name):
        raise ConfigError(wrong)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
