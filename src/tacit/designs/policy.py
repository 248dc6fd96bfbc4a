"""Base of participation policies: whom a server may ask, whose vectors it may sum, and what a client accepts.

The policies themselves are in `participation` and `families`. Users are roster positions 0 … N−1.
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
    """A participation policy. Subclasses state whom to ask, what to sum, and what a client accepts."""

    def problems(self, users: int) -> list[str]:
        """Returns every reason why the policy cannot work for that many users, each with what would."""
        raise NotImplementedError

    def bind(self, users: int) -> Self:
        """Returns the same policy for that many users."""
        del users
        return self

    def most(self, users: int) -> int:
        """Returns the largest number of users asked in a round."""
        return users

    @property
    def least(self) -> int:
        """The smallest number of delivered vectors with which a round can still end."""
        return 2

    @property
    def promise(self) -> int:
        """The multi-round privacy T that it promises, whatever drops out; 1 promises nothing."""
        return 1

    def sums_everybody(self, users: int) -> bool:
        """Returns whether all users are summed in every round in which nobody is missing."""
        return self.most(users) == users

    def smallest(self, threshold: int) -> int:
        """Returns how many users a sum must have: of few, colluding members could learn the rest."""
        return max(self.least, threshold)

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns whom to ask of those present, sorted; nobody if the policy cannot be met.

        `counts[i]` is how often user i took part so far.
        """
        raise NotImplementedError

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether a client may take part in a round in which exactly these users are asked."""
        return is_set(asked, users) and self.least <= len(asked) <= self.most(users)

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the users with whom a user is always summed; only the user itself if nothing is promised."""
        return (user,)

    @property
    def interchangeable(self) -> bool:
        """Whether any user could take the place of any other, so that one coalition of a size stands for all."""
        return self.batch(0) == (0,)

    def worst_order(self, members: Iterable[int], users: int) -> list[int]:
        """Returns the order in which users stay when all others drop out: a coalition and its batches first."""
        order = (place for first in (*members, *range(users)) for place in self.batch(first))
        return list(dict.fromkeys(order))

    def choose(self, delivered: Sequence[int], entropy: Entropy) -> list[int]:
        """Returns whose vectors are summed of those that delivered, sorted; nobody if the policy allows no sum."""
        del entropy
        return self._if_allowed(sorted(delivered))

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether a client may help to unmask the sum of exactly these users."""
        return len(chosen) >= 2 and is_set(chosen)

    def _if_allowed(self, chosen: list[int]) -> list[int]:
        return chosen if self.allows(chosen) else []


def is_set(users: Collection[int], below: int | None = None) -> bool:
    """Returns whether these are users, none named twice, which would make a set look larger than it is."""
    in_range = not users or (min(users) >= 0 and (below is None or max(users) < below))
    return in_range and len(set(users)) == len(users)


def size_problems(name: str, size: int, users: int) -> list[str]:
    """Returns what is wrong with the number of users that take part in a round."""
    if size < 2:
        return [f"{name}={size} leaves nobody to hide among; use 2 or more"]
    return [f"{name}={size} is more than the {users} users there are; use at most {users}"] if size > users else []
