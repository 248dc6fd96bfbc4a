"""Models in plain NumPy that take a step for many parties at once, on one (parties × parameters) matrix.

The backward pass is written by hand. A matrix product is one call for all parties, or is accumulated directly into the
matrix (BLAS: W ← βW − η aᵀδ), so that a step of plain descent stores no gradient. No party's result depends on another
party's numbers, so an overflow at one party affects no other.

All computations use the type of the matrix, so the same code can be checked in float64 at full precision.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tacit.learn.models.model import Array, Floats, Model, Score, ScoreSums, make_layout, slots

Head: TypeAlias = Literal["softmax", "logistic", "squares"]

SAMPLES = 256
"""Samples per test batch: 256 images of MNIST fit into a core's cache."""


class DescentStep(NamedTuple):
    """Parameters of one descent step."""

    rate: float
    keep: float = 1.0
    """Factor of every entry before the gradient is subtracted: 1 − η · weight decay."""
    clip: float | None = None
    """Largest norm of a sample's gradient."""


class NumpyModel(Model):
    """A model whose gradients are computed for many parties at once.

    Samples have the shape (parties, batch, …). Their weights sum to 1 for each party. A party with fewer samples than
    the others is filled up with samples of weight 0.
    """

    l2: float = 0.0
    """Factor λ of the penalty λ/2 ‖θ‖² in the loss."""

    @abstractmethod
    def gradients(
        self, matrix: Array, x: Array, y: Array, weights: Array, out: Array, clip: float | None = None
    ) -> Array:
        """Writes the gradient of each party's loss into a row of `out`, and returns the losses.

        A penalty belongs to no sample and is added after clipping.

        Args:
            matrix: Models, one per row.
            x: Inputs of each party's batch.
            y: Targets of each party's batch.
            weights: Weight of each sample; they sum to 1 for each party.
            out: Receives the gradients, one party per row.
            clip: Largest norm of a single sample's gradient; None for no limit.
        """

    @abstractmethod
    def descend(self, matrix: Array, x: Array, y: Array, weights: Array, step: DescentStep) -> Array:
        """Takes one step of plain gradient descent in place, and returns the losses before it."""

    @abstractmethod
    def outputs(self, matrix: Array, x: Array) -> Array:
        """Returns predictions for the same samples, (batch, …): of shape (parties, batch), or (parties, batch,
        classes)."""

    @abstractmethod
    def losses(self, outputs: Array, y: Array) -> Array:
        """Returns the loss of each sample, given the predictions. May overwrite its arguments."""

    def grade(self, outputs: Array, y: Array) -> Array:
        """Returns which predicted labels are correct; for regression, the errors."""
        return outputs.argmax(axis=-1) == y if self.classes else outputs - y

    def penalties(self, matrix: Array) -> Array:
        """Returns the part of each party's loss that does not depend on samples."""
        found: Array = self.l2 / 2 * np.einsum("pd,pd->p", matrix, matrix)
        return found

    def scores(self, matrix: Floats, rows: Sequence[int], x: Array, y: Array) -> list[Score]:
        """Returns the scores of the models in some rows of a matrix."""
        found, y = [ScoreSums() for _ in rows], np.asarray(y, np.int64 if self.classes else None)
        with np.errstate(all="ignore"):  # Models that have diverged are tested too.
            for start in range(0, len(y), SAMPLES):
                some, truth = x[start : start + SAMPLES], y[start : start + SAMPLES]
                for tally, row in zip(found, rows, strict=True):
                    said = self.outputs(matrix[row : row + 1], some)
                    judged = self.grade(said, truth)
                    tally.right += float(np.count_nonzero(judged)) if self.classes else 0.0
                    tally.squares += 0.0 if self.classes else float(np.vdot(judged, judged))
                    tally.answers += judged.size
                    tally.losses += float(self.losses(said, truth).sum())
                    tally.samples += len(truth)
            more = [float(self.penalties(matrix[row : row + 1])[0]) if self.l2 else 0.0 for row in rows]
        return [tally.score(self.classes, each) for tally, each in zip(found, more, strict=True)]


@dataclass(frozen=True)
class Layer:
    """Places of a layer's weights, (outs × ins), and biases in the vector."""

    ins: int
    outs: int
    weights: slice
    bias: slice | None

    def of(self, matrix: Array) -> Array:
        """Returns the weights of all parties as a view: (parties, outs, ins)."""
        return matrix[:, self.weights].reshape(len(matrix), self.outs, self.ins)


