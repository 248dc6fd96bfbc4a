"""Lifecycle of a node: its states, the only place where they change, and the call that may block it.

There are two independent state machines. `RoundState` is the node's progress in its present round, `Presence` its
membership in the federation.

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
    """No round is under way, and every ending was available to the caller."""
    RUNNING = "running"
    """A round is under way."""
    BLOCKED = "blocked"
    """The disk refused the record of a call, so its actions are pending. The caller gets the disk's error."""
    RECOVERING = "recovering"
    """A round is under way again after it was blocked. Its ending is due to the caller."""
    UNREPORTED = "unreported"
    """A round that was blocked is over, and its ending was not returned to the caller yet."""


class Presence(StrEnum):
    """Membership of a node in its federation."""

    CREATED = "created"
    LISTENING = "listening"
    LEAVING = "leaving"
    """The node announces to its peers that they need not wait for it any longer."""
    CLOSED = "closed"


class IllegalTransition(RuntimeError):
    """A change of state that the lifecycle does not allow: an error in the node itself."""


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
    """Result of a call of the participant whose record is not on disk yet, so that no action is performed."""

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
        """Whether the node is being closed, or was, so that no call of `average` waits any longer."""
        self.draining = False
        """Whether the node finishes its present round and begins no other."""

    @property
    def is_resuming(self) -> bool:
        """Whether the next call of `average` completes the present round instead of beginning one."""
        return self.round not in BEFORE_ROUND

    def check_open(self, me: Party, number: int) -> None:
        """Raises TransportError if the node is being closed, was closed, or may begin no other round."""
        if self.closing and self.is_resuming:
            raise TransportError(
                f"{me} was closed in round {number}; join again, and the next average finishes that round"
            )
        if self.closing:
            raise TransportError(f"{me} was closed before a round began; join again")
        if self.draining and not self.is_resuming:
            raise TransportError(f"{me} stops and begins no other round after round {number}; start it again")

    def size_known(self, under_way: bool) -> None:
        """The length of the vectors is known; a round may be under way since before a restart."""
        self._enter_round(RoundState.RUNNING if under_way else RoundState.IDLE)

    def begin_round(self) -> None:
        """A round has begun."""
        self._enter_round(RoundState.RUNNING)

    def block(self) -> None:
        """The disk refused a record of the present round. It may do so again and again."""
        if self.round is not RoundState.BLOCKED:
            self._enter_round(RoundState.BLOCKED)

    def advance_round(self, over: bool) -> None:
        """The record of a call is on disk; the round may be over. Calls after the end change nothing."""
        if self.round is RoundState.RUNNING and over:
            self._enter_round(RoundState.IDLE)
        elif self.round is RoundState.BLOCKED or (self.round is RoundState.RECOVERING and over):
            self._enter_round(RoundState.UNREPORTED if over else RoundState.RECOVERING)

    def report_ending(self) -> None:
        """The ending of the present round is returned to the caller."""
        if self.round is not RoundState.IDLE:
            self._enter_round(RoundState.IDLE)

    def change_presence(self, presence: Presence) -> None:
        """Changes the membership of the node; a second time, nothing happens."""
        if presence is not self.presence:
            _check(self.presence, presence, PRESENCE_TRANSITIONS)
            self.presence = presence

    def _enter_round(self, state: RoundState) -> None:
        _check(self.round, state, ROUND_TRANSITIONS)
        self.round = state


def _check(before: S, after: S, allowed: Mapping[S, frozenset[S]]) -> None:
    if after not in allowed[before]:
        raise IllegalTransition(f"a node that is {before} cannot become {after}")
