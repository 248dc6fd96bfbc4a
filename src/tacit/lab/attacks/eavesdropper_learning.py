"""Eavesdropper of paper 001, Section 4: it learns to recognise a client's loss from the traffic on the links.

Clients with quadratic losses train together by FedAvg, CBGD, PSGD or PPSGD. The loss of one of them is either that of
the baseline (class 0) or another (class 1). The eavesdropper records whole runs of known class, trains a time-series
classifier on them, and then predicts the class of new runs. The weak eavesdropper (Table 1) was trained on other
changes than the one in question, the strong one (Table 2) on the same.

Its recordings are computed for thousands of runs at a time (`traffic_series`). Deployed links are encrypted, so that
only the times, sizes, senders and receivers of messages can be recorded.

**What the paper does not state**, and our choices. The graph of Fig. 2 is only drawn: 8 links, 3 of them at client 1.
Starts: w_i(0) ~ N(0, 1). Steps: η_t = 1/(λt), where λ is the largest curvature of a loss; the error then vanishes after
about 20 rounds, as in Fig. 3. FedAvg: all clients in every round, E = 5, η = 1/(5λ). Noise: that of Table 3, on every x
that is sent. Section 4.4: the client whose loss changes is the one whose links are recorded, and its change is that of
case 6. Fig. 7: a directed ring, in which the two links of the changing client are recorded.

**What the paper does not test.** Cases 0 and 6 also differ in the optimum w* that all clients reach, so that the final
model alone distinguishes them. Here they are also compared with client 4 moved the other way, so that w* stays the
same.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.core.average import format_count
from tacit.core.progress import Progress, ignore_progress
from tacit.core.protocol_facts import PAPERS
from tacit.lab.attacks.attack_result import Attack, Finding, proportion_finding
from tacit.lab.attacks.inception import Classifier, ClassifierSettings, Labels, principal_plane
from tacit.lab.attacks.traffic_series import CASES, CHANGING, LINKS, Algorithm, Array, Links, Losses
from tacit.learn.data.datasets import load

# --- the paper's experiments ---------------------------------------------------------------------------------------

TRAINING_RUNS: dict[str, dict[int, int]] = {
    "weak": {0: 100, 1: 20, 2: 20, 3: 20, 4: 20, 5: 20},
    "strong": {0: 100, 6: 100},
}
"""Cases that the eavesdropper is trained on, with the number of runs of each (Tables 1 and 2)."""
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

HEARD = {
    "FedAvg": "fedavg",
    "CBGD": "gossip",
    "PSGD": "pushsum",
    "PSGD, noise": "pushsum with noise",
    "PSGD, noise N(0, 0.065)": "pushsum with noise of variance 0.065",
    "PPSGD": "pushsum with private weights",
    "PPSGD, noise": "pushsum with private weights and noise",
    "PPSGD, sealed links": "pushsum with private weights, on sealed links",
    "PPSGD, y(0) ~ U(0.5, 1.5)": "pushsum with private weights that begin between 0.5 and 1.5",
    "PPSGD, y(0) ~ U(0.3, 1.7)": "pushsum with private weights that begin between 0.3 and 1.7",
    "PPSGD, y(0) ~ U(0.1, 1.9)": "pushsum with private weights that begin between 0.1 and 1.9",
    "PPSGD, y(0) ~ Exp(1)": "pushsum with private weights that begin anywhere, most of them small (exponential)",
    "PPSGD, y(0) ~ Lognormal(-1, 2)": "pushsum with private weights that begin anywhere, few of them large (lognormal)",
}
"""What the letters of the paper stand for."""
PRINTED_AT = re.compile(r"(?:Table|Fig\.) \d+")
LEARNED = {"weak": "after learning from other changes", "strong": "after learning from this very change"}
TOLD = "share of runs classified correctly: did a client's data change? Guessing gets half"


# --- the eavesdropper ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One experiment: an eavesdropper to train and test, for one row of a table or one point of a figure."""

    where: str
    target: str
    eavesdropper: str
    setting: Algorithm
    training_runs: Sequence[tuple[Losses, int, int]]
    """Losses, their class, and the number of runs with them."""
    test_runs: Sequence[tuple[Losses, int, int]]
    rounds: int
    training: ClassifierSettings
    links: Links = LINKS
    channels: tuple[int, ...] | None = None
    """Links that the eavesdropper records; None for all."""
    with_y: bool = True
    """Whether the eavesdropper records p_ji y_i."""
    flat: bool = False
    """Whether the traffic is one long series, link after link, instead of one series per number and link."""
    about: str = ""
    """Additional description."""
    paper: float | None = None
    """Accuracy in the paper; None if it states none."""

    @property
    def said(self) -> str:
        """Description of the target without the paper's symbols."""
        heard = f"what an eavesdropper hears of {HEARD[self.target]}, {LEARNED[self.eavesdropper]}"
        return f"{heard}; {self.about}" if self.about else heard

    def listen(self, kinds: Sequence[tuple[Losses, int, int]], rng: np.random.Generator) -> tuple[Array, Labels]:
        """Returns time series and their classes."""
        runs = [self.setting.sample_traffic(losses, self.links, count, self.rounds, rng) for losses, _, count in kinds]
        heard = np.concatenate(runs)
        heard = heard if self.channels is None else heard[:, self.channels]
        heard = heard if self.with_y else heard[:, :, :-1]
        series = heard.reshape(len(heard), 1, -1) if self.flat else heard.reshape(len(heard), -1, self.rounds)
        return series, np.repeat(*np.array([kind[1:] for kind in kinds]).T)


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial."""

    trial: Trial
    loss: tuple[float, ...]
    """Training loss by epoch (Fig. 6a and c)."""
    training_accuracy: tuple[float, ...]
    """Accuracy on the training runs by epoch (Fig. 6b and d)."""
    labels: Labels
    """Classes of the test runs."""
    guesses: Labels
    """Classes that the eavesdropper predicts."""
    plane: Array
    """Features of the last layer, projected to the plane of largest variance (Figs. 4 and 5)."""

    @property
    def wins(self) -> int:
        """Number of test runs whose class was predicted correctly."""
        return int(np.sum(self.labels == self.guesses))

    @property
    def accuracy(self) -> float:
        """Share of test runs whose class was predicted correctly."""
        return self.wins / len(self.labels)

    @property
    def finding(self) -> Finding:
        """The accuracy against that of guessing, which is ½."""
        paper = ", ".join(PRINTED_AT.findall(self.trial.where))
        return proportion_finding(
            ATTACK.name, self.trial.said, TOLD, wins=self.wins, tries=len(self.labels), chance=0.5, paper=paper
        )


def run_trial(trial: Trial, seed: int) -> TrialResult:
    """Trains the eavesdropper of a trial and tests it."""
    rng = np.random.default_rng(seed)
    classifier = Classifier(*trial.listen(trial.training_runs, rng), trial.training, seed)
    series, labels = trial.listen(trial.test_runs, rng)
    guesses, features = classifier.look(series)
    return TrialResult(
        trial, tuple(classifier.loss), tuple(classifier.accuracy), labels, guesses, principal_plane(features)
    )


# --- the tables and figures ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LearningScale:
    """Size of the experiments."""

    rounds: int
    """Rounds of each run of Tables 1 and 2."""
    training: ClassifierSettings
    runs: int
    """Training runs, and as many test runs, in Table 3."""
    training_3: ClassifierSettings
    variations: tuple[float, ...]
    """Values of d in Fig. 7."""
    lengths: tuple[int, ...]
    """Values of t in Fig. 7."""


FULL = LearningScale(
    rounds=100,
    training=ClassifierSettings(epochs=20),
    runs=20_000,
    training_3=ClassifierSettings(epochs=10, batch=256, modules=2),
    variations=(0.1, 0.3, 1.0),
    lengths=(3, 10),
)
"""The paper's numbers of rounds, runs and (for Table 3) epochs."""
QUICK = LearningScale(
    rounds=20,
    training=ClassifierSettings(epochs=20, batch=50, width=4, modules=2),
    runs=1_000,
    training_3=ClassifierSettings(epochs=10, batch=100, width=4, modules=2, rate=2e-2),
    variations=(0.3,),
    lengths=(3,),
)

