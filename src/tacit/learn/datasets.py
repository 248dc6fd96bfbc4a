"""Embedded data, so that the demo needs no network."""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Dataset(NamedTuple):
    """Samples, one a row, and their labels."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]


def digits() -> Dataset:
    """Returns 1797 images of handwritten digits, 8 × 8 grey levels in 0..1 each, and the digits 0..9 that they show.

    These are the test images of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine
    Learning Repository, 1998), copied without change from scikit-learn, which distributes them under the 3-clause BSD
    licence.
    """
    with files("tacit.learn").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return Dataset(stored["x"] / 16.0, stored["y"].astype(np.int64))
