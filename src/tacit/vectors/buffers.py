"""Bounded pool of reusable vector buffers: on many machines, first touching memory costs more than filling it.

A vector borrows a block, and the block returns to the pool when no view of it is left. So callers need not release
vectors, and no block is ever lent twice. All blocks have one size, and the number of free ones is bounded whatever
others send.
"""

from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from tacit.core.suite import Vector

LEAST = 1 << 22
"""Smallest size, in bytes, of pooled vectors. The C library reuses smaller blocks itself."""
WASTE = 1 / 8
"""Fraction of a block that a vector may leave unused."""


class BufferPool:
    """Blocks of memory, some of which are kept when they return, and lent again."""

    def __init__(self) -> None:
        self._size = self._most = 0
        self._free: list[Vector] = []

    def fit(self, size: int) -> None:
        """Sets the block size to that of vectors of `size` bytes with their envelopes, and drops other blocks."""
        fits = int(size * (1 + WASTE / 2)) if size >= LEAST else 0
        if fits != self._size:
            self._size = fits
            self._free.clear()

    def keep(self, most: int) -> None:
        """Keeps at most `most` free blocks; the system gets the others back at once."""
        self._most = most
        del self._free[most:]

    def empty(self, length: int, dtype: DTypeLike) -> Vector:
        """Returns an uninitialised vector, as `numpy.empty` does."""
        kind = np.dtype(dtype)
        size = length * kind.itemsize
        if not (1 - WASTE) * self._size < size <= self._size:
            return np.empty(length, kind)
        try:
            block = self._free.pop()
        except IndexError:
            block = np.empty(self._size, np.uint8)
        # Views of this array refer to it and not to the block, because its base is a memoryview of the block. So when
        # it is collected, no view is left.
        lent = np.frombuffer(block.data, np.uint8, size)
        finalize(lent, self._back, block).atexit = False
        return lent.view(kind)

    def _back(self, block: Vector) -> None:
        if len(block) == self._size and len(self._free) < self._most:
            self._free.append(block)
