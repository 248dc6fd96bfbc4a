"""Paper 000, Figure 4: how far ADMM's average is off, as a mean squared error (MSE), by the number of iterations.

The paper averages ten checkpoints of a model among 9 peers, in groups of 3 with gap 4, in 1 to 7 iterations. The error
"decreases fast" and "after 4 iterations … drops below 1e-13"; since accuracy does not suffer from 2 iterations on, all
its other experiments take 2.

We run the deployed protocol, and hold it against the law of its error. With z the consensus variable, w̄ the average
and λ̄⁰ the mean of the dual variables that peers draw,

    z¹ − w̄ = 2 λ̄⁰ / (ρ_1 (ρ_1 + 2)) − w̄ ρ_1 / (ρ_1 + 2),    z^i − w̄ = (z^{i−1} − w̄) ρ_i / (ρ_i + 2) for i > 1,

so the MSE falls by (ρ/(ρ+2))² in each iteration (Lemma II.2), until what is left is that numbers in the ring are
rounded. Rounding z by e_i leaves Σλ at −n ρ_i e_i and not at zero, which is in the next z, times 2 ρ_i / (ρ' (ρ' + 2))
where ρ' is the next ρ. Where ρ falls that is large, so y is stretched to fill the ring in every iteration.

After two iterations with a constant ρ, 2 λ̄⁰/(2 + ρ)² and w̄ (ρ/(2 + ρ))² are left, and no ρ makes both small. So the
2 iterations of the paper cannot have had a constant ρ; one that falls can do it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, nan
from statistics import fmean
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tacit import audit
from tacit.core.progress import Progress
from tacit.core.suite import Update
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row
from tacit.learn.random_streams import generator
from tacit.protocols.admm.settings import AdmmTerms
from tacit.runtime.simulation.simulator import Simulation

PEERS, ITERATIONS, CHECKPOINTS = 9, 7, 10
CLAIMED = 1e-13
"""What the error is below after 4 iterations."""
CONSTANT = (1.0, 0.1, 0.01, 0.001)
FALLING = (3.0, 9e-4)
"""Penalty ρ of the first iteration, and of all others."""
BITS = (64, 32)
CLIP = 4.0
MODEL, APART = 0.05, 0.01
"""Standard deviations of an entry of a model, and of what peers' models differ by."""
ENTRIES: dict[Scale, int] = {"small": 5_000, "paper": 100_000}
HARMLESS = 1e-2
"""An MSE of that part of the mean square of the model's entries cannot matter."""
CLOSE = 0.1

Models: TypeAlias = NDArray[np.float64]
"""A row for each peer."""


def list_rhos(rho: float | tuple[float, float], iterations: int) -> tuple[float, ...]:
    """Returns ρ of each iteration."""
    first, later = rho if isinstance(rho, tuple) else (rho, rho)
    return (first, *[later] * (iterations - 1))


def make_models(checkpoint: int, entries: int) -> Models:
    """Returns what peers bring: a model of which each has a version of its own."""
    rng = generator(checkpoint, "figure 4")
    return rng.normal(0, MODEL, entries) + rng.normal(0, APART, (PEERS, entries))


def predict_mse(schedule: Sequence[float], average: NDArray[np.float64], peers: int, steps: Sequence[float]) -> float:
    """Returns the MSE to expect, for ρ of each iteration, w̄, and the step that numbers are rounded to in each.

    λ⁰ is uniform in [0, 1). Each peer's part of z is rounded to a step, by a variance of step² / 12.
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
    """The MSE of one setting by iterations: over all checkpoints, and by the law."""

    rho: float | tuple[float, float]
    bits: int
    measured: tuple[float, ...]
    law: tuple[float, ...]
    without: tuple[float, ...]
    """By the law, without any rounding."""

    @property
    def name(self) -> str:
        """What to call it."""
        rho = f"{self.rho[0]:g}, then {self.rho[1]:g}" if isinstance(self.rho, tuple) else f"{self.rho:g}"
        return f"ρ = {rho}, {self.bits} bits"

    def after(self, iterations: int) -> float:
        """Returns the MSE after so many iterations."""
        return self.measured[iterations - 1]


def measure_errors(rho: float | tuple[float, float], bits: int, brought: Sequence[Models], iterations: int) -> MseCurve:
    """Averages every checkpoint in 1, 2, … iterations, and returns how far off that was."""
    measured, law, without = [], [], []
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
                allow_leaks=True,  # beyond the gap peers learn each other's models; here errors are measured
            )
            out = simulation.average(dict(zip(simulation.parties, map(Update, each), strict=True)))
            average = each.mean(axis=0)
            off.append(float(np.mean((out.average[simulation.parties[0]] - average) ** 2)))
            expected.append(predict_mse(schedule, average, len(each), steps_of(simulation)))
            unrounded.append(predict_mse(schedule, average, len(each), [0.0] * count))
        measured.append(fmean(off))
        law.append(fmean(expected))
        without.append(fmean(unrounded))
    return MseCurve(rho, bits, tuple(measured), tuple(law), tuple(without))


def steps_of(simulation: Simulation) -> list[float]:
    """Returns to which steps y is rounded in each iteration: those of the ring, less what y is stretched by."""
    terms = cast(AdmmTerms, simulation.agreement.terms)
    return [simulation.agreement.ring().resolution / stretch for stretch in terms.stretches]


def safe_iterations() -> int:
    """Returns after how many iterations a curious peer still knows nobody's model, by the audit."""
    for count in range(1, ITERATIONS + 1):
        if audit("admm", parties=PEERS, coalition=["p0"], iterations=count, allow_leaks=True).exposed:
            return count - 1
    return ITERATIONS


