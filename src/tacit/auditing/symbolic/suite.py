"""Symbolic `Suite`: keys are tokens, masks are unknowns, and rules say which party knows which token.

Except for packed vectors, every token is a byte string as long as the real one. So messages are encoded, limited,
sealed and scheduled by the same code as in a real run. A `World` stores what each byte string stands for, and an audit
derives from it what a coalition knows (`tacit.auditing.engine.views`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tacit.auditing.symbolic.forms import Form, NonlinearUse, unknowns
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

    between: frozenset[bytes]  # The public keys.
    label: str
    context: bytes


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


Meaning: TypeAlias = Made | Public | Agreed | Sealed | Signature | Tag | KeyShare | Commitment
Page: TypeAlias = list[tuple[str, tuple[bytes, ...]]]
"""The calls of a party to its suite in a round, in order, with their results."""


STEM = b"\xffsymbol\xff"
"""The first bytes of every token."""


class Unregistered(NonlinearUse):
    """A protocol used bytes as a secret that are no known secret, so that nobody can say who knows them."""


class World:
    """Meanings of all tokens of a symbolic run."""

    def __init__(
        self, vector_of: Callable[[bytes], Vector | None], weighted: Callable[[], Mapping[Any, int]] = dict
    ) -> None:
        self.vector_of = vector_of
        """Returns the vector that packed bytes stand for; None for other bytes. The symbolic ring provides it."""
        self.weighted = weighted
        """Returns the owners of weighted vectors, with the number of entries. The symbolic ring provides it."""
        self.pages: dict[Party, list[Page]] = defaultdict(list)
        """The calls of parties to their suites by round, and again for a round that is repeated after a restart."""
        self._meanings: dict[bytes, Meaning] = {}
        self._tokens: dict[type[Meaning], dict[Meaning, bytes]] = defaultdict(dict)
        self.masked: dict[bytes, int] = {}
        """Number of entries to which each seed was expanded."""
        self.contents: dict[bytes, list[tuple[tuple[Any, ...], bytes]]] = {}
        """The byte strings in each box that a view has opened, with their paths. They are the same for every view."""
        self._masks: dict[bytes, Vector] = {}
        self._made: dict[Party, list[bytes]] = defaultdict(list)
        self._agreements: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
        self._identities: dict[Party, bytes] = {}
        self._publics: dict[bytes, bytes] = {}
        self.channels: dict[tuple[Party, Party, bytes], bytes] = {}
        """The tokens that seal envelopes, by sender, receiver and session."""

    def token(self, meaning: Meaning, length: int) -> bytes:
        """Returns the byte string that stands for a meaning."""
        tokens = self._tokens[type(meaning)]
        if (known := tokens.get(meaning)) is not None:
            return known
        # Nobody looks into a token, so a number serves as well as a hash. No packed vector begins with the stem.
        token = (STEM + len(self._meanings).to_bytes(8)).ljust(length, b"\0")
        tokens[meaning], self._meanings[token] = token, meaning
        if isinstance(meaning, Made):
            self._made[meaning.by].append(token)
        elif isinstance(meaning, Agreed):
            self._note(meaning, token)
        return token

    def _note(self, agreed: Agreed, token: bytes) -> None:
        for public in agreed.between:
            private = self._meanings[public]
            other = next(iter(agreed.between - {public}), public)
            if isinstance(private, Public):
                self._agreements[private.of].append((other, token))

    def meaning(self, token: bytes) -> Meaning | None:
        """Returns what a byte string stands for; None if it is plain data."""
        return self._meanings.get(token)

    def knows(self, data: bytes) -> bool:
        """Says whether a byte string stands for something."""
        return data in self._meanings or self.vector_of(data) is not None

    def secret(self, secret: Secret) -> bytes:
        """Returns the token of a secret; raises Unregistered unless it was drawn, agreed or reconstructed."""
        token = secret.reveal()
        if not isinstance(self._meanings.get(token), Made | Agreed):
            raise Unregistered("a protocol may use only secrets from its suite")
        return token

    def mask(self, seed: bytes) -> Vector:
        """Returns the unknowns to which a seed was expanded."""
        if seed not in self._masks or len(self._masks[seed]) < self.masked[seed]:
            self._masks[seed] = unknowns("mask", seed, self.masked[seed])
        return self._masks[seed]

    def identity(self, party: Party) -> bytes:
        """Returns the party's long-term channel secret."""
        if (known := self._identities.get(party)) is None:
            known = self._identities[party] = self.token(Made(party, 0, 0), 32)
        return known

    def public(self, secret: bytes) -> bytes:
        """Returns the public half of a private key."""
        if (known := self._publics.get(secret)) is None:
            known = self._publics[secret] = self.token(Public(secret), 32)
        return known

    def made_by(self, party: Party) -> list[bytes]:
        """Returns the tokens that a party drew."""
        return self._made[party]

    def agreements(self) -> Mapping[bytes, Sequence[tuple[bytes, bytes]]]:
        """Returns, for each private key, the other side's public half and the key agreed with it."""
        return self._agreements


