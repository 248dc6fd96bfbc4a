"""What a protocol coroutine may do: send, receive, gather, save. Everything else is the driver's business.

A coroutine awaits effects; a driver serves them. So the same coroutine runs in a deterministic simulator, between real
processes, or inside somebody else's framework, and it contains no sockets, clocks, threads or global randomness.
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
    """What a wait ended with: the messages that came, and why each of the others did not."""

    messages: dict[Party, Message]
    missing: dict[Party, Drop]
    why: dict[Party, str] = field(default_factory=dict)
    """More about some of the missing, in words."""


@dataclass(slots=True)
class Wait:
    """Effect: wait for a message of one of the kinds from each sender, until all came, are gone, or time is up."""

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
    """Effect: have the state on disk before anything that is sent from here on leaves."""

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
    """Whom we no longer count on, and why."""
    cure: str = ""
    """What to do if too few are left, for the error to say."""

    @property
    def place(self) -> int:
        """Our place on the roster."""
        return self.parties.place(self.me)

    async def save(self, state: S) -> S:
        """Returns a new state, once it is certain that it outlives whatever happens from here on."""
        await Save(state)
        return state

    async def send(self, to: Party, message: Message, *, step: int = 0) -> None:
        """Sends a message. `step` tells apart several messages of one kind in one round."""
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
        """Returns what came from the senders when all have answered or time is up, in the senders' order.

        Raises NotEnough, naming the missing, if that is fewer than `at_least` (default: all of them).
        """
        arrived = await Wait((kind,), tuple(senders), step, patience)
        for peer, reason in arrived.missing.items():
            self.dropped.setdefault(peer, reason)  # what it did first is why it is missing now
        need = len(senders) if at_least is None else at_least
        if len(arrived.messages) < need:
            raise NotEnough(kind.kind(), len(arrived.messages), need, arrived.missing, arrived.why, self.cure)
        return {party: cast(M, arrived.messages[party]) for party in senders if party in arrived.messages}

    def exclude(self, peer: Party, reason: Drop) -> None:
        """Notes that a peer is no longer counted on."""
        self.dropped[peer] = reason

    def require(self, what: str, have: Collection[object], need: int) -> None:
        """Raises NotEnough, naming whom we have lost, if there are fewer than `need`."""
        if len(have) < need:
            raise NotEnough(what, len(have), need, self.dropped, cure=self.cure)

    def statement(self, what: str, *parts: bytes) -> bytes:
        """Returns bytes that say `what` about `parts` in this session and round, and can mean nothing else."""
        return framed(b"tacit/v1", what.encode(), self.session, self.round.to_bytes(8), *parts)


def framed(*parts: bytes) -> bytes:
    """Joins byte strings so that no two different lists join to the same bytes."""
    return b"".join([len(part).to_bytes(8) + part for part in parts])