PSGD, PPSGD = Algorithm("PSGD"), Algorithm("PPSGD")

FIGURE_4 = {
    "FedAvg": Algorithm("FedAvg"),
    "CBGD": Algorithm("CBGD"),
    "PSGD": PSGD,
    "PSGD, noise": replace(PSGD, noise=NOISE),
    "PPSGD": PPSGD,
    "PPSGD, noise": replace(PPSGD, noise=NOISE),
    "PPSGD, sealed links": Algorithm("sealed"),
}

TABLE_3 = {
    "PSGD": PSGD,
    "PSGD, noise N(0, 0.065)": replace(PSGD, noise=NOISE),
    "PPSGD, y(0) ~ U(0.5, 1.5)": PPSGD,
    "PPSGD, y(0) ~ U(0.3, 1.7)": Algorithm("PPSGD", ("uniform", 0.3, 1.7)),
    "PPSGD, y(0) ~ U(0.1, 1.9)": Algorithm("PPSGD", ("uniform", 0.1, 1.9)),
    "PPSGD, y(0) ~ Exp(1)": Algorithm("PPSGD", ("exponential", 1.0)),
    "PPSGD, y(0) ~ Lognormal(-1, 2)": Algorithm("PPSGD", ("lognormal", -1.0, np.sqrt(2.0))),
}
"""The rows of Table 3. NumPy takes the standard deviation of the logarithm; the paper states its variance."""


