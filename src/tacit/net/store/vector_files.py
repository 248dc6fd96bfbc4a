"""Files with a vector or another value that is too long for the index: written in place, past the page cache."""

import errno
import fcntl
import mmap
import os
from typing import NamedTuple

import numpy as np

from tacit.core.errors import JournalError
from tacit.core.messages import PIECE
from tacit.core.suite import Buffer, Vector
from tacit.crypto.sealing import gmac
from tacit.net.store.disk_errors import RENEW

_BLOCK = mmap.PAGESIZE
"""Granularity of offsets and lengths in writes that bypass the page cache."""


# --- records -------------------------------------------------------------------------------------------------------


def view_octets(vector: Vector) -> memoryview:
    """Returns the bytes of a vector, without a copy if they are contiguous."""
    return np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data


def write_at(file: int, at: int, data: Buffer) -> int:
    """Writes bytes at an offset. Returns the offset after them."""
    left = memoryview(data)
    if left.nbytes >= PIECE:
        ahead = -at % _BLOCK
        at, left = write_at(file, at, left[:ahead]), left[ahead:]
        done = _write_direct(file, at, left)
        at, left = at + done, left[done:]
    while left.nbytes:
        count = os.pwrite(file, left, at)
        at, left = at + count, left[count:]
    return at


def _write_direct(file: int, at: int, data: memoryview) -> int:
    """Writes whole blocks past the page cache. Returns the number of bytes written: 0 where that is unsupported.

    The page cache would allocate a second copy of every vector, page by page, which costs more than the rest of the
    write. The copy would be useless, because long values are read only after a crash.
    """
    whole, done, flags = data.nbytes - data.nbytes % _BLOCK, 0, fcntl.fcntl(file, fcntl.F_GETFL)
    buffer = memoryview(mmap.mmap(-1, PIECE))  # the memory must be aligned to blocks too
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | getattr(os, "O_DIRECT", 0))
        while done < whole:
            part = data[done : min(done + PIECE, whole)]
            buffer[: part.nbytes] = part
            count = os.pwrite(file, buffer[: part.nbytes], at + done)
            done += count - count % _BLOCK
            if count < _BLOCK:  # the disk is full; the write through the page cache will report it
                break
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system does not support direct writes
            raise
    finally:
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
    return done


def read_at(file: int, at: int, size: int) -> bytearray:
    """Returns up to `size` bytes from an offset."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size and (count := os.preadv(file, [view[done:]], at + done)):
        done += count
    view.release()
    del data[done:]
    return data


class FileChecksum(NamedTuple):
    """Size and checksum of a file."""

    size: int = 0
    check: bytes = b""


def write_file(file: int, data: Buffer) -> None:
    """Overwrites a file. The bytes are on disk when this returns."""
    os.ftruncate(file, write_at(file, 0, data))
    os.fdatasync(file)


def compute_checksum(data: Buffer) -> FileChecksum:
    """Returns the size and checksum of bytes."""
    return FileChecksum(memoryview(data).nbytes, gmac(bytes(32), (data,)))


def read_checked(file: int, expected: FileChecksum, what: str) -> bytearray:
    """Returns the bytes of a file; raises JournalError if they do not match the checksum."""
    data = read_at(file, 0, expected.size)
    if (os.fstat(file).st_size, compute_checksum(memoryview(data))) != (expected.size, expected):
        raise JournalError(f"{what} was changed, or is an older copy; try: restore it, or {RENEW}")
    return data


def truncate_file(file: int) -> None:
    """Empties a file."""
    if os.fstat(file).st_size:
        os.ftruncate(file, 0)
