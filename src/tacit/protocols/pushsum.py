"""Push-sum on directed graphs, plain and with private weights, without a server (paper 001, PSGD and PPSGD).

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | client i | `Mass`: p_ji x_i and p_ji y_i, on top of all it sent before | each j that it sends to in this round |

Client i then has z_i = Σ p_ij x_j and y_i = Σ p_ij y_j, and its model is w_i = z_i / y_i. What the caller does to the
model before the next round is the gradient step: x_i ← z_i + (vector − w_i).

**Who learns what.** Receivers learn what each sender pushes to them. An onlooker who hears every link can solve for
the local optima, whatever y_i(0) and p_ii are (see the findings); links are sealed against that. With `masked=True`
the in-neighbours of a client mask pairwise, and it learns only the sum that it needs.

**Faults.** No mass is ever lost. Messages carry everything sent over a link so far, and receivers take the difference
to what they took before, so what was lost arrives with the next message; a client that crashes goes on from its saved
state. With `masked=True` a client whose in-neighbours are not all heard waits for the next round. Masses that would
take x or y out of range are left for later, and a mass that was wrong once comes right with the next.

**Deviations.** Numbers are integers in the ring: a client keeps what it does not send, to the last unit, so that total
mass is conserved exactly; parts are rounded towards zero, so that what is left of y_i is never nothing. A client that
took nothing in, when there was last anybody to hear, keeps its mass (p_ii = 1), or y_i would drain away into messages
that nobody takes; not with `masked=True`, where sums would then show the pushes of the others. A weight multiplies both
x_i(0) and y_i(0). With `private=True` the models agree on Σ x_i / Σ y_i, as in the paper, and not on the average of the
vectors that they started from.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.average import Average
from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, Settings, State, Terms
from tacit.core.protocol_facts import (
    Claim,
    CoalitionQuery,
    ExchangePattern,
    PrivacyArgument,
    Promise,
    ProposedSettings,
    ReasonCode,
    Remedy,
)
from tacit.core.suite import ONLOOKER, Parties, Party, Ring, Suite, Update, Vector
from tacit.designs import graphs
from tacit.designs.graphs import CompleteGraph, Graph, graph_from
from tacit.protocols.shapes.pairs import mask_among
from tacit.protocols.shapes.proofs import LEFT, PLAIN_VECTORS, few_neighbours, is_complete, one_sum, private_neighbours
from tacit.vectors.ring_limits import LARGEST, SMALLEST

if TYPE_CHECKING:
    import networkx as nx

MASK = "tacit/pushsum/v1/mask"
ALL = "*"
"""Stands for all senders together, whose masses are masked."""
FARTHEST = 9.0
"""Standard deviations that a normal sample of 53 bits can be away from its mean at most."""


class Mass(Message, frozen=True, tag="Mass"):
    """All of x and y that was ever pushed over a link, masked or not."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class MassState(State, frozen=True):
    """What a client has and what is under way, as ring elements. To lose it is to lose mass."""

    x: memoryview | None = None
    """The mass x_i, followed by y_i; None before the first round."""
    sent: dict[Party, memoryview] = msgspec.field(default_factory=dict)
    """Everything ever pushed, by receiver, once for all receivers that were pushed the same."""
    alike: dict[Party, Party] = msgspec.field(default_factory=dict)
    """Receivers that were always pushed the same as one listed in `sent`, by name: on one graph, all but the first."""
    taken: dict[Party, memoryview] = msgspec.field(default_factory=dict)
    """Everything ever taken in, by sender; of the sum of all senders if it is masked."""
    fed: bool = True
    """Whether anything was taken in when there was last anybody to hear."""

    @property
    def receivers(self) -> tuple[Party, ...]:
        """Whom anything was ever pushed to."""
        return (*self.sent, *self.alike)

    def sent_to(self, party: Party) -> memoryview:
        """Returns everything that was ever pushed to a receiver."""
        return self.sent[self.alike.get(party, party)]

    def problems(self, terms: "PushSumTerms", ring: Ring, entries: int) -> list[str]:
        """Returns why a round on these terms cannot go on from it: masses of other lengths, or of strangers."""
        senders = (ALL,) if terms.settings.masked else terms.parties
        wrong = [
            f"it has masses of {party!r}, who is nobody here"
            for parties, known in (
                (self.receivers, terms.parties),
                (self.alike.values(), self.sent),
                (self.taken, senders),
            )
            for party in parties
            if party not in known
        ]
        masses = [*([] if self.x is None else [self.x]), *self.sent.values(), *self.taken.values()]
        size = (entries + 1) * ring.element_bytes
        if sizes := sorted({mass.nbytes for mass in masses} - {size}):
            wrong.append(f"a mass takes {size} bytes, not {sizes[0]}")
        return wrong


