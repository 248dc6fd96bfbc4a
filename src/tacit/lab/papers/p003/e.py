"""Paper 003, Theorem 4 and Section 5: excess empirical risk against E, the users who are summed.

The paper: a smaller E saves communication and costs utility, by at most 2 L/(λ² (γ+T)) · (m−E)/(m−1) · 4/E · K² G².

We let E of 50 users be drawn for each average, among users whose samples are a random part of all (i.i.d.) or of two
chunks by label each (shards), with Theorem 1's σ for ε = 1, for K = 1 and for K = 5, and with calibrated noise. Of the
noise of all, that of E is in a sum, and a user spends privacy only in the rounds in which it is summed: the ledger has
what the one who was drawn most often spent. That the draw itself hides anything is not counted, for the server knows
who was drawn. Calibrated noise allows for a user that is drawn in every round, and so is more than most need.

**As printed**, lines 9 to 11 give the average to those only who are in it, and everybody else goes on alone. The proof
has an unbiased average that all go on from. We run the printed version too; its θ̄ is the mean of all m models, which
nobody ever has, so the excess of the last average of E is beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.papers.p003.risk import (
    CLAIMED,
    MORE,
    SIGMAS,
    SIZES,
    SPLITS,
    UNSTATED,
    RiskResult,
    RiskSetting,
    RiskSize,
    Sigma,
    assumption_row,
    average_runs,
    load_components,
    run_algorithm_1,
    run_as_printed,
)
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row
from tacit.learn.data.samples import Dataset

ES: dict[Scale, tuple[int, ...]] = {"small": (2, 5, 10), "paper": (2, 5, 10, 25)}
"""E, and all users besides."""
STEEP = 0.35
"""The power of (m−E)/((m−1) E) with which the excess grows may be off 1 by this much."""


class AlgorithmVariant(NamedTuple):
    """One way to run it, for every E."""

    name: str
    sigma: Sigma
    every: int
    how: Callable[[RiskSetting, Dataset], RiskResult]
    splits: tuple[str, ...] = tuple(SPLITS)


LINES = (
    AlgorithmVariant("Theorem 1's σ", "paper", 1, run_algorithm_1),
    # So much noise is the same however samples are split.
    AlgorithmVariant("calibrated σ", "calibrated", 1, run_algorithm_1, ("i.i.d.",)),
    AlgorithmVariant("Theorem 1's σ, K = 5", "paper", 5, run_algorithm_1),
    AlgorithmVariant("Theorem 1's σ, as printed", "paper", 1, run_as_printed),
)
FIRST, _, SEVERAL, PRINTED = (line.name for line in LINES)


def excess_row(name: str, found: RiskResult) -> Row:
    """Returns the excess risk, against Theorem 4's bound."""
    setting = found.setting
    told = f"σ = {found.sigma:.2g}, {found.accuracy:.1%} right"
    if name == PRINTED:
        told += f"; {found.heard:.1e} of the last average, which is all that anybody has"
    else:
        told += f"; ε = {found.spent:.3g} by the ledger"
    return unruled_row(
        f"excess risk, E = {setting.summed}, {setting.split}, {name}",
        found.bound_text,
        f"{found.excess:.1e}",
        found.within,
        told,
    )


def spent_row(found: RiskResult) -> Row:
    """Returns the ε of the paper's noise, against the claimed one."""
    return unruled_row(
        f"ε accounted for, E = {found.setting.summed}, {SIGMAS['paper']}",
        f"{CLAIMED:g}",
        f"{found.exact:.3g}",
        found.exact <= CLAIMED,
        "of whoever was summed most often, with the noise of those who were summed with it",
    )


def variance_factor(summed: int, users: int) -> float:
    """Returns (m−E)/((m−1) E), which the variance of a mean of E of m grows with."""
    return (users - summed) / ((users - 1) * summed)


