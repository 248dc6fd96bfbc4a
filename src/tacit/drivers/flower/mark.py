"""What a party on Flower keeps on its own disk: which round it is in, its state, and the tip of its journal.

Journals are with Flower, which may lose them, or hand out an older copy. A mark is what such a copy is told by: it has
the tip, as the contract of `drivers.round` has it, and the numbers that are used up, which go on over all runs. It is
sealed, and a process that has it open is the only one.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tacit.core.errors import ConfigError, JournalError, WireError
from tacit.core.suite import Party
from tacit.crypto.sealing import Sealing
from tacit.drivers.files import replace_file, settle

RENEW = "begin a new session: tacit roster renew"


class Standing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a party stands."""

    number: int = 0
    """The last round that is used up."""
    under_way: bool = False
    """Whether it was neither finished nor given up."""
    tip: bytes = b""
    """Of its journal."""
    state: bytes | None = None
    """The state that was saved last, as the party's after so many rounds."""

    def __repr__(self) -> str:
        return f"Standing({self.number}{', under way' if self.under_way else ''})"


class Mark:
    """The folder in which a party's standing is. Nobody else opens it until it is closed."""

    def __init__(self, folder: Path, party: Party, sealing: Sealing) -> None:
        """Opens a folder, or makes it if there is none; waits for whoever has it open.

        Raises ConfigError if it cannot be opened, and JournalError if what is in it is not what was written there.
        """
        self._path, self._sealing, self._context = folder / "mark", sealing, b"tacit/v1/flower/mark" + party.encode()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror}; use another folder") from None
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self.standing = self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> Standing:
        if not self._path.exists():
            return Standing()
        try:
            return msgspec.msgpack.decode(self._sealing.open(self._path.read_bytes(), self._context), type=Standing)
        except (WireError, msgspec.DecodeError) as error:
            raise JournalError(f"{self._path} is not as it was written ({error}); restore it, or {RENEW}") from None

    def write(self, standing: Standing) -> None:
        """Puts a standing in the place of the one before; it is on disk when this returns."""
        try:
            replace_file(self._path, self._sealing.seal(msgspec.msgpack.encode(standing), self._context))
            settle(self._path.parent)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}; nothing was sent") from None
        self.standing = standing

    def close(self) -> None:
        """Lets others have the folder."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
