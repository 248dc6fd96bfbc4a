"""Log files of a store, with the records of the present round.

The files are created once, with the folder. From then on they are overwritten in place and truncated. So their names
are permanently on disk, and a write takes one fsync, without a second one for the folder. Their content counts only if
the index refers to it, and can be overwritten until then.

Every entry has a checksum, because a crash may leave half an entry. The checksum is keyed with the folder's own secret
key and covers the offset. A long message is written before its sender is authenticated (`RoundStore.stage`). If it is
then discarded, shorter entries overwrite its beginning before the rest is truncated. So after a crash, bytes chosen by
an adversary may follow the records. Without the key, an adversary cannot choose bytes that form a valid entry, and an
entry is valid at its own offset only.
"""

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from tacit.core.messages import binary
from tacit.core.suite import Buffer
from tacit.crypto.sealing import gmac
from tacit.net.store.vector_files import read_at, write_at

_KIND = b"tacit records 3\n"
_HEAD = struct.Struct(">16s16sQ")
_CHECK_BYTES = 16
_FRAME = struct.Struct(f">?Q{_CHECK_BYTES}s")
_PLACE = struct.Struct(">?QQ")
_NIL = msgspec.msgpack.encode(None)


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
        if len(head) < self.start or head[_HEAD.size :] != gmac(self._key, (head[: _HEAD.size],)):
            return None
        kind, incarnation, number = _HEAD.unpack_from(head)
        return int(number) if (kind, incarnation) == (_KIND, self._incarnation) else None

    def clear(self, over: int) -> None:
        """Drops all entries, after a round is over.

        It needs no fsync: until it is on disk, the file has records of a round that is over according to the index.
        """
        self.cut(self.start)  # first, otherwise the entries could be mistaken for records of the next round
        head = _HEAD.pack(_KIND, self._incarnation, over)
        write_at(self._file, 0, head + gmac(self._key, (head,)))

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
                    end = write_at(self._file, end, part)
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
        return gmac(self._key, (_PLACE.pack(ahead, at, size), *parts))
