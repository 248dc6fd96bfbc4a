"""Base of participation policies: the users a server may ask and sum, and the sets a client accepts.

The policies themselves are in `participation` and `families`. Users are indices on the roster, 0 … N−1.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy


class Participation(
    msgspec.Struct, frozen=True, tag=str.lower, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True
):
    """A participation policy. Subclasses decide which users to ask, which to sum, and which sets a client accepts.

    The server calls `ask` and `choose`. Each client checks the server with `may_ask` and `allows`.
    """

    def problems(self, users: int) -> list[str]:
        """Returns every reason why the policy cannot work for that many users, each with a remedy."""
        raise NotImplementedError

    def bind(self, users: int) -> Self:
        """Returns the policy for a given number of users."""
        del users
        return self

    def most(self, users: int) -> int:
        """Returns the largest number of users asked in a round."""
        return users

    @property
    def least(self) -> int:
        """The fewest delivered vectors with which a round can end with a sum."""
        return 2

    @property
    def promise(self) -> int:
        """The multi-round privacy T that holds for all dropouts; 1 promises nothing."""
        return 1

    def sums_everybody(self, users: int) -> bool:
        """Returns whether every round without dropouts sums all users."""
        return self.most(users) == users

    def smallest(self, threshold: int) -> int:
        """Returns the fewest users that a sum must have. In a smaller sum, colluding members could learn the rest."""
        return max(self.least, threshold)

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns the users to ask, sorted; none if the policy cannot be met.

        Args:
            present: The users that are present.
            counts: How often each user took part so far.
            entropy: Source of random choices.
        """
        raise NotImplementedError

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether a client may take part in a round in which exactly these users are asked."""
        return is_set(asked, users) and self.least <= len(asked) <= self.most(users)

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the users that are in every sum with the given user. Without a promise, it is the user alone."""
        return (user,)

    @property
    def interchangeable(self) -> bool:
        """Whether all users have the same role. Then one coalition of each size represents all of them."""
        return self.batch(0) == (0,)

    def worst_order(self, members: Iterable[int], users: int) -> list[int]:
        """Returns all users in the order in which the worst case for privacy keeps them.

        A coalition and its batches come first. Dropouts are at the end.
        """
        order = (place for first in (*members, *range(users)) for place in self.batch(first))
        return list(dict.fromkeys(order))

    def separating_sets(self, members: Sequence[int], users: int) -> list[tuple[int, ...]]:
        """Returns the fewest sets that may be summed, one in each round, so that their sums single out a user.

        The vectors are static, and members subtract their own. The list is empty if no sets do, or if the policy does
        not sample users one by one.
        """
        del members, users
        return []

    def choose(self, delivered: Sequence[int], entropy: Entropy) -> list[int]:
        """Returns the users to sum among those that delivered, sorted; none if the policy allows no sum."""
        del entropy
        return self._if_allowed(sorted(delivered))

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether a client may help to unmask the sum of exactly these users."""
        return len(chosen) >= 2 and is_set(chosen)

    def _if_allowed(self, chosen: list[int]) -> list[int]:
        return chosen if self.allows(chosen) else []


def is_set(users: Collection[int], below: int | None = None) -> bool:
    """Returns whether these are valid users without duplicates. A duplicate would make a set look larger than it is."""
    in_range = not users or (min(users) >= 0 and (below is None or max(users) < below))
    return in_range and len(set(users)) == len(users)


def separate_samples(size: int, members: Sequence[int], users: int) -> list[tuple[int, ...]]:
    """Returns the fewest sets of one size whose sums single out a user who is no member; none if no sets do.

    >>> separate_samples(3, [0], 5), separate_samples(2, [], 5)
    ([(1, 2, 3), (0, 1, 2)], [(1, 2), (0, 2), (0, 1)])
    """
    rest = [user for user in range(users) if user not in members]
    least, most = max(0, size - len(rest)), min(len(members), size - 1)
    if least < most:  # With one member more, one of the others is left out.
        outside = rest[: size - least]
        return [(*members[:least], *outside), (*members[: least + 1], *outside[:-1])]
    some = rest[: size + 1] if least == 0 else []
    # Each set leaves out another user. The sum of all these sums is `size` times the sum of all users.
    return [tuple(user for user in some if user != left) for left in some] if len(some) > size else []


def size_problems(name: str, size: int, users: int) -> list[str]:
    """Returns the problems of a number of users to ask or sum."""
    if size < 2:
        return [f"{name}={size} leaves nobody to hide among; try: use 2 or more"]
    return [f"{name}={size} is more than the {users} users there are; try: use at most {users}"] if size > users else []