# --- rows ----------------------------------------------------------------------------------------------------------


def rate_row(found: MseCurve) -> Row:
    """Returns what part of the error an iteration leaves, where the ring still tells it from rounding."""
    last = found.rho[1] if isinstance(found.rho, tuple) else found.rho
    rate = last / (last + 2)
    # By the law rounding shows in the rest.
    steps = [
        log(after / before) / 2
        for i, (before, after) in enumerate(pairwise(found.measured), start=1)
        if abs(found.law[i] / (found.law[0] * rate ** (2 * i)) - 1) < CLOSE
    ]
    measured = exp(fmean(steps)) if steps else nan
    return unruled_row(
        f"part of the error that an iteration leaves, {found.name}",
        f"{rate:.3g}",
        f"{measured:.3g}",
        abs(measured / rate - 1) <= CLOSE,
        f"Lemma II.2: ρ/(ρ+2); mean of {len(steps)} iterations",
    )


def four_row(found: MseCurve) -> Row:
    """Returns the error after four iterations."""
    error = found.after(4)
    rounded = found.law[3] - found.without[3]
    cause = f"{found.bits} bits round it by {rounded:.0e}" if rounded > found.without[3] else "by the law, at this ρ"
    why = cause if error >= CLAIMED else ""
    return unruled_row(
        f"MSE after 4 iterations, {found.name}", f"below {CLAIMED:g}", f"{error:.1e}", error < CLAIMED, why
    )


def two_rows(table: Mapping[tuple[float | tuple[float, float], int], MseCurve], brought: Sequence[Models]) -> list[Row]:
    """Returns the errors after two iterations, which the paper takes everywhere else."""
    average = brought[0].mean(axis=0)
    square = float(np.mean(average**2))
    rho, error = best_constant(average, len(brought[0]))
    usual = table[0.1, 64].after(2)
    found = [
        (
            f"ρ = {rho:.2g}, the best constant one, by the law",
            error,
            "what is left of λ⁰ and of w̄ cannot both be small",
        ),
        ("ρ = 0.1", usual, "λ⁰ is left"),
        (table[FALLING, 64].name, table[FALLING, 64].after(2), "but y¹ shows w but for λ⁰/3"),
        (
            table[FALLING, 32].name,
            table[FALLING, 32].after(2),
            f"what the first z was rounded by comes back {FALLING[0] / FALLING[1]:,.0f} times as large, but is little",
        ),
    ]
    return [
        unruled_row(
            f"MSE after 2 iterations, {name}",
            "small enough not to matter",
            f"{error:.1e}, {error / square:.2g} of the model's own mean square",
            error <= HARMLESS * square,
            why,
        )
        for name, error, why in found
    ]


def law_row(table: Sequence[MseCurve]) -> Row:
    """Returns how far from the law the measurements are."""
    off = [abs(ours / law - 1) for each in table for ours, law in zip(each.measured, each.law, strict=True)]
    return unruled_row(
        "how far measured errors are from the law, at most",
        "",
        f"{max(off):.0%}",
        None,
        f"of {len(off)} means over {CHECKPOINTS} checkpoints, rounding in the ring included",
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Measures setting by setting."""
    brought = [make_models(number, ENTRIES[scale]) for number in range(CHECKPOINTS)]
    todo = [(rho, bits) for rho in (*CONSTANT, FALLING) for bits in BITS]
    table: dict[tuple[float | tuple[float, float], int], MseCurve] = {}
    for done, (rho, bits) in enumerate(todo):
        progress(f"ρ = {rho}, {bits} bits", done / len(todo))
        table[rho, bits] = measure_errors(rho, bits, brought, ITERATIONS)
    progress("audit", 0.99)
    safe = safe_iterations()
    rows = [
        *(rate_row(table[rho, 64]) for rho in (*CONSTANT, FALLING)),
        law_row(list(table.values())),
        *(four_row(table[rho, bits]) for rho in (*CONSTANT[1:], FALLING) for bits in BITS),
        *two_rows(table, brought),
        unruled_row(
            "iterations that show a curious peer nobody's model (Theorem III.2)",
            str(ITERATIONS),
            str(safe),
            safe >= ITERATIONS,
            "by the audit; two y of one peer give its model, and the sums of groups help",
        ),
    ]
    iterations = list(range(1, ITERATIONS + 1))
    charts = [
        Chart(
            f"Error by iterations, {bits} bits",
            "iterations",
            "mean squared error (MSE)",
            {
                name: (iterations, values)
                for rho in (*CONSTANT, FALLING)
                for name, values in (
                    (table[rho, bits].name, table[rho, bits].measured),
                    (f"law, {table[rho, bits].name}", table[rho, bits].law),
                )
            },
            logarithmic=True,
            dashed=tuple(f"law, {table[rho, bits].name}" for rho in (*CONSTANT, FALLING)),
        )
        for bits in BITS
    ]
    progress("figure 4", 1.0)
    return Result(tuple(rows), tuple(charts))


REPRODUCTION = Reproduction(
    name="000-fig4",
    title="Error of ADMM's average by the number of iterations",
    run=run,
    unstated=(
        "ρ: 1, 0.1, 0.01 and 0.001, and 3 in the first iteration and 0.0009 in all others",
        "the models: the paper takes ten checkpoints of a CNN in training; we draw entries with standard deviation "
        f"{MODEL:g}, and {APART:g} from peer to peer ({ENTRIES['small']:,} of them, {ENTRIES['paper']:,} at paper "
        "scale), for by the law nothing but the mean square of w̄ matters, and that hardly",
        "how numbers travel: in a ring of 64 or 32 bits here, in floats there",
    ),
)
