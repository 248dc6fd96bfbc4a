"""Bounded pool of reusable vector buffers: on many machines, touching new memory costs more than filling it.

A vector borrows a block, and the block returns to the pool once no view of it is left. So callers never release
vectors, and no block has two users. All blocks have one size. The number of free blocks is bounded, whatever other
parties send.
"""

from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from tacit.core.suite import Vector

LEAST = 1 << 22
"""Smallest size, in bytes, of pooled vectors. The C library already reuses smaller blocks."""
WASTE = 1 / 8
"""Largest fraction of a block that a vector may leave unused."""


class BufferPool:
    """Pool of memory blocks of one size. It keeps a bounded number of free ones for reuse."""

    def __init__(self) -> None:
        self._size = self._most = 0
        self._free: list[Vector] = []

    def fit(self, size: int) -> None:
        """Sets the block size to fit vectors of `size` bytes and their envelopes. Drops blocks of another size."""
        fits = int(size * (1 + WASTE / 2)) if size >= LEAST else 0
        if fits != self._size:
            self._size = fits
            self._free.clear()

    def keep(self, most: int) -> None:
        """Sets the most free blocks to keep, and returns the others to the system at once."""
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
        # Views of `lent` refer to `lent` and not to the block, because its base is a memoryview of the block. So no
        # view is left when `lent` is collected, and its finalizer may return the block.
        lent = np.frombuffer(block.data, np.uint8, size)
        finalize(lent, self._back, block).atexit = False
        return lent.view(kind)

    def _back(self, block: Vector) -> None:
        if len(block) == self._size and len(self._free) < self._most:
            self._free.append(block)
