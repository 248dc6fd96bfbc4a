"""Participation policies: who takes part in which round, and the multi-round privacy (paper 002, Multi-RoundSecAgg).

Secure aggregation hides who contributed what to one sum. Over rounds, sums of different sets can be subtracted, and if
models change slowly the difference of two sets that differ in one user is that user's model. A policy states whom the
server may ask (U2), whose vectors it may sum (U5), and what a client accepts before it helps to unmask.

Users are roster positions 0 … N−1. Letters are the paper's: N users, K asked in a round, T the multi-round privacy.
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
from tacit.designs.policy import Participation, is_set, size_problems

MOST_ROWS = 100_000
"""Rows above which the matrix B is not written out. Selection never needs it."""


class Everyone(Participation, frozen=True, tag="everyone"):
    """Asks all who are present and sums all who delivered."""

    def problems(self, users: int) -> list[str]:
        """Returns a complaint if there is nobody to hide among."""
        return [] if users >= 2 else [f"there must be at least 2 users to hide among, not {users}"]

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns all who are present, if they are at least two."""
        del counts, entropy
        return self._if_allowed(sorted(set(present)))


class Sampled(Participation, frozen=True, tag="sampled"):
    """Asks `of` users at random and sums exactly `exactly` of those that delivered (E₀ and E of paper 003)."""

    exactly: int
    of: int | None = None

    def problems(self, users: int) -> list[str]:
        """Returns what is wrong with E and E₀."""
        found = size_problems("exactly", self.exactly, users)
        if self.of is not None and self.of < self.exactly:
            found.append(f"of={self.of} is too few to sum exactly={self.exactly}; use of={self.exactly} or more")
        if self.of is not None and self.of > users:
            found.append(f"of={self.of} is more than the {users} users there are; use at most {users}, or none for all")
        return found

    def most(self, users: int) -> int:
        """Returns E₀."""
        return users if self.of is None else self.of

    @property
    def least(self) -> int:
        """E: a round with fewer ends without a sum."""
        return self.exactly

    def sums_everybody(self, users: int) -> bool:
        """Returns whether E is the number of all users."""
        return self.most(users) == users <= self.exactly

    def smallest(self, threshold: int) -> int:
        """Returns E, which is agreed beforehand."""
        del threshold
        return self.exactly

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns E₀ of those present at random, or all if they are fewer but enough."""
        here = sorted(set(present))
        return entropy.sample(here, min(self.most(len(counts)), len(here))) if len(here) >= self.exactly else []

    def choose(self, delivered: Sequence[int], entropy: Entropy) -> list[int]:
        """Returns a random set of exactly E."""
        enough = len(delivered) >= self.exactly
        return self._if_allowed(entropy.sample(sorted(delivered), self.exactly)) if enough else []

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether there are exactly E."""
        return super().allows(chosen) and len(chosen) == self.exactly


