"""The demo: parties learn to read digits together, first with plain averaging, then with secure aggregation.

In each round every party trains on its own samples from the shared model, and the results are averaged. The two runs
use the same initial model, samples and batches, so all differences at the end are due to the protocol. In the middle of
one round a party crashes, and the others continue without it. It did not receive the result of that round. So with
secure aggregation it only receives in the next round, and takes part in the one after. A plain server would take it
back at once; there it pauses for a round, so that both runs average the same vectors. All results are computed: what
the server can read is found by decrypting its messages with its own keys, and what three protocols leak is found by the
audit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.questions import Question
from tacit.auditing.render.verdicts import render_verdict
from tacit.auditing.summary import summarize_reports
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, WireError
from tacit.core.progress import Progress, ignore_progress
from tacit.core.suite import SERVER, Parties, Party, Update, Vector
from tacit.lab.comparison import write_variant
from tacit.learn.data.datasets import Samples, load
from tacit.learn.data.splits import dirichlet
from tacit.learn.models.softmax import ModelArrays, Softmax
from tacit.learn.training.loop import TrainingStep, run_rounds
from tacit.protocols import find
from tacit.runtime.outcome import Outcome
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.fixedpoint import FixedPoint
from tacit.vectors.layout import Layout

PLAIN, BLIND = "fedavg", "secagg"
PROTOCOLS = (PLAIN, BLIND)

# Number of messages and waits of a party before it sends its vector.
BEFORE_THE_VECTOR = {PLAIN: 2, BLIND: 5}

SKEW = 0.3  # Dirichlet parameter: so uneven that most parties have very few samples of some digits.
TESTED = 360  # Samples that belong to no party.
EPOCHS, RATE, BATCH = 2, 0.5, 16
SHOWN = 4  # Entries of a model that are shown.

FEW, FEWER = 12, 9
"""With at most `FEW` parties, the final audit has as many parties as the demo. With more it takes long, and has
fewer."""

READ = 0.99
"""Correlation with the true model from which on the server counts as able to read it."""


@dataclass(frozen=True)
class DemoSettings:
    """Settings of the demo."""

    parties: int = 9
    rounds: int = 20
    seed: int = 0
    crash: tuple[Party, ...] = ()
    """Parties that crash in the middle of the middle round. Empty for one party, if the threshold allows it."""

    @property
    def names(self) -> tuple[Party, ...]:
        """The parties: p0, p1, …"""
        return tuple(f"p{place}" for place in range(self.parties))

    @property
    def crash_round(self) -> int:
        """The round in which parties crash."""
        return (self.rounds + 1) // 2

    @property
    def steps(self) -> int:
        """Number of steps of `run`. Each is reported when it begins."""
        return len(PROTOCOLS) * self.rounds + self.parties + len(self.leaks())

    def leaks(self) -> tuple[Question, ...]:
        """Returns the questions to the audit at the end: the same number of parties, three protocols, one round."""
        count = self.parties if self.parties <= FEW else FEWER
        return (
            Question("fedavg", count),
            Question("admm", count, {"group_size": min(3, count), "iterations": 5}),
            Question("secagg", count),
        )

    def crashing(self) -> tuple[Party, ...]:
        """Returns the parties that crash; raises ConfigError with all problems of the settings."""
        problems = []
        most = len(load_digits().y) - TESTED
        if self.parties < 2:
            problems.append(f"an average needs at least 2 parties, not {self.parties}; try: use --parties 9")
        if self.parties > most:
            problems.append(f"{self.parties} parties cannot share {most} samples; try: use at most --parties {most}")
        if self.rounds < 1:
            problems.append(f"there must be at least 1 round, not {self.rounds}; try: use --rounds 20")
        if problems:
            raise ConfigError(problems)
        needed = find(BLIND).settings().bind(Parties(self.names)).fewest_present
        spare = self.parties - needed
        if not self.crash:
            return self.names[self.parties // 3 :][: min(1, spare)]
        crash = tuple(dict.fromkeys(self.crash))
        problems += [
            f"there is no {party!r} to crash; the parties are p0 to {self.names[-1]}"
            for party in crash
            if party not in self.names
        ]
        if len(crash) > spare:
            problems.append(
                f"{len(crash)} of {self.parties} parties cannot crash at once, for {BLIND} needs {needed} to the end; "
                "try: "
                f"crash at most {spare}, or use more --parties"
            )
        if problems:
            raise ConfigError(problems)
        return crash


@dataclass(frozen=True)
class DemoRun:
    """Results of one protocol."""

    protocol: str
    accuracy: float
    """Share of the test samples that the final model reads correctly."""
    rounds: int
    rounds_with_dropout: int
    bytes_per_party_per_round: int
    """Bytes sent and received: the mean over all parties and finished rounds."""
    models_sent: int
    models_read: int
    """Number of sent models that the server could read."""
    server_saw: str
    """A sentence about that number."""
    correlation: float
    """Correlation between what the server saw of one party and that party's true model, over all rounds."""
    accuracies: list[float]
    """Accuracy after each round."""


