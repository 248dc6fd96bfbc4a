"""Compact encodings of sets of positions.

`encode` writes a set of positions below a universe that both sides know, in the smallest of three codings. The first
byte identifies the coding:

| first byte | content |
| --- | --- |
| 0 | bitmap: one bit per position, the first position in the highest bit of the first byte |
| 1 | Elias gamma: the number of positions, then 2⌊log2 gap⌋ + 1 bits for each gap |
| 2 + k | Rice: the number of positions, then k + 1 + ⌊(gap - 1) / 2^k⌋ bits for each gap |
| 128 + any but 0 | the same for the positions that are not in the set; used if those are fewer |

A gap is the distance from the previous position. The first gap is counted from -1, so every gap is at least 1. The
number of positions is big endian, in as many bytes as half the universe needs. Unused bits at the end are zero.

Both gap codings write bit planes over all gaps instead of one gap after the other, so that a few operations on whole
arrays read and write them. Rice: the lowest bit of gap - 1 for all gaps, then the next bit for all, up to k bits; then
all quotients in unary, as zeros and a one. Gamma: for each gap a one if it is above 1; for those gaps, the lowest bit;
then the same again for these gaps, halved, until none is left. The bits are those of the textbook codes in another
order.

A set has exactly one encoding: decoding refuses bytes that `encode` would not have written.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import WireError

MAX_UNIVERSE = 2**32 - 1
"""The largest universe. Up to it, no sum of gaps that received bytes can encode overflows 64 bits."""

Mask: TypeAlias = NDArray[np.bool_]
Positions: TypeAlias = NDArray[np.int64]

_BITMAP, _GAMMA, _RICE, _COMPLEMENT = 0, 1, 2, 128


def to_bitmap(positions: Iterable[int], universe: int) -> bytes:
    """Returns a set of positions below `universe` as a bitmap: one bit per position."""
    bits = np.zeros(universe, dtype=np.uint8)
    bits[list(positions)] = 1
    return np.packbits(bits).tobytes()


def from_bitmap(data: bytes, universe: int) -> list[int]:
    """Returns the positions of a bitmap, ascending; raises WireError unless the bytes are its only valid encoding."""
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if len(data) != (universe + 7) // 8 or bits[universe:].any():
        raise WireError(f"not a set of positions below {universe}")
    places: list[int] = np.flatnonzero(bits).tolist()
    return places


def encode(positions: NDArray[Any], universe: int) -> bytes:
    """Returns the smallest encoding of a set of ascending positions below `universe`."""
    _check_universe(universe)
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise ValueError(f"positions are a vector of integers, not {positions.dtype} of shape {positions.shape}")
    places = positions.astype(np.int64, copy=False)
    if len(places) and not (places[0] >= 0 and places[-1] < universe and (places[1:] > places[:-1]).all()):
        raise ValueError(f"positions must ascend from at least 0 to less than {universe}")
    if 2 * len(places) > universe:
        return encode_mask(_mask(places, universe))
    return _write(places, universe, of_complement=False)


def decode(data: bytes | memoryview, universe: int) -> Positions:
    """Returns the positions, ascending; raises WireError unless the bytes are the only valid encoding of the set."""
    first, payload = _split_header(data, universe)
    if first == _BITMAP:
        return np.flatnonzero(_read_bitmap(payload, universe))
    rare = _read_gaps(first, payload, universe)
    return np.flatnonzero(_mask(rare, universe, of_complement=True)) if first & _COMPLEMENT else rare


def encode_mask(mask: Mask) -> bytes:
    """Returns the encoding of the set of positions where the mask is true: the same bytes as `encode`."""
    if mask.ndim != 1 or mask.dtype != np.bool_:
        raise ValueError(f"a mask is a vector of booleans, not {mask.dtype} of shape {mask.shape}")
    universe = len(mask)
    _check_universe(universe)
    of_complement = bool(2 * np.count_nonzero(mask) > universe)
    rare = ~mask if of_complement else mask
    if _bitmap_is_smallest(rare):
        return _bitmap(mask)
    return _write(_places(rare), universe, of_complement)


def decode_mask(data: bytes | memoryview, universe: int) -> Mask:
    """Returns an encoded set as a mask over the universe; raises WireError like `decode`."""
    first, payload = _split_header(data, universe)
    if first == _BITMAP:
        return _read_bitmap(payload, universe)
    return _mask(_read_gaps(first, payload, universe), universe, of_complement=bool(first & _COMPLEMENT))


def _write(rare: Positions, universe: int, of_complement: bool) -> bytes:
    """Encodes a set of at most half the positions, or the complement of such a set."""
    zeros = _zeros_before(rare)
    code = _smallest(zeros, universe)
    if code == _BITMAP:
        return _bitmap(_mask(rare, universe, of_complement))
    bits = _gamma_bits(zeros) if code == _GAMMA else _rice_bits(zeros, code - _RICE)
    first = code | _COMPLEMENT if of_complement else code
    return bytes([first]) + len(rare).to_bytes(_count_bytes(universe)) + np.packbits(bits).tobytes()


def _read_bitmap(payload: NDArray[np.uint8], universe: int) -> Mask:
    bits = np.unpackbits(payload).view(np.bool_)
    if len(payload) != _bytes_for(universe) or bits[universe:].any():
        raise _refusal(universe, "the bitmap does not have exactly one bit for each position")
    mask = bits[:universe]
    rare = ~mask if 2 * np.count_nonzero(mask) > universe else mask
    if not _bitmap_is_smallest(rare) and _smallest(_zeros_before(_places(rare)), universe) != _BITMAP:
        raise _refusal(universe, "a bitmap was sent, but another coding is smaller")
    return mask


def _read_gaps(first: int, payload: NDArray[np.uint8], universe: int) -> Positions:
    """Reads a gap coding. Returns the positions in the set or, if the first byte is above 128, those not in it."""
    code, size = first & ~_COMPLEMENT, _count_bytes(universe)
    if code == _BITMAP or code - _RICE >= universe.bit_length():
        raise _refusal(universe, f"there is no coding with number {first}")
    count = int.from_bytes(payload[:size].tobytes())
    most = (universe - 1) // 2 if first & _COMPLEMENT else universe // 2
    if len(payload) < size or count > most:
        raise _refusal(universe, "the number of positions is missing or too large")
    bits = np.unpackbits(payload[size:]).view(np.bool_)
    if code == _GAMMA:
        rare = _gamma_positions(bits, count, universe)
    else:
        rare = _rice_positions(bits, count, code - _RICE, universe)
    if count and rare[-1] >= universe:
        raise _refusal(universe, "a position beyond the last")
    if _smallest(_zeros_before(rare), universe) != code:
        raise _refusal(universe, "another coding is smaller than the one that was used")
    return rare


# -- selection of the smallest coding --------------------------------------------------------------------------------


def _smallest(zeros: NDArray[Any], universe: int) -> int:
    """Returns the coding with the fewest bits. On a tie: a bitmap first, then Rice with the lowest k, then gamma."""
    count, head = len(zeros), 8 * _count_bytes(universe)
    k, quotients = 0, int(zeros.sum(dtype=np.int64))
    # With growing k the size falls and then rises, because each step saves half of the quotients, rounded up, and they
    # only shrink. So the first k that is no worse than the next one is the best.
    while quotients:
        odd = int(np.count_nonzero(zeros & zeros.dtype.type(1 << k)))
        if (quotients + odd) // 2 <= count:
            break
        quotients, k = (quotients - odd) // 2, k + 1
    best, code = min((universe, _BITMAP), (head + count * (k + 1) + quotients, _RICE + k))
    gamma, threshold, longer = head + count, 1, count
    while longer and gamma < best:
        longer = int(np.count_nonzero(zeros >= threshold))
        gamma, threshold = gamma + 2 * longer, 2 * threshold + 1
    return _GAMMA if gamma < best else code


def _bitmap_is_smallest(rare: Mask) -> bool:
    """Whether a bitmap is provably the smallest coding; False if only the exact gaps can decide.

    Sets that are best written as bitmaps are dense, and finding their gaps is slow. Counting the gaps longer than 1, 2,
    …, 8 is fast on packed bits. These counts give lower bounds on the sizes of the other codings.
    """
    universe, count = len(rare), np.count_nonzero(rare)
    if 6 * count < universe:  # too sparse for the counts below to prove anything
        return False
    packed = np.zeros(-(-universe // 64), dtype="<u8")
    packed.view(np.uint8)[: _bytes_for(universe)] = np.packbits(rare, bitorder="little")
    # Rice with k = 0 takes one bit for each position up to the last one, plus the header.
    if not rare[max(0, universe - 8 * _count_bytes(universe)) :].any():
        return False
    # Rice with k = 1 takes a bit for each gap longer than 2, for each longer than 4, and so on. If these bits alone are
    # no fewer than the universe, k = 0 is no worse than k = 1, and then no higher k is better than k = 0 or 1.
    rice, gamma = 2 * count, count
    near = _shift(packed)
    near[0] |= np.uint64(1)  # the position before the first one counts as a member of the set
    for length in range(1, 9):  # near: the positions at most `length` after a member of the set
        longer = int(np.bitwise_count(packed & ~near).sum(dtype=np.int64))
        rice += longer if length % 2 == 0 else 0
        gamma += 2 * longer if length in (1, 3, 7) else 0
        if rice >= universe and gamma >= universe:
            return True
        near |= _shift(near)
    return False


def _shift(packed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the packed set with every position increased by one."""
    shifted = packed << np.uint64(1)
    shifted[1:] |= packed[:-1] >> np.uint64(63)
    return shifted


