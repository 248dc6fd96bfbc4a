"""What goes between a process and its shards: vectors through memory that both have, and the rest through a pipe.

A pipe holds a few pages, so whoever writes a vector to it stands still until the other end has read most of it, and on
its way it is copied five times. In memory that is shared it is copied twice, once by each end, at its own time.
"""

import pickle
from mmap import mmap
from pickle import PickleBuffer
from typing import Any

AREA = 1 << 25
"""Bytes of a stretch of memory. Only what is used of it is ever taken."""
LONG = 1 << 12
"""Bytes from which on something is put there."""


class Area:
    """Memory that a process has in common with those that it forks.

    One end puts a thing there, and does so again only when the other has taken it out.
    """

    def __init__(self) -> None:
        self._memory = memoryview(mmap(-1, AREA))

    def put(self, thing: Any) -> bytes:
        """Returns a thing as bytes, for the other end to take it out with. What does not fit is in these bytes."""
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

    def taken(self, said: bytes) -> Any:
        """Returns what was put there, which from then on has nothing to do with this memory."""
        rest, places = pickle.loads(said)  # noqa: S301 (our own bytes)
        found = (
            (bytes if readonly else bytearray)(self._memory[begin : begin + size]) for begin, size, readonly in places
        )
        return pickle.loads(rest, buffers=found)  # noqa: S301 (our own bytes)
