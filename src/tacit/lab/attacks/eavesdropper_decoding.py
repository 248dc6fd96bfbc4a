"""Eavesdropper of paper 001, Section 3: it records every link and decodes the local model w_i* of every client.

Client i has the loss l_i(w) = a_i (w − w_i*)² + b_i of (2) in each coordinate, and takes gradient steps between the
rounds of a deployed protocol. The eavesdropper knows the protocol, the form of the loss and the step sizes.

| algorithm | protocol | paper | unknown | recorded rounds | | --- | --- | --- | --- | --- | | FedAvg | `fedavg` |
Observation 1 | x_i^E, w_i* | 3 | | CBGD | `gossip` | Observation 2 | a_i, w_i* | 3 | | PSGD | `pushsum` | Observation 3
| a_i, w_i* | 3 | | PPSGD | `pushsum`, private | Section 3.3 claims security | y_i(0), a_i, w_i* | 5, or 4 with several
coordinates |

The paper's links are open. Ours are encrypted, so each run is attacked twice: with plaintexts, and with the ciphertexts
on the wire. The decoders are the same; from ciphertexts they compute noise.

**PPSGD.** Client i pushes p_ji x_i and p_ji y_i, whose ratio is x_i/y_i whatever p_ji is. What it keeps is what it had
and received minus what it pushed, so y_i(t) is y_i(0) plus a known number. Given y_i(0), the rest follows as for PSGD.
A third gradient step leaves at most four possible values of y_i(0), and a fourth step leaves one. Masks between clients
that push to the same client cancel in its sum, for an eavesdropper too. Every client pushes the same value to all its
receivers, so n different sums determine what n clients pushed. With fewer sums this eavesdropper recovers nothing,
which does not show that no other could.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, cast

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.core.messages import Address
from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.core.suite import Party, Ring, Update
from tacit.crypto.sealing import NONCE_BYTES, TAG_BYTES
from tacit.designs import graphs
from tacit.lab.attacks.attack_result import Attack, Finding, proportion_finding
from tacit.lab.attacks.eavesdropper_decoders import Numbers, decode_cbgd, decode_fedavg, decode_ppsgd, decode_psgd
from tacit.learn.training.loop import TrainingStep, run_rounds
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

Elements: TypeAlias = NDArray[np.uint64]

TOLERANCE = 1e-9

# The text does not list the links of Fig. 2. It has five clients and eight links (Section 4.3), three of them at client
# 1 (Section 4.4: in three rounds 18 numbers are recorded there, an x and a y on each link).
PAPER_LINKS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 4), (3, 1))
LINKS = nx.DiGraph(PAPER_LINKS)
# Masks need at least two clients that push to the same one.
TWICE_HEARD = nx.DiGraph([(i, (i + hop) % 5) for i in range(5) for hop in (1, 2)])
# Clients 0 and 1 receive the same sum, so there are only four different sums for five clients.
SAME_SUM = nx.DiGraph([(2, 0), (3, 0), (2, 1), (3, 1), (0, 2), (4, 2), (0, 3), (1, 3), (1, 4), (2, 4)])


# --- recorded traffic ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SquareLosses:
    """The clients' losses l_i(w) = a_i (w − w_i*)² + b_i, with one row per client and one column per coordinate."""

    a: Numbers
    w_star: Numbers

    @classmethod
    def of_the_paper(cls) -> Self:
        """Returns the losses of (16), with completed squares."""
        return cls(np.ones((5, 1)), np.array([[2.0], [4.5], [2.0], [2.0], [-0.5]]))

    @classmethod
    def sample(cls, n: int, d: int, rng: np.random.Generator) -> Self:
        """Returns random losses for n clients in d coordinates."""
        return cls(rng.uniform(0.5, 1.5, (n, d)), rng.uniform(-5, 5, (n, d)))

    def gradient(self, w: Numbers) -> Numbers:
        """Returns ∇l_i(w_i) of every client."""
        return 2 * self.a * (w - self.w_star)  # (3)


@dataclass(frozen=True)
class DecodingTarget:
    """A training setting that the eavesdropper attacks."""

    name: str
    protocol: str
    rounds: int
    decode: Callable[["HeardTraffic"], Numbers]
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 1
    """Number E of a client's gradient steps between two rounds."""
    at_own: bool = False
    """Whether gradients are taken at the model that the client sent, and not at the one that it received."""
    coordinates: int | None = None
    """Dimension d of random losses; None for the losses of the paper."""
    eta_1: float = 0.5

    @property
    def eta(self) -> Numbers:
        """Step size η after each round: η_1/t, because the paper states none, or constant as in Algorithm 1."""
        same = self.protocol == "fedavg"
        return np.full(self.rounds, self.eta_1) if same else self.eta_1 / np.arange(1, self.rounds + 1)


@dataclass(frozen=True)
class RecordedTraining:
    """Recorded rounds, and the losses that the eavesdropper must not learn."""

    target: DecodingTarget
    losses: SquareLosses
    transcripts: Sequence[Transcript]


