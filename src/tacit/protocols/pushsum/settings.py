"""Settings and terms of `pushsum`."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from tacit.core.errors import ConfigError
from tacit.core.protocol import Settings, Terms
from tacit.core.protocol_facts import CoalitionQuery, ExchangePattern, PrivacyArgument, Remedy
from tacit.core.suite import Parties, Party
from tacit.designs import graphs
from tacit.designs.graphs import CompleteGraph, Graph, graph_from
from tacit.protocols.pushsum.proposals import arguments_of
from tacit.protocols.pushsum.start_weights import StartKind, UniformStart, start_from

if TYPE_CHECKING:
    import networkx as nx

START_WEIGHT, SELF_WEIGHT = "y0", "p_ii"
"""Names of the random numbers of `private`: the starting weight y_i(0), and the part p_ii that a client keeps."""


def _graphs_from(value: Any) -> Any:
    several = isinstance(value, list | tuple) and not all(map(graphs.is_edge, value))
    return tuple(map(graph_from, value)) if several else graph_from(value)


class PushSumSettings(Settings, frozen=True, kw_only=True):
    """Settings of `pushsum`."""

    graph: Graph | tuple[Graph, ...] = CompleteGraph()
    """A directed graph, or a list of graphs that rounds use in turn. An undirected graph is used in both directions."""
    private: bool = False
    """Whether to run PPSGD, with random y_i(0) and p_ii. Otherwise PSGD, with y_i(0) = 1 and equal parts."""
    y0: StartKind = UniformStart()
    """Distribution of y_i(0) with `private`: its name, or its name and parameters."""
    self_weight: tuple[float, float] = (0.1, 0.4)
    """Range (β, α) of p_ii, which is sampled uniformly with `private`."""
    masked: bool = False
    """Whether in-neighbours mask pairwise, so that a client learns only their sum."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"graph": _graphs_from, "y0": start_from}
    editor_types: ClassVar[Mapping[str, str]] = {
        "graph": "GraphInput | Sequence[GraphInput]",
        "y0": 'StartKind | Literal["uniform", "exp", "lognormal"] | tuple[str | float, ...] | Mapping[str, Any]',
    }

    def problems(self, parties: Parties) -> list[str]:
        """Returns the problems of these settings for these parties that need no further computation to find."""
        problems = super().problems(parties)
        low, high = self.self_weight
        if not 0 < low < high < 0.5:
            problems.append(f"self_weight={self.self_weight} must be β, α with 0 < β < α < 1/2")
        if self.clip < 1 and not problems:
            problems.append(f"clip={self.clip:g} must be at least 1: y = 1 is an entry too, and would be cut off")
        return [*problems, *self.y0.problems()]

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns `masked=True`, if masks are not set."""
        del dropouts
        return None if self.masked else Remedy("masked", True)

    def bind(self, parties: Parties) -> "PushSumTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        import networkx as nx

        problems = self.problems(parties)
        several = self.graph if isinstance(self.graph, tuple) else (self.graph,)
        try:
            found = [graph.draw(parties) for graph in several]
        except ConfigError as error:
            raise ConfigError([*problems, *error.problems]) from None
        drawn = tuple(graph if graph.is_directed() else graph.to_directed() for graph in found)
        problems += graphs.connection_problems(nx.compose_all(drawn))
        if self.masked and len(drawn) > 1:
            problems.append("masked=True needs one graph for all rounds, since sums over changing sets can be compared")
        if self.masked:
            thin = [parties[i] for i in drawn[0] if drawn[0].in_degree(i) == 1]
            if thin:
                problems.append(
                    f"{', '.join(thin)} hear only one client each, whose mass nothing can mask; try: add edges"
                )
        if problems:
            raise ConfigError(problems)
        return PushSumTerms(self, parties, drawn)


@dataclass(frozen=True)
class PushSumTerms(Terms):
    """What the settings of `pushsum` mean for one roster."""

    settings: PushSumSettings
    graphs: "tuple[nx.DiGraph, ...]"
    """The graphs that rounds use in turn."""

    def peers(self, me: Party) -> Collection[Party]:
        """Returns the parties that a client sends to or receives from, in any round."""
        import networkx as nx

        i = self.parties.place(me)
        return self.parties.names_at(sorted({j for graph in self.graphs for j in nx.all_neighbors(graph, i)}))

    @property
    def alone(self) -> bool:
        """True: a client keeps what it does not send, so each x must fit its own share of the ring."""
        return True

    @property
    def period(self) -> int:
        """The number of graphs, and at least two: from the second round on, masses of earlier rounds are in transit."""
        return max(2, len(self.graphs))

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns the adjacency matrices of the graphs; None with `private`, where clients sample their own parts."""
        return None if self.settings.private else tuple(map(graphs.adjacency, self.graphs))

    @property
    def known_draws(self) -> Collection[str]:
        """Both random numbers of `private`. A push is p_ji x_i and p_ji y_i, hence x_i/y_i, and one known entry of x_i
        then gives x_i."""
        return (START_WEIGHT, SELF_WEIGHT) if self.settings.private else ()

    def exchange(self) -> ExchangePattern:
        """Returns the graph of each round, for pictures."""
        return ExchangePattern("graph", tuple(map(graphs.edges, self.graphs)), directed=True)

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields the arguments about masked sums of in-neighbours, and about plain masses."""
        return arguments_of(self, query)
