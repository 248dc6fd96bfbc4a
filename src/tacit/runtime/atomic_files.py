"""Files of a party on disk: opened without following links, refused if others can change them, replaced atomically.

All files that have to survive a crash are opened here: state folders, identities, journals, checkpoints, ledgers, run
folders. On a shared machine another user may put a symbolic link, or a file of its own, in the place of ours.
Therefore the last component of a path is not followed, checks examine the opened file and not its path, and temporary
names cannot be guessed. Files and folders of our own user and of root are accepted, if nobody else can write to them.
Identities may be links within their folder, as Kubernetes creates them (`open_key_file`).

A file is replaced by renaming a new one. So it exists completely or not at all, whatever interrupts the write.
"""

import errno
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath

from tacit.core.entropy import SystemEntropy
from tacit.core.errors import UnsafePath
from tacit.core.suite import Buffer

PRIVATE_FILE, PRIVATE_FOLDER, PUBLIC_FILE = 0o600, 0o700, 0o666
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TOKEN_BYTES = 8
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{16}\.new")
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # non-blocking, so that a pipe in the file's place cannot block us

_LINK = "{path} is a symbolic link, which may lead to files of others; try: give the path it leads to"
MOST_STEPS = 16
"""Most folders and links on the way from the given path of a key file to the file."""


# --- folders -------------------------------------------------------------------------------------------------------


def make_private_folder(folder: Path) -> None:
    """Makes a folder that only our user can open, unless it exists; raises UnsafePath if others can change it."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:  # also raised for a broken link
        raise _explain_link(folder, error) from None
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raises UnsafePath if a folder is a symbolic link, belongs to another user, or can be changed by others."""
    with _open_folder(folder) as number:
        check_owner(number, folder)


@contextmanager
def _open_folder(folder: Path, name: str | None = None, within: int | None = None) -> Iterator[int]:
    """Opens a folder without following a link. With `name`, it opens that entry of the open folder `within`."""
    try:
        number = os.open(name or folder, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=within)
    except OSError as error:
        raise _explain_link(folder, error) from None
    try:
        yield number
    finally:
        os.close(number)


def sync_folder(folder: Path) -> None:
    """Waits until the directory entries of a folder are on disk."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def is_leftover(path: Path) -> bool:
    """Returns whether a path is a temporary file that a killed process did not rename."""
    return _LEFTOVER.fullmatch(path.name) is not None


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files of killed processes. The caller must hold the folder's lock."""
    for path in folder.iterdir():
        if is_leftover(path):
            with suppress(OSError):
                path.unlink()


# --- opening -------------------------------------------------------------------------------------------------------


def open_file(
    path: str | Path, flags: int = os.O_RDONLY, mode: int = PRIVATE_FILE, *, dir_fd: int | None = None
) -> int:
    """Opens a regular file and returns its descriptor.

    Args:
        path: The file.
        flags: How to open it. Flags against links and other file types are added.
        mode: Permissions of a new file.
        dir_fd: Descriptor of its open folder, so that the folder cannot be replaced in the meantime.

    Raises:
        UnsafePath: It is a symbolic link, or no regular file.
        OSError: It cannot be opened.
    """
    try:
        number = os.open(path if dir_fd is None else Path(path).name, flags | _OPEN, mode, dir_fd=dir_fd)
    except OSError as error:
        raise _explain_link(path, error) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise UnsafePath(f"{path} is not a file; try: move it away, or give another path")
    return number


