"""Empirical risk of paper 003: the minimal risk, the excess risk, Theorem 4's bound, and Algorithm 1.

The task is L2-regularised logistic regression, odd digits against even ones, on the first 20 principal components of
the images, with each sample scaled to length 1. So no sample's gradient is longer than G = 1, nothing is ever clipped,
and J_j is smooth with L = 1/4 + λ for any samples. The images are MNIST's if available, otherwise the bundled digits.

Algorithm 1 is run by `assemble_run` from a scenario: noisy local steps with η_t = 2/(λ (t + γ)), and an average over E
users after every K steps, from which *all* users continue. That is what the proof assumes (Li et al. 2019), and differs
from lines 9 to 11 as printed, where only the summed users adopt the average (`run_as_printed`). Averages are those of
`fedavg`, which equal `secagg`'s bit for bit and take much less time. The computed ε assumes that only sums are visible,
which `secagg` guarantees.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError
from tacit.lab.papers.p003.theorems import (
    CONVEXITY,
    DELTA,
    LIPSCHITZ,
    TheoremConstants,
    exact_epsilon,
    theorem_4,
    theorem_delay,
)
from tacit.lab.papers.reproduction import DeclaredRow, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Ours, Paper, PaperNumber, RowVerdict
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset, Indices
from tacit.learn.random_streams import generator
from tacit.learn.scenario import Data, Privacy, Scenario, Split
from tacit.learn.training.assemble import AssembledRun, assemble_run
from tacit.learn.training.local_training import LocalTraining

Floats: TypeAlias = NDArray[np.float64]
Sigma: TypeAlias = Literal["calibrated", "paper"]

FEATURES = 20
ODD = (1, 3, 5, 7, 9)
WHOLE = 2**31
"""More samples than any user has: every step uses all samples."""
UNSTATED = (
    "The paper has no experiments. We test what its theorems state, on data and a model of our choice.",
    f"Loss: logistic, odd digits against even ones, on {FEATURES} principal components with samples of length 1. The "
    "components are assumed to be public.",
    "Data: MNIST if it is installed, and the bundled digits otherwise.",
    f"G = {LIPSCHITZ:g}, which no gradient of a sample exceeds. Theorem 4 wants it of J_j, λ N(θ) included: see the "
    "row.",
    f"λ = {CONVEXITY:g}, N(θ) = ‖θ‖²/2, L = 1/4 + λ, θ⁰ = 0, δ = {DELTA:g}. Each step uses all samples of a user.",
    "Neighbouring data: one sample of one user is replaced.",
)
"""Choices that all runs of Algorithm 1 share."""
CLAIMED = 1.0
"""The ε that Theorem 1 claims where K or E varies."""
SIGMAS: dict[Sigma, str] = {"paper": "Theorem 1's σ", "calibrated": "calibrated σ"}
SPLITS = {"i.i.d.": Split(kind="iid"), "shards": Split(kind="shards", per_party=2)}


def load_components(samples: int | None) -> Dataset:
    """Returns the training data with that many samples: MNIST if it is available, otherwise digits."""
    try:
        data = datasets.load("mnist", download=False)
    except ConfigError:
        data = datasets.load("digits")
    data = data.subsample(samples, None, generator(0, "samples"))
    x, x_test = (data.inputs(each).reshape(len(each), -1) for each in (data.x, data.x_test))
    centre = x.mean(axis=0)
    x -= centre
    x_test -= centre
    axes = np.linalg.eigh((x.T @ x).astype(np.float64))[1][:, : -FEATURES - 1 : -1]
    made, tested = (each @ axes for each in (x, x_test))
    for each in (made, tested):
        each /= np.linalg.norm(each, axis=1, keepdims=True)
    return Dataset(
        f"{data.name}, {FEATURES} principal components",
        made.astype(np.float32),
        data.y,
        tested.astype(np.float32),
        data.y_test,
        "features",
        data.classes,
    )


# --- risk ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Risk:
    """J of equation (1): the mean over users of the mean loss over their samples, and λ/2 ‖θ‖²."""

    x: Floats
    sign: Floats
    """1 for odd digits and −1 for even ones."""
    parts: tuple[Indices, ...]

    @classmethod
    def of(cls, data: Dataset, parts: list[Indices]) -> "Risk":
        """Returns the risk of users who have these samples."""
        return cls(data.x.astype(np.float64), np.where(np.isin(data.y, ODD), 1.0, -1.0), tuple(parts))

    @property
    def users(self) -> tuple["Risk", ...]:
        """The risk J_j of each user."""
        return tuple(Risk(self.x, self.sign, (part,)) for part in self.parts)

    @cached_property
    def _samples(self) -> tuple[Floats, Floats]:
        """y x of each sample, and its weight."""
        held = np.concatenate(self.parts)
        counts = [np.full(len(part), 1 / (len(self.parts) * len(part))) for part in self.parts]
        return self.x[held] * self.sign[held, np.newaxis], np.concatenate(counts)

    def at(self, theta: Floats) -> float:
        """Returns J(θ)."""
        signed, weights = self._samples
        return float(weights @ np.logaddexp(0, -(signed @ theta)) + CONVEXITY / 2 * theta @ theta)

    def slope(self, theta: Floats) -> Floats:
        """Returns ∇J(θ)."""
        signed, weights = self._samples
        found: Floats = CONVEXITY * theta - (weights * _wrong(signed @ theta)) @ signed
        return found

    @cached_property
    def best(self) -> Floats:
        """θ*, by Newton's method."""
        signed, weights = self._samples
        theta = np.zeros(signed.shape[1])
        for _ in range(50):
            wrong = _wrong(signed @ theta)
            bend = (signed.T * (weights * wrong * (1 - wrong))) @ signed + CONVEXITY * np.eye(len(theta))
            step = np.linalg.solve(bend, self.slope(theta))
            theta = theta - step
            if np.linalg.norm(step) < 1e-12:
                break
        return theta

    @property
    def least(self) -> float:
        """J*."""
        return self.at(self.best)

    def excess(self, theta: NDArray[np.floating]) -> float:
        """Returns the risk of a model minus the minimal risk."""
        return self.at(np.asarray(theta, np.float64)) - self.least

    @cached_property
    def gap(self) -> float:
        """Γ: the reduction of risk if every user had its own model."""
        return self.least - float(np.mean([user.least for user in self.users]))

    def steepest(self, *thetas: NDArray[np.floating]) -> float:
        """Returns the largest length of ∇J_j over users and some models."""
        return max(
            float(np.linalg.norm(user.slope(np.asarray(theta, np.float64)))) for theta in thetas for user in self.users
        )


