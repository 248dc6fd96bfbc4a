"""Paper 004, Figure 6: in how many random graphs colluding nodes put an honest one at risk, by masking requirement s.

The paper draws 250,000 random 25-regular graphs of 100 nodes for each s, and counts those in which an honest node is
"connected to an adversary who has at least s adversarial neighbors". With 15 adversaries that is 1.45 % at s = 9, and
none from s = 13 on.

We count the same, and what the count leaves out: two receivers compare their sums. Masks do not prevent that, and it
breaks Theorem 5, by which k colluding nodes learn nothing if s = k. The code is that of the attack `collusion`.
"""

from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress, part_of_progress
from tacit.lab.attacks.collusion import (
    ADVERSARIES,
    DEGREE,
    NODES,
    one_receiver,
    paper_bound,
    tally,
    true_risk,
    two_receivers,
)
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row

GIVEN, DRAWN = 0.0145, 250_000
"""The paper's risk at s = 9, and from how many graphs it is."""
NONE_FROM = 13
NUMBERS = (5, 10, ADVERSARIES, 20, 25)
GRAPHS: dict[Scale, int] = {"small": 50_000, "paper": DRAWN}
SOLVED: dict[Scale, int] = {"small": 1_000, "paper": 10_000}
"""Graphs in which everything that all adversaries know is solved for honest nodes."""
SURPRISING = 3.0
"""Standard errors by which two counts of the same may differ."""


def paper_rows(wins: NDArray[np.int64], graphs: int) -> list[Row]:
    """Returns what the paper gives of 15 adversaries, from the graphs at risk by s."""
    risk = int(wins[9]) / graphs
    error = sqrt(GIVEN * (1 - GIVEN) * (1 / graphs + 1 / DRAWN))
    most = paper_bound(NODES, DEGREE, ADVERSARIES, NONE_FROM)
    return [
        unruled_row(
            f"graphs at risk, {ADVERSARIES} adversaries, s = 9",
            f"{GIVEN:.2%}",
            f"{risk:.2%}",
            abs(risk - GIVEN) <= SURPRISING * error,
            f"{graphs:,} graphs, standard error {sqrt(risk * (1 - risk) / graphs):.2%}",
        ),
        unruled_row(
            f"graphs at risk, {ADVERSARIES} adversaries, s = {NONE_FROM} or more",
            f"none of {DRAWN:,}",
            f"{int(wins[NONE_FROM])} of {graphs:,}",
            exp(-DRAWN * most) > 0.01 and int(wins[NONE_FROM]) <= max(2, 5 * graphs * most),
            f"the expected share is at most {most:.1e}",
        ),
    ]


def pair_rows(at_risk: NDArray[np.int64], graphs: int) -> list[Row]:
    """Returns what two receivers add, from the graphs at risk by number of adversaries and s."""
    by_number = dict(zip(NUMBERS, at_risk, strict=True))
    rows = []
    for s, paper in ((9, f"{GIVEN:.2%}"), (NONE_FROM, "none")):
        share = int(by_number[ADVERSARIES][s]) / graphs
        rows.append(
            unruled_row(
                f"the same if two of them compare sums, s = {s}",
                paper,
                f"{share:.1%}",
                share <= (GIVEN if s == 9 else 0.0) + SURPRISING * sqrt(GIVEN / graphs),
                "at some index set the sums of two receivers differ by one honest node, whatever the masks",
            )
        )
    for number in (5, 10, ADVERSARIES):
        share = int(by_number[number][number]) / graphs
        rows.append(
            unruled_row(
                f"graphs at risk from {number} adversaries at s = {number} (Theorem 5)",
                "none",
                f"{share:.1%}",
                share == 0.0,
                "two receivers; the theorem counts masks and not what the sums say",
            )
        )
    return rows


def solved_rows(graphs: int, progress: Progress) -> list[Row]:
    """Returns in how many graphs all adversaries together solve for an honest node, at one given index."""
    rows = []
    half, most = NODES // 2, DEGREE - 1
    for number, s, share in ((ADVERSARIES, 1, 0.1), (ADVERSARIES, 9, 0.3), (half, most, 1.0)):
        progress(f"solving at s = {s}", 0.9)
        found = true_risk(NODES, DEGREE, number, s, graphs, 0, share=share)
        who = "all select" if share == 1 else f"each selects with {share:.0%}"
        rows.append(
            unruled_row(
                f"graphs with a node that {number} solve for at one index that {who}, s = {s}",
                "",
                f"{found.value:.1%}",
                None,
                f"{graphs:,} graphs, {found.low:.1%} to {found.high:.1%}; at a given index, where the rows above ask "
                "whether there is any",
            )
        )
    return rows


def chart_of(title: str, at_risk: NDArray[np.int64], graphs: int) -> Chart:
    """Returns the figure for one count."""
    s = list(range(1, DEGREE))
    lines = {
        f"{number} adversaries": (s, (wins[1:] / graphs).tolist())
        for number, wins in zip(NUMBERS, at_risk, strict=True)
    }
    return Chart(title, "masking requirement (s)", "share of graphs at risk", lines)


def run(scale: Scale, progress: Progress) -> Result:
    """Draws graphs and counts."""
    graphs = GRAPHS[scale]
    counts = (one_receiver, two_receivers)
    alone, pairs = tally(counts, NODES, DEGREE, NUMBERS, graphs, 0, part_of_progress(progress, 0.0, 0.9))
    rows = paper_rows(alone[NUMBERS.index(ADVERSARIES)], graphs) + pair_rows(pairs, graphs)
    rows += solved_rows(SOLVED[scale], progress)
    progress("figure 6", 1.0)
    charts = (chart_of("One receiver, as the paper counts", alone, graphs), chart_of("Two receivers", pairs, graphs))
    return Result(tuple(rows), charts)


REPRODUCTION = Reproduction(
    name="004-fig6",
    title="Risk from colluding nodes in random 25-regular graphs",
    run=run,
    unstated=(
        "which numbers of adversaries are drawn besides 15: 5, 10, 20 and 25",
        "whether 15 is how many adversaries there are, or how many to expect: exactly 15; drawn one by one with 15 % "
        "each, the risk at s = 9 would be about 8 %",
        f"one set of graphs serves every s here, {GRAPHS['small']:,} of them at small scale; the paper draws {DRAWN:,} "
        f"for each s",
    ),
)
