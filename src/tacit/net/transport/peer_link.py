"""Link to one peer: a queue of frames that are sent in order, each until it is acknowledged."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import grpc.aio

from tacit.core.errors import TransportError
from tacit.core.messages import PIECE
from tacit.core.suite import Party
from tacit.crypto.certificates import certificate_der
from tacit.crypto.tls_anchor import TlsAnchor, TlsProof
from tacit.net.transport.framing import Frame, FrameHeader, join_frame, split_frame
from tacit.net.transport.held_stream import HeldStreams, Lane
from tacit.net.transport.proxy import DIRECT
from tacit.net.transport.tls import Tls

if TYPE_CHECKING:
    from tacit.net.transport.courier import Courier

T = TypeVar("T")
HELLO_BYTES = 1 << 16
"""Most bytes of a hello."""
FIRST, LONGEST = 0.05, 5.0
"""First and longest pause before a retry, in seconds. No pause is longer than the timeout of a connection: if that is a
second, so is a phase, and a peer that is back must not be missed for several phases."""
SLOWEST = 1 << 16
"""Lowest rate of a frame, in bytes per second; the call of a slower sender is aborted."""
SERVICE = "tacit.v1.Courier"
SETTLED, LATER = b"settled", b"later"
"""Answers of a receiver: the frame is settled, or has to be sent again later."""
OPTIONS = (
    ("grpc.max_receive_message_length", PIECE + HELLO_BYTES),
    ("grpc.max_send_message_length", PIECE + HELLO_BYTES),
    ("grpc.so_reuseport", 0),  # otherwise a second process on the port would get every other call
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # or a server ends connections on which little is sent
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True)
class PeerEndpoint:
    """Address and certificate of a peer."""

    name: Party
    address: str
    """The address as host:port; empty if the peer only dials out."""
    certificate: bytes
    """The certificate that the peer has to present, or that of its issuer, in PEM."""
    host: str
    """The host name in the certificate that the peer presents."""
    is_relay: bool = False
    """Whether it is a relay, which takes part in no round."""
    proof: TlsProof = TlsProof.PINNED
    """How the peer proves itself."""

    @cached_property
    def anchor(self) -> TlsAnchor:
        """The certificates that prove the peer."""
        return TlsAnchor(self.name, self.proof, certificate_der(self.certificate), self.host)


class _OpenChannel(NamedTuple):
    """A connection that we opened, with our certificate."""

    channel: grpc.aio.Channel
    tls: Tls
    until: float
    """When it is replaced, on the clock of the loop."""


@dataclass
class _QueuedFrame:
    """A frame to send, and the callback for its acknowledgement."""

    frame: Frame
    number: int
    arrived: Callable[[], None]


METHODS = {Lane.HELLO: "Hello", Lane.FRAME: "Deliver"}
"""Methods of the calls that carry a message of each lane."""


class PeerLink:
    """Sends frames and hellos to one peer: by dialling it, on a stream that it holds open here, or through relays."""

    def __init__(self, me: Party, peer: PeerEndpoint, relays: Sequence[Party], courier: "Courier") -> None:
        self.me, self.peer, self.relays, self._courier = me, peer, relays, courier
        self.held = HeldStreams(peer.name)
        """The streams that the peer holds open here."""
        self._channels: dict[Lane, _OpenChannel] = {}
        self._opened = 0
        self._retired: set[grpc.aio.Channel] = set()
        """Replaced connections with calls that may still complete."""
        self._waiting: deque[_QueuedFrame] = deque()
        self._queued = asyncio.Event()
        self._retry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._relays_hello = False
        """Whether a hello to the peer is under way through relays."""
        self._closing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        """Background tasks that may have no waiting caller."""
        self.trouble = ""
        """Reason why the peer cannot be reached directly at present; empty if it can. Without a direct way, it is why
        no relay reaches the peer."""
        self.conflict = ""
        """Sign that two processes have one identity, ours or the peer's; empty if there is none."""
        self.arrivals = 0
        """Number of calls that the peer answered."""
        self.retries = 0
        """Number of frames that had to be sent again."""

    @property
    def waiting(self) -> int:
        """Number of frames that are not acknowledged yet."""
        return len(self._waiting)

    @property
    def _legs(self) -> int:
        """Number of deadlines until an answer: a relay waits for the receiver."""
        return 2 if self.peer.is_relay else 1

    def send(self, frame: Frame, number: int, arrived: Callable[[], None]) -> None:
        """Queues a frame of a round, which is sent until it is acknowledged."""
        self._waiting.append(_QueuedFrame(frame, number, arrived))
        self._queued.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"link to {self.peer.name}")

    def discard_before(self, before: int) -> None:
        """Drops queued frames of rounds before a number."""
        # The first frame may be in transit. That is harmless: it is just not sent again.
        self._waiting = deque(each for each in self._waiting if each.number >= before)

    def retry_now(self) -> None:
        """Retries at once, after the peer was heard from."""
        if self.trouble and self._channels and (self._closing is None or self._closing.done()):
            if not self._courier.is_outbound:
                # A channel that could not connect backs off, and cannot be made to retry. Calls on it may still
                # complete, so it is closed with a grace period. Where we hold streams, the connection is there.
                grace = 2 * self._courier.patience
                closing = [each.channel for each in self._channels.values()]
                self._closing = self._start_task(_close_all(closing, grace))
                self._channels = {}
            self.trouble = ""
        elif not self.peer.address:
            self.trouble = ""
        self._retry.set()

    @property
    def is_direct(self) -> bool:
        """Whether one of us can dial the other."""
        return bool(self.peer.address) or not self._courier.is_outbound

    @property
    def where(self) -> str:
        """The peer and its address, for errors."""
        return f"{self.peer.name} at {self.peer.address}" if self.peer.address else self.peer.name

    async def exchange_hello(self, said: bytes) -> bytes:
        """Sends a hello, through relays if necessary, and returns the answer; raises TransportError if that fails."""
        head = FrameHeader(self.me, self.peer.name, len(said))
        if not self.is_direct:
            if self._relays_hello:  # which repeats itself if our hello has changed meanwhile
                raise TransportError(f"a hello to {self.peer.name} is under way")
            self._relays_hello = True
            try:
                return await self._relay(lambda link: link.send_hello(head, said))
            finally:
                self._relays_hello = False
        straight = self._start_task(self._hello_directly(head, said))
        if not self.trouble:
            with suppress(TransportError):
                return await straight
        # The direct call is made in any case, so that the direct link is used again once it works.
        for link in self._relay_links():
            with suppress(TransportError):
                answer = await link.send_hello(head, said)
                self._retry.set()
                return answer
        return await straight

    async def _hello_directly(self, head: FrameHeader, said: bytes) -> bytes:
        try:
            answer = await self.send_hello(head, said)
        except TransportError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        self._retry.set()
        return answer

    async def send_hello(self, head: FrameHeader, said: bytes) -> bytes:
        """Sends a hello once, which may be another party's, and returns the answer."""
        message = join_frame(head, said)
        if not self.peer.address:
            return await self._call_back(Lane.HELLO, _yield_one(message), self._courier.patience)
        call = self._open_channel(Lane.HELLO).unary_unary(f"/{SERVICE}/{METHODS[Lane.HELLO]}")
        return await self._await_reply(call(message, timeout=self._legs * self._courier.patience))

    async def _call_back(self, lane: Lane, pieces: AsyncIterator[bytes], timeout: float) -> bytes:
        """Sends a message on a stream that the peer holds open here, and returns the answer."""
        answer = await self.held.call(lane, pieces, timeout)
        self.arrivals += 1
        return answer

    async def _await_reply(self, call: Awaitable[bytes]) -> bytes:
        """Returns the answer to a call; raises TransportError if it fails."""
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            raise TransportError(self.explain(error)) from None
        except asyncio.CancelledError:
            # Closing a channel cancels its calls, which must not cancel the tasks that wait for them.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError(f"{self.where} will be called again") from None
        self.arrivals += 1
        return answer

    def explain(self, error: grpc.aio.AioRpcError) -> str:
        """Returns why a call to the peer failed, and what to do."""
        proxy = self._courier.proxy
        if proxy is not None and (why := proxy.explain(error.details() or "", self.where)) is not None:
            return why
        return explain_rpc_error(error, self.peer)

    def _start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a background task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _relay_links(self) -> Iterator["PeerLink"]:
        """Yields the links to relays, and the working links to parties that may relay."""
        for name in self.relays:
            link = self._courier.links[name]
            if link.peer.is_relay or not link.trouble:  # no hello would tell that a relay is back
                yield link

    async def _relay(self, send: Callable[["PeerLink"], Awaitable[T]]) -> T:
        """Sends a message through the first relay that delivers it; raises TransportError if none does."""
        why = f"{self.peer.name} and {self.me} have no address, and no relay is reachable; try: start the relay"
        for link in self._relay_links():
            try:
                answer = await send(link)
            except TransportError as error:
                why = str(error)
                continue
            self.trouble = ""
            self.arrivals += 1
            self._retry.set()
            return answer
        self.trouble = why
        raise TransportError(why)

    async def deliver(self, frame: Frame, head: FrameHeader, timeout: float) -> bool:
        """Sends a frame once; returns whether it is settled. Raises TransportError if it was not delivered."""
        return await self.deliver_pieces(split_frame(head, frame), self._legs * (timeout + frame.size / SLOWEST))

    async def deliver_pieces(self, pieces: AsyncIterator[bytes], timeout: float) -> bool:
        """Sends the pieces of a frame once; returns whether it is settled. Raises TransportError if that fails."""
        if not self.peer.address:
            return await self._call_back(Lane.FRAME, pieces, timeout) == SETTLED
        call = self._open_channel(Lane.FRAME).stream_unary(f"/{SERVICE}/{METHODS[Lane.FRAME]}")
        return await self._await_reply(call(pieces, timeout=timeout)) == SETTLED

    def open_stream(self, lane: Lane) -> Any:
        """Opens a stream to the peer, on which it can call us back."""
        return self._open_channel(lane).stream_stream(f"/{SERVICE}/Hold")()

    async def close(self) -> None:
        """Cancels all tasks and closes the channel."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for aside in tuple(self._tasks):
            aside.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await _close_all([*(each.channel for each in self._channels.values()), *self._retired], None)

    async def _retire(self, channel: grpc.aio.Channel, grace: float) -> None:
        """Closes a connection once its calls have ended, or after some seconds. Certificates are valid for longer."""
        self._retired.add(channel)
        await channel.close(grace)
        self._retired.discard(channel)

    def fresh_until(self, lane: Lane) -> float:
        """Returns when the connection of a lane is replaced, on the clock of the loop; now if there is none."""
        found = self._channels.get(self._carrier(lane))
        return 0.0 if found is None else found.until

    def _carrier(self, lane: Lane) -> Lane:
        """Returns the lane whose connection carries a lane. Each has its own where calls go both ways."""
        return lane if self._courier.is_outbound or self._courier.is_relay or self.peer.is_relay else Lane.FRAME

    def _open_channel(self, lane: Lane) -> grpc.aio.Channel:
        """Returns the channel of a lane, a new one if its certificate was replaced, or the connection is old.

        Raises TransportError if we cannot prove ourselves at present.
        """
        lane, age, now = self._carrier(lane), self._courier.connection_age, asyncio.get_running_loop().time()
        if problem := self._courier.tls.problem:
            raise TransportError(problem)
        tls, found = self._courier.tls.current(), self._channels.get(lane)
        if found is not None and (found.tls is not tls or now >= found.until):
            self._start_task(self._retire(found.channel, age if age < inf else 2 * self._courier.patience))
            del self._channels[lane]
        if lane not in self._channels:
            self._opened += 1
            credentials = grpc.ssl_channel_credentials(self.peer.certificate, tls.key, tls.certificate)
            proxy = self._courier.proxy
            options: tuple[tuple[str, int | str], ...] = (
                *OPTIONS,
                *(DIRECT if proxy is None else proxy.options(self.peer.address)),
                ("grpc.ssl_target_name_override", self.peer.host),
                ("grpc.initial_reconnect_backoff_ms", int(FIRST * 1000)),
                ("grpc.min_reconnect_backoff_ms", int(self._courier.patience * 1000)),  # how long one may take
                ("grpc.max_reconnect_backoff_ms", int(self._courier.longest * 1000)),
                # Channels with equal options would share one connection.
                ("tacit.lane", lane),
                ("tacit.number", self._opened),
            )
            target = self.peer.address if proxy is None else proxy.address
            channel = grpc.aio.secure_channel(target, credentials, options)
            self._channels[lane] = _OpenChannel(channel, tls, now + age)
        return self._channels[lane].channel

    async def _run(self) -> None:
        pauses = self._courier.backoff()
        while True:
            if not self._waiting:
                self._queued.clear()
                await self._queued.wait()
            first = self._waiting[0]
            try:
                settled = await self._deliver_once(first.frame)
            except TransportError:
                settled = False
                self.retries += 1
            if settled:
                if self._waiting and self._waiting[0] is first:  # it may have been dropped meanwhile
                    self._waiting.popleft()
                first.arrived()
                pauses = self._courier.backoff()
                del first  # it may be long, and the next frame may take some time to arrive
                continue
            self._retry.clear()
            try:
                async with asyncio.timeout(next(pauses)):  # `wait_for` may lose a cancellation before Python 3.12
                    await self._retry.wait()
            except TimeoutError:
                pass
            else:
                pauses = self._courier.backoff()

    async def _deliver_once(self, frame: Frame) -> bool:
        """Sends a frame directly or, if that fails, through a relay."""
        head, patience = FrameHeader(self.me, self.peer.name, frame.size), self._courier.patience
        if not self.is_direct:
            return await self._relay(lambda link: link.deliver(frame, head, patience))
        if not self.trouble or not self.relays:
            try:
                return await self.deliver(frame, head, patience)
            except TransportError as error:
                self.trouble = str(error)
        for link in self._relay_links():
            with suppress(TransportError):
                return await link.deliver(frame, head, patience)
        raise TransportError(self.trouble)


async def _close_all(channels: Sequence[grpc.aio.Channel], grace: float | None) -> None:
    await asyncio.gather(*(channel.close(grace) for channel in channels))


async def _yield_one(message: bytes) -> AsyncIterator[bytes]:
    yield message


_OTHER_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED", "certificate signature failure", "Hostname Verification"
_CLOCKS = "compare the clocks of both machines (timedatectl)"


def explain_rpc_error(error: grpc.aio.AioRpcError, peer: PeerEndpoint) -> str:
    """Returns the reason why a call failed, with a remedy."""
    text, code, where = (error.details() or "")[:400], error.code(), f"{peer.name} at {peer.address}"
    details = "".join(each if each.isprintable() else " " for each in text)  # a peer may write anything
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return f"{where}: {details}"
    if code is grpc.StatusCode.UNAUTHENTICATED:
        if "not on the roster" in details:
            return f"{where} does not know our certificate; try: have both take the newest federation.toml"
        return f"{where} refuses our certificate: {details}; try: {_CLOCKS}, and have both take the newest one"
    if "certificate has expired" in details or "certificate is not yet valid" in details:
        when = "has expired" if "expired" in details else "is not valid yet"
        return f"the certificate of {where} {when} by this clock; try: {_CLOCKS}, and have {peer.name} renew it"
    if any(sign in details for sign in _OTHER_CERTIFICATE):
        what = "another certificate than federation.toml has"
        if peer.proof is not TlsProof.PINNED:
            what = "a certificate of another issuer, or with another name, than federation.toml has"
        return f"{where} shows {what}; try: have both take the newest one"
    if "Socket closed" in details or "reset by peer" in details or "Broken pipe" in details:
        clock = "" if peer.proof is TlsProof.PINNED else ", and compare the clocks: its log has the reason"
        return f"{where} closed the connection; try: start it if it was stopped, or give it the newest roster{clock}"
    if "Name or service not known" in details or "DNS" in details:
        return f"there is no host of the name in {peer.address}; try: correct the address of {peer.name}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{where} does not answer"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"nothing listens at {peer.address}; try: start {peer.name}"
    return f"{where}: {code.name.lower().replace('_', ' ')}{f' ({details})' if details else ''}"
