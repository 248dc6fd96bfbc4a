"""Symbolic `Suite`: keys are tokens, masks are unknowns, and rules say which party knows which token.

Except for packed vectors, every token is a byte string as long as the real one. So messages are encoded, limited,
sealed and scheduled by the same code as in a real run. A `World` stores what each byte string stands for, and an audit
derives from it what a coalition knows (`tacit.auditing.engine.views`).
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tacit.auditing.symbolic.forms import Form, NonlinearUse, Unknown, unknowns
from tacit.core.entropy import Entropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.messages import sealed_length
from tacit.core.suite import Buffer, KeyPair, Party, Ring, Secret, Suite, Vector
from tacit.crypto import masks


class Made(NamedTuple):
    """A secret drawn by a party: a private key or a seed."""

    by: Party
    round: int
    """The round in which the secret was drawn; 0 for an identity."""
    number: int
    """Number of the draw within the round."""


class Public(NamedTuple):
    """The public half of a private key."""

    of: bytes


class Agreed(NamedTuple):
    """The key that two private keys agree on for one purpose."""

    first: bytes
    second: bytes
    """The public keys, in ascending order."""
    label: str
    context: bytes

    @property
    def between(self) -> frozenset[bytes]:
        """The public keys."""
        return frozenset((self.first, self.second))


class Sealed(NamedTuple):
    """A plaintext under a key."""

    key: bytes
    plaintext: bytes
    context: bytes


class Signature(NamedTuple):
    """A party's signature of a statement."""

    signer: Party
    statement: bytes


class Tag(NamedTuple):
    """Message authentication tag of a statement under a key."""

    key: bytes
    statement: bytes


class KeyShare(NamedTuple):
    """One holder's share of a secret."""

    secret: bytes
    holder: int
    threshold: int


class Commitment(NamedTuple):
    """A commitment of its maker to a secret, which reveals nothing about the secret."""

    secret: bytes
    context: bytes


SECRETS = Made, Agreed
"""Kinds of tokens that are secret keys or seeds."""
Meaning: TypeAlias = Made | Public | Agreed | Sealed | Signature | Tag | KeyShare | Commitment
Page: TypeAlias = list[tuple[str, tuple[bytes, ...]]]
"""The calls of a party to its suite in a round, in order, with their results."""


STEM, BULK_STEM = b"\xffsymbol\xff", b"\xffbulk\xff\xff\xff"
"""The first bytes of every token. Tokens of boxes, tags and shares begin with the second one."""
SHARE_BYTES, BULK_BYTES = 33, 16
"""Length of the token of a share; and of a tag, which is also how much of a token is not padding."""


class ShareBlock(NamedTuple):
    """The shares of one secret, whose tokens have consecutive numbers."""

    secret: bytes
    threshold: int
    holders: Sequence[int]
    first: int
    """The number of the first share."""


class Unregistered(NonlinearUse):
    """A protocol used bytes as a secret that are no known secret, so that nobody can say who knows them."""


