"""Participation by a family of sets: the rows of any matrix B of paper 002, among them those of its relaxed privacy."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.entropy import Entropy
from tacit.designs.history import multi_round_privacy
from tacit.designs.policy import Participation, is_set, size_problems


class Family(Participation, frozen=True, tag="family"):
    """Asks one of the listed sets of K users, the rarest first, and sums it whole or not at all.

    The sets are the rows of the paper's matrix B. What they promise is the strict T of B; the relaxed T, which allows
    members of a sum to have different weights, is what an audit reports as `smallest_support`.
    """

    sets: tuple[tuple[int, ...], ...]

    @classmethod
    def of_matrix(cls, matrix: ArrayLike) -> "Family":
        """Returns the family whose sets are the rows of a matrix of 0 and 1."""
        return cls(tuple(tuple(np.flatnonzero(row).tolist()) for row in np.asarray(matrix)))

    def problems(self, users: int) -> list[str]:
        """Returns what is wrong with the sets."""
        if not self.sets:
            return ["sets is empty; list at least one set of users, such as sets=[[0, 1], [2, 3]]"]
        found = size_problems("the sets' size", min(map(len, self.sets)), users)
        if len({len(each) for each in self.sets}) > 1:
            found.append("the sets have different sizes; list sets of K users each")
        if not all(is_set(each, users) for each in self.sets):
            found.append(f"a set names a user twice or none of 0 to {users - 1}; list each user once")
        if len({frozenset(each) for each in self.sets}) < len(self.sets):
            found.append("a set is listed twice; list each set once")
        if idle := sorted(set(range(users)) - {user for each in self.sets for user in each}):
            found.append(f"users {', '.join(map(str, idle))} are in no set; add sets with them")
        return found

    def most(self, users: int) -> int:
        """Returns K."""
        del users
        return len(self.sets[0])

    @property
    def least(self) -> int:
        """K: a set is summed whole."""
        return len(self.sets[0])

    @property
    def promise(self) -> int:
        """The strict T of the matrix: users with equal columns are only ever summed together."""
        return multi_round_privacy(self.family())

    def smallest(self, threshold: int) -> int:
        """Returns K."""
        del threshold
        return self.least

    @property
    def interchangeable(self) -> bool:
        """False: who is in a sum with whom depends on the sets."""
        return False

    def worst_order(self, members: Iterable[int], users: int) -> list[int]:
        """Returns the set with the most members of a coalition, they first."""
        del users
        inside = set(members)
        found = max(self.sets, key=lambda each: len(inside & set(each)))
        return sorted(found, key=lambda user: (user not in inside, user))

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns the set that took part least of those present as a whole; ties are broken at random."""
        here = set(present)
        ready = [each for each in self.sets if here.issuperset(each)]
        if not ready:
            return []
        frequency = [int(counts[list(each)].sum()) for each in ready]
        rarest = [place for place, often in enumerate(frequency) if often == min(frequency)]
        return sorted(ready[entropy.sample(rarest, 1)[0]])

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether they are one of the sets."""
        return is_set(asked, users) and self.allows(asked)

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether they are one of the sets."""
        return super().allows(chosen) and frozenset(chosen) in set(map(frozenset, self.sets))

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the users who are in the same sets as a user."""
        columns = self.family().T
        return tuple(np.flatnonzero((columns == columns[user]).all(axis=1)).tolist())

    def family(self) -> NDArray[np.uint8]:
        """Returns the matrix B, a row for each set."""
        matrix = np.zeros((len(self.sets), 1 + max(max(each) for each in self.sets)), dtype=np.uint8)
        for row, each in zip(matrix, self.sets, strict=True):
            row[list(each)] = 1
        return matrix
