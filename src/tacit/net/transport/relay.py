"""Relay of hellos and frames between two other parties, piece by piece.

A frame is sealed for its receiver and a hello is signed, so a relay sees addresses, times and lengths only. A frame is
passed on as it comes: its answer is the receiver's own, and no more than a few pieces of it are in memory. A caller has
one hello and one frame to a destination under way at a time. Each leg has a deadline, and a sender that stops is cut
off, so that it does not keep others from the destination.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping

import grpc

from tacit.core.errors import TransportError
from tacit.core.suite import Party
from tacit.net.transport.framing import FrameHeader, FrameRefused, split_header
from tacit.net.transport.held_stream import Lane
from tacit.net.transport.peer_link import SLOWEST, PeerLink


class MessageRelay:
    """Passes messages of others on, within limits."""

    def __init__(
        self,
        links: Mapping[Party, PeerLink],
        patience: float,
        most_bytes: Callable[[Party], int],
        slots: Mapping[Lane, int],
    ) -> None:
        """Passes messages on over our links.

        Args:
            links: Our link to each party.
            patience: Seconds that a party may stay silent.
            most_bytes: Returns the length of the longest frame of a caller.
            slots: Most messages of each lane that are passed to one destination at a time.
        """
        self._links, self._patience, self._most_bytes = links, patience, most_bytes
        self._turns: defaultdict[tuple[Lane, Party, Party], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots = {(lane, name): asyncio.Semaphore(slots[lane]) for lane in Lane for name in links}

    async def pass_hello(self, caller: Party, head: FrameHeader, said: bytes) -> bytes:
        """Passes a hello on, and returns the answer; raises TransportError if it was not delivered."""
        async with self._turns[Lane.HELLO, caller, head.to], self._slots[Lane.HELLO, head.to]:
            return await self._links[head.to].send_hello(head, said)

    async def pass_frame(self, caller: Party, head: FrameHeader, pieces: AsyncIterator[bytes]) -> bool:
        """Passes a frame on, and returns whether it is settled.

        Raises FrameRefused for one that is too long or too slow, and TransportError if it was not delivered.
        """
        if not 0 < head.size <= self._most_bytes(caller):
            raise FrameRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a frame of {head.size} bytes is longer than any")
        refused: list[FrameRefused] = []
        async with self._turns[Lane.FRAME, caller, head.to], self._slots[Lane.FRAME, head.to]:
            try:
                passed, seconds = self._passed(head, pieces, refused), 2 * self._patience + head.size / SLOWEST
                return await self._links[head.to].deliver_pieces(passed, seconds)  # longer than the sender may pause
            except TransportError:
                if refused:  # gRPC only says that the call was cancelled
                    raise refused[0] from None
                raise

    async def _passed(
        self, head: FrameHeader, pieces: AsyncIterator[bytes], refused: list[FrameRefused]
    ) -> AsyncIterator[bytes]:
        """Yields the pieces of a frame; raises FrameRefused, and notes it, for one that is not as it said."""
        left: int | None = None
        code = grpc.StatusCode
        try:
            while left is None or left > 0:
                async with asyncio.timeout(self._patience):
                    piece = await anext(pieces)
                left = head.size - len(split_header(memoryview(piece))[1]) if left is None else left - len(piece)
                if left < 0:
                    refused.append(FrameRefused(code.OUT_OF_RANGE, "a frame that is longer than it said"))
                    raise refused[0]
                yield piece
        except TimeoutError:
            refused.append(FrameRefused(code.DEADLINE_EXCEEDED, "too slow"))
            raise refused[0] from None
        except StopAsyncIteration:
            refused.append(FrameRefused(code.DATA_LOSS, "a frame that is shorter than it said"))
            raise refused[0] from None
