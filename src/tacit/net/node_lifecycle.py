"""Lifecycle of a node: its states, their transitions, and the call that may block it.

There are two independent state machines, which change only here. `RoundState` is the node's progress in its present
round, `Presence` its membership in the federation.

    UNSIZED ──▶ IDLE ◀──▶ RUNNING ◀─── (restart with an interrupted round: UNSIZED ──▶ RUNNING)
                  ▲          │
                  │          ▼
            UNREPORTED ◀── BLOCKED ◀──▶ RECOVERING ──▶ UNREPORTED

    CREATED ──▶ LISTENING ──▶ LEAVING ──▶ CLOSED        (any presence may close)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tacit.core.errors import TransportError
from tacit.core.suite import Party, Update
from tacit.runtime.journal import Record
from tacit.runtime.round import Action


class RoundState(StrEnum):
    """Progress of a node in its present round."""

    UNSIZED = "unsized"
    """The length of the vectors is not known yet, so there is no participant."""
    IDLE = "idle"
    """No round is in progress, and the caller could get every ending."""
    RUNNING = "running"
    """A round is in progress."""
    BLOCKED = "blocked"
    """Writing the record of a call failed, so its actions are pending. The caller gets the disk's error."""
    RECOVERING = "recovering"
    """A round is in progress again after it was blocked. The caller has not received its ending yet."""
    UNREPORTED = "unreported"
    """A round that was blocked is over. The caller has not received its ending yet."""


class Presence(StrEnum):
    """Membership of a node in its federation."""

    CREATED = "created"
    LISTENING = "listening"
    LEAVING = "leaving"
    """The node has announced to its peers that they need not wait for it any longer."""
    CLOSED = "closed"


class IllegalTransition(RuntimeError):
    """A transition that the lifecycle does not allow: a bug in the node itself."""


S = TypeVar("S", RoundState, Presence)

ROUND_TRANSITIONS: Mapping[RoundState, frozenset[RoundState]] = {
    RoundState.UNSIZED: frozenset({RoundState.IDLE, RoundState.RUNNING}),
    RoundState.IDLE: frozenset({RoundState.RUNNING}),
    RoundState.RUNNING: frozenset({RoundState.IDLE, RoundState.BLOCKED}),
    RoundState.BLOCKED: frozenset({RoundState.RECOVERING, RoundState.UNREPORTED}),
    RoundState.RECOVERING: frozenset({RoundState.BLOCKED, RoundState.UNREPORTED}),
    RoundState.UNREPORTED: frozenset({RoundState.IDLE}),
}
PRESENCE_TRANSITIONS: Mapping[Presence, frozenset[Presence]] = {
    Presence.CREATED: frozenset({Presence.LISTENING, Presence.LEAVING, Presence.CLOSED}),
    Presence.LISTENING: frozenset({Presence.LEAVING, Presence.CLOSED}),
    Presence.LEAVING: frozenset({Presence.CLOSED}),
    Presence.CLOSED: frozenset(),
}
BEFORE_ROUND = frozenset({RoundState.UNSIZED, RoundState.IDLE})
"""States in which the next call of `average` begins a round."""


@dataclass(frozen=True)
class PendingCall:
    """A call of the participant whose record is not on disk yet, so that none of its actions may be performed."""

    actions: list[Action]
    record: Record | None
    update: Update | None = None
    """The update, if the call begins a round."""
    after_ending: bool = False
    """Whether the call begins a round while the previous one is over and not finished on disk."""


class NodeLifecycle:
    """The present states of a node."""

    def __init__(self) -> None:
        self.round, self.presence = RoundState.UNSIZED, Presence.CREATED
        self.closing = False
        """Whether the node is closing or closed, so that no call of `average` waits any longer."""
        self.draining = False
        """Whether the node finishes its present round and begins no other."""

    @property
    def is_resuming(self) -> bool:
        """Whether the next call of `average` completes the present round instead of beginning one."""
        return self.round not in BEFORE_ROUND

    @property
    def obstacle(self) -> str:
        """Reason why this node begins no round; empty if it may."""
        open_ = self.presence is Presence.LISTENING and not (self.closing or self.draining)
        return "" if open_ else "stopping"

    def check_open(self, me: Party, number: int) -> None:
        """Raises TransportError if the node is closing or closed, or may begin no other round."""
        if self.closing and self.is_resuming:
            raise TransportError(
                f"{me} was closed in round {number}; try: join again, and the next average finishes that round"
            )
        if self.closing:
            raise TransportError(f"{me} was closed before a round began; try: join again")
        if self.draining and not self.is_resuming:
            raise TransportError(f"{me} is stopping and begins no round after round {number}; try: start it again")

    def size_known(self, under_way: bool) -> None:
        """Records that the length of the vectors is known. An interrupted round may be in progress."""
        self._enter_round(RoundState.RUNNING if under_way else RoundState.IDLE)

    def begin_round(self) -> None:
        """Records that a round has begun."""
        self._enter_round(RoundState.RUNNING)

    def block(self) -> None:
        """Records that writing a record of the present round failed. It may fail repeatedly."""
        if self.round is not RoundState.BLOCKED:
            self._enter_round(RoundState.BLOCKED)

    def advance_round(self, over: bool) -> None:
        """Records that a call's record is on disk, and whether the round is over. Later calls change nothing."""
        if self.round is RoundState.RUNNING and over:
            self._enter_round(RoundState.IDLE)
        elif self.round is RoundState.BLOCKED or (self.round is RoundState.RECOVERING and over):
            self._enter_round(RoundState.UNREPORTED if over else RoundState.RECOVERING)

    def report_ending(self) -> None:
        """Records that the caller receives the ending of the present round."""
        if self.round is not RoundState.IDLE:
            self._enter_round(RoundState.IDLE)

    def change_presence(self, presence: Presence) -> None:
        """Changes the membership of the node. Repeating a change has no effect."""
        if presence is not self.presence:
            _check(self.presence, presence, PRESENCE_TRANSITIONS)
            self.presence = presence

    def _enter_round(self, state: RoundState) -> None:
        _check(self.round, state, ROUND_TRANSITIONS)
        self.round = state


def _check(before: S, after: S, allowed: Mapping[S, frozenset[S]]) -> None:
    if after not in allowed[before]:
        raise IllegalTransition(f"a node that is {before} cannot become {after}")
