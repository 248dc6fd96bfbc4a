"""Paper 000, Figure 5: test accuracy after each round, with different numbers of ADMM iterations.

The paper trains on FEMNIST among 9 peers: "for ADMM iterations greater than 1, the estimation error due to early
termination does not adversely affect the test accuracy". From there on it uses 2.

We train with the exact average (FedAvg), with ρ = 0.1 in 1, 2 and 4 iterations, and with a decreasing ρ, 3 and then
0.0009, in 1 and 2. The error of an average follows the formula of `000-fig4`. With a constant ρ, after two iterations
the remainder of λ⁰ is larger than most of the model. So the paper's figure cannot have used a constant ρ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tacit.core.average import format_count
from tacit.core.progress import Progress, ignore_progress
from tacit.lab.papers.p000.peers import (
    FEDAVG,
    AccuracyCurve,
    Lines,
    PeerTask,
    admm,
    average_curves,
    local_work,
    train_peers,
)
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, NotCompared, PaperNumber, SameSign
from tacit.protocols.admm.settings import AdmmTerms

PEERS, SEEDS = 9, 3
RHO, FALLING = 0.1, (3.0, 9e-4)
CONSTANT = (1, 2, 4)
"""Iterations with a constant ρ. A decreasing ρ is run with 1 and 2."""
TABLE = 99.53
"""Best accuracy of SecureD-FL with 2 iterations, 9 peers, in Table II."""
TASKS: dict[Scale, PeerTask] = {
    "small": PeerTask(
        "femnist", {"name": "femnist-cnn", "hidden": 64}, local_work("rmsprop"), samples=1200, tested=1000, rounds=4
    ),
    "paper": PeerTask(
        "femnist", {"name": "femnist-cnn"}, local_work("rmsprop"), samples=None, tested=None, rounds=12, workers=2
    ),
}


def list_schedules() -> list[tuple[float, ...]]:
    """Returns ρ of each iteration for all settings."""
    return [*((RHO,) * count for count in CONSTANT), *(FALLING[:count] for count in (1, 2))]


def write_schedule(rho: tuple[float, ...]) -> str:
    """Returns the name of a setting."""
    return f"{format_count(len(rho), 'iteration')}, ρ = {' then '.join(f'{each:g}' for each in dict.fromkeys(rho))}"


def declare_schedule(rho: tuple[float, ...]) -> DeclaredRow:
    """Declares the row of a setting. The paper says that more than one iteration is harmless."""
    what = f"accuracy with {write_schedule(rho)}, minus {FEDAVG}"
    if len(rho) == 1:
        return DeclaredRow(
            what, "lower", SameSign("the paper names 1 as the number that does harm", -1), "points", "+.2f"
        )
    rule = Between('"negligible", and in all cases of Table II "less than 1%"', low=-1.0, high=1.0)
    return DeclaredRow(what, "negligible", rule, "points", "+.2f")


EXACT = DeclaredRow(
    f"{FEDAVG}, femnist, {PEERS} peers",
    PaperNumber(99.52, 0.005),
    NotCompared("network, number of samples and rounds are others"),
    "%",
)
DECLARED = {rho: declare_schedule(rho) for rho in list_schedules()}


@dataclass(frozen=True)
class IteratedTraining:
    """A setting of SecureD-FL and its curves, one for each seed."""

    rho: tuple[float, ...]
    curves: Sequence[AccuracyCurve]
    off: tuple[float, float]
    """Largest error of an average: absolute, and relative to an entry."""


def train_all(task: PeerTask, seeds: int, progress: Progress) -> tuple[list[AccuracyCurve], list[IteratedTraining]]:
    """Returns the curves with the exact average, and with each number of iterations."""
    todo = list_schedules()
    exact: list[AccuracyCurve] = []
    curves: dict[tuple[float, ...], list[AccuracyCurve]] = {rho: [] for rho in todo}
    off: dict[tuple[float, ...], tuple[float, float]] = {}
    for seed in range(seeds):
        data = task.gather_data(PEERS, seed)
        progress(f"seed {seed}", seed / seeds)
        exact.append(train_peers(task, data, PEERS, {"name": "fedavg"}, ignore_progress, seed)[0])
        for done, rho in enumerate(todo, start=1):
            progress(f"seed {seed}, {write_schedule(rho)}", (seed + done / (1 + len(todo))) / seeds)
            curve, prepared = train_peers(task, data, PEERS, admm(rho), ignore_progress, seed)
            terms = None if prepared.checked is None else prepared.checked.terms
            curves[rho].append(curve)
            off[rho] = cast(AdmmTerms, terms).off
    return exact, [IteratedTraining(rho, curves[rho], off[rho]) for rho in todo]


def row_of(found: IteratedTraining, exact: Sequence[AccuracyCurve]) -> Row:
    """Returns the accuracy compared with the exact average, seed by seed."""
    declared = DECLARED[found.rho]
    if wrong := next((curve.wrong for curve in found.curves if curve.wrong), ""):
        return declared.fail(wrong)
    less = [ours.best - theirs.best for ours, theirs in zip(found.curves, exact, strict=True)]
    drawn, rest = found.off
    return declared.measure(Estimate.over(less), f"an entry is off by up to {drawn:.1g}, and by {rest:.1g} of itself")


def chart_of(exact: Sequence[AccuracyCurve], found: Sequence[IteratedTraining], rounds: int) -> Chart:
    """Returns the figure, with the paper's best accuracy as a dashed line."""
    lines: Lines = {}
    spread = {}
    lines[FEDAVG], spread[FEDAVG] = average_curves(exact)
    for each in found:
        name = write_schedule(each.rho)
        lines[name], spread[name] = average_curves(each.curves)
    paper: Lines = {"paper, best with 2 iterations": ([1, rounds], [TABLE, TABLE])}
    title = f"Test accuracy, femnist, {PEERS} peers"
    return Chart(title, "round", "accuracy in %", lines | paper, dashed=tuple(paper), spread=spread)


def run(scale: Scale, progress: Progress) -> Result:
    """Trains with one number of iterations after the other."""
    task = TASKS[scale]
    exact, found = train_all(task, SEEDS, progress)
    told = f"{task.samples:,} samples" if task.samples else "all samples there are"
    first = EXACT.measure(Estimate.over([curve.best for curve in exact]), f"{told}, {task.rounds} rounds")
    progress("figure 5", 1.0)
    return Result((first, *(row_of(each, exact) for each in found)), (chart_of(exact, found, task.rounds),))


REPRODUCTION = Reproduction(
    name="000-fig5",
    title="Test accuracy by the number of ADMM iterations",
    run=run,
    declared=(EXACT, *DECLARED.values()),
    unstated=(
        f"ρ: {RHO:g} in {CONSTANT[0]} to {CONSTANT[-1]} iterations, and {FALLING[0]:g} then {FALLING[1]:g} in 1 and 2.",
        "Iterations: the paper does not state which numbers of iterations the figure has, nor their accuracies.",
        "The task is that of `000-table2`, so its list applies here too.",
    ),
    changed=(
        f"Samples at small scale: {TASKS['small'].samples:,}, with {TASKS['small'].rounds} rounds and 64 of 512 "
        "hidden units.",
        f"Samples at paper scale: all 21,643 digits of 299 writers, with {TASKS['paper'].rounds} rounds.",
        "Samples in the paper: 351,333 digits of 3,483 writers, with 50 rounds.",
        f"Seeds: {SEEDS}; the paper states one run.",
    ),
    extras=("torch",),
    data=("femnist",),
)
