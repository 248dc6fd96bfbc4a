"""Paper 000, Table II: best test accuracy of peers that train alone, by FedAvg, and by SecureD-FL.

The paper trains for 50 rounds among 9 and among 15 peers. SecureD-FL differs from FedAvg by less than 0.02 points on
FEMNIST and Shakespeare. On CIFAR-10 its accuracy decreases by 0.46 % with 9 peers and by 0.73 % with 15. These two are
relative to FedAvg's accuracy; in points they are 0.36 and 0.56. Local-Only is worse everywhere.

We train smaller networks on fewer samples. SecureD-FL uses the 2 iterations of the paper, with a penalty ρ that
decreases from 3 to 0.0009: with a constant ρ two iterations are not enough (`000-fig4`, `000-fig5`). All methods draw
the same batches for the same seed, so they differ only in the averaging. Figure 3 (`000-fig3`) uses the same runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tacit import audit
from tacit.core.progress import Progress, ignore_progress, part_of_progress
from tacit.lab.papers.p000.peers import FEDAVG, LOCAL_ONLY, AccuracyCurve, PeerTask, admm, local_work, train_peers
from tacit.lab.papers.reproduction import DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber, SameSign

PEERS = (9, 15)
SECURE = "SecureD-FL"
METHODS: dict[str, dict[str, Any]] = {
    LOCAL_ONLY: {"name": "local"},
    FEDAVG: {"name": "fedavg"},
    SECURE: admm((3.0, 9e-4)),
}
TABLE = {
    ("femnist", 9): (99.01, 99.52, 99.53),
    ("shakespeare", 9): (50.54, 52.70, 52.71),
    ("cifar10", 9): (57.13, 77.69, 77.33),
    ("femnist", 15): (98.88, 99.52, 99.53),
    ("shakespeare", 15): (49.32, 51.79, 51.78),
    ("cifar10", 15): (48.68, 76.64, 76.08),
}
"""Best test accuracy of Local-Only, FedAvg and SecureD-FL, in per cent, by data and peers."""
RELATIVE = {9: 0.46, 15: 0.73}
"""Drop of SecureD-FL below FedAvg on CIFAR-10 as the paper states it: in per cent of FedAvg's accuracy."""
ROUNDING = 0.01
"""Largest rounding error of a difference of two printed accuracies."""
SEEDS = 3
SMALL_CNN = {"name": "femnist-cnn", "hidden": 64}
GRU = {"name": "gru"}
RESNET = {"name": "resnet"}
TASKS: dict[Scale, tuple[PeerTask, ...]] = {
    "small": (
        PeerTask("femnist", SMALL_CNN, local_work("rmsprop"), samples=1200, tested=1000, rounds=4, test_every=4),
        PeerTask("shakespeare", GRU, local_work("adam"), samples=600, tested=300, rounds=4, test_every=4),
        PeerTask("cifar10", RESNET, local_work("rmsprop"), samples=1200, tested=500, rounds=4, test_every=4),
    ),
    "paper": (
        PeerTask(
            "femnist",
            {"name": "femnist-cnn"},
            local_work("rmsprop"),
            samples=None,
            tested=None,
            rounds=20,
            test_every=4,
            workers=2,
        ),
        PeerTask("shakespeare", GRU, local_work("adam"), samples=7600, tested=2000, rounds=30, test_every=3, workers=2),
        PeerTask(
            "cifar10", RESNET, local_work("rmsprop"), samples=10_000, tested=2000, rounds=15, test_every=3, workers=2
        ),
    ),
}