def run_target(
    target: DecodingTarget, seed: int, losses: SquareLosses | None = None, start: Numbers | None = None
) -> RecordedTraining:
    """Runs the rounds of a target. The start w_i(0), and the losses unless given, are drawn with the seed."""
    rng = np.random.default_rng(seed)
    if losses is None:
        losses = SquareLosses.sample(5, target.coordinates, rng) if target.coordinates else SquareLosses.of_the_paper()
    n, d = losses.w_star.shape
    names = tuple(f"p{i}" for i in range(n))
    first = rng.uniform(-5, 5, (n, d)) if start is None else start

    def bring(number: int, before: TrainingStep | None) -> dict[Party, Update]:
        brought = first
        if before is not None and before.outcome is not None:
            eta, average = target.eta[number - 2], before.outcome.average
            averaged = np.array([average[name] for name in names])
            own = np.array([before.updates[name].vector for name in names])
            brought = averaged - eta * losses.gradient(own if target.at_own else averaged)
            for _ in range(target.epochs - 1):
                brought = brought - eta * losses.gradient(brought)
        return {name: Update(brought[i]) for i, name in enumerate(names)}

    simulation = Simulation.of(target.protocol, names, d, seed=seed, record=True, bits=64, **target.options)
    steps = run_rounds(simulation.average, bring, target.rounds)
    return RecordedTraining(
        target, losses, [cast(Transcript, step.outcome.transcript) for step in steps if step.outcome]
    )


@dataclass(frozen=True)
class HeardTraffic:
    """View of an eavesdropper: the recorded traffic and public knowledge."""

    elements: Elements
    """Content of each message at the vector's place, [round, sender, receiver, entry]; the server comes last."""
    target: DecodingTarget
    ring: Ring
    graph: Any
    """Directed graph of senders and receivers, by the places of clients; None with a server."""

    def numbers(self, elements: Elements) -> Numbers:
        """Returns the numbers that ring elements encode."""
        return np.asarray(self.ring.floats(np.ascontiguousarray(elements)))

    @property
    def links(self) -> Numbers:
        """Adjacency matrix of the clients' links."""
        return np.asarray(nx.to_numpy_array(self.graph, nodelist=sorted(self.graph)))

    @property
    def pushed(self) -> Elements:
        """Increments of push-sum by round. Messages carry running totals, so these are differences."""
        return np.diff(self.elements, axis=0, prepend=np.zeros_like(self.elements[:1]))


def listen_to(training: RecordedTraining, *, sealed: bool) -> HeardTraffic:
    """Returns the eavesdropper's view of links, either encrypted as ours or open as the paper's."""
    agreement = training.transcripts[0].agreement
    place = {party: i for i, party in enumerate(agreement.everyone)}
    carrying = {kind.kind() for kind in agreement.protocol.messages if kind.parameters}
    # The entries are followed by a weight and a zero, or by a mass.
    length = agreement.entries + (2 if agreement.protocol.server else 1)
    elements = np.zeros((len(training.transcripts), len(place), len(place), length), np.uint64)
    for t, transcript in enumerate(training.transcripts):
        for address, data in _ciphertexts(transcript) if sealed else _plaintexts(transcript):
            if address.kind in carrying:
                vector = np.frombuffer(data[-8 * length :], dtype="<u8")
                elements[t, place[address.sender], place[address.to], -len(vector) :] = vector
    terms: Any = agreement.terms
    graph = terms.graphs[0] if hasattr(terms, "graphs") else getattr(terms, "graph", None)
    return HeardTraffic(elements, training.target, training.transcripts[0].ring(), graph)


def _plaintexts(transcript: Transcript) -> Iterator[tuple[Address, bytes]]:
    for party in transcript.agreement.everyone:
        for address, message in transcript.open_messages(party):
            if address.sender == party:
                yield address, bytes(getattr(message, "vector", b""))


def _ciphertexts(transcript: Transcript) -> Iterator[tuple[Address, bytes]]:
    # A vector is the last field of its message, and AES-GCM keeps the place of every byte.
    for passed in transcript:
        yield passed.envelope.address, bytes(passed.envelope.sealed[NONCE_BYTES:-TAG_BYTES])


# --- decoding the traffic -----------------------------------------------------------------------------------------


def from_fedavg(heard: HeardTraffic) -> Numbers:
    """Decodes messages of clients and server: vectors, followed by a weight, which is equal for all, and a zero."""
    n = heard.elements.shape[1] - 1
    w = heard.numbers(heard.elements[:, n, 0, :-2]) / n  # The server sends the sum.
    w_i = heard.numbers(heard.elements[:, :n, n, :-2])
    return decode_fedavg(w[:-1, np.newaxis], w_i[1:])


def from_gossip(heard: HeardTraffic) -> Numbers:
    """Decodes messages of neighbours: p_ik w_i, with weights P that follow from the graph."""
    p = np.zeros(heard.links.shape)
    for (i, k), weight in graphs.metropolis(heard.graph).items():
        p[i, k] = weight
    sent = p.sum(axis=1)
    w = heard.numbers(heard.elements[..., 1:]).sum(axis=2) / sent[:, np.newaxis]
    return decode_cbgd(w, p + np.diag(1 - sent), heard.target.eta, at_own=heard.target.at_own)


