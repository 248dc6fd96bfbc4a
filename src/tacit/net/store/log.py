"""Files of a store: the records of the round that is under way, and what is too long for a page of the book.

They are made once, with the folder, and from then on written in place and cut off. So their names are on disk for good,
and what is written takes one fsync, not a second one for the folder. What lies in them counts only if the book says so,
and until it does it can be written again.

Every piece has a checksum, for a cut may leave half of one. It is under a key of the folder's own, and has the place in
it. A long message is written before anybody knows whose it is (`Store.stage`), and if it is then thrown away, what is
shorter is written over its front, and only then is the rest cut off. So a cut may leave bytes behind the records that
somebody else has chosen. Whoever does not know the key can choose none that are a piece, and what is a piece in one
place is none in another.
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
_ROOM, _DISK = "make room, and go on or restart", "see to the disk, and restart"
_PASSING = {  # what SQLite says of the disk, and not of what lies on it
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
"""What places and lengths are multiples of where bytes go past the cache."""


@contextmanager
def careful(folder: Path) -> Iterator[None]:
    """Turns what the disk fails with into one line: TransportError, or JournalError if what lies on it is damaged."""
    try:
        yield
    except OSError as error:
        cure = _ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else _DISK
        raise TransportError(f"{folder} cannot be read or written ({error.strerror or error}); {cure}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what is damaged may have damaged names in it
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code not in _PASSING:
            raise damaged(folder, str(error)) from error
        cure = _ROOM if code == sqlite3.SQLITE_FULL else _DISK
        raise TransportError(f"{folder} cannot be read or written ({_line(str(error))}); {cure}") from error


def damaged(folder: Path, why: str) -> JournalError:
    """Returns what says that a folder can no longer be told what it says."""
    said = f"the book in {folder} cannot be gone on from ({_line(why)})"
    return JournalError(f"{said}; move the folder away, and {RENEW}")


def _line(text: str) -> str:
    """Returns a text as one line that prints. SQLite says several, with names in them that may be damaged."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def private(path: Path) -> int:
    """Opens a file that only its owner can read, and makes it if it is not there."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(file, 0o600)  # whatever the umask is, and whoever copied it
    return file


def replace_private(path: Path, data: Buffer) -> None:
    """Writes a file that only its owner can read, in place of the one before, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    file = private(fresh)
    try:
        write(file, data)
    finally:
        os.close(file)
    fresh.replace(path)


def octets(vector: Vector) -> memoryview:
    """Returns the bytes of a vector, without a copy if they lie one behind the other."""
    return np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data


def _put(file: int, at: int, data: Buffer) -> int:
    """Writes bytes at a place, and returns where they end."""
    left = memoryview(data)
    if left.nbytes >= PIECE:
        ahead = -at % _BLOCK
        at, left = _put(file, at, left[:ahead]), left[ahead:]
        done = _past_cache(file, at, left)
        at, left = at + done, left[done:]
    while left.nbytes:
        count = os.pwrite(file, left, at)
        at, left = at + count, left[count:]
    return at


def _past_cache(file: int, at: int, data: memoryview) -> int:
    """Writes whole blocks straight to the disk, and returns how many bytes it took: none where that cannot be done.

    In the system's cache, memory would be taken for a second copy of every vector, page by page, and that costs more
    than all the rest of writing it. Nobody reads it from there: what is long is only read after a crash.
    """
    whole, done, flags = data.nbytes - data.nbytes % _BLOCK, 0, fcntl.fcntl(file, fcntl.F_GETFL)
    room = memoryview(mmap.mmap(-1, PIECE))  # for memory has to begin at a block too
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | getattr(os, "O_DIRECT", 0))
        while done < whole:
            part = data[done : min(done + PIECE, whole)]
            room[: part.nbytes] = part
            count = os.pwrite(file, room[: part.nbytes], at + done)
            done += count - count % _BLOCK
            if count < _BLOCK:  # there is no room for more, which the cache has an error for
                break
    except OSError as error:
        if error.errno != errno.EINVAL:  # which is what file systems say that cannot
            raise
    finally:
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
    return done


