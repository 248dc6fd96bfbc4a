"""Paper 004, Figure 6: share of random graphs in which colluding nodes put an honest one at risk, by masking
requirement s.

The paper draws 250,000 random 25-regular graphs of 100 nodes for each s, and counts those in which an honest node is
"connected to an adversary who has at least s adversarial neighbors". With 15 adversaries the share is 1.45 % at s = 9,
and 0 from s = 13 on.

We count the same, and what the count misses: two receivers that compare their sums. Masks do not prevent that, and it
contradicts Theorem 5, by which k colluding nodes learn nothing if s = k. The code is that of the attack `collusion`.
"""

from dataclasses import replace

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
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Estimate, Near, NotCompared, PaperNumber

GIVEN, DRAWN = 0.0145, 250_000
"""The paper's risk at s = 9, and the number of its graphs."""
NONE_FROM = 13
NUMBERS = (5, 10, ADVERSARIES, 20, 25)
GRAPHS: dict[Scale, int] = {"small": 50_000, "paper": DRAWN}
SOLVED: dict[Scale, int] = {"small": 1_000, "paper": 10_000}
"""Number of graphs in which all adversaries' knowledge is solved for honest nodes."""
PAIRED = (5, 10, ADVERSARIES)
"""Numbers of adversaries in the rows on Theorem 5."""
SOLVING = ((ADVERSARIES, 1, 0.1), (ADVERSARIES, 9, 0.3), (NODES // 2, DEGREE - 1, 1.0))
"""Adversaries, masking requirement and selected fraction of the rows that solve for honest nodes."""
COUNT = Near(0.5, "half a point: more would accept a third of the paper's own 1.45 %")
SAME = PaperNumber(100 * GIVEN, rounding=0.005, runs=DRAWN)
NONE = PaperNumber(0.0, runs=DRAWN)
ALONE = {
    9: DeclaredRow(f"graphs at risk, {ADVERSARIES} adversaries, s = 9", SAME, COUNT, "%", ".3f"),
    NONE_FROM: DeclaredRow(f"graphs at risk, {ADVERSARIES} adversaries, s = {NONE_FROM}", NONE, COUNT, "%", ".3f"),
}
PAIRS = {
    s: DeclaredRow(f"the same if two of them compare sums, s = {s}", paper, COUNT, "%", ".1f")
    for s, paper in ((9, SAME), (NONE_FROM, NONE))
}
THEOREM = {
    number: DeclaredRow(
        f"graphs at risk from {number} adversaries at s = {number} (Theorem 5)", NONE, COUNT, "%", ".1f"
    )
    for number in PAIRED
}
SOLVABLE = {
    (number, s, share): DeclaredRow(
        f"graphs with a node that {number} solve for at one index that "
        + ("all select" if share == 1 else f"each selects with {share:.0%}")
        + f", s = {s}",
        None,
        NotCompared("the paper does not solve for nodes"),
        "%",
        ".1f",
    )
    for number, s, share in SOLVING
}


def percent(hits: int, graphs: int) -> Estimate:
    """Returns the share of graphs in per cent."""
    share = Estimate.share(hits, graphs, "graphs")
    return replace(share, mean=100 * share.mean, deviation=100 * (share.deviation or 0.0))


def paper_rows(wins: NDArray[np.int64], graphs: int) -> list[Row]:
    """Returns the paper's values for 15 adversaries, from the graphs at risk by s."""
    most = paper_bound(NODES, DEGREE, ADVERSARIES, NONE_FROM)
    why = {NONE_FROM: f"the expected share is at most {100 * most:.1e} %"}
    return [row.measure(percent(int(wins[s]), graphs), why.get(s, "")) for s, row in ALONE.items()]


def pair_rows(at_risk: NDArray[np.int64], graphs: int) -> list[Row]:
    """Returns the additional risk by two receivers, from the graphs at risk by number of adversaries and s."""
    by_number = dict(zip(NUMBERS, at_risk, strict=True))
    why = "at some index set the sums of two receivers differ by one honest node, whatever the masks"
    rows = [row.measure(percent(int(by_number[ADVERSARIES][s]), graphs), why) for s, row in PAIRS.items()]
    why = "two receivers; the theorem counts masks and not what the sums say"
    return rows + [row.measure(percent(int(by_number[each][each]), graphs), why) for each, row in THEOREM.items()]


def solved_rows(graphs: int, progress: Progress) -> list[Row]:
    """Returns in how many graphs all adversaries together solve for an honest node, at one given index."""
    rows = []
    for (number, s, share), row in SOLVABLE.items():
        progress(f"solving at s = {s}", 0.9)
        found = true_risk(NODES, DEGREE, number, s, graphs, 0, share=share)
        why = "at a given index, where the rows above ask whether there is any"
        rows.append(row.measure(percent(round(found.value * graphs), graphs), why))
    return rows


def chart_of(title: str, at_risk: NDArray[np.int64], graphs: int) -> Chart:
    """Returns the figure for one count."""
    s = list(range(1, DEGREE))
    lines: dict[str, tuple[list[int], list[float]]] = {
        f"{number} adversaries": (s, (wins[1:] / graphs).tolist())
        for number, wins in zip(NUMBERS, at_risk, strict=True)
    }
    paper = f"paper, {ADVERSARIES} adversaries"
    lines[paper] = ([9, *range(NONE_FROM, DEGREE)], [GIVEN, *[0.0] * (DEGREE - NONE_FROM)])
    return Chart(title, "masking requirement (s)", "share of graphs at risk", lines, dashed=(paper,))


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
    declared=(*ALONE.values(), *PAIRS.values(), *THEOREM.values(), *SOLVABLE.values()),
    unstated=(
        "Numbers of adversaries besides 15: we run 5, 10, 20 and 25.",
        "15 adversaries: here exactly 15, not their expectation. If each node were one with 15 %, the risk at s = 9 "
        "would be "
        "about 8 %.",
    ),
    changed=(f"Graphs: one set for every s, {GRAPHS['small']:,} at small scale. The paper has {DRAWN:,} for each.",),
)
