"""The onlooker of paper 001, Section 4: it learns, from what passes over the links, to tell what a client's loss is.

Clients with quadratic losses train together by FedAvg, CBGD, PSGD or PPSGD. The loss of one of them is that of the
baseline (class 0) or another (class 1). The onlooker hears whole runs of known class, trains a classifier of time
series on them, and then has to tell the class of runs that it has not heard. The weak onlooker (Table 1) learned from
other changes than the one that it is asked about, the strong one (Table 2) from the very same.

Runs are computed here in plain floats, thousands at a time; a test holds them against the messages that the deployed
protocols send. Deployed links are sealed, and what is left to hear is who sends when, and how much.

**What the paper leaves open**, and what it is here. The graph of Fig. 2 is only drawn: 8 links, 3 of them at client 1.
Starts: w_i(0) ~ N(0, 1). Steps: η_t = 1/(λt), where λ is the largest curvature of a loss; the error is then gone after
some 20 rounds, as in Fig. 3. FedAvg: everybody in every round, E = 5, η = 1/(5λ). Noise: what Table 3 has, on every x
that is sent. Section 4.4: the client that changes is the one that is heard, and its change is that of case 6. Fig. 7: a
directed ring, of which the two links of the client that changes are heard.

**What the paper does not test.** Cases 0 and 6 also differ in the optimum w* that all clients end up with, so that the
final model alone would tell them apart. Here they are told apart, too, with client 4 moved the other way and w* kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.audit.attacks.decode import PAPER_LINKS
from tacit.audit.attacks.findings import Attack, Finding, Progress, proportion, quietly
from tacit.audit.attacks.inception import Classifier, Labels, Training, principal_plane
from tacit.core.outcome import Outcome
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.drivers.federation import Federation
from tacit.learn.datasets import digits

Array = NDArray[np.float64]
Links = Sequence[tuple[int, int]]
"""(i, j): i sends to j. Clients are counted from 0 here, and from 1 in the paper."""

# --- the paper's setting -------------------------------------------------------------------------------------------

LINKS: Links = PAPER_LINKS
"""Our reading of Fig. 2: strongly connected, 8 links."""

BASELINE = ((1, -4, 4), (1, -9, 9), (1, -4, 7), (1, -4, 4.75), (1, 1, 0.25))
"""a_i, b_i and c_i of l_i(w) = a_i w² + b_i w + c_i (equation 16)."""

CASES = {
    0: (1, 1, 0.25),
    1: (1, 0.4, 1.75),
    2: (1, -0.2, 3.25),
    3: (1, -0.8, 4.75),
    4: (1, -1.4, 6.25),
    5: (1, -2, 7.75),
    6: (1, 0.5, 1.2625),
}
"""The local function of client 5 by case (Tables 1 and 2; for "w + 0.5w + 1.2625" read w² + 0.5w + 1.2625)."""
CHANGING = 4
"""Client 5."""

TRAINING_RUNS: dict[str, dict[int, int]] = {
    "weak": {0: 100, 1: 20, 2: 20, 3: 20, 4: 20, 5: 20},
    "strong": {0: 100, 6: 100},
}
"""Which cases the onlooker learned from, and from how many runs of each (Tables 1 and 2)."""
TEST_RUNS = {0: 100, 6: 100}

PRINTED = {
    ("PSGD", "weak"): 0.74,
    ("PSGD, noise", "weak"): 0.66,
    ("PPSGD", "weak"): 0.72,
    ("PPSGD, noise", "weak"): 0.51,
}
"""The accuracies of Fig. 4. Those of Figs. 5 to 7 are drawn, and not written anywhere."""

NOISE = 0.065
"""The variance of the Gaussian noise (Table 3, row 2)."""
BETA, ALPHA = 0.1, 0.4
"""The range of p_ii in PPSGD; the default of `pushsum`."""
EPOCHS = 5
"""E of FedAvg."""


@dataclass(frozen=True)
class Losses:
    """l_i(w) = ½ wᵀA_i w + b_iᵀw for each client i, up to constants, which no gradient shows."""

    a: Array
    """n × d × d"""
    b: Array
    """n × d"""

    @classmethod
    def of_case(cls, case: int = 0) -> "Losses":
        """Returns the losses of equation 16, with that of client 5 as the case has it."""
        coefficients = np.array(BASELINE)
        coefficients[CHANGING] = CASES[case]
        return cls(2 * coefficients[:, :1, np.newaxis], coefficients[:, 1:2])

    def moved(self, client: int, by: Array | float) -> "Losses":
        """Returns the losses with one client's linear term moved."""
        b = self.b.copy()
        b[client] += by
        return Losses(self.a, b)

    def gradient(self, w: Array) -> Array:
        """Returns ∇l_i(w_i) for runs × n × d models."""
        gradient: Array = np.einsum("nij,rnj->rni", self.a, w) + self.b
        return gradient

    @property
    def step(self) -> float:
        """1/λ, for the largest curvature λ."""
        return 1.0 / float(np.linalg.eigvalsh(self.a).max())