class SymbolicSuite(Suite):
    """The cryptographic operations of one party in one round of a symbolic run."""

    def __init__(self, me: Party, round_: int, world: World, entropy: Entropy, ring: Ring) -> None:
        self.me, self.entropy, self.ring, self._round, self._world = me, entropy, ring, round_, world
        self._drawn = 0
        self._page: Page = []
        world.pages[me].append(self._page)

    def _gave(self, what: str, *tokens: bytes) -> None:
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
        between = frozenset((self._world.public(secret), public))
        return self._world.token(Agreed(between, label, context), 32)

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
        token = self._world.token(Made(self.me, self._round, self._drawn), 32)
        self._gave("seed", token)
        return Secret(token)

    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns a token bound to a secret."""
        token = self._world.token(Commitment(self._world.secret(secret), context), 32)
        self._gave("commit", token)
        return token

    def seal(self, key: Secret, plaintext: Buffer, context: bytes) -> bytes:
        """Returns a token that can be opened only with the key."""
        sealed = Sealed(self._world.secret(key), bytes(plaintext), context)
        return self._world.token(sealed, sealed_length(len(plaintext)))

    def open(self, key: Secret, sealed: Buffer, context: bytes) -> bytes:
        """Returns the sealed plaintext, or raises WireError."""
        meaning = self._world.meaning(bytes(sealed))
        if not isinstance(meaning, Sealed) or meaning.key != key.reveal() or meaning.context != context:
            raise WireError("sealed bytes are not authentic")
        return meaning.plaintext

    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns a token bound to a key and a statement."""
        token = self._world.token(Tag(self._world.secret(key), statement), 16)
        self._gave("tag", token)
        return token

    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is that of the statement under the key."""
        meaning = self._world.meaning(tag)
        if not isinstance(meaning, Tag) or meaning != Tag(key.reveal(), statement):
            raise WireError("the tag is invalid")

    def sign(self, statement: bytes) -> bytes:
        """Returns this party's signature of a statement."""
        token = self._world.token(Signature(self.me, statement), 64)
        self._gave("sign", token)
        return token

    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""
        meaning = self._world.meaning(signature)
        if not isinstance(meaning, Signature) or meaning != Signature(signer, statement):
            raise PeerFault(signer, Drop.BAD_SIGNATURE)

    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds and subtracts the unknowns that seeds expand to."""
        signs: Counter[bytes] = Counter()
        for seeds, sign in ((plus, 1), (minus, -1)):
            for seed in seeds:
                signs[self._note_expansion(seed, len(vector))] += sign
        # All masks are added at once: one after another would copy longer and longer forms.
        factors = [(token, sign) for token, sign in signs.items() if sign]
        added = (Form.over({("mask", token, place): sign for token, sign in factors}) for place in range(len(vector)))
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
        shares = {holder: self._world.token(KeyShare(token, holder, threshold), 33) for holder in holders}
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
