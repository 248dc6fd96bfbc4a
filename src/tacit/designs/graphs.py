"""Graphs for gossip, push-sum and masked exchange, and their mixing weights.

Nodes are indices on the roster, 0 … n−1. In settings, a graph is a plain description: a family with its parameters, or
a list of edges. All parties construct the same graph from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy, SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.suite import Parties
from tacit.core.values import describe_mismatch

if TYPE_CHECKING:
    import networkx as nx  # slow to import, so functions that need it do

TRIES = 6
"""Most attempts to sample a random graph."""


def complete(n: int) -> "nx.Graph":
    """Returns the complete graph."""
    import networkx as nx

    return nx.complete_graph(n)


def ring(n: int) -> "nx.Graph":
    """Returns the cycle graph."""
    import networkx as nx

    return nx.cycle_graph(n)


def exponential(n: int) -> "nx.DiGraph":
    """Returns the directed graph in which i sends to i + 1, i + 2, i + 4, …. It has log n neighbours and mixes fast."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    hops = [2**power for power in range((n - 1).bit_length())]
    graph.add_edges_from((i, (i + hop) % n) for i in range(n) for hop in hops if hop % n)
    return graph


def random_directed(n: int, degree: int, seed: int = 0) -> "nx.DiGraph":
    """Returns a random strongly connected directed graph in which every node sends to `degree` others."""
    import networkx as nx

    if not 1 <= degree < n:
        raise ConfigError(f"a node can send to 1 to {n - 1} others, not {degree}")
    entropy = SeededEntropy(seed, "directed graph")
    order = _shuffle(range(n), entropy)
    graph = nx.DiGraph()
    for place, i in enumerate(order):
        # A cycle through all nodes makes the graph strongly connected, whatever the other edges are.
        following = order[(place + 1) % n]
        others = [j for j in range(n) if j not in (i, following)]
        graph.add_edges_from((i, j) for j in [following, *entropy.sample(others, degree - 1)])
    return graph


def regular(n: int, degree: int, girth: int = 3, seed: int = 0) -> "nx.Graph":
    """Returns a random connected graph with the given degree and without cycles shorter than `girth`.

    >>> graph = regular(10, 3, girth=5)
    >>> sorted(set(dict(graph.degree).values()))
    [3]

    With girth 5 or more, two nodes share at most one neighbour. So two colluding receivers cannot compare their sums.

    Args:
        n: Number of nodes.
        degree: Neighbours of each node.
        girth: Length of the shortest allowed cycle.
        seed: Seed of the sampled graph.
    """
    import networkx as nx

    least = _moore_bound(degree, girth)
    if not 2 <= degree < n or n * degree % 2 or n < least:
        even = " and an even number" if degree % 2 else ""
        raise ConfigError(
            f"there is no {degree}-regular graph of girth {girth} on {n} nodes; it takes a degree of 2 or more and at "
            f"least {least} nodes{even}"
        )
    entropy = SeededEntropy(seed, "regular graph")
    for _ in range(TRIES):
        graph = _grow_regular(n, degree, girth, entropy)
        if graph is not None and nx.is_connected(graph):
            return graph
    raise ConfigError(
        f"found no {degree}-regular graph of girth {girth} on {n} nodes in {TRIES} tries; try: "
        "use more nodes or fewer edges"
    )


