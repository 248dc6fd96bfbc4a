"""Masks modulo a power of two: which sets of sums they hide to the last bit."""

import itertools

import numpy as np
import pytest

from tacit.auditing.engine.algebra.linear import SMALL_PRIME
from tacit.auditing.engine.mask_rank import hides_last_bits, rank
from tacit.auditing.engine.views import KnownVector
from tacit.auditing.symbolic.forms import Form


class Seen:
    """A view of some sums of masks, of which those of some seeds are known."""

    def __init__(self, sums, known=()):
        vectors = [(f"sum {place}", sum_, False) for place, sum_ in enumerate(sums)]
        vectors += [(seed, {seed: 1}, True) for seed in known]
        self.packed = {
            token: KnownVector(
                np.array([Form({("mask", seed, 0): factor for seed, factor in terms.items()})]), token, mask
            )
            for token, terms, mask in vectors
        }


@pytest.mark.parametrize(
    ("sums", "hidden"),
    [
        ([{"a": 1}], True),
        ([{"a": 1, "b": 1}, {"a": -1, "b": -1}], True),  # they cancel altogether, which fractions say as well
        ([{"a": 1, "b": 1}, {"a": 1, "b": -1}], False),
        ([{"a": 1, "b": 1}, {"b": 1, "c": 1}, {"c": 1, "a": 1}], False),
        ([{"a": 1, "b": 1}, {"b": 1, "c": 1}, {"c": 1, "a": -1}], True),
        ([{"a": 3}], True),
        ([{"a": 2}], False),
        ([{"a": 1, "b": 3}, {"a": 1, "b": -1}], False),
    ],
)
def test_sums_of_masks_hide_last_bits_or_not(sums, hidden):
    assert hides_last_bits(Seen(sums)) is hidden


def test_masks_that_are_known_do_not_count():
    sums = [{"a": 1, "b": 1}, {"a": 1, "b": -1}]
    assert not hides_last_bits(Seen(sums))
    assert hides_last_bits(Seen(sums, known=["b"]))


def test_the_rank_modulo_two_is_smaller_exactly_where_an_invariant_factor_is_even():
    """Small matrices of ±1 and 0, all of them, against the greatest common divisor of their minors."""
    for entries in itertools.product((-1, 0, 1), repeat=6):
        matrix = np.array(entries).reshape(2, 3)
        rows = [{("mask", place, 0): int(each) for place, each in enumerate(row) if each} for row in matrix]
        minors = [round(np.linalg.det(matrix[:, list(pick)])) for pick in itertools.combinations(range(3), 2)]
        divisor = np.gcd.reduce(minors) or np.gcd.reduce(np.array(entries))
        assert (rank(rows, 2) == rank(rows, SMALL_PRIME)) == bool(divisor % 2 or not any(entries))
