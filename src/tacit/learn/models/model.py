"""What a model is here: a vector of numbers, and what can be done with many such vectors at once."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.vectors.layout import Layout

Floats: TypeAlias = NDArray[np.float32]
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Score:
    """How good a model is on samples."""

    loss: float
    """What training makes small: the mean over samples, and what the model adds to it, such as a penalty."""
    accuracy: float | None = None
    """The share of labels, or of tokens, that are right; None where numbers are predicted,"""
    rmse: float | None = None
    """and there, the root of the mean squared error."""


@dataclass
class ScoreSums:
    """What is summed over chunks of samples on the way to a score."""

    losses: float = 0.0
    samples: int = 0
    right: float = 0.0
    answers: int = 0
    """Labels or numbers: a sample of text has many."""
    squares: float = 0.0

    def score(self, classes: int, more: float = 0.0) -> Score:
        """Returns the score; `more` is what the loss has beside the samples."""
        loss = self.losses / self.samples + more
        if classes:
            return Score(loss, accuracy=self.right / self.answers)
        return Score(loss, rmse=float(np.sqrt(self.squares / self.answers)))


class Model(ABC):
    """A model whose numbers are one vector, of float32, laid out as `layout` says.

    Numbers that are trained come first. Behind them are those that are averaged like the others but never touched by a
    gradient, such as the running means of a batch norm.
    """

    name: str
    layout: Layout
    classes: int
    """How many labels, or tokens, it tells apart; 0 if it predicts numbers."""

    @property
    def parameters(self) -> int:
        """How long the vector is."""
        return self.layout.size

    @property
    def trained(self) -> int:
        """How many of the vector's numbers are trained: the first ones."""
        return self.parameters

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Floats:
        """Returns the vector that everybody starts from."""

    @abstractmethod
    def scores(self, matrix: Floats, rows: Sequence[int], x: Array, y: Array) -> list[Score]:
        """Returns how good the models in some rows of a matrix are, on samples as `Dataset.inputs` gives them."""

    def evaluate(self, vector: Floats, x: Array, y: Array) -> Score:
        """Returns how good a model is, on samples as `Dataset.inputs` gives them."""
        return self.scores(np.asarray(vector)[np.newaxis], [0], x, y)[0]


def make_layout(shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    """Returns the layout of arrays with these names and shapes, in order, as float32."""
    # One number stands for each array, so that nothing is allocated.
    one = np.zeros((), np.float32)
    return Layout.of({name: np.broadcast_to(one, shape) for name, shape in shapes.items()})


def slots(layout: Layout) -> dict[str, slice]:
    """Returns where in the vector each array is."""
    found, start = {}, 0
    for entry in layout.entries:
        found[entry.name] = slice(start, start + entry.size)
        start += entry.size
    return found
