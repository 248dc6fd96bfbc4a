"""Bounded reads of regular files in a folder that is not trusted."""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from tacit.core.errors import ConfigError

MOST_BYTES = 2**20
"""Largest file that is read whole, in bytes."""


class FileContent(NamedTuple):
    """Bytes of a file, and whether the file has more."""

    data: bytes
    truncated: bool


def read_file(path: Path, limit: int = MOST_BYTES, *, tail: bool = False) -> FileContent | None:
    """Returns the first `limit` bytes of a file, or the last ones; None if there is no such file.

    Raises ConfigError if the path is a link, a folder, or a pipe: opening a pipe that nobody writes to would block.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            _describe_irregular(path) if path.is_symlink() else f"{path.name}: {error.strerror}"
        ) from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(_describe_irregular(path))
        with os.fdopen(file, "rb", closefd=False) as opened:
            opened.seek(max(0, found.st_size - limit) if tail else 0)
            data = opened.read(limit)
    finally:
        os.close(file)
    return FileContent(data, found.st_size > len(data))


def read_whole_file(path: Path) -> bytes | None:
    """Returns the content of a file; None if there is none. Raises ConfigError if it is irregular or too long."""
    found = read_file(path)
    if found is not None and found.truncated:
        raise ConfigError(f"{path.name} is longer than {MOST_BYTES} bytes")
    return None if found is None else found.data


def _describe_irregular(path: Path) -> str:
    return f"{path.name} is no plain file"


def read_stamp(path: Path) -> tuple[int, int]:
    """Returns the modification time in nanoseconds and the size of a file; zeros if there is no such file."""
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def decode_name(name: str) -> str:
    """Returns a file name as printable text: names of files are bytes, and not all bytes are valid UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