# --- y_i(0) --------------------------------------------------------------------------------------------------------


class StartDistribution(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """A distribution of y_i(0) from Table 3. All have mean 1 unless told otherwise."""

    def problems(self) -> list[str]:
        """Returns why nothing can be drawn from it that a mass can be divided by."""
        raise NotImplementedError

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        raise NotImplementedError


class UniformStart(StartDistribution, frozen=True, tag="uniform"):
    """U(low, high)."""

    low: float = 0.5
    high: float = 1.5

    def problems(self) -> list[str]:
        """Returns why it is no interval of masses."""
        return [] if 0 <= self.low < self.high <= LARGEST else [f"y0={self} must have 0 ≤ low < high ≤ {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        return self.low + (self.high - self.low) * entropy.unit()


class ExponentialStart(StartDistribution, frozen=True, tag="exp"):
    """Exp(rate)."""

    rate: float = 1.0

    def problems(self) -> list[str]:
        """Returns why it has no such rate."""
        within = SMALLEST <= self.rate <= LARGEST
        return [] if within else [f"y0={self} must have a rate between {SMALLEST:g} and {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        return -math.log1p(-entropy.unit()) / self.rate


class LognormalStart(StartDistribution, frozen=True, tag="lognormal"):
    """Lognormal(μ, σ²)."""

    mean: float = -1.0
    variance: float = 2.0

    def problems(self) -> list[str]:
        """Returns why its samples could be too large or too small for any ring."""
        if self.variance > 0 and abs(self.mean) + FARTHEST * math.sqrt(self.variance) <= math.log(LARGEST):
            return []
        return [f"y0={self} must have a variance above 0, and samples between {SMALLEST:g} and {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample, by Box and Muller."""
        radius, angle = math.sqrt(-2.0 * math.log1p(-entropy.unit())), 2 * math.pi * entropy.unit()
        return math.exp(self.mean + math.sqrt(self.variance) * radius * math.cos(angle))


StartKind: TypeAlias = UniformStart | ExponentialStart | LognormalStart


def _start_from(value: Any) -> Any:
    """Returns a distribution from its name, or its name and parameters, or a table."""
    named = [value] if isinstance(value, str) else value
    if isinstance(named, list | tuple):
        kinds: dict[Any, Any] = {"uniform": UniformStart, "exp": ExponentialStart, "lognormal": LognormalStart}
        name, *parameters = named or [None]
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None or len(parameters) not in (0, len(kind.__struct_fields__)):
            each = ", ".join(f"{name}{fields.__struct_fields__}" for name, fields in kinds.items())
            raise ConfigError(f"y0={value!r} must be one of {', '.join(kinds)}, or one with its parameters: {each}")
        return kind(*parameters)
    return value


# --- settings ------------------------------------------------------------------------------------------------------


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

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"graph": _graphs_from, "y0": _start_from}
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

    def exchange(self) -> ExchangePattern:
        """Returns the graph of each round."""
        return ExchangePattern("graph", tuple(map(graphs.edges, self.graphs)), directed=True)

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields what is proved of masked sums of in-neighbours, and of plain masses."""
        settings, left = self.settings, len(self.parties) - query.size
        if settings.private or settings.weighted:
            return
        if not settings.masked:
            if len(self.graphs) == 1:
                yield PLAIN_VECTORS
            return
        sends = graphs.adjacency(self.graphs[0])
        if is_complete(sends) and left >= LEFT:
            yield one_sum(left)
        # With other degrees models are not what was pushed last, and a second round shows sums from further away.
        regular = len({*sends.sum(axis=0).tolist(), *sends.sum(axis=1).tolist()}) == 1
        if not regular and query.rounds > 1:
            return
        weights = 1 + sends.sum(axis=1)
        ratio = float(weights.max() / weights.min())
        if (found := private_neighbours(self, query, sends.T, ratio)) is not None:
            yield found
        if (found := few_neighbours(self, query, sends.T)) is not None:
            yield found


# --- client i ------------------------------------------------------------------------------------------------------


async def client(link: Link, update: Update, terms: PushSumTerms, suite: Suite, state: MassState) -> Average:
    """Client i at round t of Algorithm 3 (PSGD), or of Algorithm 4 (PPSGD) with `private`."""
    i, ring = link.place, suite.ring
    graph = terms.graphs[(link.round - 1) % len(terms.graphs)]
    out = link.parties.names_at(sorted(graph.successors(i)))
    heard = link.parties.names_at(sorted(graph.predecessors(i)))

    if state.x is None:
        x = start_mass(terms, update, suite)
    else:
        x = apply_step(ring, unpack_elements(ring, state.x), update, weight_of(terms, update))
    # Masked sums need everybody's push: if all in-neighbours of a client but one kept theirs, it would see that one's.
    pushes = state.fed or terms.settings.masked
    p_ii = self_weight(terms, suite.entropy, len(out)) if pushes else Fraction(1)
    part = ring.within(ring.portion(x, (1 - p_ii) / max(1, len(out))))
    for _ in out:
        x -= part
    fed = state.fed and not heard  # until something is taken in below
    state = await link.save(
        record_push(ring, msgspec.structs.replace(state, x=pack_elements(ring, x), fed=fed), out, part)
    )
    del part  # it is as long as the model, and nobody needs it any more
    for party in out:
        mass = state.sent_to(party)
        if terms.settings.masked:
            mass = pack_elements(ring, mask_push(link, suite, graph, party, unpack_elements(ring, mass)))
        await link.send(party, Mass(mass))
        del mass  # It is the courier's now, and gone once it has arrived.

    x, state, contributors = take_masses(
        link, terms, suite, state, x, heard, await link.gather(Mass, heard, at_least=0)
    )
    w = ring.ratio(x)  # Before anything is kept: masses that add up to nothing are not taken, and may come right later.
    await link.save(state)
    return Average(w, contributors)


def pack_elements(ring: Ring, vector: Vector) -> memoryview:
    """Returns ring elements as they are kept."""
    return memoryview(ring.pack(vector))


def unpack_elements(ring: Ring, kept: memoryview) -> Vector:
    """Returns ring elements that were kept."""
    return ring.unpack(kept, kept.nbytes // ring.element_bytes)


def start_mass(terms: PushSumTerms, update: Update, suite: Suite) -> Vector:
    """Returns x_i(0) = w_i(0) and y_i(0), both times the weight."""
    settings = terms.settings
    y = suite.entropy.secret_number("y0", settings.y0.draw) if settings.private else 1.0
    weight = weight_of(terms, update)
    x = suite.ring.encode_with_noise(suite.ring.apply_weight(update.vector, weight))
    return np.append(x, suite.ring.values(np.array([y * weight])))


def apply_step(ring: Ring, x: Vector, update: Update, weight: float) -> Vector:
    """Returns x_i after what the caller did to the model since the last round, times the weight; y_i is as it was."""
    try:
        stepped = ring.step(x, update.vector, weight)
    except WireError:  # y_i(0) was rounded to nothing and nothing was taken in yet: there is no model to step from.
        stepped = ring.zeros(len(x))
    stepped += x
    return ring.within(stepped)


def weight_of(terms: PushSumTerms, update: Update) -> float:
    """Returns what a client counts, as a part of the most anybody may."""
    return update.weight / terms.settings.max_weight if terms.settings.weighted else 1.0


def self_weight(terms: PushSumTerms, entropy: Entropy, out: int) -> Fraction:
    """Returns p_ii: 1 with nobody to send to, random in [β, α] with `private`, else as much as each receiver gets."""
    if not out:
        return Fraction(1)
    if not terms.settings.private:
        return Fraction(1, out + 1)
    low, high = terms.settings.self_weight
    return Fraction(low + (high - low) * entropy.secret_factor())


def record_push(ring: Ring, state: MassState, out: Collection[Party], part: Vector) -> MassState:
    """Returns the state once a part was pushed to some, on top of all before. What several got alike is there once."""
    sent: dict[Party, memoryview] = {}
    alike: dict[Party, Party] = {}
    first: dict[tuple[Party | None, bool], Party] = {}
    for party in dict.fromkeys((*state.receivers, *out)):
        like = state.alike.get(party, party)
        before = state.sent.get(like)
        same = first.setdefault((None if before is None else like, party in out), party)
        if same != party:
            alike[party] = same
        elif before is None:
            sent[party] = pack_elements(ring, part)
        else:
            sent[party] = pack_elements(ring, unpack_elements(ring, before) + part) if party in out else before
    return msgspec.structs.replace(state, sent=sent, alike=alike)


def mask_push(link: Link, suite: Suite, graph: "nx.DiGraph", party: Party, mass: Vector) -> Vector:
    """Returns what we push to a party, masked pairwise with the others that push to it."""
    pushing = link.parties.names_at(sorted(graph.predecessors(link.parties.place(party))))
    masked, others = mass.copy(), [other for other in pushing if other != link.me]
    mask_among(link, suite, masked, others, MASK, link.statement("pushsum mask", party.encode()))
    return masked


def take_masses(
    link: Link,
    terms: PushSumTerms,
    suite: Suite,
    state: MassState,
    x: Vector,
    heard: Sequence[Party],
    received: dict[Party, Mass],
) -> tuple[Vector, MassState, tuple[Party, ...]]:
    """Adds to x and y what is new in the masses received.

    Args:
        link, terms, suite: Those of the round.
        state: The state before.
        x: The mass x_i, followed by y_i.
        heard: The in-neighbours of this round.
        received: The masses that came from them. They are consumed.

    Returns:
        The new x and y, the state after that, and the contributors to them.
    """
    ring, masked = suite.ring, terms.settings.masked
    masses: dict[Party, Vector] = {ALL: ring.zeros(len(x))} if masked else {}
    there = 0
    for party in tuple(received):
        try:
            mass = ring.unpack(received.pop(party).vector, len(x))  # which nobody else holds then
        except WireError:
            link.exclude(party, Drop.MALFORMED)
            continue
        there += 1
        if masked:
            masses[ALL] += mass
        else:
            masses[party] = mass
    if masked and there < len(heard):
        # The masks do not cancel. What was pushed is not lost: the next sum has it too.
        return x, state, (link.me,)
    taken = {}
    for party, mass in masses.items():
        more = mass.copy() if party not in state.taken else mass - unpack_elements(ring, state.taken[party])
        more += x
        try:
            x = ring.within(more)
        except ConfigError:
            if party == ALL:
                raise
            continue  # It is not lost either, and may fit in later: when we have pushed some, or when it comes right.
        taken[party] = pack_elements(ring, mass)
    after = msgspec.structs.replace(
        state, x=pack_elements(ring, x), taken=state.taken | taken, fed=state.fed or bool(taken)
    )
    return x, after, (link.me, *(heard if masked else taken))


# --- what pushsum says about itself --------------------------------------------------------------------------------

LARGE = 64
"""All-to-all masks are proposed to no more clients than these."""


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields masks, in a sparse graph if nobody colludes."""
    if colluding == 1 and parties >= 5:
        yield ProposedSettings({"masked": True, "graph": "exponential"}, ReasonCode.EXPONENTIAL_GRAPH)
    elif parties <= LARGE:
        yield ProposedSettings({"masked": True, "graph": "complete"}, ReasonCode.COMPLETE_GRAPH)


def _section_3_3(terms: PushSumTerms, coalition: Collection[Party], rounds: int) -> Promise | None:
    del rounds
    if not terms.settings.private or set(coalition) != {ONLOOKER}:
        return None
    return Promise(False, "private=true, and an onlooker")


STATEMENT = "random y_i(0) and p_ii keep an onlooker from decoding the local models"
SECTION_3_3 = Claim("001", "Section 3.3", STATEMENT, _section_3_3)
PUSHSUM = Protocol(
    name="pushsum",
    summary="push-sum on directed graphs, where no mass is ever lost",
    settings=PushSumSettings,
    messages=(Mass,),
    party=client,
    state=MassState,
    claims=(SECTION_3_3,),
    propose=propose,
    example_options={"masked": True},
)
