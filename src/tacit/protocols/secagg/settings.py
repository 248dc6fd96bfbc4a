"""The settings of `secagg`, what they mean for some parties, and what users and server compute alike."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

import msgspec
from numpy.typing import NDArray

from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.core.lineage import digest_inputs, extend_lineage, merge_lineages
from tacit.core.link import Link
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument, SecureSum
from tacit.core.suite import Parties, Party, Ring, Secret, Suite, Vector
from tacit.designs.circle import Circle, two_thirds
from tacit.protocols.secagg.proofs import arguments_of
from tacit.protocols.shapes import star
from tacit.protocols.shapes.star import CountingState, StarSettings, StarTerms

CHANGES = b"changes"
"""End of the units of averages that are changes to a model."""
SEAL, MASK = "tacit/secagg/v1/seal", "tacit/secagg/v1/mask"


def _neighbours_from(value: Any) -> Any:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 2):
        return value
    raise ConfigError(f'neighbours={value!r} must be "all" or a number of at least 2')


class SecAggSettings(StarSettings, frozen=True, kw_only=True):
    """Settings of `secagg`."""

    neighbours: int | Literal["all"] = "all"
    """With how many others a user shares masks and keys: a number, or "all"."""
    fewest: int | None = None
    """The smallest number of users that may be asked, and summed unless the policy sums fewer. Two thirds of the most
    that may be asked, and one more, unless set, or the threshold in a complete graph."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {**StarSettings.readers, "neighbours": _neighbours_from}

    @property
    def degree(self) -> int | None:
        """The number of neighbours, None for all."""
        return self.neighbours if isinstance(self.neighbours, int) else None

    def bind(self, parties: Parties) -> "SecAggTerms":
        """Returns what the settings mean for these parties; raises ConfigError with every reason why they cannot."""
        try:
            policy = star.bind_policy(self, parties)
            most = policy.most(len(parties))
        except ConfigError as error:
            # The threshold can be judged all the same, if anybody could take part.
            raise ConfigError([*error.problems, *self._threshold_problems(len(parties))]) from None
        # As many as hold the shares of one user, at most: all of them, or those next to it on a circle.
        holders = most if self.degree is None else min(most, self.degree + self.degree % 2 + 1)
        sparse = holders < most
        problems = self._threshold_problems(holders) + self._fewest_problems(
            most, two_thirds(most) if sparse else most // 2 + 1
        )
        if problems:
            raise ConfigError(problems)
        threshold = two_thirds(holders) if self.threshold is None else self.threshold
        fewest = self.fewest
        if fewest is None:
            # Where everybody holds shares, fewer than the threshold could not end a round.
            fewest = two_thirds(most) if sparse else threshold
        return SecAggTerms(self, parties, policy, threshold, min(max(fewest, policy.least), most))

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

    def _fewest_problems(self, most: int, least: int) -> list[str]:
        if self.fewest is None or (2 if self.allow_leaks else least) <= self.fewest <= most:
            return []
        return [
            f"fewest={self.fewest} must be from {least} to {most} of the {most} users who may be asked: of fewer, the "
            f"server could make several sums; or pass allow_leaks=True to go on knowingly"
        ]


@dataclass(frozen=True)
class SecAggTerms(StarTerms):
    """What the settings of `secagg` mean for some parties."""

    settings: SecAggSettings
    fewest: int
    """How many must be asked and, unless the policy says otherwise, summed."""
    alike: "Alike" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alike", Alike(self))

    @property
    def rounds_alike(self) -> bool:
        """Not in a sparse graph, which is another one in every round."""
        return self.settings.degree is None

    @property
    def sparse(self) -> bool:
        """Whether there are users who share no masks, however many are asked as may be."""
        degree = self.settings.degree
        return degree is not None and degree + degree % 2 < self.policy.most(len(self.parties)) - 1

    @property
    def work(self) -> int:
        """Everybody shares a key and a mask with everybody, or with its neighbours."""
        most = self.policy.most(len(self.parties))
        return len(self.parties) + most * min(most, self.settings.degree or most)

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns who is in one batch, unless masks are shared in a sparse graph, where chance decides with whom."""
        return None if self.sparse else super().ties()

    @property
    def fewest_present(self) -> int:
        """How many must be there at every step."""
        return max(self.policy.least, self.threshold, self.fewest)

    @property
    def cure(self) -> str:
        """What to do where too many dropped out, and what it costs."""
        most, least = self.policy.most(len(self.parties)), self.fewest_present
        again = "everybody" if least == most else f"{least} or more"
        choices = [f"run the round again with {again}"]
        lower = most // 2 + 1
        few = f"at most {most - least}" if least < most else "none"
        told = f"of {most} users with threshold={self.threshold} {few} may drop out"
        if self.settings.degree is not None:
            fewest = f"fewest={self.fewest} and " if self.fewest == least else ""
            return f"{told}: {choices[0]}, or set a smaller {fewest}threshold, if tacit audit finds it safe"
        if max(lower, self.policy.least, self.settings.fewest or 0) < least:
            friends, before = 2 * lower - most - 1, 2 * self.threshold - most - 1
            pair = "if two are left each learns the other's vector, so add allow_leaks=True; and " if lower == 2 else ""
            choices.append(
                f"set threshold={lower}, which spares {most - lower}, but {pair}a server that lies may then have "
                f"{format_count(friends, 'friend') if friends else 'no friends'} among them, where now it may "
                f"have {before}"
            )
        if least < most:
            return f"{told}: {', or '.join(choices)}"
        enough = next(n for n in range(most + 1, 2 * most + 4) if two_thirds(n) < n)
        choices.append(f"have {enough} or more, of whom the default threshold spares {enough - two_thirds(enough)}")
        return f"{told}: {', or '.join(choices)}"

    @property
    def smallest_sum(self) -> int:
        """How many a sum must have."""
        return self.policy.smallest(max(self.threshold, self.fewest))

    @property
    def secure_sum(self) -> SecureSum:
        """Sums of no fewer than `smallest_sum`, though the server collude with as many as the threshold allows for."""
        colluders = max(0, 2 * self.threshold - self.policy.most(len(self.parties)) - 1)
        return SecureSum(self.smallest_sum, None if self.sparse else colluders)

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields what is proved of the server and its users."""
        return arguments_of(self, query)


