"""Averaging with neighbours, without a server: D-PSGD and CBGD, the baseline of papers 001 and 004. Leaks by design.

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | node i | `Model`: I_i and v_i[I_i], unmasked | each neighbour k ∈ View(i) |

Node i then sets v_i ← v_i + Σ_k p_ik (v_k − v_i), at each index over the neighbours that shared it.

**Who learns what.** Each neighbour learns every shared entry of the model. With TopK it also learns which entries are
largest. Onlookers of the sealed links learn who talks to whom, when, and how much.

**Faults.** A neighbour that is not heard by the deadline is left out; its weight stays with the node's own model.

**Papers.** 001 Algorithm 2 (line 3, with P doubly stochastic) and the D-PSGD of 004, Section 2.1. The weights are
those of Metropolis and Hastings; in a regular graph of degree δ they are the 1/(δ + 1) of paper 004.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import msgspec
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Config, Protocol, State
from tacit.core.suite import Party, Suite, Update, Vector
from tacit.designs import graphs
from tacit.vectors import indices, sparsify

Mask = NDArray[np.bool_]
SEED_BYTES = 32


class Model(Message, frozen=True):
    """The entries of a model that a node shares, and which ones they are (a seed, a set, or nothing for all)."""

    selection: bytes
    vector: memoryview
    per_entry: ClassVar[int] = 10
    parameters: ClassVar[tuple[str, ...]] = ("vector",)
    metadata: ClassVar[tuple[str, ...]] = ("selection",)


class GraphConfig(Config, frozen=True, kw_only=True):
    """Settings of an exchange between neighbours of an undirected graph."""

    graph: Any = "complete"
    """A networkx graph, an edge list, a name or a table (see `tacit.designs.graphs`)."""
    share: float = 1.0
    """α: the fraction of the entries that a node selects for sharing."""
    sparsifier: str = "random"
    """How it selects them: "random", or "topk" by magnitude."""

    @property
    def selective(self) -> bool:
        """Whether nodes share some entries and not others."""
        return self.share < 1.0

    @property
    def shows_data(self) -> bool:
        """Whether a selection of entries tells something about the model."""
        return self.share < 1.0 and sparsify.SPARSIFIERS[self.sparsifier].data_dependent

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties) + sparsify.problems(self.share, self.sparsifier)
        try:
            graph = graphs.graph_from(self.graph, parties)
        except ConfigError as error:
            return [*problems, *error.problems]
        if graph.is_directed():
            problems.append("this protocol exchanges models both ways and needs an undirected graph")
        return problems + graphs.connection_problems(graph)

    def bound(self, parties: Sequence[Party]) -> Self:
        """Returns the settings with the graph in place."""
        return msgspec.structs.replace(self, graph=graphs.graph_from(self.graph, parties))

    def summands(self, parties: int) -> int:
        """Returns 1: the weights of a node's neighbours add up to less than 1, so no sum exceeds one vector."""
        del parties
        return 1


class Neighbourhood:
    """One node's place in the graph, and the weights it mixes with."""

    def __init__(self, link: Link, graph: nx.Graph) -> None:
        self.me = link.parties.index(link.me)
        self.graph, self.parties = graph, link.parties
        self.view: list[int] = sorted(graph[self.me])
        self.names: list[Party] = [link.parties[k] for k in self.view]

    def weight(self, i: int, k: int) -> float:
        """Returns the weight p_ik = p_ki of two neighbours."""
        return graphs.metropolis_weight(self.graph, i, k)

    def place(self, party: Party) -> int:
        """Returns the node of that name."""
        return self.parties.index(party)


def select(suite: Suite, config: GraphConfig, vector: Vector) -> tuple[Mask, bytes]:
    """Returns the entries to share, I_i, and how to tell others: the seed they follow from, or the set itself."""
    if config.share == 1.0:
        return np.ones(len(vector), dtype=bool), b""
    seed = suite.entropy.bytes(SEED_BYTES)
    if not config.shows_data:
        return drawn(suite.words, config.sparsifier, seed, len(vector), config.share), seed
    words = suite.words(seed, len(vector))
    mask = sparsify.SPARSIFIERS[config.sparsifier].select(suite.ring.magnitudes(vector), config.share, words)
    return mask, indices.encode_mask(mask)


def selected(suite: Suite, config: GraphConfig, selection: bytes, entries: int) -> Mask:
    """Returns the entries that a neighbour told us it shares."""
    if config.share == 1.0:
        if selection:
            raise WireError("a selection of entries, where all are shared")
        return np.ones(entries, dtype=bool)
    if not config.shows_data:
        if len(selection) != SEED_BYTES:
            raise WireError(f"a seed has {SEED_BYTES} bytes, not {len(selection)}")
        return drawn(suite.words, config.sparsifier, selection, entries, config.share)
    return indices.decode_mask(selection, entries)


@lru_cache(maxsize=128)
def drawn(
    words: Callable[[bytes, int], NDArray[np.uint32]], sparsifier: str, seed: bytes, entries: int, share: float
) -> Mask:
    """Returns the entries that a seed selects. Kept, because a node meets the same neighbour at many receivers."""
    mask = sparsify.SPARSIFIERS[sparsifier].select(np.zeros(entries), share, words(seed, entries))
    mask.flags.writeable = False
    return mask


def mixed(own: Vector, heard: Vector, weights: Vector) -> Vector:
    """Returns own + Σ p_k (v_k − own), from Σ p_k v_k and Σ p_k at each entry."""
    return own * (1.0 - weights) + heard


async def node(link: Link, update: Update, config: GraphConfig, suite: Suite, state: State) -> Average:
    """Node i."""
    del state
    at, ring, entries = Neighbourhood(link, config.graph), suite.ring, len(update.vector)
    mask, selection = select(suite, config, update.vector)
    shared = ring.limited(update.vector, config.clip)[mask]
    for k, party in zip(at.view, at.names, strict=True):
        part = ring.values(shared, at.weight(at.me, k))
        await link.send(party, Model(selection, memoryview(ring.pack(part))))

    total, weights = ring.zeros(entries), np.zeros(entries)
    contributors = [link.me]
    for party, model in (await link.gather(Model, at.names, at_least=0)).items():
        try:
            theirs = selected(suite, config, model.selection, entries)
            part = ring.unpack(model.vector, int(np.count_nonzero(theirs)))
        except WireError:
            link.exclude(party, Drop.MALFORMED)
            continue
        total[theirs] += part
        weights[theirs] += at.weight(at.me, at.place(party))
        contributors.append(party)
    return Average(mixed(update.vector, ring.floats(total), weights), tuple(sorted(contributors, key=at.place)))


GOSSIP = Protocol(
    name="gossip",
    summary="plain averaging with neighbours, who see the model",
    config=GraphConfig,
    messages=(Model,),
    party=node,
    leaks_by_design=True,
    weighted=False,
)