class Dense(NumpyModel):
    """Dense layers with ReLU between them. Softmax, linear and logistic regression have one layer, an MLP has more.

    The head determines the loss: cross-entropy over classes ("softmax") or between two classes ("logistic"), or (z −
    y)² ("squares"; paper 001's l = a (w − w*)² + b has no ½ either).

    After the first layer arrays have the shape (parties, units, batch), so that products and sums over classes run
    along contiguous memory.
    """

    def __init__(
        self,
        name: str,
        sizes: Sequence[int],
        head: Head,
        *,
        bias: bool = True,
        l2: float = 0.0,
        positive: Sequence[int] = (1,),
    ) -> None:
        self.name, self.head, self.l2 = name, head, l2
        self.classes = {"softmax": sizes[-1], "logistic": 2, "squares": 0}[head]
        self.positive = np.array(positive)
        """The labels that logistic regression treats as 1."""
        deep = len(sizes) > 2
        shapes: dict[str, tuple[int, ...]] = {}
        for number, (ins, outs) in enumerate(pairwise(sizes), 1):
            prefix = f"layer{number}." if deep else ""
            shapes[f"{prefix}weights"] = (outs, ins)
            if bias:
                shapes[f"{prefix}bias"] = (outs,)
        self.layout = make_layout(shapes)
        at = list(slots(self.layout).values())
        self._layers = [
            Layer(ins, outs, *(at[2 * i : 2 * i + 2] if bias else (at[i], None)))
            for i, (ins, outs) in enumerate(pairwise(sizes))
        ]

    def initial(self, rng: np.random.Generator) -> Floats:
        """Returns the initial vector, the same for every party.

        With one layer the loss is convex, so zeros are a good start. With more layers, weights are normal with variance
        2/ins (He et al. 2015), and biases are zero.
        """
        vector = np.zeros(self.parameters, np.float32)
        if len(self._layers) > 1:
            for layer in self._layers:
                count = layer.ins * layer.outs
                vector[layer.weights] = rng.standard_normal(count, np.float32) * np.sqrt(2 / layer.ins)
        return vector

    def gradients(
        self, matrix: Array, x: Array, y: Array, weights: Array, out: Array, clip: float | None = None
    ) -> Array:
        """Writes the gradient of each party's loss into a row of `out`, and returns the losses.

        Args:
            matrix: Models, one per row.
            x: Inputs of each party's batch.
            y: Targets of each party's batch.
            weights: Weight of each sample; they sum to 1 for each party.
            out: Receives the gradients, one party per row.
            clip: Largest norm of a single sample's gradient; None for no limit.
        """
        losses, ins, slopes = self._backward(matrix, x, y, weights, clip)
        for layer, a, delta in zip(self._layers, ins, slopes, strict=True):
            np.matmul(delta, a.transpose(0, 2, 1), out=layer.of(out))
            if layer.bias is not None:
                delta.sum(axis=2, out=out[:, layer.bias])
        if self.l2:
            out += self.l2 * matrix
        return losses

    def descend(self, matrix: Array, x: Array, y: Array, weights: Array, step: DescentStep) -> Array:
        """Takes one step of plain gradient descent in place, and returns the losses before it."""
        from scipy.linalg.blas import dgemm, sgemm  # This import took a quarter of the time of `import tacit`.

        losses, ins, slopes = self._backward(matrix, x, y, weights, step.clip)
        gemm: Any = sgemm if matrix.dtype == np.float32 else dgemm
        keep = step.keep - step.rate * self.l2
        for layer, a, delta in zip(self._layers, ins, slopes, strict=True):
            w, first = layer.of(matrix), layer is self._layers[0]
            for i in range(len(matrix)):
                # BLAS is column-major, so this is Wᵀ ← βWᵀ − η a δᵀ, in place. The inputs of the first layer are the
                # samples, one per row, which are the right columns for BLAS. The inputs of the other layers must be
                # transposed.
                gemm(-step.rate, a[i] if first else a[i].T, delta[i].T, keep, w[i].T, trans_a=not first, overwrite_c=1)
            if layer.bias is not None:
                bias = matrix[:, layer.bias]
                if keep != 1:
                    bias *= keep
                bias -= step.rate * delta.sum(axis=2)
        return losses

    def outputs(self, matrix: Array, x: Array) -> Array:
        """Returns the predictions of models for the same samples."""
        said = self._forward(matrix, x.reshape(1, len(x), -1))[-1]
        return said.transpose(0, 2, 1) if self.head == "softmax" else said[:, 0]

    def losses(self, outputs: Array, y: Array) -> Array:
        """Returns the loss of each sample, given the predictions."""
        found: Array
        if self.head == "softmax":
            top = outputs.max(axis=-1)
            outputs -= top[..., np.newaxis]  # Without its largest score a row cannot overflow.
            picked = np.take_along_axis(outputs, np.broadcast_to(y, top.shape)[..., np.newaxis], axis=-1)
            found = np.log(np.exp(outputs, out=outputs).sum(axis=-1)) - picked[..., 0]
        elif self.head == "logistic":
            found = np.logaddexp(0, outputs) - np.isin(y, self.positive) * outputs
        else:
            found = np.square(outputs - y)
        return found

    def grade(self, outputs: Array, y: Array) -> Array:
        """Returns which predicted labels are correct; for regression, the errors."""
        if self.head != "logistic":
            return super().grade(outputs, y)
        right: Array = (outputs > 0) == np.isin(y, self.positive)
        return right

    # --- forward and back ------------------------------------------------------------------------------------------

    def _forward(self, matrix: Array, x: Array) -> list[Array]:
        """Returns the input of each layer and the output of the last one: (parties, units, batch)."""
        passed = [x.transpose(0, 2, 1)]
        for layer in self._layers:
            z = np.matmul(layer.of(matrix), passed[-1])
            if layer.bias is not None:
                z += matrix[:, layer.bias, np.newaxis]
            if layer is not self._layers[-1]:
                np.maximum(z, 0, out=z)
            passed.append(z)
        return passed

    def _backward(
        self, matrix: Array, x: Array, y: Array, weights: Array, clip: float | None
    ) -> tuple[Array, list[Array], list[Array]]:
        """Returns the losses and, for each layer, a and δ: its gradient is the sum of δ ⊗ a over samples."""
        *ins, z = self._forward(matrix, x.reshape(*x.shape[:2], -1))
        losses = np.einsum("pb,pb->p", self._slope(z, y), weights)  # From here on, z holds the derivative of the loss.
        if self.l2:
            losses += self.penalties(matrix)
        if clip is None:
            z *= weights[:, np.newaxis]
        slopes = [z]
        for layer, a in zip(self._layers[:0:-1], ins[:0:-1], strict=True):
            delta = np.matmul(layer.of(matrix).transpose(0, 2, 1), slopes[0])
            delta *= a > 0
            slopes.insert(0, delta)
        if clip is not None:
            # ‖δ ⊗ a‖ = ‖δ‖ ‖a‖, and the gradient of a bias is δ itself.
            lengths = np.zeros_like(weights)
            for layer, a, delta in zip(self._layers, ins, slopes, strict=True):
                lengths += square_lengths(delta, 1) * (square_lengths(a, 1) + (layer.bias is not None))
            factors = weights * clip_factors(lengths, clip)
            for delta in slopes:
                delta *= factors[:, np.newaxis]
        return losses, ins, slopes

    def _slope(self, z: Array, y: Array) -> Array:
        """Returns the loss of each sample, (parties, batch), and overwrites z with the derivative."""
        losses: Array
        if self.head == "softmax":
            parties, classes, batch = z.shape
            places = (np.arange(parties)[:, np.newaxis] * classes + y) * batch + np.arange(batch)
            scores = flat_view(z)
            z -= z.max(axis=1, keepdims=True)  # Without its largest score a sample cannot overflow.
            losses = -scores[places]
            np.exp(z, out=z)
            sums = z.sum(axis=1)
            losses += np.log(sums)
            z /= sums[:, np.newaxis]
            scores[places] -= 1
        elif self.head == "logistic":
            truth, score = np.isin(y, self.positive), z[:, 0]
            losses = np.logaddexp(0, score) - truth * score
            # 1/(1 + e⁻ᶻ), computed with tanh, which cannot overflow.
            score *= 0.5
            np.tanh(score, out=score)
            score += 1
            score *= 0.5
            score -= truth
        else:
            z[:, 0] -= y
            losses = np.square(z[:, 0])
            z *= 2
        return losses


def flat_view(matrix: Array) -> Array:
    """Returns a flat view of a matrix, through which it can be written."""
    if not matrix.flags.c_contiguous:
        raise ValueError("rows must lie one behind the other")
    return matrix.reshape(-1)


def square_lengths(vectors: Array, axis: int) -> Array:
    """Returns the squared lengths of vectors along axis 1 or 2, for each party and sample."""
    lengths: Array = np.einsum("pib,pib->pb" if axis == 1 else "pbi,pbi->pb", vectors, vectors)
    return lengths


def clip_factors(squared: Array, clip: float) -> Array:
    """Returns the factors that shorten vectors to a length of at most `clip`, given their squared lengths."""
    factors: Array = clip / np.maximum(np.sqrt(squared), clip)
    return factors