class Alike:
    """What everybody in a round works out from the same sets of users, with the same result. So it is kept.

    Each of it takes as long as there are users, which one client does not notice and a process that plays all does.
    """

    def __init__(self, terms: SecAggTerms) -> None:
        degree, policy, parties = terms.settings.degree, terms.policy, terms.parties
        self.circle: Callable[[frozenset[int], bytes], Circle] = lru_cache(4)(
            lambda users, seed: Circle(sorted(users), degree, seed)
        )
        """Returns the circle of some users for a seed."""
        self.may_ask: Callable[[frozenset[int]], bool] = lru_cache(4)(lambda u2: policy.may_ask(u2, len(parties)))
        """Says whether the policy lets these users be asked."""
        self.allows: Callable[[frozenset[int]], bool] = lru_cache(4)(policy.allows)
        """Says whether the policy lets these users be summed."""
        self.weakest: Callable[[Circle, frozenset[int]], int] = lru_cache(4)(Circle.weakest)
        """Returns how many of some users there are in the part of a circle that has the fewest."""


@dataclass(frozen=True)
class AnnouncedSum:
    """A sum that the server has announced, with everything that the lineage of those who adopt it follows from."""

    before: bytes
    """The lineage that the contributors signed."""
    round: int
    contributors: tuple[Party, ...]
    vector: memoryview

    def lineage(self, units: bytes) -> bytes:
        """Returns the lineage of a model that has adopted the sum, which has these units (`Accord.units`)."""
        return extend_lineage(self.before, self.round, self.contributors, units, self.vector)

    def average(self, ring: Ring, *, spent: bool = False) -> Vector:
        """Returns the average, in the memory of the sum if that is `spent`; raises WireError if it cannot be one."""
        total = ring.unpack(self.vector)
        ring.check_sum(total, len(self.contributors))
        return ring.mean(total, spent=spent)


