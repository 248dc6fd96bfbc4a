"""Files of a folder that may be anybody's: only plain ones are opened, and only so much of them is read."""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from tacit.core.errors import ConfigError

MOST_BYTES = 2**20
"""Of a file that is one table."""


class Read(NamedTuple):
    """What was read of a file, and whether there is more."""

    data: bytes
    cut: bool


def read(path: Path, most: int = MOST_BYTES, last: bool = False) -> Read | None:
    """Returns the beginning of a file, or the last of it; None if there is none.

    Raises ConfigError for what is there and is no plain file: a link, a folder, or a pipe, which nobody may ever write
    to, so that whoever opens it would wait for good.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(_odd(path) if path.is_symlink() else f"{path.name}: {error.strerror}") from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(_odd(path))
        with os.fdopen(file, "rb", closefd=False) as opened:
            opened.seek(max(0, found.st_size - most) if last else 0)
            data = opened.read(most)
    finally:
        os.close(file)
    return Read(data, found.st_size > len(data))


def whole_file(path: Path) -> bytes | None:
    """Returns what is in a file; None if there is none. Raises ConfigError if it is odd, or too long to be ours."""
    found = read(path)
    if found is not None and found.cut:
        raise ConfigError(f"{path.name} is longer than {MOST_BYTES} bytes")
    return None if found is None else found.data


def _odd(path: Path) -> str:
    return f"{path.name} is no plain file"


def changed(path: Path) -> tuple[int, int]:
    """Returns what differs whenever a file was written."""
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def shown(name: str) -> str:
    """Returns a name as it can be told: names of files are bytes, and not all bytes are letters."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