@dataclass(frozen=True)
class DemoDropout:
    """A round that ended without some parties."""

    round: int
    dropped: dict[Party, str]
    averaged: int
    """Number of vectors in the average."""
    back: int | None
    """The round from which on all of these parties were in the average again; None if there is none."""


@dataclass(frozen=True)
class Glimpse:
    """A few entries of one party's model in one round: true, and as decoded by the server."""

    party: Party
    round: int
    true: list[float]
    seen: dict[str, list[float]]


@dataclass(frozen=True)
class DemoLeak:
    """Result of the audit of one protocol, for each single party and the server."""

    averaging: str
    """The protocol, with its settings."""
    exposed: bool
    verdict: str
    command: str
    """The complete command that repeats the audit."""


@dataclass(frozen=True)
class DemoReport:
    """All results of the demo."""

    parties: int
    seed: int
    runs: dict[str, DemoRun]
    alone: dict[Party, float]
    """Test accuracy of each party that trains equally long, but alone."""
    largest_difference: float
    """Largest difference between entries of the final models of the two runs."""
    identical: bool
    """Whether the final models are equal bit for bit."""
    dropouts: list[DemoDropout]
    glimpse: Glimpse
    audited: int
    """Number of parties in the audited settings."""
    leaks: list[DemoLeak]


@dataclass(frozen=True)
class DemoData:
    """Training samples of each party, and test samples."""

    seed: int
    softmax: Softmax
    samples: dict[Party, Samples]
    test: Samples

    @classmethod
    def of(cls, names: Sequence[Party], seed: int) -> "DemoData":
        """Distributes the digits unevenly."""
        data, rng = load_digits(), make_generator(seed, "deal")
        order = rng.permutation(len(data.y))
        test, rest = order[:TESTED], order[TESTED:]
        parts = dirichlet(data.y[rest], len(names), SKEW, rng)
        samples = {
            name: Samples(data.x[rest[part]], data.y[rest[part]]) for name, part in zip(names, parts, strict=True)
        }
        softmax = Softmax(classes=len(np.unique(data.y)), features=data.x.shape[1])
        return cls(seed, softmax, samples, Samples(data.x[test], data.y[test]))

    def train(self, party: Party, model: ModelArrays, round_: int) -> ModelArrays:
        """Returns the model after one party's training in one round. The result depends only on the arguments."""
        rng = make_generator(self.seed, "shuffle", party, round_)
        x, y = self.samples[party]
        return self.softmax.train_locally(model, x, y, epochs=EPOCHS, rate=RATE, batch=BATCH, rng=rng)

    def accuracy(self, model: ModelArrays) -> float:
        """Returns the share of test samples that a model reads correctly."""
        return self.softmax.accuracy(model, self.test.x, self.test.y)


