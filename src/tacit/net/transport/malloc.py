"""How the C library keeps the memory of pieces: what is freed is used again, and not given back and asked for anew.

A vector of 100 MB passes as a hundred pieces, each of which is taken and freed a few times on its way through grpc. By
default glibc gives their memory back to the system in between, and taking it again, page by page, costs as much as
encrypting it. Vectors themselves are still given back as soon as they are freed.
"""

import ctypes
from contextlib import suppress

from tacit.core.messages import PIECE

_TRIM, _MMAP, _ARENAS = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
KEPT = 16 * PIECE
"""Bytes at the end of a heap up to which they are kept."""
LARGE = 4 * PIECE
"""Bytes from which on something is a vector and no piece."""
HEAPS = 2
"""Heaps of a process. By default each thread of grpc's may have one, and each keeps as much."""


def keep_heap() -> None:
    """Has the C library keep what pieces take, where it can be told so: with glibc."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM, KEPT)
        mallopt(_MMAP, LARGE)
        mallopt(_ARENAS, HEAPS)
