"""Paper 003, Theorem 4 and Section 5: excess empirical risk against E, the number of summed users.

The paper: a smaller E saves communication and costs utility, by at most 2 L/(λ² (γ+T)) · (m−E)/(m−1) · 4/E · K² G².

For each average E of 20 users are drawn, whose samples are a random part of all (i.i.d.) or two label-sorted chunks
each (shards), with Theorem 1's σ for ε = 1, for K = 1 and for K = 5. A sum contains the noise of E users, and a user
spends privacy only in the rounds in which it is summed. The ledger has what the most often drawn user spent. Privacy
amplification by the random draw is not counted, because the server knows who was drawn.

**As printed**, lines 9 to 11 give the average only to the summed users, and the others continue with their own models.
The proof assumes an unbiased average from which all users continue. We run the printed version too. Its θ̄ is the mean
of all m models, which no user ever has, so the excess of the last average over E users is reported as well.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.papers.p003.risk import (
    ASSUMED,
    CHANGED,
    CLAIMED,
    SIGMAS,
    SIZES,
    SPLITS,
    UNSTATED,
    RiskResult,
    RiskRuns,
    RiskSetting,
    RiskSize,
    Sigma,
    assumption_row,
    bound_row,
    claimed_row,
    fit_power,
    load_components,
    repeat_runs,
    run_algorithm_1,
    run_as_printed,
)
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, NotCompared, SameOrder
from tacit.learn.data.samples import Dataset

USERS = SIZES["paper"].users
ES = (2, 5, 15)
"""Values of E, besides all users."""
APART = (2, 5, USERS)
"""Values of E whose order is compared."""
TOLD = (15, USERS)
"""Values of E for which Theorem 4's bound may be below the excess of θ⁰. For a smaller E this one term is above it."""
STEEP = 0.35
"""The largest deviation from 1 of the power of (m−E)/((m−1) E) with which the excess grows."""


class AlgorithmVariant(NamedTuple):
    """One variant of the algorithm, for every E."""

    name: str
    sigma: Sigma
    every: int
    how: Callable[[RiskSetting, Dataset], RiskResult]


LINES = (
    AlgorithmVariant("Theorem 1's σ", "paper", 1, run_algorithm_1),
    AlgorithmVariant("Theorem 1's σ, K = 5", "paper", 5, run_algorithm_1),
    AlgorithmVariant("Theorem 1's σ, as printed", "paper", 1, run_as_printed),
)
FIRST, SEVERAL, PRINTED = (line.name for line in LINES)


def declare_bound(summed: int, split: str) -> DeclaredRow:
    """Returns the row against Theorem 4."""
    return bound_row(f"E = {summed}, {split}, {FIRST}")


def declare_spent(summed: int) -> DeclaredRow:
    """Returns the row of the ε that is claimed."""
    return claimed_row(f"E = {summed}, {SIGMAS['paper']}")


def declare_order(line: AlgorithmVariant, split: str) -> DeclaredRow:
    """Returns the row on what a smaller E costs."""
    return DeclaredRow(
        f"excess risk for E = {', '.join(map(str, APART))}, {split}, {line.name}",
        "a smaller E brings utility loss",
        SameOrder("the paper gives no size, so any difference beyond chance counts", rising=False),
        form=".1e",
    )


def declare_power(split: str) -> DeclaredRow:
    """Returns the row on how the cost grows."""
    return DeclaredRow(
        f"power of (m−E)/((m−1) E) with which the excess over E = m grows, {split}, {FIRST}",
        "1 (Section 5)",
        Between("far enough from 1/2 and 2 to tell them from 1", 1 - STEEP, 1 + STEEP),
    )


def declare_printed(split: str) -> DeclaredRow:
    """Returns the row on the printed version."""
    return DeclaredRow(
        f"excess of θ̄ and of the last average, E = {ES[0]}, {split}, {PRINTED}",
        None,
        NotCompared(
            "the paper has θ̄, the mean of all models, which nobody ever has; the proof is of another algorithm"
        ),
        form=".1e",
    )


def variance_factor(summed: int, users: int) -> float:
    """Returns (m−E)/((m−1) E), to which the variance of a mean over E of m is proportional."""
    return (users - summed) / ((users - 1) * summed)


def cost_rows(split: str, found: Sequence[RiskRuns]) -> list[Row]:
    """Returns how the cost of a small E depends on E. The last setting has all users."""
    *few, everybody = found
    users = everybody.setting.users
    factors = [variance_factor(each.setting.summed or users, users) for each in few]
    lost = [[each.each[seed] - everybody.each[seed] for each in few] for seed in range(len(everybody.runs))]
    powers = [power for each in lost if (power := fit_power(factors, each)) is not None]
    row = declare_power(split)
    why = f"{len(powers)} of {len(lost)} runs, over E = {', '.join(str(each.setting.summed) for each in few)}"
    return [row.measure(Estimate.over(powers), why) if powers else row.fail("no run loses by a smaller E")]


