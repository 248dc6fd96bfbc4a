"""Memory for vectors that is used again: on many machines, to touch memory first costs more than to fill it.

A vector is lent a block, and the block is back when nobody has a view of it any more, whoever that was. So nobody has
to say that a vector is no longer needed, and none is ever lent twice.
"""

from collections import defaultdict
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from tacit.core.suite import Vector

GRAIN = 1 << 20
"""What the sizes of blocks are multiples of, so that vectors that are nearly as long take turns."""
LEAST = 4 * GRAIN
"""Bytes from which on a vector is lent a block. The C library keeps what is smaller."""


class Rooms:
    """Blocks of memory, of which those that are back are lent again, as long as they are kept."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Vector]] = defaultdict(list)
        self._keeps = False

    def keep(self, keeps: bool) -> None:
        """Has blocks kept that are back, or not; then the system has all at once that were."""
        self._keeps = keeps
        if not keeps:
            self._free.clear()

    def empty(self, length: int, dtype: DTypeLike) -> Vector:
        """Returns a vector of any numbers, as `numpy.empty` does."""
        kind = np.dtype(dtype)
        size = length * kind.itemsize
        if size < LEAST:
            return np.empty(length, kind)
        free = self._free[-(-size // GRAIN)]
        try:
            block = free.pop()
        except IndexError:
            block = np.empty(-(-size // GRAIN) * GRAIN, np.uint8)
        # What is made of a vector refers to it or, where it is lent by way of a memoryview, to what was lent, but never
        # to the block: so that when this one is gone, all of them are.
        lent = np.frombuffer(block.data, np.uint8, size)
        finalize(lent, self._back, block).atexit = False
        return lent.view(kind)

    def _back(self, block: Vector) -> None:
        if self._keeps:
            self._free[len(block) // GRAIN].append(block)
