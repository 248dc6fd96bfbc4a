"""Cost of an exchange between neighbours (paper 004): bytes of the deployed protocols, and by the paper's own rule.

In the paper each node sends its selected indices, in Elias gamma code, to every node two hops away, and sends the
masked indices along with each masked model. In ours, a node sends its selection to its neighbours, and each of them
forwards to the others which of *their own* entries it selected too: δ sets and δ (δ − 1) overlaps per node, however
many nodes are two hops away. Under random subsampling seeds replace sets, and nothing is sent along with masked models.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit import aggregate
from tacit.designs.graphs import regular
from tacit.learn.random_streams import generator
from tacit.protocols import find

Sparsifier: TypeAlias = Literal["topk", "random"]

MODEL = 89_834
"""Parameters of the paper's CIFAR-10 model."""
PER_EPOCH = 21
"""Communication rounds an epoch, on CIFAR-10 (Table 1)."""
ELEMENT = 4
"""Bytes of an entry, in the paper's messages and in ours."""


@dataclass(frozen=True)
class ExchangeCost:
    """Cost of one round of a protocol, in bytes that a node sends on average."""

    degree: int
    entries: int
    parameters: float
    prestep: float
    """Bytes that are not parameters: selections, overlaps, releases and envelopes."""

    @property
    def total(self) -> float:
        """All bytes."""
        return self.parameters + self.prestep

    @property
    def shared(self) -> float:
        """Fraction of its entries that a node sends to a neighbour."""
        return self.parameters / (ELEMENT * self.degree * self.entries)


def measure_exchange(
    protocol: Literal["cesar", "gossip"],
    nodes: int,
    degree: int,
    entries: int,
    *,
    share: float,
    sparsifier: Sparsifier,
    seed: int,
) -> ExchangeCost:
    """Runs one round on a random regular graph and normal vectors, and returns its cost.

    Args:
        protocol: Protocol to run; gossip is the paper's D-PSGD.
        nodes: Number of nodes in the graph.
        degree: Number of neighbours of each node.
        entries: Length of a node's vector.
        share: Fraction of its entries that a node selects.
        sparsifier: Rule that selects entries.
        seed: Seed of the graph, the vectors and the protocol.
    """
    rng = generator(seed, "exchange", nodes, degree)
    vectors = [rng.standard_normal(entries, dtype=np.float32) for _ in range(nodes)]
    # Exposure by the graph is a different question; only bytes are counted here.
    outcome = aggregate(
        vectors,
        find(protocol),
        seed=seed,
        graph=regular(nodes, degree, seed=seed),
        share=share,
        sparsifier=sparsifier,
        bits=8 * ELEMENT,
        allow_leaks=True,
    )
    spent = outcome.traffic.by_class()
    parameters = spent["parameters"]
    return ExchangeCost(degree, entries, parameters / nodes, (sum(spent.values()) - parameters) / nodes)


def second_neighbours(graphs: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns |View_2| of each graph, averaged over its nodes: the number of other neighbours of neighbours."""
    joined = graphs.astype(np.float32)
    two = joined @ joined > 0
    nodes = graphs.shape[1]
    two[:, range(nodes), range(nodes)] = False
    return np.asarray(two.sum(axis=(1, 2)) / nodes)


def gamma_bytes(alpha: float, entries: int) -> float:
    """Returns the average size of a random set in Elias gamma code, if each entry is in it with probability α.

    A gap g takes 2⌊log2 g⌋ + 1 bits, two for each power of two from 2 to g. A gap is at least 2^k if 2^k − 1 entries in
    a row are not selected.
    """
    longer = sum(math.pow(1 - alpha, 2**k - 1) for k in range(1, 40))
    return entries * alpha * (1 + 2 * longer) / 8
