"""Matrix factorization for many parties at once: ratings from the factors of users and items."""

import numpy as np
from numpy.typing import NDArray

from tacit.learn.models.model import Array, Floats, make_layout
from tacit.learn.models.numpy_models import DescentStep, NumpyModel, clip_factors, flat_view, square_lengths


class Factorization(NumpyModel):
    """Matrix factorization: a rating is the product of the factors of a user and an item, and the loss is (z − y)².

    Paper 004 states 206,680 parameters for the 610 users and 9724 items of MovieLens, which is 20 for each. This class
    uses 20 factors without biases, or 19 and a bias (`factors=19, biases=True`). Initial factors are chosen so that
    their products lie around the middle of the scale, `centre`, with a standard deviation of 0.1 per factor. Without
    biases, factors around zero have almost no gradient.

    A step reads and writes only the factors of users and items in the batch, so its time does not depend on their
    number.
    """

    classes = 0

    def __init__(self, users: int, items: int, factors: int = 20, biases: bool = False, centre: float = 2.75) -> None:
        self.name, self.users, self.items, self.factors, self.centre = "factorization", users, items, factors, centre
        shapes: dict[str, tuple[int, ...]] = {"users": (users, factors), "items": (items, factors)}
        if biases:
            shapes |= {"user_bias": (users,), "item_bias": (items,)}
        self.biases, self.layout = biases, make_layout(shapes)

    def initial(self, rng: np.random.Generator) -> Floats:
        """Returns the initial vector, the same for every party."""
        count = (self.users + self.items) * self.factors
        vector = np.zeros(self.parameters, np.float32)
        vector[:count] = rng.normal(np.sqrt(max(self.centre, 0) / self.factors), 0.1, count)
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
        losses, places, values = self._backward(matrix, x, y, weights, clip)
        out[...] = 0
        np.add.at(flat_view(out), places, values)
        return losses

    def descend(self, matrix: Array, x: Array, y: Array, weights: Array, step: DescentStep) -> Array:
        """Takes one step of plain gradient descent in place, and returns the losses before it."""
        losses, places, values = self._backward(matrix, x, y, weights, step.clip)
        if step.keep != 1:
            matrix *= step.keep
        values *= -step.rate
        np.add.at(flat_view(matrix), places, values)
        return losses

    def outputs(self, matrix: Array, x: Array) -> Array:
        """Returns the predictions of models for the same samples."""
        return self._predict_ratings(matrix, np.broadcast_to(x, (len(matrix), *x.shape)))[0]

    def losses(self, outputs: Array, y: Array) -> Array:
        """Returns the loss of each sample, given a model's predictions."""
        found: Array = np.square(outputs - y)
        return found

    def _predict_ratings(self, matrix: Array, x: Array) -> tuple[Array, Array, Array, NDArray[np.int64]]:
        """Returns predicted ratings, the factors that they are products of, and the places of the factors in the flat
        matrix."""
        rows = np.arange(len(matrix))[:, np.newaxis, np.newaxis] * matrix.shape[1]
        # The factors of items follow those of all users.
        starts = rows + (x + np.array([0, self.users])) * self.factors
        places = starts[..., np.newaxis] + np.arange(self.factors)
        numbers = matrix.reshape(-1)
        u, v = numbers[places[:, :, 0]], numbers[places[:, :, 1]]
        z = np.einsum("pbk,pbk->pb", u, v)
        if self.biases:
            z += numbers[self._bias_places(rows, x)].sum(axis=-1)
        return z, u, v, places

    def _bias_places(self, rows: NDArray[np.int64], x: Array) -> NDArray[np.int64]:
        found: NDArray[np.int64] = rows + (self.users + self.items) * self.factors + x + np.array([0, self.users])
        return found

    def _backward(
        self, matrix: Array, x: Array, y: Array, weights: Array, clip: float | None
    ) -> tuple[Array, NDArray[np.int64], Array]:
        """Returns the losses, and the gradient as values with their places in the flat matrix. Places may repeat."""
        z, u, v, places = self._predict_ratings(matrix, x)
        z -= y
        losses = np.einsum("pb,pb,pb->p", z, z, weights)
        slope = 2 * z
        factors = weights * slope
        if clip is not None:
            lengths = np.square(slope) * (square_lengths(u, 2) + square_lengths(v, 2) + 2 * self.biases)
            factors *= clip_factors(lengths, clip)
        values = np.stack(
            [v, u], axis=2
        )  # The gradient of a user's factors is a multiple of the item's factors, and vice versa.
        values *= factors[..., np.newaxis, np.newaxis]
        if not self.biases:
            return losses, places.reshape(-1), values.reshape(-1)
        rows = np.arange(len(matrix))[:, np.newaxis, np.newaxis] * matrix.shape[1]
        more = self._bias_places(rows, x)
        pairs = np.broadcast_to(factors[..., np.newaxis], more.shape)
        return (
            losses,
            np.concatenate([places.reshape(-1), more.reshape(-1)]),
            np.concatenate([values.reshape(-1), pairs.reshape(-1)]),
        )
