"""Paper 001, Figures 4 and 5: accuracy of a weak and a strong eavesdropper on a change of client 5's loss.

Class 0 is the baseline, class 1 another loss of client 5. Eavesdroppers record 100 runs of each class, of 100 rounds,
and train an inception network. The weak one (Table 1, Fig. 4) was trained on other changes than the one in question,
the strong one (Table 2, Fig. 5) on the same. For the weak one the paper prints 74 % under PSGD, 72 % under PPSGD, and
66 % and 51 % with noise. The strong one is only drawn, and said to be better. The paper concludes that "our private
method can make the onlooker harder to decode the local model".

We use the same runs and a smaller network of the same kind, several times. Under PPSGD the form of the 1600 numbers of
a run matters: as 16 series of 100 rounds, one per number and link, or as one series, as the paper's shapes suggest and
the package that it names expects. An adversary that knows that losses are quadratic needs no training at all (the
attack `decode`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import TypeAlias

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.attacks import eavesdropper_learning
from tacit.lab.attacks.inception import ClassifierSettings
from tacit.lab.attacks.traffic_series import CHANGING
from tacit.lab.papers.p001.eavesdroppers import (
    EavesdropperScores,
    declare_decoded,
    decode_classes,
    train_eavesdroppers,
)
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Near, NotCompared, PaperNumber, SameSign

TARGETS = ("PSGD", "PSGD, noise", "PPSGD", "PPSGD, noise")
TESTED = sum(eavesdropper_learning.TEST_RUNS.values())
APART, FLAT = "16 series of 100", "one series of 1600"
"""Form in which a run is given to an eavesdropper."""
WHO = ("weak", "strong")

Table: TypeAlias = Mapping[tuple[str, str], EavesdropperScores]
"""Scores by algorithm and eavesdropper."""


@dataclass(frozen=True)
class Fig4Size:
    """Size of the experiment."""

    training: ClassifierSettings
    repetitions: int
    """Eavesdroppers of each kind."""
    flat: int
    """Eavesdroppers that treat a run as one series, which takes ten times as long."""
    of: tuple[str, ...]
    """Algorithms for which the two forms are compared."""


SIZES: dict[Scale, Fig4Size] = {
    "small": Fig4Size(ClassifierSettings(epochs=20, width=4, modules=2), 5, 0, ()),
    "paper": Fig4Size(eavesdropper_learning.FULL.training, 10, 3, TARGETS),
}


def declare_printed(target: str, how: str) -> DeclaredRow:
    """Declares the row of an accuracy that Fig. 4 prints. Its spread is that of a share of the paper's test runs."""
    given = eavesdropper_learning.PRINTED[target, "weak"]
    deviation = sqrt(given * (1 - given) / TESTED)
    return DeclaredRow(
        f"weak eavesdropper, {target}, {how}",
        PaperNumber(given, rounding=0.005, deviation=deviation),
        Near(0.15, f"15 points: an accuracy on {TESTED} test runs has a standard deviation of 3"),
        form=".1%",
    )


def declare_strong(target: str) -> DeclaredRow:
    """Declares the row of Fig. 5: the strong eavesdropper is more accurate."""
    return DeclaredRow(
        f"strong eavesdropper minus weak one, {target}",
        "better",
        SameSign("the paper draws it and prints no number", sign=1),
        form="+.1%",
    )


def declare_harder(who: str) -> DeclaredRow:
    """Declares the row on whether PPSGD is harder to recognise than PSGD."""
    printed = PaperNumber(-0.02, rounding=0.01) if who == "weak" else "less (read off the figure)"
    rule = SameSign("how much less depends on the network; the sign is the claim", sign=-1)
    return DeclaredRow(f"PPSGD minus PSGD, {who} eavesdropper", printed, rule, form="+.1%")


def declare_noise(who: str) -> DeclaredRow:
    """Returns the row on whether noise hides more than PPSGD."""
    weak = who == "weak"
    return DeclaredRow(
        f"PSGD with noise minus PPSGD, {who} eavesdropper",
        PaperNumber(-0.06, rounding=0.01) if weak else None,
        SameSign("how much less depends on the network; the sign is the claim")
        if weak
        else NotCompared("the paper prints none"),
        form="+.1%",
    )


