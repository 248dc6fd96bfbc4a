"""Properties of encoded sets of positions, for random sets and bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import WireError
from tacit.vectors.index_sets import decode, decode_mask, encode, encode_mask

repeatable = settings(derandomize=True, deadline=None)

seeds = st.integers(0, 2**32 - 1)


def random(rng, universe):
    return rng.random(universe) < rng.choice([0.001, 0.01, 0.05, 0.12, 0.3, 0.4, 0.5, 0.6, 0.9, 0.999])


def clustered(rng, universe):
    ends = rng.integers(0, universe + 1, rng.integers(1, 12))
    return np.cumsum(np.bincount(ends, minlength=universe + 1))[:universe] % 2 == 1


def runs(rng, universe):
    lengths = rng.geometric(1 / rng.uniform(1, 12, 2), (universe // 2 + 1, 2)).ravel()
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)[:universe]


def heavy_tailed(rng, universe):
    mask = np.zeros(universe, np.bool_)
    places = np.cumsum(np.minimum(rng.pareto(rng.uniform(0.4, 2), 3000) + 1, 1e6).astype(np.int64)) - 1
    mask[places[places < universe]] = True
    return mask


def periodic(rng, universe):
    return np.arange(universe) % rng.integers(2, 40) == 0


def single(rng, universe):
    return np.arange(universe) == rng.integers(0, universe + 1)


def empty(rng, universe):
    del rng
    return np.zeros(universe, np.bool_)


def half_and_half(rng, universe):
    return random(rng, universe) & (np.arange(universe) < rng.integers(0, universe + 1))


KINDS = [random, clustered, runs, heavy_tailed, periodic, single, empty, half_and_half]


def masks(largest):
    universes = st.integers(0, 70) | st.integers(0, largest)

    def draw(kind, universe, seed, negated):
        mask = kind(np.random.default_rng(seed), universe)
        return ~mask if negated else mask

    return st.builds(draw, st.sampled_from(KINDS), universes, seeds, st.booleans())


def fewest_bits(mask):
    """Returns the size of the smallest coding by the textbook, with every k tried."""
    universe = len(mask)
    rare = np.flatnonzero(~mask if 2 * mask.sum() > universe else mask)
    gaps = np.diff(rare, prepend=-1)
    head = 8 * ((universe // 2).bit_length() + 7 >> 3)
    rice = [head + int((k + 1 + (gaps - 1 >> k)).sum()) for k in range(max(1, universe.bit_length()))]
    gamma = head + sum(2 * (gap.bit_length() - 1) + 1 for gap in gaps.tolist())
    return min(universe, gamma, *rice)


def fate(data, universe):
    """Returns whether the bytes were refused; if not, they must be the very ones the set is written as."""
    try:
        mask = decode_mask(data, universe)
    except WireError:
        with pytest.raises(WireError):
            decode(data, universe)
        return True
    assert len(mask) == universe
    assert np.array_equal(np.flatnonzero(mask), decode(data, universe))
    assert encode_mask(mask) == data
    return False


@given(masks(100_000))
@settings(repeatable, max_examples=300)
def test_what_was_written_is_read(mask):
    data, universe = encode_mask(mask), len(mask)
    positions = np.flatnonzero(mask)
    assert encode(positions, universe) == data
    assert np.array_equal(decode(data, universe), positions)
    assert np.array_equal(decode_mask(data, universe), mask)


@given(masks(20_000))
@settings(repeatable, max_examples=200)
def test_the_smallest_coding_is_chosen(mask):
    assert len(encode_mask(mask)) == 1 + -(-fewest_bits(mask) // 8)


@given(masks(900))
@settings(repeatable, max_examples=60)
def test_a_part_of_an_encoding_is_refused_or_another(mask):
    data = encode_mask(mask)
    for size in range(len(data)):
        fate(data[:size], len(mask))
    for more in (b"\x00", b"\x01", b"\x80"):
        fate(data + more, len(mask))


@given(masks(900))
@settings(repeatable, max_examples=60)
def test_an_encoding_with_one_bit_changed_is_refused_or_another(mask):
    data = encode_mask(mask)
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 128 >> place % 8
        fate(bytes(changed), len(mask))


@given(masks(900), st.integers(0, 900))
@settings(repeatable, max_examples=150)
def test_an_encoding_for_another_universe_is_refused_or_another(mask, universe):
    fate(encode_mask(mask), universe)


@given(st.binary(max_size=40), st.integers(0, 320))
@settings(repeatable, max_examples=300)
def test_any_bytes_are_refused_or_a_set(data, universe):
    fate(data, universe)


@given(st.booleans(), st.integers(0, 9), st.integers(0, 20), st.binary(max_size=30), st.integers(100, 320))
@settings(repeatable, max_examples=500)
def test_any_bytes_after_a_likely_start_are_refused_or_a_set(complement, code, count, data, universe):
    fate(bytes([complement << 7 | code, count]) + data, universe)
