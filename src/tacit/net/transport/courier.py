"""Courier of frames between parties over gRPC with mutual TLS. It authenticates senders and cannot read content.

Each end presents the certificate that the roster has for it, and accepts no other. A frame is a stream of pieces, so
its length is not limited by gRPC's messages. It is acknowledged once its receiver has it on disk, or has discarded it;
until then it is sent again, with growing pauses. Frames to one peer are sent in order and one at a time, and a receiver
accepts one at a time from each peer, so memory is bounded by the size of the roster. Without a direct connection to a
peer, another peer relays: frames are sealed, so a relay sees addresses only, and hellos are signed.

Calls are counted for each peer, and there is no limit that peers share. A call counts from its first moment, before
anything is received in it, and ends after a deadline if nothing is. Therefore hellos are handled as streams of one
message: gRPC runs the handler of a unary call only once the message is there, and would hold an idle call for ever.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Protocol

import numpy as np

from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, MissingExtra, TransportError, WireError
from tacit.core.messages import LONG
from tacit.core.suite import Buffer, Party
from tacit.net.transport.connection_limits import connection_options

try:
    import grpc.aio
except ImportError:
    raise MissingExtra("grpcio", "grpc") from None

from tacit.net.transport.call_quota import CallQuota
from tacit.net.transport.caller_certificates import Caller, CallerCertificates
from tacit.net.transport.framing import FrameHeader, FrameRefused, split_header
from tacit.net.transport.held_stream import PROCESS_BYTES, STREAMS, HeldAnswer, HeldStream, Lane, read_opening
from tacit.net.transport.hold_keeper import HoldKeeper
from tacit.net.transport.listen_addresses import find_listen_addresses
from tacit.net.transport.listener import Listener
from tacit.net.transport.malloc import tune_malloc
from tacit.net.transport.peer_link import (
    FIRST,
    HELLO_BYTES,
    LATER,
    LONGEST,
    OPTIONS,
    SERVICE,
    SETTLED,
    SLOWEST,
    PeerEndpoint,
    PeerLink,
)
from tacit.net.transport.proxy import Proxy
from tacit.net.transport.relay import MessageRelay
from tacit.net.transport.tls import TlsSource
from tacit.vectors.buffers import BufferPool

CALLS = 8
"""Most simultaneous calls of one peer. Further calls are refused, so that other peers are always served."""
RELAYED, RELAYED_FRAMES = CALLS // 2, CALLS // 4
"""Most hellos, and frames, to one peer that are relayed at a time. The other calls are for our own messages to it."""


class Receiver(Protocol):
    """Interface of the owner of a courier, which processes frames and hellos."""

    def max_frame_bytes(self, sender: Party) -> int:
        """Returns the length of the longest valid frame of a sender."""

    async def accept_frame(self, sender: Party, data: Buffer) -> bool:
        """Processes a frame. Returns whether it is settled; otherwise it has to be sent again later."""

    def answer_hello(self, sender: Party, hello: bytes) -> bytes:
        """Takes a hello in, and returns ours."""


class Courier:
    """Our end of all links: a server for incoming calls, and a link to each peer."""

    def __init__(
        self,
        me: Party,
        tls: TlsSource,
        peers: Iterable[PeerEndpoint],
        receiver: Receiver,
        relays: Callable[[Party], Sequence[Party]] = lambda _: (),
        patience: float = 10.0,
        pool: BufferPool | None = None,
        hold_at: Sequence[Party] | None = None,
        proxy: Proxy | None = None,
        *,
        is_relay: bool = False,
        on_conflict: Callable[[Party, str], None] = lambda *_: None,
        on_refusal: Callable[[str], None] = lambda _: None,
        connection_age: float = inf,
    ) -> None:
        """Prepares links to all peers.

        Args:
            me: Our name.
            tls: Source of our key and certificate.
            peers: All peers.
            receiver: Takes in what is for us.
            relays: Returns the parties that may relay to a peer.
            patience: Seconds that a connection, or an answer, may take.
            pool: Memory for frames.
            hold_at: Peers at which we hold streams open, if we only dial out; None if we listen.
            proxy: The proxy through which we dial.
            is_relay: Whether we only relay, so that all calls are for that.
            on_conflict: Called with a peer, and a line on it, when another process takes over its connection.
            on_refusal: Called with a line on a certificate that was refused.
            connection_age: Seconds after which a connection that we opened is replaced, so that both certificates are
                checked again.
        """
        self._pool = pool or BufferPool()
        self.is_outbound, self.is_relay, self.proxy = hold_at is not None, is_relay, proxy
        self.me, self.receiver, self.patience = me, receiver, patience
        self.longest = max(FIRST, min(LONGEST, patience))
        """Longest pause before a retry, in seconds."""
        self.tls, self.connection_age = tls, connection_age
        self._peers = {peer.name: peer for peer in peers}
        self._callers, self._on_refusal = CallerCertificates(self._peers.values()), on_refusal
        self.links: Mapping[Party, PeerLink] = {
            name: PeerLink(me, peer, relays(name), self) for name, peer in self._peers.items()
        }
        process = SystemEntropy().bytes(PROCESS_BYTES)
        self._keepers = [HoldKeeper(self.links[name], process, self._take_held, self) for name in hold_at or ()]
        self._most_calls = CALLS + 2 * len(self._peers) * is_relay  # a hello and a frame to each of the others
        self._calls, self._openings = CallQuota(self._most_calls), CallQuota(STREAMS * len(Lane))
        slots = {Lane.HELLO: RELAYED, Lane.FRAME: RELAYED if is_relay else RELAYED_FRAMES}
        self._relay = MessageRelay(self.links, patience, receiver.max_frame_bytes, slots)
        self._turns: defaultdict[tuple[Party, Party], asyncio.Lock] = defaultdict(asyncio.Lock)
        """One frame of each sender is taken in at a time from each caller."""
        self._on_conflict = on_conflict
        self._listener: Listener | None = None
        self.addresses: tuple[str, ...] = ()
        """The numeric addresses at which we listen, as host:port."""

    async def start(self, address: str | None) -> None:
        """Listens at an address, wherever its host resolves to, or only dials out if it is None.

        Raises ConfigError if one of the addresses is taken, or if we cannot prove ourselves.
        """
        tune_malloc()
        if self.tls.problem:
            raise ConfigError(self.tls.problem)
        for keeper in self._keepers:
            keeper.start()
        if address is None:
            return
        try:
            found = await find_listen_addresses(address)
        except ConfigError as error:
            raise ConfigError(f"{self.me} {error}") from None
        options = (*OPTIONS, *connection_options(len(self._peers), self._most_calls, self.patience))
        # Only these certificates, and those of these issuers, are accepted. `_caller` checks who may vouch for whom.
        roots = b"".join(dict.fromkeys(peer.certificate for peer in self._peers.values()))
        listener = Listener(self.me, self.tls, roots, self._handlers(), options, self.connection_age)
        await listener.start(found, address)
        self._listener, self.addresses = listener, tuple(found)

    async def close(self) -> None:
        """Stops listening, and closes all links."""
        for link in self.links.values():
            link.held.close()
        if self._listener is not None:
            # Calls in progress get a moment to end: gRPC prints a traceback for each that does not.
            await self._listener.close(FIRST)
        await asyncio.gather(*(keeper.close() for keeper in self._keepers))
        await asyncio.gather(*(link.close() for link in self.links.values()))

    @property
    def conflict(self) -> TransportError | None:
        """The sign that another process has our identity, if there is one."""
        return next((TransportError(link.conflict) for link in self.links.values() if link.conflict), None)

    def backoff(self, pause: float = FIRST) -> Iterator[float]:
        """Yields the pauses before retries: each twice as long as the last, with random jitter."""
        while True:
            yield pause * (0.5 + SystemEntropy().bytes(1)[0] / 256)
            pause = min(2 * pause, self.longest)

    # --- calls of peers --------------------------------------------------------------------------------------------

    def _handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Hello": grpc.stream_unary_rpc_method_handler(self._hello),
                "Deliver": grpc.stream_unary_rpc_method_handler(self._deliver),
                "Hold": grpc.stream_stream_rpc_method_handler(self._hold),
            },
        )

    def calls_of(self, peer: Party) -> int:
        """Returns the number of a peer's calls in progress."""
        return self._calls.count(peer)

    def _caller(self, context: Any) -> Caller:
        """Returns the caller by its certificate; raises FrameRefused if it proves no party of the roster now."""
        try:
            return self._callers.find(context.auth_context().get("x509_pem_cert", [b""])[0])
        except WireError as error:
            self._on_refusal(str(error))
            raise FrameRefused(grpc.StatusCode.UNAUTHENTICATED, str(error)) from None

    async def _hello(self, pieces: AsyncIterator[bytes], context: Any) -> bytes:
        return await self._answer(pieces, context, self._take_hello)

    async def _deliver(self, pieces: AsyncIterator[bytes], context: Any) -> bytes:
        return await self._answer(pieces, context, self._take_frame)

    async def _answer(
        self,
        pieces: AsyncIterator[bytes],
        context: Any,
        take: Callable[[Party, AsyncIterator[bytes]], Awaitable[bytes]],
    ) -> bytes:
        """Returns the answer to a call, which counts against its caller's quota until it ends."""
        try:
            caller = self._caller(context).party
            with self._calls.hold(caller):
                self.links[caller].retry_now()
                return await take(caller, pieces)
        except FrameRefused as refused:
            await context.abort(refused.code, str(refused))
        except TransportError as error:  # of the link to the receiver of a relayed call
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError  # abort raises

    async def _hold(self, pieces: AsyncIterator[bytes], context: Any) -> None:
        """Keeps a stream of an outbound-only peer until it is closed. It does not count as a call of the peer."""
        try:
            caller, *_ = proof = self._caller(context)
            with self._openings.hold(caller):
                opening = read_opening(await self._first_piece(pieces))
            if (link := self.links[caller]).peer.address:
                why = f"federation.toml here has an address of {caller}; try: have both take the newest one"
                raise FrameRefused(grpc.StatusCode.FAILED_PRECONDITION, why)
        except FrameRefused as refused:
            await context.abort(refused.code, str(refused))
            raise AssertionError from None  # abort raises
        # Before others can write on the stream: gRPC sends the metadata with the first message otherwise.
        await context.send_initial_metadata(())
        stream = HeldStream(pieces, context.write)
        if link.held.add(opening, stream):
            self._on_conflict(
                caller,
                f"another process has taken over the connection of {caller}; try: unless {caller} was restarted, stop "
                f"one of the two machines with its identity, or make new keys for it (tacit keygen)",
            )
        try:
            link.retry_now()
            async with asyncio.timeout(self._callers.remaining(proof)):
                await stream.wait_closed()
        except TimeoutError:
            why = f"of {caller}: the certificate has expired, and its connection with it"
            self._on_refusal(why)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
        finally:
            link.held.remove(opening, stream)
        if stream.replaced:
            await context.abort(grpc.StatusCode.ABORTED, "another process holds this connection")

    async def _take_held(self, lane: Lane, caller: Party, pieces: AsyncIterator[bytes]) -> HeldAnswer:
        """Takes in a message on a stream that we hold open at a peer, and returns the answer."""
        take = self._take_hello if lane is Lane.HELLO else self._take_frame
        try:
            return HeldAnswer(await take(caller, pieces))
        except (FrameRefused, TransportError) as refused:
            return HeldAnswer(refused=str(refused))

    async def _take_hello(self, caller: Party, pieces: AsyncIterator[bytes]) -> bytes:
        said = await self._first_piece(pieces)
        if len(said) > HELLO_BYTES:
            raise FrameRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a hello has up to {HELLO_BYTES} bytes")
        head, rest = split_header(said)
        self._check(caller, head)
        if head.to != self.me:
            return await self._relay.pass_hello(caller, head, bytes(rest))
        self._retry_relayed(caller, head)
        return self.receiver.answer_hello(head.sender, bytes(rest))

    async def _take_frame(self, caller: Party, pieces: AsyncIterator[bytes]) -> bytes:
        first = await self._first_piece(pieces)
        head, piece = split_header(first)
        self._check(caller, head)
        if head.to != self.me:
            settled = await self._relay.pass_frame(caller, head, _resume(bytes(first), pieces))
        else:
            self._retry_relayed(caller, head)
            async with self._turns[caller, head.sender]:
                data = await self._gather_pieces(caller, head, piece, pieces)
                settled = await self.receiver.accept_frame(head.sender, data)
        return SETTLED if settled else LATER

    def _retry_relayed(self, caller: Party, head: FrameHeader) -> None:
        """Retries what waits for a sender that is heard through a relay."""
        if head.sender != caller and not self.links[head.sender].is_direct:
            self.links[head.sender].retry_now()

    async def _first_piece(self, pieces: AsyncIterator[bytes]) -> memoryview:
        """Returns the first piece of a call; raises FrameRefused if it does not arrive in time."""
        try:
            async with asyncio.timeout(self.patience):
                return memoryview(await anext(pieces, b""))
        except TimeoutError:
            raise FrameRefused(grpc.StatusCode.DEADLINE_EXCEEDED, "too slow") from None

    async def _gather_pieces(
        self, caller: Party, head: FrameHeader, piece: Buffer, pieces: AsyncIterator[bytes]
    ) -> memoryview:
        """Returns a complete frame, which begins with `piece`; raises FrameRefused if it is too long or too slow."""
        if not 0 < head.size <= self.receiver.max_frame_bytes(caller):
            raise FrameRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"a frame of {head.size} bytes is longer than allowed"
            )
        buffer, filled = self._pool.empty(head.size, np.uint8).data, 0  # uninitialised memory
        try:
            async with asyncio.timeout(self.patience + head.size / SLOWEST):
                while True:
                    if filled + len(piece) > head.size:
                        raise FrameRefused(grpc.StatusCode.OUT_OF_RANGE, "a frame is longer than its header says")
                    buffer[filled : filled + len(piece)] = piece
                    filled += len(piece)
                    piece = await anext(pieces)
        except StopAsyncIteration:
            pass
        except TimeoutError:
            raise FrameRefused(grpc.StatusCode.DEADLINE_EXCEEDED, "too slow") from None
        if filled < head.size:
            raise FrameRefused(grpc.StatusCode.DATA_LOSS, "a frame is shorter than its header says")
        return buffer if head.size >= LONG else buffer.toreadonly()  # a long frame may be opened in place

    def _check(self, caller: Party, head: FrameHeader) -> None:
        """Raises FrameRefused unless a caller may send a frame with this header."""
        if self.is_relay and head.to == self.me:
            raise FrameRefused(grpc.StatusCode.PERMISSION_DENIED, "a relay takes nothing in")
        if head.sender != caller and head.to != self.me:
            raise FrameRefused(grpc.StatusCode.PERMISSION_DENIED, "a frame is relayed only once")
        if head.sender not in self._peers or (head.to != self.me and head.to not in self._peers):
            raise FrameRefused(grpc.StatusCode.PERMISSION_DENIED, "no such parties here")


async def _resume(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields a piece that was taken from an iterator, and the others."""
    yield first
    async for piece in pieces:
        yield piece
