"""A whole round of secure aggregation with dropouts: its cost for each side, on the wire and in memory.

The server's last step is also compared with Flower's; `masks.py` compares the client's masking, and `shamir.py` the
secret sharing. The cost of one client and of the server is measured separately from whole rounds, without sharing
between them and the others. A process that simulates all parties shares work: it verifies each signature once, draws
each circle once, and so on.
"""

import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import mean, median
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.masks import BITS, CLIP, MOD_RANGE, TARGET_RANGE, TARGETS
from benchmarks.measure import Row, Work, cpu_seconds, side_by_side, single_row, timed_row
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import MissingExtra
from tacit.core.suite import SERVER, Party, Update
from tacit.crypto.masks import add_masks
from tacit.designs import secure_degree
from tacit.runtime.outcome import Outcome
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.faults import sample_dropouts
from tacit.runtime.simulation.simulated_round import Arrival, Event, SimulatedRound
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.fixedpoint import FixedPoint

DROPOUTS, CORRUPTED = 0.1, 0.05
STEPS = 8  # Number of messages and waits of a client up to the one before it releases its shares.
APART = 12
"""Number of clients that share nothing with the others, to measure one client. Some of them drop out."""
# With this seed, hundred and thousand users drop out at each step in similar proportions. So the growth between the two
# is that of the protocol, and not of the random dropouts.
FAULT_SEED = 5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """The setting of one round."""

    users: int
    entries: int
    neighbours: int | str
    threshold: int | None = None
    why: str = ""

    def __str__(self) -> str:
        graph = "complete" if self.neighbours == "all" else f"degree {self.neighbours}{self.why}"
        return f"N = {self.users:,}, {graph}, d = {self.entries:,}"


@dataclass(frozen=True)
class Cost:
    """Cost of one round in seconds of CPU time, and its results."""

    whole: float
    client: float
    server: float
    sent: float
    """Bytes of all classes that an average remaining client sends; the fixed bytes below likewise."""
    fixed_sent: float
    fixed_received: float
    contributors: int
    threshold: int


@dataclass
class MeteredArrival(Arrival):
    """A message that is sealed when it arrives, at the expense of its sender."""

    charge: Callable[[Party], None] = field(kw_only=True)

    @property
    def data(self) -> bytes:
        """The sealed bytes."""
        self.charge(self.post.address.sender)
        data = super().data
        self.charge(self.post.to)
        return data


