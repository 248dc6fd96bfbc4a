"""Softmax regression in plain NumPy, in double precision, for one party at a time.

The demo and the attacks on sums use it. `learn/models/numpy_models.py` has the one for whole cohorts.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

ModelArrays: TypeAlias = dict[str, NDArray[np.float64]]
"""Arrays by their names."""


@dataclass(frozen=True)
class Softmax:
    """Softmax regression. Models are dicts of arrays as arguments and results; none is stored or changed in place."""

    classes: int
    features: int

    def initial(self) -> ModelArrays:
        """Returns the initial model of all parties. The loss is convex, so zeros are a good start."""
        return {"weights": np.zeros((self.features, self.classes)), "bias": np.zeros(self.classes)}

    def loss_and_gradient(
        self, model: ModelArrays, x: NDArray[np.float64], y: NDArray[np.int64]
    ) -> tuple[float, ModelArrays]:
        """Returns the mean cross-entropy over the samples, and its gradient."""
        scores = x @ model["weights"] + model["bias"]
        # Without its largest score a row cannot overflow; its probabilities stay the same.
        scores -= scores.max(axis=1, keepdims=True)
        probabilities = np.exp(scores)
        sums = probabilities.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = float(np.mean(np.log(sums[:, 0]) - scores[rows, y]))
        slope = probabilities / sums
        slope[rows, y] -= 1
        slope /= len(y)
        return loss, {"weights": x.T @ slope, "bias": slope.sum(axis=0)}

    def accuracy(self, model: ModelArrays, x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
        """Returns the share of samples that the model labels correctly."""
        return float(np.mean((x @ model["weights"] + model["bias"]).argmax(axis=1) == y))

    def train_locally(
        self,
        model: ModelArrays,
        x: NDArray[np.float64],
        y: NDArray[np.int64],
        *,
        epochs: int,
        rate: float,
        batch: int,
        rng: np.random.Generator,
    ) -> ModelArrays:
        """Returns the model after stochastic gradient descent on one party's samples.

        Args:
            model: Model to start from.
            x: Inputs, one sample per row.
            y: Labels.
            epochs: Passes over the samples, which are shuffled before each.
            rate: Learning rate.
            batch: Samples per step.
            rng: Generator that shuffles the samples.
        """
        if epochs < 1 or batch < 1 or not 0 < rate < float("inf"):
            raise ConfigError(
                f"epochs and batch must be at least 1 and rate positive, not {epochs=}, {batch=} and {rate=}"
            )
        trained = {name: values.copy() for name, values in model.items()}
        for _ in range(epochs):
            order = rng.permutation(len(y))
            for start in range(0, len(order), batch):
                chosen = order[start : start + batch]
                _, gradient = self.loss_and_gradient(trained, x[chosen], y[chosen])
                for name, values in trained.items():
                    values -= rate * gradient[name]
        return trained
