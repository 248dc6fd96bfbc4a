"""Mask streams: a 32-byte key is expanded to a vector of uniform ring elements, which is added or subtracted in place.

The stream of a key is the AES-256 keystream in counter mode, read as little-endian ring elements. The first counter
block is twelve zero bytes and the number 2 (four bytes, big endian). The counter can be fixed because each pair, round
and purpose has a fresh key. All 256 bits of the key matter. Entry i of a stream depends only on the key, on i, and on
the size of an element.
"""

from collections.abc import Sequence
from functools import cache
from time import perf_counter

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from numpy.typing import NDArray

from tacit.core.suite import Vector

KEY_BYTES = 32
STREAM_BYTES = (2**32 - 2) * 16
"""Longest mask in bytes. After it, a 32-bit block counter that starts at 2 would wrap around."""

_CHUNK_BYTES = 256 * 1024  # a chunk of the vector, its mask and the zeros fit the L2 cache together; measured
_ONE_CALL_BYTES = 48 * 1024  # up to this size, setting up a cipher takes longer than masking in the slower mode
_KEYS_AT_ONCE = 1024  # an open stream takes about 1 KiB, so this many take as much memory as a few chunks
_ZEROS = memoryview(bytes(_CHUNK_BYTES))

# Galois counter mode with a zero nonce encrypts under the counter blocks defined above. It uses block 1 for the tag,
# which is discarded. So both modes give the same bytes. Which one is faster depends on the processor.
_NONCE = bytes(12)
_MODES: tuple[CTR | GCM, ...] = (CTR(_NONCE + (2).to_bytes(4)), GCM(_NONCE))


def add_masks(vector: Vector, plus: Sequence[bytes], minus: Sequence[bytes] = ()) -> None:
    """Adds the mask streams of the keys in `plus` to the vector in place, and subtracts those in `minus`.

    The vector holds uint16, uint32 or uint64 entries; sums wrap around.
    """
    _check(vector, plus, minus)
    size = vector.dtype.itemsize
    signed = [(key, np.add) for key in plus] + [(key, np.subtract) for key in minus]
    if vector.nbytes <= _CHUNK_BYTES:
        for key, combine in signed:
            combine(vector, stream(key, len(vector), size), out=vector)
        return
    mode, step = _fastest(), _CHUNK_BYTES // size
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    masks = np.frombuffer(buffer, dtype=f"<u{size}")
    for first in range(0, len(signed), _KEYS_AT_ONCE):
        batch = signed[first : first + _KEYS_AT_ONCE]
        streams = [(Cipher(AES(key), mode).encryptor().update_into, combine) for key, combine in batch]
        # The outer loop is over chunks: each chunk is loaded from memory once, whatever the number of keys.
        for start in range(0, len(vector), step):
            chunk = vector[start : start + step]
            zeros, output, mask = _ZEROS[: chunk.nbytes], buffer[: chunk.nbytes], masks[: len(chunk)]
            for update_into, combine in streams:
                update_into(zeros, output)
                combine(chunk, mask, out=chunk)


def stream(key: bytes, length: int, size: int) -> NDArray[np.unsignedinteger]:
    """Returns the first `length` elements of a key's stream, with `size` bytes each, as a read-only array."""
    if len(key) != KEY_BYTES or length * size > STREAM_BYTES:
        raise ValueError(f"a stream needs a key of {KEY_BYTES} bytes, and is at most {STREAM_BYTES} bytes long")
    if length * size > _CHUNK_BYTES:
        long = np.zeros(length, f"u{size}")
        add_masks(long, [key])
        long.flags.writeable = False
        return long
    zeros = _ZEROS[: length * size]
    if len(zeros) > _ONE_CALL_BYTES and isinstance(_fastest(), CTR):
        drawn = Cipher(AES(key), _fastest()).encryptor().update(zeros)
    else:
        # A single call, with its tag discarded, takes half the time of setting up a cipher.
        drawn = AESGCM(key).encrypt(_NONCE, zeros, None)
    elements: NDArray[np.unsignedinteger] = np.frombuffer(drawn, dtype=f"<u{size}", count=length)
    return elements


def words(seed: bytes, count: int) -> NDArray[np.uint32]:
    """Returns the first `count` uint32 elements of a seed's stream."""
    return stream(seed, count, 4).view(np.uint32)


def _check(vector: Vector, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Raises ValueError for input that cannot be masked, before the vector is changed."""
    if vector.dtype not in (np.uint16, np.uint32, np.uint64):
        raise ValueError(f"masks are added to uint16, uint32 or uint64 entries, not to {vector.dtype}")
    if vector.nbytes > STREAM_BYTES:
        raise ValueError(f"a vector of {vector.nbytes} bytes is longer than a mask stream of {STREAM_BYTES}")
    if vector.ndim != 1 or not vector.flags.c_contiguous:
        raise ValueError("masks are added to one-dimensional contiguous vectors")
    # AES also accepts keys of 16 and 24 bytes, which would make the mask weaker than documented.
    if any(len(key) != KEY_BYTES for key in (*plus, *minus)):
        raise ValueError(f"a mask key has {KEY_BYTES} bytes")


@cache
def _fastest() -> CTR | GCM:
    """Returns the faster mode. It is measured once per process, in about a millisecond; results do not depend on it."""
    buffer = memoryview(bytearray(len(_ZEROS)))

    def seconds(mode: CTR | GCM) -> float:
        stream, times = Cipher(AES(bytes(KEY_BYTES)), mode).encryptor(), []
        for _ in range(5):
            start = perf_counter()
            stream.update_into(_ZEROS, buffer)
            times.append(perf_counter() - start)
        return min(times)

    return min(_MODES, key=seconds)
