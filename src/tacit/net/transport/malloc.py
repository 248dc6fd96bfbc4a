"""Settings of the C library's allocator, so that the memory of frame pieces is reused.

A vector of 100 MB is sent as a hundred pieces, each of which is allocated and freed a few times inside gRPC. By default
glibc returns their memory to the system in between, and allocating it again, page by page, costs as much as encrypting
it. Vectors themselves are still returned as soon as they are freed.
"""

import ctypes
from contextlib import suppress

from tacit.core.messages import PIECE

_TRIM, _MMAP, _ARENAS = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
KEPT = 16 * PIECE
"""Free bytes at the end of a heap that are kept."""
LARGE = 4 * PIECE
"""Bytes from which on an allocation is a vector and not a piece."""
HEAPS = 2
"""Heaps of a process. By default each thread of gRPC may have one, and each keeps as much."""


def tune_malloc() -> None:
    """Has the C library keep the memory of pieces, where that is supported: with glibc."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM, KEPT)
        mallopt(_MMAP, LARGE)
        mallopt(_ARENAS, HEAPS)
