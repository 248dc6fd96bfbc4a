"""Shared memory between a process and its shards, for vectors. Other parts of a request are sent through a pipe.

A pipe's buffer is a few pages, so writing a vector blocks until the other end has read most of it, and the vector is
copied five times. With shared memory it is copied twice, once at each end, without blocking.
"""

import pickle
from mmap import mmap
from pickle import PickleBuffer
from typing import Any

AREA = 1 << 25
"""Bytes of an area. The system allocates only the pages that are used."""
LONG = 1 << 12
"""Size in bytes from which a buffer is written to the area."""


class SharedArea:
    """Memory that a process shares with the processes that it forks.

    One end writes an object, and writes the next one only after the other end has read it.
    """

    def __init__(self) -> None:
        self._memory = memoryview(mmap(-1, AREA))

    def write(self, thing: Any) -> bytes:
        """Writes an object. Returns the bytes that `read` needs, which include everything that is not in the area."""
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
        """Returns a copy of the object that the other end wrote."""
        rest, places = pickle.loads(said)  # noqa: S301 (our own bytes)
        found = (
            (bytes if readonly else bytearray)(self._memory[begin : begin + size]) for begin, size, readonly in places
        )
        return pickle.loads(rest, buffers=found)  # noqa: S301 (our own bytes)
