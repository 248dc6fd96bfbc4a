"""The options of each protocol, for editors and type checkers, which do not look into settings.

A test holds them against the settings: names, types and what they are unless set.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from tacit.designs.graphs import Graph
from tacit.designs.participation import Policy
from tacit.protocols.pushsum import StartKind


class Networkx(Protocol):
    """A graph of networkx."""

    @property
    def nodes(self) -> Any:
        """Its nodes."""

    @property
    def edges(self) -> Any:
        """Its edges."""


Edges: TypeAlias = Iterable[tuple[str | int, str | int] | list[str] | list[int]]
Drawn: TypeAlias = Networkx | Graph | Edges | Literal["complete", "ring", "exponential"] | Mapping[str, Any]
"""A graph: of networkx, its edges, its name, or a table with its kind and parameters."""


class Options(TypedDict, total=False):
    """Options of every protocol."""

    bits: Literal[16, 32, 64]
    """32 unless set."""
    clip: float
    """32.0 unless set."""
    max_weight: float
    """1.0 unless set."""
    weighted: bool
    """False unless set."""
    noise: float
    """0.0 unless set."""
    norm: float | None
    """None unless set."""
    rounding: Literal["auto", "nearest", "stochastic"]
    """'auto' unless set."""
    allow_leaks: bool
    """False unless set."""
    include: Sequence[str] | None
    """None unless set."""
    exclude: Sequence[str]
    """() unless set."""


class FedAvgOptions(Options, total=False):
    """Options of `fedavg`."""

    participation: Policy | Literal["everyone"] | Mapping[str, Any]
    """{'kind': 'everyone'} unless set."""
    sampled: int | None
    """None unless set."""
    oversampled: int | None
    """None unless set."""
    threshold: int | None
    """None unless set."""


class SecAggOptions(FedAvgOptions, total=False):
    """Options of `secagg`."""

    neighbours: int | Literal["all"]
    """'all' unless set."""
    fewest: int | None
    """None unless set."""


class GossipOptions(Options, total=False):
    """Options of `gossip`."""

    graph: Drawn
    """{'kind': 'complete'} unless set."""
    share: float
    """1.0 unless set."""
    sparsifier: Literal["random", "topk"]
    """'random' unless set."""
    score: Literal["magnitude", "change"]
    """'magnitude' unless set."""


class CesarOptions(GossipOptions, total=False):
    """Options of `cesar`."""

    masking: int
    """1 unless set."""


class AdmmOptions(Options, total=False):
    """Options of `admm`."""

    iterations: int | None
    """None unless set."""
    rho: float | Sequence[float]
    """0.1 unless set."""
    group_size: int | Literal["all"] | None
    """3 unless set."""
    masked: bool
    """False unless set."""
    lambda0: tuple[float, float]
    """(0.0, 1.0) unless set."""


class PushSumOptions(Options, total=False):
    """Options of `pushsum`."""

    graph: Drawn | Sequence[Drawn]
    """{'kind': 'complete'} unless set."""
    private: bool
    """False unless set."""
    y0: StartKind | Literal["uniform", "exp", "lognormal"] | tuple[str | float, ...] | Mapping[str, Any]
    """{'kind': 'uniform'} unless set."""
    self_weight: tuple[float, float]
    """(0.1, 0.4) unless set."""
    masked: bool
    """False unless set."""