class MeteredRound(SimulatedRound):
    """Charges CPU time to the party whose message is opened or whose coroutine runs, and sealing to the sender."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.spent = dict.fromkeys(self.participants, 0.0)
        self._turn: tuple[Party, float] = SERVER, time.process_time()

    def run(self, updates: Any) -> None:
        """Runs the round, and records which party is active."""
        self._turn = SERVER, time.process_time()
        super().run(updates)
        self._next(SERVER)

    def _begin(self, party: Party) -> None:
        self._next(party)
        super()._begin(party)

    def _handle(self, party: Party, event: Event) -> None:
        self._next(party)
        if isinstance(event, Arrival):
            event = MeteredArrival(event.post, event.corrupted_at, charge=self._next)
        super()._handle(party, event)

    def _next(self, party: Party) -> None:
        """Charges all time since the last call, so that nothing is lost or counted twice."""
        now, (before, since) = time.process_time(), self._turn
        self.spent[before] += now - since
        self._turn = party, now


def rows(quick: bool = False, say: Say = lambda _: None) -> Iterator[Row]:
    """Yields the costs of rounds, and the server's work compared with Flower's. `say` receives what is being
    measured."""
    small, large, entries, degree, repeats = (10, 30, 1_000, 8, 1) if quick else (100, 1_000, 100_000, 32, 3)
    cases = _cases(small, large, entries, degree)
    run(Case(5, 10, "all"))  # A warm-up, for imports and caches.
    costs: dict[Case, list[Cost]] = {case: [] for case in cases}
    single: dict[Case, Cost] = {}
    for number in range(repeats):
        # Compared cases alternate and are repeated; the others take long enough.
        for case in cases[:3] if number else cases:
            say(f"pass {number + 1} of {repeats}, a round with {case}")
            costs[case].append(run(case)[0])
    for case in cases:
        say(f"one client of a round with {case}")
        single[case] = run(case, apart=True)[0]
        yield from _rows_of(case, costs[case], single[case])
    complete, sparse, wide, *_ = cases
    yield _growth(sparse, wide, costs)

    for many in (wide,) if quick else (wide, Case(10_000, 1_000, degree)):
        say(f"memory of a round with {many}")
        yield _memory(many, None if quick else 1_000 if many == wide else 3_000)

    for length in (entries,) if quick else (entries, 10 * entries):
        for bits in (32, 16):
            say(f"the server's sum and unmask, d = {length:,}, {bits} bits")
            # A sum over a million entries takes Flower many seconds.
            target = None if quick or length == entries else TARGETS[bits]
            yield _unmasking(complete.users, length, bits, 3 if length > entries else 5, target)


def _cases(small: int, large: int, entries: int, degree: int) -> list[Case]:
    """Returns the settings: a complete graph, the same degree at both sizes, and the degree that is proven safe."""
    cases = [Case(small, entries, "all"), Case(small, entries, degree), Case(large, entries, degree)]
    for users in (small, large):
        safe, threshold = secure_degree(users, CORRUPTED, DROPOUTS)
        cases.append(Case(users, entries, safe, threshold, " (secure_degree)"))
    return cases


def make_simulation(case: Case) -> Simulation:
    """Returns the users and the server, before their first round."""
    faults = sample_dropouts(_parties(case.users), DROPOUTS, STEPS, SeededEntropy(FAULT_SEED, "dropouts"))
    chosen = {"neighbours": case.neighbours, "threshold": case.threshold, "bits": BITS, "clip": CLIP}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return Simulation.of("secagg", _parties(case.users), case.entries, seed=0, faults=faults, **chosen)


def run(case: Case, apart: bool = False) -> tuple[Cost, Outcome]:
    """Runs the first round of a federation, and raises AssertionError unless the average is exactly right.

    With `apart`, the server and some clients share nothing with the others; the client's cost is then their mean.
    """
    updates, simulation = _updates(case), make_simulation(case)
    alone_ = _parties(case.users)[:APART] if apart else _parties(case.users)
    if apart:
        for party in (*alone_, SERVER):
            # A copied agreement has terms and a roster of its own.
            own = pickle.loads(pickle.dumps(simulation.agreement))  # noqa: S301 (our own bytes)
            seat = simulation.participants[party]
            assert isinstance(seat, KeyedParticipant)
            simulation.participants[party] = KeyedParticipant(own, seat.identity)
    simulation.round_type = MeteredRound
    start = time.process_time()
    outcome = simulation.average(updates)
    whole = time.process_time() - start
    _check(case, outcome, updates)
    assert isinstance(simulation.last, MeteredRound)
    spent, traffic, finished = simulation.last.spent, outcome.traffic, list(outcome.average)
    terms: Any = simulation.agreement.terms
    cost = Cost(
        whole=whole,
        client=mean(spent[party] for party in finished if party in alone_),
        server=spent[SERVER],
        sent=mean(traffic.sent[party].total() for party in finished),
        fixed_sent=mean(traffic.sent[party]["protocol"] for party in finished),
        fixed_received=mean(traffic.received[party]["protocol"] for party in finished),
        contributors=len(outcome.contributors),
        threshold=terms.threshold,
    )
    return cost, outcome


def _parties(users: int) -> list[Party]:
    return [f"p{place}" for place in range(users)]


def _updates(case: Case) -> dict[Party, Update]:
    """Returns different vectors with almost no memory: windows into one long vector."""
    noise = np.random.default_rng(0).normal(0, 0.1, case.entries + case.users).astype(np.float32)
    return {party: Update(noise[place : place + case.entries], 1.0) for place, party in enumerate(_parties(case.users))}


def _check(case: Case, outcome: Outcome, updates: dict[Party, Update]) -> None:
    """Compares the average, bit for bit, with the mean of the contributors' unmasked vectors."""
    ring = FixedPoint(BITS, CLIP, case.users, case.entries)
    total = ring.zeros()
    for party in outcome.contributors:
        total += ring.encode(updates[party])
    expected = ring.mean(total)
    wrong = [party for party, average in outcome.average.items() if not np.array_equal(average, expected)]
    assert not wrong, f"{case}: the average of {wrong[0]} is not that of the {len(outcome.contributors)} contributors"
    staying = case.users - int(DROPOUTS * case.users)
    assert len(outcome.average) == staying, f"{case}: {len(outcome.average)} clients finished instead of {staying}"


