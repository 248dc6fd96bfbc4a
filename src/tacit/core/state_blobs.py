"""Long vectors of a state, replaced by digests, so that an unchanged vector is not written to disk again."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import ref

import msgspec

from tacit.core.errors import JournalError
from tacit.core.messages import LONG
from tacit.core.suite import Buffer

S = TypeVar("S", bound=msgspec.Struct)
_PLACEHOLDER = b"tacit/v1/part"
_known: dict[int, tuple[ref[memoryview], bytes]] = {}


def detach_blobs(state: S, blobs: dict[bytes, memoryview]) -> S:
    """Returns the state with its long vectors replaced by digests. Adds the vectors to `blobs`, by digest."""

    def detach(vector: memoryview) -> memoryview:
        if vector.nbytes < LONG:
            return vector
        digest = _digest(vector)
        blobs[digest] = vector
        return memoryview(_PLACEHOLDER + digest)

    return _map_vectors(state, detach)


def attach_blobs(state: S, blobs: Mapping[bytes, Buffer]) -> S:
    """Returns the state with its digests replaced by the vectors; raises JournalError if one is missing."""

    def attach(vector: memoryview) -> memoryview:
        size = len(_PLACEHOLDER) + hashlib.sha256().digest_size
        if vector.nbytes != size or vector[: len(_PLACEHOLDER)] != _PLACEHOLDER:
            return vector
        digest = bytes(vector[len(_PLACEHOLDER) :])
        if digest not in blobs:
            raise JournalError("a part of the saved state is missing; try: restore it, or begin a new session")
        return memoryview(blobs[digest])

    return _map_vectors(state, attach)


def blob_digest(vector: Buffer) -> bytes:
    """Returns the digest of a long vector."""
    return hashlib.sha256(vector).digest()


def _digest(vector: memoryview) -> bytes:
    # States are immutable, and successive states share most vectors, so each vector object is hashed only once.
    found = _known.get(id(vector))
    if found is None or found[0]() is not vector:
        place = id(vector)
        found = _known[place] = ref(vector, lambda _: _known.pop(place, None)), blob_digest(vector)
    return found[1]


def _map_vectors(state: S, change: Callable[[memoryview], memoryview]) -> S:
    """Returns a state with `change` applied to each memoryview, also inside tuples and dictionaries."""
    fields = {name: _deeply(getattr(state, name), change) for name in state.__struct_fields__}
    return msgspec.structs.replace(state, **fields)


# Not nested in the function above: a recursive closure is a reference cycle, and would keep a vector alive for a while.
def _deeply(value: Any, change: Callable[[memoryview], memoryview]) -> Any:
    if isinstance(value, memoryview):
        return change(value)
    if isinstance(value, dict):
        return {key: _deeply(each, change) for key, each in value.items()}
    return tuple(_deeply(each, change) for each in value) if isinstance(value, tuple) else value
