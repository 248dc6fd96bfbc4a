"""Optimizers for many parties at once: PyTorch's rules, with its defaults."""

import numpy as np

from tacit.learn.models.model import Array
from tacit.learn.training.local_training import LocalTraining

FORGET, FORGET_SQUARES, FORGET_RMS, TINY = 0.9, 0.999, 0.99, 1e-8
"""Constants β₁ and β₂ of Adam, α of RMSProp, and the ε of both."""


class Descent:
    """Optimizer that takes steps in place. Its state lasts one round."""

    def __init__(self, local: LocalTraining, matrix: Array) -> None:
        self.local = local
        self.taken = 0
        self._first = np.zeros_like(matrix) if local.momentum or local.optimizer == "adam" else None
        self._second = np.zeros_like(matrix) if local.optimizer != "sgd" else None

    def step(self, matrix: Array, gradients: Array, rate: float) -> None:
        """Updates the first rows of the matrix, one per gradient. The gradients are overwritten."""
        count, local = len(gradients), self.local
        self.taken += 1
        if local.weight_decay:
            gradients += local.weight_decay * matrix[:count]
        if self._second is None:
            self._momentum(matrix[:count], gradients, rate)
        elif local.optimizer == "rmsprop":
            squares = self._second[:count]
            squares *= FORGET_RMS
            squares += (1 - FORGET_RMS) * np.square(gradients)
            gradients /= np.sqrt(squares) + TINY
            matrix[:count] -= rate * gradients
        else:
            self._adam(matrix[:count], gradients, rate)

    def _momentum(self, matrix: Array, gradients: Array, rate: float) -> None:
        moved = gradients
        if self._first is not None:
            moved = self._first[: len(gradients)]
            moved *= self.local.momentum
            moved += gradients
        matrix -= rate * moved

    def _adam(self, matrix: Array, gradients: Array, rate: float) -> None:
        if self._first is None or self._second is None:
            raise AssertionError("Adam has both")
        means, squares = self._first[: len(gradients)], self._second[: len(gradients)]
        means *= FORGET
        means += (1 - FORGET) * gradients
        squares *= FORGET_SQUARES
        squares += (1 - FORGET_SQUARES) * np.square(gradients)
        # Both averages start at zero, which makes them too small at first.
        roots = np.sqrt(squares)
        roots *= 1 / np.sqrt(1 - FORGET_SQUARES**self.taken)
        roots += TINY
        matrix -= rate / (1 - FORGET**self.taken) * (means / roots)
