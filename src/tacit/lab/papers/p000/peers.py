"""Peers that train on the data of users, alone or together (paper 000, Section VI): tasks, training and accuracy.

As in the paper, each peer gets the same number of users, drawn at random, and trains on their samples. Steps use 32
samples and a learning rate of 0.001, and a round is one pass over a peer's samples.
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
from tacit.learn.training.local_training import LocalTraining
from tacit.learn.training.loop import Training

CLIP = 8.0
"""Clip that is far above all entries of these models."""
LOCAL_ONLY, FEDAVG = "Local-Only", "FedAvg"
Lines: TypeAlias = dict[str, tuple[Sequence[float], Sequence[float]]]
"""Lines of a chart by name."""


@dataclass(frozen=True)
class PeerTask:
    """A learning task, with its size."""

    data: str
    model: Mapping[str, Any]
    local: LocalTraining
    samples: int | None
    """Number of training samples of all peers together; None for all."""
    tested: int | None
    rounds: int
    test_every: int = 1
    """Number of rounds between tests of models that differ between peers, which takes as many tests as there are
    peers."""
    workers: int = 1

    def gather_data(self, peers: int, seed: int = 0) -> Dataset:
        """Returns the data with peers as owners. Samples and owners depend on the seed."""
        rng = generator(seed, "samples")
        return deal_to_peers(_load(self.data).subsample(self.samples, self.tested, rng), peers, seed)

    def scenario(self, peers: int, protocol: Mapping[str, Any], seed: int = 0) -> Scenario:
        """Returns the scenario, with one party per peer."""
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
    """Returns SecureD-FL with a constant ρ and that number of iterations, or with one ρ for each."""
    options = {"rho": list(rho)} if isinstance(rho, tuple) else {"rho": rho, "iterations": iterations}
    return {"name": "admm", "clip": CLIP, **options}


def deal_to_peers(data: Dataset, peers: int, seed: int = 0) -> Dataset:
    """Returns the data with peers as owners. Peers get equal numbers of users, up to one, drawn at random.

    If samples have no owners, each sample counts as a user.
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
    """Description of a failure during training; empty if there was none."""

    @property
    def best(self) -> float:
        """The best accuracy over training, in per cent."""
        return 100 * max(self.accuracy)

    @property
    def line(self) -> tuple[tuple[int, ...], list[float]]:
        """The line to draw, in per cent."""
        return self.rounds, [100 * each for each in self.accuracy]


def average_curves(curves: Sequence[AccuracyCurve]) -> tuple[tuple[Sequence[float], Sequence[float]], list[float]]:
    """Returns the mean over seeds in per cent by rounds, and the standard deviation at each."""
    columns = list(zip(*(curve.line[1] for curve in curves), strict=True))
    spread = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
    return (curves[0].rounds, [fmean(column) for column in columns]), spread


def train_peers(
    task: PeerTask, data: Dataset, peers: int, protocol: Mapping[str, Any], progress: Progress, seed: int = 0
) -> tuple[AccuracyCurve, AssembledRun]:
    """Trains a task among peers, and returns the accuracy.

    Args:
        task: Task to learn.
        data: Samples, each owned by a peer.
        peers: Number of peers.
        protocol: Protocol that averages, by name, with its options.
        progress: Receives the progress.
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
    """Returns the mean accuracy over all peers. If their models are equal, only one is tested."""
    models = training.models
    same = all(np.array_equal(models[0], each) for each in models[1:])
    scores = training.cohort.evaluate([0], x, y) if same and len(models) > 1 else training.scores(x, y)
    return float(np.mean([score.accuracy for score in scores]))
