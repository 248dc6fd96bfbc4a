"""Peers that learn from the data of users, alone or together (paper 000, Section VI): what, how, and how well.

As in the paper, each peer is given the same number of users, drawn at random, and learns from what is theirs; steps are
of 32 samples at a rate of 0.001, and a round is one pass over a peer's samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset, Indices
from tacit.learn.random_streams import generator
from tacit.learn.scenario import ALONE, Data, Scenario, Split
from tacit.learn.training.assemble import AssembledRun, assemble_run
from tacit.learn.training.local_work import LocalTraining
from tacit.learn.training.loop import Training

CLIP = 8.0
"""No entry of any of these models comes near it."""
LOCAL_ONLY, FEDAVG = "Local-Only", "FedAvg"
Lines: TypeAlias = dict[str, tuple[Sequence[float], Sequence[float]]]
"""Lines of a chart by name."""


@dataclass(frozen=True)
class PeerTask:
    """Something to learn, and as much of it as there is time for."""

    data: str
    model: Mapping[str, Any]
    local: LocalTraining
    samples: int | None
    """To learn from, of all peers together; all of them if None."""
    tested: int | None
    rounds: int
    test_every: int = 1
    """After every so many rounds models are tested that are not all the same: that is as many tests as peers."""
    workers: int = 1

    def gather_data(self, peers: int, seed: int = 0) -> Dataset:
        """Returns the data, owned by peers. Samples and owners follow from the seed."""
        rng = generator(seed, "samples")
        return deal_to_peers(_load(self.data).subsample(self.samples, self.tested, rng), peers, seed)

    def scenario(self, peers: int, protocol: Mapping[str, Any], seed: int = 0) -> Scenario:
        """Returns what is run: one peer a party."""
        return Scenario(
            seed=seed,
            rounds=self.rounds,
            workers=self.workers,
            data=Data(name=self.data, parties=peers, split=Split(kind="owner"), train=self.samples, test=self.tested),
            model=dict(self.model),
            local=self.local,
            protocol=dict(protocol),
        )


@lru_cache(maxsize=1)
def _load(name: str) -> Dataset:
    return datasets.load(name)


def local_work(optimizer: Literal["rmsprop", "adam"]) -> LocalTraining:
    """Returns a round of local work as the paper has it."""
    return LocalTraining(optimizer=optimizer, rate=0.001, batch=32, epochs=1)


def admm(rho: float | tuple[float, ...], iterations: int | None = None) -> dict[str, Any]:
    """Returns SecureD-FL with a constant ρ and so many iterations, or with one ρ for each."""
    options = {"rho": list(rho)} if isinstance(rho, tuple) else {"rho": rho, "iterations": iterations}
    return {"name": "admm", "clip": CLIP, **options}


def deal_to_peers(data: Dataset, peers: int, seed: int = 0) -> Dataset:
    """Returns data that peers own, each that of as many users, but for one, drawn at random.

    Where samples are nobody's, each is a user's of its own.
    """
    users = np.arange(len(data.y)) if data.owner is None else data.owner
    names, whose = np.unique(users, return_inverse=True)
    peer = np.empty(len(names), np.int64)
    for place, part in enumerate(np.array_split(generator(seed, "users").permutation(len(names)), peers)):
        peer[part] = place
    owner: Indices = peer[whose]
    return replace(data, owner=owner, owner_test=None, owners=())


@dataclass(frozen=True)
class AccuracyCurve:
    """Test accuracy after some rounds, as the mean over all peers."""

    rounds: tuple[int, ...]
    accuracy: tuple[float, ...]
    wrong: str = ""
    """What went wrong on the way, if anything did."""

    @property
    def best(self) -> float:
        """The best over training, in per cent."""
        return 100 * max(self.accuracy)

    @property
    def line(self) -> tuple[tuple[int, ...], list[float]]:
        """What to draw, in per cent."""
        return self.rounds, [100 * each for each in self.accuracy]


def average_curves(curves: Sequence[AccuracyCurve]) -> tuple[tuple[Sequence[float], Sequence[float]], list[float]]:
    """Returns the mean over seeds in per cent by rounds, and the standard deviation at each."""
    columns = list(zip(*(curve.line[1] for curve in curves), strict=True))
    spread = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
    return (curves[0].rounds, [fmean(column) for column in columns]), spread


def train_peers(
    task: PeerTask, data: Dataset, peers: int, protocol: Mapping[str, Any], progress: Progress, seed: int = 0
) -> tuple[AccuracyCurve, AssembledRun]:
    """Runs a task among peers, and returns how accurate they became.

    Args:
        task: Task to learn.
        data: Samples, each owned by a peer.
        peers: Number of peers.
        protocol: Protocol that averages, by name, with its options.
        progress: Receives how far it is.
        seed: Seed of the initial model, the batches and the protocol.
    """
    prepared = assemble_run(task.scenario(peers, protocol, seed), data=data)
    every = task.test_every if protocol["name"] == ALONE else 1
    x, y = data.inputs(data.x_test), data.y_test
    rounds, found, wrong = [], [], ""
    for step in prepared.training.steps(task.rounds):
        progress(f"round {step.number} of {task.rounds}", step.number, task.rounds)
        wrong = wrong or step.why or next(iter(prepared.training.excluded.values()), "")
        if step.number % every == 0 or step.number == task.rounds:
            rounds.append(step.number)
            found.append(mean_accuracy(prepared.training, x, y))
    prepared.training.cohort.close()
    return AccuracyCurve(tuple(rounds), tuple(found), wrong), prepared


def mean_accuracy(training: Training, x: NDArray[Any], y: NDArray[Any]) -> float:
    """Returns the mean accuracy over all peers. If their models are the same, one is tested."""
    models = training.models
    same = all(np.array_equal(models[0], each) for each in models[1:])
    scores = training.cohort.evaluate([0], x, y) if same and len(models) > 1 else training.scores(x, y)
    return float(np.mean([score.accuracy for score in scores]))
