"""Types of values that a graph option accepts, for editors and type checkers."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from tacit.designs.graphs import Graph


class NetworkxGraph(Protocol):
    """Interface of a networkx graph, declared here so that networkx need not be imported."""

    @property
    def nodes(self) -> Any:
        """The nodes."""

    @property
    def edges(self) -> Any:
        """The edges."""


EdgeList: TypeAlias = Iterable[tuple[str | int, str | int] | list[str] | list[int]]
GraphName: TypeAlias = Literal["complete", "ring", "exponential"]
GraphInput: TypeAlias = NetworkxGraph | Graph | EdgeList | GraphName | Mapping[str, Any]
"""A graph: a networkx graph, a list of edges, a name, or a table with the kind and parameters."""
