"""Paper 001, Table 3 and Figure 6: effect of the distribution of y_i(0) on a strong eavesdropper.

The eavesdropper records the three links of client 1 for three rounds, in 20,000 runs of two classes, with and without
p_ji y_i. The paper draws only the training accuracy (Fig. 6) and says: "when the expectation of y_i(0) is equal to 1,
the larger the variance of y_i(0) is, the smaller the classification accuracy"; without y the eavesdropper is less
accurate under PPSGD and equally accurate under PSGD; and PPSGD hides more than noise of N(0, 0.065) does.

We report the accuracy on equally many runs that were not trained with. The first two statements are confirmed. If 0.065
is the variance of the noise, noise hides more than any y_i(0) of the table; if it is the standard deviation, less than
the wide ones. No distribution helps against an eavesdropper that records five rounds and solves for y_1(0).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1
from statistics import fmean

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.attacks import eavesdropper_learning
from tacit.lab.attacks.eavesdropper_learning import NOISE, PSGD, TABLE_3, Trial
from tacit.lab.attacks.traffic_series import CHANGING
from tacit.lab.papers.p001.eavesdroppers import EavesdropperScores, declare_decoded, decode_classes, train_eavesdroppers
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber, SameOrder, SameSign

PRINTED = (0.083, 0.163, 0.27, 1.0, 6.39)
"""The variances of Table 3."""
PLAIN, NOISY, *PRIVATE = TABLE_3
DEVIATION = "PSGD, noise of standard deviation 0.065"
SAME = 0.01
"""Loss of accuracy that counts as none: one point, which a plot of training does not show."""
DECODED_RUNS = 100
"""Number of decoded runs of each class."""


@dataclass(frozen=True)
class Table3Size:
    """Size of the experiment."""

    runs: int
    """Number of training runs, and of test runs."""
    repetitions: int


SIZES: dict[Scale, Table3Size] = {"small": Table3Size(5_000, 3), "paper": Table3Size(20_000, 3)}


def variance(name: str) -> float:
    """Returns the variance of y_i(0), by its distribution."""
    kind, *parameters = TABLE_3[name].start
    if kind == "uniform":
        return (parameters[1] - parameters[0]) ** 2 / 12
    if kind == "exponential":
        return parameters[0] ** 2
    mean, deviation = parameters
    return expm1(deviation**2) * exp(2 * mean + deviation**2)


Table = Mapping[str, EavesdropperScores]


HEARD, UNHEARD, FAR = "y heard", "y not heard", "if client 5 changes and client 1 is heard"
WIDEST = PRIVATE[-1]
"""The distribution of the largest variance, which hides most by the paper."""


def declare_variance(name: str) -> DeclaredRow:
    """Returns the row of a variance that Table 3 prints."""
    printed = dict(zip(PRIVATE, PRINTED, strict=True))[name]
    return DeclaredRow(
        f"variance of y(0), {name}", PaperNumber(printed, rounding=0.005), Near(0.1, "computed"), form=".3g"
    )


def declare_accuracy(name: str, how: str) -> DeclaredRow:
    """Declares the row of an accuracy; for PPSGD, of its difference to that of PSGD."""
    if name in PRIVATE:
        rule = SameSign("the paper prints no accuracy; its claim is the sign", sign=-1)
        return DeclaredRow(f"accuracy minus that of PSGD, {name}, {how}", "less", rule, form="+.1%")
    return DeclaredRow(f"accuracy, {name}, {how}", None, NotCompared("the paper prints none"), form=".1%")


def declare_falling(how: str) -> DeclaredRow:
    """Returns the row on the order of the distributions."""
    return DeclaredRow(
        f"accuracy by growing variance of y(0), {how}",
        "falls",
        SameOrder("the paper states the order", rising=False),
        form=".1%",
    )


LOST = DeclaredRow(
    "accuracy that PPSGD's eavesdropper loses without y, mean over distributions",
    "some",
    SameSign("the paper gives no size", sign=1),
    form="+.1%",
)
KEPT = DeclaredRow(
    "accuracy that PSGD's eavesdropper loses without y",
    "none",
    Between("a point, which a picture of training does not show", -SAME, SAME),
    form="+.1%",
)


def declare_noise(name: str) -> DeclaredRow:
    """Returns the row on whether PPSGD hides more than noise does."""
    return DeclaredRow(
        f"accuracy under {WIDEST} minus that under {name}",
        "less: PPSGD hides more",
        SameSign("the paper prints no accuracy; its claim is the sign", sign=-1),
        form="+.1%",
    )


def falling_row(table: Table, how: str) -> Row:
    """Returns whether the eavesdropper is less accurate the larger the variance is."""
    why = f"variances {', '.join(f'{variance(name):.2g}' for name in PRIVATE)}"
    return declare_falling(how).measure(tuple(table[name].estimate for name in PRIVATE), why)


def accuracy_rows(table: Table, how: str) -> list[Row]:
    """Returns each row of the table; of PPSGD, whether it hides anything."""
    return [
        declare_accuracy(name, how).measure(
            found.less(table[PLAIN]) if name in PRIVATE else found.estimate, found.coverage
        )
        for name, found in table.items()
        if name != DEVIATION
    ]


def removing_rows(heard: Table, unheard: Table) -> list[Row]:
    """Returns the results without recorded y."""
    lost = {name: heard[name].less(unheard[name]).mean for name in PRIVATE}
    seeds = range(len(heard[PLAIN].accuracies))
    means = [fmean(heard[name].accuracies[seed] - unheard[name].accuracies[seed] for name in PRIVATE) for seed in seeds]
    why = f"in the order of the table {', '.join(f'{each:+.1%}' for each in lost.values())}"
    return [
        LOST.measure(Estimate.over(means), why),
        KEPT.measure(heard[PLAIN].less(unheard[PLAIN])),
    ]


def noise_row(table: Table, name: str) -> Row:
    """Returns whether the widest PPSGD hides more than noise does."""
    read = "0.065 as a variance, as N(0, 0.065) is read" if name == NOISY else "0.065 as programs take it"
    why = f"{table[WIDEST].estimate.mean:.1%}, noise {table[name].estimate.mean:.1%}; {read}"
    return declare_noise(name).measure(table[WIDEST].less(table[name]), why)


def decoded_rows(trials: Mapping[str, Trial]) -> list[Row]:
    """Returns how often the class follows from decoding client 1 in five rounds, without training."""
    return [
        declare_decoded(name, name in PRIVATE).measure(
            decode_classes(
                replace(trial, test_runs=[(losses, label, DECODED_RUNS) for losses, label, _ in trial.test_runs]), 0
            )
        )
        for name, trial in trials.items()
    ]


def charts_of(heard: Table, unheard: Table) -> tuple[Chart, ...]:
    """Returns the four panels of Fig. 6, for the first eavesdropper of each kind."""
    epochs = list(range(1, len(heard[PLAIN].rows[0].loss) + 1))
    return tuple(
        Chart(
            f"Training {what}{more}",
            "epochs",
            what,
            {name: (epochs, getattr(found.rows[0], field)) for name, found in table.items()},
            dashed=(NOISY,),
        )
        for table, more in ((heard, ""), (unheard, ", y not heard"))
        for what, field in (("loss", "loss"), ("accuracy", "training_accuracy"))
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Trains and tests eavesdroppers: with y, without it, and with client 5 instead of client 1."""
    size = SIZES[scale]
    sizes = replace(eavesdropper_learning.FULL, runs=size.runs)
    trials = eavesdropper_learning.table_3(sizes)
    first = {trial.target: trial for trial in trials if trial.with_y}
    deviation = replace(first[PLAIN], target=DEVIATION, setting=replace(PSGD, noise=NOISE**2))
    other = [
        trial for trial in eavesdropper_learning.table_3(sizes, CHANGING) if trial.with_y and trial.target in PRIVATE
    ]

    def train_some(some: Sequence[Trial], begin: float, end: float) -> dict[str, EavesdropperScores]:
        return {
            each.trial.target: each
            for each in train_eavesdroppers(some, size.repetitions, part_of_progress(progress, begin, end))
        }

    heard = train_some([*first.values(), deviation], 0.0, 0.4)
    unheard = train_some([trial for trial in trials if not trial.with_y], 0.4, 0.7)
    far = train_some([replace(trial, where="client 5 changes") for trial in other], 0.7, 0.95)
    progress("decoding", 0.95)
    rows = [
        *(declare_variance(name).measure(Estimate.certain(variance(name))) for name in PRIVATE),
        *accuracy_rows(heard, HEARD),
        falling_row(heard, HEARD),
        *accuracy_rows(unheard, UNHEARD),
        falling_row(unheard, UNHEARD),
        falling_row(far, FAR),
        *removing_rows(heard, unheard),
        *(noise_row(heard, name) for name in (NOISY, DEVIATION)),
        *decoded_rows(first),
    ]
    progress("table 3", 1.0)
    return Result(tuple(rows), charts_of(heard, unheard))


