"""Settings and terms of `secagg`, its state, and the computations that users and server share."""

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
from tacit.protocols.secagg.proofs import arguments_of, masks_hold
from tacit.protocols.shapes import star
from tacit.protocols.shapes.star import BACK, CountingState, StarSettings, StarTerms

CHANGES = b"changes"
"""End of the units of averages that are changes to a model."""
RESENT = "run it again: they have been sent the last average"
"""Remedy for a round in which too many parties lacked the last average."""
SEAL, MASK = "tacit/secagg/v1/seal", "tacit/secagg/v1/mask"


def _neighbours_from(value: Any) -> Any:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 2):
        return value
    raise ConfigError(f'neighbours={value!r} must be "all" or a number of at least 2')


class SecAggSettings(StarSettings, frozen=True, kw_only=True):
    """Settings of `secagg`."""

    neighbours: int | Literal["all"] = "all"
    """Number of other users with which a user shares masks and secrets, or "all"."""
    fewest: int | None = None
    """The fewest users that may be asked, and summed unless the policy sums fewer. Unless set, it is the threshold in a
    complete graph; in a sparse one, the smallest number above two thirds of the most users that may be asked."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {**StarSettings.readers, "neighbours": _neighbours_from}

    @property
    def degree(self) -> int | None:
        """Number of neighbours; None for all."""
        return self.neighbours if isinstance(self.neighbours, int) else None

    def bind(self, parties: Parties) -> "SecAggTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        try:
            policy = star.bind_policy(self, parties)
            most = policy.most(len(parties))
        except ConfigError as error:
            # The threshold can still be checked, as if all users could take part.
            raise ConfigError([*error.problems, *self._threshold_problems(len(parties))]) from None
        # The most holders of one user's shares: all users or, on a circle, the user and its neighbours.
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
            # If all users hold shares, a round with fewer than the threshold could not end.
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
                f"sets and unmask anybody; try: threshold={holders // 2 + 1} or more"
            ]
        return []

    def _fewest_problems(self, most: int, least: int) -> list[str]:
        if self.fewest is None or (2 if self.allow_leaks else least) <= self.fewest <= most:
            return []
        return [
            f"fewest={self.fewest} must be from {least} to {most} of the {most} users who may be asked: of fewer, the "
            f"server could make several sums; try: fewest={least}"
        ]


@dataclass(frozen=True)
class SecAggTerms(StarTerms):
    """What the settings of `secagg` mean for one roster."""

    settings: SecAggSettings
    fewest: int
    """The fewest users that must be asked and, unless the policy sums fewer, summed."""
    alike: "Alike" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alike", Alike(self))

    @property
    def rounds_alike(self) -> bool:
        """Whether the graph is complete. A sparse graph differs from round to round."""
        return self.settings.degree is None

    @property
    def sparse(self) -> bool:
        """Whether some pairs of users share no mask when the most users are asked."""
        degree = self.settings.degree
        return degree is not None and degree + degree % 2 < self.policy.most(len(self.parties)) - 1

    @property
    def work(self) -> int:
        """Number of parties, plus one key and mask for each user and each of its neighbours."""
        most = self.policy.most(len(self.parties))
        return len(self.parties) + most * min(most, self.settings.degree or most)

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns which users are in one batch; None in a sparse graph, where neighbours are random."""
        return None if self.sparse else super().ties()

    @property
    def fewest_present(self) -> int:
        """The fewest users that must be present at every step."""
        return max(self.policy.least, self.threshold, self.fewest)

    @property
    def cure(self) -> str:
        """Remedy where too many dropped out. It never lowers the threshold, which is what protects the parties."""
        most, least = self.policy.most(len(self.parties)), self.fewest_present
        if least < most or self.settings.degree is not None:
            return BACK
        enough = next(n for n in range(most + 1, 2 * most + 4) if two_thirds(n) < n)
        return f"{BACK}, or add parties: with {enough}, {enough - two_thirds(enough)} may be missing from a round"

    @property
    def rule(self) -> str:
        """The setting that says how many are needed."""
        settings = self.settings
        return f"fewest={self.fewest}" if self.fewest_present > self.threshold and settings.fewest else super().rule

    @property
    def rule_detail(self) -> str:
        """How many may drop out, and what the threshold protects against."""
        most, least = self.policy.most(len(self.parties)), self.fewest_present
        spare = f"at most {most - least}" if least < most else "none"
        colluders = 2 * self.threshold - most - 1
        protects = (
            f"; this threshold allows for a malicious server and {format_count(colluders, 'colluding user')}"
            if colluders >= 0 and self.settings.degree is None
            else ""
        )
        return f"of {most} users with threshold={self.threshold}, {spare} may drop out{protects}"

    @property
    def smallest_sum(self) -> int:
        """The fewest contributors to a sum."""
        return self.policy.smallest(max(self.threshold, self.fewest))

    @property
    def secure_sum(self) -> SecureSum:
        """Sums of at least `smallest_sum`, if the server colludes with no more users than the threshold allows."""
        colluders = max(0, 2 * self.threshold - self.policy.most(len(self.parties)) - 1)
        return SecureSum(self.smallest_sum, None if self.sparse else colluders)

    def fewest_contributors(self, coalition: Collection[Party]) -> int | None:
        """Returns the fewest honest users in a sum, in a sparse graph; None in a complete one, where audits count
        them."""
        if not self.sparse:
            return None
        users = sum(party in coalition for party in self.parties)
        return max(1, self.smallest_sum - users) if masks_hold(self, users, dropouts=True) else 1

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields the privacy arguments about the server and its users."""
        return arguments_of(self, query)


class Alike:
    """Caches of results that all parties of a round compute from the same sets of users.

    Each computation takes time proportional to the number of users. That is negligible for one client, but not for a
    process that simulates all clients.
    """

    def __init__(self, terms: SecAggTerms) -> None:
        degree, policy, parties = terms.settings.degree, terms.policy, terms.parties
        self.circle: Callable[[frozenset[int], bytes], Circle] = lru_cache(4)(
            lambda users, seed: Circle(sorted(users), degree, seed)
        )
        """Returns the circle for some users and a seed."""
        self.may_ask: Callable[[frozenset[int]], bool] = lru_cache(4)(lambda u2: policy.may_ask(u2, len(parties)))
        """Returns whether the policy lets exactly these users be asked."""
        self.allows: Callable[[frozenset[int]], bool] = lru_cache(4)(policy.allows)
        """Returns whether the policy lets exactly these users be summed."""
        self.weakest: Callable[[Circle, frozenset[int]], int] = lru_cache(4)(Circle.weakest)
        """Returns the fewest of some users in any run of a circle (`Circle.weakest`)."""


@dataclass(frozen=True)
class AnnouncedSum:
    """A sum that the server has announced, with everything that its lineage is computed from."""

    before: bytes
    """Lineage that the contributors signed."""
    round: int
    contributors: tuple[Party, ...]
    vector: memoryview

    def lineage(self, units: bytes) -> bytes:
        """Returns the lineage of a model that has adopted the sum in these units (`Accord.units`)."""
        return extend_lineage(self.before, self.round, self.contributors, units, self.vector)

    def average(self, ring: Ring, *, spent: bool = False) -> Vector:
        """Returns the average; raises WireError if its contributors cannot have produced it.

        The average overwrites the sum if that is `spent`.
        """
        total = ring.unpack(self.vector)
        ring.check_sum(total, len(self.contributors))
        return ring.mean(total, spent=spent)


class SecAggState(CountingState, frozen=True):
    """State of a user or server, which outlives rounds, sessions and rosters."""

    batch: tuple[Party, ...] = ()
    """At a client: the batch it was always summed with, itself included; only itself if the policy ensures none."""
    lineages: dict[int, bytes] = msgspec.field(default_factory=dict)
    """Lineage of the last sum of each length that a party has adopted, or that the server has announced.

    Lengths are those of encoded vectors. Length 0 stands for an unknown one, in states of an earlier release.
    """
    adopted_round: int = 0
    """At a client: the round of the last adopted sum."""
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
    """At the server: the last sum itself, for parties that missed it."""
    version: ClassVar[int] = 4

    def continues_from(self) -> bytes:
        """Returns the lineage of all models, of all lengths."""
        return self.lineage

    @property
    def lineage(self) -> bytes:
        """Lineage of all models, of all lengths; empty if nothing was adopted."""
        return merge_lineages(self.lineages)

    def adopt_lineage(self, length: int, lineage: bytes) -> "SecAggState":
        """Returns the state after adopting a sum of one length. Lineages of other lengths stay."""
        others = {each: kept for each, kept in self.lineages.items() if each}
        return msgspec.structs.replace(self, lineages={**others, length: lineage})

    def last_sum(self, length: int) -> AnnouncedSum | None:
        """Returns the last announced sum; None if there is none, or if it has another length."""
        if self.announced is None or self.length != length:
            return None
        return AnnouncedSum(self.before, self.round, self.contributors, self.announced)

    def keep(self, result: AnnouncedSum, units: bytes, length: int) -> "SecAggState":
        """Returns the server's state after announcing a sum of a length in some units."""
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
        """Converts the fields of version 3, which had a digest of the last sum instead of a lineage."""
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
    """Computations that users and server share in one round. Users are roster indices; sets are encoded as bitmaps."""

    link: Link
    suite: Suite
    terms: SecAggTerms

    def graph(self, u2: Collection[int]) -> Circle:
        """Returns the graph of masks. Every user computes it, so the server cannot choose a victim's neighbours."""
        return circle_of(self.link, self.terms, u2)

    def advertisement(self, u: int, c: bytes, s: bytes, lineage: bytes) -> bytes:
        """Returns the statement that a user signs about its keys and the model that it continues from."""
        return self.link.statement("secagg keys", self.link.parties[u].encode(), c, s, lineage)

    def units(self, *, changes: bool) -> bytes:
        """Returns the units of an average: those of the ring, and whether it is a change or replaces a model."""
        return self.suite.ring.units() + (CHANGES if changes else b"")

    def carry_over(self, state: SecAggState) -> SecAggState:
        """Converts the state of an earlier round for this round, whose models or ring may differ.

        A change of the roster changes the units of sums, so the last sum could no longer be decoded. It is replaced by
        its average in the new units, which continues the lineage of that sum, as the sum of round 0. A change to a
        model is not announced in other units, because parties that have it would add it twice. A sum of another length
        is kept for a round with that length.
        """
        ring, units = self.suite.ring, self.units(changes=self.terms.settings.norm is not None)
        if state.announced is None or state.length != ring.length or state.units == units:
            return state
        if CHANGES in (units[-len(CHANGES) :], state.units[-len(CHANGES) :]):
            return msgspec.structs.replace(state, announced=None)
        vector = memoryview(ring.pack(ring.convert_sum(state.announced, state.units)))
        return state.keep(AnnouncedSum(state.lineage, 0, state.contributors, vector), units, ring.length)

    def view(self, u: int, u2: bytes, u3: bytes) -> bytes:
        """Returns the statement that user u tags for its neighbours when it masks."""
        return self.link.statement("secagg view", self.link.parties[u].encode(), u2, u3)

    def consent(self, u2: bytes, u3: bytes, u5: bytes) -> bytes:
        """Returns the statement about the sets that a user signs."""
        return self.link.statement("secagg chosen", u2, u3, u5)

    def count_consents(self, circle: Circle, u2: Collection[int]) -> int:
        """Returns the number of consents that a user requires. In a sparse graph, the threshold is only for holders."""
        return self.terms.threshold if circle.complete else two_thirds(len(u2))

    def commitment(self, u: int, b: Secret) -> bytes:
        """Returns a commitment of user u to b_u."""
        return self.suite.commit(b, self.link.statement("secagg seed", self.link.parties[u].encode()))

    def agree(self, label: str, u2: bytes, u: int, secret: Secret, v: int, public: bytes) -> Secret:
        """Returns the key of u and v for one purpose, computed by u. Users with different U2 get different keys.

        Args:
            label: The purpose, `SEAL` or `MASK`.
            u2: U2, as it is sent.
            u: The roster index of the user that computes.
            secret: The secret key of u.
            v: The roster index of the other user.
            public: The public key of v.
        """
        pair = b"%d %d" % (min(u, v), max(u, v))
        return self.suite.agree(secret, public, label, self.link.statement("secagg pair", pair, u2))

    def pairwise(self, u2: bytes, u: int, s: Secret, others: Mapping[int, bytes]) -> tuple[list[Secret], list[Secret]]:
        """Returns the seeds of u's masks p_{u,v} by sign: Δ_{u,v} = 1 if u > v, and −1 if u < v."""
        seeds = {v: self.agree(MASK, u2, u, s, v, public) for v, public in others.items()}
        return [seed for v, seed in seeds.items() if u > v], [seed for v, seed in seeds.items() if u < v]


def circle_of(link: Link, terms: SecAggTerms, u2: Collection[int]) -> Circle:
    """Returns the circle of a round, whose seed depends on session, round and U2."""
    users = frozenset(u2)
    seed = hashlib.sha256(link.statement("secagg graph", terms.sets.bitmap(users))).digest()
    return terms.alike.circle(users, seed)


def too_thin(terms: SecAggTerms, circle: Circle, u5: Collection[int]) -> bool:
    """Returns whether a sparse graph over U5 could be disconnected, with the most corrupted users for the threshold."""
    corrupted = 2 * terms.threshold - (circle.degree + 1) - 1
    return not circle.complete and terms.alike.weakest(circle, frozenset(u5)) <= corrupted // 2
