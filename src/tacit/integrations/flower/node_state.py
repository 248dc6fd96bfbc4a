"""Durable state of a node on Flower, on the node's own disk: last round, protocol state, and tip of the journal.

Flower stores the journals. It may lose them, or return an older copy. The node's folder detects such a copy: it has the
tip of the journal (see `runtime.round`) and the number of the last used round, which increases over all runs. Both
files are encrypted. Only one process at a time opens the folder.

The file `mark`, with the record, is written before anything else in a folder. So a folder with other files and no
`mark` has lost it, and is refused. The first record gets a random *incarnation*, which enters the session of every
round. A party whose whole folder is lost starts again with another incarnation, and never repeats a mask.

The tip has a file of its own that is not synchronised to disk. If the process ends, the file remains. If the machine
fails, the journal is lost as well, because Flower keeps it in memory.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, JournalError, WireError
from tacit.core.link import frame_parts
from tacit.core.suite import Party
from tacit.crypto.sealing import Sealing
from tacit.runtime.atomic_files import (
    create_private,
    make_private_folder,
    open_private,
    read_own_file,
    remove_leftovers,
    replace_file,
    sync_folder,
)

T = TypeVar("T")
INCARNATION_BYTES = 16
RENEW = "begin a new session: tacit roster renew"


class NodeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Progress of a party over all rounds, without the tip of its journal. Field names are part of the file format."""

    number: int = 0
    """Number of the last round whose number was used."""
    under_way: bool = False
    """Whether that round is neither finished nor abandoned."""
    entries: int = 0
    """Length of the vectors in that round."""
    averaged: int = 0
    """Number of the last round in which this party got an average of its own; 0 if there was none."""
    state: bytes | None = None
    """Encoded protocol state that was saved last."""
    incarnation: bytes = b""
    """Random identifier of this record; a party that lost its folder gets another one."""
    company: dict[Party, bytes] = {}
    """Incarnations of all parties that were asked for the last round."""
    session: str = ""
    """Nonce of the roster under which `seen` was recorded (server only)."""
    seen: dict[Party, bytes] = {}
    """First incarnation of each contributor in that session (server only)."""

    def __repr__(self) -> str:
        return f"NodeRecord({self.number}{', under way' if self.under_way else ''})"


class NodeFolder:
    """Locked folder with the record of a party and the tip of its journal."""

    def __init__(self, folder: Path, party: Party, sealing: Sealing) -> None:
        """Opens a folder, or creates it; waits while another process has it open.

        Raises ConfigError if it cannot be opened, and JournalError if its files were lost or changed.
        """
        self._folder, self._sealing, self._party = folder, sealing, party.encode()
        try:
            make_private_folder(folder)
            self._create_record()
            self._lock = open_private(folder / "lock")
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror}; try: use another folder") from None
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            remove_leftovers(folder)
            record = self._read("mark", NodeRecord)
            if record is None:
                raise JournalError(
                    f"{folder / 'mark'} is lost, and with it the number of the last round; try: {self._cure}"
                )
            self.record = record
            number, tip = self._read("tip", tuple[int, bytes]) or (0, b"")
        except BaseException:
            self.close()
            raise
        self.tip = tip if number == self.record.number else b""
        """Tip of the journal of the current round; empty if it is not known."""

    @property
    def _cure(self) -> str:
        return f"move {self._folder} away, and {RENEW}"

    def _create_record(self) -> None:
        """Writes the first record, unless the folder has any file that is written after one."""
        if any((self._folder / name).exists() for name in ("mark", "tip", "lock")):
            return
        first = NodeRecord(incarnation=SystemEntropy().bytes(INCARNATION_BYTES))
        with suppress(FileExistsError):  # Another process created it first.
            create_private(self._folder / "mark", self._encode_sealed("mark", first))

    def _encode_sealed(self, name: str, value: Any) -> bytes:
        return self._sealing.seal(msgspec.msgpack.encode(value), self._context(name))

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self._folder / name
        try:
            return msgspec.msgpack.decode(self._sealing.open(read_own_file(path), self._context(name)), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, WireError, msgspec.DecodeError) as error:
            raise JournalError(f"{path} was changed ({error}); try: {self._cure}") from None

    def write(self, record: NodeRecord, tip: bytes) -> None:
        """Replaces the record and the tip; the record is durable when this returns."""
        try:
            if tip != self.tip or record.number != self.record.number:
                sealed = self._encode_sealed("tip", (record.number, tip))
                replace_file(self._folder / "tip", sealed, durable=False)
            if record != self.record:
                replace_file(self._folder / "mark", self._encode_sealed("mark", record))
                sync_folder(self._folder)
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be written: {error.strerror}; nothing was sent") from None
        self.record, self.tip = record, tip

    def _context(self, name: str) -> bytes:
        return frame_parts(b"tacit/v1/flower", name.encode(), self._party)

    def close(self) -> None:
        """Unlocks the folder."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
