"""Memory for vectors that is used again: on many machines, to touch memory first costs more than to fill it.

A vector is lent a block, and the block is back when nobody has a view of it any more, whoever that was. So nobody has
to say that a vector is no longer needed, and none is ever lent twice. All blocks are of one size, and no more of them
are kept than is said, whatever somebody may send.
"""

from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from tacit.core.suite import Vector

LEAST = 1 << 22
"""Bytes from which on there are blocks. The C library keeps what is smaller."""
WASTE = 1 / 8
"""The part of a block that a vector may leave unused."""


class BufferPool:
    """Blocks of memory, of which some that are back are kept, and lent again."""

    def __init__(self) -> None:
        self._size = self._most = 0
        self._free: list[Vector] = []

    def fit(self, size: int) -> None:
        """Has blocks for vectors of so many bytes, with what they travel in, in place of those there were."""
        fits = int(size * (1 + WASTE / 2)) if size >= LEAST else 0
        if fits != self._size:
            self._size = fits
            self._free.clear()

    def keep(self, most: int) -> None:
        """Has so many blocks kept that are back, and no more. The system has the others at once."""
        self._most = most
        del self._free[most:]

    def empty(self, length: int, dtype: DTypeLike) -> Vector:
        """Returns a vector of any numbers, as `numpy.empty` does."""
        kind = np.dtype(dtype)
        size = length * kind.itemsize
        if not (1 - WASTE) * self._size < size <= self._size:
            return np.empty(length, kind)
        try:
            block = self._free.pop()
        except IndexError:
            block = np.empty(self._size, np.uint8)
        # Whatever is made of this one refers to it and not to the block, for the block is not its base but by way of a
        # memoryview. So when it is gone, nobody has a view any more.
        lent = np.frombuffer(block.data, np.uint8, size)
        finalize(lent, self._back, block).atexit = False
        return lent.view(kind)

    def _back(self, block: Vector) -> None:
        if len(block) == self._size and len(self._free) < self._most:
            self._free.append(block)