def from_psgd(heard: HeardTraffic) -> Numbers:
    """Decodes the masses of Algorithm 3."""
    return decode_psgd(heard.numbers(heard.pushed), heard.target.eta)


def from_ppsgd(heard: HeardTraffic) -> Numbers:
    """Decodes the masses of Algorithm 4."""
    return decode_ppsgd(heard.numbers(heard.pushed), heard.target.eta)


def from_masked(heard: HeardTraffic) -> Numbers:
    """Decodes the masked masses of Algorithm 4: all masks cancel in the sum that each client receives."""
    taken = heard.numbers(heard.pushed.sum(axis=1))
    each = np.linalg.pinv(heard.links.T) @ taken
    return decode_ppsgd(heard.links[:, :, np.newaxis] * each[:, :, np.newaxis], heard.target.eta)


BOTH_WAYS: Mapping[str, Any] = {"graph": LINKS.to_undirected()}
PRIVATE: Mapping[str, Any] = {"graph": LINKS, "private": True, "allow_leaks": True}
# The row of Table 3 that the paper finds safest. Where y_i is tiny, w_i and the steps are huge.
WIDE: Mapping[str, Any] = {**PRIVATE, "y0": "lognormal", "clip": 1024.0}
MASKED: Mapping[str, Any] = {"private": True, "masked": True}

TARGETS = (
    DecodingTarget("fedavg, one step between rounds", "fedavg", 3, from_fedavg, coordinates=3, eta_1=0.1),
    DecodingTarget("fedavg, five steps between rounds", "fedavg", 3, from_fedavg, epochs=5, coordinates=3, eta_1=0.1),
    DecodingTarget(
        "gossip, each learning from its own model", "gossip", 3, from_gossip, BOTH_WAYS, at_own=True, coordinates=3
    ),
    DecodingTarget(
        "gossip, each learning from its neighbours' average", "gossip", 3, from_gossip, BOTH_WAYS, coordinates=3
    ),
    DecodingTarget("pushsum", "pushsum", 3, from_psgd, {"graph": LINKS}),
    DecodingTarget("pushsum with private weights", "pushsum", 5, from_ppsgd, PRIVATE),
    DecodingTarget("pushsum with private weights", "pushsum", 4, from_ppsgd, PRIVATE),
    DecodingTarget(
        "pushsum with private weights, few of them large (lognormal)", "pushsum", 5, from_ppsgd, WIDE, eta_1=0.1
    ),
    DecodingTarget(
        "pushsum with private weights, models of three numbers", "pushsum", 4, from_ppsgd, PRIVATE, coordinates=3
    ),
    DecodingTarget("pushsum with private weights, masked", "pushsum", 5, from_masked, {"graph": TWICE_HEARD, **MASKED}),
    DecodingTarget(
        "pushsum with private weights, masked, fewer sums than clients",
        "pushsum",
        5,
        from_masked,
        {"graph": SAME_SUM, **MASKED},
    ),
)
"""On open links all targets except the last are broken. With one coordinate and four rounds, sometimes several roots
fit."""


def find_recovered(training: RecordedTraining, *, sealed: bool) -> NDArray[np.bool_]:
    """Returns the clients whose local model the eavesdropper recovers in all coordinates."""
    heard = listen_to(training, sealed=sealed)
    with np.errstate(all="ignore"):  # Noise may be divided by zero.
        found = training.target.decode(heard)
        return np.asarray(np.all(np.abs(found - training.losses.w_star) < TOLERANCE, axis=1))


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Attacks every target on open links and, in the same rounds, on encrypted ones."""
    runs = 200 if full else 20
    on_open, on_sealed = [], []
    for place, target in enumerate(TARGETS):
        rng = np.random.default_rng([seed, place])
        open_, sealed = np.zeros((2, runs, 5), dtype=bool)
        for number, each in enumerate(rng.integers(2**32, size=runs).tolist()):
            progress(f"listening to {target.name}", (place + number / runs) / len(TARGETS))
            training = run_target(target, each)
            open_[number] = find_recovered(training, sealed=False)
            sealed[number] = find_recovered(training, sealed=True)
        heard = f"{target.name}, {target.rounds} rounds"
        on_open += [count_recovered(f"{heard}, open links", open_, whole) for whole in (True, False)]
        on_sealed.append(count_recovered(f"{heard}, sealed links", sealed, whole=False))
    progress("decode", 1.0)
    return on_open + on_sealed


def count_recovered(heard: str, recovered: NDArray[np.bool_], whole: bool) -> Finding:
    """Returns the success rate of the attack: of whole runs, with all their clients, or of single clients."""
    wins = recovered.all(axis=1) if whole else recovered.ravel()
    whose = "runs in which every client's" if whole else "clients whose"
    measure = f"share of {whose} own model is found to {TOLERANCE:g}"
    return proportion_finding("decode", heard, measure, wins=int(wins.sum()), tries=wins.size)


ATTACK = Attack(
    name="decode",
    summary="an eavesdropper on every link decodes the local models of clients with quadratic losses",
    paper=PAPERS["001"],
    run=run,
)
