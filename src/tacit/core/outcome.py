"""What a round ends with."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.core.errors import Drop
from tacit.core.messages import Envelope
from tacit.core.suite import Party, Vector

CLASSES = ("protocol", "parameters", "metadata")


@dataclass(frozen=True)
class Average:
    """What one party's coroutine returns: the average, and whose vectors are in it."""

    vector: Vector
    contributors: tuple[Party, ...]


@dataclass
class Traffic:
    """Bytes by party and class, sent and received. The classes are those of paper 004, Section 5."""

    sent: dict[Party, Counter[str]] = field(default_factory=dict)
    received: dict[Party, Counter[str]] = field(default_factory=dict)

    def count(self, table: dict[Party, Counter[str]], party: Party, sizes: Mapping[str, int]) -> None:
        """Adds one message's sizes to a party's row of `sent` or `received`."""
        row = table.setdefault(party, Counter(dict.fromkeys(CLASSES, 0)))
        for name, size in sizes.items():
            row[name] += size

    @property
    def total(self) -> int:
        """All bytes sent."""
        return sum(row.total() for row in self.sent.values())

    def by_class(self) -> dict[str, int]:
        """Bytes sent by all parties, by class."""
        return {name: sum(row[name] for row in self.sent.values()) for name in CLASSES}

    def of(self, party: Party) -> int:
        """Bytes that one party sent and received."""
        return sum(table.get(party, Counter()).total() for table in (self.sent, self.received))


@dataclass(frozen=True)
class Passed:
    """One envelope on its way: when it was sent, its bytes as the courier saw them, and whether they were delivered."""

    time: float
    envelope: Envelope
    delivered: bool


@dataclass
class Transcript:
    """Everything the courier carried in one round, sealed as it was. Opening it takes a party's own keys."""

    passed: list[Passed] = field(default_factory=list)
    federation: Any = field(default=None, repr=False)
    """Who exchanged it, for whoever holds their keys."""

    def __iter__(self) -> Iterator[Passed]:
        return iter(self.passed)

    def __len__(self) -> int:
        return len(self.passed)


@dataclass
class Outcome:
    """The result of one round, for every party that finished it."""

    average: dict[Party, Any]
    contributors: tuple[Party, ...]
    traffic: Traffic
    clipped: dict[Party, int]
    """Entries that were cut off at the clip, for each party with any."""
    dropped: dict[Party, Drop]
    """Parties that did not get through the round, and why."""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    """How long the round took on the driver's clock (a virtual one in simulation)."""
    transcript: Transcript | None = None
