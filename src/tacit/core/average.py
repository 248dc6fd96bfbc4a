"""What a round ends with, for one party."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.core.errors import Drop, TacitError
from tacit.core.suite import Party, Vector

CLASSES = ("protocol", "parameters", "metadata")
"""What bytes are spent on: the classes of paper 004, Section 5."""


SHOWN = 5
"""Parties that are named, of many."""


def few(parties: Sequence[Party]) -> str:
    """Returns some names, and how many more there are."""
    more = f" and {len(parties) - SHOWN} more" if len(parties) > SHOWN else ""
    return ", ".join(map(str, parties[:SHOWN])) + more


def counted(count: int, one: str, several: str = "") -> str:
    """Returns so many of something, as people say it."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


@dataclass(frozen=True)
class Average:
    """What one party's coroutine returns: the average, and whose vectors are in it."""

    vector: Vector
    contributors: tuple[Party, ...]


@dataclass(frozen=True)
class Phase:
    """One wait of a round that is over."""

    kind: str
    """What was waited for."""
    awaited: int
    """From how many."""
    missing: Mapping[Party, Drop]
    """From whom it did not come, and why."""
    seconds: float
    """How long it took on the driver's clock."""


@dataclass(frozen=True)
class Ending:
    """How a round ended for one party, or how it stands if it has not ended."""

    party: Party
    round: int
    average: Vector | None
    """None if the party gave up, was cut off, or has not finished yet."""
    contributors: tuple[Party, ...]
    dropped: Mapping[Party, Drop]
    """Whom it no longer counted on, and why."""
    error: TacitError | None
    """Why it gave up, if it did."""
    clipped: int
    """Entries of its vector that were cut off at the clip,"""
    largest: float
    """and the largest magnitude among them."""
    rounded: float
    """By how much of itself its weight was rounded, for the ring to carry it."""
    sent: Mapping[str, int]
    """Bytes by class."""
    received: Mapping[str, int]
    phases: tuple[Phase, ...]

    def __repr__(self) -> str:
        if self.error is not None:
            how = f"{self.error.code}: {self.error}"
        else:
            how = "no average" if self.average is None else f"the average of {few(self.contributors)}"
        return f"<Ending: {self.party}, round {self.round}: {how}; {sum(self.sent.values()):,} bytes sent>"
