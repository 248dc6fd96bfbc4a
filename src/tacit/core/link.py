"""Effects of a protocol coroutine: send, receive, gather, save. The driver does everything else.

A coroutine awaits effects; a driver serves them. So the same coroutine runs in a deterministic simulator, between real
processes, or inside another framework, and it contains no sockets, clocks, threads or global randomness.
"""

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast, overload

from tacit.core.errors import Drop, NotEnough, PeerFault
from tacit.core.messages import Message
from tacit.core.suite import Parties, Party

M = TypeVar("M", bound=Message)
N = TypeVar("N", bound=Message)
K = TypeVar("K", bound=Message)
S = TypeVar("S")


@dataclass(slots=True)
class Send:
    """Effect: hand a message to the courier."""

    to: Party
    message: Message
    step: int = 0

    def __await__(self) -> Generator["Send", None, None]:
        yield self


@dataclass(slots=True)
class Arrived:
    """Result of a wait: the messages that arrived, and why each of the others did not."""

    messages: dict[Party, Message]
    missing: dict[Party, Drop]
    why: dict[Party, str] = field(default_factory=dict)
    """Details on some of the missing, as text."""


@dataclass(slots=True)
class Wait:
    """Effect: wait for a message of one of the kinds from each sender, until all sent, dropped out, or timed out."""

    kinds: tuple[type[Message], ...]
    senders: tuple[Party, ...]
    step: int
    patience: int  # phases; a driver says how long a phase is
    names: tuple[str, ...] = field(init=False, repr=False)
    """The names of the kinds, as addresses have them."""

    def __post_init__(self) -> None:
        self.names = tuple([kind.kind() for kind in self.kinds])

    def __await__(self) -> Generator["Wait", Arrived, Arrived]:
        return (yield self)


@dataclass(frozen=True)
class Save:
    """Effect: have the state on disk before any later message leaves."""

    state: Any

    def __await__(self) -> Generator["Save", None, None]:
        yield self


Effect: TypeAlias = Send | Wait | Save


@dataclass
class Link:
    """One party's side of one round."""

    me: Party
    parties: Parties
    session: bytes
    round: int
    dropped: dict[Party, Drop] = field(default_factory=dict)
    """Parties that we excluded or lost, and why."""
    cure: str = ""
    """Remedy that the error names if too few are left."""

    @property
    def place(self) -> int:
        """Our place on the roster."""
        return self.parties.place(self.me)

    async def save(self, state: S) -> S:
        """Returns a new state once it is durable."""
        await Save(state)
        return state

    async def send(self, to: Party, message: Message, *, step: int = 0) -> None:
        """Sends a message. `step` distinguishes several messages of one kind in one round."""
        await Send(to, message, step)

    @overload
    async def receive(self, sender: Party, kind: type[M], *, step: int = 0, patience: int = 2) -> M: ...
    @overload
    async def receive(
        self, sender: Party, kind: type[M], instead: type[N], /, *, step: int = 0, patience: int = 2
    ) -> M | N: ...
    @overload
    async def receive(
        self, sender: Party, kind: type[M], instead: type[N], other: type[K], /, *, step: int = 0, patience: int = 2
    ) -> M | N | K: ...
    async def receive(
        self, sender: Party, kind: type[Message], *instead: type[Message], step: int = 0, patience: int = 2
    ) -> Message:
        """Returns the message, or one of kind `instead`; raises PeerFault if none comes within `patience` phases."""
        arrived = await Wait((kind, *instead), (sender,), step, patience)
        if sender not in arrived.messages:
            detail = arrived.why.get(sender, f"no {kind.kind()} from it")
            raise PeerFault(sender, arrived.missing[sender], detail)
        return arrived.messages[sender]

    async def gather(
        self,
        kind: type[M],
        senders: Collection[Party],
        at_least: int | None = None,
        *,
        step: int = 0,
        patience: int = 1,
    ) -> dict[Party, M]:
        """Returns the messages that arrived when all have answered or timed out, in the senders' order.

        Raises NotEnough, naming the missing, if that is fewer than `at_least` (default: all of them).
        """
        arrived = await Wait((kind,), tuple(senders), step, patience)
        for peer, reason in arrived.missing.items():
            self.dropped.setdefault(peer, reason)  # the first reason is why it is missing now
        need = len(senders) if at_least is None else at_least
        if len(arrived.messages) < need:
            raise NotEnough(kind.kind(), len(arrived.messages), need, arrived.missing, arrived.why, self.cure)
        return {party: cast(M, arrived.messages[party]) for party in senders if party in arrived.messages}

    def exclude(self, peer: Party, reason: Drop) -> None:
        """Excludes a peer from the rest of the round."""
        self.dropped[peer] = reason

    def require(self, what: str, have: Collection[object], need: int) -> None:
        """Raises NotEnough, naming the parties that dropped out, if there are fewer than `need`."""
        if len(have) < need:
            raise NotEnough(what, len(have), need, self.dropped, cure=self.cure)

    def statement(self, what: str, *parts: bytes) -> bytes:
        """Returns bytes that state `what` about `parts` in this session and round, unambiguously."""
        return frame_parts(b"tacit/v1", what.encode(), self.session, self.round.to_bytes(8), *parts)


def frame_parts(*parts: bytes) -> bytes:
    """Joins byte strings injectively: different lists never give the same bytes."""
    return b"".join([len(part).to_bytes(8) + part for part in parts])