def _wrong(margins: Floats) -> Floats:
    """Returns 1/(1 + e^margin), computed with tanh, which cannot overflow."""
    found: Floats = 0.5 * (1 - np.tanh(0.5 * margins))
    return found


# --- Algorithm 1 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RiskSize:
    """Size of the runs."""

    samples: int | None
    """Number of samples of all users together; None for all."""
    steps: int
    """Number of steps T."""
    seeds: int
    users: int = 20
    """Number of users m."""


REPEATED = b"for everybody to repeat"
"""Public key of the noise, because there is nobody to protect here."""
SIZES: dict[Scale, RiskSize] = {"small": RiskSize(12_000, 200, 3), "paper": RiskSize(None, 500, 3)}
_SMALL, _PAPER = SIZES["small"], SIZES["paper"]
CHANGED = (
    "Averages are computed by fedavg, where Algorithm 1 has secure aggregation. They equal those of secagg bit for "
    "bit, "
    "in a small part of the time.",
    f"Small scale has {_SMALL.samples:,} samples and T = {_SMALL.steps}. Paper scale has all samples and T = "
    f"{_PAPER.steps}.",
    f"m = {_SMALL.users} users and {_SMALL.seeds} runs each, at either scale. The paper has theorems for any m, T and "
    "number of samples, and states no experiment.",
)
"""What all runs of Algorithm 1 change, the sizes of the scales among it."""