def content(file: int, at: int, size: int) -> bytearray:
    """Returns so many bytes, or as many as there are."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size and (count := os.preadv(file, [view[done:]], at + done)):
        done += count
    view.release()
    del data[done:]
    return data


# --- one thing in a file -------------------------------------------------------------------------------------------


def _check(parts: Iterable[Buffer], key: bytes = bytes(32)) -> bytes:
    """Returns what tells bytes from those that a cut or a fault leaves, and, under a key, from those of others."""
    return gmac(key, parts)


class Sum(NamedTuple):
    """What a file must hold."""

    size: int = 0
    check: bytes = b""


def write(file: int, data: Buffer) -> None:
    """Puts bytes in the place of what a file held. They are on disk when it returns."""
    os.ftruncate(file, _put(file, 0, data))
    os.fsync(file)


def known(data: Buffer) -> Sum:
    """Returns what bytes in a file are known by."""
    return Sum(memoryview(data).nbytes, _check((data,)))


def read(file: int, expected: Sum, what: str) -> bytearray:
    """Returns the bytes of a file; raises JournalError if they are not those that were written."""
    data = content(file, 0, expected.size)
    if (os.fstat(file).st_size, known(memoryview(data))) != (expected.size, expected):
        raise JournalError(f"{what} was changed, or is from another time; restore it, or {RENEW}")
    return data


def forget(file: int) -> None:
    """Cuts off what a file holds."""
    if os.fstat(file).st_size:
        os.ftruncate(file, 0)


# --- records -------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Something that was written in one go, and where it ends."""

    data: bytes
    end: int


class Records:
    """What was brought to a round, and its records, one behind the other.

    In front stands the last round that was over before, so that a book of another time is noticed. That is written when
    the folder is made, so that a file without it is one that is gone.
    """

    start = _HEAD.size + _CHECK_BYTES
    """Where the first piece begins."""

    def __init__(self, file: int, incarnation: bytes, key: bytes) -> None:
        """Reads and writes a file of a folder, by its incarnation, and its key, which nobody else knows."""
        self._file, self._incarnation, self._key = file, incarnation, key

    @classmethod
    def unused(cls, file: int) -> bool:
        """Says whether a file never had a round in it, as far as can be said without the folder's key."""
        head, size = bytes(content(file, 0, _HEAD.size)), os.fstat(file).st_size
        return size < cls.start or (size == cls.start and not _HEAD.unpack(head)[2])

    @property
    def gone(self) -> bool:
        """Whether the file is another one than was made with the folder, which nobody has written in."""
        return os.fstat(self._file).st_size < self.start

    def over(self) -> int | None:
        """Returns the last round that was over; None if that cannot be read, or is another folder's."""
        head = bytes(content(self._file, 0, self.start))
        if len(head) < self.start or head[_HEAD.size :] != _check((head[: _HEAD.size],), self._key):
            return None
        kind, incarnation, number = _HEAD.unpack_from(head)
        return int(number) if (kind, incarnation) == (_KIND, self._incarnation) else None

    def clear(self, over: int) -> None:
        """Drops everything, now that a round is over.

        This needs no fsync: until it is on disk, the file has records of a round that the book says is over.
        """
        self.cut(self.start)  # first, or they would be taken for records of the round after it
        head = _HEAD.pack(_KIND, self._incarnation, over)
        _put(self._file, 0, head + _check((head,), self._key))

    def make(self) -> None:
        """Writes that no round was over yet. It is on disk when it returns."""
        self.clear(0)
        os.fsync(self._file)

    def cut(self, end: int) -> None:
        """Drops what lies behind a place."""
        if os.fstat(self._file).st_size > end:
            os.ftruncate(self._file, end)

    def add(self, at: int, *pieces: Sequence[Buffer], ahead: bool = False) -> int:
        """Writes pieces, each of one or more parts, at a place; returns, once they are on disk, where they end.

        A piece that goes ahead is the event of the record behind it, which has nothing in its place. What lay behind it
        is cut off.
        """
        end = at
        try:
            for parts in pieces:
                size = sum(memoryview(part).nbytes for part in parts)
                for part in (_FRAME.pack(ahead, size, self._sum(end, ahead, size, parts)), *parts):
                    end = _put(self._file, end, part)
            self.cut(end)
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                self.cut(at)
            raise
        return end

    def pieces(self) -> list[Piece]:
        """Returns what is whole, up to the first piece that is not."""
        found: list[Piece] = []
        place, size, event = self.start, os.fstat(self._file).st_size, b""
        while place + _FRAME.size <= size:
            at = place
            ahead, length, check = _FRAME.unpack(content(self._file, at, _FRAME.size))
            place += _FRAME.size
            data = bytes(content(self._file, place, length)) if place + length <= size else b""
            if len(data) != length or self._sum(at, ahead, length, (data,)) != check:
                break
            place += length
            if ahead:
                event = data
                continue
            if event:
                if not data.endswith(_NIL):
                    break
                data = b"".join((data[: -len(_NIL)], binary(len(event)), event))
            found.append(Piece(data, place))
            event = b""
        return found

    def _sum(self, at: int, ahead: bool, size: int, parts: Sequence[Buffer]) -> bytes:
        """Returns the checksum of a piece that begins at a place."""
        return _check((_PLACE.pack(ahead, at, size), *parts), self._key)
