"""Keeper of the streams that an outbound-only party holds open at one listening party.

It opens one stream of each lane, and a further one when all of a lane are busy, up to a limit. A stream that breaks is
opened again, with growing pauses. One whose connection is to be replaced ends once its successor is open. When another
process with our identity has replaced our streams, the pause is long: two machines with one identity would otherwise
replace each other for ever.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any

import grpc.aio
import msgspec

from tacit.core.errors import TransportError
from tacit.core.suite import Party
from tacit.net.transport.framing import read_message
from tacit.net.transport.held_stream import STREAMS, HeldAnswer, HoldOpening, Lane

if TYPE_CHECKING:
    from tacit.net.transport.courier import Courier
    from tacit.net.transport.peer_link import PeerLink

Take = Callable[[Lane, Party, AsyncIterator[bytes]], Awaitable[HeldAnswer]]
_TO_REPLACE = b"to replace"
"""Stands for a piece when a stream is to be replaced; compared by identity."""
REPLACED = 12
"""Pause after another process replaced our streams, in longest pauses of a retry."""


class StreamReplaced(TransportError):
    """Another process with our identity holds the streams now."""


class HoldKeeper:
    """Keeps streams open at one listening party, and takes in what comes on them."""

    def __init__(self, link: "PeerLink", process: bytes, take: Take, courier: "Courier") -> None:
        """Prepares streams to the peer of a link.

        Args:
            link: Our link to the listening party.
            process: Random identifier of our process.
            take: Takes in a message on a lane from that party, and returns the answer.
            courier: Our courier.
        """
        self._link, self._process, self._take, self._courier = link, process, take, courier
        self._tasks: dict[tuple[Lane, int], asyncio.Task[None]] = {}
        self._busy: Counter[Lane] = Counter()
        self._resume_at = 0.0
        """When streams may be opened again, on the clock of the loop, after another process replaced ours."""

    def start(self) -> None:
        """Opens the first stream of each lane."""
        for lane in Lane:
            self._open(lane)

    async def close(self) -> None:
        """Closes all streams."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, lane: Lane) -> None:
        number = sum(each is lane for each, _ in self._tasks)
        if number < STREAMS:
            self._tasks[lane, number] = asyncio.create_task(
                self._keep(lane, number), name=f"{lane} stream {number} held at {self._link.peer.name}"
            )

    async def _keep(self, lane: Lane, number: int) -> None:
        """Holds one stream open, and opens it again when it breaks."""
        pauses, loop = self._courier.backoff(), asyncio.get_running_loop()
        older: Any = None
        while True:
            await asyncio.sleep(self._resume_at - loop.time())
            began = loop.time()
            try:
                older = await self._hold(HoldOpening(self._process, lane, number), older)
                if older is not None:
                    continue
            except StreamReplaced as error:
                self._link.conflict = str(error)
                self._resume_at = loop.time() + next(self._courier.backoff(REPLACED * self._courier.longest))
                older = None
                continue
            except TransportError as error:
                self._link.trouble, older = str(error), None
            if loop.time() - began > self._courier.longest:
                pauses = self._courier.backoff()
            await asyncio.sleep(next(pauses))

    async def _hold(self, opening: HoldOpening, older: Any) -> Any:
        """Takes in what comes on one stream until it breaks; raises TransportError with the reason.

        Returns the open stream if its connection is to be replaced. The next call ends it as `older`, once it has
        opened another one.
        """
        link, call, kept = self._link, None, False
        try:
            call = link.open_stream(opening.lane)
            await call.write(msgspec.msgpack.encode(opening))
            async with asyncio.timeout(self._courier.patience):
                await call.initial_metadata()  # the peer sends it once it has taken our first message in
            if older is not None:
                older.cancel()
            if not call.done():
                link.conflict = ""
                link.arrivals += 1
                link.retry_now()
            until = link.fresh_until(opening.lane)
            while (first := await _read_before(call, until)) is not None:
                if first is _TO_REPLACE:
                    kept = True
                    return call
                link.retry_now()
                answer = await self._answer(opening.lane, first, call)
                await call.write(msgspec.msgpack.encode(answer))
                if answer.refused:
                    await call.done_writing()
                    async with asyncio.timeout(self._courier.patience):
                        while await _read(call) is not None:
                            pass  # what is left of the message
                    return None
            return None
        except TimeoutError:
            raise TransportError(f"{link.where} does not answer") from None
        except asyncio.InvalidStateError:
            raise TransportError(f"{link.where} closed the connection") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError(f"{link.where} is called again") from None
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:
                raise StreamReplaced(
                    f"another process with the identity of {link.me} is connected to {link.peer.name}; try: stop one "
                    f"of them, or make new keys for it (tacit keygen)"
                ) from None
            raise TransportError(link.explain(error)) from None
        finally:
            if older is not None:
                older.cancel()
            if call is not None and not kept:
                call.cancel()

    async def _answer(self, lane: Lane, first: bytes, call: Any) -> HeldAnswer:
        """Takes in a message, and opens a further stream if all of the lane are busy."""
        self._busy[lane] += 1
        try:
            if self._busy[lane] == sum(each is lane for each, _ in self._tasks):
                self._open(lane)
            return await self._take(lane, self._link.peer.name, read_message(first, lambda: _read(call)))
        finally:
            self._busy[lane] -= 1


async def _read_before(call: Any, until: float) -> bytes | None:
    """Returns the next piece on a stream, None at its end, or `_TO_REPLACE` when its connection is to be replaced."""
    if until == inf:
        return await _read(call)
    reading = asyncio.ensure_future(_read(call))
    try:
        done, _ = await asyncio.wait({reading}, timeout=max(until - asyncio.get_running_loop().time(), 0.0))
        return await reading if done else _TO_REPLACE
    finally:
        # To cancel a reading ends the stream, which stays open until its successor is. Nobody waits for it any more.
        reading.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def _read(call: Any) -> bytes | None:
    """Returns the next piece on a stream; None at its end."""
    piece = await call.read()
    return None if piece is grpc.aio.EOF else bytes(piece)