@dataclass(frozen=True)
class MethodComparison:
    """Curves of each method on one task among some peers, one for each seed."""

    data: str
    peers: int
    curves: Mapping[str, Sequence[AccuracyCurve]]

    def best(self, name: str) -> list[float]:
        """Returns the best accuracy over training of each seed, in per cent."""
        return [curve.best for curve in self.curves[name]]

    def less_fedavg(self, name: str) -> list[float]:
        """Returns the accuracy of a method minus that of FedAvg, in points, seed by seed."""
        return [ours - exact for ours, exact in zip(self.best(name), self.best(FEDAVG), strict=True)]

    @property
    def wrong(self) -> str:
        """Description of a failure in some run; empty if there was none."""
        return next((curve.wrong for curves in self.curves.values() for curve in curves if curve.wrong), "")


@dataclass(frozen=True)
class AccuracyRows:
    """Declared rows of one data set and number of peers."""

    fedavg: DeclaredRow
    alone: DeclaredRow
    secure: DeclaredRow

    def __iter__(self) -> Any:
        return iter((self.fedavg, self.alone, self.secure))


def declare_accuracy(data: str, peers: int) -> AccuracyRows:
    """Returns the rows of one data set and number of peers."""
    alone, fedavg, secure = TABLE[data, peers]
    where = f"{data}, {peers} peers"
    shown = DeclaredRow(
        f"{FEDAVG}, {where}",
        PaperNumber(fedavg, ROUNDING / 2),
        NotCompared("network, number of samples and rounds are others"),
        "%",
    )
    gap = DeclaredRow(
        f"{LOCAL_ONLY} minus {FEDAVG}, {where}",
        PaperNumber(alone - fedavg, ROUNDING),
        SameSign("how much is lost alone depends on the samples of a peer; that it is lost does not"),
        "points",
        "+.2f",
    )
    if data == "cifar10":
        drop = DeclaredRow(
            f"drop of {SECURE} below {FEDAVG}, relative to {FEDAVG}, {where}",
            PaperNumber(RELATIVE[peers], ROUNDING / 2),
            Between('the paper concludes: "in all cases, the degradation is only less than 1%"', high=1.0),
            "%",
            "+.2f",
        )
    else:
        drop = DeclaredRow(
            f"{SECURE} minus {FEDAVG}, {where}",
            PaperNumber(secure - fedavg, ROUNDING),
            Between('the paper: "the test accuracy differs only less than 0.02%"', low=-0.02, high=0.02),
            "points",
            "+.2f",
        )
    return AccuracyRows(shown, gap, drop)


def declare_leak(peers: int) -> DeclaredRow:
    """Declares the row on what a curious peer learns."""
    return DeclaredRow(
        f"peers whose model a curious peer learns in a round, {SECURE}, {peers} peers",
        PaperNumber(0.0),
        Near(0.0, "the audit computes it without chance"),
        form=".0f",
    )


ACCURACY = {key: declare_accuracy(*key) for key in TABLE}
LEAKS = {peers: declare_leak(peers) for peers in PEERS}


def rows_of(found: MethodComparison, coverage: str) -> list[Row]:
    """Returns the rows of one data set and number of peers."""
    declared = ACCURACY[found.data, found.peers]
    if found.wrong:
        return [row.fail(found.wrong) for row in declared]
    lower = [-less for less in found.less_fedavg(SECURE)]
    if found.data == "cifar10":
        drop = [100 * less / exact for less, exact in zip(lower, found.best(FEDAVG), strict=True)]
    else:
        drop = [-less for less in lower]
    return [
        declared.fedavg.measure(Estimate.over(found.best(FEDAVG)), coverage),
        declared.alone.measure(Estimate.over(found.less_fedavg(LOCAL_ONLY)), coverage),
        declared.secure.measure(Estimate.over(drop), coverage),
    ]


def leak_row(protocol: Mapping[str, Any], peers: int) -> Row:
    """Returns what a peer learns about the others' models, by the audit."""
    options = {key: value for key, value in protocol.items() if key != "name"}
    report = audit("admm", parties=peers, coalition=["p0"], drift="free", **options)
    victims = len(report.exposed) + len(report.nearly)
    bits = f"at most {max(report.bits.values()):.1f} bits of an entry; 8 bits count as learnt"
    why = f"by the audit, for entries up to {options['clip']:g}: {bits}"
    return LEAKS[peers].measure(Estimate.certain(victims), why)


