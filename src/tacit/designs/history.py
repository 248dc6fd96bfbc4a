"""Measures of privacy and fairness of participation over rounds (paper 002).

A participation matrix has a row for each round and a column for each user. An entry is 1 if the round summed the user's
vector.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def multi_round_privacy(matrix: ArrayLike) -> int:
    """Returns the strict multi-round privacy T of the paper for a participation matrix (rounds × users, 0 or 1).

    >>> multi_round_privacy([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]])
    2

    T is the size of the smallest class of users with equal columns: a generic combination of the sums gives the members
    of a class the same weight, and other users a different one. Users that never took part are in no sum and do not
    count. If no user took part, nothing was learnt, and T is the number of users. So T never rises with more rounds.
    """
    taken = _as_matrix(matrix)
    columns = taken[:, taken.any(axis=0)].T
    if not columns.size:
        return int(taken.shape[1])
    packed = np.ascontiguousarray(np.packbits(columns, axis=1))
    words = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    return int(np.unique(words, return_counts=True)[1].min())


def cardinality(matrix: ArrayLike) -> float:
    """Returns C, the average number of users that took part in a round.

    >>> cardinality([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]])
    4.0
    """
    taken = _as_matrix(matrix)
    return float(taken.sum() / max(len(taken), 1))


def fairness_gap(matrix: ArrayLike) -> float:
    """Returns F, the largest fraction of rounds that any user took part in, minus the smallest.

    >>> fairness_gap([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]])
    0.5
    """
    taken = _as_matrix(matrix)
    return float(np.ptp(taken.sum(axis=0)) / max(len(taken), 1)) if taken.size else 0.0


def _as_matrix(matrix: ArrayLike) -> NDArray[np.bool]:
    return np.atleast_2d(np.asarray(matrix)).astype(bool)
