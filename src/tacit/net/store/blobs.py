"""Files of what is long in states. Each part is written once, and cut off when no state has it any more.

Like the other files of a store they are made once, and written in place: a part goes to the first that is free. What
lies in one counts only if the book names it, by its digest.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tacit.core.errors import JournalError
from tacit.core.state_blobs import blob_digest
from tacit.core.suite import Buffer
from tacit.net.store import log as files
from tacit.net.store.log import RENEW
from tacit.runtime.atomic_files import sync_folder

NAME = "part."


class Parts:
    """The parts of one folder. Where each of them is, the book has."""

    def __init__(self, folder: Path, opened: Callable[[str], int]) -> None:
        """Uses files of a folder, which `opened` opens by their names, and makes."""
        self._folder, self._opened = folder, opened
        self._files = {int(path.name.removeprefix(NAME)): opened(path.name) for path in paths(folder)}

    def add(self, apart: Mapping[bytes, Buffer], places: Mapping[bytes, int]) -> dict[bytes, int]:
        """Returns where parts are, by digest, once they are on disk: what has a place already is not written again."""
        found = {digest: places[digest] for digest in apart if digest in places}
        taken = set(places.values())
        for digest, part in apart.items():
            if digest not in found:
                found[digest] = place = next(each for each in range(len(taken) + 1) if each not in taken)
                taken.add(place)
                if place not in self._files:
                    self._files[place] = self._opened(f"{NAME}{place}")
                    sync_folder(self._folder)
                files.write(self._files[place], part)
        return found

    def read(self, places: Mapping[bytes, int]) -> dict[bytes, memoryview]:
        """Returns parts by their digests; raises JournalError if one is not there as it was written."""
        found = {digest: self._read(place) for digest, place in places.items()}
        if any(blob_digest(part) != digest for digest, part in found.items()):
            raise JournalError(f"a part of the state was changed, or is from another time; restore it, or {RENEW}")
        return found

    def found(self) -> dict[bytes, int]:
        """Returns where everything is that lies here, by its digest, whether or not the book names it."""
        return {blob_digest(self._read(place)): place for place in self._files}

    def drop(self, places: Iterable[int]) -> None:
        """Cuts off what is in no place that is named."""
        needed = set(places)
        for place, file in self._files.items():
            if place not in needed:
                files.forget(file)

    def _read(self, place: int) -> memoryview:
        file = self._files.get(place)
        return memoryview(b"" if file is None else files.content(file, 0, os.fstat(file).st_size)).toreadonly()


def paths(folder: Path) -> Iterator[Path]:
    """Yields the files of parts in a folder."""
    return (path for path in folder.glob(f"{NAME}*") if path.name.removeprefix(NAME).isdecimal())
