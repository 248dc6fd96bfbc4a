"""Atomic file writes: a file exists whole or not at all, whatever interrupts the write."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
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