def printed_row(found: EavesdropperScores, how: str) -> Row:
    """Returns an accuracy of Fig. 4 beside ours."""
    return declare_printed(found.trial.target, how).measure(found.estimate, found.coverage)


def compared_rows(table: Table) -> list[Row]:
    """Returns the comparison of eavesdroppers and algorithms."""
    rows = []
    for target in TARGETS:
        weak, strong = (table[target, who] for who in WHO)
        why = f"strong {strong.coverage}; weak {weak.coverage}"
        rows.append(declare_strong(target).measure(strong.less(weak), why))
    for who in WHO:
        plain, private, noise = (table[target, who] for target in ("PSGD", "PPSGD", "PSGD, noise"))
        why = f"PPSGD {private.estimate.mean:.1%}, PSGD {plain.estimate.mean:.1%}"
        rows.append(declare_harder(who).measure(private.less(plain), why))
        why = f"noise {noise.estimate.mean:.1%}, PPSGD {private.estimate.mean:.1%}"
        rows.append(declare_noise(who).measure(noise.less(private), why))
    return rows


def decoded_rows(table: Table) -> list[Row]:
    """Returns how often the class follows from decoding client 5, without training."""
    why = {"PPSGD": "y_5(0) is one unknown, and rounds give one equation each"}
    return [
        declare_decoded(target, target == "PPSGD").measure(
            decode_classes(table[target, "weak"].trial, CHANGING), why.get(target, "")
        )
        for target in TARGETS
    ]


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
        *(printed_row(table[target, "weak"], APART) for target in TARGETS),
        *(printed_row(each, FLAT) for each in flat.values()),
        *compared_rows(table),
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
        **({"weak eavesdropper, one series": {name: found.accuracy for name, found in flat.items()}} if flat else {}),
        "guessing": dict.fromkeys(TARGETS, 0.5),
    }
    return Chart(
        "Runs whose class is told",
        ", ".join(f"{place:g}: {target}" for target, place in places.items()),
        "share of runs",
        {name: ([places[target] for target in line], list(line.values())) for name, line in lines.items()},
        dashed=("paper, weak eavesdropper", "guessing"),
        spread={
            f"{who} eavesdropper": [table[target, who].estimate.deviation or 0.0 for target in TARGETS] for who in WHO
        },
    )


_SMALL, _PAPER = SIZES["small"], SIZES["paper"]
REPRODUCTION = Reproduction(
    name="001-fig4",
    title="Weak and strong eavesdroppers of PSGD and PPSGD (Figs. 4 and 5, Tables 1 and 2)",
    run=run,
    declared=(
        *(declare_printed(target, how) for how in (APART, FLAT) for target in TARGETS),
        *map(declare_strong, TARGETS),
        *map(declare_harder, WHO),
        *map(declare_noise, WHO),
        *(declare_decoded(target, target == "PPSGD") for target in TARGETS),
    ),
    unstated=(
        "Graph of Fig. 2, which is only drawn: strongly connected, 8 links (Section 4.3), 3 of them at client 1 "
        "(Section 4.4).",
        "Start, steps and distributions: w_i(0) ~ N(0, 1), η_t = 1/(2t), y_i(0) ~ U(0.5, 1.5), p_ii ~ U(0.1, 0.4).",
        f"Noise: Gaussian, of variance {eavesdropper_learning.NOISE:g} as in Table 3, on every x that is sent.",
        f"Training of the network: {SIZES['small'].training.epochs} epochs, at either scale.",
        "Accuracies of Fig. 5.",
        'Misprint: the tests of Tables 1 and 2 have "w + 0.5w + 1.2625". By the w* beside it, it is w² + 0.5w + '
        "1.2625.",
    ),
    changed=(
        f"Network: {_SMALL.training.modules} inception modules of 4 × {_SMALL.training.width} filters at small scale, "
        f"{_PAPER.training.modules} of 4 × {_PAPER.training.width} at paper scale. The paper has its reference [32], "
        "which is larger.",
        f"Shape of a run as input: {APART}. The paper's shape is {FLAT}, which takes ten times as long.",
        f"Eavesdroppers of each kind that get the paper's shape: {_SMALL.flat} at small scale, {_PAPER.flat} at "
        "paper scale.",
        f"Eavesdroppers of each kind: {_SMALL.repetitions} at small scale, {_PAPER.repetitions} at paper scale. The "
        "paper "
        "mentions one.",
    ),
    extras=("torch",),
)