@dataclass(frozen=True)
class RiskSetting:
    """One run of Algorithm 1."""

    epsilon: float | None
    """The claimed ε; None without noise."""
    sigma: Sigma = "calibrated"
    users: int = 20
    """Number of users m."""
    steps: int = 300
    """Number of steps T."""
    every: int = 1
    """Steps between two averages, K."""
    summed: int | None = None
    """Number of users in a sum, E; None for all."""
    split: str = "i.i.d."
    protocol: str = "fedavg"
    seed: int = 0

    def scenario(self) -> Scenario:
        """Returns the scenario to run. Only asked users have to train, and as many are asked as are summed."""
        if self.steps % self.every:
            raise ConfigError(f"{self.steps} steps do not end with an average after every {self.every}")
        gamma = theorem_delay(self.every)
        sampled = {} if self.summed in (None, self.users) else {"sampled": self.summed, "oversampled": self.summed}
        rounds = self.steps // self.every
        return Scenario(
            seed=self.seed,
            rounds=rounds,
            evaluate=rounds,
            data=Data(parties=self.users, split=SPLITS[self.split], test=None),
            model={"name": "logistic", "l2": CONVEXITY, "positive": list(ODD), "bias": False},
            local=LocalTraining(
                rate=2 / CONVEXITY, decay="inverse", delay=gamma, count="steps", batch=WHOLE, steps=self.every
            ),
            # A ring in which noise is neither clipped nor rounded away, because the paper has no ring.
            protocol={"name": self.protocol, "bits": 64, "clip": 1024.0, **sampled},
            privacy=None
            if self.epsilon is None
            else Privacy(
                epsilon=self.epsilon,
                delta=DELTA,
                clip=LIPSCHITZ,
                unit="sample",
                sigma=self.sigma,
                against="parties",  # Protection of sums, because under masks the server sees only sums.
            ),
        )


@dataclass(frozen=True)
class RiskResult:
    """Result of a run."""

    setting: RiskSetting
    excess: float
    """J(θ^T) − J*."""
    bound: float
    """Theorem 4's, with the σ that was used."""
    nothing: float
    """J(θ⁰) − J*: the excess without any training."""
    sigma: float
    spent: float
    """The largest ε that a user spent, by the ledger."""
    rho: float
    """Zero-concentrated privacy ρ of the user that spent most."""
    accuracy: float
    steepest: float
    """The largest length of ∇J_j at the start and at the end, which Theorem 4 assumes to be below G."""
    heard: float
    """The excess of the last average, which differs from `excess` if not all users continue from it."""

    @property
    def exact(self) -> float:
        """The exact ε of the noise, without a safety margin."""
        return exact_epsilon(self.rho)


@dataclass(frozen=True)
class RiskRuns:
    """Results of one setting for every seed. Splits, noise and summed users differ."""

    runs: tuple[RiskResult, ...]

    @property
    def setting(self) -> RiskSetting:
        """The setting, with the first seed."""
        return self.runs[0].setting

    @property
    def each(self) -> list[float]:
        """The excess of each run."""
        return [run.excess for run in self.runs]

    @property
    def excess(self) -> Estimate:
        """J(θ^T) − J*."""
        return Estimate.over(self.each)

    @property
    def bound(self) -> float:
        """Theorem 4's, mean over runs, whose Γ differ."""
        return fmean(run.bound for run in self.runs)

    @property
    def nothing(self) -> float:
        """The excess of θ⁰, mean over runs."""
        return fmean(run.nothing for run in self.runs)

    @property
    def sides(self) -> tuple[Estimate, Estimate, Estimate]:
        """The excess of θ⁰, the bound, and the excess, in the form that `TellingBound` compares."""
        return Estimate.certain(self.nothing), Estimate.certain(self.bound), self.excess

    @property
    def worst(self) -> RiskResult:
        """The run in which a user spent most privacy."""
        return max(self.runs, key=lambda run: run.rho)

    @property
    def accuracy(self) -> float:
        """Share of test samples that are classified correctly, mean over runs."""
        return fmean(run.accuracy for run in self.runs)

    @property
    def summary(self) -> str:
        """Noise, accuracy and ε in words."""
        return f"σ = {self.worst.sigma:.2g}, {self.accuracy:.1%} right; ε = {self.worst.spent:.3g} by the ledger"


