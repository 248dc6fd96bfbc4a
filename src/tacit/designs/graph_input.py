"""The types that a graph may be given as, for editors and type checkers."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from tacit.designs.graphs import Graph


class NetworkxGraph(Protocol):
    """A graph of networkx."""

    @property
    def nodes(self) -> Any:
        """Its nodes."""

    @property
    def edges(self) -> Any:
        """Its edges."""


EdgeList: TypeAlias = Iterable[tuple[str | int, str | int] | list[str] | list[int]]
GraphName: TypeAlias = Literal["complete", "ring", "exponential"]
GraphInput: TypeAlias = NetworkxGraph | Graph | EdgeList | GraphName | Mapping[str, Any]
"""A graph: of networkx, its edges, its name, or a table with its kind and parameters."""