# --- the algorithms, and what passes over the links: runs × channels × numbers × rounds ----------------------------


def client_update(losses: Losses, w: Array) -> Array:
    """Returns w_t^i(E) of every client i after E steps from w_t (Algorithm 1, with the full batch)."""
    for _ in range(EPOCHS):
        w = w - losses.step / EPOCHS * losses.gradient(w)
    return w


def fedavg(losses: Losses, w: Array, rounds: int) -> Array:
    """Algorithm 1 from w_0: each client's model on its way to the server, and the average on its way back."""
    heard = []
    for _ in range(rounds):
        models = client_update(losses, np.repeat(w[:, np.newaxis], len(losses.b), axis=1))
        w = models.mean(axis=1)
        heard.append(np.concatenate([models, w[:, np.newaxis]], axis=1))
    return np.stack(heard, axis=-1)


def cbgd(losses: Losses, links: Links, w: Array, rounds: int) -> Array:
    """Algorithm 2 from w_i(0), links taken both ways, with w̃ = z: the model that each client broadcasts."""
    p = np.zeros(2 * (len(losses.b),))
    for edge, weight in graphs.metropolis(nx.Graph(links)).items():
        p[edge] = weight
    np.fill_diagonal(p, 1 - p.sum(axis=1))
    heard = []
    for t in range(1, rounds + 1):
        heard.append(w)
        z = p @ w
        w = z - losses.step / t * losses.gradient(z)
    return np.stack(heard, axis=-1)


def push_sum(losses: Losses, links: Links, x: Array, y: Array, kept: Array, noise: Array | None = None) -> Array:
    """Algorithms 3 and 4 from x_i(0) and y_i(0): p_ji x_i and, behind it, p_ji y_i on each link i → j.

    `kept` is p_ii(t), rounds × runs × n; `noise` is added to what is sent of x, rounds × runs × links × d.
    """
    sender, receiver = np.array(links).T
    clients = np.arange(len(losses.b))
    degree = np.bincount(sender, minlength=len(clients))
    arriving = np.equal.outer(clients, receiver).astype(float)
    heard = []
    for t, p in enumerate(kept):
        part = (1 - p) / degree
        sent_x = (part[..., np.newaxis] * x)[:, sender]
        sent_y = (part * y)[:, sender, np.newaxis]
        if noise is not None:
            sent_x = sent_x + noise[t]
        heard.append(np.concatenate([sent_x, sent_y], axis=2))
        z = p[..., np.newaxis] * x + arriving @ sent_x
        y = p * y + (arriving @ sent_y)[..., 0]
        x = z - losses.step / (t + 1) * losses.gradient(z / y[..., np.newaxis])
    return np.stack(heard, axis=-1)


def deployed(
    protocol: str, start: Array, train: Callable[[Array, int], Array], rounds: int, **options: Any
) -> Iterator[tuple[Federation, Outcome]]:
    """Yields the rounds of a deployed protocol, recorded, while clients train between them.

    Clients bring `start` (n × d) to the first round, and to each later one what `train(averages, round)` returns.
    """
    parties = [f"p{i}" for i in range(len(start))]
    federation = Federation(protocol, parties, start.shape[1], record=True, **options)
    for t in range(1, rounds + 1):
        outcome = federation.average({party: Update(vector) for party, vector in zip(parties, start, strict=True)})
        yield federation, outcome
        start = train(np.array([outcome.average[party] for party in parties]), t)


