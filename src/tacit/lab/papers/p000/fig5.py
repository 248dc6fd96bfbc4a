"""Paper 000, Figure 5: test accuracy round by round, with different numbers of ADMM iterations.

The paper trains on FEMNIST among 9 peers: "for ADMM iterations greater than 1, the estimation error due to early
termination does not adversely affect the test accuracy", and from there on it takes 2.

We train with the exact average (FedAvg), with ρ = 0.1 in 1 to 4 iterations, and with a ρ that falls, 3 and then 0.0009,
in 1 and 2. What an average is off by follows from the law of `000-fig4`: with a constant ρ, two iterations leave most
of a model buried under what is left of λ⁰. So the paper's figure cannot have had one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tacit.core.average import format_count
from tacit.core.progress import Progress, part_of_progress
from tacit.lab.papers.p000.peers import FEDAVG, AccuracyCurve, PeerTask, admm, local_work, train_peers
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row
from tacit.protocols.admm.settings import AdmmTerms

PEERS = 9
RHO, FALLING = 0.1, (3.0, 9e-4)
CONSTANT = (1, 2, 3, 4)
"""Iterations with a constant ρ; with one that falls, 1 and 2."""
CLOSE = 0.5
"""Points below FedAvg that do no harm."""
TASKS: dict[Scale, PeerTask] = {
    "small": PeerTask("femnist", {"name": "femnist-cnn"}, local_work("rmsprop"), samples=3000, tested=1000, rounds=8),
    "paper": PeerTask(
        "femnist", {"name": "femnist-cnn"}, local_work("rmsprop"), samples=None, tested=None, rounds=12, workers=2
    ),
}


@dataclass(frozen=True)
class IteratedTraining:
    """A setting of SecureD-FL and what came of it."""

    rho: tuple[float, ...]
    curve: AccuracyCurve
    off: tuple[float, float]
    """What the average is off by at most: so much, and by that part of itself."""

    @property
    def name(self) -> str:
        """What to call it."""
        many = format_count(len(self.rho), "iteration")
        return f"{many}, ρ = {' then '.join(f'{rho:g}' for rho in dict.fromkeys(self.rho))}"


def list_schedules() -> list[tuple[float, ...]]:
    """Returns ρ of each iteration, for all that is tried."""
    return [*((RHO,) * count for count in CONSTANT), *(FALLING[:count] for count in (1, 2))]


def train_all(task: PeerTask, progress: Progress) -> tuple[AccuracyCurve, list[IteratedTraining]]:
    """Returns how accurate peers become with the exact average, and with each number of iterations."""
    data, todo = task.gather_data(PEERS), list_schedules()

    def part(name: str, done: int) -> Progress:
        return part_of_progress(progress, done / (len(todo) + 1), (done + 1) / (len(todo) + 1), f"{name}: ")

    exact, _ = train_peers(task, data, PEERS, {"name": "fedavg"}, part(FEDAVG, 0))
    found = []
    for done, rho in enumerate(todo, start=1):
        curve, prepared = train_peers(task, data, PEERS, admm(rho), part(f"ρ = {rho}", done))
        terms = None if prepared.checked is None else prepared.checked.terms
        found.append(IteratedTraining(rho, curve, cast(AdmmTerms, terms).off))
    return exact, found


def row_of(found: IteratedTraining, exact: AccuracyCurve) -> Row:
    """Returns how good it is, against the exact average: harmless from 2 iterations on, says the paper."""
    less = found.curve.best - exact.best
    harmless = less >= -CLOSE and not found.curve.wrong
    drawn, rest = found.off
    return unruled_row(
        f"accuracy with {found.name}, less {FEDAVG}",
        "hardly any difference" if len(found.rho) > 1 else "lower",
        f"{less:+.2f} points ({found.curve.best:.2f} %)",
        harmless is (len(found.rho) > 1),
        f"an entry is off by up to {drawn:.1g}, and by {rest:.1g} of itself"
        + (f"; {found.curve.wrong}" if found.curve.wrong else ""),
    )


def chart_of(exact: AccuracyCurve, found: Mapping[str, AccuracyCurve]) -> Chart:
    """Returns the figure."""
    lines = {FEDAVG: exact.line, **{name: curve.line for name, curve in found.items()}}
    return Chart(f"Test accuracy, femnist, {PEERS} peers", "round", "accuracy in %", lines, dashed=(FEDAVG,))


def run(scale: Scale, progress: Progress) -> Result:
    """Trains with one number of iterations after the other."""
    task = TASKS[scale]
    exact, found = train_all(task, progress)
    told = f"{task.samples:,} samples" if task.samples else "all samples there are"
    first = unruled_row(
        f"{FEDAVG}, femnist, {PEERS} peers", "", f"{exact.best:.2f} %", None, f"{told}, {task.rounds} rounds"
    )
    chart = chart_of(exact, {each.name: each.curve for each in found})
    progress("figure 5", 1.0)
    return Result((first, *(row_of(each, exact) for each in found)), (chart,))


REPRODUCTION = Reproduction(
    name="000-fig5",
    title="Test accuracy by the number of ADMM iterations",
    run=run,
    unstated=(
        f"ρ: {RHO:g} in {CONSTANT[0]} to {CONSTANT[-1]} iterations, and {FALLING[0]:g} then {FALLING[1]:g} in 1 and 2",
        "which numbers of iterations the figure has",
        "what `000-table2` lists, for the task is the same",
        "of FEMNIST, 21,643 digits of 299 writers are to be had here, of 351,333 of 3,483; the paper has 50 rounds",
    ),
    extras=("torch",),
    data=("femnist",),
)