def tables_1_and_2(scale: LearningScale) -> list[Trial]:
    """Returns the weak and the strong eavesdropper against each algorithm: Tables 1 and 2, Figs. 4 and 5."""

    def runs(counts: Mapping[int, int]) -> list[tuple[Losses, int, int]]:
        return [(Losses.of_case(case), int(case > 0), count) for case, count in counts.items()]

    return [
        Trial(
            where="Table 1, Fig. 4" if kind == "weak" else "Table 2, Fig. 5",
            target=target,
            eavesdropper=kind,
            setting=setting,
            training_runs=runs(learned),
            test_runs=runs(TEST_RUNS),
            rounds=scale.rounds,
            training=scale.training,
            paper=PRINTED.get((target, kind)),
        )
        for target, setting in FIGURE_4.items()
        for kind, learned in TRAINING_RUNS.items()
    ]


def same_optimum(scale: LearningScale) -> list[Trial]:
    """Returns strong eavesdroppers of case 6 when client 4 compensates, so that w* is that of case 0."""
    change = CASES[6][1] - CASES[0][1]
    kept = Losses.of_case(6).move_client(CHANGING - 1, -change)
    return [
        replace(
            trial,
            where="case 6, w* kept",
            about="another client makes up for the change, so that all end up where they did",
            training_runs=[(Losses.of_case(), 0, 100), (kept, 1, 100)],
            test_runs=[(Losses.of_case(), 0, 100), (kept, 1, 100)],
        )
        for trial in tables_1_and_2(scale)
        if trial.eavesdropper == "strong" and trial.target in ("PSGD", "PPSGD")
    ]


def table_3(scale: LearningScale, changing: int = 0) -> list[Trial]:
    """Returns the strong eavesdropper of client 1's links against each distribution of y_i(0): Table 3, Fig. 6."""
    baseline = Losses.of_case()
    other = baseline.move_client(changing, CASES[6][1] - CASES[0][1])
    runs = [(baseline, 0, scale.runs // 2), (other, 1, scale.runs // 2)]
    return [
        Trial(
            where="Table 3, Fig. 6" if with_y else "Table 3, Fig. 6, y not heard",
            about=f"three rounds, on one client's links alone{'' if with_y else ', where weights cannot be heard'}",
            target=target,
            eavesdropper="strong",
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


def figure_7(scale: LearningScale, x: Array, y: Array, clients: int = 10) -> list[Trial]:
    """Returns the strong eavesdropper of a client in a ring that fits y = xᵀw by least squares on its rows.

    The optimum of one client moves by d in every direction. Rows are assigned in their order, so sorted data must be
    shuffled first. The paper uses the Boston housing data.
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
            about=f"{format_count(t, 'round')} in a ring of {clients}, a linear model of one client moved by {d:g}",
            target=target,
            eavesdropper="strong",
            setting=setting,
            training_runs=(
                runs := [(baseline, 0, half), (baseline.move_client(0, -a[0] @ np.full(a.shape[1], d)), 1, half)]
            ),
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


def load_embedded_regression() -> tuple[Array, Array]:
    """Returns a regression problem with as many features as the Boston data: a digit, from 13 pixels of its image."""
    x, y = load("digits", share=1).flat()
    inked = np.argsort(-x.var(axis=0), kind="stable")[:13]
    return x[:, inked], y.astype(np.float64)


def list_trials(full: bool) -> list[Trial]:
    """Returns all trials, first those of algorithms without any protection."""
    scale = FULL if full else QUICK
    figure = figure_7(scale, *load_embedded_regression())
    found = [*tables_1_and_2(scale), *same_optimum(scale), *table_3(scale), *figure]
    return sorted(found, key=lambda trial: trial.target not in ("FedAvg", "CBGD", "PSGD"))


def run_trials(trials: Sequence[Trial], seed: int, progress: Progress = ignore_progress) -> list[TrialResult]:
    """Runs some trials: the rows of the tables, and the data of the figures."""
    rows = []
    for done, trial in enumerate(trials):
        progress(trial.said, done / len(trials))
        rows.append(run_trial(trial, seed + done))
    return rows


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns how well the eavesdropper distinguishes the classes under each algorithm."""
    return [row.finding for row in run_trials(list_trials(full), seed, progress)]


ATTACK = Attack(
    name="eavesdropper",
    aliases=("onlooker",),
    summary="an eavesdropper that learned from earlier runs detects from the traffic whether a client's data changed",
    paper=PAPERS["001"],
    run=run,
)
