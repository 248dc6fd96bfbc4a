"""The symbolic `Suite`: keys are tokens, masks are unknowns, and who knows what follows from rules.

Every token is a byte string as long as the real thing (packed vectors apart), so messages are encoded, limited, sealed
and scheduled by the very code that a real run uses. A `World` remembers what each byte string stands for, so that an
audit can say afterwards what a coalition knows (`tacit.audit.views`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tacit.audit.symbolic.forms import unknowns
from tacit.core.entropy import Entropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.messages import SEAL_BYTES
from tacit.core.suite import KeyPair, Party, Ring, Secret, Suite, Vector
from tacit.crypto import masks


@dataclass(frozen=True)
class Made:
    """A secret drawn by a party: a private key or a seed."""

    by: Party
    round: int
    """The round it was drawn in; 0 for an identity."""
    number: int
    """The how-manieth of the round it was."""


@dataclass(frozen=True)
class Public:
    """The public half of a private key."""

    of: bytes


@dataclass(frozen=True)
class Agreed:
    """The key that two private keys agree on for one purpose."""

    between: frozenset[bytes]  # the public halves
    label: str
    context: bytes


@dataclass(frozen=True)
class Sealed:
    """A plaintext under a key."""

    key: bytes
    plaintext: bytes
    context: bytes


@dataclass(frozen=True)
class Signature:
    """A party's word for a statement."""

    signer: Party
    statement: bytes


@dataclass(frozen=True)
class Tag:
    """The word of somebody who has a key for a statement."""

    key: bytes
    statement: bytes


@dataclass(frozen=True)
class KeyShare:
    """One holder's share of a secret."""

    secret: bytes
    holder: int
    threshold: int


@dataclass(frozen=True)
class Commitment:
    """Binds its maker to a secret and says nothing about it."""

    secret: bytes
    context: bytes


Meaning: TypeAlias = Made | Public | Agreed | Sealed | Signature | Tag | KeyShare | Commitment


class World:
    """Remembers what every token of a symbolic run stands for."""

    def __init__(self, vector_of: Callable[[bytes], Vector | None]) -> None:
        self.vector_of = vector_of
        """What a packed vector stands for, None for bytes that are none; the symbolic ring knows."""
        self._meanings: dict[bytes, Meaning] = {}
        self._tokens: dict[Meaning, bytes] = {}
        self.masked: dict[bytes, int] = {}
        """How many entries each seed was expanded to."""
        self._made: dict[Party, list[bytes]] = defaultdict(list)
        self._agreements: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)

    def token(self, meaning: Meaning, length: int) -> bytes:
        """Returns the byte string that stands for a meaning."""
        if meaning not in self._tokens:
            token = hashlib.shake_256(f"token {len(self._tokens)}".encode()).digest(length)
            self._tokens[meaning], self._meanings[token] = token, meaning
            if isinstance(meaning, Made):
                self._made[meaning.by].append(token)
            elif isinstance(meaning, Agreed):
                self._note(meaning, token)
        return self._tokens[meaning]

    def _note(self, agreed: Agreed, token: bytes) -> None:
        for public in agreed.between:
            private = self._meanings[public]
            other = next(iter(agreed.between - {public}), public)
            if isinstance(private, Public):
                self._agreements[private.of].append((other, token))

    def meaning(self, token: bytes) -> Meaning | None:
        """Returns what a byte string stands for, None if it is plain data."""
        return self._meanings.get(token)

    def identity(self, party: Party) -> bytes:
        """Returns the party's long-lived channel secret."""
        return self.token(Made(party, 0, 0), 32)

    def public(self, secret: bytes) -> bytes:
        """Returns the public half of a private key."""
        return self.token(Public(secret), 32)

    def made_by(self, party: Party) -> list[bytes]:
        """Returns the tokens that a party drew."""
        return self._made[party]

    def agreements(self) -> Mapping[bytes, Sequence[tuple[bytes, bytes]]]:
        """Returns, for each private key, the other side's public half and the key agreed with it."""
        return self._agreements