# -- gaps ------------------------------------------------------------------------------------------------------------


def _zeros_before(positions: Positions) -> NDArray[Any]:
    """Returns the number of zeros before each position, which is its gap minus one, in the smallest fitting type."""
    if not len(positions):
        return np.empty(0, np.uint8)
    zeros = np.empty(len(positions), np.int64)
    zeros[0] = positions[0]
    np.subtract(positions[1:], positions[:-1], out=zeros[1:])
    zeros[1:] -= 1
    return zeros.astype(np.min_scalar_type(int(zeros.max())))


def _places(mask: Mask) -> Positions:
    """Returns the positions where the mask is true, about twice as fast as np.flatnonzero on a mask of 2 to 10 %.

    Up to 10 %, np.flatnonzero branches at every hit, and processors predict those branches badly. Above 10 % it does
    not branch. So it first finds the groups of eight that contain a hit, and then the hits in these groups: both are
    above 10 %.
    """
    if not len(mask) <= 64 * np.count_nonzero(mask) <= 6.4 * len(mask):
        return np.flatnonzero(mask)
    groups = np.zeros(-(-len(mask) // 8), np.uint64)
    groups.view(np.bool_)[: len(mask)] = mask
    hits = np.flatnonzero(groups != 0)
    inside = np.flatnonzero(groups[hits].view(np.bool_))
    places: Positions = hits[inside >> 3]
    places <<= 3
    inside &= 7
    places |= inside
    return places


def _rice_bits(zeros: NDArray[Any], k: int) -> Mask:
    count = len(zeros)
    ends = np.cumsum(zeros >> k, dtype=np.int64)
    ends += np.arange(k * count, (k + 1) * count)
    bits = np.zeros(int(ends[-1]) + 1 if count else 0, np.bool_)
    weights = np.left_shift(1, np.arange(k)).astype(zeros.dtype)
    np.not_equal(zeros & weights[:, None], 0, out=bits[: k * count].reshape(k, count))
    bits[ends] = True
    return bits


def _rice_positions(bits: Mask, count: int, k: int, universe: int) -> Positions:
    places = np.flatnonzero(bits[k * count :])
    # The last quotient ends in the last byte; otherwise the encoding has superfluous bytes.
    used = k * count + int(places[-1]) + 1 if len(places) else 0
    if len(places) != count or _bytes_for(used) != len(bits) // 8 or used - (k + 1) * count << k >= universe:
        raise _refusal(universe, "the quotients do not add up")
    ramp = np.arange(count)
    places -= ramp
    places <<= k
    places += ramp
    remainders = np.zeros(count, np.min_scalar_type((1 << k) - 1))
    for plane in bits[: k * count].view(np.uint8).reshape(k, count)[::-1]:
        remainders <<= 1
        remainders |= plane
    places += np.cumsum(remainders, dtype=np.int64)
    return places


def _gamma_bits(zeros: NDArray[Any]) -> Mask:
    gaps = zeros.astype(np.int64) + 1
    parts = [np.empty(0, np.bool_)]
    while len(gaps):
        longer = gaps > 1
        gaps = gaps[longer]
        parts += [longer, (gaps & 1).astype(np.bool_)]
        gaps >>= 1
    return np.concatenate(parts)


def _gamma_positions(bits: Mask, count: int, universe: int) -> Positions:
    levels: list[tuple[Mask, Mask]] = []
    used, size = 0, count
    while size:
        longer = bits[used : used + size]
        more = int(np.count_nonzero(longer))
        lowest = bits[used + size : used + size + more]
        used += size + more
        if len(levels) > universe.bit_length():
            raise _refusal(universe, "gaps that do not end")
        levels.append((longer, lowest))
        size = more
    if _bytes_for(used) != len(bits) // 8 or bits[used:].any():
        raise _refusal(universe, "bits to spare")
    gaps = np.empty(0, np.int64)
    for longer, lowest in reversed(levels):
        halves, gaps = gaps, np.ones(len(longer), np.int64)
        gaps[longer] = 2 * halves + lowest
    return np.cumsum(gaps) - 1


# -- helpers ---------------------------------------------------------------------------------------------------------


def _split_header(data: bytes | memoryview, universe: int) -> tuple[int, NDArray[np.uint8]]:
    """Returns the first byte, and the remaining bytes."""
    _check_universe(universe)
    everything = np.frombuffer(data, np.uint8)
    if not 1 <= len(everything) <= 1 + _bytes_for(universe):  # a bitmap is the longest encoding
        raise _refusal(universe, f"the length of {len(everything)} bytes is wrong")
    return int(everything[0]), everything[1:]


def _mask(positions: Positions, universe: int, of_complement: bool = False) -> Mask:
    mask = np.full(universe, of_complement)
    mask[positions] = not of_complement
    return mask


def _bitmap(mask: Mask) -> bytes:
    return bytes([_BITMAP]) + np.packbits(mask).tobytes()


def _count_bytes(universe: int) -> int:
    return _bytes_for((universe // 2).bit_length())


def _bytes_for(bits: int) -> int:
    return -(-bits // 8)


def _check_universe(universe: int) -> None:
    if not 0 <= universe <= MAX_UNIVERSE:
        raise ValueError(f"a universe has from 0 to {MAX_UNIVERSE} positions, not {universe}")


def _refusal(universe: int, why: str) -> WireError:
    return WireError(f"not a set of positions below {universe}: {why}")
