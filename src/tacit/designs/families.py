"""Participation by a family of sets: the rows of any matrix B of paper 002, including those with relaxed privacy."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.entropy import Entropy
from tacit.designs.history import multi_round_privacy
from tacit.designs.policy import Participation, is_set, size_problems


class Family(Participation, frozen=True, tag="family"):
    """Asks one of the listed sets of K users, and sums it whole or not at all.

    Of the sets whose members are all present, it asks one whose members took part least.

    >>> Family.of_matrix([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]])
    Family(sets=((0, 1, 2, 3), (2, 3, 4, 5)))

    The sets are the rows of the paper's matrix B. They promise the strict T of B. The relaxed T, which allows members
    of a sum to have different weights, is the `smallest_support` of an audit.
    """

    sets: tuple[tuple[int, ...], ...]
    """Indices of the users in each set."""

    @classmethod
    def of_matrix(cls, matrix: ArrayLike) -> "Family":
        """Returns the family with one set for each row of a matrix of 0 and 1."""
        return cls(tuple(tuple(np.flatnonzero(row).tolist()) for row in np.asarray(matrix)))

    def problems(self, users: int) -> list[str]:
        """Returns the problems of the sets."""
        if not self.sets:
            return ["sets is empty; try: list at least one set of users, such as sets=[[0, 1], [2, 3]]"]
        found = size_problems("the sets' size", min(map(len, self.sets)), users)
        if len({len(each) for each in self.sets}) > 1:
            found.append("the sets have different sizes; try: list sets of K users each")
        if not all(is_set(each, users) for each in self.sets):
            found.append(f"a set names a user twice or none of 0 to {users - 1}; try: list each user once")
        if len({frozenset(each) for each in self.sets}) < len(self.sets):
            found.append("a set is listed twice; try: list each set once")
        if idle := sorted(set(range(users)) - {user for each in self.sets for user in each}):
            found.append(f"users {', '.join(map(str, idle))} are in no set; try: add sets with them")
        return found

    def most(self, users: int) -> int:
        """Returns K."""
        del users
        return len(self.sets[0])

    @property
    def least(self) -> int:
        """K, because a set is summed whole or not at all."""
        return len(self.sets[0])

    @property
    def promise(self) -> int:
        """The strict T of the matrix: users with equal columns are summed only together."""
        return multi_round_privacy(self.family())

    def smallest(self, threshold: int) -> int:
        """Returns K."""
        del threshold
        return self.least

    @property
    def interchangeable(self) -> bool:
        """False: the sets determine which users are summed together."""
        return False

    def worst_order(self, members: Iterable[int], users: int) -> list[int]:
        """Returns the set with the most members of a coalition, these members first."""
        del users
        inside = set(members)
        found = max(self.sets, key=lambda each: len(inside & set(each)))
        return sorted(found, key=lambda user: (user not in inside, user))

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns the set, among those present as a whole, whose members took part least. Ties are broken at random."""
        here = set(present)
        ready = [each for each in self.sets if here.issuperset(each)]
        if not ready:
            return []
        frequency = [int(counts[list(each)].sum()) for each in ready]
        rarest = [place for place, often in enumerate(frequency) if often == min(frequency)]
        return sorted(ready[entropy.sample(rarest, 1)[0]])

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether these users are one of the sets."""
        return is_set(asked, users) and self.allows(asked)

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether these users are one of the sets."""
        return super().allows(chosen) and frozenset(chosen) in set(map(frozenset, self.sets))

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the users that are in the same sets as a user."""
        columns = self.family().T
        return tuple(np.flatnonzero((columns == columns[user]).all(axis=1)).tolist())

    def family(self) -> NDArray[np.uint8]:
        """Returns the matrix B, with one row per set."""
        matrix = np.zeros((len(self.sets), 1 + max(max(each) for each in self.sets)), dtype=np.uint8)
        for row, each in zip(matrix, self.sets, strict=True):
            row[list(each)] = 1
        return matrix
