"""Paper 001, Figures 4 and 5: accuracy of a weak and a strong eavesdropper on a change of client 5's loss.

Class 0 is the baseline, class 1 another loss of client 5. Eavesdroppers hear 100 runs of each class, of 100 rounds, and
train an inception network. The weak one (Table 1, Fig. 4) has heard other changes than the one that it is asked about,
the strong one (Table 2, Fig. 5) the same. The paper prints, of the weak one, 74 % under PSGD, 72 % under PPSGD, and
with noise 66 % and 51 %. The strong one is drawn only, and said to be better. So "our private method can make the
onlooker harder to decode the local model".

We take the same runs and a smaller network of the same kind, several times. Under PPSGD it matters how an eavesdropper
takes the 1600 numbers of a run: number by number of each link, as 16 series of 100 rounds, which is how they are heard,
or as one series, which is what the paper's shapes look like and what the package that it names is made for. And who
knows that losses are quadratic need not train anything (the attack `decode`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.attacks import eavesdropper_learning
from tacit.lab.attacks.inception import ClassifierSettings
from tacit.lab.attacks.traffic_series import CHANGING
from tacit.lab.papers.p001.eavesdroppers import (
    EavesdropperScores,
    accuracy_interval,
    decode_classes,
    format_percent,
    train_eavesdroppers,
)
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row

TARGETS = ("PSGD", "PSGD, noise", "PPSGD", "PPSGD, noise")
TESTED = sum(eavesdropper_learning.TEST_RUNS.values())
CEILING = 0.995

Table: TypeAlias = Mapping[tuple[str, str], EavesdropperScores]
"""By algorithm and eavesdropper."""


@dataclass(frozen=True)
class Fig4Size:
    """How much is done."""

    training: ClassifierSettings
    repetitions: int
    """Eavesdroppers of each kind."""
    flat: int
    """Eavesdroppers that treat a run as one series, which takes ten times as long."""
    of: tuple[str, ...]
    """Algorithms that are compared that way."""


SIZES: dict[Scale, Fig4Size] = {
    "small": Fig4Size(ClassifierSettings(epochs=20, width=4, modules=2), 5, 1, ("PSGD", "PPSGD")),
    "paper": Fig4Size(eavesdropper_learning.FULL.training, 10, 3, TARGETS),
}


def printed_row(found: EavesdropperScores, how: str) -> Row:
    """Returns an accuracy of Fig. 4 beside ours. It agrees if the paper's 200 test runs could have given ours."""
    given = found.trial.paper
    if given is None:
        raise ValueError(f"the paper prints no accuracy of {found.trial.target}")
    low, high = accuracy_interval(given, TESTED)
    agrees = low <= found.accuracy <= high
    more = (
        ""
        if agrees
        else f"; with its {TESTED} test runs the paper's is {format_percent(low)} to {format_percent(high)}"
    )
    return unruled_row(
        f"weak eavesdropper, {found.trial.target}, {how}",
        format_percent(given),
        format_percent(found.accuracy),
        agrees,
        found.coverage + more,
    )


def strong_row(weak: EavesdropperScores, strong: EavesdropperScores) -> Row:
    """Returns whether the strong eavesdropper does better (Fig. 5)."""
    both = min(weak.accuracy, strong.accuracy) >= CEILING
    neither = min(strong.accuracies) <= 0.5
    return unruled_row(
        f"strong eavesdropper, {strong.trial.target}",
        "more than the weak one",
        f"{format_percent(strong.accuracy)}, weak {format_percent(weak.accuracy)}",
        both or strong.accuracy > weak.accuracy,
        strong.coverage
        + ("; neither can do better" if both else "; some do no better than guessing" if neither else ""),
    )


def harder_row(table: Table, who: str) -> Row:
    """Returns whether PPSGD is harder to tell than PSGD."""
    plain, private = table["PSGD", who], table["PPSGD", who]
    as_well = private.as_well_as(plain)
    return unruled_row(
        f"PPSGD is told less often than PSGD, {who} eavesdropper",
        "72.0 % < 74.0 %" if who == "weak" else "less, as drawn",
        f"{format_percent(private.accuracy)}, PSGD {format_percent(plain.accuracy)}",
        not as_well,
        "PPSGD is told apart as well as PSGD" if as_well else "",
    )


def noise_row(table: Table, who: str) -> Row:
    """Returns whether noise hides more than PPSGD."""
    noise, private = table["PSGD, noise", who], table["PPSGD", who]
    return unruled_row(
        f"noise hides more than PPSGD, {who} eavesdropper",
        "66.0 % < 72.0 %" if who == "weak" else "",
        f"{format_percent(noise.accuracy)}, PPSGD {format_percent(private.accuracy)}",
        noise.accuracy < private.accuracy if who == "weak" else None,
    )