class SecAggState(CountingState, frozen=True):
    """State that outlives a round, a session and a roster."""

    batch: tuple[Party, ...] = ()
    """The batch that a client was always summed with, itself included, as far as the policy ensures one."""
    lineages: dict[int, bytes] = msgspec.field(default_factory=dict)
    """The lineage of the last sum of each length that the party has adopted, or the server has announced.

    Lengths are those of encoded vectors; 0 is one that an earlier release did not note.
    """
    adopted_round: int = 0
    """At a client: the round of the last sum that it has adopted."""
    before: bytes = b""
    """At the server: the lineage that the contributors to the last sum signed."""
    round: int = 0
    """At the server: the round of the last sum."""
    contributors: tuple[Party, ...] = ()
    """At the server: the contributors to the last sum."""
    units: bytes = b""
    """At the server: the units of the last sum."""
    length: int = 0
    """At the server: the length of the last sum."""
    announced: memoryview | None = None
    """At the server: the last sum itself, for those who missed it."""
    version: ClassVar[int] = 4

    def continues_from(self) -> bytes:
        """Returns the lineage of all models, whatever their lengths."""
        return self.lineage

    @property
    def lineage(self) -> bytes:
        """The lineage of all models, whatever their lengths; empty if nothing was adopted."""
        return merge_lineages(self.lineages)

    def adopt_lineage(self, length: int, lineage: bytes) -> "SecAggState":
        """Returns the state after a sum of a length. What was adopted at another length is not replaced by it."""
        others = {each: kept for each, kept in self.lineages.items() if each}
        return msgspec.structs.replace(self, lineages={**others, length: lineage})

    def last_sum(self, length: int) -> AnnouncedSum | None:
        """Returns the last sum that a server has announced; None if it has another length, or there is none."""
        if self.announced is None or self.length != length:
            return None
        return AnnouncedSum(self.before, self.round, self.contributors, self.announced)

    def keep(self, result: AnnouncedSum, units: bytes, length: int) -> "SecAggState":
        """Returns the state of a server that has announced a sum of a length in some units."""
        return msgspec.structs.replace(
            self.adopt_lineage(length, result.lineage(units)),
            before=result.before,
            round=result.round,
            contributors=result.contributors,
            units=units,
            length=length,
            announced=result.vector,
        )

    @classmethod
    def upgrade(cls, version: int, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the fields of version 3, which had a digest of the last sum in the place of a lineage."""
        if version != 3:
            return None
        last = fields["last"]
        lineage = digest_inputs("secagg 0.2", last) if any(last) else b""
        return {
            "counts": fields["counts"],
            "batch": tuple(fields["batch"]),
            "lineages": {0: lineage} if lineage else {},
        }


@dataclass(frozen=True)
class Accord:
    """What both sides of a round compute alike. Users are places on the roster, and sets are as they are sent."""

    link: Link
    suite: Suite
    terms: SecAggTerms

    def graph(self, u2: Collection[int]) -> Circle:
        """Returns who shares masks with whom. Everyone computes it, so the server cannot pick a victim's neighbours."""
        return circle_of(self.link, self.terms, u2)

    def advertisement(self, u: int, c: bytes, s: bytes, lineage: bytes) -> bytes:
        """Returns what a user signs about its keys, and about the model that it continues from."""
        return self.link.statement("secagg keys", self.link.parties[u].encode(), c, s, lineage)

    def units(self, *, changes: bool) -> bytes:
        """Returns what an average is in: the units of the ring, and whether it is a change or replaces a model."""
        return self.suite.ring.units() + (CHANGES if changes else b"")

    def carry_over(self, state: SecAggState) -> SecAggState:
        """Returns the state of an earlier round for this one, whose models or ring may be others.

        A sum in other units, as a change of the roster brings about, is one that nobody could read any more: its
        average in our units continues its lineage, as the sum of round 0. A change is not announced in other units,
        because parties that have it would add it twice. A sum of another length is kept for a round of that length.
        """
        ring, units = self.suite.ring, self.units(changes=self.terms.settings.norm is not None)
        if state.announced is None or state.length != ring.length or state.units == units:
            return state
        if CHANGES in (units[-len(CHANGES) :], state.units[-len(CHANGES) :]):
            return msgspec.structs.replace(state, announced=None)
        vector = memoryview(ring.pack(ring.convert_sum(state.announced, state.units)))
        return state.keep(AnnouncedSum(state.lineage, 0, state.contributors, vector), units, ring.length)

    def view(self, u: int, u2: bytes, u3: bytes) -> bytes:
        """Returns what user u gives its word for when it masks."""
        return self.link.statement("secagg view", self.link.parties[u].encode(), u2, u3)

    def consent(self, u2: bytes, u3: bytes, u5: bytes) -> bytes:
        """Returns what a user signs about the sets."""
        return self.link.statement("secagg chosen", u2, u3, u5)

    def count_consents(self, circle: Circle, u2: Collection[int]) -> int:
        """Returns how many users must be shown to consent. In a sparse graph the threshold says nothing of them all."""
        return self.terms.threshold if circle.complete else two_thirds(len(u2))

    def commitment(self, u: int, b: Secret) -> bytes:
        """Returns what binds a user to b_u."""
        return self.suite.commit(b, self.link.statement("secagg seed", self.link.parties[u].encode()))

    def agree(self, label: str, u2: bytes, u: int, secret: Secret, v: int, public: bytes) -> Secret:
        """Returns the key of u and v for one purpose, computed on u's side. Users with another U2 have another key.

        Args:
            label: The purpose, `SEAL` or `MASK`.
            u2: U2, as it is sent.
            u: The place of the user that computes.
            secret: The secret key of u.
            v: The place of the other user.
            public: The public key of v.
        """
        pair = b"%d %d" % (min(u, v), max(u, v))
        return self.suite.agree(secret, public, label, self.link.statement("secagg pair", pair, u2))

    def pairwise(self, u2: bytes, u: int, s: Secret, others: Mapping[int, bytes]) -> tuple[list[Secret], list[Secret]]:
        """Returns the seeds of u's masks p_{u,v}, by sign: Δ_{u,v} = 1 when u > v and −1 when u < v."""
        seeds = {v: self.agree(MASK, u2, u, s, v, public) for v, public in others.items()}
        return [seed for v, seed in seeds.items() if u > v], [seed for v, seed in seeds.items() if u < v]


def circle_of(link: Link, terms: SecAggTerms, u2: Collection[int]) -> Circle:
    """Returns the circle of a round."""
    users = frozenset(u2)
    seed = hashlib.sha256(link.statement("secagg graph", terms.sets.bitmap(users))).digest()
    return terms.alike.circle(users, seed)


def too_thin(terms: SecAggTerms, circle: Circle, u5: Collection[int]) -> bool:
    """Says whether a sparse graph could fall apart over U5, given the corrupted users that the threshold allows for."""
    corrupted = 2 * terms.threshold - (circle.degree + 1) - 1
    return not circle.complete and terms.alike.weakest(circle, frozenset(u5)) <= corrupted // 2
