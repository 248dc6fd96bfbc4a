"""Log files of a store: the records of the present round, and values that are too long for the index.

The files are created once, with the folder. From then on they are overwritten in place and truncated. So their names
are permanently on disk, and a write takes one fsync, without a second one for the folder. Their content counts only if
the index refers to it, and can be overwritten until then.

Every entry has a checksum, because a crash may leave half an entry. The checksum is keyed with the folder's own secret
key and covers the offset. A long message is written before its sender is authenticated (`RoundStore.stage`). If it is
then discarded, shorter entries overwrite its beginning before the rest is truncated. So after a crash, bytes chosen by
an adversary may follow the records. Without the key, an adversary cannot choose bytes that form a valid entry, and an
entry is valid at its own offset only.
"""

import errno
import fcntl
import mmap
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from tacit.core.errors import JournalError, TransportError
from tacit.core.messages import PIECE, binary
from tacit.core.suite import Buffer, Vector
from tacit.crypto.sealing import gmac

RENEW = "begin a new session: tacit roster renew"
_ROOM, _DISK = "free disk space, and go on or restart", "check the disk, and restart"
_PASSING = {  # SQLite's errors about the disk, and not about its content
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
_KIND = b"tacit records 3\n"
_HEAD = struct.Struct(">16s16sQ")
_CHECK_BYTES = 16
_FRAME = struct.Struct(f">?Q{_CHECK_BYTES}s")
_PLACE = struct.Struct(">?QQ")
_NIL = msgspec.msgpack.encode(None)
_BLOCK = mmap.PAGESIZE
"""Granularity of offsets and lengths in writes that bypass the page cache."""


@contextmanager
def translate_disk_errors(folder: Path) -> Iterator[None]:
    """Converts disk errors to an error with one line: TransportError, or JournalError if the content is damaged."""
    try:
        yield
    except OSError as error:
        cure = _ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else _DISK
        raise TransportError(f"{folder} cannot be read or written ({error.strerror or error}); try: {cure}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged file may contain damaged names
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code not in _PASSING:
            raise damage_error(folder, str(error)) from error
        cure = _ROOM if code == sqlite3.SQLITE_FULL else _DISK
        raise TransportError(f"{folder} cannot be read or written ({_line(str(error))}); try: {cure}") from error


def damage_error(folder: Path, why: str) -> JournalError:
    """Returns the error for a folder whose index cannot be used."""
    return JournalError(f"the index in {folder} cannot be used ({_line(why)}); try: move the folder away, and {RENEW}")


def _line(text: str) -> str:
    """Returns a text as one printable line. SQLite's errors have several lines, and may contain damaged names."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def view_octets(vector: Vector) -> memoryview:
    """Returns the bytes of a vector, without a copy if they are contiguous."""
    return np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data


def _write_at(file: int, at: int, data: Buffer) -> int:
    """Writes bytes at an offset. Returns the offset after them."""
    left = memoryview(data)
    if left.nbytes >= PIECE:
        ahead = -at % _BLOCK
        at, left = _write_at(file, at, left[:ahead]), left[ahead:]
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


# --- files with one value ------------------------------------------------------------------------------------------


def _compute_mac(parts: Iterable[Buffer], key: bytes = bytes(32)) -> bytes:
    """Returns a checksum that detects damage and, with a key, forgery."""
    return gmac(key, parts)


class FileChecksum(NamedTuple):
    """Size and checksum of a file."""

    size: int = 0
    check: bytes = b""


def write_file(file: int, data: Buffer) -> None:
    """Overwrites a file. The bytes are on disk when this returns."""
    os.ftruncate(file, _write_at(file, 0, data))
    os.fdatasync(file)


def compute_checksum(data: Buffer) -> FileChecksum:
    """Returns the size and checksum of bytes."""
    return FileChecksum(memoryview(data).nbytes, _compute_mac((data,)))


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


# --- records -------------------------------------------------------------------------------------------------------


class LogEntry(NamedTuple):
    """One entry of a log, and the offset of its end."""

    data: bytes
    end: int


class RecordLog:
    """The update of a round, followed by its records.

    The header has the number of the last round that was over before, so that an older copy of the index is detected. It
    is written when the folder is created, so a log file without a header has been lost or replaced.
    """

    start = _HEAD.size + _CHECK_BYTES
    """Offset of the first entry."""

    def __init__(self, file: int, incarnation: bytes, key: bytes) -> None:
        """Uses an open log file. The folder's incarnation and secret key authenticate its content."""
        self._file, self._incarnation, self._key = file, incarnation, key

    @classmethod
    def is_unused(cls, file: int) -> bool:
        """Returns whether a file never contained a round, as far as that is visible without the folder's key."""
        head, size = bytes(read_at(file, 0, _HEAD.size)), os.fstat(file).st_size
        return size < cls.start or (size == cls.start and not _HEAD.unpack(head)[2])

    @property
    def gone(self) -> bool:
        """Whether the file has no header, so that it is not the one created with the folder."""
        return os.fstat(self._file).st_size < self.start

    def over(self) -> int | None:
        """Returns the number of the last round that was over; None for a damaged header, or that of another folder."""
        head = bytes(read_at(self._file, 0, self.start))
        if len(head) < self.start or head[_HEAD.size :] != _compute_mac((head[: _HEAD.size],), self._key):
            return None
        kind, incarnation, number = _HEAD.unpack_from(head)
        return int(number) if (kind, incarnation) == (_KIND, self._incarnation) else None

    def clear(self, over: int) -> None:
        """Drops all entries, after a round is over.

        It needs no fsync: until it is on disk, the file has records of a round that is over according to the index.
        """
        self.cut(self.start)  # first, otherwise the entries could be mistaken for records of the next round
        head = _HEAD.pack(_KIND, self._incarnation, over)
        _write_at(self._file, 0, head + _compute_mac((head,), self._key))

    def make(self) -> None:
        """Writes a header for a folder without rounds. It is on disk when this returns."""
        self.clear(0)
        os.fdatasync(self._file)

    def cut(self, end: int) -> None:
        """Truncates the file at an offset."""
        if os.fstat(self._file).st_size > end:
            os.ftruncate(self._file, end)

    def add(self, at: int, *pieces: Sequence[Buffer], ahead: bool = False) -> int:
        """Writes entries at an offset. Returns the offset after them once they are on disk.

        The file is truncated after the entries.

        Args:
            at: The offset.
            pieces: The entries, each in one or more parts.
            ahead: Whether the entry is the event of the next record. That record has nil in the place of its event.
        """
        end = at
        try:
            for parts in pieces:
                size = sum(memoryview(part).nbytes for part in parts)
                for part in (_FRAME.pack(ahead, size, self._entry_mac(end, ahead, size, parts)), *parts):
                    end = _write_at(self._file, end, part)
            self.cut(end)
            os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):
                self.cut(at)
            raise
        return end

    def pieces(self) -> list[LogEntry]:
        """Returns the valid entries, up to the first invalid one."""
        found: list[LogEntry] = []
        place, size, event = self.start, os.fstat(self._file).st_size, b""
        while place + _FRAME.size <= size:
            at = place
            ahead, length, check = _FRAME.unpack(read_at(self._file, at, _FRAME.size))
            place += _FRAME.size
            data = bytes(read_at(self._file, place, length)) if place + length <= size else b""
            if len(data) != length or self._entry_mac(at, ahead, length, (data,)) != check:
                break
            place += length
            if ahead:
                event = data
                continue
            if event:
                if not data.endswith(_NIL):
                    break
                data = b"".join((data[: -len(_NIL)], binary(len(event)), event))
            found.append(LogEntry(data, place))
            event = b""
        return found

    def _entry_mac(self, at: int, ahead: bool, size: int, parts: Sequence[Buffer]) -> bytes:
        """Returns the checksum of an entry that begins at an offset."""
        return _compute_mac((_PLACE.pack(ahead, at, size), *parts), self._key)