REPRODUCTION = Reproduction(
    name="001-table3",
    title="Eavesdropper accuracy by the distribution of y(0) (Table 3, Fig. 6)",
    run=run,
    declared=(
        *map(declare_variance, PRIVATE),
        *(declare_accuracy(name, how) for how in (HEARD, UNHEARD) for name in TABLE_3),
        *map(declare_falling, (HEARD, UNHEARD, FAR)),
        LOST,
        KEPT,
        *map(declare_noise, (NOISY, DEVIATION)),
        *(declare_decoded(name, name in PRIVATE) for name in TABLE_3),
    ),
    unstated=(
        "Which client changes, and by how much: client 1, the one that is heard, as client 5 does in case 6. We also "
        "change "
        "client 5.",
        "Noise: it is on every x that is sent.",
        "N(0, 0.065): we read 0.065 as the variance, because by its stated moments Lognormal(-1, 2) has the variance "
        "2 of "
        "its logarithm. We also run it as a standard deviation.",
        "Graph, start and steps: as for Fig. 3. The 18 numbers in three rounds are those of 3 links of client 1.",
        "Network: 2 inception modules of 4 × 8 filters, 10 epochs as in the paper.",
        "Accuracies: they are only drawn, and those of the training are not stated.",
        f"Eavesdroppers: {SIZES['paper'].repetitions} of each kind.",
    ),
    changed=(
        f"Small scale: {SIZES['small'].runs:,} runs to train with and as many to test with. The paper has "
        f"{SIZES['paper'].runs:,}. An eavesdropper with fewer runs does worse.",
    ),
    extras=("torch",),
)
