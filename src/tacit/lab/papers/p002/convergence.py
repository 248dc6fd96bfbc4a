"""Paper 002, convergence guarantee: its bound, compared with runs of a task whose constants are known.

The slide: for ρ-smooth, μ-strongly convex losses, gradients of variance σ_i² and squared norm at most G²,

    E[L(x^(J))] − L* ≤ ρ/(γ + (C/K) J E − 1) · (2 (α + β)/μ² + γ/2 E‖x⁰ − x*‖²),

α = 1/N Σ σ_i² + 6 ρ Γ + 8 (E − 1)² G², β = 4 (N − K) E² G²/(K (N − 1)), γ = max{8 ρ/μ, E}; "C controls the rate".

Losses are L_i(x) = a_i/2 ‖x − c_i‖², with full gradients. So ρ, μ, Γ and x* are known, σ_i is 0, and steps of at most
1/ρ stay in the convex hull of x⁰ and all c_i, which bounds G. The policies of `secagg` choose participants. Everything
in the bound is computed before the run.

The slide prints Γ = L* − Σ L_i and ‖x⁰ − x*‖ without a square. A constant added to every loss changes no gradient, but
makes this Γ arbitrarily negative, so the printed bound cannot hold. We use 1/N Σ L_i* and the square, as in Li et al.
2019, on which it builds. The proof assumes unbiased participation. With the paper's own different p_i, users who are
absent more often are summed less often, and Random converges to another point than x*.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress
from tacit.designs import Batches, Participation, Partition, Random
from tacit.lab.papers.p002.cardinality import expected_cardinality, play_rounds
from tacit.lab.papers.reproduction import DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, NotCompared
from tacit.learn.random_streams import generator

Array = NDArray[np.float64]

USERS, PER_ROUND, ENTRIES = 40, 8, 5
STRONG, SMOOTH = 1.0, 1.5
"""Constants μ and ρ of the convergence bound."""
SHIFT = 3.0
"""Distance along one axis, in both directions, of the optima of rarely and often available users."""
EQUAL, CHANCES = 0.3, (0.1, 0.2, 0.3, 0.4, 0.5)
ROUNDS: dict[Scale, int] = {"small": 4_000, "paper": 20_000}
SEEDS: dict[Scale, int] = {"small": 3, "paper": 5}
POLICIES: dict[str, tuple[Participation, int]] = {
    "Random": (Random(PER_ROUND), 1),
    "Batches, T = 2": (Batches(PER_ROUND, 2), 2),
    "Partition": (Partition(PER_ROUND), PER_ROUND),
}
STEPS = (1, 5)
"""E."""


@dataclass(frozen=True)
class QuadraticTask:
    """Losses a_i/2 ‖x − c_i‖² of all users, and the start."""

    a: Array
    c: Array
    start: Array

    @classmethod
    def sample(cls) -> "QuadraticTask":
        """Returns the task: availability p_i and optimum c_i are related."""
        rng = generator(0, "quadratic task")
        c = rng.normal(0, 0.5, (USERS, ENTRIES))
        c[:, 0] += SHIFT * np.linspace(-1, 1, USERS)
        order = rng.permutation(USERS)
        return cls(rng.uniform(STRONG, SMOOTH, USERS), c[order], np.full(ENTRIES, 3.0))

    @property
    def chances(self) -> Array:
        """p_i from 0.1 to 0.5, larger for optima farther along the axis."""
        ranks = np.argsort(np.argsort(self.c[:, 0]))
        return np.array(CHANCES)[ranks * len(CHANCES) // USERS]

    @cached_property
    def best(self) -> Array:
        """x*."""
        return np.asarray(self.a @ self.c / self.a.sum())

    def loss(self, x: Array) -> float:
        """Returns L(x) = 1/N Σ L_i(x)."""
        return float(np.mean(self.a / 2 * ((x - self.c) ** 2).sum(axis=1)))

    def excess(self, x: Array) -> float:
        """Returns L(x) − L*."""
        return self.loss(x) - self.loss(self.best)

    @cached_property
    def gradient_bound(self) -> float:
        """G: the largest length of a gradient in the convex hull of the start and all c_i."""
        points = np.vstack([self.c, self.start])
        return SMOOTH * float(np.linalg.norm(points[:, None] - points[None], axis=2).max())

    def bound(self, per_round: int, taken: float, rounds: int, steps: int, constant: float | None = None) -> float:
        """Returns the bound after J rounds.

        Args:
            per_round: K.
            taken: C, the users that take part in a round on average.
            rounds: J.
            steps: E, local steps in a round.
            constant: With a number, Γ is as printed, after that number was added to every loss.
        """
        n = len(self.a)
        gap = self.loss(self.best)  # The least value of every L_i is 0.
        if constant is not None:
            gap = gap + constant - n * constant
        square = self.gradient_bound**2
        alpha = 6 * SMOOTH * gap + 8 * (steps - 1) ** 2 * square
        beta = 4 * (n - per_round) * steps**2 * square / (per_round * (n - 1))
        gamma = max(8 * SMOOTH / STRONG, steps)
        distance = float(((self.start - self.best) ** 2).sum())
        rest = 2 * (alpha + beta) / STRONG**2 + gamma / 2 * distance
        return SMOOTH / (gamma + taken / per_round * rounds * steps - 1) * rest


def descend(task: QuadraticTask, taken: NDArray[np.bool_], steps: int) -> Array:
    """Returns x^(J) after federated averaging over the participants, with η_t = 2/(μ (γ + t))."""
    x, t = task.start, 0
    gamma = max(8 * SMOOTH / STRONG, steps)
    for members in taken:
        if not members.any():
            continue
        models = np.repeat(x[None], int(members.sum()), axis=0)
        for _ in range(steps):
            models = models - 2 / (STRONG * (gamma + t)) * task.a[members, None] * (models - task.c[members])
            t += 1
        x = models.mean(axis=0)
    return np.asarray(x)


TASK = QuadraticTask.sample()
AVAILABILITY: dict[str, Array] = {f"p = {EQUAL:g}": np.full(USERS, EQUAL), "p_i from 0.1 to 0.5": TASK.chances}


def declare(policy: str, who: str, steps: int, scale: Scale) -> DeclaredRow:
    """Declares the row of a setting, with the bound in its rule; without a rule where the bound is not informative."""
    rounds = ROUNDS[scale]
    bound = TASK.bound(PER_ROUND, _cardinality(policy, who), rounds, steps)
    start = TASK.excess(TASK.start)
    says = bound < start
    return DeclaredRow(
        f"L(x) − L* after {rounds:,} rounds, {policy}, {who}, E = {steps}",
        f"at most {bound:.2g}",
        Between("the bound, with every constant computed before the run", high=bound)
        if says
        else NotCompared(f"the bound is above the {start:.2g} of the start, and says nothing"),
        form=".2g",
        identity=f"L(x) − L* at the end, {policy}, {who}, E = {steps}",
    )


def _cardinality(policy: str, who: str) -> float:
    _, privacy = POLICIES[policy]
    return expected_cardinality(AVAILABILITY[who], PER_ROUND, privacy)


def rate_row(scale: Scale) -> DeclaredRow:
    """Declares the row on the effect of C."""
    return DeclaredRow(
        f"excess of Partition by that of Random after {ROUNDS[scale]:,} rounds, p = {EQUAL:g}, E = 1",
        "more: C is smaller",
        Between("a smaller C is a slower rate, so the excess is larger", low=1.0),
        form=".2g",
        identity="excess of Partition by that of Random at the end",
    )


PRINTED = DeclaredRow(
    "the bound with Γ as printed, 100 added to every loss",
    "at least L(x) − L*, which is not negative",
    Between("a bound on what is never negative is not negative", low=0.0),
    form=".2g",
)
SETTINGS = [(policy, who, steps) for who in AVAILABILITY for policy in POLICIES for steps in STEPS]


def run(scale: Scale, progress: Progress) -> Result:
    """Runs every policy with equal and with different users."""
    rounds, seeds = ROUNDS[scale], SEEDS[scale]
    found: dict[tuple[str, str, int], list[float]] = {}
    rows: list[Row] = []
    tables = {}
    for done, (policy, who, steps) in enumerate(SETTINGS):
        progress(f"{policy}, {who}, E = {steps}", done / len(SETTINGS))
        if (policy, who) not in tables:
            chosen = POLICIES[policy][0]
            tables[policy, who] = [play_rounds(chosen, AVAILABILITY[who], rounds, seed) for seed in range(seeds)]
        each = [TASK.excess(descend(TASK, taken, steps)) for taken in tables[policy, who]]
        found[policy, who, steps] = each
        c = _cardinality(policy, who)
        why = f"C = {c:.2f} of K = {PER_ROUND}; {TASK.excess(TASK.start):.3g} at the start"
        rows.append(declare(policy, who, steps, scale).measure(Estimate.over(each), why))
    equal = f"p = {EQUAL:g}"
    ratio = np.array(found["Partition", equal, 1]) / np.mean(found["Random", equal, 1])
    rows.append(rate_row(scale).measure(Estimate.over(ratio.tolist())))
    printed = TASK.bound(PER_ROUND, _cardinality("Random", equal), rounds, 1, constant=100.0)
    rows.append(PRINTED.measure(Estimate.certain(printed), "read 1/N Σ L_i* for Σ L_i, as the other rows do"))
    progress("convergence", 1.0)
    return Result(tuple(rows))


SCALES: tuple[Scale, ...] = ("small", "paper")
REPRODUCTION = Reproduction(
    name="002-convergence",
    title="The convergence bound, beside runs of a task whose constants are known",
    run=run,
    declared=(
        *(declare(*setting, scale) for scale in SCALES for setting in SETTINGS),
        *map(rate_row, SCALES),
        PRINTED,
    ),
    unstated=(
        "Task: quadratic losses of 40 users, K = 8, 5 entries, full gradients.",
        "Steps: η_t = 2/(μ (γ + t)), those of Li et al. 2019, counted over rounds with a sum.",
        "Which users have which p_i: those whose optimum lies farther along an axis are absent more often.",
        "C where users differ: by the probability that enough batches are available.",
    ),
    changed=(
        "Γ with 1/N Σ L_i* and ‖x⁰ − x*‖². The paper prints Σ L_i and no square; a row of its own has that form.",
    ),
)