def decoded_rows(table: Table) -> list[Row]:
    """Returns how often the class follows from decoding client 5, without any training."""
    shares = {target: decode_classes(table[target, "weak"].trial, CHANGING) for target in TARGETS}
    rows = []
    for target, share in shares.items():
        private = target == "PPSGD"
        rows.append(
            unruled_row(
                f"decoded from 5 rounds, {target}",
                "harder than PSGD" if private else "",
                format_percent(share),
                share < shares["PSGD"] if private else None,
                "told apart as well as PSGD: y_5(0) is one unknown, and rounds give one equation each"
                if private and share >= shares["PSGD"]
                else f"{TESTED} test runs",
            )
        )
    return rows


def run(scale: Scale, progress: Progress) -> Result:
    """Trains eavesdroppers and tests them."""
    size = SIZES[scale]
    trials = [
        trial
        for trial in eavesdropper_learning.tables_1_and_2(replace(eavesdropper_learning.FULL, training=size.training))
        if trial.target in TARGETS
    ]
    found = train_eavesdroppers(trials, size.repetitions, part_of_progress(progress, 0.0, 0.5))
    table = {(each.trial.target, each.trial.eavesdropper): each for each in found}
    longer = [
        replace(trial, flat=True, where="Fig. 4, one series")
        for trial in trials
        if trial.eavesdropper == "weak" and trial.target in size.of
    ]
    flat = {
        each.trial.target: each
        for each in train_eavesdroppers(longer, size.flat, part_of_progress(progress, 0.5, 0.98))
    }
    progress("decoding", 0.98)
    rows = [
        *(printed_row(table[target, "weak"], "16 series of 100") for target in TARGETS),
        *(printed_row(each, "one series of 1600") for each in flat.values()),
        *(strong_row(table[target, "weak"], table[target, "strong"]) for target in TARGETS),
        *(row(table, who) for row in (harder_row, noise_row) for who in ("weak", "strong")),
        *decoded_rows(table),
    ]
    progress("figures 4 and 5", 1.0)
    return Result(tuple(rows), (chart_of(table, flat),))


def chart_of(table: Table, flat: Mapping[str, EavesdropperScores]) -> Chart:
    """Returns all accuracies; the paper draws the runs themselves, in a plane."""
    places = {target: float(place) for place, target in enumerate(TARGETS, start=1)}
    lines = {
        "paper, weak eavesdropper": {target: eavesdropper_learning.PRINTED[target, "weak"] for target in TARGETS},
        "weak eavesdropper": {target: table[target, "weak"].accuracy for target in TARGETS},
        "strong eavesdropper": {target: table[target, "strong"].accuracy for target in TARGETS},
        "weak eavesdropper, one series": {target: found.accuracy for target, found in flat.items()},
        "guessing": dict.fromkeys(TARGETS, 0.5),
    }
    return Chart(
        "Runs whose class is told",
        ", ".join(f"{place:g}: {target}" for target, place in places.items()),
        "share of runs",
        {name: ([places[target] for target in line], list(line.values())) for name, line in lines.items()},
        dashed=("paper, weak eavesdropper", "guessing"),
    )


REPRODUCTION = Reproduction(
    name="001-fig4",
    title="Weak and strong eavesdroppers of PSGD and PPSGD (Figs. 4 and 5, Tables 1 and 2)",
    run=run,
    unstated=(
        "the graph of Fig. 2, which is only drawn: strongly connected, 8 links (Section 4.3), 3 of them at client 1 "
        "(Section 4.4)",
        "the start, the steps and the distributions: w_i(0) ~ N(0, 1), η_t = 1/(2t), y_i(0) ~ U(0.5, 1.5), "
        "p_ii ~ U(0.1, 0.4)",
        f"the noise: Gaussian, of variance {eavesdropper_learning.NOISE:g} as in Table 3, on every x that is sent",
        "the network and its training: inception modules as in the paper's reference [32], "
        f"{SIZES['small'].training.modules} of 4 × {SIZES['small'].training.width} filters at small scale and "
        f"{SIZES['paper'].training.modules} of 4 × {SIZES['paper'].training.width} at paper scale, "
        f"{SIZES['small'].training.epochs} epochs",
        "how a run is given to it: one series of 1600 numbers by its shape, and 16 series of 100 here besides; at "
        "small scale one series without noise only",
        f"how many eavesdroppers were trained: the mean of {SIZES['small'].repetitions} here, "
        f"{SIZES['paper'].repetitions} at paper scale",
        "the accuracies of Fig. 5",
        'misprinted: the tests of Tables 1 and 2 have "w + 0.5w + 1.2625"; by the w* beside it, it is '
        "w² + 0.5w + 1.2625",
    ),
    extras=("torch",),
)
