"""Exchange between neighbours in a graph, without a server: settings, weights, and selections of shared entries."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, WireError
from tacit.core.link import Link
from tacit.core.protocol import Settings, State, Terms
from tacit.core.protocol_facts import EntrySelection, ExchangePattern, SelectionMatrix
from tacit.core.suite import Parties, Party, Ring, Suite, Vector
from tacit.designs import graphs
from tacit.designs.graphs import CompleteGraph, Graph, graph_from
from tacit.vectors import index_sets, sparsify
from tacit.vectors.index_sets import Mask

if TYPE_CHECKING:
    import networkx as nx

SEED_BYTES = 32
Bits: TypeAlias = NDArray[np.uint8]
"""A set of entries in memory: one bit per entry, 1/32 of the size of a model in single precision."""


class GraphSettings(Settings, frozen=True, kw_only=True):
    """Settings of an exchange between neighbours in an undirected graph."""

    graph: Graph = CompleteGraph()
    """A networkx graph, an edge list, a name, or a table (see `tacit.designs.graphs`)."""
    share: float = 1.0
    """Fraction α of the entries that a node selects to share."""
    sparsifier: str = "random"
    """How entries are selected: "random", or "topk" for those with the highest score."""
    score: str = "magnitude"
    """Score of an entry: its "magnitude", or the magnitude of its "change" since this node's last average. Before the
    first average both are the same."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"graph": graph_from}
    editor_types: ClassVar[Mapping[str, str]] = {
        "graph": "GraphInput",
        "sparsifier": 'Literal["random", "topk"]',
        "score": 'Literal["magnitude", "change"]',
    }

    def problems(self, parties: Parties) -> list[str]:
        """Returns the problems of these settings for these parties that need no further computation to find."""
        problems = super().problems(parties) + sparsify.problems(self.share, self.sparsifier, self.score)
        if self.noise and not problems and self.share < 1.0 and sparsify.SPARSIFIERS[self.sparsifier].data_dependent:
            problems.append(
                f"noise={self.noise:g} hides entries and not which ones are largest, as {self.sparsifier!r} tells; "
                "try: use "
                f'sparsifier="random"'
            )
        return problems

    def draw_graph(self, parties: Parties) -> "nx.Graph":
        """Returns the graph; raises ConfigError with every problem of the settings."""
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
        """Returns the terms for these parties; raises ConfigError with every problem."""
        return GraphTerms(self, parties, self.draw_graph(parties))


