"""Atomic file writes: a file exists whole or not at all, whatever interrupts the write."""

import os
import tempfile
from pathlib import Path

from tacit.core.suite import Buffer


def replace_file(path: Path, data: Buffer, *, private: bool = False, durable: bool = True) -> None:
    """Replaces a file, whole or not at all.

    Args:
        path: The file, which need not exist.
        data: Its new content.
        private: Whether only the owner can read the new file, whatever the umask is.
        durable: Whether the content is on disk when this returns. Otherwise a power failure may undo the change.
    """
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb", opener=_open_private if private else None) as file:
        if private:
            os.fchmod(file.fileno(), 0o600)  # also if an interrupted write left the file with other rights
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def create_private(path: Path, data: bytes) -> None:
    """Creates a file that only its owner can read, whole or not at all; raises FileExistsError if there is one."""
    # The file gets its name once it is whole. A link, unlike a rename, never replaces another file.
    number, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as file:
            os.fchmod(number, 0o600)  # whatever the umask is
            file.write(data)
            file.flush()
            os.fsync(number)
        os.link(fresh, path)
    finally:
        os.unlink(fresh)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the directory entries of a folder are on disk."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
