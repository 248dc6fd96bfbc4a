"""Participation policies: which users take part in which round, and the resulting multi-round privacy (paper 002).

Secure aggregation hides individual contributions to one sum. Over rounds, sums of different sets can be subtracted. If
models change slowly, the difference of two sets that differ in one user is that user's model. A policy states which
users the server may ask (U2), whose vectors it may sum (U5), and which sets a client accepts before it helps to unmask.

Users are indices on the roster, 0 … N−1. Letters are those of paper 002, Multi-RoundSecAgg: N users, K of them asked in
a round, multi-round privacy T.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, Self, TypeAlias, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError
from tacit.core.values import describe_mismatch
from tacit.designs.families import Family
from tacit.designs.policy import Participation, is_set, separate_samples, size_problems

MOST_ROWS = 100_000
"""Most rows of the matrix B that `family` returns. Selection never needs the matrix."""


class Everyone(Participation, frozen=True, tag="everyone"):
    """Asks all users that are present and sums all that delivered.

    >>> Everyone().promise
    1
    """

    def problems(self, users: int) -> list[str]:
        """Returns a problem if there are fewer than 2 users."""
        return (
            []
            if users >= 2
            else [f"at least 2 parties are needed, so that they can hide among each other, not {users}"]
        )

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns all users that are present, if there are at least two."""
        del counts, entropy
        return self._if_allowed(sorted(set(present)))


class Sampled(Participation, frozen=True, tag="sampled"):
    """Asks `of` users at random, and sums exactly `exactly` of those that delivered (E₀ and E of paper 003).

    >>> Sampled(exactly=3, of=4).least
    3
    """

    exactly: int
    """Number of vectors in a sum, E."""
    of: int | None = None
    """Number of users to ask, E₀; None for all."""

    def problems(self, users: int) -> list[str]:
        """Returns the problems of E and E₀."""
        found = size_problems("exactly", self.exactly, users)
        if self.of is not None and self.of < self.exactly:
            found.append(f"of={self.of} is too few to sum exactly={self.exactly}; try: use of={self.exactly} or more")
        if self.of is not None and self.of > users:
            found.append(
                f"of={self.of} is more than the {users} users there are; try: use at most {users}, or none for all"
            )
        return found

    def most(self, users: int) -> int:
        """Returns E₀."""
        return users if self.of is None else self.of

    @property
    def least(self) -> int:
        """E: a round with fewer vectors ends without a sum."""
        return self.exactly

    def sums_everybody(self, users: int) -> bool:
        """Returns whether E is the number of all users."""
        return self.most(users) == users <= self.exactly

    def smallest(self, threshold: int) -> int:
        """Returns E, which is fixed in advance."""
        del threshold
        return self.exactly

    def prescribe_worst(self, members: Sequence[int], others: int, users: int) -> "Prescribed":
        """Returns the policy with the worst sample for privacy: as many members of a coalition as leave `others`
        more."""
        rest = [user for user in range(users) if user not in members]
        order = [*members[: max(0, self.exactly - others)], *rest[:others], *members, *rest]
        asked = list(dict.fromkeys(order))[: self.most(users)]
        summed = asked[: self.exactly]
        return Prescribed(self.exactly, self.of, asked=tuple(asked), summed=tuple(summed))

    def separating_sets(self, members: Sequence[int], users: int) -> list[tuple[int, ...]]:
        """Returns the fewest sets of E users whose sums single out a user."""
        return separate_samples(self.exactly, members, users)

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns E₀ of the present users at random, or all of them if they are fewer than E₀ and at least E."""
        here = sorted(set(present))
        return entropy.sample(here, min(self.most(len(counts)), len(here))) if len(here) >= self.exactly else []

    def choose(self, delivered: Sequence[int], entropy: Entropy) -> list[int]:
        """Returns exactly E of the users that delivered, at random."""
        enough = len(delivered) >= self.exactly
        return self._if_allowed(entropy.sample(sorted(delivered), self.exactly)) if enough else []

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether there are exactly E users."""
        return super().allows(chosen) and len(chosen) == self.exactly


class Prescribed(Sampled, frozen=True, tag="prescribed"):
    """Sampling with a given result. Audits use it for the worst sample. Settings cannot contain it."""

    asked: tuple[int, ...] = ()
    """The users to ask, E₀ of them."""
    summed: tuple[int, ...] = ()
    """The users to sum, E of those."""

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns the given users to ask, if all of them are present."""
        del counts, entropy
        return sorted(self.asked) if set(self.asked) <= set(present) else []

    def choose(self, delivered: Sequence[int], entropy: Entropy) -> list[int]:
        """Returns the given users to sum, if all of them delivered."""
        del entropy
        return self._if_allowed(sorted(self.summed)) if set(self.summed) <= set(delivered) else []


class Random(Participation, frozen=True, tag="random"):
    """Asks K users at random and sums those that delivered. It is a leaking baseline: after about N rounds, T is 1.

    >>> Random(per_round=3).promise
    1
    """

    per_round: int
    """Number of users to ask, K."""

    def problems(self, users: int) -> list[str]:
        """Returns the problems of K."""
        return size_problems("per_round", self.per_round, users)

    def most(self, users: int) -> int:
        """Returns K."""
        del users
        return self.per_round

    def separating_sets(self, members: Sequence[int], users: int) -> list[tuple[int, ...]]:
        """Returns the fewest sets of K users whose sums single out a user."""
        return separate_samples(self.per_round, members, users)

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns K of the present users at random."""
        del counts
        here = sorted(set(present))
        return entropy.sample(here, self.per_round) if len(here) >= self.per_round else []

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether there are exactly K users."""
        return is_set(asked, users) and len(asked) == self.per_round

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether there are at most K users."""
        return super().allows(chosen) and len(chosen) <= self.per_round