def _moore_bound(degree: int, girth: int) -> int:
    """Returns the Moore bound: the fewest nodes of a graph with this degree and girth."""
    reach = range((girth - 1) // 2 if girth % 2 else girth // 2)
    branches: int = sum((degree - 1) ** i for i in reach)
    return 1 + degree * branches if girth % 2 else 2 * branches


def _grow_regular(n: int, degree: int, girth: int, entropy: Entropy) -> "nx.Graph | None":
    """Adds edges between distant nodes, and removes an edge where none can be added; None if that does not finish."""
    import networkx as nx

    graph = nx.empty_graph(n)
    for _ in range(20 * n * degree):
        open_nodes = [i for i in range(n) if graph.degree(i) < degree]
        if not open_nodes:
            return graph
        # Nodes that lack most edges come first; otherwise the last nodes have no partner left.
        fewest = min(graph.degree(i) for i in open_nodes)
        i = entropy.sample([i for i in open_nodes if graph.degree(i) == fewest], 1)[0]
        near = nx.single_source_shortest_path_length(graph, i, cutoff=girth - 2)
        partners = [j for j in open_nodes if j not in near]
        if partners:
            graph.add_edge(i, entropy.sample(partners, 1)[0])
            continue
        far = [j for j in range(n) if j not in near]
        j = entropy.sample(far or sorted(graph[i]), 1)[0]
        graph.remove_edge(j, entropy.sample(sorted(graph[j]), 1)[0])
        if far:
            graph.add_edge(i, j)
    return None


def _shuffle(items: Iterable[int], entropy: Entropy) -> list[int]:
    left = list(items)
    return [left.pop(entropy.below(len(left))) for _ in range(len(left))]


# --- graphs as settings --------------------------------------------------------------------------------------------


class GraphFamily(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """Description of a graph, as settings contain it."""

    def draw(self, parties: Parties) -> "nx.Graph":
        """Returns the graph over the indices of a roster; raises ConfigError with a remedy."""
        raise NotImplementedError


class CompleteGraph(GraphFamily, frozen=True, tag="complete"):
    """The complete graph: every pair of nodes is joined."""

    def draw(self, parties: Parties) -> "nx.Graph":
        """Returns the complete graph."""
        return complete(len(parties))


class RingGraph(GraphFamily, frozen=True, tag="ring"):
    """A cycle in the order of the roster."""

    def draw(self, parties: Parties) -> "nx.Graph":
        """Returns the cycle."""
        return ring(len(parties))


class ExponentialGraph(GraphFamily, frozen=True, tag="exponential"):
    """Directed graph in which every node sends to the nodes 1, 2, 4, … places further."""

    def draw(self, parties: Parties) -> "nx.DiGraph":
        """Returns the exponential graph."""
        return exponential(len(parties))


class DirectedGraph(GraphFamily, frozen=True, tag="directed"):
    """Random directed graph in which every node sends to `degree` others."""

    degree: int
    """Number of receivers of each node."""
    seed: int = 0
    """Seed of the sampled graph."""

    def draw(self, parties: Parties) -> "nx.DiGraph":
        """Returns the random directed graph."""
        return random_directed(len(parties), self.degree, self.seed)


class RegularGraph(GraphFamily, frozen=True, tag="regular"):
    """Random graph in which every node has `degree` neighbours, without cycles shorter than `girth`."""

    degree: int
    """Number of neighbours of each node."""
    girth: int = 3
    """Length of the shortest allowed cycle."""
    seed: int = 0
    """Seed of the sampled graph."""

    def draw(self, parties: Parties) -> "nx.Graph":
        """Returns the random regular graph."""
        return regular(len(parties), self.degree, self.girth, self.seed)


class EdgeList(GraphFamily, frozen=True, tag="edges"):
    """Any graph, given by its edges between names or indices of parties."""

    edges: tuple[tuple[int | str, int | str], ...]
    """Pairs of parties."""
    directed: bool = False
    """Whether the first party of an edge sends to the second, and not the other way round."""

    @classmethod
    def of(cls, edges: Iterable[Sequence[Any]], directed: bool = False) -> "EdgeList":
        """Returns the description with the edges in canonical order, without duplicates or loops."""
        plain = {tuple(end.item() if isinstance(end, np.generic) else end for end in edge) for edge in edges}
        if any(len(edge) != 2 or not all(isinstance(end, int | str) for end in edge) for edge in plain):
            raise ConfigError("an edge is a pair of parties, by name or by number")
        ordered = {(a, b) if directed or _rank(a) < _rank(b) else (b, a) for a, b in plain if a != b}
        return cls(tuple(sorted(ordered, key=lambda edge: (_rank(edge[0]), _rank(edge[1])))), directed)

    def draw(self, parties: Parties) -> "nx.Graph":
        """Returns the graph. A party that no edge names is isolated."""
        import networkx as nx

        places = {party: place for place, party in enumerate(parties)}
        ends = {end: places.get(str(end)) if isinstance(end, str) else end for edge in self.edges for end in edge}
        strangers = sorted(str(end) for end, place in ends.items() if place not in range(len(parties)))
        if strangers:
            raise ConfigError(f"the graph has nodes that are not parties: {', '.join(strangers)}")
        graph = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(range(len(parties)))
        graph.add_edges_from((ends[a], ends[b]) for a, b in self.edges)
        return graph


Graph: TypeAlias = CompleteGraph | RingGraph | ExponentialGraph | DirectedGraph | RegularGraph | EdgeList
FAMILIES = ("complete", "ring", "exponential", "directed", "regular", "edges")


def graph_from(value: Any) -> Graph:
    """Returns the description of a graph that is given as a networkx graph, a list of pairs, a name, or a table.

    >>> graph_from({"kind": "regular", "degree": 6, "girth": 5})
    RegularGraph(degree=6, girth=5, seed=0)

    Raises ConfigError for anything else.
    """
    if isinstance(value, GraphFamily):
        described: Any = value
        return described  # type: ignore[no-any-return]
    table = {"kind": value} if isinstance(value, str) else value
    if isinstance(table, Mapping):
        try:
            found: Graph = msgspec.convert(table, Graph)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"no such graph: {dict(table)} ({describe_mismatch(error)}); kinds are {', '.join(FAMILIES)}"
            ) from None
        return EdgeList.of(found.edges, found.directed) if isinstance(found, EdgeList) else found
    import networkx as nx

    if isinstance(value, nx.Graph):
        return EdgeList.of(value.edges, value.is_directed())
    try:
        edges = [tuple(edge) for edge in value]
    except TypeError:
        raise ConfigError("a graph is a networkx graph, a list of pairs, a name or a table") from None
    return EdgeList.of(edges)


def is_edge(value: Any) -> bool:
    """Returns whether a value looks like one edge, and not like a graph."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and all(isinstance(end, int | str | np.integer) for end in value)


def _rank(end: int | str) -> tuple[bool, int, str]:
    """Returns the sort key of an end of an edge: indices first, by number, then names."""
    return (False, end, "") if isinstance(end, int) else (True, 0, end)


# --- properties of graphs ------------------------------------------------------------------------------------------


def connection_problems(graph: "nx.Graph") -> list[str]:
    """Returns a problem if some node cannot reach another."""
    import networkx as nx

    if graph.is_directed():
        what, components = "strongly connected", nx.strongly_connected_components(graph)
    else:
        what, components = "connected", nx.connected_components(graph)
    parts = sorted(map(sorted, components), key=len)
    if len(parts) <= 1:
        return []
    smallest = parts[0]
    return [
        f"the graph is not {what}: it falls into {len(parts)} parts, one of them {smallest}; try: "
        "add edges between them"
    ]


def adjacency(graph: "nx.Graph") -> NDArray[np.int64]:
    """Returns the adjacency matrix, in the order of the nodes."""
    import networkx as nx

    table: NDArray[np.int64] = nx.to_numpy_array(graph, nodelist=range(len(graph)), dtype=np.int64, weight=None)
    return table


@lru_cache(maxsize=1024)
def edges(graph: "nx.Graph") -> tuple[tuple[int, int], ...]:
    """Returns the edges as pairs of indices, without loops."""
    return tuple((int(a), int(b)) for a, b in graph.edges if a != b)


def metropolis_weight(degree: int, other: int) -> Fraction:
    """Returns the Metropolis-Hastings weight of two neighbours from their degrees; 1/(δ + 1) if both are δ."""
    return Fraction(1, 1 + max(degree, other))


def metropolis(graph: "nx.Graph") -> dict[tuple[int, int], float]:
    """Returns all Metropolis-Hastings weights by edge.

    They are symmetric. If each node keeps the rest of its weight for itself, they are doubly stochastic.
    """
    weights = {(i, j): metropolis_weight(len(graph[i]), len(graph[j])) for i, j in graph.edges}
    return {edge: float(weight) for (i, j), weight in weights.items() for edge in ((i, j), (j, i))}


def column_stochastic(graph: "nx.DiGraph", self_weights: Sequence[float] | None = None) -> dict[tuple[int, int], float]:
    """Returns p[j, i], the fraction of its mass that i sends to j. The fractions of each node add up to 1.

    Without `self_weights` a node keeps as much as it sends to each receiver. With them, it keeps its `self_weights` and
    divides the rest evenly.
    """
    weights = {}
    for i in graph.nodes:
        out = list(graph.successors(i)) if graph.is_directed() else list(graph[i])
        kept = 1.0 / (len(out) + 1) if self_weights is None else self_weights[i]
        weights[i, i] = kept if out else 1.0
        weights.update({(j, i): (1.0 - kept) / len(out) for j in out})
    return weights
