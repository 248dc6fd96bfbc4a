"""Who holds which samples."""

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

Indices = NDArray[np.int64]


def even(count: int, parties: int, rng: np.random.Generator) -> list[Indices]:
    """Returns the samples of each party: a random split into parts whose sizes differ by at most one."""
    _check(count, parties)
    return [np.sort(part) for part in np.array_split(rng.permutation(count), parties)]


def by_label(y: NDArray[np.int64], parties: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    """Returns the samples of each party, each label spread over the parties in Dirichlet(alpha) proportions.

    A small alpha gives every party a few labels of its own, a large one the same mix to all. Every party gets at least
    one sample: those that drew none are given one by the party that has most.
    """
    _check(len(y), parties)
    if not 1e-3 <= alpha <= 1e6:
        raise ConfigError(f"alpha must lie between 0.001 (one party a label) and 1000000 (even), not {alpha}")
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        samples = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(parties, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(samples)).astype(np.int64)
        for party, part in enumerate(np.split(samples, cuts)):
            owner[part] = party
    for poorest in np.flatnonzero(np.bincount(owner, minlength=parties) == 0):
        richest = np.bincount(owner, minlength=parties).argmax()
        owner[rng.choice(np.flatnonzero(owner == richest))] = poorest
    return [np.flatnonzero(owner == party) for party in range(parties)]


def _check(count: int, parties: int) -> None:
    if not 1 <= parties <= count:
        raise ConfigError(f"{count} samples can be split among 1 to {count} parties, not {parties}")
