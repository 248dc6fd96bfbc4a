"""Reproducible random numbers: one NumPy generator for each purpose."""

import numpy as np

from tacit.core.entropy import SeededEntropy


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Returns NumPy's generator for one purpose, seeded so that no two purposes share a stream."""
    return np.random.default_rng(int.from_bytes(SeededEntropy(seed, *path).bytes(16)))
