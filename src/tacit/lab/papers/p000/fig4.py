"""Paper 000, Figure 4: mean squared error (MSE) of ADMM's average, by the number of iterations.

The paper averages ten checkpoints of a model among 9 peers, in groups of 3 with gap 4, in 1 to 7 iterations. The error
"decreases fast" and "after 4 iterations … drops below 1e-13". Because accuracy does not suffer from 2 iterations on,
all its other experiments use 2.

We run the deployed protocol on checkpoints of the paper's network for FEMNIST during training: the models that each of
9 peers contributes to a round of FedAvg. The results are compared with a formula for the error. With z the consensus
variable, w̄ the average and λ̄⁰ the mean of the peers' random dual variables,

    z¹ − w̄ = 2 λ̄⁰ / (ρ_1 (ρ_1 + 2)) − w̄ ρ_1 / (ρ_1 + 2),    z^i − w̄ = (z^{i−1} − w̄) ρ_i / (ρ_i + 2) for i > 1,

so the MSE falls by (ρ/(ρ+2))² in each iteration (Lemma II.2), until only the rounding of numbers in the ring is left.
Rounding z by e_i leaves Σλ at −n ρ_i e_i instead of zero. This enters the next z, times 2 ρ_i / (ρ' (ρ' + 2)) where ρ'
is the next ρ. If ρ falls, this factor is large, so y is stretched to fill the ring in every iteration.

After two iterations with a constant ρ, the error consists of 2 λ̄⁰/(2 + ρ)² and w̄ (ρ/(2 + ρ))², and no ρ makes both
small. So the paper's 2 iterations cannot have used a constant ρ. A decreasing ρ can give its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import fmean, stdev
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tacit import audit
from tacit.core.progress import Progress
from tacit.core.suite import Update
from tacit.lab.papers.p000.peers import Lines, PeerTask, local_work
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber, WithinFactor
from tacit.learn.random_streams import generator
from tacit.learn.training.assemble import assemble_run
from tacit.protocols.admm.settings import AdmmTerms
from tacit.runtime.simulation.simulator import Simulation

PEERS, ITERATIONS, CHECKPOINTS = 9, 7, 10
CLAIMED = 1e-13
"""Bound that the paper gives for the error after 4 iterations."""
CONSTANT = (1.0, 0.1, 0.01, 0.001)
FALLING = (3.0, 9e-4)
"""Penalty ρ of the first iteration, and of all others."""
BITS = (64, 32)
CLIP = 4.0
ENTRIES: dict[Scale, int] = {"small": 2_000, "paper": 100_000}
"""Entries of the network that are averaged, sampled once."""
TASKS: dict[Scale, PeerTask] = {
    "small": PeerTask("femnist", {"name": "femnist-cnn"}, local_work("rmsprop"), samples=450, tested=1, rounds=10),
    "paper": PeerTask("femnist", {"name": "femnist-cnn"}, local_work("rmsprop"), samples=None, tested=1, rounds=50),
}
"""Training from which checkpoints are taken at equal distances."""
HARMLESS = 1e-2
"""An MSE below this part of the mean square of the model's entries is considered harmless."""
CLOSE = 0.1
"""The largest part of the predicted MSE that rounding may contribute where the rate is measured."""

Models: TypeAlias = NDArray[np.float64]
"""Models, one row per peer."""
Rho: TypeAlias = float | tuple[float, float]
"""Penalty ρ: constant, or of the first iteration and of all others."""


def list_rhos(rho: Rho, iterations: int) -> tuple[float, ...]:
    """Returns ρ of each iteration."""
    first, later = rho if isinstance(rho, tuple) else (rho, rho)
    return (first, *[later] * (iterations - 1))


