"""Paper 002, "An Illustrative Experiment": a curious server estimates users' gradients from the sums of many rounds.

N = 40 users with non-i.i.d. MNIST, K = 8 asked per round, dropout probabilities of 0.1 to 0.5. The server solves for
the gradients by least squares. The paper shows the reconstruction error ‖x_i − x̂_i‖² / ‖x_i‖² of every user: below
0.005 for many users if participants are drawn at random, above 0.25 for all users under Multi-RoundSecAgg with T = 2.

The code is that of the attack `disaggregate`, whose docstring lists what the slides do not state. We run both settings
of the paper, and two conditions of its second figure: that batches are summed whole, and that the two users of a batch
have different data. The deployed protocol is attacked too, with 8 users.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress
from tacit.designs import Batches, Random
from tacit.lab.attacks.disaggregation import (
    CLOSE,
    IMAGES,
    PER_ROUND,
    RATE,
    ROUNDS,
    DisaggregationSetting,
    run_once,
    train_by_all,
)
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate
from tacit.learn.data.datasets import Samples, load

FAR = 0.25
"""The paper's error, which all users exceed under T = 2."""
RUNS: dict[Scale, int] = {"small": 5, "paper": 5}
MANY = 50.0
"""Per cent of users above which they count as "many": the majority."""

Errors: TypeAlias = NDArray[np.float64]


def share_known(errors: Errors) -> float:
    """Returns the percentage of users whose gradient counts as known."""
    return 100 * float(np.mean(errors < CLOSE))


def least_error(errors: Errors) -> float:
    """Returns the smallest error of a user."""
    return float(errors.min())


@dataclass(frozen=True)
class ReconstructionCase:
    """One setting, with the paper's statement about it."""

    name: str
    setting: DisaggregationSetting
    measure: Callable[[Errors], float]
    why: str = ""

    @property
    def declared(self) -> DeclaredRow:
        """The row of the setting."""
        if self.measure is share_known:
            return DeclaredRow(
                f"users whose reconstruction error is below {CLOSE:g}, {self.name}",
                f"below {CLOSE:g} for many users",
                Between("the paper says many; more than half is", low=MANY),
                "%",
                ".0f",
            )
        return DeclaredRow(
            f"smallest reconstruction error of a user, {self.name}",
            f"above {FAR:g} for all users",
            Between("the paper's number", low=FAR),
            form=".2g",
        )


WHOLE = Batches(PER_ROUND, 2)
CASES = (
    ReconstructionCase("Random selection", DisaggregationSetting("Random(8)", Random(PER_ROUND)), share_known),
    ReconstructionCase("Multi-RoundSecAgg, T = 2", DisaggregationSetting("Batches(8, 2)", WHOLE), least_error),
    ReconstructionCase(
        "Random selection, models change ten times as fast",
        DisaggregationSetting("Random(8)", Random(PER_ROUND), rate=10 * RATE),
        share_known,
        "the paper does not say how fast they change; the faster, the less old sums say",
    ),
    ReconstructionCase(
        "T = 2, one in ten leaves in mid-round, batches summed whole",
        DisaggregationSetting("Batches(8, 2)", WHOLE, leaving=0.1),
        least_error,
        "as deployed: what is left of a batch is left out",
    ),
    ReconstructionCase(
        "T = 2, one in ten leaves in mid-round, the rest of a batch is summed",
        DisaggregationSetting("Batches(8, 2) summed in part", Batches(PER_ROUND, 2, partial=True), leaving=0.1),
        least_error,
        "the sum of a batch less that of its rest is the missing member",
    ),
    ReconstructionCase(
        "T = 2, the two of a batch hold the same digits",
        DisaggregationSetting("Batches(8, 2)", WHOLE, alike=True),
        least_error,
        "T = 2 hides who of the two has what; half of their sum is close to both if they have the same",
    ),
    ReconstructionCase(
        "Random selection, the deployed protocol among 8 users",
        DisaggregationSetting("Random(4)", Random(4), deployed=True, users=8, rounds=40),
        share_known,
    ),
    ReconstructionCase(
        "T = 2, the deployed protocol among 8 users",
        DisaggregationSetting("Batches(4, 2)", Batches(4, 2), deployed=True, users=8, rounds=40),
        least_error,
    ),
)


def row_of(case: ReconstructionCase, runs: Sequence[Errors]) -> Row:
    """Returns the result of a setting, run by run."""
    return case.declared.measure(Estimate.over([case.measure(errors) for errors in runs]), case.why)


def chart_of(found: Sequence[Errors]) -> Chart:
    """Returns the paper's two figures as one, with users in the order of their errors, for the first run."""
    users = list(range(1, len(found[0]) + 1))
    lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        case.name: (users, np.sort(errors).tolist()) for case, errors in zip(CASES[:2], found, strict=True)
    }
    for limit in (CLOSE, FAR):
        lines[f"{limit:g}"] = ((1, len(found[0])), (limit, limit))
    names = (f"{CLOSE:g}", f"{FAR:g}")
    return Chart("Reconstruction error", "users, by their errors", "error", lines, logarithmic=True, dashed=names)


def load_images(scale: Scale) -> Samples:
    """Returns MNIST, or the bundled digits."""
    if scale == "small":
        return load("digits", share=1).flat()
    every = load("mnist").flat()
    return Samples(every.x[:IMAGES], every.y[:IMAGES])


def run(scale: Scale, progress: Progress) -> Result:
    """Attacks setting by setting."""
    progress("training", 0.0)
    data = load_images(scale)
    model = train_by_all(data)
    rows, first = [], []
    for done, case in enumerate(CASES):
        progress(case.name, done / len(CASES))
        each = [run_once(data, model, case.setting, 0, number) for number in range(RUNS[scale])]
        rows.append(row_of(case, each))
        first.append(each[0])
    progress("reconstruction", 1.0)
    return Result(tuple(rows), (chart_of(first[:2]),))


REPRODUCTION = Reproduction(
    name="002-reconstruction",
    title="Gradients estimated from the sums of many rounds",
    run=run,
    declared=tuple(case.declared for case in CASES),
    unstated=(
        f"Rounds: {ROUNDS}.",
        "Model and its speed of change: softmax, trained by all users first, then by those who are summed.",
        "Data of each user: two digits. Neighbours on the roster form a batch and hold different digits.",
    ),
    changed=(
        f"MNIST: its first {IMAGES:,} images. At small scale the data are the 1797 bundled images of digits.",
        "The last two rows have N = 8, K = 4 and 40 rounds, because they run the whole protocol.",
    ),
    data=("mnist",),
)