@dataclass(frozen=True)
class GraphTerms(Terms):
    """What the settings of an exchange between neighbours mean for one roster."""

    settings: GraphSettings
    graph: "nx.Graph"
    degrees: tuple[int, ...] = field(init=False, repr=False)
    prescribed: "PrescribedSelections | None" = field(default=None, repr=False, compare=False)
    """Selections that an audit prescribes. None in every real run, where parties select entries themselves."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", tuple(len(self.graph[i]) for i in range(len(self.parties))))

    @property
    def summands(self) -> int:
        """1: the weights of a node's neighbours add up to less than 1, so no sum exceeds one vector."""
        return 1

    @property
    def part(self) -> float:
        """The smallest weight of a pair of neighbours."""
        return float(min(self.weight(i, k) for i, k in self.graph.edges))

    @property
    def releases(self) -> int:
        """The most different weights among one node's neighbours; 1 in a regular graph. Each is encoded separately."""
        return max(len({self.weight(i, k) for k in self.graph[i]}) for i in range(len(self.parties)))

    @property
    def selective(self) -> bool:
        """Whether nodes share only some of the entries."""
        return self.settings.share < 1.0

    @property
    def shows_data(self) -> bool:
        """Whether a selection of entries reveals something about the model."""
        return self.selective and sparsify.SPARSIFIERS[self.settings.sparsifier].data_dependent

    @property
    def selection(self) -> EntrySelection | None:
        """The fraction of shared entries and, if the vector determines them, the function that selects them."""
        if not self.selective:
            return None
        share, sparsifier = self.settings.share, sparsify.SPARSIFIERS[self.settings.sparsifier]
        if not sparsifier.data_dependent:
            return EntrySelection(sparsify.random_probability(share))
        return EntrySelection(share, lambda vector: sparsifier.select(vector, share, np.empty(0, np.uint32)))

    def prescribe(self, rounds: Sequence[SelectionMatrix]) -> "GraphTerms | None":
        """Returns the same terms with prescribed selections; None if nodes share all entries."""
        return replace(self, prescribed=PrescribedSelections(rounds)) if self.selective else None

    @property
    def remembers(self) -> bool:
        """Whether a node must store its model after each average, to compute changes."""
        return self.shows_data and self.settings.score == "change"

    @property
    def period(self) -> int:
        """1; or 2 if selections in the second round depend on the first."""
        return 2 if self.remembers else 1

    def peers(self, me: Party) -> Collection[Party]:
        """Returns the neighbours of a party."""
        return self.parties.names_at(self.view(self.parties.place(me)))

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns the adjacency matrix; None if nodes select entries, because then each node may be special."""
        return None if self.selective else (graphs.adjacency(self.graph),)

    def exchange(self) -> ExchangePattern:
        """Returns the graph, for pictures."""
        return ExchangePattern("graph", (graphs.edges(self.graph),))

    def view(self, i: int) -> list[int]:
        """Returns View(i), the neighbours of node i, ascending."""
        return sorted(self.graph[i])

    def weight(self, i: int, k: int) -> Fraction:
        """Returns the Metropolis-Hastings weight p_ik = p_ki of two neighbours."""
        return graphs.metropolis_weight(self.degrees[i], self.degrees[k])


class PrescribedSelections:
    """Selections that an audit prescribes. A seed identifies the selection of its owner."""

    def __init__(self, rounds: Sequence[SelectionMatrix]) -> None:
        self._rounds = list(rounds)
        self._of_seed: dict[bytes, Bits] = {}

    def select(self, link: Link, seed: bytes) -> Bits:
        """Returns the prescribed selection of a party in a round, and stores it under the party's seed."""
        matrix = self._rounds[(link.round - 1) % len(self._rounds)]
        self._of_seed[seed] = pack_mask(matrix[link.place])
        return self._of_seed[seed]

    def read(self, seed: bytes) -> Bits:
        """Returns the selection of the owner of a seed."""
        if seed not in self._of_seed:
            raise WireError("no selection was made with this seed")
        return self._of_seed[seed]


class GraphState(State, frozen=True, omit_defaults=True):
    """What a node keeps between rounds: nothing, unless it ranks entries by their change."""

    since: memoryview | None = None
    """Its model after its last average, as `Ring.dump_vector` writes it."""

    def problems(self, terms: GraphTerms, ring: Ring, entries: int) -> list[str]:
        """Returns a problem if the stored model has another length than `entries`."""
        del terms
        size = entries * ring.dumped_bytes
        if self.since is None or self.since.nbytes == size:
            return []
        return [f"a model takes {size} bytes, not {self.since.nbytes}"]


class Neighbourhood:
    """A node's index, neighbours and weights in the graph."""

    def __init__(self, link: Link, terms: GraphTerms) -> None:
        self.me, self.parties, self._terms = link.place, link.parties, terms
        self.view = terms.view(self.me)
        self.names: tuple[Party, ...] = link.parties.names_at(self.view)

    def weight(self, k: int) -> Fraction:
        """Returns the weight of neighbour k."""
        return self._terms.weight(self.me, k)


# --- selection of entries ------------------------------------------------------------------------------------------


def select_entries(
    link: Link, suite: Suite, terms: GraphTerms, vector: Vector, state: GraphState | None = None
) -> tuple[Bits, bytes]:
    """Returns the entries to share, I_i, and its encoding for others: the seed it follows from, or the set itself."""
    settings, entries = terms.settings, len(vector)
    if not terms.selective:
        return select_all(entries), b""
    seed = suite.entropy.bytes(SEED_BYTES)
    if terms.prescribed is not None:
        bits = terms.prescribed.select(link, seed)
        return bits, index_sets.encode_mask(unpack_mask(bits, entries)) if terms.shows_data else seed
    if not terms.shows_data:
        return sample_entries(suite.words, settings.sparsifier, seed, entries, settings.share), seed
    sparsifier, words = sparsify.SPARSIFIERS[settings.sparsifier], suite.words(seed, entries)
    since = state.since if state is not None and terms.remembers else None
    mask = sparsifier.select(suite.ring.magnitudes(vector, since), settings.share, words)
    return pack_mask(mask), index_sets.encode_mask(mask)


