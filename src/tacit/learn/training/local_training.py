"""Local training of a party in a round: its steps, learning rate, batches and noise."""

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.config_file import Section
from tacit.learn.random_streams import generator

Integers = NDArray[np.int64]


class LocalTraining(Section, frozen=True, kw_only=True):
    """Local work: stochastic gradient descent, or an update rule that depends on the size of past gradients.

    A step is θ ← θ − η (g + z + weight decay · θ). Here g is the mean gradient over a batch, in which each sample's
    gradient is clipped to the norm `clip` if set, and z is Gaussian noise (paper 003, Algorithm 1, line 4). The state
    of an update rule, such as momentum, is discarded at the end of a round, because averaging replaces the model it
    belongs to.
    """

    rate: float = 0.1
    """Learning rate η."""
    batch: int = 32
    """Batch size; a party with fewer samples takes all of them."""
    epochs: int | None = None
    """Passes over a party's samples in a round; 1 unless `steps` is set."""
    steps: int | None = None
    """Steps in a round, instead of epochs. Samples are shuffled in every round, and again when all were used."""
    optimizer: Literal["sgd", "rmsprop", "adam"] = "sgd"
    """Update rule, with PyTorch's defaults: 0.99 for RMSProp, 0.9 and 0.999 for Adam."""
    momentum: float = 0.0
    weight_decay: float = 0.0
    decay: Literal["none", "inverse", "root"] = "none"
    """Decay of η with t: none, η/(t + delay) or η/√(t + delay)."""
    delay: float = 0.0
    """Offset γ in paper 003's η_t = 2/(λ (t + γ))."""
    count: Literal["rounds", "steps"] = "rounds"
    """Unit of t, from 1: rounds, or all steps so far, which takes a fixed number of `steps`."""
    clip: float | None = None
    """Largest norm G of a single sample's gradient."""
    noise: float = 0.0
    """Standard deviation σ of the noise on every entry of a gradient.

    With noise all batches have the same size, because a sample of a smaller batch would be hidden less. The rest of an
    epoch is left out.
    """

    def problems(self) -> list[str]:
        """Returns all problems, each with a remedy."""
        wrong = [
            f"{name}={value} must be {wanted}"
            for name, value, wanted, fine in (
                ("rate", self.rate, "above 0, such as 0.1", self.rate > 0),
                ("batch", self.batch, "at least 1, such as 32", self.batch >= 1),
                ("epochs", self.epochs, "at least 1", self.epochs is None or self.epochs >= 1),
                ("steps", self.steps, "at least 1", self.steps is None or self.steps >= 1),
                ("momentum", self.momentum, "at least 0 and below 1, such as 0.9", 0 <= self.momentum < 1),
                ("weight_decay", self.weight_decay, "at least 0", self.weight_decay >= 0),
                ("delay", self.delay, "at least 0", self.delay >= 0),
                ("clip", self.clip, "above 0, such as 1.0", self.clip is None or self.clip > 0),
                ("noise", self.noise, "at least 0", self.noise >= 0),
            )
            if not fine or (isinstance(value, float) and not isfinite(value))
        ]
        if self.epochs is not None and self.steps is not None:
            wrong.append(f"epochs={self.epochs} and steps={self.steps} exclude each other; try: give one of the two")
        if self.momentum and self.optimizer != "sgd":
            wrong.append(f'momentum={self.momentum} is for optimizer="sgd"; try: leave it out with "{self.optimizer}"')
        if self.count == "steps" and self.steps is None:
            wrong.append('count="steps" needs a number of steps in a round; try: set steps, or use count="rounds"')
        return wrong

    def steps_of(self, samples: int) -> int:
        """Returns the steps of a round for a party with that many samples."""
        if self.steps is not None:
            return self.steps
        return (self.epochs or 1) * self.batches_of(samples)

    def batches_of(self, samples: int) -> int:
        """Returns the number of batches of one pass over that many samples."""
        batch = min(self.batch, samples)
        return samples // batch if self.noise else -(-samples // batch)

    def rate_at(self, round_: int, step: int = 0) -> float:
        """Returns η for a round, counted from 1, and a step in it, counted from 0."""
        if self.decay == "none":
            return self.rate
        t = round_ if self.count == "rounds" else (round_ - 1) * (self.steps or 1) + step + 1
        return self.rate / (t + self.delay if self.decay == "inverse" else sqrt(t + self.delay))

    @property
    def plain(self) -> bool:
        """Whether a step only subtracts a multiple of the gradient."""
        return self.optimizer == "sgd" and not self.momentum and not self.noise


@dataclass(frozen=True)
class LocalBatches:
    """Batches of a party in a round: slices of one sequence of its samples."""

    order: Integers
    starts: Integers
    sizes: Integers

    @classmethod
    def of(cls, local: LocalTraining, samples: int, rng: np.random.Generator, least: int = 1) -> "LocalBatches":
        """Draws the batches. The last batch of an epoch may be smaller; if it has fewer than `least` samples, it is
        merged with the one before.

        With noise there is no smaller batch.
        """
        batch = min(local.batch, samples)
        sizes = [batch] * (samples // batch) + [samples % batch] * (samples % batch > 0)
        if local.noise:
            del sizes[local.batches_of(samples) :]
        elif len(sizes) > 1 and sizes[-1] < least:
            sizes[-2:] = [sum(sizes[-2:])]
        epochs = local.epochs or 1 if local.steps is None else -(-local.steps // len(sizes))
        order = np.concatenate([rng.permutation(samples)[: sum(sizes)] for _ in range(epochs)])
        all_sizes = np.array(sizes * epochs, np.int64)
        starts = np.cumsum(all_sizes) - all_sizes
        return cls(order, starts[: local.steps], all_sizes[: local.steps])

    def __len__(self) -> int:
        return len(self.sizes)

    def batch(self, step: int) -> Integers:
        """Returns the samples of one step."""
        start = self.starts[step]
        return self.order[start : start + self.sizes[step]]

    def grid(self, width: int) -> Integers:
        """Returns the samples of all steps, (steps × width). The last sample of a smaller batch is repeated."""
        places = np.minimum(np.arange(width), self.sizes[:, np.newaxis] - 1) + self.starts[:, np.newaxis]
        found: Integers = self.order[places]
        return found


def draw_batches(
    local: LocalTraining, samples: int, seed: int, party: int, round_: int, least: int = 1
) -> LocalBatches:
    """Draws the batches of a party in a round. They follow from the arguments alone."""
    return LocalBatches.of(local, samples, generator(seed, "batches", party, round_), least)
