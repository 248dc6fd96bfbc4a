"""Effects of a protocol coroutine: send, receive, gather, save. The driver does everything else.

A coroutine awaits effects, and a driver serves them. So the same coroutine runs in a deterministic simulator, between
real processes, or inside another framework. It contains no sockets, clocks, threads or global randomness.
"""

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from functools import lru_cache
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
    """Effect: hand a message to the transport."""

    to: Party
    message: Message
    step: int = 0

    def __await__(self) -> Generator["Send", None, None]:
        yield self


@dataclass(slots=True)
class Arrived:
    """Result of a wait: the messages that arrived, and the reason why each other one did not."""

    messages: dict[Party, Message]
    missing: dict[Party, Drop]
    why: dict[Party, str] = field(default_factory=dict)
    """Details, as text, on some of the missing messages."""


@dataclass(slots=True)
class Wait:
    """Effect: wait until each sender has sent a message of one of the kinds, has dropped out, or has timed out."""

    kinds: tuple[type[Message], ...]
    senders: tuple[Party, ...]
    step: int
    patience: int  # number of phases to wait; the driver sets the length of a phase
    names: tuple[str, ...] = field(init=False, repr=False)
    """The names of the kinds, as they appear in addresses."""

    def __post_init__(self) -> None:
        self.names = tuple([kind.kind() for kind in self.kinds])

    def __await__(self) -> Generator["Wait", Arrived, Arrived]:
        return (yield self)


@dataclass(frozen=True)
class Save:
    """Effect: store the state on disk before any later message is sent."""

    state: Any

    def __await__(self) -> Generator["Save", None, None]:
        yield self


Effect: TypeAlias = Send | Wait | Save


@dataclass
class Link:
    """One party's interface to one round: it sends, receives, saves, and excludes peers."""

    me: Party
    parties: Parties
    session: bytes
    round: int
    dropped: dict[Party, Drop] = field(default_factory=dict)
    """Parties that this party excluded, or that dropped out, and why."""
    cure: str = ""
    """Remedy that the error names if too few are left."""
    rule: str = ""
    """The setting that says how many are needed, such as `threshold=4`."""
    rule_detail: str = ""
    """What else follows from that setting."""

    @property
    def place(self) -> int:
        """This party's index on the roster."""
        return self.parties.place(self.me)

    async def save(self, state: S) -> S:
        """Returns the given state once it is stored on disk."""
        await Save(state)
        return state

    async def send(self, to: Party, message: Message, *, step: int = 0) -> None:
        """Sends a message. `step` distinguishes several messages of the same kind in one round."""
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
        """Returns the message of this kind, or of a kind in `instead`, from one sender.

        Args:
            sender: The party that has to send it.
            kind: The class of the message.
            instead: Other classes that the sender may send in its place.
            step: The step of the message, if the round has several of this kind.
            patience: Number of phases to wait.

        Raises:
            PeerFault: No such message arrived in time.
        """
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
        """Waits until all senders have answered or timed out. Returns the messages that arrived, in the senders' order.

        Args:
            kind: The class of the messages.
            senders: The parties that have to send one.
            at_least: The fewest messages to return; all of them by default.
            step: The step of the messages, if the round has several of this kind.
            patience: Number of phases to wait.

        Raises:
            NotEnough: Fewer than `at_least` arrived. The error names the missing senders.
        """
        arrived = await Wait((kind,), tuple(senders), step, patience)
        for peer, reason in arrived.missing.items():
            self.dropped.setdefault(peer, reason)  # keep the first reason, which is the cause of later ones
        need = len(senders) if at_least is None else at_least
        if len(arrived.messages) < need:
            what = f"of {len(senders)} {'party' if len(senders) == 1 else 'parties'} delivered {kind.kind()}"
            raise self._too_few(what, len(arrived.messages), need, arrived.missing, arrived.why)
        return {party: cast(M, arrived.messages[party]) for party in senders if party in arrived.messages}

    def exclude(self, peer: Party, reason: Drop) -> None:
        """Excludes a peer from the rest of the round."""
        self.dropped[peer] = reason

    def require(self, what: str, have: Collection[object], need: int) -> None:
        """Raises NotEnough, with the parties that dropped out, if `have` has fewer than `need` items."""
        if len(have) < need:
            raise self._too_few(what, len(have), need, self.dropped)

    def _too_few(
        self, what: str, have: int, need: int, missing: dict[Party, Drop], why: dict[Party, str] | None = None
    ) -> NotEnough:
        return NotEnough(
            what,
            have,
            need,
            missing,
            why,
            self.cure,
            round_number=self.round,
            rule=self.rule,
            detail=self.rule_detail,
        )

    def statement(self, what: str, *parts: bytes) -> bytes:
        """Returns unambiguous bytes for the statement `what` about `parts`, bound to this session and round."""
        return _front(what, self.session, self.round) + frame_parts(*parts)


@lru_cache(maxsize=64)
def _front(what: str, session: bytes, round_: int) -> bytes:
    """Returns the first parts of a statement, which are the same for all parties of a round."""
    return frame_parts(b"tacit/v1", what.encode(), session, round_.to_bytes(8))


def frame_parts(*parts: bytes) -> bytes:
    """Joins byte strings injectively: different lists never give the same bytes."""
    return b"".join([len(part).to_bytes(8) + part for part in parts])
