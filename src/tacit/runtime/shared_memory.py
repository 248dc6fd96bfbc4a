"""Shared memory between a process and its shards, for vectors. The rest of a request goes through a pipe.

A pipe holds a few pages, so writing a vector blocks until the other end has read most of it, and the vector is copied
five times. Through shared memory it is copied twice, once by each end, without blocking.
"""

import pickle
from mmap import mmap
from pickle import PickleBuffer
from typing import Any

AREA = 1 << 25
"""Bytes of an area. The system allocates only the pages that are used."""
LONG = 1 << 12
"""Bytes from which on a buffer goes into the area."""


class SharedArea:
    """Memory that a process shares with the processes that it forks.

    One end writes an object, and writes the next one only after the other end has read it.
    """

    def __init__(self) -> None:
        self._memory = memoryview(mmap(-1, AREA))

    def write(self, thing: Any) -> bytes:
        """Writes an object, and returns the bytes with which the other end reads it. They contain what does not fit."""
        places: list[tuple[int, int, bool]] = []
        end = 0

        def stays(buffer: PickleBuffer) -> bool:
            nonlocal end
            raw = buffer.raw()
            if not LONG <= raw.nbytes <= AREA - end:
                return True
            self._memory[end : end + raw.nbytes] = raw
            places.append((end, raw.nbytes, raw.readonly))
            end += raw.nbytes
            return False

        said = pickle.dumps(thing, 5, buffer_callback=stays)
        return pickle.dumps((said, places), 5)

    def read(self, said: bytes) -> Any:
        """Returns the object that was written, as a copy."""
        rest, places = pickle.loads(said)  # noqa: S301 (our own bytes)
        found = (
            (bytes if readonly else bytearray)(self._memory[begin : begin + size]) for begin, size, readonly in places
        )
        return pickle.loads(rest, buffers=found)  # noqa: S301 (our own bytes)