def read_selection(suite: Suite, terms: GraphTerms, selection: bytes, entries: int) -> Bits:
    """Returns the entries that a neighbour shares, from the encoding that it sent."""
    settings = terms.settings
    if not terms.selective:
        if selection:
            raise WireError("it sent a selection of entries, and this graph shares all entries")
        return select_all(entries)
    if terms.shows_data:
        return pack_mask(index_sets.decode_mask(selection, entries))
    if len(selection) != SEED_BYTES:
        raise WireError(f"a seed has {SEED_BYTES} bytes, not {len(selection)}")
    if terms.prescribed is not None:
        return terms.prescribed.read(selection)
    return sample_entries(suite.words, settings.sparsifier, selection, entries, settings.share)


def take_entries(ring: Ring, vector: Vector, bits: Bits, clip: float) -> Vector:
    """Returns the entries to share, clipped. If all are shared, it returns the vector itself, not a copy."""
    limited = ring.clip_vector(vector, clip)
    return limited if count_entries(bits) == len(vector) else limited[unpack_mask(bits, len(vector))]


def encode_by_weight(ring: Ring, at: Neighbourhood, entries: Vector) -> dict[Fraction, Vector]:
    """Returns the entries as ring elements, for each weight that a neighbour may give them."""
    return {weight: ring.encode_with_noise(entries, weight) for weight in sorted({at.weight(k) for k in at.view})}


async def remember(link: Link, suite: Suite, terms: GraphTerms, average: Vector) -> None:
    """Saves the model after an average, if later selections rank entries by their change since then."""
    if terms.remembers:
        await link.save(GraphState(suite.ring.dump_vector(average)))


@lru_cache(maxsize=128)
def sample_entries(
    words: Callable[[bytes, int], NDArray[np.uint32]], sparsifier: str, seed: bytes, entries: int, share: float
) -> Bits:
    """Returns the entries that a seed selects. It is cached: nodes meet the same neighbour at many receivers."""
    return pack_mask(sparsify.SPARSIFIERS[sparsifier].select(np.empty(entries, np.bool_), share, words(seed, entries)))


@lru_cache(maxsize=4)
def select_all(entries: int) -> Bits:
    """Returns all entries."""
    return pack_mask(np.ones(entries, np.bool_))


def pack_mask(mask: Mask) -> Bits:
    """Returns a mask as a read-only set with one bit per entry."""
    bits = np.packbits(mask)
    bits.flags.writeable = False
    return bits


def unpack_mask(bits: Bits, entries: int) -> Mask:
    """Returns a set of entries as a boolean mask."""
    return np.unpackbits(bits, count=entries).view(np.bool_)


def count_entries(bits: Bits) -> int:
    """Returns the number of entries in a set."""
    return int(np.bitwise_count(bits).sum(dtype=np.int64))


def count_sets(masks: Iterable[Mask], sets: int, entries: int) -> NDArray[np.unsignedinteger]:
    """Returns, for each entry, the number of sets that contain it; there are `sets` of them."""
    total = np.zeros(entries, np.min_scalar_type(sets))
    for mask in masks:
        total += mask.view(np.uint8)  # adding booleans would cast them first, which takes several times as long
    return total


def combine_at(combine: np.ufunc, total: Vector, mask: Mask, part: Vector) -> None:
    """Adds or subtracts `part` in place, at the entries of a set."""
    if len(part) == len(total):
        combine(total, part, out=total)
    else:
        combine.at(total, np.flatnonzero(mask), part)


def add_at(total: Vector, bits: Bits, part: Vector) -> NDArray[np.int32] | None:
    """Adds received entries to a sum over all entries, in place. Returns their positions; None for all."""
    if len(part) == len(total):
        total += part
        return None
    places = np.flatnonzero(unpack_mask(bits, len(total)))
    # Received bytes may be unaligned, and NumPy adds them slowly; the copy is aligned.
    np.add.at(total, places, part.copy())
    return places.astype(np.int32)


def mix_models(ring: Ring, at: Neighbourhood, own: Vector, total: Vector, heard: Mapping[int, Bits]) -> Vector:
    """Returns own + Σ p_k (v_k − own), from Σ p_k v_k and the entries that each received neighbour k shared."""
    alike: dict[Fraction, list[Bits]] = {}
    for k, bits in heard.items():
        alike.setdefault(at.weight(k), []).append(bits)
    entries = len(own)
    times = {
        weight: count_sets((unpack_mask(bits, entries) for bits in sets), len(sets), entries)
        for weight, sets in alike.items()
    }
    return ring.mix(own, total, times)