class SymbolicSuite(Suite):
    """One party's hands in one round of a symbolic run."""

    def __init__(self, me: Party, round_: int, world: World, entropy: Entropy, ring: Ring) -> None:
        self.me, self.entropy, self.ring, self._round, self._world = me, entropy, ring, round_, world
        self._drawn = 0

    def forget(self) -> None:
        """Keeps everything: the audit asks what a coalition that never forgets would know."""

    def key_pair(self) -> KeyPair:
        """Makes a fresh token and its public half."""
        secret = self.seed()
        return KeyPair(secret, self.public(secret))

    def public(self, secret: Secret) -> bytes:
        """Returns the public half of a token."""
        return self._world.public(secret.reveal())

    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns the token that both sides derive."""
        if not isinstance(self._world.meaning(public), Public):
            raise WireError("not a usable public key")
        between = frozenset((self.public(secret), public))
        return Secret(self._world.token(Agreed(between, label, context), 32))

    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns the token that both identities derive."""
        theirs = self._world.public(self._world.identity(peer))
        return self.agree(Secret(self._world.identity(self.me)), theirs, label, context)

    words = staticmethod(masks.words)

    def seed(self) -> Secret:
        """Draws a fresh token."""
        self._drawn += 1
        return Secret(self._world.token(Made(self.me, self._round, self._drawn), 32))

    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns a token bound to a secret."""
        return self._world.token(Commitment(secret.reveal(), context), 32)

    def seal(self, key: Secret, plaintext: bytes, context: bytes) -> bytes:
        """Returns a token that only the key opens."""
        return self._world.token(Sealed(key.reveal(), bytes(plaintext), context), len(plaintext) + SEAL_BYTES)

    def open(self, key: Secret, sealed: bytes, context: bytes) -> bytes:
        """Returns what was sealed, or raises WireError."""
        meaning = self._world.meaning(sealed)
        if not isinstance(meaning, Sealed) or meaning.key != key.reveal() or meaning.context != context:
            raise WireError("sealed bytes are not authentic")
        return meaning.plaintext

    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns a token bound to a key and a statement."""
        return self._world.token(Tag(key.reveal(), statement), 16)

    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is that of the statement under the key."""
        if self._world.meaning(tag) != Tag(key.reveal(), statement):
            raise WireError("a tag that does not fit")

    def sign(self, statement: bytes) -> bytes:
        """Returns our word for a statement."""
        return self._world.token(Signature(self.me, statement), 64)

    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""
        if self._world.meaning(signature) != Signature(signer, statement):
            raise PeerFault(signer, Drop.BAD_SIGNATURE)

    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds and subtracts the unknowns that seeds expand to."""
        for seed in plus:
            vector += self.stream(seed, vector, len(vector))
        for seed in minus:
            vector -= self.stream(seed, vector, len(vector))

    def stream(self, seed: Secret, like: Vector, length: int) -> Vector:
        """Returns the unknowns that a seed expands to."""
        del like
        token = seed.reveal()
        self._world.masked[token] = max(length, self._world.masked.get(token, 0))
        return unknowns("mask", token, length)

    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Returns a token a holder."""
        token = secret.reveal()
        return {holder: self._world.token(KeyShare(token, holder, threshold), 33) for holder in holders}

    def recover(self, shares: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret, if these are enough shares of one."""
        meanings = {self._world.meaning(data) for data in shares.values()}
        secrets = {meaning.secret for meaning in meanings if isinstance(meaning, KeyShare)}
        held = {meaning.holder for meaning in meanings if isinstance(meaning, KeyShare)}
        if len(secrets) != 1 or len(held) < threshold or held != set(shares):
            raise WireError("not enough shares of one secret")
        return Secret(secrets.pop())
