"""Learning among neighbours that share some of their entries (paper 004): CESAR and D-PSGD on the same task.

Both start with the same model, split and batches, on the same random regular graph. CESAR selects a fraction α of the
entries, so that about β are sent (Equation 1). The fraction that it did send is measured, and D-PSGD then shares that
fraction, as in the paper (Section 4.5). The quality of nodes that do not agree yet has two measures: the mean accuracy
of the nodes' models, and the accuracy of the mean of all models. Both are reported, because on shards of labels the
first is hardly better than for nodes that train alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from tacit.core.progress import Progress
from tacit.lab.papers.p004.exchange import ELEMENT, gamma_bytes
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset
from tacit.learn.models.model import Score
from tacit.learn.random_streams import generator
from tacit.learn.scenario import ALONE, Data, Scenario, Split
from tacit.learn.training.assemble import assemble_run
from tacit.learn.training.local_training import LocalTraining
from tacit.vectors.sparsify import alpha_for

Sharing: TypeAlias = Literal["random", "topk", "topk of weights"]
"""Random subsampling; TopK by change, as in the paper's code; and TopK by the magnitude of weights."""

Divided: TypeAlias = Literal["iid", "shards", "owner"]

OPTIONS: dict[Sharing, dict[str, str]] = {
    "random": {"sparsifier": "random"},
    "topk": {"sparsifier": "topk", "score": "change"},
    "topk of weights": {"sparsifier": "topk", "score": "magnitude"},
}
CLOSE = 0.5
"""The largest difference in points of accuracy between CESAR and D-PSGD."""


@dataclass(frozen=True)
class NeighbourTask:
    """Learning task by Table 1; on ratings a whole epoch at a larger rate, where the paper takes one step."""

    data: str
    model: str
    local: LocalTraining
    per_epoch: int
    """Rounds in which nodes pass once over their samples, with 48 nodes."""


CIFAR = NeighbourTask("cifar10", "gn-lenet", LocalTraining(rate=0.01, batch=8, steps=6), per_epoch=21)
MOVIELENS = NeighbourTask("movielens", "factorization", LocalTraining(rate=0.2, batch=64, steps=22), per_epoch=22)


@dataclass(frozen=True)
class NeighbourSetting:
    """Setting in which CESAR and D-PSGD are compared."""

    work: NeighbourTask
    split: Divided
    sharing: Sharing
    degree: int
    beta: float

    def __str__(self) -> str:
        split = {"iid": "i.i.d.", "shards": "shards", "owner": "by user"}[self.split]
        sharing = {"random": "random", "topk": "TopK", "topk of weights": "TopK of weights"}[self.sharing]
        return f"{self.work.data} {split}, {sharing}, degree {self.degree}, β = {self.beta:.0%}"

    @property
    def alpha(self) -> float:
        """The fraction that CESAR selects."""
        return alpha_for(self.beta, self.degree)

    def scenario(self, protocol: str, share: float, effort: "NeighbourEffort", seed: int) -> Scenario:
        """Returns the scenario with a protocol, or with every node alone."""
        averaging = {
            "graph": {"kind": "regular", "degree": self.degree, "seed": seed},
            "share": share,
            # Exposure by the graph is a different question; here only learning is compared.
            "allow_leaks": True,
            **OPTIONS[self.sharing],
        }
        return Scenario(
            seed=seed,
            rounds=effort.rounds,
            workers=effort.workers,
            data=Data(name=self.work.data, parties=effort.nodes, split=Split(kind=self.split, per_party=2), test=None),
            model={"name": self.work.model},
            local=self.work.local,
            protocol={"name": protocol, **(averaging if protocol != ALONE else {})},
        )


