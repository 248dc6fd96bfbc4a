"""Folder of one party on disk: its private files, and the lock that keeps other processes out."""

import fcntl
import os
from pathlib import Path

from tacit.core.errors import ConfigError
from tacit.net.store.blobs import blob_paths
from tacit.net.store.index import INDEX_FILE
from tacit.runtime.atomic_files import make_private_folder, open_private, remove_leftovers

DATABASE_FILES = f"{INDEX_FILE}-wal", f"{INDEX_FILE}-shm"
ACCEPTED = "roster.accepted"
"""File of the accepted revision of the roster, which is here if the folder is a mounted volume."""
ACCEPTED_FILES = ACCEPTED, f"{ACCEPTED}.lock"
FILES = ("lock", "records", "records.other", "average", "state", INDEX_FILE, *DATABASE_FILES)


class StoreFolder:
    """A folder that this process has open, locked against other processes."""

    def __init__(self, path: Path) -> None:
        """Opens a folder, or creates it; raises ConfigError if it is in use, or is not the folder of a party."""
        self.path = path
        self._files: list[int] = []
        self._make()
        try:
            self._lock()
            remove_leftovers(path)
        except BaseException:
            self.close()
            raise

    def open(self, name: str) -> int:
        """Opens a file of the folder, which stays open until the folder is closed, and returns its descriptor."""
        self._files.append(open_private(self.path / name))
        return self._files[-1]

    def check_database(self) -> None:
        """Creates the index file, and refuses database files of other users: SQLite opens these files by itself."""
        os.close(open_private(self.path / INDEX_FILE))
        for name in DATABASE_FILES:
            if os.path.lexists(self.path / name):
                os.close(open_private(self.path / name))

    def close(self) -> None:
        """Closes all files and releases the lock."""
        while self._files:
            os.close(self._files.pop())

    def _make(self) -> None:
        folder = self.path
        ours = (folder / INDEX_FILE).exists() or not folder.exists()
        known = {folder / name for name in (*FILES, *ACCEPTED_FILES)}
        if not ours and (not folder.is_dir() or {*folder.iterdir()} - {*known, *blob_paths(folder)}):
            raise ConfigError(f"{folder} exists and is not the folder of a party; try: give a path that does not exist")
        make_private_folder(folder)
        folder.chmod(0o700)

    def _lock(self) -> None:
        file = self.open("lock")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(file, 20, 0).decode(errors="replace").strip()
            by = f"process {who}" if who.isdecimal() else "another process"
            raise ConfigError(f"{self.path} is in use by {by}; try: stop that process first") from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