def sealed(losses: Losses, links: Links, w: Array, rounds: int, seed: int) -> Array:
    """PPSGD over the deployed `pushsum`: when something passes over each sealed link, and how many bytes."""
    places = {(f"p{i}", f"p{j}"): place for place, (i, j) in enumerate(links)}
    heard = np.zeros((1, len(links), 2, rounds))

    def train(average: Array, t: int) -> Array:
        trained: Array = average - losses.step / t * losses.gradient(average[np.newaxis])[0]
        return trained

    running = deployed("pushsum", w, train, rounds, graph=nx.DiGraph(links), private=True, clip=1024.0, seed=seed)
    for t, (_, outcome) in enumerate(running):
        for passed in outcome.transcript or ():
            address = passed.envelope.address
            heard[0, places[address.sender, address.to], :, t] = passed.time, len(passed.envelope.sealed)
    return heard


@dataclass(frozen=True)
class Setting:
    """An algorithm, and what is random in it."""

    algorithm: str
    """FedAvg, CBGD, PSGD, PPSGD, or "sealed" for PPSGD over sealed links."""
    start: tuple[str, *tuple[float, ...]] = ("uniform", 0.5, 1.5)
    """The distribution of y_i(0) in PPSGD: a name of NumPy's, and its parameters."""
    noise: float = 0.0
    """The variance of the noise on what is sent in PSGD and PPSGD."""

    def hear(self, losses: Losses, links: Links, runs: int, rounds: int, rng: np.random.Generator) -> Array:
        """Returns what passes over the links in some runs."""
        n, d = losses.b.shape
        w = rng.normal(size=(runs, n, d))
        if self.algorithm == "FedAvg":
            return fedavg(losses, w[:, 0], rounds)
        if self.algorithm == "CBGD":
            return cbgd(losses, links, w, rounds)
        if self.algorithm == "sealed":
            # One run stands for all: when and how much is sent is the same in every one, which a test confirms.
            return np.repeat(sealed(losses, links, w[0], rounds, int(rng.integers(2**31))), runs, axis=0)
        if self.algorithm == "PPSGD":
            name, *parameters = self.start
            y = getattr(rng, name)(*parameters, size=(runs, n))
            kept = rng.uniform(BETA, ALPHA, size=(rounds, runs, n))
        else:
            y = np.ones((runs, n))
            kept = np.broadcast_to(1 / (1 + np.bincount([i for i, _ in links])), (rounds, runs, n))
        noise = rng.normal(scale=np.sqrt(self.noise), size=(rounds, runs, len(links), d)) if self.noise else None
        return push_sum(losses, links, w, y, kept, noise)


# --- the onlooker --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """An onlooker to be trained and tested: one line of a table, or one point of a figure."""

    where: str
    target: str
    onlooker: str
    setting: Setting
    training_runs: Sequence[tuple[Losses, int, int]]
    """Losses, their class, and how many runs of them."""
    test_runs: Sequence[tuple[Losses, int, int]]
    rounds: int
    training: Training
    links: Links = LINKS
    channels: tuple[int, ...] | None = None
    """Which links are heard; None for all."""
    with_y: bool = True
    """Whether p_ji y_i is heard."""
    paper: float | None = None
    """The accuracy that the paper gives, if it does."""

    def listen(self, kinds: Sequence[tuple[Losses, int, int]], rng: np.random.Generator) -> tuple[Array, Labels]:
        """Returns time series and their classes."""
        runs = [self.setting.hear(losses, self.links, count, self.rounds, rng) for losses, _, count in kinds]
        heard = np.concatenate(runs)
        heard = heard if self.channels is None else heard[:, self.channels]
        heard = heard if self.with_y else heard[:, :, :-1]
        return heard.reshape(len(heard), -1, self.rounds), np.repeat(*np.array([kind[1:] for kind in kinds]).T)


@dataclass(frozen=True)
class Row:
    """How a trial ended."""

    trial: Trial
    loss: tuple[float, ...]
    """Of the training, epoch by epoch (Fig. 6a and c),"""
    training_accuracy: tuple[float, ...]
    """and the accuracy on the training runs (Fig. 6b and d)."""
    labels: Labels
    """The classes of the test runs,"""
    guesses: Labels
    """what the onlooker takes them for,"""
    plane: Array
    """and where its last layer sees them, in the plane of largest variance (Figs. 4 and 5)."""

    @property
    def wins(self) -> int:
        """Test runs whose class was told."""
        return int(np.sum(self.labels == self.guesses))

    @property
    def accuracy(self) -> float:
        """The share of them."""
        return self.wins / len(self.labels)

    @property
    def finding(self) -> Finding:
        """The accuracy against that of guessing, which is ½."""
        target = f"{self.trial.target}, {self.trial.onlooker} onlooker ({self.trial.where})"
        return proportion(
            ATTACK.name, target, "share of runs whose class is told", wins=self.wins, tries=len(self.labels), chance=0.5
        )


