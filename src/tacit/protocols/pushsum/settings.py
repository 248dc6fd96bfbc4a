"""The settings of `pushsum`, and what they mean for some parties."""

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
"""Names of what a client draws with `private`: its starting weight y_i(0), and the part p_ii that it keeps."""


def _graphs_from(value: Any) -> Any:
    several = isinstance(value, list | tuple) and not all(map(graphs.is_edge, value))
    return tuple(map(graph_from, value)) if several else graph_from(value)


class PushSumSettings(Settings, frozen=True, kw_only=True):
    """Settings of `pushsum`."""

    graph: Graph | tuple[Graph, ...] = CompleteGraph()
    """A directed graph, or a list of them that rounds take in turn. An undirected one is used both ways."""
    private: bool = False
    """PPSGD: random y_i(0) and p_ii. Otherwise PSGD, with y_i(0) = 1 and equal parts."""
    y0: StartKind = UniformStart()
    """The distribution of y_i(0) with `private`: its name, or its name and parameters."""
    self_weight: tuple[float, float] = (0.1, 0.4)
    """The range (β, α) of p_ii, which is uniform in it with `private`."""
    masked: bool = False
    """In-neighbours mask pairwise, so that a client learns only their sum."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"graph": _graphs_from, "y0": start_from}
    editor_types: ClassVar[Mapping[str, str]] = {
        "graph": "GraphInput | Sequence[GraphInput]",
        "y0": 'StartKind | Literal["uniform", "exp", "lognormal"] | tuple[str | float, ...] | Mapping[str, Any]',
    }

    def problems(self, parties: Parties) -> list[str]:
        """Returns the reasons why settings cannot work for these parties that can be told at a glance."""
        problems = super().problems(parties)
        low, high = self.self_weight
        if not 0 < low < high < 0.5:
            problems.append(f"self_weight={self.self_weight} must be β, α with 0 < β < α < 1/2")
        if self.clip < 1 and not problems:
            problems.append(f"clip={self.clip:g} must be at least 1: y = 1 is an entry too, and would be cut off")
        return [*problems, *self.y0.problems()]

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns masks, where there are none."""
        del dropouts
        return None if self.masked else Remedy("masked", True)

    def bind(self, parties: Parties) -> "PushSumTerms":
        """Returns what the settings mean for these parties; raises ConfigError with every reason why they cannot."""
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
                problems.append(f"{', '.join(thin)} hear only one client each, whose mass nothing can mask; add edges")
        if problems:
            raise ConfigError(problems)
        return PushSumTerms(self, parties, drawn)


@dataclass(frozen=True)
class PushSumTerms(Terms):
    """What the settings of `pushsum` mean for some parties."""

    settings: PushSumSettings
    graphs: "tuple[nx.DiGraph, ...]"
    """Those that rounds take in turn."""

    def peers(self, me: Party) -> Collection[Party]:
        """Returns those that a client sends to or hears, in any round."""
        import networkx as nx

        i = self.parties.place(me)
        return self.parties.names_at(sorted({j for graph in self.graphs for j in nx.all_neighbors(graph, i)}))

    @property
    def alone(self) -> bool:
        """A client keeps what it does not send, so that all of x must fit what there is for one."""
        return True

    @property
    def period(self) -> int:
        """As many as there are graphs, and never one: in the second round there are masses under way."""
        return max(2, len(self.graphs))

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns who sends to whom in each graph, unless everybody draws parts of its own."""
        return None if self.settings.private else tuple(map(graphs.adjacency, self.graphs))

    @property
    def known_draws(self) -> Collection[str]:
        """Both draws of `private`. A push is p_ji x_i and p_ji y_i: x_i/y_i, which one known entry of x_i makes x_i."""
        return (START_WEIGHT, SELF_WEIGHT) if self.settings.private else ()

    def exchange(self) -> ExchangePattern:
        """Returns the graph of each round."""
        return ExchangePattern("graph", tuple(map(graphs.edges, self.graphs)), directed=True)

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields what is proved of masked sums of in-neighbours, and of plain masses."""
        return arguments_of(self, query)
