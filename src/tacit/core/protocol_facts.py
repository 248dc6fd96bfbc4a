"""Typed facts that a protocol states about itself, for audits, plans, pictures and reports.

Everything here is data. A protocol returns it from its hooks (`Terms`, `Settings`, `Protocol` in `core.protocol`), so
that no other module has to compare names of protocols.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
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
"""Citations of the papers that this project numbers. Huang's paper has no date."""


# --- claims of a paper ---------------------------------------------------------------------------------------------


class ConditionCode(StrEnum):
    """Code of the conditions under which a claim of a shipped protocol applies."""

    ONE_NODE_ONE_ROUND = "one_node_one_round"
    COLLUDING_NODES = "colluding_nodes"
    SERVER_ONE_ROUND = "server_one_round"
    BATCHES = "batches"
    PRIVATE_EAVESDROPPER = "private_eavesdropper"
    ALL_TO_ALL = "all_to_all"
    GAP = "gap"


@dataclass(frozen=True)
class Promise:
    """The statement that a claim makes for given settings and a given coalition."""

    exposed: bool
    """Whether the paper says that everybody is exposed. Otherwise it says that nobody is."""
    condition: str
    """The conditions of the claim that are met: a `ConditionCode`, or a few words of the protocol's own."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that a `ConditionCode` mentions, as plain data."""


PromiseRule: TypeAlias = Callable[[Any, Collection[Party], int], Promise | None]
"""Returns the promise of a claim for terms, coalition and number of rounds; None if the claim does not apply."""


@dataclass(frozen=True)
class Claim:
    """A guarantee as a paper states it. The audit confirms or refutes it."""

    paper: str
    section: str
    statement: str
    promise: PromiseRule | None = field(default=None, compare=False)
    """Decides whether the claim applies. If None, reports quote the statement without judging it."""

    @property
    def where(self) -> str:
        """The source of the claim, as a citation."""
        return f"{PAPERS.get(self.paper, self.paper)}, {self.section}"


# --- arguments for any number of parties ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CoalitionQuery:
    """The coalitions and rounds that an argument has to cover."""

    size: int
    """Number of colluding parties. For a protocol with a server, the server may be one of them."""
    fresh: bool
    """Whether each vector is sent only once: in a single round, or if models are new in every round."""
    rounds: int = 1


class ArgumentCode(StrEnum):
    """Name of an argument of a shipped protocol: the heading under which `docs/claims.md` states and proves it."""

    ONE_SUM = "one sum"
    CIRCLE = "circle"
    WHOLE_BATCHES = "whole batches"
    FRESH_SUMS = "fresh sums"
    PRIVATE_NEIGHBOURS = "private neighbours"
    FEW_NEIGHBOURS = "few neighbours"
    DISJOINT_GROUPS = "disjoint groups"
    PLAIN = "plain"


@dataclass(frozen=True)
class PrivacyArgument:
    """A proved statement about all coalitions of a size: none learns a vector or, if it `exposes`, one of them does."""

    name: str
    """An `ArgumentCode`, or any other name if the argument has its own statement."""
    statement: str = ""
    """What the coalition learns, if the name is not an `ArgumentCode`. `{who}` and `{when}` are replaced by the
    coalition, and by the rounds and dropouts."""
    bits: float = 0.0
    """The most bits of an entry that a coalition learns, in the measure of `engine.precision`. One bit halves the
    standard deviation."""
    dropouts: bool = False
    """Whether it holds for all dropouts."""
    exposes: bool = False
    """Whether it proves that a coalition recovers a vector."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers and names that the statement of an `ArgumentCode` refers to, as plain data."""


# --- who takes part, and what a sum hides --------------------------------------------------------------------------


class ParticipationPolicy(Protocol):
    """Interface of a participation policy that audits and plans use (see `designs.participation`)."""

    def most(self, users: int) -> int:
        """Returns the largest number of users asked in a round."""

    def smallest(self, threshold: int) -> int:
        """Returns the fewest users in a sum."""

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the users who are in every sum that contains the given user."""

    @property
    def interchangeable(self) -> bool:
        """Whether all users have the same role in the policy."""

    def sums_everybody(self, users: int) -> bool:
        """Returns whether every round without dropouts sums all users."""

    def separating_sets(self, members: Sequence[int], users: int) -> list[tuple[int, ...]]:
        """Returns the fewest sets that may be summed, one in each round, so that their sums single out a user."""


@dataclass(frozen=True)
class SecureSum:
    """Upper bound on what a malicious server learns: sums of several contributors."""

    smallest: int
    """The fewest contributors to any sum."""
    colluders: int | None
    """The most parties that may collude with the server. None if the bound holds with high probability instead,
    depending on the number of neighbours in the settings."""


# --- which entries are shared ---------------------------------------------------------------------------------------

SelectionMatrix: TypeAlias = NDArray[np.bool_]
"""Selected entries of each party: a row per party, a column per entry."""


@dataclass(frozen=True)
class EntrySelection:
    """How parties select the entries of a vector that they share."""

    probability: float
    """Probability with which a party selects an entry, or the share of entries if the vector determines them."""
    select: Callable[[NDArray[Any]], NDArray[np.bool_]] | None = None
    """Returns the entries that the owner of a vector selects in the first round. None if entries are selected at
    random, independently for each party, entry and round."""


# --- settings ------------------------------------------------------------------------------------------------------


class ReasonCode(StrEnum):
    """Code of the reason why a planner proposes settings."""

    DEFAULTS = "defaults"
    BASELINE_WITH_SERVER = "baseline_with_server"
    BASELINE_WITHOUT_SERVER = "baseline_without_server"
    EVERYBODY = "everybody"
    EVERYBODY_SPARSE = "everybody_sparse"
    ALL_OR_NOTHING = "all_or_nothing"
    WHOLE_BATCHES = "whole_batches"
    NEIGHBOURS = "neighbours"
    ALL_TO_ALL = "all_to_all"
    GROUPS = "groups"
    ROTATING = "rotating"
    COMPLETE_GRAPH = "complete_graph"
    EXPONENTIAL_GRAPH = "exponential_graph"
    OWN = "own"
    """The protocol states the reason in its own words."""


@dataclass(frozen=True)
class ProposedSettings:
    """Options that a protocol proposes to a planner. The planner audits them before it shows them."""

    options: dict[str, Any]
    why: str
    """Reason for the proposal: a `ReasonCode`, or the protocol's own words."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that a `ReasonCode` refers to, as plain data."""


@dataclass(frozen=True)
class Remedy:
    """An option that may help when a party is exposed."""

    option: str
    value: Any = None
    """The value to set; None for a larger value than the present one."""


# --- pictures ------------------------------------------------------------------------------------------------------


MOST_PHASES = 64
"""Most phases in a picture. After that many the pattern is clear."""


@dataclass(frozen=True)
class ExchangePattern:
    """Message pattern of a protocol, phase by phase, for pictures. Parties are indices on the roster."""

    kind: Literal["star", "graph", "groups"]
    phases: tuple[tuple[tuple[int, ...], ...], ...]
    """The edges or groups of each phase. After the last phase the first one follows again."""
    each: Literal["round", "iteration"] = "round"
    """The unit of a phase: a round, or an iteration within a round."""
    directed: bool = False
