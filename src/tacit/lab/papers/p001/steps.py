"""Paper 001, Figure 3: how "the error is equal to 0 after around 20 rounds" depends on the step sizes.

The paper does not state η_t. We run PPSGD on its five clients with six schedules, among them that of the paper which
proposed PSGD (Nedić and Olshevsky 2015), 1/√t, and count as 0 what cannot be seen in the figure (`fig3.ALLOWED`).
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress
from tacit.lab.attacks.traffic_series import ALPHA, BETA, LINKS, Losses
from tacit.lab.papers.p001.fig3 import ALLOWED, OPTIMUM, loss
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Scale
from tacit.lab.papers.rules import Between, Estimate
from tacit.learn.random_streams import generator

Array: TypeAlias = NDArray[np.float64]

RUNS: dict[Scale, int] = {"small": 200, "paper": 2_000}
SCHEDULES: Mapping[str, Callable[[int], float]] = {
    "1/(2t)": lambda t: 1 / (2 * t),
    "1/t": lambda t: 1 / t,
    "1/(4t)": lambda t: 1 / (4 * t),
    "1/√t": lambda t: t**-0.5,
    "1/(4√t)": lambda t: t**-0.5 / 4,
    "0.05": lambda _: 0.05,
}
"""Step sizes η_t by name."""


def run_schedule(eta: Callable[[int], float], runs: int, rounds: int) -> Array:
    """Returns L − L* of PPSGD, mean over clients: runs × rounds. Floats, as the attack on traffic computes them."""
    losses, rng = Losses.of_case(), generator(0, "step sizes")
    n = len(losses.b)
    sender, receiver = np.array(LINKS).T
    degree = np.bincount(sender, minlength=n)
    x, y = rng.normal(size=(runs, n)), rng.uniform(0.5, 1.5, (runs, n))
    found = []
    for t in range(1, rounds + 1):
        p = rng.uniform(BETA, ALPHA, (runs, n))
        part = (1 - p) / degree
        z, mass = p * x, p * y
        for i, j in zip(sender, receiver, strict=True):
            z[:, j] += part[:, i] * x[:, i]
            mass[:, j] += part[:, i] * y[:, i]
        w = z / mass
        found.append((loss(w) - float(loss(np.array(OPTIMUM)))).mean(axis=1))
        x, y = z - eta(t) * losses.gradient(w[..., None])[..., 0], mass
    return np.array(found).T


def declare(name: str, rounds: int) -> DeclaredRow:
    """Returns the row of a schedule."""
    return DeclaredRow(
        f"L − 5 after {rounds} rounds, η_t = {name}",
        "0 (read off the figure)",
        Between("the paper's axis begins above 20; smaller differences are invisible", high=ALLOWED[rounds]),
        form=".2g",
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Runs every schedule."""
    rows, lines, most = [], {}, max(ALLOWED)
    for done, (name, eta) in enumerate(SCHEDULES.items()):
        progress(f"η_t = {name}", done / len(SCHEDULES))
        errors = run_schedule(eta, RUNS[scale], most)
        lines[name] = (list(range(1, most + 1)), np.median(errors, axis=0).tolist())
        for rounds in ALLOWED:
            each = errors[:, rounds - 1]
            why = f"median {np.median(each):.2g}, worst {each.max():.2g}"
            rows.append(declare(name, rounds).measure(Estimate.over(each.tolist(), "runs"), why))
    progress("step sizes", 1.0)
    return Result(tuple(rows), (Chart("L(w) − L(w*), median run", "rounds", "error", lines, logarithmic=True),))


REPRODUCTION = Reproduction(
    name="001-steps",
    title="Convergence of PPSGD with other step sizes",
    run=run,
    declared=tuple(declare(name, rounds) for name in SCHEDULES for rounds in ALLOWED),
    unstated=(
        "Step sizes: we try six schedules.",
        "Graph of Fig. 2, start and distributions: as in 001-fig3.",
    ),
)
