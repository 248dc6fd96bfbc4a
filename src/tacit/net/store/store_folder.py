"""Folder of one party on disk: its private files, and the lock that keeps other processes out."""

import fcntl
import os
from pathlib import Path

from tacit.core.errors import ConfigError
from tacit.net.store.blobs import blob_paths
from tacit.net.store.index import INDEX_FILE
from tacit.net.store.log import open_private

FILES = ("lock", "records", "records.other", "average", "state", INDEX_FILE, f"{INDEX_FILE}-wal", f"{INDEX_FILE}-shm")


class StoreFolder:
    """A folder that this process has open, and nobody else."""

    def __init__(self, path: Path) -> None:
        """Opens a folder, or creates it; raises ConfigError if it is in use, or is no folder of a party."""
        self.path = path
        self._files: list[int] = []
        self._make()
        try:
            self._lock()
        except BaseException:
            self.close()
            raise

    def open(self, name: str) -> int:
        """Returns a file of the folder, which stays open as long as the folder does."""
        self._files.append(open_private(self.path / name))
        return self._files[-1]

    def close(self) -> None:
        """Closes all files, for others to open."""
        while self._files:
            os.close(self._files.pop())

    def _make(self) -> None:
        folder = self.path
        ours = (folder / INDEX_FILE).exists() or not folder.exists()
        if not ours and (
            not folder.is_dir() or {*folder.iterdir()} - {*(folder / name for name in FILES), *blob_paths(folder)}
        ):
            raise ConfigError(f"{folder} is there already, and no folder of a party; give it one that is not there")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)

    def _lock(self) -> None:
        file = self.open("lock")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(file, 20, 0).decode(errors="replace").strip()
            by = f"process {who}" if who.isdecimal() else "another process"
            raise ConfigError(f"{self.path} is in use by {by}; end that first") from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