@dataclass(frozen=True)
class TellingBound:
    """The excess is below Theorem 4's bound; not comparable if the bound is above the excess of θ⁰.

    Such a bound is not informative: a model without any training satisfies it.
    """

    reason: str = "Theorem 4 is an upper bound; above what θ⁰ loses nothing could break it"

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict on what θ⁰ loses, the bound and the excess."""
        if not isinstance(ours, tuple):
            raise TypeError("this rule compares three numbers")
        nothing, bound, excess = ours
        if bound.mean >= nothing.mean:
            return RowVerdict.NOT_COMPARABLE
        return Between(self.reason, high=bound.mean).judge(paper, excess)

    def describe(self) -> str:
        """Returns the rule in words."""
        return "the 95% interval of the third number is at most the second, if that is below the first"


def bound_row(which: str) -> DeclaredRow:
    """Declares the row of a setting that is compared with Theorem 4."""
    what = f"what θ⁰ loses, Theorem 4's bound, and the excess risk, {which}"
    return DeclaredRow(what, "the third is at most the second", TellingBound(), form=".1e")


def claimed_row(which: str, claimed: float = CLAIMED) -> DeclaredRow:
    """Returns the row of the ε that Theorem 1 claims."""
    return DeclaredRow(
        f"least ε of the noise, {which}",
        PaperNumber(claimed),
        Between("a claim of ε is refuted by a larger ε that no accountant can lower", high=claimed),
        form=".3g",
    )


ASSUMED = DeclaredRow(
    "longest ∇J_j of any user at the start and the end of any run",
    f"at most G = {LIPSCHITZ:g}",
    Between("Theorem 4 assumes it", high=LIPSCHITZ),
)


def run_algorithm_1(setting: RiskSetting, data: Dataset) -> RiskResult:
    """Runs Algorithm 1, with all users continuing from each average."""
    found = assemble_run(setting.scenario(), data=data, secret=REPEATED)
    last = list(found.rounds())[-1]
    theta = found.training.consensus()
    return _measure_result(setting, found, theta, theta, last.accuracy or 0.0)


def run_as_printed(setting: RiskSetting, data: Dataset) -> RiskResult:
    """Runs Algorithm 1 with lines 9 to 11 as printed: users that were not summed continue with their own models."""
    found = assemble_run(setting.scenario(), data=data, secret=REPEATED)
    cohort, users = found.training.cohort, range(setting.users)
    rng, summed = generator(setting.seed, "summed"), np.arange(setting.users)
    for number in range(1, found.scenario.rounds + 1):
        cohort.work(users, number)
        summed = rng.choice(setting.users, setting.summed or setting.users, replace=False)
        cohort.matrix[summed] = cohort.matrix[summed].mean(axis=0, dtype=np.float64)
    theta = cohort.matrix.mean(axis=0, dtype=np.float64)
    x, y = data.inputs(data.x_test), data.y_test
    score = cohort.model.evaluate(theta.astype(np.float32), x, y)
    return _measure_result(setting, found, theta, cohort.matrix[summed[0]], score.accuracy or 0.0)


def repeat_runs(
    setting: RiskSetting, data: Dataset, seeds: int, how: Callable[[RiskSetting, Dataset], RiskResult] | None = None
) -> RiskRuns:
    """Runs a setting once per seed."""
    return RiskRuns(tuple((how or run_algorithm_1)(replace(setting, seed=seed), data) for seed in range(seeds)))


def _measure_result(
    setting: RiskSetting, found: AssembledRun, theta: NDArray[np.floating], heard: NDArray[np.floating], accuracy: float
) -> RiskResult:
    risk = Risk.of(found.data, found.parts)
    start = np.zeros_like(risk.best)
    sigma = found.training.cohort.local.noise
    assumed = TheoremConstants(risk.gap, float(risk.best @ risk.best), len(risk.best))
    summed = setting.users if setting.summed is None else setting.summed
    limit = theorem_4(
        assumed, steps=setting.steps, every=setting.every, users=setting.users, summed=summed, sigma=sigma
    )
    ledger = found.ledger
    rho = 0.0 if ledger is None else max(map(ledger.rho, ledger.parties), default=0.0)
    spent = 0.0 if ledger is None else max(map(ledger.epsilon, ledger.parties), default=0.0)
    return RiskResult(
        setting,
        risk.excess(theta),
        limit,
        risk.excess(start),
        sigma,
        spent,
        rho,
        accuracy,
        risk.steepest(start, theta),
        risk.excess(heard),
    )


def assumption_row(found: Iterable[RiskRuns]) -> Row:
    """Returns whether J_j is G-Lipschitz at the models that were checked."""
    longest = max(run.steepest for each in found for run in each.runs)
    return ASSUMED.measure(Estimate.certain(longest), "with the gradient of λ N(θ) it could be up to 2 G somewhere")


def fit_power(places: Sequence[float], values: Sequence[float]) -> float | None:
    """Returns the power with which values grow, by least squares of logarithms; None if one is not positive."""
    if min(values) <= 0:
        return None
    return float(np.polyfit(np.log(places), np.log(values), 1)[0])
