"""What there is to draw of settings: who exchanges with whom, round by round or step by step."""

from typing import Any

import networkx as nx

from tacit.core.protocol import Protocol, Terms
from tacit.protocols.admm import AdmmTerms
from tacit.protocols.pushsum import PushSumTerms
from tacit.protocols.shapes.neighbourhood import GraphTerms

MOST_PHASES = 64
"""Pictures that are told of; after so many they have all been seen."""


def drawn(protocol: Protocol, terms: Terms) -> dict[str, Any]:
    """Returns what to draw: a kind, and the edges or groups of each phase, by places.

    Phases are rounds, which begin anew after the last, or the iterations within each round.
    """
    if protocol.server is not None:
        return _picture("star", [{}])
    if isinstance(terms, AdmmTerms):
        partitions = terms.pattern.partitions
        used = [partitions[i % len(partitions)] for i in range(min(terms.iterations, MOST_PHASES))]
        phases = [{"groups": [list(map(int, group)) for group in each]} for each in used]
        return _picture("groups", phases, "iteration")
    if isinstance(terms, PushSumTerms):
        return _picture("graph", [{"edges": _edges(each)} for each in terms.graphs[:MOST_PHASES]], directed=True)
    if isinstance(terms, GraphTerms):
        return _picture("graph", [{"edges": _edges(terms.graph)}])
    places = {party: place for place, party in enumerate(terms.parties)}
    edges = [[places[a], places[b]] for a in terms.parties for b in terms.peers(a) if places[a] < places[b]]
    return _picture("graph", [{"edges": edges}])


def _picture(kind: str, phases: list[dict[str, Any]], each: str = "round", directed: bool = False) -> dict[str, Any]:
    return {"kind": kind, "phases": phases, "each": each, "directed": directed}


def _edges(graph: nx.Graph) -> list[list[int]]:
    return [[int(a), int(b)] for a, b in graph.edges if a != b]