class Random(Participation, frozen=True, tag="random"):
    """Asks K users at random and sums those that delivered. The baseline that leaks: after about N rounds T is 1."""

    per_round: int

    def problems(self, users: int) -> list[str]:
        """Returns what is wrong with K."""
        return size_problems("per_round", self.per_round, users)

    def most(self, users: int) -> int:
        """Returns K."""
        del users
        return self.per_round

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns K of those present at random."""
        del counts
        here = sorted(set(present))
        return entropy.sample(here, self.per_round) if len(here) >= self.per_round else []

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether there are exactly K."""
        return is_set(asked, users) and len(asked) == self.per_round

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether there are at most K."""
        return super().allows(chosen) and len(chosen) <= self.per_round


class _Whole(Participation, frozen=True):
    """Batches of T users, i // T for user i, that are asked and summed whole or not at all."""

    @property
    def _loose(self) -> bool:
        """Whether what is left of a batch may be summed after all."""
        return False

    @property
    def _shape(self) -> tuple[int, int, int | None]:
        """K, T and, once bound, N."""
        raise NotImplementedError

    def bind(self, users: int) -> Self:
        """Returns the same policy for that many users; raises ConfigError if it was made for another number."""
        if self._shape[2] not in (None, users):
            raise ConfigError(self.problems(users))
        return msgspec.structs.replace(self, users=users)

    def problems(self, users: int) -> list[str]:
        """Returns what is wrong with K, T and N."""
        k, t, n = self._shape
        found = size_problems("per_round", k, users)
        if n not in (None, users):
            found.append(f"the policy was made for {n} users, not {users}; leave users out or set users={users}")
        if t < 1:
            found.append(f"privacy={t} must be at least 1, or 2 to protect anybody")
        for name, number in (("per_round", k), ("users", users)) if t >= 1 else ():
            if number % t:
                # A group is as large as a round, so if the one changes the other does, and only N has to fit.
                sizes = _divisors(users if k == t else math.gcd(k, users))
                near = " or ".join(f"{name}={size}" for size in (number // t * t, number // t * t + t) if size)
                found.append(f"{name}={number} is no multiple of the batch size {t}; use batches of {sizes}, or {near}")
        return found

    def most(self, users: int) -> int:
        """Returns K."""
        del users
        return self._shape[0]

    @property
    def least(self) -> int:
        """One whole batch, but never a single user."""
        return 2 if self._loose else max(self._shape[1], 2)

    def smallest(self, threshold: int) -> int:
        """Returns the size of one batch, which is all that is promised."""
        return max(self.least, threshold) if self._loose else self.least

    @property
    def promise(self) -> int:
        """T: members of a batch are only ever summed together."""
        return 1 if self._loose else self._shape[1]

    def ask(self, present: Sequence[int], counts: NDArray[np.int64], entropy: Entropy) -> list[int]:
        """Returns the K/T batches that took part least of those present as a whole; ties are broken at random."""
        k, t, _ = self._shape
        # Any K/T batches are a row of the paper's matrix B, so there is no need to write B out and search it.
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
        """Returns the members of the batches that delivered as a whole.

        The rest of a batch with a missing member is left out too: this sum minus one of the full batch is the missing
        member's vector.
        """
        del entropy
        _, t, _ = self._shape
        sizes = Counter(user // t for user in delivered)
        return self._if_allowed([user for user in sorted(delivered) if self._loose or sizes[user // t] == t])

    def may_ask(self, asked: Collection[int], users: int) -> bool:
        """Returns whether they are whole batches, exactly K users."""
        k, t, _ = self._shape
        return is_set(asked, users) and len(asked) == k and len({user // t for user in asked}) * t == k

    def batch(self, user: int) -> tuple[int, ...]:
        """Returns the members of a user's batch."""
        _, t, _ = self._shape
        return (user,) if self._loose else tuple(range(user // t * t, user // t * t + t))

    def allows(self, chosen: Collection[int]) -> bool:
        """Returns whether they are whole batches, K users at most."""
        k, t, n = self._shape
        if not super().allows(chosen) or len(chosen) > k or (n is not None and max(chosen) >= n):
            return False
        return self._loose or len({user // t for user in chosen}) * t == len(chosen)

    def family_size(self) -> int:
        """Returns how many sets of K users can be asked: C(N/T, K/T)."""
        k, t, n = self._bound()
        return math.comb(n // t, k // t)

    def family(self) -> NDArray[np.uint8]:
        """Returns the paper's matrix B, a row for each set that can be asked; raises ConfigError if it is too large."""
        k, t, n = self._bound()
        if self.family_size() > MOST_ROWS:
            raise ConfigError(f"the family has {self.family_size()} sets, more than {MOST_ROWS}; use family_size()")
        rows = np.array(list(combinations(range(n // t), k // t)))
        batches = np.zeros((len(rows), n // t), dtype=np.uint8)
        np.put_along_axis(batches, rows, 1, axis=1)
        return np.repeat(batches, t, axis=1)

    def expected_cardinality(self, dropout: float) -> float:
        """Returns C(T), how many users take part on average if each is absent with this probability (closed form).

        As in the paper, users are absent before the selection; a dropout in mid-round also removes its batch.
        """
        from scipy.stats import binom  # takes a second to import, and no round needs it

        k, t, n = self._bound()
        if not 0 <= dropout <= 1:
            raise ConfigError(f"dropout={dropout} is no probability; use a number from 0 to 1")
        return k * float(binom.sf(k // t - 1, n // t, (1 - dropout) ** t))

    def _bound(self) -> tuple[int, int, int]:
        k, t, n = self._shape
        if n is None:
            raise ConfigError("this depends on how many users there are; say users=, or bind(users) the policy")
        if found := self.problems(n):
            raise ConfigError(found)
        return k, t, n


class Batches(_Whole, frozen=True, tag="batches"):
    """Asks K/T batches of T users, the rarest first: members of a batch are indistinguishable, over all rounds."""

    per_round: int
    privacy: int
    users: int | None = None
    partial: bool = False
    """Sum all who delivered, as in paper 002, even if a batch lost a member: the promise is then void."""

    @property
    def _loose(self) -> bool:
        return self.partial

    @property
    def _shape(self) -> tuple[int, int, int | None]:
        return self.per_round, self.privacy, self.users


class Partition(_Whole, frozen=True, tag="partition"):
    """Asks one of N/K fixed groups of K users: the most private, and seldom available. Batches with T = K."""

    per_round: int
    users: int | None = None

    @property
    def _shape(self) -> tuple[int, int, int | None]:
        return self.per_round, self.per_round, self.users


Policy: TypeAlias = Everyone | Sampled | Random | Partition | Batches | Family
"""A policy as a setting."""
EXAMPLES: Mapping[str, Any] = {"exactly": 6, "per_round": 6, "privacy": 3, "sets": [[0, 1, 2, 3], [0, 1, 4, 5]]}
"""Values for the example that an error shows."""


def participation_from(value: Participation | str | Mapping[str, Any]) -> Participation:
    """Returns the policy that a scenario file or an option names; raises ConfigError with how to write it."""
    if isinstance(value, Participation):
        return value
    data = {"kind": value} if isinstance(value, str) else value
    try:
        policy: Participation = msgspec.convert(data, Policy)
    except msgspec.ValidationError as error:
        raise ConfigError(f"participation {value!r}: {_describe_problem(data, error)}") from None
    return policy


def _describe_problem(given: Any, error: msgspec.ValidationError) -> str:
    """Returns the problem of a policy as written, with an example."""
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
    return f"{wrong}; write it as {example}, which is --set 'participation={example}' on the command line"


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(2, number + 1) if number % size == 0) or "1"
