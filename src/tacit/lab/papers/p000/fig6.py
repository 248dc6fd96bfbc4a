"""Paper 000, Figure 6: how many partitions (parallel classes) the randomised Algorithm 2 finds, by number of peers.

The paper draws a line for groups of 3 and one for groups of 4. Both rise with the number of peers; Section VI-A adds
that 9 and 15 peers give 4 and 5 partitions. We run Algorithm 2 several times, with the rule of its authors' code (a
partition is given up after 1000 failures in a row) and as it is printed (it never is), and put beside it our own
designs and the bound ⌊(n − 1) / (s − 1)⌋, above which somebody would meet somebody twice.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from tacit.core.entropy import SeededEntropy
from tacit.core.progress import Progress
from tacit.designs.groups import groups, randomized_groups
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row

GIVEN = {9: 4, 15: 5}
"""The partitions in threes that Section VI-A gives, by peers."""
PEERS: dict[int, dict[Scale, Sequence[int]]] = {
    3: {"small": range(9, 46, 6), "paper": range(9, 100, 6)},
    4: {"small": range(16, 53, 12), "paper": range(16, 101, 12)},
}
"""Peers by size of groups: those for which a design that reaches the bound is not ruled out."""
TRIALS: dict[Scale, int] = {"small": 300_000, "paper": 1_000_000}
RUNS = 5


@dataclass(frozen=True)
class PartitionCounts:
    """Partitions of so many peers into groups of one size."""

    peers: int
    randomised: tuple[int, ...]
    """What each run of Algorithm 2 found, a partition being given up after 1000 failures."""
    printed: tuple[int, ...]
    """What each run found as printed."""
    ours: int
    bound: int

    @property
    def usual(self) -> int:
        """What most runs of Algorithm 2 found."""
        return Counter(self.randomised).most_common(1)[0][0]


def count_partitions(peers: int, size: int, trials: int, runs: int) -> PartitionCounts:
    """Returns how many partitions each way finds, and how many there can be."""

    def run_searches(patience: int | None) -> tuple[int, ...]:
        streams = [SeededEntropy(run, "figure 6", peers, size) for run in range(runs)]
        return tuple(
            randomized_groups(peers, size, entropy=entropy, trials=trials, patience=patience).gap for entropy in streams
        )

    design = groups(peers, size)
    return PartitionCounts(peers, run_searches(1000), run_searches(None), design.gap, design.bound)


def rows_of(size: int, table: Sequence[PartitionCounts]) -> list[Row]:
    """Returns what the paper says of groups of one size, and what came out."""
    rows = [
        unruled_row(
            f"partitions of {each.peers} peers in groups of {size}",
            str(GIVEN[each.peers]),
            f"{each.usual} ({_range(each.randomised)} in {len(each.randomised)} runs)",
            each.usual == GIVEN[each.peers],
            f"our design has {each.ours}, the bound is {each.bound}",
        )
        for each in table
        if size == 3 and each.peers in GIVEN
    ]
    means = [fmean(each.randomised) for each in table]
    ends = f"{means[0]:.1f} at {table[0].peers} peers to {means[-1]:.1f} at {table[-1].peers}"
    rises = all(before <= after for before, after in pairwise(means))
    rows.append(unruled_row(f"partitions in groups of {size} grow with the peers", "increase", ends, rises))
    printed = [fmean(each.printed) for each in table]
    rows.append(
        unruled_row(
            f"the same, Algorithm 2 as printed, groups of {size}",
            "increase",
            f"{printed[0]:.1f} at {table[0].peers} peers to {printed[-1]:.1f} at {table[-1].peers}",
            printed[-1] > printed[0],
            "as printed no group is ever taken back, so the first partition that cannot be finished is the last",
        )
    )
    last, reached = table[-1], sum(each.ours == each.bound for each in table)
    rows.append(
        unruled_row(
            f"our designs, groups of {size}",
            "",
            f"{last.ours} of at most {last.bound} at {last.peers} peers; the bound is reached at {reached} of "
            f"{len(table)} numbers of peers",
            None,
            f"Algorithm 2 finds {fmean(last.randomised) / last.bound:.0%} of the bound there",
        )
    )
    return rows


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def chart_of(size: int, table: Sequence[PartitionCounts]) -> Chart:
    """Returns the figure for groups of one size."""
    peers = [each.peers for each in table]
    lines: dict[str, list[float]] = {
        "Algorithm 2": [fmean(each.randomised) for each in table],
        "Algorithm 2 as printed": [fmean(each.printed) for each in table],
        "our designs": [each.ours for each in table],
        "bound": [each.bound for each in table],
    }
    drawn = {name: (peers, values) for name, values in lines.items()}
    return Chart(f"Partitions in groups of {size}", "peers", "partitions", drawn, dashed=("bound",))


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
    unstated=(
        "when Algorithm 2 stops: after 1,000,000 trials (300,000 at small scale); with many peers it would still gain "
        "from going on",
        "which numbers of peers are drawn: 9 to 99 in threes and 16 to 100 in fours (to 45 and 52 at small scale)",
        "that a partition which cannot be finished is given up: as printed, Algorithm 2 never does, and both are run",
    ),
)
