"""Streams that an outbound-only party holds open here, so that hellos and frames reach it without dialling it.

A party without an address opens several streams to each listening party that it exchanges messages with. A stream
carries one message at a time, and then the answer to it, so gRPC limits what is under way on it. A stream on which a
message fails is closed, and its party opens another one. Each stream has a lane, for hellos never wait behind frames.

Streams belong to one process of the party, which names itself by random bytes. The newest process replaces all others:
after a restart the old streams may look alive for a while.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Annotated

import grpc.aio
import msgspec

from tacit.core.errors import TransportError
from tacit.core.suite import Party
from tacit.net.transport.framing import FrameRefused

STREAMS = 5
"""Most streams of one lane: one for our own messages, and others for messages that we relay."""
PROCESS_BYTES = 16


class Lane(StrEnum):
    """What a stream carries."""

    HELLO = "hello"
    FRAME = "frame"


class HoldOpening(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """First message of a party on a stream that it holds open."""

    process: Annotated[bytes, msgspec.Meta(min_length=PROCESS_BYTES, max_length=PROCESS_BYTES)]
    """Random identifier of the party's process."""
    lane: Lane
    number: Annotated[int, msgspec.Meta(ge=0, lt=STREAMS)]
    """Number of the stream in its lane. A newer stream of the same process and number replaces it."""


class HeldAnswer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Answer of a party to a message on a stream that it holds open."""

    answer: bytes = b""
    refused: str = ""
    """Reason why the message is refused; empty if it is not."""


def read_opening(data: bytes | memoryview) -> HoldOpening:
    """Returns the first message of a stream; raises FrameRefused if it is none."""
    try:
        return msgspec.msgpack.decode(data, type=HoldOpening)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FrameRefused(grpc.StatusCode.INVALID_ARGUMENT, "this opens no stream") from None


class HeldStream:
    """One stream that a peer holds open, for one message at a time."""

    def __init__(self, answers: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
        self._answers, self._write = answers, write
        self._work: asyncio.Task[bytes] | None = None
        self._closed = asyncio.Event()
        self.replaced = False
        """Whether another process of the peer has replaced it."""

    @property
    def idle(self) -> bool:
        """Whether it can carry a message now."""
        return self._work is None and not self._closed.is_set()

    async def call(self, pieces: AsyncIterator[bytes]) -> bytes:
        """Sends a message and returns its answer; raises TransportError if that fails, and closes the stream."""
        self._work = asyncio.ensure_future(self._exchange(pieces))
        try:
            answer = await self._work
        except asyncio.CancelledError:
            self.close()
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError("the connection was lost") from None
        except BaseException:
            self.close()
            raise
        self._work = None
        return answer

    async def _exchange(self, pieces: AsyncIterator[bytes]) -> bytes:
        try:
            async for piece in pieces:
                await self._write(piece)
            answer = msgspec.msgpack.decode(await anext(self._answers), type=HeldAnswer)
        except (grpc.aio.BaseError, StopAsyncIteration, msgspec.DecodeError, UnicodeDecodeError):
            raise TransportError("the connection was lost") from None
        if answer.refused:
            raise TransportError("".join(each if each.isprintable() else " " for each in answer.refused[:200]))
        return answer.answer

    def close(self, *, replaced: bool = False) -> None:
        """Closes the stream; a message on it fails."""
        self.replaced |= replaced
        self._closed.set()
        if self._work is not None:
            self._work.cancel()

    async def wait_closed(self) -> None:
        """Waits until the stream is closed."""
        await self._closed.wait()


class HeldStreams:
    """The streams that one peer holds open here."""

    def __init__(self, peer: Party) -> None:
        self.peer = peer
        self._process = b""
        self._streams: dict[Lane, dict[int, HeldStream]] = {lane: {} for lane in Lane}
        self._changed = asyncio.Event()

    def count(self, lane: Lane) -> int:
        """Returns how many streams of a lane are open."""
        return len(self._streams[lane])

    def add(self, opening: HoldOpening, stream: HeldStream) -> bool:
        """Adds a stream in place of older ones; returns whether streams of another process were replaced."""
        replaced = [each for lane in self._streams.values() for each in lane.values()]
        if opening.process == self._process:
            replaced = []
        for each in replaced:
            each.close(replaced=True)
        self._process, lane = opening.process, self._streams[opening.lane]
        if (older := lane.get(opening.number)) is not None:
            older.close()
        lane[opening.number] = stream
        self._changed.set()
        return bool(replaced)

    def remove(self, opening: HoldOpening, stream: HeldStream) -> None:
        """Removes a stream that was closed, unless another one is in its place."""
        stream.close()
        lane = self._streams[opening.lane]
        if lane.get(opening.number) is stream:
            del lane[opening.number]
        self._changed.set()

    def close(self) -> None:
        """Closes all streams."""
        for lane in self._streams.values():
            for stream in lane.values():
                stream.close()

    async def call(self, lane: Lane, pieces: AsyncIterator[bytes], timeout: float) -> bytes:
        """Sends a message to the peer and returns its answer; raises TransportError if that fails."""
        try:
            async with asyncio.timeout(timeout):
                stream = await self._take_idle(lane)
                try:
                    return await stream.call(pieces)
                except TransportError as error:
                    raise TransportError(f"{self.peer}: {error}") from None
                finally:
                    self._changed.set()
        except TimeoutError:
            raise TransportError(f"{self.peer} does not answer on the connection that it holds") from None

    async def _take_idle(self, lane: Lane) -> HeldStream:
        """Returns a stream without a message; raises TransportError if the peer holds none."""
        while True:
            if not self._streams[lane]:
                raise TransportError(f"{self.peer} has no address and is not connected; try: start {self.peer}")
            for number in sorted(self._streams[lane]):
                if (stream := self._streams[lane][number]).idle:
                    return stream
            self._changed.clear()
            await self._changed.wait()