@dataclass
class DemoRecord:
    """Measurements of one run."""

    accuracies: list[float] = field(default_factory=list)
    dropped: list[dict[Party, str]] = field(default_factory=list)
    contributors: list[tuple[Party, ...]] = field(default_factory=list)
    traffic: list[int] = field(default_factory=list)
    """Bytes of each party in each round that it finished."""
    true: list[dict[Party, Vector]] = field(default_factory=list)
    seen: list[dict[Party, Vector]] = field(default_factory=list)
    """Vectors that the server decoded, by round."""

    def note(self, step: TrainingStep) -> None:
        """Records the result of a round."""
        outcome = step.outcome
        if outcome is None:
            raise ConfigError(f"too few parties were left in round {step.number}; try: let fewer crash")
        self.true.append({party: update.vector for party, update in step.updates.items()})
        self.seen.append(read_server_messages(outcome))
        self.dropped.append({party: reason.value for party, reason in outcome.dropped.items()})
        self.contributors.append(outcome.contributors)
        self.traffic += [outcome.traffic.of(party) for party in outcome.average]

    def dropouts(self) -> list[DemoDropout]:
        """Returns the rounds that ended without some parties."""
        found = []
        for place, dropped in enumerate(self.dropped):
            if dropped:
                later = range(place + 1, len(self.contributors))
                back = next((i + 1 for i in later if dropped.keys() <= set(self.contributors[i])), None)
                found.append(DemoDropout(place + 1, dropped, len(self.contributors[place]), back))
        return found


def load_digits() -> Samples:
    """Returns all bundled images of digits. The demo itself chooses the test samples."""
    return load("digits", share=1).flat()


def run_demo(settings: DemoSettings, progress: Progress = ignore_progress) -> DemoReport:
    """Runs the demo, and reports every step when it begins."""
    steps = iter(range(settings.steps))

    def tick(doing: str) -> None:
        progress(doing, next(steps), settings.steps)

    crashing = settings.crashing()
    classroom = DemoData.of(settings.names, settings.seed)
    shown = next(party for party in settings.names if party not in crashing)
    runs, models, diaries = {}, {}, {}
    for protocol in PROTOCOLS:
        model, diary = train_together(protocol, classroom, settings, crashing, tick)
        runs[protocol] = evaluate_run(protocol, diary, shown)
        models[protocol], diaries[protocol] = Layout.of(model).flatten(model), diary
    alone = {party: train_alone(party, classroom, settings.rounds, tick) for party in settings.names}
    plain, blind = models[PLAIN], models[BLIND]
    return DemoReport(
        parties=settings.parties,
        seed=settings.seed,
        runs=runs,
        alone=alone,
        largest_difference=float(np.abs(plain - blind).max()),
        identical=plain.tobytes() == blind.tobytes(),
        dropouts=diaries[BLIND].dropouts(),
        glimpse=take_glimpse(shown, diaries, Layout.of(classroom.softmax.initial())),
        audited=settings.leaks()[0].parties,
        leaks=[audit_leak(asked, tick) for asked in settings.leaks()],
    )


def audit_leak(asked: Question, tick: Callable[[str], None]) -> DemoLeak:
    """Returns the result of an audit."""
    tick(f"audit of {asked.protocol}")
    summary = summarize_reports(list(asked.answers()), asked)
    name, verdict = write_variant(asked.protocol, asked.options), render_verdict(summary)
    return DemoLeak(name, summary.exposed, verdict, asked.command)


def train_together(
    protocol: str, classroom: DemoData, settings: DemoSettings, crashing: Sequence[Party], tick: Callable[[str], None]
) -> tuple[ModelArrays, DemoRecord]:
    """Trains with averaging by a protocol; returns the last model and the measurements."""
    model = classroom.softmax.initial()
    layout, diary = Layout.of(model), DemoRecord()
    effect, round_ = BEFORE_THE_VECTOR[protocol], settings.crash_round
    faults = [Fault(action="crash", party=party, round=round_, step=effect) for party in crashing]
    if protocol == PLAIN:
        faults += [Fault(action="silence", party=party, round=round_ + 1) for party in crashing]
    weights = {party: float(len(samples.y)) for party, samples in classroom.samples.items()}
    simulation = Simulation.of(
        protocol,
        settings.names,
        layout.size,
        seed=settings.seed,
        record=True,
        # A public bound: the number of all samples. The largest weight would reveal a party's own number.
        max_weight=sum(weights.values()),
        faults=faults,
    )

    def bring(number: int, before: TrainingStep | None) -> dict[Party, Update]:
        tick(f"{protocol}, round {number} of {settings.rounds}")
        shared = find_average(layout, before) or model
        return {
            party: Update(layout.flatten(classroom.train(party, shared, number)), weights[party])
            for party in settings.names
        }

    for step in run_rounds(simulation.average, bring, settings.rounds):
        model = find_average(layout, step) or model
        diary.note(step)
        diary.accuracies.append(classroom.accuracy(model))
    return model, diary


