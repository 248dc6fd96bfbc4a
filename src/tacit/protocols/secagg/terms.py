"""The settings of `secagg`, what they mean for some parties, and what users and server compute alike."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

from tacit.core.errors import ConfigError
from tacit.core.link import Link
from tacit.core.suite import Parties, Secret, Suite
from tacit.designs.circle import Circle
from tacit.protocols.shapes import star
from tacit.protocols.shapes.star import StarSettings, StarTerms

SEAL, MASK = "tacit/secagg/v1/seal", "tacit/secagg/v1/mask"


def _neighbours_from(value: Any) -> Any:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 2):
        return value
    raise ConfigError(f'neighbours={value!r} must be "all" or a number of at least 2')


class SecAggSettings(StarSettings, frozen=True, kw_only=True):
    """Settings of `secagg`."""

    neighbours: int | Literal["all"] = "all"
    """With how many others a user shares masks and keys: a number, or "all"."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {**StarSettings.readers, "neighbours": _neighbours_from}

    @property
    def degree(self) -> int | None:
        """The number of neighbours, None for all."""
        return self.neighbours if isinstance(self.neighbours, int) else None

    def bind(self, parties: Parties) -> "SecAggTerms":
        """Returns what the settings mean for these parties; raises ConfigError with every reason why they cannot."""
        try:
            policy = star.bound_policy(self, parties)
            most = policy.most(len(parties))
        except ConfigError as error:
            # The threshold can be judged all the same, if anybody could take part.
            raise ConfigError([*error.problems, *self._threshold_problems(len(parties))]) from None
        # As many as hold the shares of one user, at most.
        holders = most if self.degree is None else min(most, self.degree + self.degree % 2 + 1)
        if problems := self._threshold_problems(holders):
            raise ConfigError(problems)
        threshold = 2 * holders // 3 + 1 if self.threshold is None else self.threshold
        return SecAggTerms(self, parties, policy, threshold)

    def _threshold_problems(self, holders: int) -> list[str]:
        if self.threshold is None:
            return []
        if not 2 <= self.threshold <= holders:
            return [f"threshold={self.threshold} cannot hold: each secret has {holders} holders, so 2 to {holders}"]
        if 2 * self.threshold <= holders and not self.allow_leaks:
            return [
                f"threshold={self.threshold} of {holders} holders lets the server show two halves of them different "
                f"sets and unmask anybody; use at least {holders // 2 + 1}, or allow_leaks=True to go on knowingly"
            ]
        return []


@dataclass(frozen=True)
class SecAggTerms(StarTerms):
    """What the settings of `secagg` mean for some parties."""

    settings: SecAggSettings
    circle: Callable[[frozenset[int], bytes], Circle] = field(init=False, repr=False, compare=False)
    """Returns the circle of some users for a seed. Everybody in a round computes the same one, so it is kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        degree = self.settings.degree
        object.__setattr__(self, "circle", lru_cache(4)(lambda users, seed: Circle(sorted(users), degree, seed)))

    @property
    def rounds_alike(self) -> bool:
        """Not in a sparse graph, which is another one in every round."""
        return self.settings.degree is None

    @property
    def smallest(self) -> int:
        """How many a sum must have."""
        return self.policy.smallest(self.threshold)


@dataclass(frozen=True)
class Accord:
    """What both sides of a round compute alike. Users are places on the roster."""

    link: Link
    suite: Suite
    terms: SecAggTerms

    def graph(self, u2: Collection[int]) -> Circle:
        """Returns who shares masks with whom. Everyone computes it, so the server cannot pick a victim's neighbours."""
        return circle_of(self.link, self.terms, u2)

    def advertisement(self, u: int, c: bytes, s: bytes) -> bytes:
        """Returns what a user signs about its keys."""
        return self.link.statement("secagg keys", self.link.parties[u].encode(), c, s)

    def consent(self, members: bytes) -> bytes:
        """Returns what a user signs about U5."""
        return self.link.statement("secagg chosen", members)

    def commitment(self, u: int, b: Secret) -> bytes:
        """Returns what binds a user to b_u."""
        return self.suite.commit(b, self.link.statement("secagg seed", self.link.parties[u].encode()))

    def agree(self, label: str, u: int, secret: Secret, v: int, public: bytes) -> Secret:
        """Returns the key of u and v for one purpose, computed on u's side."""
        pair = b"%d %d" % (min(u, v), max(u, v))
        return self.suite.agree(secret, public, label, self.link.statement("secagg pair", pair))

    def pairwise(self, u: int, s: Secret, others: Mapping[int, bytes]) -> tuple[list[Secret], list[Secret]]:
        """Returns the seeds of u's masks p_{u,v}, by sign: Δ_{u,v} = 1 when u > v and −1 when u < v."""
        seeds = {v: self.agree(MASK, u, s, v, public) for v, public in others.items()}
        return [seed for v, seed in seeds.items() if u > v], [seed for v, seed in seeds.items() if u < v]


def circle_of(link: Link, terms: SecAggTerms, u2: Collection[int]) -> Circle:
    """Returns the circle of a round."""
    users = frozenset(u2)
    seed = hashlib.sha256(link.statement("secagg graph", terms.sets.bitmap(users))).digest()
    return terms.circle(users, seed)


def too_thin(terms: SecAggTerms, circle: Circle, u5: Collection[int]) -> bool:
    """Says whether a sparse graph could fall apart over U5, given the corrupted users that the threshold allows for."""
    corrupted = 2 * terms.threshold - (circle.degree + 1) - 1
    return not circle.complete and circle.weakest(u5) <= corrupted // 2
