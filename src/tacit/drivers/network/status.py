"""How it stands with a party that is running: what it tells people, with nothing secret in it."""

from dataclasses import dataclass

from tacit.core.suite import Party

STATUS = "status.json"
"""Where, in its folder, a party writes it."""


@dataclass(frozen=True)
class Standing:
    """How it stands between a node and one of its peers."""

    party: Party
    begun: int
    """The last round that it said to have begun,"""
    heard: float | None
    """and how many seconds ago it was last heard; None if never."""
    waiting: int
    """Parcels that have not arrived there."""
    missing: float | None
    """For how many seconds something of it is waited for; None if nothing is."""
    trouble: str


@dataclass(frozen=True)
class Status:
    """How it stands with a node: for people, and without anything secret."""

    party: Party
    at: float
    """The time of day, in seconds since 1970."""
    round: int
    ready: int
    """The round that it waits to begin, or 0."""
    over: bool
    waits_for: str
    """The kinds of messages that it waits for in its round."""
    peers: list[Standing]