def open_own_file(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Opens a file like `open_file`; raises UnsafePath also if it belongs to another user, or others can change it."""
    number = open_file(path, flags)
    try:
        check_owner(number, path)
    except BaseException:
        os.close(number)
        raise
    return number


def open_key_file(path: str | Path) -> int:
    """Opens a key file in a folder that nobody else can change; raises UnsafePath if others can.

    Links are followed in the form that Kubernetes uses for secrets: `a.identity` leads to `..data/a.identity`, and
    `..data` to a folder beside it. Every folder and link on the way has to belong to our user or root, and to be below
    the file's folder.
    """
    folder, names = Path(path).parent, [Path(path).name]
    while folder.is_symlink():
        folder, names = folder.parent, [folder.name, *names]
    with ExitStack() as opened:
        number = opened.enter_context(_open_folder(folder))
        for _ in range(MOST_STEPS):
            _check_entries(number, folder)
            name, *rest = names
            found = os.stat(name, dir_fd=number, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                names = [*_read_inner_link(number, folder / name, found), *rest]
            elif rest:
                folder, names = folder / name, rest
                number = opened.enter_context(_open_folder(folder, name, number))
            else:
                return open_file(folder / name, dir_fd=number)
    raise UnsafePath(f"{path} has too many symbolic links; try: give the path of the file itself")


def _read_inner_link(number: int, path: Path, found: os.stat_result) -> tuple[str, ...]:
    """Returns the names that a link leads through; raises UnsafePath if it leads out of its folder."""
    target = PurePath(os.readlink(path.name, dir_fd=number))
    if found.st_uid not in (0, os.geteuid()) or target.is_absolute() or ".." in target.parts or not target.parts:
        raise UnsafePath(_LINK.format(path=path))
    return target.parts


def check_key_folder(folder: Path) -> None:
    """Raises UnsafePath if others can replace files in the folder of a key file."""
    with _open_folder(folder.resolve()) as number:
        _check_entries(number, folder)


def _check_entries(number: int, folder: Path) -> None:
    """Raises UnsafePath if others can replace files in an open folder.

    Kubernetes mounts secrets read-only, in a folder whose permissions are open to everybody. Its sticky bit prevents
    others from replacing root's files, even if it is not mounted read-only.
    """
    sticky = os.fstat(number).st_mode & stat.S_ISVTX
    check_owner(number, folder, protected=bool(sticky and os.fstatvfs(number).f_flag & os.ST_RDONLY))


def open_private(path: Path) -> int:
    """Opens a file that only its owner can read, and creates it if necessary."""
    number = open_own_file(path, os.O_RDWR | os.O_CREAT)
    os.fchmod(number, PRIVATE_FILE)  # the umask, or a copy by another program, may have left other permissions
    return number


def read_own_file(path: Path) -> bytes:
    """Returns the content of a file; raises UnsafePath if others can change it."""
    with open(open_own_file(path), "rb") as file:
        return file.read()


def check_owner(number: int, path: str | Path, *, protected: bool = False) -> None:
    """Raises UnsafePath if an open file or folder belongs to another user, or others can change it.

    With `protected`, something else prevents changes by others, so its permissions are not checked.
    """
    found = os.fstat(number)
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafePath(
            f"{path} belongs to another user ({found.st_uid}); try: run this as that user, or give another path"
        )
    if found.st_mode & _OTHERS_WRITE and not protected:
        raise UnsafePath(
            f"{path} can be changed by others; try: check that it was not changed, then run: chmod go-w "
            f"{shlex.quote(str(path))}"
        )


def _explain_link(path: str | Path, error: OSError) -> Exception:
    """Returns a readable error if the path is a symbolic link; otherwise the error of the operating system."""
    # For a folder that is a link the system reports "not a folder", and for a broken link "exists already".
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EEXIST) and os.path.islink(path):
        return UnsafePath(_LINK.format(path=path))
    return error


# --- writing -------------------------------------------------------------------------------------------------------


def replace_file(path: Path, data: Buffer, *, private: bool = True, durable: bool = True) -> None:
    """Replaces a file atomically. A link in its place is replaced, and its target is not written to.

    Args:
        path: The file, which need not exist.
        data: Its new content.
        private: Whether only the owner can read the new file, whatever the umask is.
        durable: Whether the content is on disk when this returns. Otherwise a power failure may undo the change.
    """
    fresh = path.with_name(f".{path.name}.{SystemEntropy().bytes(_TOKEN_BYTES).hex()}.new")
    number = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE if private else PUBLIC_FILE)
    try:
        with open(number, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(number)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def create_private(path: Path, data: bytes) -> None:
    """Creates a file atomically that only its owner can read; raises FileExistsError if it exists."""
    # The file gets its name when it is complete. Unlike a rename, a hard link never replaces another file.
    fresh = path.with_name(f".{path.name}.{SystemEntropy().bytes(_TOKEN_BYTES).hex()}.new")
    number = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(number, "wb") as file:
            os.fchmod(number, PRIVATE_FILE)  # the umask may have removed or added permissions
            file.write(data)
            file.flush()
            os.fsync(number)
        os.link(fresh, path)
    finally:
        os.unlink(fresh)
    sync_folder(path.parent)