@dataclass(frozen=True)
class NeighbourEffort:
    """Amount of work for a comparison."""

    nodes: int
    rounds: int
    seeds: int
    each: int
    """Test samples for every node's model."""
    mean: int
    """Test samples for the mean of all models."""
    last: int
    """Number of last rounds after which models are tested, each time on other samples. Scores are means over these
    rounds, because the score of one round on few samples varies much."""
    looks: int = 4
    """Number of earlier tests of the mean of all models, for the chart."""
    workers: int = 1

    def look(self, number: int) -> slice | None:
        """Returns the samples for a test of the mean of all models after a round; None if there is no test."""
        before = self.rounds - self.last
        tested = number > before or number % max(1, before // self.looks) == 0
        return self._part(number, self.mean) if tested else None

    def look_at_each(self, number: int) -> slice | None:
        """Returns the samples for a test of every node's model; None if there is no test."""
        return self._part(number, self.each) if number > self.rounds - self.last else None

    def _part(self, number: int, samples: int) -> slice:
        part = max(number - (self.rounds - self.last) - 1, 0)
        return slice(part * samples, (part + 1) * samples)


@dataclass(frozen=True)
class NeighbourResult:
    """Result of one run. Scores are accuracies in per cent, or root mean squared errors."""

    each: float
    """Mean score over nodes."""
    mean: float
    """Score of the mean of all models."""
    sent: dict[str, float]
    """Bytes that a node sends in a round, by class."""
    shared: float
    """The fraction of its entries that a node sends to a neighbour."""
    line: tuple[tuple[float, float], ...]
    """Scores of the mean of all models, by the number of rounds."""

    @property
    def bytes(self) -> float:
        """All bytes that a node sends in a round."""
        return sum(self.sent.values())


@lru_cache(maxsize=256)
def train_neighbours(
    setting: NeighbourSetting, effort: NeighbourEffort, protocol: str, share: float, seed: int
) -> NeighbourResult:
    """Trains, and tests the result. Cached, because a table and a figure may use the same run."""
    tested = max(effort.each, effort.mean) * effort.last
    data = _data(setting.work.data).subsample(None, tested, generator(seed, "tested"))
    training = assemble_run(setting.scenario(protocol, share, effort, seed), data).training
    x, y = data.inputs(data.x_test), data.y_test
    model, sent = training.cohort.model, Counter[str]()
    line: list[tuple[float, float]] = []
    nodes: list[float] = []
    for step in training.steps(effort.rounds):
        if step.outcome is None:
            raise ValueError(f"round {step.number} of {setting} came to nothing: {step.why}")
        sent.update(step.outcome.traffic.by_class())
        if (part := effort.look(step.number)) is not None:
            line.append((float(step.number), _score(model.evaluate(training.consensus(), x[part], y[part]))))
        if (part := effort.look_at_each(step.number)) is not None:
            nodes += map(_score, training.scores(x[part], y[part]))
    training.cohort.close()
    spent = {name: count / effort.nodes / effort.rounds for name, count in sent.items()}
    shared = spent.get("parameters", 0.0) / (ELEMENT * setting.degree * model.parameters)
    return NeighbourResult(fmean(nodes), fmean(score for _, score in line[-effort.last :]), spent, shared, tuple(line))


def train_alone(work: NeighbourTask, split: Divided, effort: NeighbourEffort) -> NeighbourResult:
    """Trains every node alone, with the first seed, to show the score without averaging."""
    # The graph and the shared fraction make no difference then.
    return train_neighbours(NeighbourSetting(work, split, "random", 3, 0.3), effort, ALONE, 1.0, 0)


@lru_cache(maxsize=1)
def _data(name: str) -> Dataset:
    return datasets.load(name)


def _score(score: Score) -> float:
    """Returns the accuracy in per cent, or the error."""
    if score.accuracy is not None:
        return 100 * score.accuracy
    if score.rmse is None:
        raise ValueError("a model that is neither right nor off")
    return score.rmse


@dataclass(frozen=True)
class CesarComparison:
    """CESAR and D-PSGD on one setting, a run of each for every seed."""

    setting: NeighbourSetting
    cesar: Sequence[NeighbourResult]
    gossip: Sequence[NeighbourResult]

    @property
    def shared(self) -> float:
        """The fraction of their entries that nodes sent, with either protocol."""
        return fmean(run.shared for run in self.cesar)

    @property
    def over(self) -> float:
        """Ratio of CESAR's bytes to D-PSGD's."""
        return fmean(run.bytes for run in self.cesar) / fmean(run.bytes for run in self.gossip)

    def gap(self, of: Literal["each", "mean"]) -> tuple[float, float]:
        """Returns the mean difference of CESAR's score over seeds, and its standard error."""
        gaps = [getattr(ours, of) - getattr(theirs, of) for ours, theirs in zip(self.cesar, self.gossip, strict=True)]
        return fmean(gaps), stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else float("nan")

    def score(self, of: Literal["each", "mean"]) -> tuple[float, float]:
        """Returns the scores of CESAR and of D-PSGD, over seeds."""
        return fmean(getattr(run, of) for run in self.cesar), fmean(getattr(run, of) for run in self.gossip)


def mean_line(runs: Sequence[NeighbourResult]) -> tuple[list[float], list[float]]:
    """Returns the scores of the mean of all models against rounds, averaged over runs."""
    places = [at for at, _ in runs[0].line]
    return places, [fmean(run.line[place][1] for run in runs) for place in range(len(places))]


def compare_with_dpsgd(setting: NeighbourSetting, effort: NeighbourEffort, progress: Progress) -> CesarComparison:
    """Trains with CESAR, and then with D-PSGD at the fraction that CESAR sent."""
    runs: dict[str, list[NeighbourResult]] = {"cesar": [], "gossip": []}
    share = setting.alpha
    for protocol, found in runs.items():
        for seed in range(effort.seeds):
            done = len(runs["cesar"]) + len(runs["gossip"])
            progress(f"{setting}: {protocol}, seed {seed}", done, 2 * effort.seeds)
            found.append(train_neighbours(setting, effort, protocol, share, seed))
        share = fmean(run.shared for run in found)
    return CesarComparison(setting, runs["cesar"], runs["gossip"])


def ratio_by_rule(sharing: Sharing, degree: int, alpha: float, shared: float, second: float) -> float:
    """Returns the ratio of CESAR's bytes to D-PSGD's by the paper's own rule (Section 4.6.1).

    Sets are in Elias gamma code. With TopK both send the set of entries with each model, and CESAR first sends its
    selected set to every node two hops away. With random subsampling D-PSGD sends a seed instead, and CESAR a set with
    each model, because no seed describes the overlap of several.
    """
    values, told = degree * ELEMENT * shared, degree * gamma_bytes(shared, 1)
    if sharing == "random":
        return (values + told) / values
    return (values + told + second * gamma_bytes(alpha, 1)) / (values + told)
