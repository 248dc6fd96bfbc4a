"""Paper 004, Table 4 and Figure 5: what the prestep of CESAR takes, by the degree of the graph.

96 nodes in random k-regular graphs, k = 3, 6, 9, 12, select 40 % by TopK. The paper gives the gigabytes of the prestep
a node in a whole training, the average number of nodes two hops away, and the quotient, which hardly changes: the
prestep grows with the second-degree neighbourhood, and not with the square of the degree as Section 3.4.3 bounds it.

We count nodes two hops away in many random graphs; compute what the paper's rule takes, a set in Elias gamma code to
each of them; and measure what the deployed protocol takes, which lets the common neighbour pass selections on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from tacit.core.progress import Progress
from tacit.lab.attacks.regular_graphs import regular_graphs
from tacit.lab.papers.p004.exchange import (
    MODEL,
    PER_EPOCH,
    ExchangeCost,
    gamma_bytes,
    measure_exchange,
    second_neighbours,
)
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row
from tacit.learn.random_streams import generator

NODES, SHARE = 96, 0.4
TABLE = {3: (0.63, 5.93, 0.1064), 6: (2.77, 26.87, 0.1031), 9: (5.49, 53.48, 0.1027), 12: (7.77, 75.16, 0.1034)}
"""By degree: GB of the prestep, nodes two hops away, GB for each of them."""
EPOCHS = 400
ROUNDS = EPOCHS * PER_EPOCH
RUNS = 5
"""The paper averages over five graphs."""
GRAPHS: dict[Scale, int] = {"small": 200, "paper": 2000}
CLOSE = 0.05
GB = 1e9


@dataclass(frozen=True)
class DegreeCosts:
    """What there is to say of one degree."""

    degree: int
    second: float
    """Mean number of nodes two hops away, over many random graphs."""
    deviation: float
    """Standard deviation of that number over the graphs."""
    measured: ExchangeCost

    @property
    def by_rule(self) -> float:
        """GB of the paper's prestep in a whole training, by its rule."""
        return self.second * gamma_bytes(SHARE, MODEL) * ROUNDS / GB

    @property
    def ours(self) -> float:
        """GB of ours."""
        return self.measured.prestep * ROUNDS / GB


def measure_degree(degree: int, graphs: int) -> DegreeCosts:
    """Returns what the prestep takes at one degree."""
    counts = second_neighbours(regular_graphs(NODES, degree, graphs, generator(degree, "table 4")))
    measured = measure_exchange("cesar", NODES, degree, MODEL, share=SHARE, sparsifier="topk", seed=degree)
    return DegreeCosts(degree, float(counts.mean()), float(counts.std()), measured)


def rows_of(table: Sequence[DegreeCosts]) -> list[Row]:
    """Returns the paper's columns, and ours."""
    rows = []
    for each in table:
        total, second, _ = TABLE[each.degree]
        allowed = 3 * each.deviation / sqrt(RUNS)
        rows += [
            unruled_row(
                f"nodes two hops away, degree {each.degree}",
                f"{second:.2f}",
                f"{each.second:.2f}",
                abs(each.second - second) <= allowed,
                f"the mean of {RUNS} graphs is within {allowed:.2f} of that",
            ),
            unruled_row(
                f"GB of the prestep by the paper's rule, degree {each.degree}",
                f"{total:.2f}",
                f"{each.by_rule:.2f}",
                abs(each.by_rule / total - 1) <= CLOSE,
                f"{gamma_bytes(SHARE, MODEL):,.0f} bytes a set; the number of rounds was chosen to fit, one for all",
            ),
            unruled_row(
                f"GB of the prestep as deployed, degree {each.degree}",
                f"{total:.2f}",
                f"{each.ours:.2f}",
                abs(each.ours / total - 1) <= CLOSE,
                f"{each.measured.prestep / MODEL:.3f} bytes an entry and round: {each.degree} sets, and "
                f"{each.degree * (each.degree - 1)} overlaps with {SHARE:.0%} of the entries, at a bit for each, in "
                f"place of {second:.0f} sets in gamma code",
            ),
        ]
    quotients = [each.by_rule / each.second for each in table]
    given = [TABLE[each.degree][2] for each in table]
    rows.append(
        unruled_row(
            "GB for each node two hops away",
            f"{min(given):.4f} to {max(given):.4f}",
            f"{quotients[0]:.4f} by the rule",
            None,
            "this is what the number of rounds was chosen for",
        )
    )
    first, last = table[0], table[-1]
    growth, theirs = last.ours / first.ours, TABLE[last.degree][0] / TABLE[first.degree][0]
    neighbourhood, square = last.second / first.second, (last.degree / first.degree) ** 2
    rows.append(
        unruled_row(
            f"growth of the prestep from degree {first.degree} to {last.degree}",
            f"{theirs:.1f} times",
            f"{last.by_rule / first.by_rule:.1f} times by the paper's rule, {growth:.1f} as deployed",
            abs(neighbourhood / theirs - 1) <= CLOSE,
            f"the neighbourhood grows {neighbourhood:.1f} times, the square of the degree {square:.0f} times; what is "
            "passed on by common neighbours goes by the degree, in any graph",
        )
    )
    return rows


def charts_of(table: Sequence[DegreeCosts]) -> tuple[Chart, ...]:
    """Returns Figure 5."""
    degrees = [each.degree for each in table]
    lines = {
        "paper": (degrees, [TABLE[each.degree][0] for each in table]),
        "by the paper's rule": (degrees, [each.by_rule for each in table]),
        "as deployed": (degrees, [each.ours for each in table]),
    }
    return (Chart("Prestep of a node in a whole training", "degree", "gigabytes (GB)", lines, dashed=("paper",)),)


def run(scale: Scale, progress: Progress) -> Result:
    """Counts and measures degree by degree."""
    table = []
    for done, degree in enumerate(TABLE):
        progress(f"{NODES} nodes of degree {degree}", done / len(TABLE))
        table.append(measure_degree(degree, GRAPHS[scale]))
    progress("table 4", 1.0)
    return Result(tuple(rows_of(table)), charts_of(table))


REPRODUCTION = Reproduction(
    name="004-table4",
    title="Bytes of CESAR's prestep by the degree of the graph",
    run=run,
    unstated=(
        f"how long the training was: {EPOCHS} epochs of {PER_EPOCH} rounds, for which a set in gamma code to each node "
        f"two hops away takes what the table says; of the rows that follow from it, only how they change is evidence",
        "what TopK selects from: independent normal vectors here, whose sets are as good as random; those of models in "
        "training may overlap more and code shorter",
        "whether nodes two hops away have a link: the paper counts as if they had, and twice as much where they have "
        "not; ours need none",
    ),
)
