"""Paper 000, Figure 3: test accuracy after each round, of Local-Only, FedAvg and SecureD-FL.

The paper draws six panels: three data sets, with 9 and with 15 peers. It concludes that FedAvg and SecureD-FL are
comparable in all of them, and that Local-Only overfits, more so with more peers. The runs are those of `000-table2`.
The best accuracies of Table II are drawn as dashed lines: the curves themselves have no printed numbers.
"""

from tacit.core.progress import Progress
from tacit.lab.papers.p000.peers import FEDAVG, LOCAL_ONLY, Lines, PeerTask, average_curves
from tacit.lab.papers.p000.table2 import (
    CHANGED,
    METHODS,
    PEERS,
    SECURE,
    TABLE,
    UNSTATED,
    MethodComparison,
    compare_all,
    cover,
)
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, PaperNumber, SameSign

DATA = ("femnist", "shakespeare", "cifar10")


def declare_distance(data: str, peers: int) -> DeclaredRow:
    """Declares the row with the distance between the curves of FedAvg and SecureD-FL."""
    return DeclaredRow(
        f"largest distance of the curves of {FEDAVG} and {SECURE}, {data}, {peers} peers",
        "comparable; less than 1 % in all cases",
        Between("the paper's words; a point is more than its 1 % of an accuracy", high=1.0),
        "points",
    )


def declare_peers(data: str) -> DeclaredRow:
    """Declares the row with the effect of more peers on Local-Only."""
    few, many = (TABLE[data, peers][0] for peers in PEERS)
    return DeclaredRow(
        f"{LOCAL_ONLY} with {PEERS[1]} peers minus with {PEERS[0]}, {data}",
        PaperNumber(many - few, 0.01),
        SameSign("how much is lost depends on the samples of a peer; that fewer samples lose more does not"),
        "points",
        "+.2f",
    )


DISTANCE = {key: declare_distance(*key) for key in TABLE}
MORE_PEERS = {data: declare_peers(data) for data in DATA}


def distance_row(found: MethodComparison, coverage: str) -> Row:
    """Returns the largest distance between the curves, seed by seed."""
    declared = DISTANCE[found.data, found.peers]
    if found.wrong:
        return declared.fail(found.wrong)
    apart = [
        100 * max(abs(one - other) for one, other in zip(exact.accuracy, secure.accuracy, strict=True))
        for exact, secure in zip(found.curves[FEDAVG], found.curves[SECURE], strict=True)
    ]
    return declared.measure(Estimate.over(apart), coverage)


def peers_row(few: MethodComparison, many: MethodComparison, coverage: str) -> Row:
    """Returns the effect of more peers on Local-Only, seed by seed."""
    less = [after - before for before, after in zip(few.best(LOCAL_ONLY), many.best(LOCAL_ONLY), strict=True)]
    return MORE_PEERS[few.data].measure(Estimate.over(less), coverage)


def chart_of(found: MethodComparison, task: PeerTask) -> Chart:
    """Returns one panel, with the best accuracies of the paper as dashed lines."""
    lines: Lines = {}
    dashed: Lines = {}
    spread = {}
    for name in METHODS:
        lines[name], spread[name] = average_curves(found.curves[name])
    for name, best in zip(METHODS, TABLE[found.data, found.peers], strict=True):
        dashed[f"paper, best of {name}"] = ([1, task.rounds], [best, best])
    title = f"Test accuracy, {found.data}, {found.peers} peers"
    return Chart(title, "round", "accuracy in %", lines | dashed, dashed=tuple(dashed), spread=spread)


def run(scale: Scale, progress: Progress) -> Result:
    """Trains, or takes the runs of the table, and draws."""
    found = compare_all(scale, progress)
    rows = [distance_row(each, cover(task)) for task, each in found]
    by_key = {(each.data, each.peers): (each, cover(task)) for task, each in found}
    for data in DATA:
        (few, coverage), (many, _) = (by_key[data, peers] for peers in PEERS)
        rows.append(peers_row(few, many, coverage))
    progress("figure 3", 1.0)
    return Result(tuple(rows), tuple(chart_of(each, task) for task, each in found))


REPRODUCTION = Reproduction(
    name="000-fig3",
    title="Test accuracy after each round",
    run=run,
    declared=(*DISTANCE.values(), *MORE_PEERS.values()),
    unstated=UNSTATED,
    changed=CHANGED,
    extras=("torch",),
    data=DATA,
)
