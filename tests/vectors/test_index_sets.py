"""Encoded sets of positions, compared with an encoder that writes them bit by bit as the module documents."""

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from tacit.core.errors import WireError
from tacit.vectors.index_sets import MAX_UNIVERSE, decode, decode_mask, encode, encode_mask


def written(bits):
    """Returns a string of zeros and ones as bytes, the first in the highest bit."""
    return bytes(int(bits[start : start + 8].ljust(8, "0"), 2) for start in range(0, len(bits), 8))


def rice(gaps, k):
    planes = "".join(str(gap - 1 >> place & 1) for place in range(k) for gap in gaps)
    return planes + "".join("0" * (gap - 1 >> k) + "1" for gap in gaps)


def gamma(gaps):
    bits = ""
    while gaps:
        longer = [gap for gap in gaps if gap > 1]
        bits += "".join("1" if gap > 1 else "0" for gap in gaps) + "".join(str(gap & 1) for gap in longer)
        gaps = [gap // 2 for gap in longer]
    return bits


def by_hand(positions, universe):
    """Encodes a small set with strings, every coding in full."""
    inside = set(positions)
    few = sorted(inside)
    flag = 0
    if 2 * len(inside) > universe:
        few, flag = [place for place in range(universe) if place not in inside], 128
    gaps = [place - before for before, place in zip([-1, *few], few, strict=False)]
    head = len(few).to_bytes((universe // 2).bit_length() + 7 >> 3)
    bitmap = "".join("1" if place in inside else "0" for place in range(universe))
    codings = [(len(bitmap), 0, b"\x00" + written(bitmap))]
    for k in range(max(1, universe.bit_length())):
        bits = rice(gaps, k)
        codings.append((8 * len(head) + len(bits), 2 + k, bytes([flag | 2 + k]) + head + written(bits)))
    bits = gamma(gaps)
    codings.append((8 * len(head) + len(bits), 99, bytes([flag | 1]) + head + written(bits)))  # gamma loses a tie
    return min(codings)[2]


def check(positions, universe):
    positions = np.asarray(positions, dtype=np.int64)
    mask = np.zeros(universe, np.bool_)
    mask[positions] = True
    data = encode(positions, universe)
    assert encode_mask(mask) == data
    assert decode(data, universe).dtype == np.int64
    assert decode(data, universe).tolist() == positions.tolist()
    assert decode_mask(data, universe).dtype == np.bool_
    assert (decode_mask(memoryview(data), universe) == mask).all()
    return data


def refused(data, universe):
    """Whether both ways of reading refuse the bytes. If not, they must be what the set is written as."""
    try:
        positions = decode(data, universe)
    except WireError:
        with pytest.raises(WireError):
            decode_mask(data, universe)
        return True
    assert np.array_equal(np.flatnonzero(decode_mask(data, universe)), positions)
    assert encode(positions, universe) == data
    return False


def drawn(universe, alpha, seed=0):
    return np.random.default_rng(seed).random(universe) < alpha


@pytest.mark.parametrize("universe", range(10))
def test_every_set_of_a_small_universe(universe):
    for size in range(universe + 1):
        for positions in combinations(range(universe), size):
            assert check(positions, universe) == by_hand(positions, universe)


@pytest.mark.parametrize("universe", [100, 257, 700])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.35, 0.42, 0.5, 0.7, 0.95])
def test_random_sets_are_written_as_described(universe, alpha):
    positions = np.flatnonzero(drawn(universe, alpha))
    assert check(positions, universe) == by_hand(positions.tolist(), universe)


def test_each_coding_has_its_sets():
    far_and_near = np.r_[np.arange(100, 220), np.arange(4000, 4040), 9000]
    codes = {
        "dense": (np.flatnonzero(drawn(5000, 0.5)), 5000, 0),
        "clustered": (far_and_near, 10_000, 1),
        "sparse": (np.flatnonzero(drawn(20_000, 0.01)), 20_000, 2 + 6),
        "all but a few": (np.flatnonzero(~drawn(20_000, 0.01)), 20_000, 128 + 2 + 6),
        "all but clusters": (np.setdiff1d(np.arange(10_000), far_and_near), 10_000, 128 + 1),
        "none": (np.empty(0, np.int64), 1000, 2),
        "all": (np.arange(1000), 1000, 128 + 2),
        "the first few of many": (np.arange(3, 43, 4), 1_000_000, 2 + 1),
    }
    for positions, universe, code in codes.values():
        assert check(positions, universe)[0] == code


@pytest.mark.parametrize("universe", [0, 1, 7, 8, 9, 255, 256, 511, 512, 89_834])
def test_nothing_and_everything_take_next_to_nothing(universe):
    assert len(check([], universe)) <= 3
    assert len(check(range(universe), universe)) <= 3


def test_all_bytes_there_are():
    universe = 8  # anything longer than two bytes is too long for it
    strings = [bytes([a]) for a in range(256)] + [bytes([a, b]) for a in range(256) for b in range(256)]
    assert sum(not refused(data, universe) for data in strings) == 2**universe
    assert refused(b"", universe)
    assert refused(bytes(3), universe)


@pytest.mark.parametrize("code", [0, 1, 2 + 1, 2 + 4, 128 + 1, 128 + 3])
def test_changing_any_bit_gives_another_set_or_none(code):
    rare = {
        0: drawn(1500, 0.45),
        1: np.isin(np.arange(1500), np.r_[80:160, 900:960, 1400]),
        3: drawn(1500, 0.3),
        6: drawn(5000, 0.04),
    }[code % 128]
    mask = ~rare if code >= 128 else rare
    data = encode_mask(mask)
    assert data[0] == code
    outcomes = []
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        outcomes.append(refused(bytes(changed), len(mask)))
    assert any(outcomes)
    assert not all(outcomes)


@pytest.mark.parametrize(
    ("data", "universe", "why"),
    [
        (b"", 100, "the length of"),
        (bytes(15), 100, "the length of"),
        (b"\x00" + bytes(12), 100, "one bit for each"),
        (b"\x00" + b"\xff" * 13, 100, "one bit for each"),
        (b"\x00" + bytes(13), 100, "another coding is smaller"),
        (b"\x80" + bytes(13), 100, "no coding"),
        (bytes([2 + 7]) + bytes(13), 100, "no coding"),
        (b"\x7f\x00", 100, "no coding"),
        (b"\x02", 100, "number of positions"),
        (b"\x02\x33\xff\xff", 100, "number of positions"),
        (bytes([128 + 2, 50]) + b"\xff" * 6 + b"\xc0", 100, "number of positions"),
        (b"\x02\x02\x80", 100, "do not add up"),
        (b"\x02\x01\xc0", 100, "do not add up"),
        (b"\x02\x01\x80\x00", 100, "do not add up"),
        (b"\x02\x00\x00", 100, "do not add up"),
        (bytes([2 + 6, 1, 0b11111101]), 100, "position beyond"),
        (b"\x01\x01\xff\xff\xff", 100, "do not end"),
        (b"\x01\x02\x08\x00", 100, "to spare"),
        (b"\x01\x02\x01", 100, "to spare"),
        (bytes([2 + 2, 1, 0b00100000]), 100, "another coding is smaller"),
    ],
)
def test_why_bytes_are_refused(data, universe, why):
    with pytest.raises(WireError, match=why):
        decode(data, universe)
    with pytest.raises(WireError, match=why):
        decode_mask(data, universe)


@pytest.mark.parametrize("code", [0, 1, 2, 2 + 5, 2 + 31, 128 + 1, 128 + 2, 128 + 20])
@pytest.mark.parametrize("count", [0, 1, 2**31 - 1, 2**32 - 1])
@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x5a"])
def test_a_few_bytes_cannot_claim_much_memory(code, count, fill):
    data = bytes([code]) + count.to_bytes(4) + fill * 100
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(data, MAX_UNIVERSE)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_largest_universe_works():
    positions = np.array([0, 5, 2**31, MAX_UNIVERSE - 1])
    data = encode(positions, MAX_UNIVERSE)
    assert decode(data, MAX_UNIVERSE).tolist() == positions.tolist()
    assert len(data) < 30


@pytest.mark.parametrize("universe", [89_834, 1_000_000])
def test_random_sets_take_at_most_5_percent_more_than_their_entropy(universe):
    for percent in [1, 2, 3, 5, 8, 10, 15, 20, 22, 25, 30, 35, 37, 38, 39, 40, 45, 50, 55, 60]:
        mask = drawn(universe, percent / 100, seed=percent)
        p = np.count_nonzero(mask) / universe
        entropy = -universe * (p * math.log2(p) + (1 - p) * math.log2(1 - p))
        assert 8 * len(encode_mask(mask)) <= 1.05 * entropy, percent


def test_masks_and_positions_of_any_layout():
    mask = drawn(3000, 0.06)
    every_other = np.repeat(mask, 2)[::2]
    assert not every_other.flags.c_contiguous
    data = encode_mask(every_other)
    assert data == encode_mask(mask)
    positions = np.flatnonzero(mask)
    for dtype in (np.uint16, np.int32, np.uint32, np.uint64):
        assert encode(positions.astype(dtype), 3000) == data
    frozen = mask.copy()
    frozen.flags.writeable = False
    assert encode_mask(frozen) == data
    assert decode_mask(data, 3000).flags.writeable


@pytest.mark.parametrize("wrong", [[3, 3], [5, 2], [-1, 4], [4, 10], [10]])
def test_positions_that_are_no_set_are_refused(wrong):
    with pytest.raises(ValueError, match="ascend from at least 0 to less than 10"):
        encode(np.array(wrong), 10)


def test_other_arrays_are_refused():
    with pytest.raises(ValueError, match="vector of integers"):
        encode(np.array([True, False]), 2)
    with pytest.raises(ValueError, match="vector of integers"):
        encode(np.array([[1, 2]]), 10)
    with pytest.raises(ValueError, match="ascend"):
        encode(np.array([2**64 - 1], np.uint64), 10)
    with pytest.raises(ValueError, match="vector of booleans"):
        encode_mask(np.array([0, 1], np.uint8))
    for universe in (-1, MAX_UNIVERSE + 1):
        with pytest.raises(ValueError, match="a universe has"):
            encode(np.empty(0, np.int64), universe)
        with pytest.raises(ValueError, match="a universe has"):
            decode(b"\x02", universe)
