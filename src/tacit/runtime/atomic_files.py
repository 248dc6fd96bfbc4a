"""Files that are there whole or not at all, whatever happens while they are written."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file in place of the one before, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def create_private(path: Path, data: bytes) -> None:
    """Writes a file that only its owner can read, whole or not at all; raises FileExistsError if there is one."""
    # The file gets its name once it is whole. A link, unlike a renaming, never takes the name from another file.
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
    settle(path.parent)


def settle(folder: Path) -> None:
    """Waits until the names of a folder's files are on disk."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
