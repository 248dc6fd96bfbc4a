"""Sampler of the discrete Gaussian: its exact distribution where that can be computed, and counts of samples."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from tacit.core.entropy import SeededEntropy
from tacit.core.protocol import FARTHEST
from tacit.crypto import masks
from tacit.vectors.gaussian import DiscreteGaussian, discrete_gaussian


def words_of(*path):
    entropy = SeededEntropy(*path)
    return lambda count: masks.stream(entropy.bytes(32), count, 8).view(np.uint64)


def exact(sigma, most):
    """Returns the probabilities of 0, 1, … up to the most, as floats that are right to the last digits."""
    heights = [math.exp(-(y**2) / (2 * sigma**2)) for y in range(most + 1)]
    total = heights[0] + 2 * math.fsum(heights[1:])
    return [height / total for height in heights]


def drawn(gaussian, most):
    """Returns the probabilities of the samples 0, 1, …, from the table, the random bits, and the acceptance."""
    upto = [0, *map(int, gaussian.upto), 2**64]
    layers = [Fraction(after - before, 2**64) for before, after in pairwise(upto)]
    width, kept = 1 << gaussian.bits, []
    for y in range(min(most + 1, len(layers) * width)):
        layer, further = divmod(y, width)
        chance = math.exp(-further * (2 * layer * width + further) / (2 * gaussian.sigma**2))
        kept.append(float(layers[layer]) / width * chance * (1 if y == 0 else 2))
    return [each / math.fsum(kept) / (1 if y == 0 else 2) for y, each in enumerate(kept)]


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.75, 7.9, 8.0, 40.0, 333.3])
def test_every_number_is_as_likely_as_it_should_be(sigma):
    most = math.floor(FARTHEST * sigma)
    for y, (one, other) in enumerate(zip(drawn(DiscreteGaussian(sigma), most), exact(sigma, most), strict=False)):
        # Six σ away the 2⁻⁶⁴ that a layer of the table may be off are no more than this part of it.
        assert one == pytest.approx(other, rel=1e-9 if y <= 6 * sigma else 1e-2, abs=1e-19)
        if y <= 3 * sigma:
            assert one == pytest.approx(other, rel=1e-13)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.75, 17.0])
def test_numbers_are_drawn_as_often_as_they_are_likely(sigma):
    count, most = 400_000, math.ceil(3 * sigma)
    found = DiscreteGaussian(sigma).draw(count, words_of("count", str(sigma)))
    law = exact(sigma, math.floor(FARTHEST * sigma))[: most + 1]
    expected = np.array([*law[:0:-1], *law]) * count
    inside = found[np.abs(found) <= most]
    counts = np.bincount(inside + most, minlength=2 * most + 1)
    expected = np.append(expected, count - expected.sum())
    assert chisquare(np.append(counts, count - len(inside)), expected).pvalue > 0.001


@pytest.mark.parametrize("sigma", [300.0, 1e6, 1e12, 2.0**56])
def test_many_steps_make_it_normal(sigma):
    found = DiscreteGaussian(sigma).draw(100_000, words_of(str(sigma)))
    # A number stands for itself and half a step to either side.
    jitter = words_of("jitter")(100_000) / 2.0**64 - 0.5
    assert kstest((found + jitter) / sigma, "norm").pvalue > 0.001
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.015
    assert abs(np.corrcoef(found[1:] % 2, found[:-1] % 2)[0, 1]) < 0.015


@pytest.mark.parametrize("sigma", [0.5, 1.0, 9.3, 1e9])
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_is_farther_than_the_ring_has_room_for(sigma, sign):
    def farthest(count):
        """The last layer, the last number of it, of that sign, and kept."""
        which, within, chance = np.full((3, count // 3), 2**64 - 1, dtype=np.uint64)
        return np.concatenate([which, within >> np.uint64(sign == 1), np.zeros_like(chance)])

    found = DiscreteGaussian(sigma).draw(5, farthest)
    assert len(set(found.tolist())) == 1
    assert 0.7 * FARTHEST * sigma <= sign * found[0] < FARTHEST * sigma


@pytest.mark.parametrize("count", [0, 1, 7, 100_000])
def test_as_many_as_asked_for_and_the_same_from_the_same_words(count):
    one, two, other = (discrete_gaussian(5.5).draw(count, words_of(seed)) for seed in (1, 1, 2))
    assert one.shape == (count,)
    assert one.dtype == np.int64
    np.testing.assert_array_equal(one, two)
    assert count < 2 or not np.array_equal(one, other)


def test_zero_is_not_drawn_twice_as_often():
    found = DiscreteGaussian(0.5).draw(100_000, words_of("zero"))
    assert np.mean(found == 0) == pytest.approx(exact(0.5, 5)[0], abs=0.005)
    assert np.mean(found > 0) == pytest.approx(np.mean(found < 0), abs=0.005)


@pytest.mark.parametrize("sigma", [0.0, 0.49, -1.0, 2.0**57, math.inf, math.nan])
def test_what_cannot_be_drawn_is_refused(sigma):
    with pytest.raises(ValueError, match="1/2 to 2"):
        DiscreteGaussian(sigma)


def test_a_distribution_is_made_once():
    assert discrete_gaussian(3.25) is discrete_gaussian(3.25)
