"""Blob files for long vectors in states. Each blob is written once, and dropped when no state refers to it.

Like the other files of a store, they are created once and then overwritten in place: a blob is written to the first
free file. Its content counts only if the index refers to it by its digest.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tacit.core.errors import JournalError
from tacit.core.state_blobs import blob_digest
from tacit.core.suite import Buffer
from tacit.net.store.disk_errors import RENEW
from tacit.net.store.vector_files import read_at, truncate_file, write_file
from tacit.runtime.atomic_files import sync_folder

NAME = "part."


class BlobFiles:
    """The blobs of one folder. The index stores the file number of each blob."""

    def __init__(self, folder: Path, opened: Callable[[str], int]) -> None:
        """Uses blob files of a folder. `opened` opens or creates a file by name."""
        self._folder, self._opened = folder, opened
        self._files = {int(path.name.removeprefix(NAME)): opened(path.name) for path in blob_paths(folder)}

    def add(self, apart: Mapping[bytes, Buffer], places: Mapping[bytes, int]) -> dict[bytes, int]:
        """Writes blobs that have no file yet. Returns the file numbers of all by digest, once they are on disk."""
        found = {digest: places[digest] for digest in apart if digest in places}
        taken = set(places.values())
        for digest, part in apart.items():
            if digest not in found:
                found[digest] = place = next(each for each in range(len(taken) + 1) if each not in taken)
                taken.add(place)
                if place not in self._files:
                    self._files[place] = self._opened(f"{NAME}{place}")
                    sync_folder(self._folder)
                write_file(self._files[place], part)
        return found

    def read(self, places: Mapping[bytes, int]) -> dict[bytes, memoryview]:
        """Returns blobs by digest; raises JournalError if one is missing or changed."""
        found = {digest: self._read(place) for digest, place in places.items()}
        if any(blob_digest(part) != digest for digest, part in found.items()):
            raise JournalError(f"a file of the saved state was changed, or is older; try: restore it, or {RENEW}")
        return found

    def found(self) -> dict[bytes, int]:
        """Returns the file numbers of all blobs by digest, even of those to which the index does not refer."""
        return {blob_digest(self._read(place)): place for place in self._files}

    def drop(self, places: Iterable[int]) -> None:
        """Empties all files but those with the given numbers."""
        needed = set(places)
        for place, file in self._files.items():
            if place not in needed:
                truncate_file(file)

    def _read(self, place: int) -> memoryview:
        file = self._files.get(place)
        return memoryview(b"" if file is None else read_at(file, 0, os.fstat(file).st_size)).toreadonly()


def blob_paths(folder: Path) -> Iterator[Path]:
    """Yields the paths of blob files in a folder."""
    return (path for path in folder.glob(f"{NAME}*") if path.name.removeprefix(NAME).isdecimal())
