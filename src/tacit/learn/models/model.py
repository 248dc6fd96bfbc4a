"""Interface of models: a model is one vector, and operations apply to many such vectors at once."""

import hashlib
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
    """Quality of a model on some samples."""

    loss: float
    """Training objective: the mean loss over samples, plus the model's penalty."""
    accuracy: float | None = None
    """Share of correct labels or tokens; None for regression."""
    rmse: float | None = None
    """Root mean squared error; None for classification."""


@dataclass
class ScoreSums:
    """Sums over chunks of samples, from which a score is computed."""

    losses: float = 0.0
    samples: int = 0
    right: float = 0.0
    answers: int = 0
    """Number of predictions; a sample of text has many."""
    squares: float = 0.0

    def score(self, classes: int, more: float = 0.0) -> Score:
        """Returns the score. `more`, such as a penalty, is added to the loss."""
        loss = self.losses / self.samples + more
        if classes:
            return Score(loss, accuracy=self.right / self.answers)
        return Score(loss, rmse=float(np.sqrt(self.squares / self.answers)))


class Model(ABC):
    """A model whose numbers form one vector of float32, arranged as `layout` says.

    Trained numbers come first. They are followed by numbers that are averaged like the others but have no gradient,
    such as the running means of a batch norm.
    """

    name: str
    layout: Layout
    classes: int
    """Number of labels or tokens; 0 for regression."""

    @property
    def parameters(self) -> int:
        """Length of the vector."""
        return self.layout.size

    @property
    def trained(self) -> int:
        """Number of trained entries, which come first in the vector."""
        return self.parameters

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Floats:
        """Returns the initial vector, the same for every party."""

    @abstractmethod
    def scores(self, matrix: Floats, rows: Sequence[int], x: Array, y: Array) -> list[Score]:
        """Scores the models in some rows of a matrix, on samples as `Dataset.inputs` gives them."""

    def describe(self) -> bytes:
        """Returns bytes that identify the model apart from the numbers in its vector: kind, layout and options."""
        options = {name: value for name, value in vars(self).items() if isinstance(value, str | int | float | bool)}
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return repr((kind, self.layout.entries, sorted(options.items()))).encode()

    def digest(self, start: Floats) -> str:
        """Returns the hash of the model and of its initial vector."""
        found = hashlib.sha256(self.describe())
        found.update(np.ascontiguousarray(start).view(np.uint8).data)
        return found.hexdigest()

    def evaluate(self, vector: Floats, x: Array, y: Array) -> Score:
        """Scores one model, on samples as `Dataset.inputs` gives them."""
        return self.scores(np.asarray(vector)[np.newaxis], [0], x, y)[0]


def make_layout(shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    """Returns the layout of arrays with these names and shapes, in order, as float32."""
    # One number stands for each array, so that no array is allocated.
    one = np.zeros((), np.float32)
    return Layout.of({name: np.broadcast_to(one, shape) for name, shape in shapes.items()})


def slots(layout: Layout) -> dict[str, slice]:
    """Returns the slice of each array in the vector."""
    found, start = {}, 0
    for entry in layout.entries:
        found[entry.name] = slice(start, start + entry.size)
        start += entry.size
    return found
