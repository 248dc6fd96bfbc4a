"""Parcels, as they travel: a head that says whose they are, for whom and how long, and bytes in pieces behind it."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Protocol

import grpc
import msgspec

from tacit.core.messages import PIECE
from tacit.core.suite import Buffer, Party


class Head(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What goes ahead of a parcel: whose it is, for whom, and how long."""

    sender: Party
    to: Party
    size: int


class Parcel(Protocol):
    """What is to be sent: a `Post`, or bytes that are passed on."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes, of which there are never many at once."""


@dataclass(frozen=True)
class Passed:
    """Somebody else's bytes, to be passed on."""

    data: memoryview

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.data)

    def pieces(self) -> Iterator[bytes]:
        """Yields them."""
        for start in range(0, len(self.data), PIECE):
            yield bytes(self.data[start : start + PIECE])


class Refused(Exception):
    """A parcel that is not taken in."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def behind(head: Head, *pieces: Buffer) -> bytes:
    """Returns bytes with their head in front."""
    said = msgspec.msgpack.encode(head)
    return b"".join((len(said).to_bytes(2), said, *pieces))


def opened(data: memoryview) -> tuple[Head, memoryview]:
    """Returns a head and what is behind it; raises Refused if there is none."""
    begins = 2 + int.from_bytes(data[:2])
    try:
        return msgspec.msgpack.decode(data[2:begins], type=Head), data[begins:]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "this is no parcel, and no hello") from None


async def pieces_of(head: Head, parcel: Parcel) -> AsyncIterator[bytes]:
    """Yields a parcel with its head, a short one in one piece."""
    if head.size <= PIECE:
        yield behind(head, *parcel.pieces())
        return
    yield behind(head)
    for piece in parcel.pieces():
        yield piece
