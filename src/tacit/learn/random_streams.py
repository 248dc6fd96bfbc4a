"""Chance that can be repeated: NumPy's generators, each for one purpose."""

import numpy as np

from tacit.core.entropy import SeededEntropy


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Returns NumPy's generator for one purpose, seeded from our own stream so that no two purposes share one."""
    return np.random.default_rng(int.from_bytes(SeededEntropy(seed, *path).bytes(16)))
