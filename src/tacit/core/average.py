"""Result of a round for one party: its average, or how the round ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.core.errors import Drop, TacitError
from tacit.core.suite import Party, Vector

CLASSES = ("protocol", "parameters", "metadata")
"""Classes that bytes are counted in (paper 004, Section 5)."""


SHOWN = 5
"""Most party names that a text lists one by one."""


def list_names(parties: Sequence[Party]) -> str:
    """Returns the first names as text, followed by the number of parties left out."""
    more = f" and {len(parties) - SHOWN} more" if len(parties) > SHOWN else ""
    return ", ".join(map(str, parties[:SHOWN])) + more


def format_count(count: int, one: str, several: str = "") -> str:
    """Returns a count with its noun: "1 round", "2 rounds"."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


@dataclass(frozen=True)
class Average:
    """Result of one party's coroutine: the average, and the contributors to it."""

    vector: Vector
    contributors: tuple[Party, ...]
    replaces: bool = False
    """Whether the party was behind, so that the average replaces its model and all its local work."""
    is_change: bool = False
    """Whether the vector is a change to add to a model. Otherwise it is a model."""


@dataclass(frozen=True)
class Phase:
    """One finished wait of a round: the message awaited, and the parties that did not send it."""

    kind: str
    """The kind of the awaited message."""
    awaited: int
    """Number of parties that had to send one."""
    missing: Mapping[Party, Drop]
    """The parties that sent none, and why."""
    seconds: float
    """Duration of the wait on the driver's clock."""


@dataclass(frozen=True)
class Ending:
    """How a round ended for one party, or its state if it has not ended."""

    party: Party
    round: int
    average: Vector | None
    """The average; None if the party aborted, was interrupted, or has not finished yet."""
    contributors: tuple[Party, ...]
    dropped: Mapping[Party, Drop]
    """Parties it excluded or lost, and why."""
    error: TacitError | None
    """The error that the party aborted with; None if it did not abort."""
    clipped: int
    """Number of entries of its vector that were clipped."""
    largest: float
    """Largest magnitude among the clipped entries."""
    rounded: float
    """Relative rounding error of the party's weight in the ring."""
    sent: Mapping[str, int]
    """Bytes sent, by class."""
    received: Mapping[str, int]
    """Bytes received, by class."""
    phases: tuple[Phase, ...]
    replaces: bool = False
    """Whether the party was behind, so that the average replaces its model and all its local work."""
    lineage: bytes = b""
    """Lineage of a model that adopts the average; empty if there is no average, or if the protocol signs no lineage."""
    is_change: bool = False
    """Whether the average is a change to add to a model. Otherwise it is a model."""

    def __repr__(self) -> str:
        if self.error is not None:
            how = f"{self.error.code}: {self.error}"
        else:
            how = "no average" if self.average is None else f"the average of {list_names(self.contributors)}"
        return f"<Ending: {self.party}, round {self.round}: {how}; {sum(self.sent.values()):,} bytes sent>"