class _Whole(Participation, frozen=True):
    """Base of policies with batches of T users. User i is in batch i // T. A batch is asked and summed as a whole."""

    @property
    def _loose(self) -> bool:
        """Whether an incomplete batch may be summed. If so, the policy promises nothing."""
        return False

    @property
    def _shape(self) -> tuple[int, int, int | None]:
        """K, T and N; N is None before the policy is bound to a number of users."""
        raise NotImplementedError

    def bind(self, users: int) -> Self:
        """Returns the policy for a number of users; raises ConfigError if it was made for another number."""
        if self._shape[2] not in (None, users):
            raise ConfigError(self.problems(users))
        return msgspec.structs.replace(self, users=users)

    def problems(self, users: int) -> list[str]:
        """Returns the problems of K, T and N."""
        k, t, n = self._shape
        found = size_problems("per_round", k, users)
        if n not in (None, users):
            found.append(f"the policy was made for {n} users, not {users}; try: leave users out or set users={users}")
        if t < 1:
            found.append(f"privacy={t} must be at least 1, or 2 to protect anybody")
        for name, number in (("per_round", k), ("users", users)) if t >= 1 else ():
            if number % t:
                # In `Partition` a batch is as large as a round. So T changes with K, and only N has to be a multiple.
                sizes = _divisors(users if k == t else math.gcd(k, users))
                near = " or ".join(f"{name}={size}" for size in (number // t * t, number // t * t + t) if size)
                found.append(
                    f"{name}={number} is no multiple of the batch size {t}; try: use batches of {sizes}, or {near}"
                )
        return found

    def most(self, users: int) -> int:
        """Returns K."""
        del users
        return self._shape[0]

    @property
    def least(self) -> int:
        """Size of one batch, and at least 2: a single user is never summed."""
        return 2 if self._loose else max(self._shape[1], 2)

    def smallest(self, threshold: int) -> int:
        """Returns the size of one batch, because the policy promises no more."""
        return max(self.least, threshold) if self._loose else self.least

    @property
    def promise(self) -> int:
        """T: members of a batch are summed only together."""
        return 1 if self._loose else self._shape[1]

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns the K/T fully present batches that took part least. Ties are broken at random."""
        k, t, _ = self._shape
        # Any K/T batches are a row of the paper's matrix B, so B need not be written out and searched.
        here = np.zeros(len(counts), dtype=bool)
        here[list(present)] = True
        end = len(counts) // t * t
        ready = np.flatnonzero(here[:end].reshape(-1, t).all(axis=1))
        if len(ready) < k // t:
            return []
        frequency = counts[:end].reshape(-1, t).sum(axis=1)[ready]
        limit = np.partition(frequency, k // t - 1)[k // t - 1]
        rarest, tied = ready[frequency < limit].tolist(), ready[frequency == limit].tolist()
        batches = sorted(rarest + entropy.sample(tied, k // t - len(rarest)))
        return [batch * t + i for batch in batches for i in range(t)]

    def choose(self, delivered: Sequence[int], entropy: Entropy) -> list[int]:
        """Returns the members of the batches that delivered completely.

        An incomplete batch is left out as a whole. Otherwise a later sum of the full batch, minus this one, would be
        the vector of the missing member.
        """
        del entropy
        _, t, _ = self._shape
        sizes = Counter(user // t for user in delivered)
        return self._if_allowed([user for user in sorted(delivered) if self._loose or sizes[user // t] == t])

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether these users are whole batches, and exactly K users."""
        k, t, _ = self._shape
        return is_set(asked, users) and len(asked) == k and len({user // t for user in asked}) * t == k

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the members of a user's batch."""
        _, t, _ = self._shape
        return (user,) if self._loose else tuple(range(user // t * t, user // t * t + t))

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether these users are whole batches, and at most K users."""
        k, t, n = self._shape
        if not super().allows(chosen) or len(chosen) > k or (n is not None and max(chosen) >= n):
            return False
        return self._loose or len({user // t for user in chosen}) * t == len(chosen)

    def family_size(self) -> int:
        """Returns the number of sets of K users that can be asked: C(N/T, K/T)."""
        k, t, n = self._bound()
        return math.comb(n // t, k // t)

    def family(self) -> NDArray[np.uint8]:
        """Returns the paper's matrix B, with one row per set that can be asked; raises ConfigError if too large."""
        k, t, n = self._bound()
        if self.family_size() > MOST_ROWS:
            raise ConfigError(
                f"the family has {self.family_size()} sets, more than {MOST_ROWS}; try: use family_size()"
            )
        rows = np.array(list(combinations(range(n // t), k // t)))
        batches = np.zeros((len(rows), n // t), dtype=np.uint8)
        np.put_along_axis(batches, rows, 1, axis=1)
        return np.repeat(batches, t, axis=1)

    def expected_cardinality(self, dropout: float) -> float:
        """Returns C(T): the expected number of participants, if each user is absent with this probability.

        It is a closed form. As in the paper, users are absent before the selection. A dropout during a round would
        also remove its batch.
        """
        from scipy.stats import binom  # slow to import, and needed in no round

        k, t, n = self._bound()
        if not 0 <= dropout <= 1:
            raise ConfigError(f"dropout must be a probability from 0 to 1, not {dropout}")
        return k * float(binom.sf(k // t - 1, n // t, (1 - dropout) ** t))

    def _bound(self) -> tuple[int, int, int]:
        k, t, n = self._shape
        if n is None:
            raise ConfigError("the number of users is not known; try: pass users=, or bind(users) the policy")
        if found := self.problems(n):
            raise ConfigError(found)
        return k, t, n


class Batches(_Whole, frozen=True, tag="batches"):
    """Asks K/T batches of T users, those that took part least. A batch is summed as a whole or not at all.

    So the members of a batch cannot be told apart, over any number of rounds.

    >>> policy = Batches(users=12, per_round=6, privacy=3)
    >>> policy.promise, policy.batch(4), policy.family_size()
    (3, (3, 4, 5), 6)
    >>> round(policy.expected_cardinality(dropout=0.1), 2)
    5.62
    """

    per_round: int
    """Number of users to ask in a round, K."""
    privacy: int
    """Size of a batch, T: the multi-round privacy."""
    users: int | None = None
    """Number of users, N; None to take it from the roster."""
    partial: bool = False
    """Whether to sum all who delivered, as in paper 002, even if a batch is incomplete. This voids the promise."""

    @property
    def _loose(self) -> bool:
        return self.partial

    @property
    def _shape(self) -> tuple[int, int, int | None]:
        return self.per_round, self.privacy, self.users


class Partition(_Whole, frozen=True, tag="partition"):
    """Asks one of N/K fixed groups of K users, and sums it as a whole. It is `Batches` with T = K.

    It has the highest privacy, but a group is rarely present as a whole.

    >>> Partition(users=12, per_round=4).family_size()
    3
    """

    per_round: int
    """Number of users to ask in a round, K: the size of a group."""
    users: int | None = None
    """Number of users, N; None to take it from the roster."""

    @property
    def _shape(self) -> tuple[int, int, int | None]:
        return self.per_round, self.per_round, self.users


Policy: TypeAlias = Everyone | Sampled | Random | Partition | Batches | Family
"""A participation policy, as settings contain it."""
EXAMPLES: Mapping[str, Any] = {"exactly": 6, "per_round": 6, "privacy": 3, "sets": [[0, 1, 2, 3], [0, 1, 4, 5]]}
"""Values for the example in an error message."""


def participation_from(value: Participation | str | Mapping[str, Any]) -> Participation:
    """Returns the policy for a policy object, a name, or a table of a scenario file.

    >>> participation_from({"kind": "batches", "per_round": 6, "privacy": 3})
    Batches(per_round=6, privacy=3, users=None, partial=False)

    Raises ConfigError with an example for anything else.
    """
    if isinstance(value, Participation):
        return value
    data = {"kind": value} if isinstance(value, str) else value
    try:
        policy: Participation = msgspec.convert(data, Policy)
    except msgspec.ValidationError as error:
        raise ConfigError(f"participation {value!r}: {_describe_problem(data, error)}") from None
    return policy


def _describe_problem(given: Any, error: msgspec.ValidationError) -> str:
    """Returns the problem of a policy as it was written, with a valid example."""
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(Policy)}
    named = given.get("kind") if isinstance(given, Mapping) else None
    known = isinstance(named, str) and named in kinds
    kind = named if known else "batches"
    fields = msgspec.structs.fields(kinds[kind])
    needed = [each.name for each in fields if each.required]
    if not known:
        wrong = f"its kind must be one of {', '.join(kinds)}"
    elif missing := [name for name in needed if name not in given]:
        wrong = f"{kind} needs {' and '.join(missing)}"
    elif unknown := [f"{name!r}" for name in given if name not in ("kind", *(each.name for each in fields))]:
        wrong = f"{kind} has no {', '.join(unknown)}; it has {', '.join(each.name for each in fields) or 'no settings'}"
    else:
        wrong = describe_mismatch(error)
    example = msgspec.json.encode({"kind": kind, **{name: EXAMPLES[name] for name in needed}}).decode()
    return f"{wrong}; try: write it as {example}, which is --set 'participation={example}' on the command line"


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(2, number + 1) if number % size == 0) or "1"
