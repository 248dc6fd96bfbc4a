"""What participation gives away over rounds: the measures of paper 002, and the history a client keeps.

A participation matrix has a row for each round and a column for each user, and says whose vectors were summed.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one client helped to unmask, kept across rounds so that it can judge the next set for itself.

    Parties go by name, because their positions change with the roster.
    """

    sets: tuple[tuple[str, ...], ...] = ()
    """Unmasked sets, but for those that told nobody else apart. There are never more of them than of names."""

    def would_keep(self, chosen: Collection[str]) -> int:
        """Returns the multi-round privacy of all recorded sets and this one together."""
        return min(_classes([*self.sets, chosen]).values(), default=0)

    def and_then(self, chosen: Collection[str]) -> "History":
        """Returns the history with one more set that was unmasked."""
        return _longer(self, tuple(chosen))


@lru_cache(maxsize=64)  # where one process plays everybody, most have the same history and may share it
def _longer(history: History, chosen: tuple[str, ...]) -> History:
    # A set changes what can be told apart only if it splits a class or brings new names; both make more classes.
    splits = len(_classes([*history.sets, chosen])) > len(_classes(history.sets))
    return History((*history.sets, tuple(sorted(chosen)))) if splits else history


def multi_round_privacy(matrix: ArrayLike) -> int:
    """Returns the strict T of the paper for a participation matrix (rounds × users, 0 or 1).

    That is the size of the smallest class of users with equal columns: a generic combination of the sums weighs the
    members of a class alike and everybody else differently. Users that never took part are in no sum and do not count.
    If nobody ever did, nothing was learnt and T is the number of users, the most there is, so that T only ever falls.
    """
    taken = _taken(matrix)
    columns = taken[:, taken.any(axis=0)].T
    if not columns.size:
        return int(taken.shape[1])
    packed = np.ascontiguousarray(np.packbits(columns, axis=1))
    words = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    return int(np.unique(words, return_counts=True)[1].min())


def cardinality(matrix: ArrayLike) -> float:
    """Returns C, the average number of users that took part in a round."""
    taken = _taken(matrix)
    return float(taken.sum() / max(len(taken), 1))


def fairness_gap(matrix: ArrayLike) -> float:
    """Returns F, the largest share of rounds that any user took part in, minus the smallest."""
    taken = _taken(matrix)
    return float(np.ptp(taken.sum(axis=0)) / max(len(taken), 1)) if taken.size else 0.0


def _taken(matrix: ArrayLike) -> NDArray[np.bool]:
    return np.atleast_2d(np.asarray(matrix)).astype(bool)


def _classes(sets: Iterable[Collection[str]]) -> Counter[int]:
    """Returns the sizes of the classes of names that no set tells apart, by the sets they are in (as bits)."""
    member: dict[str, int] = {}
    for i, names in enumerate(sets):
        for name in names:
            member[name] = member.get(name, 0) | 1 << i
    return Counter(member.values())