def attempt(trial: Trial, seed: int) -> Row:
    """Trains the onlooker of a trial and tests it."""
    rng = np.random.default_rng(seed)
    classifier = Classifier(*trial.listen(trial.training_runs, rng), trial.training, seed)
    series, labels = trial.listen(trial.test_runs, rng)
    guesses, features = classifier.look(series)
    return Row(trial, tuple(classifier.loss), tuple(classifier.accuracy), labels, guesses, principal_plane(features))


# --- the tables and figures ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """How large the experiments are."""

    rounds: int
    """Of each run of Tables 1 and 2."""
    training: Training
    runs: int
    """To train with, and to test with, in Table 3."""
    training_3: Training
    variations: tuple[float, ...]
    """d of Fig. 7,"""
    lengths: tuple[int, ...]
    """and its t."""


FULL = Scale(
    rounds=100,
    training=Training(epochs=20),
    runs=20_000,
    training_3=Training(epochs=10, batch=256, modules=2),
    variations=(0.1, 0.3, 1.0),
    lengths=(3, 10),
)
"""The paper's numbers of rounds, runs and (for Table 3) epochs."""
QUICK = Scale(
    rounds=20,
    training=Training(epochs=20, batch=50, width=4, modules=2),
    runs=1_000,
    training_3=Training(epochs=10, batch=100, width=4, modules=2, rate=2e-2),
    variations=(0.3,),
    lengths=(3,),
)

PSGD, PPSGD = Setting("PSGD"), Setting("PPSGD")

FIGURE_4 = {
    "FedAvg": Setting("FedAvg"),
    "CBGD": Setting("CBGD"),
    "PSGD": PSGD,
    "PSGD, noise": replace(PSGD, noise=NOISE),
    "PPSGD": PPSGD,
    "PPSGD, noise": replace(PPSGD, noise=NOISE),
    "PPSGD, sealed links": Setting("sealed"),
}

TABLE_3 = {
    "PSGD": PSGD,
    "PSGD, noise N(0, 0.065)": replace(PSGD, noise=NOISE),
    "PPSGD, y(0) ~ U(0.5, 1.5)": PPSGD,
    "PPSGD, y(0) ~ U(0.3, 1.7)": Setting("PPSGD", ("uniform", 0.3, 1.7)),
    "PPSGD, y(0) ~ U(0.1, 1.9)": Setting("PPSGD", ("uniform", 0.1, 1.9)),
    "PPSGD, y(0) ~ Exp(1)": Setting("PPSGD", ("exponential", 1.0)),
    "PPSGD, y(0) ~ Lognormal(-1, 2)": Setting("PPSGD", ("lognormal", -1.0, np.sqrt(2.0))),
}
"""The rows of Table 3. NumPy takes the standard deviation of the logarithm, the paper gives its variance."""


def tables_1_and_2(scale: Scale) -> list[Trial]:
    """Returns the weak and the strong onlooker against each algorithm: Tables 1 and 2, Figs. 4 and 5."""

    def runs(counts: Mapping[int, int]) -> list[tuple[Losses, int, int]]:
        return [(Losses.of_case(case), int(case > 0), count) for case, count in counts.items()]

    return [
        Trial(
            where="Table 1, Fig. 4" if onlooker == "weak" else "Table 2, Fig. 5",
            target=target,
            onlooker=onlooker,
            setting=setting,
            training_runs=runs(learned),
            test_runs=runs(TEST_RUNS),
            rounds=scale.rounds,
            training=scale.training,
            paper=PRINTED.get((target, onlooker)),
        )
        for target, setting in FIGURE_4.items()
        for onlooker, learned in TRAINING_RUNS.items()
    ]


