"""What is long in a state, apart from it: a digest stands for each vector, so that nobody has to write it twice."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import ref

import msgspec

from tacit.core.errors import JournalError
from tacit.core.messages import LONG
from tacit.core.suite import Buffer

S = TypeVar("S", bound=msgspec.Struct)
_STANDS = b"tacit/v1/part"
_known: dict[int, tuple[ref[memoryview], bytes]] = {}


def parted(state: S, apart: dict[bytes, memoryview]) -> S:
    """Returns a state with digests in the place of what is long in it, which goes to `apart` by its digest."""

    def taken(vector: memoryview) -> memoryview:
        if vector.nbytes < LONG:
            return vector
        digest = _digest(vector)
        apart[digest] = vector
        return memoryview(_STANDS + digest)

    return _changed(state, taken)


def rejoined(state: S, apart: Mapping[bytes, Buffer]) -> S:
    """Returns a state with what digests stand for; raises JournalError if that is not there."""

    def put(vector: memoryview) -> memoryview:
        size = len(_STANDS) + hashlib.sha256().digest_size
        if vector.nbytes != size or vector[: len(_STANDS)] != _STANDS:
            return vector
        digest = bytes(vector[len(_STANDS) :])
        if digest not in apart:
            raise JournalError("a part of the state is not there; restore it, or begin a new session")
        return memoryview(apart[digest])

    return _changed(state, put)


def part_digest(vector: Buffer) -> bytes:
    """Returns what stands for something long."""
    return hashlib.sha256(vector).digest()


def _digest(vector: memoryview) -> bytes:
    # States are never changed, and most of what one has the next one has too: what was hashed once is the same object.
    found = _known.get(id(vector))
    if found is None or found[0]() is not vector:
        place = id(vector)
        found = _known[place] = ref(vector, lambda _: _known.pop(place, None)), part_digest(vector)
    return found[1]


def _changed(state: S, change: Callable[[memoryview], memoryview]) -> S:
    """Returns a state with something else in the place of each memoryview, also within tuples and dictionaries."""
    fields = {name: _deeply(getattr(state, name), change) for name in state.__struct_fields__}
    return msgspec.structs.replace(state, **fields)


# Not within the function above: one that knows itself is garbage, and keeps for a while what it knows, here a vector.
def _deeply(value: Any, change: Callable[[memoryview], memoryview]) -> Any:
    if isinstance(value, memoryview):
        return change(value)
    if isinstance(value, dict):
        return {key: _deeply(each, change) for key, each in value.items()}
    return tuple(_deeply(each, change) for each in value) if isinstance(value, tuple) else value
