"""Memory for vectors that is used again: on many machines, to touch memory first costs more than to fill it.

A vector is lent a block, and the block is back when nobody has a view of it any more, whoever that was. So nobody has
to say that a vector is no longer needed, and none is ever lent twice. All blocks are of one size, so that as many are
kept as were in use at a time, and nobody who sends something of another length can make it more.
"""

from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from tacit.core.suite import Vector

LEAST = 1 << 22
"""Bytes from which on there are blocks. The C library keeps what is smaller."""
WASTE = 1 / 8
"""The part of a block that a vector may leave unused."""


class Rooms:
    """Blocks of memory, of which those that are back are lent again, as long as they are kept."""

    def __init__(self) -> None:
        self._size, self._keeps = 0, False
        self._free: list[Vector] = []

    def fit(self, size: int) -> None:
        """Has blocks for vectors of so many bytes, with what they travel in, in place of those there were."""
        fits = int(size * (1 + WASTE / 2)) if size >= LEAST else 0
        if fits != self._size:
            self._size = fits
            self._free.clear()

    def keep(self, keeps: bool) -> None:
        """Has blocks kept that are back, or not; then the system has all at once that were."""
        self._keeps = keeps
        if not keeps:
            self._free.clear()

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
        if self._keeps and len(block) == self._size:
            self._free.append(block)
