"""Neighbours in a graph, without a server: who hears whom, with what weight, and which entries they share."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, WireError
from tacit.core.link import Link
from tacit.core.protocol import Settings, Terms
from tacit.core.suite import Parties, Party, Suite, Vector
from tacit.designs import graphs
from tacit.designs.graphs import CompleteGraph, Graph, graph_from
from tacit.vectors import indices, sparsify
from tacit.vectors.indices import Mask

SEED_BYTES = 32


class GraphSettings(Settings, frozen=True, kw_only=True):
    """Settings of an exchange between neighbours of an undirected graph."""

    graph: Graph = CompleteGraph()
    """A networkx graph, an edge list, a name or a table (see `tacit.designs.graphs`)."""
    share: float = 1.0
    """α: the fraction of the entries that a node selects for sharing."""
    sparsifier: str = "random"
    """How it selects them: "random", or "topk" by magnitude."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"graph": graph_from}

    def problems(self, parties: Parties) -> list[str]:
        """Returns the reasons why settings cannot work for these parties that can be told at a glance."""
        return super().problems(parties) + sparsify.problems(self.share, self.sparsifier)

    def drawn(self, parties: Parties) -> nx.Graph:
        """Returns the graph; raises ConfigError with every reason why the settings cannot work."""
        problems, graph = self.problems(parties), None
        try:
            graph = self.graph.draw(parties)
            if graph.is_directed():
                problems.append("this protocol exchanges models both ways and needs an undirected graph")
            problems += graphs.connection_problems(graph)
        except ConfigError as error:
            problems += error.problems
        if problems or graph is None:
            raise ConfigError(problems)
        return graph

    def bind(self, parties: Parties) -> "GraphTerms":
        """Returns what the settings mean for these parties; raises ConfigError with every reason why they cannot."""
        return GraphTerms(self, parties, self.drawn(parties))


@dataclass(frozen=True)
class GraphTerms(Terms):
    """What the settings of an exchange between neighbours mean for some parties."""

    settings: GraphSettings
    graph: nx.Graph
    degrees: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", tuple(len(self.graph[i]) for i in range(len(self.parties))))

    @property
    def summands(self) -> int:
        """1: the weights of a node's neighbours add up to less than 1, so no sum exceeds one vector."""
        return 1

    @property
    def selective(self) -> bool:
        """Whether nodes share some entries and not others."""
        return self.settings.share < 1.0

    @property
    def shows_data(self) -> bool:
        """Whether a selection of entries tells something about the model."""
        return self.selective and sparsify.SPARSIFIERS[self.settings.sparsifier].data_dependent

    def peers(self, me: Party) -> Collection[Party]:
        """Returns the neighbours."""
        return self.parties.named(self.view(self.parties.place(me)))

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns who is whose neighbour, unless every node selects entries of its own."""
        return None if self.selective else (graphs.adjacency(self.graph),)

    def view(self, i: int) -> list[int]:
        """Returns View(i), the neighbours of a node, ascending."""
        return sorted(self.graph[i])

    def weight(self, i: int, k: int) -> Fraction:
        """Returns the weight p_ik = p_ki of two neighbours, by Metropolis and Hastings."""
        return graphs.metropolis_weight(self.degrees[i], self.degrees[k])


class Neighbourhood:
    """One node's place in the graph."""

    def __init__(self, link: Link, terms: GraphTerms) -> None:
        self.me, self.parties, self._terms = link.place, link.parties, terms
        self.view = terms.view(self.me)
        self.names: tuple[Party, ...] = link.parties.named(self.view)

    def weight(self, k: int) -> Fraction:
        """Returns the weight of a neighbour."""
        return self._terms.weight(self.me, k)


# --- which entries -------------------------------------------------------------------------------------------------


def own_entries(suite: Suite, terms: GraphTerms, vector: Vector) -> tuple[Mask, bytes]:
    """Returns the entries to share, I_i, and how to tell others: the seed they follow from, or the set itself."""
    settings, entries = terms.settings, len(vector)
    if not terms.selective:
        return np.ones(entries, dtype=bool), b""
    seed = suite.entropy.bytes(SEED_BYTES)
    if not terms.shows_data:
        return drawn_entries(suite.words, settings.sparsifier, seed, entries, settings.share), seed
    sparsifier, words = sparsify.SPARSIFIERS[settings.sparsifier], suite.words(seed, entries)
    mask = sparsifier.select(suite.ring.magnitudes(vector), settings.share, words)
    return mask, indices.encode_mask(mask)


def told_entries(suite: Suite, terms: GraphTerms, selection: bytes, entries: int) -> Mask:
    """Returns the entries that a neighbour told us it shares."""
    settings = terms.settings
    if not terms.selective:
        if selection:
            raise WireError("a selection of entries, where all are shared")
        return np.ones(entries, dtype=bool)
    if terms.shows_data:
        return indices.decode_mask(selection, entries)
    if len(selection) != SEED_BYTES:
        raise WireError(f"a seed has {SEED_BYTES} bytes, not {len(selection)}")
    return drawn_entries(suite.words, settings.sparsifier, selection, entries, settings.share)


@lru_cache(maxsize=128)
def drawn_entries(
    words: Callable[[bytes, int], NDArray[np.uint32]], sparsifier: str, seed: bytes, entries: int, share: float
) -> Mask:
    """Returns the entries that a seed selects. Kept, because a node meets the same neighbour at many receivers."""
    mask = sparsify.SPARSIFIERS[sparsifier].select(np.zeros(entries), share, words(seed, entries))
    mask.flags.writeable = False
    return mask


def counts(masks: Collection[Mask]) -> NDArray[np.unsignedinteger]:
    """Returns how many of some sets each entry is in."""
    first, *others = masks
    total = first.astype(np.min_scalar_type(len(masks)))
    for mask in others:
        total += mask.view(np.uint8)  # a bool would be cast, at several times the cost of the sum
    return total


def add_at(total: Vector, mask: Mask, part: Vector) -> None:
    """Adds, in place, what was received of some entries to what there is of all."""
    if mask.all():
        total += part
    else:
        # What was received lies anywhere in memory, and NumPy adds slowly from there; a copy is in line.
        np.add.at(total, np.flatnonzero(mask), part.copy())


def mixed(at: Neighbourhood, own: Vector, heard: Vector, shared: Mapping[int, Mask]) -> Vector:
    """Returns own + Σ p_k (v_k − own), from Σ p_k v_k and, for each k that was heard, the entries that it shared."""
    kept = np.ones(len(own))
    alike: dict[Fraction, list[Mask]] = {}
    for k, mask in shared.items():
        alike.setdefault(at.weight(k), []).append(mask)
    for weight, masks in sorted(alike.items()):
        kept -= float(weight) * counts(masks)
    kept = kept * own  # not in place, for symbols have another type
    kept += heard
    return kept
