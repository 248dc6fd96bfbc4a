"""Models trained in a ring of 16 bits, compared with 32 bits: accuracy and bytes.

Only bits=16 is set. As in `tacit.train`, the clip is chosen from the updates of the first round, and entries are
rounded stochastically. The notes say which clip was chosen, and how large rounding is compared with a round's change.
Both runs have the same data, split, batches and graph, so they differ in rounding alone. Accuracies without a server
are the mean over nodes, and that of the mean of all models; with several seeds, the mean.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
from typing import Any

from benchmarks.measure import Row, comparison_row
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset
from tacit.learn.random_streams import generator
from tacit.learn.scenario import Data, Scenario, Split
from tacit.learn.training.assemble import assemble_run
from tacit.learn.training.local_training import LocalTraining

Say = Callable[[str], None]

CLOSE = 0.5
"""The largest difference in points of accuracy with 16 bits."""
HALF = 1.9
"""Required factor of fewer bytes, where mostly vectors are sent."""
LONG = 50_000
"""Length from which on vectors dominate the traffic. Keys and shares have the same length in every ring."""
GRAPH = {"kind": "regular", "degree": 4}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "secagg": {},
    "gossip": {"graph": GRAPH},
    # Exposure by the graph is a different question; only learning is compared.
    "cesar": {"graph": GRAPH, "allow_leaks": True},
}


@dataclass(frozen=True)
class Case:
    """A learning task, and its length."""

    data: str
    model: str
    local: LocalTraining
    parties: int
    rounds: int
    seeds: int
    test: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def scenario(self, protocol: str, bits: int, seed: int) -> Scenario:
        """Returns the scenario with a ring."""
        return Scenario(
            seed=seed,
            rounds=self.rounds,
            evaluate=self.rounds,
            data=Data(name=self.data, parties=self.parties, split=Split(kind="dirichlet", alpha=0.5), test=self.test),
            model={"name": self.model, **self.options},
            local=self.local,
            protocol={"name": protocol, "bits": bits, **PROTOCOLS[protocol]},
        )


@dataclass(frozen=True)
class TrainedCase:
    """Results of a run."""

    accuracy: float
    consensus: float | None
    """Accuracy of the mean of all models in per cent, like `accuracy`; None with a server."""
    bytes: float
    """Bytes that a party sends in a round."""
    entries: int
    notes: tuple[str, ...]


SMALL = LocalTraining(rate=0.1, batch=16)
CASES = (
    Case("digits", "softmax", SMALL, parties=10, rounds=30, seeds=3),
    Case("digits", "mlp", SMALL, parties=10, rounds=30, seeds=3),
    Case("mnist", "softmax", LocalTraining(rate=0.05, batch=32, steps=20), parties=20, rounds=20, seeds=3),
    Case("mnist", "mlp", LocalTraining(rate=0.05, batch=32, steps=20), parties=20, rounds=20, seeds=3),
    Case("cifar10", "gn-lenet", LocalTraining(rate=0.01, batch=8, steps=6), parties=8, rounds=25, seeds=2, test=4000),
)
QUICK = (Case("digits", "softmax", SMALL, parties=6, rounds=3, seeds=1),)


def rows(quick: bool = False, say: Say = lambda _: None) -> Iterator[Row]:
    """Yields accuracy and bytes of each case and protocol; targets are for the full sizes only."""
    for case in QUICK if quick else CASES:
        for protocol in PROTOCOLS:
            runs = {}
            for bits in (32, 16):
                say(f"{case.data} {case.model}, {protocol}, {bits} bits")
                runs[bits] = [train_case(case, protocol, bits, seed) for seed in range(case.seeds)]
            yield from _rows(f"{case.data} {case.model}, {protocol}", runs[16], runs[32], targets=not quick)


def _rows(name: str, few: list[TrainedCase], many: list[TrainedCase], *, targets: bool) -> Iterator[Row]:
    limit = f"within {CLOSE} points" if targets else None
    notes = "; ".join(dict.fromkeys(note for run in few for note in run.notes))
    for what, which in (("accuracy", "accuracy"), ("of the mean model", "consensus")):
        ours, theirs = ([getattr(run, which) for run in runs] for runs in (few, many))
        if None in ours:
            continue
        gap = fmean(ours) - fmean(theirs)
        met = abs(gap) <= CLOSE if targets else None
        yield Row(f"{name}: {what}", fmean(ours), fmean(theirs), "%", None, limit, met, f"{gap:+.2f} points; {notes}")
    half = HALF if targets and few[0].entries >= LONG else None
    spent = [fmean(run.bytes for run in runs) for runs in (few, many)]
    yield comparison_row(f"{name}: sent by a party in a round", *spent, "bytes", half, f"{few[0].entries:,} entries")


def train_case(case: Case, protocol: str, bits: int, seed: int) -> TrainedCase:
    """Trains in a ring."""
    data = _data(case.data).subsample(None, case.test, generator(seed, "tested"))
    prepared = assemble_run(case.scenario(protocol, bits, seed), data)
    sent, notes = 0, list(prepared.notes)
    for metrics in prepared.rounds():
        sent += metrics.bytes
        notes += metrics.notes
    assert metrics.accuracy is not None
    return TrainedCase(
        100 * metrics.accuracy,
        None if metrics.consensus is None else 100 * metrics.consensus,
        sent / case.rounds / case.parties,
        prepared.training.cohort.model.parameters,
        tuple(notes),
    )


@cache
def _data(name: str) -> Dataset:
    return datasets.load(name)