def _rows_of(case: Case, costs: Sequence[Cost], single: Cost) -> Iterator[Row]:
    one = costs[0]  # Sizes are equal in every run, because the seed is fixed.
    rounds = "one round" if len(costs) == 1 else f"median of {len(costs)} rounds"
    note = f"{rounds}; threshold {one.threshold}; {one.contributors:,} of {case.users:,} summed, all in one process"
    who = "mean of the clients that did not drop out"
    apart = "shares nothing with the other parties of the process"
    yield single_row(f"whole round, {case}", median(cost.whole for cost in costs), "s", note)
    yield single_row(f"one client, {case}", single.client * 1e3, "ms", f"mean of up to {APART} clients; each {apart}")
    yield single_row(f"the server, {case}", single.server, "s", apart)
    yield single_row(f"bytes a client sends, {case}", one.sent / case.entries, "B/param", who)
    fixed = f"{one.fixed_sent:,.0f} sent, {one.fixed_received:,.0f} received; {who}"
    yield single_row(f"bytes beside the vectors, {case}", (one.fixed_sent + one.fixed_received) / 1e3, "kB", fixed)


def _growth(sparse: Case, wide: Case, costs: dict[Case, list[Cost]]) -> Row:
    """Returns the growth of the cost relative to the number of users: 1 is linear."""
    before, after = (median(cost.whole for cost in costs[case]) for case in (sparse, wide))
    growth = after / before / (wide.users / sparse.users)
    name = f"growth over linear, N = {sparse.users:,} to {wide.users:,}, degree {sparse.neighbours}"
    return single_row(name, growth, "x", f"whole rounds, {after / before:.3g} times the CPU time")


