"""Data to learn from: one set that comes along, so that the demo needs no network, and larger ones that you bring."""

import hashlib
import io
import os
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

CHECKSUMS = {"mnist": "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"}
"""Sets that are too large to come along: NAME.npz must have this SHA-256."""


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


def mnist() -> Dataset:
    """Returns the 60000 training images of MNIST, 28 × 28 grey levels in 0..1 each, and the digits that they show.

    Takes mnist.npz from the folder `$TACIT_DATA`, or else from the cache; raises ConfigError if it is in neither.
    """
    return _images("mnist")


def _images(name: str) -> Dataset:
    with np.load(io.BytesIO(_stored(name)), allow_pickle=False) as stored:
        x, y = stored["x_train"], stored["y_train"]
    return Dataset(x.reshape(len(x), -1) / 255.0, y.astype(np.int64))


def _stored(name: str) -> bytes:
    """Returns the bytes of NAME.npz, once they are known to be the right ones."""
    given = os.environ.get("TACIT_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit"
    places = [folder / f"{name}.npz" for folder in ([Path(given)] if given else []) + [cache]]
    for place in places:
        if place.is_file():
            data = place.read_bytes()
            if (found := hashlib.sha256(data).hexdigest()) != CHECKSUMS[name]:
                raise ConfigError(f"{place} has the SHA-256 {found}; put the file with {CHECKSUMS[name]} in its place")
            return data
    raise ConfigError(
        f"there is no {name}.npz; put the one with the SHA-256 {CHECKSUMS[name]} into {cache}, "
        "or set TACIT_DATA to the folder that holds it"
    )
