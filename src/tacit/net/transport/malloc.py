"""Settings of the C library's allocator, so that the memory of frame pieces is reused.

A vector of 100 MB is sent as a hundred pieces, each of which is allocated and freed several times inside gRPC. By
default glibc returns their memory to the system each time. Allocating it again, page by page, costs as much as
encrypting it. Vectors themselves are still returned to the system as soon as they are freed.
"""

import ctypes
from contextlib import suppress

from tacit.core.messages import PIECE

_TRIM, _MMAP, _ARENAS = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
KEPT = 16 * PIECE
"""Free bytes at the end of a heap that the library keeps."""
LARGE = 4 * PIECE
"""Size in bytes from which an allocation is a vector and not a piece."""
HEAPS = 2
"""Most heaps of a process. By default each thread of gRPC may have its own, and each heap keeps free memory."""


def tune_malloc() -> None:
    """Makes the C library keep the memory of pieces. It has an effect with glibc only."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM, KEPT)
        mallopt(_MMAP, LARGE)
        mallopt(_ARENAS, HEAPS)