def cost_rows(split: str, found: Sequence[RiskResult]) -> list[Row]:
    """Returns what a small E costs, and how that depends on E."""
    few, everybody = found[0], found[-1]
    users = everybody.setting.users
    lost = [
        (variance_factor(each.setting.summed or users, users), each.excess - everybody.excess) for each in found[:-1]
    ]
    usable = np.log([pair for pair in lost if pair[1] > 0])
    power = float(np.polyfit(usable[:, 0], usable[:, 1], 1)[0]) if len(usable) > 1 else float("nan")
    return [
        unruled_row(
            f"a smaller E costs utility, {split}",
            "yes",
            f"{everybody.excess:.1e} with E = {users}, {few.excess:.1e} with E = {few.setting.summed}",
            few.excess > MORE * everybody.excess,
            f"{FIRST}; {MORE:g} times as much is called more",
        ),
        unruled_row(
            f"how that grows with (m−E)/((m−1) E), {split}",
            "power 1",
            f"power {power:.2f}",
            abs(power - 1) <= STEEP,
            f"within {STEEP:g}; {FIRST}, over E = {', '.join(str(each.setting.summed) for each in found[:-1])}",
        ),
    ]


def chart_of(split: str, found: Mapping[str, Sequence[RiskResult]]) -> Chart:
    """Returns the excess against E, with Theorem 4's bound."""
    places = {name: [each.setting.summed or each.setting.users for each in runs] for name, runs in found.items()}
    lines = {name: (places[name], [each.excess for each in runs]) for name, runs in found.items()}
    bounds = {
        f"Theorem 4 with {name}": (places[name], [each.bound for each in found[name]]) for name in (FIRST, SEVERAL)
    }
    lines |= bounds | {"nothing learnt": (places[FIRST], [each.nothing for each in found[FIRST]])}
    dashed = (*bounds, "nothing learnt")
    return Chart(
        f"Excess risk against E, {split}", "users summed (E)", "excess risk", lines, logarithmic=True, dashed=dashed
    )


def compare_variants(
    size: RiskSize, few: Sequence[int], split: str, data: Dataset, progress: Progress
) -> dict[str, list[RiskResult]]:
    """Runs Algorithm 1 in every way for every E. If all are summed, the printed version is that of the proof."""
    todo = [
        (line, summed)
        for line in LINES
        for summed in (*few, *(() if line.name == PRINTED else (size.users,)))
        if split in line.splits
    ]
    found: dict[str, list[RiskResult]] = {}
    for done, (line, summed) in enumerate(todo):
        progress(f"E = {summed}, {split}, {line.name}", done / len(todo))
        setting = RiskSetting(CLAIMED, line.sigma, size.users, size.steps, line.every, summed, split)
        found.setdefault(line.name, []).append(average_runs(setting, data, size.seeds, line.how))
    return found


def run(scale: Scale, progress: Progress) -> Result:
    """Runs Algorithm 1 for every E, with either split."""
    size = SIZES[scale]
    progress("principal components", 0.0)
    data = load_components(size.samples)
    rows, charts, everything = [], [], []
    for before, split in enumerate(SPLITS):
        part = part_of_progress(progress, before / len(SPLITS), (before + 1) / len(SPLITS))
        found = compare_variants(size, ES[scale], split, data, part)
        rows += [excess_row(name, each) for name, runs in found.items() for each in runs]
        rows += cost_rows(split, found[FIRST])
        rows += [spent_row(each) for each in found[FIRST] if split == "i.i.d."]
        everything += [each for runs in found.values() for each in runs]
        charts.append(chart_of(split, found))
    progress("E", 1.0)
    return Result((*rows, assumption_row(everything)), tuple(charts))


REPRODUCTION = Reproduction(
    name="003-e",
    title="Excess risk against the number of users who are summed, with Theorem 4's bound",
    run=run,
    unstated=(
        *UNSTATED,
        "as many are asked as are summed (E₀ = E), for nobody drops out here; whoever is not asked does no work",
        "who goes on from an average: everybody, as in the proof, and beside it as printed, only who is in it",
        "line 4 reads θ̄ of the step before, which lines 6 to 12 set only every K steps: θ itself in between",
        "m in Theorem 1 is all users, also where fewer are summed",
        "the proof wants η_t ≤ 2 η_{t+E}, by which it means K",
        "small: 12,000 samples, T = 200, no E = 25, two runs each; paper: all samples, T = 500, three runs each",
    ),
)