def _memory(case: Case, most: int | None) -> Row:
    """Returns the peak memory of a process that runs a round."""
    given = f"Case({case.users}, {case.entries}, {case.neighbours!r}, {case.threshold!r})"
    code = (
        "from benchmarks.secagg import Case, run\n"
        f"run({given})\n"
        # getrusage would include the parent process.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    megabytes = int(done.stdout) / 1e3
    vectors = case.users * case.entries * BITS / 8e6
    note = f"resident memory of a process of its own, everything in it; the masked vectors alone are {vectors:,.0f} MB"
    target, met = (None, None) if most is None else (f"below {most:,} MB", megabytes < most)
    return Row(f"memory of a whole round, {case}", megabytes, None, "MB", None, target, met, note)


# --- the server's last step, compared with Flower's ------------------------------------------------------------------


@dataclass(frozen=True)
class Masked:
    """The vectors that a server has, and the seeds that it recovers, after some users dropped out."""

    vectors: list[np.ndarray]
    own: list[bytes]
    pairwise: list[tuple[list[bytes], list[bytes]]]
    """For each user that dropped out, the seeds to add and those to subtract."""

    @classmethod
    def by(cls, users: int, entries: int) -> "Masked":
        """Returns this for a complete graph."""
        gone = int(DROPOUTS * users)
        stay, half = users - gone, (users - gone) // 2
        noise = np.random.default_rng(0).normal(0, 0.1, entries + stay).astype(np.float32)
        seeds = [[(place * users + peer + 1).to_bytes(32) for peer in range(stay)] for place in range(gone + 1)]
        pairwise = [(some[:half], some[half:]) for some in seeds[1:]]
        return cls([noise[place : place + entries] for place in range(stay)], seeds[0], pairwise)


def _unmasking(users: int, entries: int, bits: int, repeats: int, target: float | None) -> Row:
    name = f"the server's sum and unmask, {bits} bits, N = {users} complete, d = {entries:,}"
    masked = Masked.by(users, entries)
    ours = _ours(masked, bits)
    try:
        theirs = _theirs(masked)
    except MissingExtra as missing:
        return single_row(name, cpu_seconds(ours, repeats) * 1e3, "ms", str(missing))
    note = (
        f"{len(masked.pairwise)} dropped out; seeds known beforehand; Flower's server would also expand "
        "the masks between those who dropped out"
    )
    return timed_row(name, side_by_side(ours, theirs, repeats), target, note)


def _ours(masked: Masked, bits: int) -> Work:
    """Returns the work of our server from the bytes of the vectors to their sum."""
    ring = FixedPoint(bits, CLIP, len(masked.own) + len(masked.pairwise), len(masked.vectors[0]))
    plain = [ring.encode(Update(vector, 1.0)) for vector in masked.vectors]
    expected = np.add.reduce(plain, dtype=ring.dtype)
    # All masks are added to one vector, instead of some to each; the sum is the same.
    add_masks(plain[0], masked.own)
    for plus, minus in masked.pairwise:
        add_masks(plain[0], minus, plus)
    received = [bytes(ring.pack(vector)) for vector in plain]

    def work() -> np.ndarray:
        total = ring.zeros()
        for data in received:
            total += ring.unpack(data)
        add_masks(total, (), masked.own)
        for plus, minus in masked.pairwise:
            add_masks(total, plus, minus)
        return total

    assert np.array_equal(work(), expected), "our masks did not come off"
    return work


def _theirs(masked: Masked) -> Work:
    """Returns the work of Flower's `SecAggPlusWorkflow` between the same points, by the functions that it calls."""
    flower = _flower()
    plain = [
        flower.factor_combine(TARGET_RANGE, flower.quantize([vector], CLIP, TARGET_RANGE)) for vector in masked.vectors
    ]
    shapes = flower.get_parameters_shape(plain[0])
    expected = [np.add.reduce(arrays, dtype=np.int64) for arrays in zip(*plain, strict=True)]

    def expand(vector: list[np.ndarray], plus: Sequence[bytes], minus: Sequence[bytes]) -> list[np.ndarray]:
        for combine, seeds in ((flower.parameters_addition, plus), (flower.parameters_subtraction, minus)):
            for seed in seeds:
                vector = combine(vector, flower.pseudo_rand_gen(seed, MOD_RANGE, shapes))
        return vector

    first = expand(plain[0], masked.own, ())
    for plus, minus in masked.pairwise:
        first = expand(first, minus, plus)
    # In their clients, adding the first mask widens every vector to 64 bits.
    wide = [flower.parameters_mod(first, MOD_RANGE), *([part.astype(np.int64) for part in vec] for vec in plain[1:])]
    received = [[flower.ndarray_to_bytes(array) for array in vector] for vector in wide]

    def work() -> list[np.ndarray]:
        total = None
        for parts in received:
            vector = [flower.bytes_to_ndarray(part) for part in parts]
            total = vector if total is None else flower.parameters_addition(total, vector)
        total = expand(flower.parameters_mod(total, MOD_RANGE), (), masked.own)
        for plus, minus in masked.pairwise:
            total = expand(total, plus, minus)
        return flower.parameters_mod(total, MOD_RANGE)

    assert all(map(np.array_equal, work(), expected)), "Flower's masks did not come off"
    return work


def _flower() -> SimpleNamespace:
    if find_spec("flwr") is None:
        raise MissingExtra("flwr", "flower")
    from flwr.common import bytes_to_ndarray, ndarray_to_bytes
    from flwr.common.secure_aggregation import ndarrays_arithmetic
    from flwr.common.secure_aggregation.quantization import quantize
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    return SimpleNamespace(
        **vars(ndarrays_arithmetic),
        quantize=quantize,
        pseudo_rand_gen=pseudo_rand_gen,
        ndarray_to_bytes=ndarray_to_bytes,
        bytes_to_ndarray=bytes_to_ndarray,
    )
