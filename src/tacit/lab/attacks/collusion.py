"""Colluding receivers against CESAR: the Monte Carlo experiment of paper 004, Section 4.6.4 (Figure 6), and two
extensions.

Random δ-regular graphs are drawn, and some of their nodes collude. The experiment counts the graphs in which they put
an honest node at risk, by the masking requirement s. There are three counts, ordered by what colluding nodes may do:

- **One receiver** (`one_receiver`), as in the paper: an honest node is at risk if it "is connected to an adversary who
  has at least s adversarial neighbors". At an index that only this node and these neighbours select, the adversaries
  know every mask on its entry. Graphs are counted, not nodes. With 15 adversaries among 100 nodes and δ = 25 the result
  is 1.44 % at s = 9; the paper's 250 000 graphs gave 1.45 %, with a standard error of 0.05 %. Other readings of the
  paper give very different results: 0.16 % with more than s adversarial neighbours, 0.3 % of honest nodes instead of
  graphs, and 8 % if every node is an adversary with probability 15 % independently.
- **Two receivers** (`two_receivers`), which Theorem 5 overlooks: each learns the sum over its own neighbours, whatever
  the masks. At an index where the honest terms of the two sums differ by one node, the difference is that node's entry.
  As in the paper, this counts graphs in which some index sets expose a node. Three or more receivers could only add to
  them.
- **All of them** (`true_risk`), by linear algebra: the nodes that follow from all adversaries' sums together, at an
  index that every node selects, or that each node selects with probability α (random subsampling, Section 2.2). This is
  the risk for given index sets, not for the worst ones.

All counts with one seed use the same graphs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from tacit.auditing.engine.patterns.entry_patterns import find_determined
from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.core.progress import Progress, ignore_progress, part_of_progress
from tacit.core.protocol_facts import PAPERS
from tacit.lab.attacks.attack_result import Attack, Finding, proportion_finding
from tacit.lab.attacks.regular_graphs import Graphs, Marks, Whole, regular_graphs

Count: TypeAlias = Callable[[Graphs, int], Whole]
"""Takes graphs and the number of colluding nodes, which come first. Returns for each graph the largest s at which it is
at risk; 0 if it is never at risk."""

NODES, DEGREE, ADVERSARIES = 100, 25, 15  # Section 4.6.4
AT_RISK = "share of networks with a node"
GRAPHS = 250_000
BATCH = 1024


def _batches(nodes: int, degree: int, graphs: int, seed: int, progress: Progress) -> Iterator[Graphs]:
    rng = np.random.default_rng(seed)
    for done in range(0, graphs, BATCH):
        progress(f"drawing networks, {done:,} of {graphs:,}", done / graphs)
        yield regular_graphs(nodes, degree, min(BATCH, graphs - done), rng)
    progress(f"drew {graphs:,} networks", 1.0)


# --- nodes at risk -------------------------------------------------------------------------------------------------


def one_receiver(graphs: Graphs, adversaries: int) -> Whole:
    """Returns for each graph the largest s at which it is at risk by the paper's count: the most adversaries next to
    one.

    That adversary needs an honest neighbour too.
    """
    among = graphs[:, :adversaries, :adversaries].sum(axis=2)
    honest = graphs[:, :adversaries, adversaries:].any(axis=2)
    return np.asarray(np.where(honest, among, 0).max(axis=1))


def two_receivers(graphs: Graphs, adversaries: int) -> Whole:
    """Returns for each graph the largest s at which one or two receivers can expose an honest node at some index.

    Let adversaries k and l have h honest neighbours in common, and a_k and a_l adversarial ones. Let an index be
    selected by exactly these nodes and one more honest neighbour m of l. Then the sum at k is over h + a_k nodes, and
    the sum at l over h + a_l + 1. Their difference is v_m, up to models of adversaries. A sum is sent if it is over at
    least s + 1 nodes (Section 3.4.2).
    """
    to_honest = graphs[:, :adversaries, adversaries:].astype(np.float32)
    h = (to_honest @ to_honest.transpose(0, 2, 1)).astype(np.int64)
    a = graphs[:, :adversaries, :adversaries].sum(axis=2)
    a_k, a_l = a[:, :, None], a[:, None, :]
    has_m = h < to_honest.sum(axis=2)[:, None, :]  # Never true if k is l.
    s = np.where(has_m, np.minimum(h + a_k - 1, h + a_l), 0)
    return np.asarray(np.maximum(s.max(axis=(1, 2)), one_receiver(graphs, adversaries)))


def find_exposed(graphs: Graphs, adversaries: int, masking: int, selected: Marks | None = None) -> Marks:
    """Returns the honest nodes of each graph for which all adversaries together can solve at one index.

    `selected` marks the nodes that select the index; by default all do. Adversary k learns the sum over Sel(k, p) if it
    has at least s + 1 nodes. Subtracting the adversaries' models leaves the sum over the honest nodes. In a regular
    graph all have the same weight, so weights do not matter.
    """
    sel = graphs[:, :adversaries]
    if selected is not None:
        sel = sel & selected[:, None, :]
    sent = sel.sum(axis=2) > masking
    return find_determined(sel[:, :, adversaries:] & sent[:, :, None])


# --- frequencies ---------------------------------------------------------------------------------------------------


def tally(
    counts: Sequence[Count],
    nodes: int,
    degree: int,
    adversaries: Sequence[int],
    graphs: int,
    seed: int,
    progress: Progress = ignore_progress,
) -> Whole:
    """Counts the random graphs at risk: by count, by number of adversaries, and by s from 0 to δ − 1.

    Args:
        counts: Counts to apply, such as `one_receiver`.
        nodes: Number of nodes in a graph.
        degree: Number of neighbours of each node.
        adversaries: Numbers of colluding nodes.
        graphs: Number of random graphs.
        seed: Seed of the graphs.
        progress: Receives the number of sampled graphs.
    """
    for number in adversaries:
        _check(nodes, degree, number, 1)
    s = np.arange(degree)
    at_risk = np.zeros((len(counts), len(adversaries), degree), np.int64)
    for batch in _batches(nodes, degree, graphs, seed, progress):
        for i, count in enumerate(counts):
            for j, number in enumerate(adversaries):
                at_risk[i, j] += (count(batch, number)[:, None] >= s).sum(axis=0)
    return at_risk


def true_risk(
    nodes: int,
    degree: int,
    adversaries: int,
    masking: int,
    graphs: int,
    seed: int,
    progress: Progress = ignore_progress,
    *,
    share: float = 1.0,
) -> Finding:
    """Measures the share of random graphs in which all adversaries together can solve for an honest node.

    Args:
        nodes: Number of nodes in a graph.
        degree: Number of neighbours of each node.
        adversaries: Number of colluding nodes.
        masking: Masking requirement s.
        graphs: Number of random graphs.
        seed: Seed of the graphs.
        progress: Receives the number of sampled graphs.
        share: Probability with which each node selects the index in question.
    """
    _check(nodes, degree, adversaries, masking)
    rng = np.random.default_rng([seed, 1])  # A separate generator, so that the graphs are those of the other counts.
    wins = 0
    for batch in _batches(nodes, degree, graphs, seed, progress):
        selected = rng.random((len(batch), nodes)) < share
        wins += int(find_exposed(batch, adversaries, masking, selected).any(axis=1).sum())
    index = "an entry that all select" if share == 1 else f"an entry that each selects with probability {share:g}"
    target, measure = _target(nodes, degree, adversaries, masking), f"{AT_RISK} exposed to all who collude, at {index}"
    return proportion_finding("collusion", target, measure, wins=wins, tries=graphs)


def paper_bound(nodes: int, degree: int, adversaries: int, masking: int) -> float:
    """Returns an upper bound on the expected value of the paper's count, close to it where it is small, without
    sampling.

    In any regular graph the δ neighbours of an adversary are drawn from n − 1 nodes, among which the other A − 1
    adversaries are placed at random. So the number of adversarial neighbours is hypergeometric. The bound sums over the
    A adversaries.
    """
    from scipy.stats import hypergeom  # Importing it takes a second.

    _check(nodes, degree, adversaries, masking)
    return float(adversaries * hypergeom(nodes - 1, adversaries - 1, degree).sf(masking - 1))


def compute_figure6(
    adversaries: Sequence[int] = (5, 10, 15, 20, 25),
    masking: Sequence[int] = range(1, DEGREE),
    graphs: int = GRAPHS,
    seed: int = 0,
    progress: Progress = ignore_progress,
    *,
    count: Count = one_receiver,
    nodes: int = NODES,
    degree: int = DEGREE,
) -> dict[int, dict[int, Finding]]:
    """Returns the risk by s and number of adversaries, as in Figure 6; with `two_receivers`, for comparison.

    Args:
        adversaries: Numbers of colluding nodes. The paper's text names 15; the others are our choice.
        masking: Masking requirements s.
        graphs: Number of random graphs.
        seed: Seed of the graphs.
        progress: Receives the number of sampled graphs.
        count: The count: one receiver, as in the paper, or two.
        nodes: Number of nodes in a graph.
        degree: Number of neighbours of each node.
    """
    for number in adversaries:
        for s in masking:
            _check(nodes, degree, number, s)
    at_risk = tally((count,), nodes, degree, adversaries, graphs, seed, progress)[0]
    return {
        s: {
            number: _finding(count, nodes, degree, number, s, int(wins[s]), graphs)
            for number, wins in zip(adversaries, at_risk, strict=True)
        }
        for s in masking
    }


def _check(nodes: int, degree: int, adversaries: int, masking: int) -> None:
    problems = []
    if not 1 <= adversaries < nodes:
        problems.append(f"there can be from 1 to {nodes - 1} adversaries, not {adversaries}")
    if not 1 <= masking < degree:
        problems.append(f"a receiver with {degree} neighbours allows s from 1 to {degree - 1}, not {masking}")
    if problems:
        raise ConfigError(problems)


def _target(nodes: int, degree: int, adversaries: int, masking: int) -> str:
    network = f"{nodes} nodes with {degree} neighbours each, {adversaries} collude"
    return f"cesar, each entry masked with at least {format_count(masking, 'other')}, {network}"


def _finding(count: Count, nodes: int, degree: int, adversaries: int, masking: int, wins: int, graphs: int) -> Finding:
    who = "one receiver" if count is one_receiver else "two receivers that compare their sums"
    target, measure = _target(nodes, degree, adversaries, masking), f"{AT_RISK} at risk from {who}"
    # The paper counts one receiver.
    paper = "Fig. 6" if count is one_receiver else ""
    return proportion_finding("collusion", target, measure, wins=wins, tries=graphs, paper=paper)


# --- the attack ----------------------------------------------------------------------------------------------------


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Counts graphs at risk at s = 1, at the paper's s = 9, and from s = 13 on, where the paper finds none.

    Then s nodes collude, about which Theorem 5 claims that they learn nothing. Finally, half of the nodes collude, at
    the largest s: too few for the paper's count, but they have as many sums as there are unknowns.
    """
    graphs, solved = (GRAPHS, 10_000) if full else (2_500, 250)
    half, most = NODES // 2, DEGREE - 1
    counts, numbers = (one_receiver, two_receivers), (5, 10, ADVERSARIES, half)
    at_risk = tally(counts, NODES, DEGREE, numbers, graphs, seed, part_of_progress(progress, 0.0, 0.75))

    def count_findings(s: int, number: int = ADVERSARIES) -> list[Finding]:
        wins = at_risk[:, numbers.index(number), s].tolist()
        return [_finding(count, NODES, DEGREE, number, s, won, graphs) for count, won in zip(counts, wins, strict=True)]

    def solving(place: int, s: int, share: float, number: int = ADVERSARIES) -> Finding:
        begin = 0.75 + 0.05 * place
        part = part_of_progress(progress, begin, begin + 0.05)
        return true_risk(NODES, DEGREE, number, s, solved, seed, part, share=share)

    return [
        *count_findings(1),
        solving(0, 1, 0.1),
        *count_findings(9),
        solving(1, 9, 0.3),
        *count_findings(13),
        solving(2, 13, 0.3),
        solving(3, 13, 1.0),
        *count_findings(5, 5),
        *count_findings(10, 10),
        *count_findings(ADVERSARIES, ADVERSARIES),
        *count_findings(20),
        *count_findings(most, half),
        solving(4, most, 1.0, half),
    ]


ATTACK = Attack(
    name="collusion",
    summary="colluding receivers of cesar compare their sums, in networks drawn at random",
    paper=PAPERS["004"],
    run=run,
)