def split_rows(split: str, found: Mapping[str, Sequence[RiskRuns]]) -> list[Row]:
    """Returns all rows of a split."""
    rows = []
    for line in LINES:
        runs = {each.setting.summed: each for each in found.get(line.name, ())}
        if line.name == FIRST:
            rows += [declare_bound(summed, split).measure(runs[summed].sides, runs[summed].summary) for summed in TOLD]
        if line.name == PRINTED:
            both = runs[ES[0]]
            heard = Estimate.over([run.heard for run in both.runs])
            rows.append(declare_printed(split).measure((both.excess, heard)))
        else:
            why = f"{runs[APART[0]].accuracy:.1%} right with E = {APART[0]}"
            rows.append(declare_order(line, split).measure(tuple(runs[summed].excess for summed in APART), why))
    return rows + cost_rows(split, found[FIRST])


def spent_row(found: RiskRuns) -> Row:
    """Returns the ε of the paper's noise, against the claimed one."""
    why = "of whoever was summed most often, with the noise of those who were summed with it"
    return declare_spent(found.setting.summed or 0).measure(Estimate.certain(found.worst.exact), why)


def chart_of(split: str, found: Mapping[str, Sequence[RiskRuns]]) -> Chart:
    """Returns the excess against E, with Theorem 4's bound."""
    places = {name: [each.setting.summed or each.setting.users for each in runs] for name, runs in found.items()}
    lines = {name: (places[name], [each.excess.mean for each in runs]) for name, runs in found.items()}
    bounds = {
        f"Theorem 4 with {name}": (places[name], [each.bound for each in found[name]]) for name in (FIRST, SEVERAL)
    }
    lines |= bounds | {"nothing learnt": (places[FIRST], [each.nothing for each in found[FIRST]])}
    dashed = (*bounds, "nothing learnt")
    spread = {name: [each.excess.deviation or 0.0 for each in runs] for name, runs in found.items()}
    return Chart(f"Excess risk against E, {split}", "users summed (E)", "excess risk", lines, True, dashed, spread)


def compare_variants(size: RiskSize, split: str, data: Dataset, progress: Progress) -> dict[str, list[RiskRuns]]:
    """Runs every variant of Algorithm 1 for every E. If all users are summed, the printed version equals that of the
    proof."""
    todo = [(line, summed) for line in LINES for summed in (*ES, *(() if line.name == PRINTED else (size.users,)))]
    found: dict[str, list[RiskRuns]] = {}
    for done, (line, summed) in enumerate(todo):
        progress(f"E = {summed}, {split}, {line.name}", done / len(todo))
        setting = RiskSetting(CLAIMED, line.sigma, size.users, size.steps, line.every, summed, split)
        found.setdefault(line.name, []).append(repeat_runs(setting, data, size.seeds, line.how))
    return found


def run(scale: Scale, progress: Progress) -> Result:
    """Runs Algorithm 1 for every E, with either split."""
    size = SIZES[scale]
    progress("principal components", 0.0)
    data = load_components(size.samples)
    rows: list[Row] = []
    charts, everything = [], []
    for before, split in enumerate(SPLITS):
        part = part_of_progress(progress, before / len(SPLITS), (before + 1) / len(SPLITS))
        found = compare_variants(size, split, data, part)
        rows += split_rows(split, found)
        rows += [spent_row(each) for each in found[FIRST] if split == "i.i.d."]
        everything += [each for runs in found.values() for each in runs]
        charts.append(chart_of(split, found))
    progress("E", 1.0)
    return Result((*rows, assumption_row(everything)), tuple(charts))


REPRODUCTION = Reproduction(
    name="003-e",
    title="Excess risk against the number of users who are summed, with Theorem 4's bound",
    run=run,
    declared=(
        *(declare_bound(summed, split) for summed in TOLD for split in SPLITS),
        *(declare_order(line, split) for line in LINES if line.name != PRINTED for split in SPLITS),
        *map(declare_printed, SPLITS),
        *map(declare_power, SPLITS),
        *map(declare_spent, (*ES, USERS)),
        ASSUMED,
    ),
    unstated=(
        *UNSTATED,
        "Line 4 reads θ̄ of the step before, which lines 6 to 12 set only every K steps. In between we use θ itself.",
        "m in Theorem 1: all users, even where fewer are summed.",
        "The proof wants η_t ≤ 2 η_{t+E}, by which it means K.",
    ),
    changed=(
        *CHANGED,
        "All users continue from each average, as in the proof. As printed, only its contributors do; rows of their "
        "own "
        "show that version.",
        "As many users are asked as are summed, because nobody drops out here: E₀ = E, where Section 3 allows E₀ ≥ "
        "E. Users "
        "who are not asked do no work.",
    ),
)
