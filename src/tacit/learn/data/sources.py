"""Source files of data sets: search, download and verification by SHA-256.

A file is searched for in the folder `$TACIT_DATA` and in the cache. Otherwise it is downloaded into the cache, if its
publisher offers it. No file is read before its SHA-256 is verified.
"""

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.progress import Progress, ignore_progress
from tacit.learn.data.samples import Array

CHUNK = 1 << 18
TIMEOUT = 30.0
"""Seconds without data after which a download is abandoned."""


@dataclass(frozen=True)
class SourceFile:
    """One file, identified by its SHA-256."""

    name: str
    sha256: str
    size: int = 0
    url: str = ""
    """Address at the publisher; empty if the file is not offered in this form."""
    also: tuple[str, ...] = ()
    """SHA-256 of other files with the same content."""


@dataclass(frozen=True)
class DataSource:
    """Source of a data set: one of several bundles of files with the same content."""

    bundles: tuple[tuple[SourceFile, ...], ...]
    how: str = ""
    """Origin of the data, if no file can be downloaded."""

    @classmethod
    def of_files(cls, *files: SourceFile, how: str = "") -> "DataSource":
        """Returns the source of data that are complete in each of these files."""
        return cls(tuple((file,) for file in files), how)


@dataclass(frozen=True)
class FileFinder:
    """Finds files, and downloads them if that is allowed."""

    download: bool = True
    progress: Progress = ignore_progress

    def __call__(self, source: DataSource) -> list[Path]:
        """Returns the paths of a bundle's files; raises ConfigError, with what to do, if none is complete."""
        for bundle in source.bundles:
            paths = [find_file(file) for file in bundle]
            there = [path for path in paths if path is not None]
            if len(there) == len(bundle):
                return [verify_file(path, file) for path, file in zip(there, bundle, strict=True)]
        for bundle in source.bundles:
            if self.download and all(file.url for file in bundle):
                return [self._obtain(file) for file in bundle]
        raise ConfigError(_missing(source))

    def _obtain(self, file: SourceFile) -> Path:
        path = find_file(file)
        return download_file(file, self.progress) if path is None else verify_file(path, file)


def cache_folder() -> Path:
    """Returns the folder of downloaded files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit"


def find_file(file: SourceFile) -> Path | None:
    """Returns the path of a file of that name; None if there is none."""
    given = os.environ.get("TACIT_DATA")
    places = [folder / file.name for folder in ([Path(given)] if given else []) + [cache_folder()]]
    return next((place for place in places if place.is_file()), None)


def verify_file(path: Path, file: SourceFile) -> Path:
    """Returns the path if its file has the right SHA-256; raises ConfigError otherwise."""
    if (found := sha256(path)) not in (file.sha256, *file.also):
        raise ConfigError(f"{path} has the SHA-256 {found}; try: put the file with {file.sha256} in its place")
    return path


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file; a process reads an unchanged file once."""
    stat = path.stat()
    return _digest(str(path.resolve()), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _digest(path: str, modified: int, size: int) -> str:
    del modified, size
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_file(file: SourceFile, progress: Progress = ignore_progress) -> Path:
    """Downloads a file into the cache and returns its path; raises ConfigError if that fails."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A file appears under its name only when it is complete, whatever happens before.
        handle, part = tempfile.mkstemp(dir=folder, prefix=f".{file.name}.", suffix=".part")
    except OSError as error:
        raise ConfigError(
            f"{file.name} cannot be kept in {folder} ({_reason(error)}); try: {_elsewhere(file)}"
        ) from None
    try:
        with os.fdopen(handle, "wb") as kept:
            found, length = _copy_download(file, kept.write, progress)
        if length < file.size:
            raise ConfigError(
                f"the download of {file.name} from {file.url} ended after {length} of {file.size} bytes; try: "
                f"try again, or {_elsewhere(file)}"
            )
        if length > file.size or found != file.sha256:
            what = f"is longer than {file.size} bytes" if length > file.size else f"has the SHA-256 {found}"
            raise ConfigError(
                f"what {file.url} sends {what}, so the file is not the right one; try: {_elsewhere(file)}"
            )
        os.replace(part, folder / file.name)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # The error holds the connection.
        raise ConfigError(
            f"{file.name} was not found and cannot be downloaded from {file.url} ({_reason(error)}); try: "
            f"{_elsewhere(file)}"
        ) from None
    finally:
        with suppress(OSError):
            os.unlink(part)
    return folder / file.name


def _copy_download(file: SourceFile, write: Callable[[bytes], int], progress: Progress) -> tuple[str, int]:
    """Copies a download, at most one byte more than expected; returns its SHA-256 and length."""
    digest, length = hashlib.sha256(), 0
    progress(f"downloading {file.name}", 0, max(file.size, 1))
    # Any content may arrive; it is used only if it is the right file.
    with urllib.request.urlopen(file.url, timeout=TIMEOUT) as sent, suppress(http.client.IncompleteRead):  # noqa: S310
        while length <= file.size and (chunk := sent.read(min(CHUNK, file.size + 1 - length))):
            write(chunk)
            digest.update(chunk)
            length += len(chunk)
            progress(f"downloading {file.name}", length, max(file.size, 1))
    return digest.hexdigest(), length


def _reason(error: Exception) -> str:
    told = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return " ".join(f"{told}".split()) or type(error).__name__


def _elsewhere(file: SourceFile) -> str:
    """Returns where to put a file by hand."""
    return f"put the {file.name} with the SHA-256 {file.sha256} into {cache_folder()}, or set TACIT_DATA to its folder"


def _missing(source: DataSource) -> str:
    """Returns which files are missing, their SHA-256, and where to put them."""
    bundles = [
        " and ".join(f"{file.name} (SHA-256 {file.sha256})" for file in bundle)
        + (f" from {' and '.join(file.url for file in bundle)}" if all(file.url for file in bundle) else "")
        for bundle in source.bundles
    ]
    names = " or ".join(" and ".join(file.name for file in bundle) for bundle in source.bundles)
    how = f" ({source.how})" if source.how else ""
    return (
        f"{names} is missing{how}; try: put {', or '.join(bundles)}, into {cache_folder()}, "
        f"or set TACIT_DATA to the folder that holds it"
    )


def map_arrays(path: Path, read: Callable[[Path], dict[str, Array]], names: Sequence[str]) -> list[Array]:
    """Maps arrays of a file into memory, from a copy that is unpacked once into the cache.

    Unpacking 184 MB of images takes seconds. Mapping them is fast, and the processes of a run share the memory. Without
    disk space for the copy, the arrays are unpacked each time.
    """
    folder = cache_folder() / "unpacked" / sha256(path)[:16]
    with suppress(OSError, ValueError, EOFError):
        return _load_mapped(folder, names)
    arrays = read(path)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = tempfile.mkdtemp(dir=folder.parent, suffix=".part")
        try:
            for name in names:
                np.save(Path(part) / f"{name}.npy", arrays[name], allow_pickle=False)
            shutil.rmtree(folder, ignore_errors=True)  # A folder that could not be mapped.
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return _load_mapped(folder, names)
    except (OSError, ValueError):
        return [arrays[name] for name in names]


def _load_mapped(folder: Path, names: Sequence[str]) -> list[Array]:
    return [np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)) for name in names]
