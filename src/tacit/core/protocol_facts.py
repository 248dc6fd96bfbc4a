"""Typed answers that a protocol gives about itself to audits, plans, pictures and reports.

Everything here is data. A protocol returns it from its hooks (`Terms`, `Settings`, `Protocol` in `core.protocol`), so
that no other module has to know which protocol it has at hand.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.suite import Party

PAPERS = {
    "000": "Jeon et al. 2020",
    "001": "Pan et al. 2021",
    "002": "Ali et al. 2021",
    "003": "Huang",
    "004": "Biswas et al. 2024",
}
"""What people call the papers that go by numbers here. Huang's has no date."""


# --- claims of a paper ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promise:
    """What a claim says of one setting and coalition."""

    exposed: bool
    """Whether the paper says that everybody is exposed. Otherwise it says that nobody is."""
    because: str
    """The conditions of the claim, as they are met here."""


PromiseRule: TypeAlias = Callable[[Any, Collection[Party], int], Promise | None]
"""Given terms, coalition and number of rounds: what a claim says of them; None if it says nothing."""


@dataclass(frozen=True)
class Claim:
    """A guarantee as a paper states it, for the audit to confirm or refute."""

    paper: str
    section: str
    statement: str
    promise: PromiseRule | None = field(default=None, compare=False)
    """Decides whether the claim applies. Without it, reports quote the statement and compare nothing."""

    @property
    def where(self) -> str:
        """Where it is stated, as people cite it."""
        return f"{PAPERS.get(self.paper, self.paper)}, {self.section}"


# --- arguments for any number of parties ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CoalitionQuery:
    """The coalitions that an argument is about, and for how long."""

    size: int
    """How many parties collude; with a server, also the server with one party fewer."""
    fresh: bool
    """Whether each vector is sent only once: in a single round, or if models are new in each."""
    rounds: int = 1


class ArgumentCode(StrEnum):
    """Name of an argument of a shipped protocol: the heading under which `docs/claims.md` states and proves it."""

    ONE_SUM = "one sum"
    CIRCLE = "circle"
    WHOLE_BATCHES = "whole batches"
    FRESH_SUMS = "fresh sums"
    PRIVATE_NEIGHBOURS = "private neighbours"
    FEW_NEIGHBOURS = "few neighbours"
    PLAIN = "plain"


@dataclass(frozen=True)
class PrivacyArgument:
    """A proved statement about every coalition of a size: none learns a vector or, if it `exposes`, one does."""

    name: str
    """An `ArgumentCode`; or any other name, if the argument brings its own statement."""
    statement: str = ""
    """What the coalition learns, if the name is no `ArgumentCode`. `{who}` and `{when}` stand for the coalition and for
    the rounds and dropouts."""
    bits: float = 0.0
    """The most bits of an entry that a coalition learns, as `engine.precision` counts them. One bit halves the
    spread."""
    dropouts: bool = False
    """Whether it holds whoever drops out, and whenever."""
    exposes: bool = False
    """Whether it shows that a coalition does recover a vector."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers and names that the statement of an `ArgumentCode` mentions, as plain data."""


# --- who takes part, and what a sum hides --------------------------------------------------------------------------


class ParticipationPolicy(Protocol):
    """The part of a participation policy that audits and plans ask for (see `designs.participation`)."""

    def most(self, users: int) -> int:
        """Returns the largest number of users asked in a round."""

    def smallest(self, threshold: int) -> int:
        """Returns how many users a sum must have."""

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns those without whom a user is never summed."""

    @property
    def interchangeable(self) -> bool:
        """Whether any user could take the place of any other."""

    def sums_everybody(self, users: int) -> bool:
        """Returns whether all are summed in every round in which nobody is missing."""


@dataclass(frozen=True)
class SecureSum:
    """What a server learns at most if it is malicious: sums."""

    smallest: int
    """The fewest contributors to any sum."""
    colluders: int | None
    """With how many parties the server may collude; None if that holds with high probability, by the number of
    neighbours that the settings give each party."""


# --- which entries are shared ---------------------------------------------------------------------------------------

SelectionMatrix: TypeAlias = NDArray[np.bool_]
"""Who selects which entry: a row for each party, a column for each entry."""


@dataclass(frozen=True)
class EntrySelection:
    """How parties select the entries of a vector that they share."""

    probability: float
    """Probability with which a party selects an entry; if the vector decides, the share of its entries."""
    select: Callable[[NDArray[Any]], NDArray[np.bool_]] | None = None
    """Given a vector, returns the entries that its owner selects in the first round. None if chance decides, for each
    party, entry and round independently."""


# --- settings ------------------------------------------------------------------------------------------------------


class ReasonCode(StrEnum):
    """Code of what proposed settings are chosen for."""

    DEFAULTS = "defaults"
    BASELINE_WITH_SERVER = "baseline_with_server"
    BASELINE_WITHOUT_SERVER = "baseline_without_server"
    EVERYBODY = "everybody"
    EVERYBODY_SPARSE = "everybody_sparse"
    WHOLE_BATCHES = "whole_batches"
    NEIGHBOURS = "neighbours"
    ALL_TO_ALL = "all_to_all"
    GROUPS = "groups"
    COMPLETE_GRAPH = "complete_graph"
    EXPONENTIAL_GRAPH = "exponential_graph"
    OWN = "own"
    """A protocol says it in its own words."""


@dataclass(frozen=True)
class ProposedSettings:
    """Options that a protocol proposes to a planner, which audits them before it shows them to anybody."""

    options: dict[str, Any]
    why: str
    """What they are chosen for: a `ReasonCode`, or a few words of the protocol's own."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that a `ReasonCode` mentions, as plain data."""


@dataclass(frozen=True)
class Remedy:
    """An option that may help where somebody is exposed."""

    option: str
    value: Any = None
    """The value to set; None for a larger one than now."""


# --- pictures ------------------------------------------------------------------------------------------------------


MOST_PHASES = 64
"""Phases that are worth drawing. After so many, a reader has seen the pattern."""


@dataclass(frozen=True)
class ExchangePattern:
    """Who exchanges messages with whom, phase by phase, for drawings. Parties are places on the roster."""

    kind: Literal["star", "graph", "groups"]
    phases: tuple[tuple[tuple[int, ...], ...], ...]
    """The edges or groups of each phase. After the last phase the first follows again."""
    each: Literal["round", "iteration"] = "round"
    """What a phase is: a round, or an iteration within every round."""
    directed: bool = False
