"""Comparison of runs on short and long vectors: an audit of a few entries must be valid for a model of full length.

Symbols are too slow for a whole model, but numbers are not. So three runs on long vectors are compared with three runs
on short ones: on first vectors, on others, and on the first vectors with other keys. In the long runs, a message field
or an element of a packed vector may depend on vectors or keys only if it does so in the short runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import msgspec
import numpy as np

from tacit.auditing.engine.soundness.concrete_run import TokenLog, Twin
from tacit.auditing.engine.soundness.element_comparison import UNITS

Dependence: TypeAlias = tuple[bool, bool]
"""Whether a value changes with the vectors, and whether it changes with the keys."""
ELEMENT = np.dtype("<u8")


@dataclass(frozen=True)
class LengthRuns:
    """Runs on vectors of one length: on first vectors, on others, and on the first vectors with other keys."""

    entries: int
    here: Twin
    other: Twin
    rekeyed: Twin

    @property
    def all(self) -> tuple[Twin, Twin, Twin]:
        """The three runs."""
        return self.here, self.other, self.rekeyed


def find_difference(short: LengthRuns, long: LengthRuns) -> str | None:
    """Returns the first place where long vectors are treated differently from short ones; None if there is none."""
    for number, rounds in enumerate(zip(*(run.rounds for runs in (short, long) for run in runs.all), strict=False), 1):
        for several in zip_longest(*(played.transcript or () for played in rounds)):
            addresses = [each and msgspec.structs.replace(each.envelope.address, session=b"") for each in several]
            if any(each != addresses[0] for each in addresses):
                return f"who sends what to whom in round {number} depends on how long vectors are"
            boxes = [bytes(each.envelope.sealed) for each in several]
            before, after = _leaves(short.all, boxes[:3]), _leaves(long.all, boxes[3:])
            if before.keys() != after.keys():
                return f"{_name(addresses[0])}: which fields there are depends on how long vectors are"
            for path, leaf in after.items():
                if not _depends(leaf, len(before[path][0])) <= _depends(before[path], len(leaf[0])):
                    return (
                        f"{_name(addresses[0])}, {'.'.join(map(str, path))}: with {long.entries} entries it depends on "
                        f"vectors or keys in another way than with {short.entries}"
                    )
    return None


def _name(address: Any) -> str:
    return f"{address.kind} from {address.sender} to {address.to} in round {address.round}"


def _leaves(runs: Sequence[Twin], boxes: Sequence[bytes]) -> dict[tuple[Any, ...], tuple[bytes, ...]]:
    """Returns the values of each message field in several runs, by the place of the field."""
    found = [dict(_walk(run.book, box)) for run, box in zip(runs, boxes, strict=True)]
    paths = dict.fromkeys(path for each in found for path in each)
    return {path: tuple(each.get(path, b"") for each in found) for path in paths}


def _walk(book: TokenLog, value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    """Yields every value inside a message, with the contents of its sealed boxes."""
    if isinstance(value, bytes) and value in book.boxes:
        _, plaintext, context = book.boxes[value]
        yield (*path, "context"), context
        try:
            value = msgspec.msgpack.decode(plaintext)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = plaintext
        yield from _walk(book, value, (*path, "box") if path else path)
    elif isinstance(value, Mapping):
        for place, (key, each) in enumerate(value.items()):
            yield from _walk(book, key, (*path, f"key {place}"))
            yield from _walk(book, each, (*path, key if isinstance(key, str | int) else place))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _walk(book, each, (*path, place))
    else:
        yield path, value if isinstance(value, bytes) else msgspec.msgpack.encode(value)


def _depends(leaf: tuple[bytes, ...], length: int) -> set[Dependence]:
    """Returns what a field depends on; for a field whose length grows with the vectors, what its elements depend on."""
    here, other, rekeyed = leaf
    size = ELEMENT.itemsize
    if len({*map(len, leaf)}) > 1 or len(here) == length or len(here) % size:
        return {(here != other, here != rekeyed)}
    elements = [np.frombuffer(each, ELEMENT) for each in leaf]
    # Equal fractions of sums may be rounded differently.
    apart = np.abs((elements[1] - elements[0]).view(np.int64)) > 2 * UNITS
    kinds = np.unique(2 * apart + (elements[2] != elements[0])).tolist()
    return {(bool(each // 2), bool(each % 2)) for each in kinds}