def train_checkpoints(task: PeerTask, entries: int) -> list[Models]:
    """Trains by FedAvg, and returns the models of the peers at several checkpoints, at some entries of the network."""
    training = assemble_run(task.scenario(PEERS, {"name": "fedavg"}), data=task.gather_data(PEERS)).training
    if training.shared is None:
        raise ValueError("FedAvg has a shared model")
    size = len(training.shared)
    chosen = np.sort(generator(0, "figure 4").choice(size, min(entries, size), replace=False))
    found, before = [], training.shared[chosen].astype(np.float64)
    for step in training.steps(task.rounds):
        if step.number % (task.rounds // CHECKPOINTS) == 0:
            found.append(np.stack([before + each.vector[chosen] for each in step.updates.values()]))
        before = training.shared[chosen].astype(np.float64)
    training.cohort.close()
    return found


def predict_mse(schedule: Sequence[float], average: NDArray[np.float64], peers: int, steps: Sequence[float]) -> float:
    """Returns the predicted MSE, given ρ of each iteration, w̄, and the rounding step in each iteration.

    λ⁰ is uniform in [0, 1). Each peer's part of z is rounded to a step, with a variance of step² / 12.
    """
    first, *later = schedule
    of_start, of_average = 2 / (first * (first + 2)), -first / (first + 2)
    of_rounding = [1.0]
    for before, rho in zip(schedule, later, strict=False):
        kept = rho / (rho + 2)
        of_start, of_average = of_start * kept, of_average * kept
        *earlier, last = [each * kept for each in of_rounding]
        of_rounding = [*earlier, last - 2 * before / (rho * (rho + 2)), 1.0]
    mean, square = 1 / 2, 1 / 4 + 1 / (12 * peers)
    left = of_start**2 * square + of_average**2 * float(np.mean(average**2))
    left += 2 * of_start * of_average * mean * float(np.mean(average))
    return left + peers / 12 * sum((part * step) ** 2 for part, step in zip(of_rounding, steps, strict=True))


def best_constant(average: NDArray[np.float64], peers: int = PEERS) -> tuple[float, float]:
    """Returns the constant ρ with the smallest MSE after two iterations, and that MSE, without any rounding."""
    rhos = np.geomspace(1e-3, 1e3, 601).tolist()
    error, rho = min((predict_mse((rho, rho), average, peers, (0.0, 0.0)), rho) for rho in rhos)
    return rho, error


@dataclass(frozen=True)
class MseCurve:
    """The MSE of one setting by iterations: measured at all checkpoints, and predicted."""

    rho: Rho
    bits: int
    runs: tuple[tuple[float, ...], ...]
    """The MSE of each checkpoint, by iterations."""
    law: tuple[float, ...]
    without: tuple[float, ...]
    """The prediction without rounding."""

    @property
    def name(self) -> str:
        """Name of the setting."""
        return write_setting(self.rho, self.bits)

    @property
    def measured(self) -> tuple[float, ...]:
        """Mean over all checkpoints, by iterations."""
        return tuple(map(fmean, self.runs))

    def after(self, iterations: int) -> tuple[float, ...]:
        """Returns the MSE of each checkpoint after the given number of iterations."""
        return self.runs[iterations - 1]

    def rates(self) -> list[float]:
        """Returns, for each checkpoint, the factor by which an iteration reduces the error, where rounding is
        negligible."""
        rate = final_rate(self.rho)
        visible = [i for i in range(1, len(self.law)) if self._follows_rate(i, rate)]
        if not visible:
            return []
        steps = [[log(after / before) / 2 for before, after in pairwise(run)] for run in zip(*self.runs, strict=True)]
        return [exp(fmean(each[i - 1] for i in visible)) for each in steps]

    def _follows_rate(self, i: int, rate: float) -> bool:
        return abs(self.law[i] / (self.law[0] * rate ** (2 * i)) - 1) < CLOSE


def measure_errors(rho: Rho, bits: int, brought: Sequence[Models], iterations: int) -> MseCurve:
    """Averages every checkpoint in 1, 2, … iterations, and returns the errors."""
    runs, law, without = [], [], []
    for count in range(1, iterations + 1):
        schedule = list_rhos(rho, count)
        off, expected, unrounded = [], [], []
        for number, each in enumerate(brought):
            simulation = Simulation.of(
                "admm",
                [f"p{place}" for place in range(len(each))],
                each.shape[1],
                seed=number,
                rho=schedule,
                bits=bits,
                clip=CLIP,
                allow_leaks=True,  # Beyond the gap peers learn each other's models; only errors are measured here.
            )
            out = simulation.average(dict(zip(simulation.parties, map(Update, each), strict=True)))
            average = each.mean(axis=0)
            off.append(float(np.mean((out.average[simulation.parties[0]] - average) ** 2)))
            expected.append(predict_mse(schedule, average, len(each), steps_of(simulation)))
            unrounded.append(predict_mse(schedule, average, len(each), [0.0] * count))
        runs.append(tuple(off))
        law.append(fmean(expected))
        without.append(fmean(unrounded))
    return MseCurve(rho, bits, tuple(runs), tuple(law), tuple(without))


def steps_of(simulation: Simulation) -> list[float]:
    """Returns the rounding step of y in each iteration: the step of the ring, divided by the stretch of y."""
    terms = cast(AdmmTerms, simulation.agreement.terms)
    return [simulation.agreement.ring().resolution / stretch for stretch in terms.stretches]


def safe_iterations() -> int:
    """Returns the number of iterations after which a curious peer still knows no other model, by the audit."""
    for count in range(1, ITERATIONS + 1):
        if audit("admm", parties=PEERS, coalition=["p0"], iterations=count, allow_leaks=True).exposed:
            return count - 1
    return ITERATIONS


# --- rows ----------------------------------------------------------------------------------------------------------


def write_setting(rho: Rho, bits: int) -> str:
    """Returns the name of a setting."""
    written = f"{rho[0]:g}, then {rho[1]:g}" if isinstance(rho, tuple) else f"{rho:g}"
    return f"ρ = {written}, {bits} bits"


def final_rate(rho: Rho) -> float:
    """Returns ρ/(ρ + 2) of all iterations but the first (Lemma II.2)."""
    last = rho[1] if isinstance(rho, tuple) else rho
    return last / (last + 2)


RATES = {
    rho: DeclaredRow(
        f"part of the error that an iteration leaves, {write_setting(rho, 64)}",
        PaperNumber(final_rate(rho)),
        WithinFactor(1 + CLOSE, "rounding adds less than that to the MSE where the rate is measured"),
        form=".3g",
    )
    for rho in (*CONSTANT, FALLING)
}
FOURTH = {
    (rho, bits): DeclaredRow(
        f"MSE after 4 iterations, {write_setting(rho, bits)}",
        f"below {CLAIMED:g}",
        Between("the paper's bound", high=CLAIMED),
        form=".1e",
    )
    for rho in (*CONSTANT[1:], FALLING)
    for bits in BITS
}
ENOUGH = Between(
    "the paper loses no accuracy with 2 iterations; an error of a tenth of the size of an entry is taken for harmless",
    high=HARMLESS,
)
BEST = DeclaredRow(
    "MSE after 2 iterations over the model's mean square, best constant ρ by the law",
    "small enough not to matter",
    ENOUGH,
    form=".2g",
)
SECOND = {
    (rho, bits): DeclaredRow(
        f"MSE after 2 iterations over the model's mean square, {write_setting(rho, bits)}",
        "small enough not to matter",
        ENOUGH,
        form=".2g",
    )
    for rho, bits in ((0.1, 64), (FALLING, 64), (FALLING, 32))
}
LAW = DeclaredRow(
    "largest distance of a mean MSE from the law", None, NotCompared("the law is ours, not the paper's"), "%", ".1f"
)
SAFE = DeclaredRow(
    "iterations after which a curious peer still recovers nobody's model (Theorem III.2)",
    PaperNumber(ITERATIONS),
    Near(0.0, "the audit computes it without chance"),
    form=".0f",
)


def rate_row(found: MseCurve) -> Row:
    """Returns the factor by which an iteration reduces the error."""
    declared, rates = RATES[found.rho], found.rates()
    if not rates:
        return declared.fail("rounding hides the rate at every iteration")
    return declared.measure(Estimate.over(rates, "checkpoints"), "Lemma II.2: ρ/(ρ + 2)")


def four_row(found: MseCurve) -> Row:
    """Returns the error after four iterations."""
    rounded = found.law[3] - found.without[3]
    cause = f"{found.bits} bits round it by {rounded:.0e}" if rounded > found.without[3] else "the law at this ρ"
    return FOURTH[found.rho, found.bits].measure(Estimate.over(found.after(4), "checkpoints"), cause)


def two_rows(table: Mapping[tuple[Rho, int], MseCurve], brought: Sequence[Models]) -> list[Row]:
    """Returns the errors after two iterations, which the paper uses everywhere else."""
    averages = [each.mean(axis=0) for each in brought]
    squares = [float(np.mean(average**2)) for average in averages]
    best = [best_constant(average, len(brought[0])) for average in averages]
    shares = [error / square for (_, error), square in zip(best, squares, strict=True)]
    rhos = sorted(rho for rho, _ in best)
    why = f"best ρ from {rhos[0]:.2g} to {rhos[-1]:.2g}; what is left of λ⁰ and of w̄ cannot both be small"
    rows = [BEST.measure(Estimate.over(shares, "checkpoints"), why)]
    whys = {
        (0.1, 64): "λ⁰ is left",
        (FALLING, 64): "but y¹ shows w up to λ⁰/3",
        (FALLING, 32): f"the rounding of the first z returns {FALLING[0] / FALLING[1]:,.0f} times as large",
    }
    for key, declared in SECOND.items():
        shares = [error / square for error, square in zip(table[key].after(2), squares, strict=True)]
        rows.append(declared.measure(Estimate.over(shares, "checkpoints"), whys[key]))
    return rows


def law_row(table: Sequence[MseCurve]) -> Row:
    """Returns the distance of the measurements from the prediction."""
    off = [abs(ours / law - 1) for each in table for ours, law in zip(each.measured, each.law, strict=True)]
    why = f"of {len(off)} means over {CHECKPOINTS} checkpoints, rounding in the ring included"
    return LAW.measure(Estimate.certain(100 * max(off)), why)


def chart_of(table: Mapping[tuple[Rho, int], MseCurve], bits: int) -> Chart:
    """Returns the figure for one ring size, with the prediction and the paper's bound as dashed lines."""
    iterations = list(range(1, ITERATIONS + 1))
    measured: Lines = {}
    dashed: Lines = {}
    spread = {}
    for rho in (*CONSTANT, FALLING):
        found = table[rho, bits]
        measured[found.name] = (iterations, found.measured)
        spread[found.name] = [stdev(each) for each in found.runs]
        dashed[f"law, {found.name}"] = (iterations, found.law)
    dashed[f"paper: below {CLAIMED:g} after 4"] = ([4, ITERATIONS], [CLAIMED, CLAIMED])
    return Chart(
        f"Error by iterations, {bits} bits",
        "iterations",
        "mean squared error (MSE)",
        measured | dashed,
        logarithmic=True,
        dashed=tuple(dashed),
        spread=spread,
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Trains checkpoints, and measures setting by setting."""
    progress("checkpoints", 0.0)
    brought = train_checkpoints(TASKS[scale], ENTRIES[scale])
    todo = [(rho, bits) for rho in (*CONSTANT, FALLING) for bits in BITS]
    table: dict[tuple[Rho, int], MseCurve] = {}
    for done, (rho, bits) in enumerate(todo):
        progress(write_setting(rho, bits), (1 + done) / (1 + len(todo)))
        table[rho, bits] = measure_errors(rho, bits, brought, ITERATIONS)
    progress("audit", 0.99)
    why = "by the audit; two y of one peer give its model, and the sums of groups help"
    rows = [
        *(rate_row(table[rho, 64]) for rho in RATES),
        law_row(list(table.values())),
        *(four_row(table[key]) for key in FOURTH),
        *two_rows(table, brought),
        SAFE.measure(Estimate.certain(safe_iterations()), why),
    ]
    progress("figure 4", 1.0)
    return Result(tuple(rows), tuple(chart_of(table, bits) for bits in BITS))


REPRODUCTION = Reproduction(
    name="000-fig4",
    title="Error of ADMM's average by the number of iterations",
    run=run,
    declared=(*RATES.values(), LAW, *FOURTH.values(), BEST, *SECOND.values(), SAFE),
    unstated=(
        "ρ: we run constant values of 1, 0.1, 0.01 and 0.001, and also 3 in the first iteration with 0.0009 in all "
        "others.",
        "Numbers of the curve: the text gives one bound. The chart shows it as a dashed line.",
    ),
    changed=(
        f"Checkpoints: one after each of {TASKS['small'].rounds} rounds of a training with {TASKS['small'].samples} "
        "samples. "
        "The paper has 351,333 samples and a checkpoint after every fifth of 50 rounds.",
        f"Entries: {ENTRIES['small']:,} of the network's 1,620,362, sampled once; {ENTRIES['paper']:,} at paper scale. "
        "The MSE is a mean over entries.",
        "Arithmetic: numbers travel in a ring of 64 or 32 bits. The paper uses floats.",
    ),
    extras=("torch",),
    data=("femnist",),
)
