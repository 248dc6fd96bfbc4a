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
state. With `masked=True` a client whose in-neighbours are not all heard waits for the next round.

**Deviations.** Numbers are integers in the ring: a client keeps what it does not send, to the last unit, so that total
mass is conserved exactly. A weight multiplies both x_i(0) and y_i(0). With `private=True` the models agree on Σ x_i /
Σ y_i, as in the paper, and not on the average of the vectors that they started from.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec
import networkx as nx
import numpy as np

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Claim, Config, Protocol, State
from tacit.core.suite import Party, Suite, Update, Vector
from tacit.designs import graphs
from tacit.protocols.pairs import mask_among

MASK = "tacit/pushsum/v1/mask"
ALL = "*"
"""Stands for all senders together, whose masses are masked."""


class Mass(Message, frozen=True):
    """All of x and y that was ever pushed over a link, masked or not."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class MassState(State):
    """What a client has and what is under way. To lose it is to lose mass, so a driver saves it."""

    x: Any = None
    """x_i and, behind it, y_i, in the ring."""
    w: Any = None
    """The model of the last round."""
    sent: dict[Party, Any] = msgspec.field(default_factory=dict)
    """Everything ever pushed, by receiver."""
    taken: dict[Party, Any] = msgspec.field(default_factory=dict)
    """Everything ever taken in, by sender; of the sum of all senders if it is masked."""


class PushSumConfig(Config, frozen=True, kw_only=True):
    """Settings of `pushsum`."""

    graph: Any = "complete"
    """A directed graph, or a list of them that rounds take in turn. An undirected one is used both ways."""
    private: bool = False
    """PPSGD: random y_i(0) and p_ii. Otherwise PSGD, with y_i(0) = 1 and equal parts."""
    y0: Any = "uniform"
    """The distribution of y_i(0) with `private`: a name of `STARTS`, or a name and its parameters."""
    self_weight: tuple[float, float] = (0.1, 0.4)
    """β and α: p_ii is uniform between them with `private`."""
    masked: bool = False
    """In-neighbours mask pairwise, so that a client learns only their sum."""

    def graphs(self, parties: Sequence[Party]) -> tuple[nx.DiGraph, ...]:
        """Returns the graphs that rounds take in turn."""
        several = isinstance(self.graph, list | tuple) and not all(_is_edge(each) for each in self.graph)
        found = (graphs.graph_from(each, parties) for each in (self.graph if several else [self.graph]))
        return tuple(graph if graph.is_directed() else graph.to_directed() for graph in found)

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties)
        low, high = self.self_weight
        if not 0 < low < high < 0.5:
            problems.append(f"self_weight={self.self_weight} must be β, α with 0 < β < α < 1/2")
        name, *parameters = self.y0 if isinstance(self.y0, list | tuple) else (self.y0, *STARTS.get(self.y0, ()))
        if name not in STARTS or len(parameters) != len(STARTS[name]):
            problems.append(f"y0={self.y0!r} must be one of {', '.join(STARTS)}, or one with its parameters: {STARTS}")
        try:
            several = self.graphs(parties)
        except ConfigError as error:
            return [*problems, *error.problems]
        problems += graphs.connection_problems(nx.compose_all(several))
        if self.masked and len(several) > 1:
            problems.append("masked=True needs one graph for all rounds, since sums over changing sets can be compared")
        if self.masked:
            thin = [parties[i] for i in several[0] if several[0].in_degree(i) == 1]
            if thin:
                problems.append(f"{', '.join(thin)} hear only one client each, whose mass nothing can mask; add edges")
        return problems

    def bound(self, parties: Sequence[Party]) -> Self:
        """Returns the settings with the graphs in place."""
        return msgspec.structs.replace(self, graph=self.graphs(parties))


def _is_edge(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(end, int | str) for end in value)


STARTS: dict[str, tuple[float, ...]] = {"uniform": (0.5, 1.5), "exp": (1.0,), "lognormal": (-1.0, 2.0)}
"""The distributions of Table 3 and their parameters, all with mean 1."""


def drawn_start(name: str, parameters: Sequence[float], entropy: Entropy) -> float:
    """Returns y_i(0): U(low, high), Exp(rate), or Lognormal(μ, σ²)."""
    u = entropy.number()
    if name == "uniform":
        return parameters[0] + (parameters[1] - parameters[0]) * u
    if name == "exp":
        return -math.log1p(-u) / parameters[0]
    normal = math.sqrt(-2.0 * math.log1p(-u)) * math.cos(2 * math.pi * entropy.number())
    return math.exp(parameters[0] + math.sqrt(parameters[1]) * normal)


async def client(link: Link, update: Update, config: PushSumConfig, suite: Suite, state: MassState) -> Average:
    """Client i at round t of Algorithm 3 (PSGD), or of Algorithm 4 (PPSGD) with `private`."""
    i, ring = link.parties.index(link.me), suite.ring
    graph = config.graph[(link.round - 1) % len(config.graph)]
    out = [link.parties[j] for j in sorted(graph.successors(i))]
    heard = [link.parties[j] for j in sorted(graph.predecessors(i))]

    if state.x is None:
        state.x = start(config, update, suite)
    else:
        step = (update.vector - state.w) * weight_of(config, update)
        state.x = ring.within(state.x + ring.values(np.append(step, 0.0)))
    p_ii = self_weight(config, suite.entropy, len(out))
    part = ring.within(ring.portion(state.x, (1.0 - p_ii) / max(1, len(out))))
    for party in out:
        state.sent[party] = state.sent.get(party, ring.zeros(len(part))) + part
        state.x = state.x - part
    for party in out:
        mass = covered(link, suite, graph, party, state.sent[party]) if config.masked else state.sent[party]
        await link.send(party, Mass(memoryview(ring.pack(mass))))

    received = await link.gather(Mass, heard, at_least=0)
    contributors = take(link, config, suite, state, heard, received)
    state.w = ring.ratio(state.x)
    return Average(state.w, contributors)


def start(config: PushSumConfig, update: Update, suite: Suite) -> Vector:
    """Returns x_i(0) = w_i(0) and y_i(0), both times the weight."""
    name, *parameters = config.y0 if isinstance(config.y0, list | tuple) else (config.y0, *STARTS[config.y0])
    y = suite.entropy.drawn("y0", lambda entropy: drawn_start(name, parameters, entropy)) if config.private else 1.0
    weight = weight_of(config, update)
    return suite.ring.values(np.append(suite.ring.weighted(update.vector, weight), y * weight))


def weight_of(config: PushSumConfig, update: Update) -> float:
    """Returns what a client counts, as a part of the most anybody may."""
    return update.weight / config.max_weight if config.weighted else 1.0


def self_weight(config: PushSumConfig, entropy: Entropy, out: int) -> float:
    """Returns p_ii: 1 with nobody to send to, random in [β, α] with `private`, else as much as each receiver gets."""
    if not out:
        return 1.0
    if not config.private:
        return 1.0 / (out + 1)
    low, high = config.self_weight
    return low + (high - low) * entropy.factor()


def covered(link: Link, suite: Suite, graph: nx.DiGraph, party: Party, mass: Vector) -> Vector:
    """Returns what we push to a party, masked pairwise with the others that push to it."""
    others = [link.parties[j] for j in graph.predecessors(link.parties.index(party)) if link.parties[j] != link.me]
    masked = mass.copy()
    mask_among(link, suite, masked, others, MASK, link.statement("pushsum mask", party.encode()))
    return masked


def take(
    link: Link,
    config: PushSumConfig,
    suite: Suite,
    state: MassState,
    heard: Sequence[Party],
    received: Mapping[Party, Mass],
) -> tuple[Party, ...]:
    """Adds to x and y what is new in the masses received, and returns whose they are."""
    ring = suite.ring
    pushed: dict[Party, Vector] = {}
    for party, message in received.items():
        try:
            pushed[party] = ring.unpack(message.vector, len(state.x))
        except WireError:
            link.exclude(party, Drop.MALFORMED)
    if config.masked:
        if len(pushed) < len(heard):
            return (link.me,)  # The masks do not cancel. What was pushed is not lost: the next sum has it too.
        pushed = {ALL: sum(pushed.values(), ring.zeros(len(state.x)))}
    for party, mass in pushed.items():
        state.x = state.x + (mass - state.taken.get(party, ring.zeros(len(mass))))
        state.taken[party] = mass
    return (link.me, *(heard if config.masked else pushed))


PUSHSUM = Protocol(
    name="pushsum",
    summary="push-sum on directed graphs, where no mass is ever lost",
    config=PushSumConfig,
    messages=(Mass,),
    party=client,
    state=MassState,
    claims=(Claim("001", "Section 3.3", "random y_i(0) and p_ii keep an onlooker from decoding the local models"),),
)