class World:
    """Meanings of all tokens of a symbolic run.

    A round with n parties has about n² boxes, tags and shares, so these are stored by number: their tokens are made
    when they are needed, and no object exists for a single share.
    """

    def __init__(
        self,
        vector_of: Callable[[bytes], Vector | None],
        weighted: Callable[[], Mapping[Any, int]] = dict,
        *,
        logged: bool = False,
    ) -> None:
        """Takes functions of the symbolic ring, and whether the calls of parties to their suites are logged."""
        self.vector_of = vector_of
        """Returns the vector that packed bytes stand for; None for other bytes. The symbolic ring provides it."""
        self.weighted = weighted
        """Returns the owners of weighted vectors, with the number of entries. The symbolic ring provides it."""
        self.logged = logged
        """Whether the calls of parties are logged in `pages`."""
        self.pages: dict[Party, list[Page]] = defaultdict(list)
        """The calls of parties to their suites by round, and again for a round that is repeated after a restart."""
        self._meanings: dict[bytes, Meaning] = {}
        self._tokens: dict[type[Meaning], dict[tuple[Any, ...], bytes]] = defaultdict(dict)
        self._bulk: list[Sealed | Tag | ShareBlock] = []
        """The box, the tag, or the shares to which each number belongs."""
        self._lengths = array("L")
        """The length of the token with each number."""
        self._numbers: dict[type[Sealed | Tag], dict[tuple[Any, ...], int]] = {Sealed: {}, Tag: {}}
        self._shared: dict[tuple[bytes, int], list[ShareBlock]] = defaultdict(list)
        self.masked: dict[bytes, int] = {}
        """Number of entries to which each seed was expanded."""
        self._masks: dict[bytes, Vector] = {}
        self._mask_unknowns: dict[bytes, list[Unknown]] = defaultdict(list)
        self._made: dict[Party, list[bytes]] = defaultdict(list)
        self._agreed: dict[bytes, list[bytes]] = defaultdict(list)
        self._identities: dict[Party, bytes] = {}
        self._publics: dict[bytes, bytes] = {}
        self.channels: dict[tuple[Party, Party, bytes], bytes] = {}
        """The tokens that seal envelopes, by sender, receiver and session."""

    def token(self, kind: type[Meaning], parts: tuple[Any, ...], length: int) -> bytes:
        """Returns the byte string that stands for a meaning of some kind, given by its parts."""
        tokens = self._tokens[kind]
        if (known := tokens.get(parts)) is not None:
            return known
        # Nobody looks into a token, so a number serves as well as a hash. No packed vector begins with the stem.
        meaning: Meaning = kind(*parts)
        token = (STEM + len(self._meanings).to_bytes(8)).ljust(length, b"\0")
        tokens[meaning], self._meanings[token] = token, meaning
        if isinstance(meaning, Made):
            self._made[meaning.by].append(token)
        elif isinstance(meaning, Agreed):
            for public in dict.fromkeys(parts[:2]):
                private = self._meanings[public]
                if isinstance(private, Public):
                    self._agreed[private.of].append(token)
        return token

    def box(self, key: bytes, plaintext: bytes, context: bytes) -> bytes:
        """Returns the token of a sealed box."""
        number = self._numbers[Sealed].get((key, plaintext, context))
        if number is None:
            number = self._add(Sealed(key, plaintext, context), sealed_length(len(plaintext)))
        return (BULK_STEM + number.to_bytes(8)).ljust(self._lengths[number], b"\0")

    def tag(self, key: bytes, statement: bytes) -> bytes:
        """Returns the token of a tag."""
        number = self._numbers[Tag].get((key, statement))
        if number is None:
            number = self._add(Tag(key, statement), BULK_BYTES)
        return BULK_STEM + number.to_bytes(8)

    def is_tag(self, tag: bytes, key: bytes, statement: bytes) -> bool:
        """Says whether a token is the tag of a statement under a key."""
        number = self._numbers[Tag].get((key, statement))
        return number is not None and tag == BULK_STEM + number.to_bytes(8)

    def _add(self, meaning: Sealed | Tag, length: int) -> int:
        number = self._numbers[type(meaning)][meaning] = len(self._bulk)
        self._bulk.append(meaning)
        self._lengths.append(length)
        return number

    def shares(self, secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Returns the token of each holder's share of a secret."""
        blocks = self._shared[secret, threshold]
        known = {holder: each.first + place for each in blocks for place, holder in enumerate(each.holders)}
        if fresh := [holder for holder in holders if holder not in known] if known else list(holders):
            blocks.append(ShareBlock(secret, threshold, fresh, len(self._bulk)))
            known.update(zip(fresh, range(len(self._bulk), len(self._bulk) + len(fresh)), strict=True))
            self._bulk += [blocks[-1]] * len(fresh)
            self._lengths.extend([SHARE_BYTES] * len(fresh))
        return {holder: (BULK_STEM + known[holder].to_bytes(8)).ljust(SHARE_BYTES, b"\0") for holder in holders}

    def meaning(self, token: bytes) -> Meaning | None:
        """Returns what a byte string stands for; None if it is plain data."""
        if token[:8] != BULK_STEM:
            return self._meanings.get(token)
        token = bytes(token)
        number = int.from_bytes(token[8:BULK_BYTES])
        if number >= len(self._bulk):
            return None
        if token != token[:BULK_BYTES].ljust(self._lengths[number], b"\0"):
            return None
        found = self._bulk[number]
        if isinstance(found, ShareBlock):
            return KeyShare(found.secret, found.holders[number - found.first], found.threshold)
        return found

    def knows(self, data: bytes) -> bool:
        """Says whether a byte string stands for something."""
        return self.meaning(data) is not None or self.vector_of(data) is not None

    def secret(self, secret: Secret) -> bytes:
        """Returns the token of a secret; raises Unregistered unless it was drawn, agreed or reconstructed."""
        token = secret.reveal()
        if not isinstance(self._meanings.get(token), SECRETS):
            raise Unregistered("a protocol may use only secrets from its suite")
        return token

    def mask(self, seed: bytes) -> Vector:
        """Returns the unknowns to which a seed was expanded."""
        if seed not in self._masks or len(self._masks[seed]) < self.masked[seed]:
            self._masks[seed] = unknowns("mask", seed, self.masked[seed])
        return self._masks[seed]

    def mask_unknowns(self, seed: bytes) -> list[Unknown]:
        """Returns the names of the unknowns to which a seed was expanded, which both ends of a mask share."""
        names = self._mask_unknowns[seed]
        names += [("mask", seed, place) for place in range(len(names), self.masked[seed])]
        return names

    def identity(self, party: Party) -> bytes:
        """Returns the party's long-term channel secret."""
        if (known := self._identities.get(party)) is None:
            known = self._identities[party] = self.token(Made, (party, 0, 0), 32)
        return known

    def public(self, secret: bytes) -> bytes:
        """Returns the public half of a private key."""
        if (known := self._publics.get(secret)) is None:
            known = self._publics[secret] = self.token(Public, (secret,), 32)
        return known

    def made_by(self, party: Party) -> list[bytes]:
        """Returns the tokens that a party drew."""
        return self._made[party]

    def agreements(self, private: bytes) -> Sequence[tuple[bytes, bytes]]:
        """Returns the keys agreed with a private key: for each one, the other side's public half and the key."""
        own, found = self._publics.get(private), []
        for token in self._agreed.get(private, ()):
            agreed = self._meanings[token]
            if isinstance(agreed, Agreed):
                found.append((agreed.second if agreed.first == own else agreed.first, token))
        return found


class SymbolicSuite(Suite):
    """The cryptographic operations of one party in one round of a symbolic run."""

    def __init__(self, me: Party, round_: int, world: World, entropy: Entropy, ring: Ring) -> None:
        self.me, self.entropy, self.ring, self._round, self._world = me, entropy, ring, round_, world
        self._drawn = 0
        self._page: Page | None = [] if world.logged else None
        if self._page is not None:
            world.pages[me].append(self._page)

    def _gave(self, what: str, *tokens: bytes) -> None:
        if self._page is not None:
            self._page.append((what, tokens))

    def forget(self) -> None:
        """Does nothing: the audit considers a coalition that never deletes a secret."""

    def key_pair(self) -> KeyPair:
        """Makes a fresh token and its public half."""
        secret = self.seed()
        return KeyPair(secret, self.public(secret))

    def public(self, secret: Secret) -> bytes:
        """Returns the public half of a token."""
        public = self._world.public(self._world.secret(secret))
        self._gave("public", public)
        return public

    def _agree_key(self, secret: bytes, public: bytes, label: str, context: bytes) -> bytes:
        if not isinstance(self._world.meaning(public), Public):
            raise WireError("not a usable public key")
        own = self._world.public(secret)
        pair = (own, public) if own < public else (public, own)
        return self._world.token(Agreed, (*pair, label, context), 32)

    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns the token that both sides derive."""
        agreed = self._agree_key(self._world.secret(secret), public, label, context)
        self._gave("agree", agreed)
        return Secret(agreed)

    def _pair_key(self, peer: Party, label: str, context: bytes) -> bytes:
        theirs = self._world.public(self._world.identity(peer))
        return self._agree_key(self._world.identity(self.me), theirs, label, context)

    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns the token that both identities derive."""
        agreed = self._pair_key(peer, label, context)
        self._gave("pairwise", agreed)
        return Secret(agreed)

    def channel(self, peer: Party, session: bytes) -> Secret:
        """Returns the token that seals envelopes between this party and `peer` in one session."""
        ends, channels = (self.me, peer, session), self._world.channels
        if (known := channels.get(ends)) is None:
            known = channels[ends] = self._pair_key(peer, "tacit/v1/channel", session)
        return Secret(known)

    words = staticmethod(masks.words)

    def seed(self) -> Secret:
        """Draws a fresh token."""
        self._drawn += 1
        token = self._world.token(Made, (self.me, self._round, self._drawn), 32)
        self._gave("seed", token)
        return Secret(token)

    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns a token bound to a secret."""
        token = self._world.token(Commitment, (self._world.secret(secret), context), 32)
        self._gave("commit", token)
        return token

    def seal(self, key: Secret, plaintext: Buffer, context: bytes) -> bytes:
        """Returns a token that can be opened only with the key."""
        return self._world.box(self._world.secret(key), bytes(plaintext), context)

    def open(self, key: Secret, sealed: Buffer, context: bytes) -> bytes:
        """Returns the sealed plaintext, or raises WireError."""
        meaning = self._world.meaning(bytes(sealed))
        if not isinstance(meaning, Sealed) or meaning.key != key.reveal() or meaning.context != context:
            raise WireError("sealed bytes are not authentic")
        return meaning.plaintext

    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns a token bound to a key and a statement."""
        token = self._world.tag(self._world.secret(key), statement)
        self._gave("tag", token)
        return token

    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is that of the statement under the key."""
        if not self._world.is_tag(tag, key.reveal(), statement):
            raise WireError("the tag is invalid")

    def sign(self, statement: bytes) -> bytes:
        """Returns this party's signature of a statement."""
        token = self._world.token(Signature, (self.me, statement), 64)
        self._gave("sign", token)
        return token

    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""
        meaning = self._world.meaning(signature)
        if not isinstance(meaning, Signature) or meaning != (signer, statement):
            raise PeerFault(signer, Drop.BAD_SIGNATURE)

    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds and subtracts the unknowns that seeds expand to."""
        signs: Counter[bytes] = Counter()
        for seeds, sign in ((plus, 1), (minus, -1)):
            for seed in seeds:
                signs[self._note_expansion(seed, len(vector))] += sign
        # All masks are added at once: one after another would copy longer and longer forms.
        factors = [(self._world.mask_unknowns(token), sign) for token, sign in signs.items() if sign]
        added = (Form.over({each[place]: sign for each, sign in factors}) for place in range(len(vector)))
        vector += np.fromiter(added, dtype=object, count=len(vector))

    def _note_expansion(self, seed: Secret, length: int) -> bytes:
        """Returns the token of a seed, and records the length of its expansion."""
        token = self._world.secret(seed)
        self._world.masked[token] = max(length, self._world.masked.get(token, 0))
        return token

    def stream(self, seed: Secret, like: Vector, length: int) -> Vector:
        """Returns the unknowns that a seed expands to."""
        del like
        return unknowns("mask", self._note_expansion(seed, length), length)

    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Returns one token per holder."""
        token = self._world.secret(secret)
        shares = self._world.shares(token, threshold, holders)
        self._gave("share", *shares.values())
        return shares

    def recover(self, shares: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret, if these are enough shares of it."""
        meanings = {self._world.meaning(data) for data in shares.values()}
        secrets = {meaning.secret for meaning in meanings if isinstance(meaning, KeyShare)}
        held = {meaning.holder for meaning in meanings if isinstance(meaning, KeyShare)}
        if len(secrets) != 1 or len(held) < threshold or held != set(shares):
            raise WireError("not enough shares of one secret")
        self._gave("recover", *secrets)
        return Secret(secrets.pop())
