"""The way to one peer: what is waiting to be sent there leaves in order, again and again until it has arrived."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from tacit.core.errors import TransportError
from tacit.core.messages import PIECE
from tacit.core.suite import Party
from tacit.net.transport.framing import Head, Parcel, behind, pieces_of

if TYPE_CHECKING:
    from tacit.net.transport.courier import Courier

T = TypeVar("T")
HELLO_BYTES = 1 << 16
"""The longest hello."""
FIRST, LONGEST = 0.05, 5.0
"""Seconds of the first pause before something is sent again, and of the longest; none is longer than a connection may
take. Where that is a second, so is a phase, and a peer that is back must not be missed for several."""
SLOWEST = 1 << 16
"""Bytes a second that a parcel must come at, or its sender is no longer listened to."""
SERVICE = "tacit.v1.Courier"
SETTLED, LATER = b"settled", b"later"
"""What a receiver answers: it has it, or it is not there yet in its rounds."""
OPTIONS = (
    ("grpc.max_receive_message_length", PIECE + HELLO_BYTES),
    ("grpc.max_send_message_length", PIECE + HELLO_BYTES),
    ("grpc.so_reuseport", 0),  # else a second process on the port would be given every other call
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True)
class Tls:
    """The key and certificate that we show, in PEM."""

    key: bytes = field(repr=False)
    certificate: bytes


@dataclass(frozen=True)
class Peer:
    """Where a party is, and what it has to show."""

    name: Party
    address: str
    certificate: bytes
    """In PEM."""
    host: str
    """The name in its certificate."""


@dataclass
class _Waiting:
    """A parcel on its way, and who is told when it has arrived."""

    parcel: Parcel
    number: int
    arrived: Callable[[], None]


class Line:
    """The way to one peer: what is waiting to be sent, and how it goes."""

    def __init__(self, me: Party, tls: Tls, peer: Peer, relays: Sequence[Party], courier: "Courier") -> None:
        self.me, self.peer, self.relays, self._courier = me, peer, relays, courier
        self._tls = tls
        self._channel: grpc.aio.Channel | None = None
        self._waiting: deque[_Waiting] = deque()
        self._more = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._aside: set[asyncio.Future[Any]] = set()
        """What goes on that nobody may be waiting for."""
        self.trouble = ""
        """Why nothing arrives at present, in words; empty if all is well."""
        self.reached = self.retries = 0
        """How often something arrived, and how often something had to be sent again."""

    @property
    def waiting(self) -> int:
        """How many parcels have not arrived yet."""
        return len(self._waiting)

    def send(self, parcel: Parcel, number: int, arrived: Callable[[], None]) -> None:
        """Has a parcel of a round sent until it has arrived."""
        self._waiting.append(_Waiting(parcel, number, arrived))
        self._more.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"line to {self.peer.name}")

    def forget(self, before: int) -> None:
        """Gives up what was to be sent in rounds before one."""
        # The one at the front may be under way, which does no harm: it is only no longer sent again.
        self._waiting = deque(each for each in self._waiting if each.number >= before)

    def hurry(self) -> None:
        """Tries again at once: there was a sign of life."""
        if self.trouble and self._channel is not None and (self._closing is None or self._closing.done()):
            # One that could not connect waits before it tries again, and cannot be told to hurry. What is under way on
            # it may still end: a channel that is closed at once would cancel whoever waits for that.
            self._closing = self._started(self._channel.close(2 * self._courier.patience))
            self._channel, self.trouble = None, ""
        self._hurry.set()

    async def hello(self, said: bytes) -> bytes:
        """Says hello, by way of others too, and returns the answer; raises TransportError with what is wrong."""
        head = Head(self.me, self.peer.name, len(said))
        straight = self._started(self._straight(head, said))
        if not self.trouble:
            with suppress(TransportError):
                return await straight
        # The straight way is tried all the same, so that it is noticed when there is one again.
        for line in self._others():
            with suppress(TransportError):
                answer = await line.say(head, said)
                self._hurry.set()
                return answer
        return await straight

    async def _straight(self, head: Head, said: bytes) -> bytes:
        try:
            answer = await self.say(head, said)
        except TransportError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        self._hurry.set()
        return answer

    async def say(self, head: Head, said: bytes) -> bytes:
        """Says a hello once, which may be somebody else's, and returns the answer."""
        call = self._connected().unary_unary(f"/{SERVICE}/Hello")
        return await self._answered(call(behind(head, said), timeout=self._courier.patience))

    async def _answered(self, call: Awaitable[bytes]) -> bytes:
        """Returns the answer to a call; raises TransportError with what is wrong."""
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            raise TransportError(explained(error, self.peer)) from None
        except asyncio.CancelledError:
            # A channel that is closed cancels its calls, which must not end those for good who wait for them.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise TransportError(f"{self.peer.name} at {self.peer.address} is called anew") from None
        self.reached += 1
        return answer

    def _started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Has something done, whether or not somebody waits for it to the end."""
        task = asyncio.ensure_future(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _others(self) -> Iterator["Line"]:
        """Yields the lines to those who may pass something on, as far as they are in order."""
        for name in self.relays:
            if not self._courier.lines[name].trouble:
                yield self._courier.lines[name]

    async def deliver(self, parcel: Parcel, head: Head, timeout: float) -> bool:
        """Sends a parcel once; says whether it is settled. Raises TransportError if it did not get through."""
        call = self._connected().stream_unary(f"/{SERVICE}/Deliver")
        return await self._answered(call(pieces_of(head, parcel), timeout=timeout + parcel.size / SLOWEST)) == SETTLED

    async def close(self) -> None:
        """Ends what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for aside in tuple(self._aside):
            aside.cancel()
        await asyncio.gather(*self._aside, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()

    def _connected(self) -> grpc.aio.Channel:
        if self._channel is None:
            credentials = grpc.ssl_channel_credentials(self.peer.certificate, self._tls.key, self._tls.certificate)
            options = (
                *OPTIONS,
                ("grpc.ssl_target_name_override", self.peer.host),
                ("grpc.initial_reconnect_backoff_ms", int(FIRST * 1000)),
                ("grpc.min_reconnect_backoff_ms", int(self._courier.patience * 1000)),  # how long one may take
                ("grpc.max_reconnect_backoff_ms", int(self._courier.longest * 1000)),
            )
            self._channel = grpc.aio.secure_channel(self.peer.address, credentials, options)
        return self._channel

    async def _run(self) -> None:
        pauses = self._courier.pauses()
        while True:
            if not self._waiting:
                self._more.clear()
                await self._more.wait()
            first = self._waiting[0]
            try:
                settled = await self._sent(first.parcel)
            except TransportError:
                settled = False
                self.retries += 1
            if settled:
                if self._waiting and self._waiting[0] is first:  # it may have been given up meanwhile
                    self._waiting.popleft()
                first.arrived()
                pauses = self._courier.pauses()
                del first  # it may be long, and the next one may take its time
                continue
            self._hurry.clear()
            try:
                await asyncio.wait_for(self._hurry.wait(), next(pauses))
            except TimeoutError:
                pass
            else:
                pauses = self._courier.pauses()

    async def _sent(self, parcel: Parcel) -> bool:
        """Sends a parcel on the straight way or, where there is none, by way of somebody else."""
        head, patience = Head(self.me, self.peer.name, parcel.size), self._courier.patience
        if not self.trouble or not self.relays:
            try:
                return await self.deliver(parcel, head, patience)
            except TransportError as error:
                self.trouble = str(error)
        for line in self._others():
            with suppress(TransportError):
                return await line.deliver(parcel, head, patience)
        raise TransportError(self.trouble)


def explained(error: grpc.aio.AioRpcError, peer: Peer) -> str:
    """Returns, in words, why a peer was not reached, and what to do."""
    said, code, where = (error.details() or "")[:200], error.code(), f"{peer.name} at {peer.address}"
    details = "".join(each if each.isprintable() else " " for each in said)  # it may be anything that a peer says
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return f"{where} does not know our certificate; have both take the newest federation.toml"
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification" in details:
        return f"{where} shows another certificate than federation.toml has; have both take the newest one"
    if "Socket closed" in details or "reset by peer" in details or "Broken pipe" in details:
        return f"{where} hung up: it may have been stopped or, if this goes on, have a federation.toml without us"
    if "Name or service not known" in details or "DNS" in details:
        return f"there is no host of the name in {peer.address}; correct the address of {peer.name}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{where} does not answer"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"nobody listens at {peer.address}; has {peer.name} been started?"
    return f"{where}: {code.name.lower().replace('_', ' ')}{f' ({details})' if details else ''}"
