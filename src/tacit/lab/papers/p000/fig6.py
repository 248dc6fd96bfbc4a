"""Paper 000, Figure 6: number of partitions (parallel classes) that the randomised Algorithm 2 finds, by number of
peers.

The paper draws a line for groups of 3 and one for groups of 4. Both rise with the number of peers; Section VI-A adds
that 9 and 15 peers give 4 and 5 partitions. We run Algorithm 2 several times, with the rule of its authors' code (a
partition is given up after 1000 failures in a row) and as printed (it is never given up). We compare it with our own
designs and the bound ⌊(n − 1) / (s − 1)⌋, above which some pair of peers would be in one group twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tacit.core.entropy import SeededEntropy
from tacit.core.progress import Progress
from tacit.designs.groups import groups, randomized_groups
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Estimate, Near, NotCompared, PaperNumber, SameSign

GIVEN = {9: 4, 15: 5}
"""The numbers of partitions into groups of three that Section VI-A gives, by number of peers."""
PEERS: dict[int, dict[Scale, Sequence[int]]] = {
    3: {"small": range(9, 46, 6), "paper": range(9, 100, 6)},
    4: {"small": range(16, 53, 12), "paper": range(16, 101, 12)},
}
"""Numbers of peers by group size: those for which a design that reaches the bound is not excluded."""
TRIALS: dict[Scale, int] = {"small": 300_000, "paper": 1_000_000}
RUNS = 5


@dataclass(frozen=True)
class PartitionCounts:
    """Numbers of partitions of the peers into groups of one size."""

    peers: int
    randomised: tuple[int, ...]
    """Result of each run of Algorithm 2, with a partition given up after 1000 failures."""
    printed: tuple[int, ...]
    """Result of each run of Algorithm 2 as printed."""
    ours: int
    bound: int


def count_partitions(peers: int, size: int, trials: int, runs: int) -> PartitionCounts:
    """Returns how many partitions each method finds, and the upper bound."""

    def run_searches(patience: int | None) -> tuple[int, ...]:
        streams = [SeededEntropy(run, "figure 6", peers, size) for run in range(runs)]
        return tuple(
            randomized_groups(peers, size, entropy=entropy, trials=trials, patience=patience).gap for entropy in streams
        )

    design = groups(peers, size)
    return PartitionCounts(peers, run_searches(1000), run_searches(None), design.gap, design.bound)


COUNTED = {
    peers: DeclaredRow(
        f"partitions of {peers} peers in groups of 3",
        PaperNumber(given, runs=1),
        Near(1.0, "partitions are whole: an interval wider than one says nothing"),
        form=".1f",
    )
    for peers, given in GIVEN.items()
}
GROWTH = {
    size: DeclaredRow(
        f"partitions gained from the fewest to the most peers, groups of {size}",
        "increases as the number of peers grows",
        SameSign("the paper draws the lines and prints no number of them", 1),
        form="+.1f",
    )
    for size in PEERS
}
PRINTED = {
    size: DeclaredRow(
        f"the same by Algorithm 2 as printed, groups of {size}",
        "increases as the number of peers grows",
        SameSign("the paper draws the lines and prints no number of them", 1),
        form="+.1f",
    )
    for size in PEERS
}
OURS = {
    size: DeclaredRow(
        f"share of the bound that our designs reach at the most peers, groups of {size}",
        None,
        NotCompared("the designs are ours"),
        "%",
        ".0f",
    )
    for size in PEERS
}


def rows_of(size: int, table: Sequence[PartitionCounts]) -> list[Row]:
    """Returns the paper's statements about groups of one size, and our results."""
    rows = [
        COUNTED[each.peers].measure(
            Estimate.over(each.randomised, "runs"), f"our design has {each.ours}, the bound is {each.bound}"
        )
        for each in table
        if size == 3 and each.peers in GIVEN
    ]
    first, last = table[0], table[-1]
    for declared, name, why in (
        (GROWTH[size], "randomised", ""),
        (PRINTED[size], "printed", "; no group is ever taken back, so the first partition that fails is the last"),
    ):
        few, many = getattr(first, name), getattr(last, name)
        gained = [after - before for before, after in zip(few, many, strict=True)]
        ends = f"{fmean(few):.1f} at {first.peers} peers, {fmean(many):.1f} at {last.peers}"
        rows.append(declared.measure(Estimate.over(gained, "runs"), ends + why))
    reached = sum(each.ours == each.bound for each in table)
    why = f"{last.ours} of at most {last.bound} at {last.peers} peers; reached at {reached} of {len(table)} numbers"
    rows.append(OURS[size].measure(Estimate.certain(100 * last.ours / last.bound), why))
    return rows


def chart_of(size: int, table: Sequence[PartitionCounts]) -> Chart:
    """Returns the figure for groups of one size, with the numbers that the paper prints."""
    peers = [each.peers for each in table]
    lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "Algorithm 2": (peers, [fmean(each.randomised) for each in table]),
        "Algorithm 2 as printed": (peers, [fmean(each.printed) for each in table]),
        "our designs": (peers, [each.ours for each in table]),
        "bound": (peers, [each.bound for each in table]),
    }
    spread = {
        "Algorithm 2": [stdev(each.randomised) for each in table],
        "Algorithm 2 as printed": [stdev(each.printed) for each in table],
    }
    dashed = ["bound"]
    if size == 3:
        lines["paper"] = (list(GIVEN), list(GIVEN.values()))
        dashed.append("paper")
    title = f"Partitions in groups of {size}"
    return Chart(title, "peers", "partitions", lines, dashed=tuple(dashed), spread=spread)


def run(scale: Scale, progress: Progress) -> Result:
    """Searches partitions of more and more peers."""
    todo = [(size, peers) for size, by_scale in PEERS.items() for peers in by_scale[scale]]
    tables: dict[int, list[PartitionCounts]] = {size: [] for size in PEERS}
    for done, (size, peers) in enumerate(todo):
        progress(f"{peers} peers in groups of {size}", done / len(todo))
        tables[size].append(count_partitions(peers, size, TRIALS[scale], RUNS))
    progress("groups", 1.0)
    rows = [row for size, table in tables.items() for row in rows_of(size, table)]
    return Result(tuple(rows), tuple(chart_of(size, table) for size, table in tables.items()))


REPRODUCTION = Reproduction(
    name="000-fig6",
    title="Partitions that the randomised group construction finds",
    run=run,
    declared=(*COUNTED.values(), *GROWTH.values(), *PRINTED.values(), *OURS.values()),
    unstated=(
        "End of Algorithm 2: it stops after 1,000,000 trials (300,000 at small scale). With many peers more trials "
        "would "
        "still find more.",
        "Numbers of peers: 9 to 99 in groups of 3, and 16 to 100 in groups of 4 (to 45 and 52 at small scale).",
        "A partition that cannot be finished is given up here. As printed, Algorithm 2 never gives one up. Both "
        "versions "
        "are run.",
        "Numbers of the lines: the chart has the two that Section VI-A gives.",
    ),
    changed=(f"Runs: {RUNS} for each number of peers; the paper states one.",),
)
