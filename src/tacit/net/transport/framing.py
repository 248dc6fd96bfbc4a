"""Frames in transit: a header with sender, receiver and length, followed by the bytes in pieces."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import grpc
import msgspec

from tacit.core.messages import PIECE
from tacit.core.suite import Buffer, Party


class FrameHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Header of a frame: its sender, receiver and length."""

    sender: Party
    to: Party
    size: int


class Frame(Protocol):
    """Interface of bytes to send, such as those of a `Post`."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes in short pieces."""


@dataclass(frozen=True)
class BytesFrame:
    """A frame whose bytes are in memory."""

    data: memoryview

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes in short pieces."""
        for start in range(0, len(self.data), PIECE):
            yield bytes(self.data[start : start + PIECE])


class FrameRefused(Exception):
    """Reason to refuse a frame or a call, with a gRPC status code."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def join_frame(head: FrameHeader, *pieces: Buffer) -> bytes:
    """Returns a header followed by bytes."""
    said = msgspec.msgpack.encode(head)
    return b"".join((len(said).to_bytes(2), said, *pieces))


def split_header(data: memoryview) -> tuple[FrameHeader, memoryview]:
    """Returns a header and the bytes after it; raises FrameRefused if there is none."""
    begins = 2 + int.from_bytes(data[:2])
    try:
        return msgspec.msgpack.decode(data[2:begins], type=FrameHeader), data[begins:]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FrameRefused(grpc.StatusCode.INVALID_ARGUMENT, "this is neither a frame nor a hello") from None


async def split_frame(head: FrameHeader, frame: Frame) -> AsyncIterator[bytes]:
    """Yields a header and a frame in pieces. A short frame is a single piece."""
    if head.size <= PIECE:
        yield join_frame(head, *frame.pieces())
        return
    yield join_frame(head)
    for piece in frame.pieces():
        yield piece


async def read_message(first: bytes, read: Callable[[], Awaitable[bytes | None]]) -> AsyncIterator[bytes]:
    """Yields the pieces of one message on a stream that other messages follow on.

    Args:
        first: The first piece, with the header.
        read: Returns the next piece, or None at the end of the stream.

    Raises:
        FrameRefused: The first piece has no header.
    """
    head, rest = split_header(memoryview(first))
    yield first
    left = head.size - len(rest)
    while left > 0 and (piece := await read()) is not None:
        left -= len(piece)
        yield piece
