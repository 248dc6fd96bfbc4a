"""Paper 001, Figure 7: eavesdropper of ten clients in a ring that fit the Boston housing data by linear regression.

One client's local optimum moves by d. The eavesdropper records t rounds and has to detect the move. The paper draws the
accuracies under PSGD and PPSGD for several d and t, without a number in the text, and says: "Obviously … our private
method makes the onlooker harder to decode the local model".

We record the two links of the changing client. PPSGD hides small changes from an eavesdropper of few rounds. It hides
less with more rounds, or with more training runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.attacks import eavesdropper_learning
from tacit.lab.attacks.inception import ClassifierSettings
from tacit.lab.attacks.traffic_series import Array
from tacit.lab.papers.p001.eavesdroppers import EavesdropperScores, train_eavesdroppers
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import SameSign
from tacit.learn.data.datasets import load
from tacit.learn.random_streams import generator

EPOCHS = 5
CLIENTS = 10

Table: TypeAlias = Mapping[tuple[float, int, str], EavesdropperScores]
"""Scores by d, t and algorithm."""


@dataclass(frozen=True)
class Fig7Size:
    """Size of the experiment."""

    runs: int
    """Number of training runs, and of test runs."""
    variations: tuple[float, ...]
    lengths: tuple[int, ...]
    repetitions: int


SIZES: dict[Scale, Fig7Size] = {
    "small": Fig7Size(5_000, (0.1, 0.3), (3, 10), 3),
    "paper": Fig7Size(20_000, (0.03, 0.1, 0.3, 1.0), (3, 10, 30), 3),
}


def houses() -> tuple[Array, Array]:
    """Returns features and prices of all houses, shuffled."""
    data = load("boston")
    x, y = np.concatenate([data.x, data.x_test]), np.concatenate([data.y, data.y_test])
    order = generator(0, "figure 7").permutation(len(x))
    return x[order].astype(np.float64), y[order].astype(np.float64)


def declare_pair(d: float, t: int) -> DeclaredRow:
    """Returns the row of one d and t."""
    return DeclaredRow(
        f"accuracy under PPSGD minus that under PSGD, d = {d:g}, t = {t}",
        "less (read off the figure)",
        SameSign("the figure has no numbers; its claim is the sign", sign=-1),
        form="+.1%",
    )


def pair_row(table: Table, d: float, t: int) -> Row:
    """Returns whether a change is recognised less often under PPSGD than under PSGD."""
    plain, private = table[d, t, "PSGD"], table[d, t, "PPSGD"]
    why = f"PPSGD {private.estimate.mean:.1%}, PSGD {plain.estimate.mean:.1%}; {private.coverage}"
    return declare_pair(d, t).measure(private.less(plain), why)


def chart_of(table: Table, size: Fig7Size) -> Chart:
    """Returns the figure."""
    return Chart(
        "Runs whose class is told",
        "d, by which a local optimum moves",
        "share of runs",
        {
            f"{target}, t = {t}": (size.variations, [table[d, t, target].accuracy for d in size.variations])
            for t in size.lengths
            for target in ("PSGD", "PPSGD")
        },
        spread={
            f"{target}, t = {t}": [table[d, t, target].estimate.deviation or 0.0 for d in size.variations]
            for t in size.lengths
            for target in ("PSGD", "PPSGD")
        },
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Trains eavesdroppers and tests them."""
    size = SIZES[scale]
    training = ClassifierSettings(epochs=EPOCHS, batch=128, modules=2)
    x, y = houses()
    todo = [(d, t) for d in size.variations for t in size.lengths]
    table: dict[tuple[float, int, str], EavesdropperScores] = {}
    for done, (d, t) in enumerate(todo):
        sizes = replace(eavesdropper_learning.FULL, runs=size.runs, training_3=training, variations=(d,), lengths=(t,))
        trials = eavesdropper_learning.figure_7(sizes, x, y, clients=CLIENTS)
        part = part_of_progress(progress, done / len(todo), (done + 1) / len(todo))
        for found in train_eavesdroppers(trials, size.repetitions, part):
            table[d, t, found.trial.target] = found
    progress("figure 7", 1.0)
    rows = [pair_row(table, d, t) for d, t in todo]
    return Result(tuple(rows), (chart_of(table, size),))


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{each:g}" for each in values)


_SMALL, _PAPER = SIZES["small"], SIZES["paper"]
REPRODUCTION = Reproduction(
    name="001-fig7",
    title="Eavesdropper of linear regression on the Boston housing data",
    run=run,
    declared=tuple(declare_pair(d, t) for d in SIZES["paper"].variations for t in SIZES["paper"].lengths),
    unstated=(
        "Accuracies: they are only drawn.",
        "How d moves an optimum: by d in each of 14 directions, including the constant. Features and prices have "
        "mean 0 and "
        "variance 1.",
        'What the "5 epochs" are: those of the eavesdropper, as the 10 of Section 4.4. Algorithms 3 and 4 take one '
        "step a "
        "round.",
        "Split: 506 houses, shuffled, in parts of 50 or 51. The ring is directed.",
        "Links heard: the two of the client that changes.",
        "Start and steps: w_i(0) ~ N(0, 1), and η_t = 1/(λt) for the largest curvature λ.",
        "Distributions: y_i(0) ~ U(0.5, 1.5), p_ii ~ U(0.1, 0.4).",
    ),
    changed=(
        f"Runs: small scale has {_SMALL.runs:,} to train with and as many to test with; paper scale has "
        f"{_PAPER.runs:,}, as "
        "in Section 4.4. Section 4.5 states none.",
        f"Small scale: d = {_list(_SMALL.variations)} and t = {_list(_SMALL.lengths)}.",
        f"Paper scale: d = {_list(_PAPER.variations)} and t = {_list(_PAPER.lengths)}. The text does not give those "
        "of the "
        "figure.",
        f"Eavesdroppers of each kind: {_SMALL.repetitions}, at either scale. The paper mentions one.",
    ),
    extras=("torch",),
    data=("boston",),
)
