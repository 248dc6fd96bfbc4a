"""What users and server of `secagg` say to each other, agree on beforehand, and compute alike (see `secagg`)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import msgspec

from tacit.core.errors import ConfigError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.suite import Party, Secret, Suite
from tacit.designs.circle import Circle
from tacit.protocols.star import StarConfig
from tacit.vectors.indices import from_bitmap, to_bitmap

SEAL, MASK = "tacit/secagg/v1/seal", "tacit/secagg/v1/mask"

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
ShareBytes = Annotated[bytes, msgspec.Meta(min_length=33, max_length=33)]
SignatureBytes = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
SignedKeys = tuple[Key, Key, SignatureBytes]


class AdvertiseKeys(Message, frozen=True):
    """c_u^PK to seal shares, s_u^PK to agree on masks, and the signature over both."""

    c: Key
    s: Key
    signature: SignatureBytes


class KeyList(Message, frozen=True):
    """U2, and the keys of this user's neighbours in it (everyone's, in a complete graph)."""

    members: bytes
    keys: dict[int, SignedKeys]
    per_party: ClassVar[int] = 160


class ShareKeys(Message, frozen=True):
    """e_{u,v} for each neighbour v, and the commitment to b_u."""

    sealed: dict[int, bytes]
    commitment: Key
    per_party: ClassVar[int] = 160


class SealedShares(Message, frozen=True):
    """U3, and e_{v,u} from each neighbour v in it."""

    members: bytes
    sealed: dict[int, bytes]
    per_party: ClassVar[int] = 160


class MaskedInput(Message, frozen=True):
    """y_u, which is useless without b_u and the keys of those who drop out."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Chosen(Message, frozen=True):
    """U5. There is no way to ask for shares but this: it settles for each user which of its two shares is given."""

    members: bytes
    per_party: ClassVar[int] = 1


class Consent(Message, frozen=True):
    """A user's signature over U5."""

    signature: SignatureBytes


class Consents(Message, frozen=True):
    """The signatures of `threshold` users of U6 who hold this user's shares."""

    signatures: dict[int, SignatureBytes]
    per_party: ClassVar[int] = 80


class Unmask(Message, frozen=True):
    """Shares of b_v for v ∈ U5, and of s_v^SK for v ∈ U3 without U5."""

    seeds: dict[int, ShareBytes]
    keys: dict[int, ShareBytes]
    per_party: ClassVar[int] = 48


class SharePair(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is inside e_{u,v}: u ‖ v ‖ share of s_u^SK ‖ share of b_u."""

    u: int
    v: int
    key: ShareBytes
    seed: ShareBytes

    def __repr__(self) -> str:
        return f"SharePair({self.u} -> {self.v})"


class SecAggConfig(StarConfig, frozen=True, kw_only=True):
    """Settings of `secagg`."""

    neighbours: Any = "all"
    """With how many others a user shares masks and keys: a number, or "all"."""

    def degree(self) -> int | None:
        """Returns the number of neighbours, None for all."""
        return self.neighbours if isinstance(self.neighbours, int) else None

    def holders(self, parties: int) -> int:
        """Returns how many users, at most, hold the shares of one."""
        most, degree = self.policy().most(parties), self.degree()
        return most if degree is None else min(most, degree + degree % 2 + 1)

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties)
        known = not problems  # how many take part
        if not (self.neighbours == "all" or (isinstance(self.neighbours, int) and self.neighbours >= 2)):
            problems.append(f'neighbours={self.neighbours!r} must be "all" or a number of at least 2')
        if self.threshold is None:
            return problems
        holders = self.holders(len(parties)) if known else len(parties)
        if not 2 <= self.threshold <= holders:
            problems.append(
                f"threshold={self.threshold} cannot hold: each secret has {holders} holders, so 2 to {holders}"
            )
        elif 2 * self.threshold <= holders and not self.allow_leaks:
            problems.append(
                f"threshold={self.threshold} of {holders} holders lets the server show two halves of them different "
                f"sets and unmask anybody; use at least {holders // 2 + 1}, or allow_leaks=True to go on knowingly"
            )
        return problems

    def bound(self, parties: Sequence[Party]) -> Self:
        """Returns the settings with policy and threshold filled in; two thirds of the holders unless set."""
        threshold = self.threshold or 2 * self.holders(len(parties)) // 3 + 1
        return msgspec.structs.replace(super().bound(parties), threshold=threshold)


@dataclass(frozen=True)
class Terms:
    """What both sides of a round compute alike. Users are places on the roster."""

    link: Link
    suite: Suite
    config: SecAggConfig

    @property
    def threshold(self) -> int:
        """Th: how many shares recover a secret."""
        if self.config.threshold is None:
            raise ConfigError("the settings were not bound to a number of parties")
        return self.config.threshold

    def users(self, members: bytes) -> list[int]:
        """Returns the users of a set as it is sent."""
        return from_bitmap(members, len(self.link.parties))

    def members(self, users: Collection[int]) -> bytes:
        """Returns a set of users as it is sent."""
        return to_bitmap(users, len(self.link.parties))

    def graph(self, u2: Collection[int]) -> Circle:
        """Returns who shares masks with whom. Everyone computes it, so the server cannot pick a victim's neighbours."""
        seed = hashlib.sha256(self.link.statement("secagg graph", self.members(u2))).digest()
        return Circle(sorted(u2), self.config.degree(), seed)

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


def too_thin(terms: Terms, circle: Circle, u5: Collection[int]) -> bool:
    """Says whether a sparse graph could fall apart over U5, given the corrupted users that the threshold allows for."""
    corrupted = 2 * terms.threshold - (circle.degree + 1) - 1
    return not circle.complete and circle.weakest(u5) <= corrupted // 2
