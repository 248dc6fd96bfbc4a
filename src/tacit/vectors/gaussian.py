"""Vectorized sampler of the discrete Gaussian P(y) ∝ exp(−y²/2σ²) (Canonne et al. 2020).

Magnitudes are divided into layers of t numbers, where t is a power of two. A table selects a layer, with the
probability that it would have if all its numbers were as likely as its first. Then log₂ t random bits select one of its
numbers, which is accepted with the probability that corrects for the difference. So most randomness is used as plain
bits. Only acceptance probabilities, between 1/13 and 1, are computed in floats, with a relative error of 2⁻⁵¹. The
table adds an error of 2⁻⁶⁵ per layer: less than 2⁻⁵⁷ of all samples. No sample is `FARTHEST` σ or more from zero.

Like that of every rejection sampler, its running time depends on the samples.
"""

from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import accumulate
from math import floor, log2

import numpy as np
from numpy.typing import NDArray

from tacit.core.protocol import FARTHEST
from tacit.core.suite import Words

LAYERS = 4
"""Fewest layers per standard deviation; there are up to twice as many. With more layers fewer samples are rejected, but
the table is slower."""
_DIGITS = Context(prec=60)


class DiscreteGaussian:
    """The discrete Gaussian for one σ, from 1/2 to 2⁵⁶."""

    def __init__(self, sigma: float) -> None:
        if not 0.5 <= sigma <= 2.0**56:
            raise ValueError(f"a discrete Gaussian is sampled for σ from 1/2 to 2^56, not {sigma}")
        self.sigma = sigma
        self.bits = max(0, floor(log2(sigma / LAYERS)))
        """Number of bits of a position within a layer: log₂ t."""
        count = floor(FARTHEST * sigma / 2**self.bits)
        with localcontext(_DIGITS):
            heights = [(-((v * Decimal(2) ** self.bits) ** 2) / (2 * Decimal(sigma) ** 2)).exp() for v in range(count)]
            upto = [min(round(below * 2**64 / sum(heights)), 2**64 - 1) for below in accumulate(heights[:-1])]
        self.upto = np.array(upto, dtype=np.uint64)
        """For each layer but the last: number of 64-bit words that select this layer or an earlier one."""

    def draw(self, count: int, words: Words) -> NDArray[np.int64]:
        """Returns `count` independent samples, computed from fresh uniform words."""
        drawn = np.empty(count, dtype=np.int64)
        filled = 0
        while filled < count:
            kept = self._accept(words, (count - filled) * 9 // 8 + 8)[: count - filled]
            drawn[filled : filled + len(kept)] = kept
            filled += len(kept)
        return drawn

    def _accept(self, words: Words, tries: int) -> NDArray[np.int64]:
        """Returns the accepted samples among `tries` attempts."""
        which, within, chance = words(3 * tries).reshape(3, tries)
        start = np.searchsorted(self.upto, which, side="right") << self.bits
        further = (within & np.uint64((1 << self.bits) - 1)).astype(np.int64)
        y, negative = start + further, within >> np.uint64(63) == 1
        keep = ~(negative & (y == 0))  # otherwise zero is sampled twice as often, as 0 and as −0
        if self.bits:
            lost = further.astype(np.float64) * (start + y) / (2 * self.sigma**2)
            keep &= chance < np.exp(-lost) * 2.0**64
        np.negative(y, out=y, where=negative)
        kept: NDArray[np.int64] = y[keep]
        return kept


@lru_cache(64)
def discrete_gaussian(sigma: float) -> DiscreteGaussian:
    """Returns the sampler for a σ. It is cached, because a federation reuses it."""
    return DiscreteGaussian(sigma)
