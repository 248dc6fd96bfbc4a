"""What a party on Flower keeps on its own disk: which round it is in, its state, and the tip of its journal.

Journals are with Flower, which may lose them, or hand out an older copy. A mark is what such a copy is told by: it has
the tip, as the contract of `runtime.round` has it, and the numbers that are used up, which go on over all runs. It is
sealed, and a process that has it open is the only one.

The first mark is written before anything else is put into a folder, so that a folder with anything in it and no mark
has lost it, and is refused. It draws an *incarnation*, which goes into the session of every round: a party whose whole
folder is gone begins again as another one, and masks nothing as it did before.

The tip has a file of its own, which nobody waits for until it is on the disk: a process that ends leaves it behind, and
if the whole machine does, the journal, which Flower has in memory, is gone as well.
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
from tacit.runtime.atomic_files import create_private, replace_file, sync_folder

T = TypeVar("T")
INCARNATION_BYTES = 16
RENEW = "begin a new session: tacit roster renew"


class Standing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a party stands, but for the tip of its journal."""

    number: int = 0
    """The last round that is used up."""
    under_way: bool = False
    """Whether it was neither finished nor given up."""
    entries: int = 0
    """How long its vectors are."""
    averaged: int = 0
    """The last round that left it with an average which nobody else has; 0 if none did."""
    state: bytes | None = None
    """The state that was saved last, as the party's after so many rounds."""
    incarnation: bytes = b""
    """What tells this mark from another one of the party's, which does not know what was said before."""
    company: dict[Party, bytes] = {}
    """The incarnations of all who were asked for the last round."""
    session: str = ""
    """The nonce of the roster under which a server has heard others,"""
    seen: dict[Party, bytes] = {}
    """and as which incarnations that was first."""

    def __repr__(self) -> str:
        return f"Standing({self.number}{', under way' if self.under_way else ''})"


class Mark:
    """The folder in which a party's standing is. Nobody else opens it until it is closed."""

    def __init__(self, folder: Path, party: Party, sealing: Sealing) -> None:
        """Opens a folder, or makes it if there is none; waits for whoever has it open.

        Raises ConfigError if it cannot be opened, and JournalError if what is in it is not what was written there.
        """
        self._folder, self._sealing, self._party = folder, sealing, party.encode()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make()
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror}; use another folder") from None
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            standing = self._read("mark", Standing)
            if standing is None:
                raise JournalError(f"{folder / 'mark'} is gone, and what it knew of rounds with it; {self._cure}")
            self.standing = standing
            number, tip = self._read("tip", tuple[int, bytes]) or (0, b"")
        except BaseException:
            self.close()
            raise
        self.tip = tip if number == self.standing.number else b""
        """Of the journal of the present round; none if it is not known."""

    @property
    def _cure(self) -> str:
        return f"move {self._folder} away, and {RENEW}"

    def _make(self) -> None:
        """Writes the first mark, unless there is anything that is only put beside one."""
        if any((self._folder / name).exists() for name in ("mark", "tip", "lock")):
            return
        first = Standing(incarnation=SystemEntropy().bytes(INCARNATION_BYTES))
        with suppress(FileExistsError):  # another process was first
            create_private(self._folder / "mark", self._sealed("mark", first))

    def _sealed(self, name: str, what: Any) -> bytes:
        return self._sealing.seal(msgspec.msgpack.encode(what), self._context(name))

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self._folder / name
        try:
            return msgspec.msgpack.decode(self._sealing.open(path.read_bytes(), self._context(name)), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, WireError, msgspec.DecodeError) as error:
            raise JournalError(f"{path} is not as it was written ({error}); {self._cure}") from None

    def write(self, standing: Standing, tip: bytes) -> None:
        """Puts a standing and a tip in the place of those before; the standing is on disk when this returns."""
        try:
            if tip != self.tip or standing.number != self.standing.number:
                fresh = self._folder / "tip.new"
                fresh.write_bytes(self._sealed("tip", (standing.number, tip)))
                fresh.replace(self._folder / "tip")
            if standing != self.standing:
                replace_file(self._folder / "mark", self._sealed("mark", standing))
                sync_folder(self._folder)
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be written: {error.strerror}; nothing was sent") from None
        self.standing, self.tip = standing, tip

    def _context(self, name: str) -> bytes:
        return frame_parts(b"tacit/v1/flower", name.encode(), self._party)

    def close(self) -> None:
        """Lets others have the folder."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