def find_average(layout: Layout, step: TrainingStep | None) -> ModelArrays | None:
    """Returns the average model of a round; None if the round has none."""
    if step is None or step.outcome is None:
        return None
    model: ModelArrays = layout.restore(next(iter(step.outcome.average.values())))
    return model


def train_alone(party: Party, classroom: DemoData, rounds: int, tick: Callable[[str], None]) -> float:
    """Returns the test accuracy of a party that trains equally long but averages with nobody."""
    tick(f"{party} alone")
    model = classroom.softmax.initial()
    for number in range(1, rounds + 1):
        model = classroom.train(party, model, number)
    return classroom.accuracy(model)


def read_server_messages(outcome: Outcome) -> dict[Party, Vector]:
    """Returns the vectors that the server received in a recorded round, decrypted with its own keys and decoded."""
    if outcome.transcript is None:
        raise ConfigError("only a recorded round of numbers can be read; try: use record=True")
    ring = outcome.transcript.ring()
    return {
        address.sender: decode_vector(ring, ring.unpack(getattr(message, name)))
        for address, message in outcome.transcript.open_messages(SERVER)
        if address.to == SERVER
        for name in message.parameters
    }


def decode_vector(ring: FixedPoint, vector: Vector) -> NDArray[np.float64]:
    """Returns the numbers that a server would decode from a vector."""
    try:
        return ring.mean(vector)
    except WireError:
        # A masked vector is not followed by a weight to divide by, so its entries are decoded without one.
        entries: NDArray[np.float64] = vector[: ring.entries].view(f"i{vector.itemsize}") / ring.scale
        return entries


def evaluate_run(protocol: str, diary: DemoRecord, shown: Party) -> DemoRun:
    """Returns the results of one run."""
    pairs = [
        (true[party], vector)
        for true, seen in zip(diary.true, diary.seen, strict=True)
        for party, vector in seen.items()
    ]
    read = sum(correlate(true, seen) > READ for true, seen in pairs)
    return DemoRun(
        protocol=protocol,
        accuracy=diary.accuracies[-1],
        rounds=len(diary.accuracies),
        rounds_with_dropout=sum(
            len(some) < len(all_) for some, all_ in zip(diary.contributors, diary.true, strict=True)
        ),
        bytes_per_party_per_round=round(float(np.mean(diary.traffic))),
        models_sent=len(pairs),
        models_read=read,
        server_saw=describe_server_view(read, len(pairs)),
        correlation=correlate(
            np.concatenate([true[shown] for true in diary.true]), np.concatenate([seen[shown] for seen in diary.seen])
        ),
        accuracies=diary.accuracies,
    )


def describe_server_view(read: int, sent: int) -> str:
    """Returns a description of what the server saw, given how many of the sent models it could read."""
    if read == sent:
        return "every model"
    return "only the sum" if read == 0 else f"{read} of {sent} models"


def take_glimpse(party: Party, diaries: dict[str, DemoRecord], layout: Layout) -> Glimpse:
    """Returns a few entries of a party's last model, true and as each server decoded them."""

    def few(vector: Vector) -> list[float]:
        numbers: list[float] = layout.restore(vector)["bias"][:SHOWN].tolist()
        return numbers

    return Glimpse(
        party=party,
        round=len(diaries[PLAIN].true),
        true=few(diaries[PLAIN].true[-1][party]),
        seen={protocol: few(diary.seen[-1][party]) for protocol, diary in diaries.items()},
    )


def correlate(a: Vector, b: Vector) -> float:
    """Returns Pearson's correlation of two vectors: 1 if one is a positive multiple of the other up to a shift, about 0
    if they are unrelated."""
    return float(np.corrcoef(a, b)[0, 1])


def make_generator(seed: int, *path: int | str) -> np.random.Generator:
    """Returns NumPy's generator for one purpose, seeded so that no two purposes share a stream."""
    return np.random.default_rng(int.from_bytes(SeededEntropy(seed, *path).bytes(16)))