def same_optimum(scale: Scale) -> list[Trial]:
    """Returns strong onlookers of case 6 when client 4 makes up for it, so that w* stays what it is in case 0."""
    change = CASES[6][1] - CASES[0][1]
    kept = Losses.of_case(6).moved(CHANGING - 1, -change)
    return [
        replace(
            trial,
            where="case 6, w* kept",
            training_runs=[(Losses.of_case(), 0, 100), (kept, 1, 100)],
            test_runs=[(Losses.of_case(), 0, 100), (kept, 1, 100)],
        )
        for trial in tables_1_and_2(scale)
        if trial.onlooker == "strong" and trial.target in ("PSGD", "PPSGD")
    ]


def table_3(scale: Scale, changing: int = 0) -> list[Trial]:
    """Returns the strong onlooker of client 1's links against each distribution of y_i(0): Table 3, Fig. 6."""
    baseline = Losses.of_case()
    other = baseline.moved(changing, CASES[6][1] - CASES[0][1])
    runs = [(baseline, 0, scale.runs // 2), (other, 1, scale.runs // 2)]
    return [
        Trial(
            where="Table 3, Fig. 6" if with_y else "Table 3, Fig. 6, y not heard",
            target=target,
            onlooker="strong",
            setting=setting,
            training_runs=runs,
            test_runs=runs,
            rounds=3,
            training=scale.training_3,
            channels=tuple(place for place, link in enumerate(LINKS) if 0 in link),
            with_y=with_y,
        )
        for with_y in (True, False)
        for target, setting in TABLE_3.items()
    ]


def figure_7(scale: Scale, x: Array, y: Array, clients: int = 10) -> list[Trial]:
    """Returns the strong onlooker of a client that fits y = xᵀw by least squares on its share of the rows, in a ring.

    One client's optimum moves by d in every direction. Rows are dealt out in the order they come in, so shuffle what is
    sorted. The paper takes the Boston housing data.
    """
    rows = np.array_split(np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(len(x))]), clients)
    values = np.array_split((y - y.mean()) / y.std(), clients)
    # l_i(w) = ‖x_i w − y_i‖² / rows
    a = np.array([2 * part.T @ part / len(part) for part in rows])
    b = np.array([-2 * part.T @ value / len(part) for part, value in zip(rows, values, strict=True)])
    baseline, half = Losses(a, b), scale.runs // 2
    return [
        Trial(
            where=f"Fig. 7, d = {d:g}, t = {t}",
            target=target,
            onlooker="strong",
            setting=setting,
            training_runs=(runs := [(baseline, 0, half), (baseline.moved(0, -a[0] @ np.full(a.shape[1], d)), 1, half)]),
            test_runs=runs,
            rounds=t,
            training=scale.training_3,
            links=[(i, (i + 1) % clients) for i in range(clients)],
            channels=(0, clients - 1),
        )
        for d in scale.variations
        for t in scale.lengths
        for target, setting in (("PSGD", PSGD), ("PPSGD", PPSGD))
    ]


def embedded_regression() -> tuple[Array, Array]:
    """Returns something to fit with as many features as the Boston data: a digit, by 13 pixels of its image."""
    x, y = digits()
    inked = np.argsort(-x.var(axis=0), kind="stable")[:13]
    return x[:, inked], y.astype(np.float64)


def trials(full: bool) -> list[Trial]:
    """Returns all trials, those of algorithms without any protection first."""
    scale = FULL if full else QUICK
    figure = figure_7(scale, *embedded_regression())
    found = [*tables_1_and_2(scale), *same_optimum(scale), *table_3(scale), *figure]
    return sorted(found, key=lambda trial: trial.target not in ("FedAvg", "CBGD", "PSGD"))


def measure(trials: Sequence[Trial], seed: int, progress: Progress = quietly) -> list[Row]:
    """Returns how some trials end: the tables, to be printed beside the paper's, and the data of its figures."""
    rows = []
    for done, trial in enumerate(trials):
        progress(f"{trial.target}, {trial.onlooker} onlooker ({trial.where})", done / len(trials))
        rows.append(attempt(trial, seed + done))
    return rows


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns how well the onlooker tells classes apart under each algorithm."""
    return [row.finding for row in measure(trials(full), seed, progress)]


ATTACK = Attack(
    name="onlooker",
    summary="a classifier of time series tells a client's loss from what passes over the links",
    paper="001",
    run=run,
)
