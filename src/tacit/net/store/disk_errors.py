"""Errors of the disk and of damaged content, each in one line."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.core.errors import JournalError, TransportError

RENEW = "begin a new session: tacit roster renew"
_ROOM, _DISK = "free disk space, and go on or restart", "check the disk, and restart"
_PASSING = {  # SQLite's errors about the disk, and not about its content
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}


@contextmanager
def translate_disk_errors(folder: Path) -> Iterator[None]:
    """Converts disk errors to an error with one line: TransportError, or JournalError if the content is damaged."""
    try:
        yield
    except OSError as error:
        cure = _ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else _DISK
        raise TransportError(f"{folder} cannot be read or written ({error.strerror or error}); try: {cure}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged file may contain damaged names
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code not in _PASSING:
            raise damage_error(folder, str(error)) from error
        cure = _ROOM if code == sqlite3.SQLITE_FULL else _DISK
        raise TransportError(f"{folder} cannot be read or written ({_line(str(error))}); try: {cure}") from error


def damage_error(folder: Path, why: str) -> JournalError:
    """Returns the error for a folder whose index cannot be used."""
    return JournalError(f"the index in {folder} cannot be used ({_line(why)}); try: move the folder away, and {RENEW}")


def _line(text: str) -> str:
    """Returns a text as one printable line. SQLite's errors have several lines, and may contain damaged names."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