@lru_cache(maxsize=8)
def compare_methods(scale: Scale, place: int, peers: int, seeds: int) -> MethodComparison:
    """Runs one of the tasks with each method and seed. Cached, because a table and a figure use the same runs."""
    task = TASKS[scale][place]
    return compare_on(task, peers, seeds, ignore_progress)


def compare_on(task: PeerTask, peers: int, seeds: int, progress: Progress) -> MethodComparison:
    """Runs a task with each method and seed."""
    curves: dict[str, list[AccuracyCurve]] = {name: [] for name in METHODS}
    for seed in range(seeds):
        data = task.gather_data(peers, seed)
        for name, protocol in METHODS.items():
            progress(f"{task.data}, {peers} peers, {name}, seed {seed}", seed / seeds)
            curves[name].append(train_peers(task, data, peers, protocol, ignore_progress, seed)[0])
    return MethodComparison(task.data, peers, curves)


def compare_all(scale: Scale, progress: Progress) -> list[tuple[PeerTask, MethodComparison]]:
    """Returns every task among every number of peers."""
    todo = [(place, peers) for place in range(len(TASKS[scale])) for peers in PEERS]
    found = []
    for done, (place, peers) in enumerate(todo):
        task = TASKS[scale][place]
        part_of_progress(progress, done / len(todo), 1.0)(f"{task.data}, {peers} peers", 0.0)
        found.append((task, compare_methods(scale, place, peers, SEEDS)))
    return found


def cover(task: PeerTask) -> str:
    """Returns which part of a task was run."""
    samples = "all samples" if task.samples is None else f"{task.samples:,} samples"
    tested = "all" if task.tested is None else f"{task.tested:,}"
    return f"{samples}, {task.rounds} rounds, tested on {tested}"


def run(scale: Scale, progress: Progress) -> Result:
    """Trains task by task."""
    rows = [row for task, each in compare_all(scale, progress) for row in rows_of(each, cover(task))]
    rows += [leak_row(METHODS[SECURE], peers) for peers in PEERS]
    progress("table 2", 1.0)
    return Result(tuple(rows))


UNSTATED = (
    "ρ: 3 and then 0.0009, in the 2 iterations that the paper takes.",
    "State of RMSProp and Adam: it is reset in each round here, because the model was replaced.",
    "Best accuracy: here the best round of the mean over all peers.",
    "FEMNIST: the padding in the network.",
    "Shakespeare: here the network predicts the next character at every position.",
)
CHANGED = (
    "Rounds: 4 at small scale, and 20, 30 and 15 at paper scale. The paper has 50.",
    "Samples at small scale: 1,200 of FEMNIST, 600 of Shakespeare and 1,200 of CIFAR-10. The paper has 351,333, 37,986 "
    "and 50,000.",
    "Samples of FEMNIST available here: 21,643 digits of 299 writers.",
    "CIFAR-10: a residual network of 19,954 parameters (3 stages of one block with 8, 16 and 32 filters). The paper "
    "has "
    "ResNet-18 with 11,173,962.",
    "FEMNIST at small scale: 64 hidden units instead of 512.",
    f"{LOCAL_ONLY} at small scale: it is tested after the last round, not after every round.",
    "Initial model: all peers start from the same one. Algorithm 3 averages different initial models first.",
    f"Seeds: {SEEDS}, each with its own samples, owners, initial model and batches. The paper states one run.",
)
REPRODUCTION = Reproduction(
    name="000-table2",
    title="Best test accuracy of Local-Only, FedAvg and SecureD-FL",
    run=run,
    declared=(*(row for rows in ACCURACY.values() for row in rows), *LEAKS.values()),
    unstated=UNSTATED,
    changed=CHANGED,
    extras=("torch",),
    data=("femnist", "shakespeare", "cifar10"),
)
