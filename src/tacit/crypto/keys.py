"""Long-lived identity keys of the parties, and the roster of their public halves."""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tacit.core.entropy import Entropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import frame_parts
from tacit.core.suite import Party, Secret

REMEMBERED = 1 << 14
"""Most verified signatures that a roster remembers."""
_ANY = X25519PrivateKey.from_private_bytes(bytes(range(32)))  # not a secret: it tests whether public keys are usable


@dataclass(frozen=True)
class Member:
    """The public half of an identity, as listed in the roster."""

    name: Party
    verify_key: bytes
    channel_key: bytes

    @property
    def fingerprint(self) -> str:
        """Short hash of both keys, which people compare by eye."""
        return hashlib.sha256(frame_parts(self.verify_key, self.channel_key)).hexdigest()[:16]

    def problems(self) -> list[str]:
        """Returns the problems of the keys, if they are unusable."""
        try:
            Ed25519PublicKey.from_public_bytes(self.verify_key)
            exchange_keys(_ANY, self.channel_key)
        except (ValueError, TypeError, WireError):
            return [
                f"the keys of {self.name} cannot be used; try: ask {self.name} for what `Identity.member` returns there"
            ]
        return []


@dataclass(frozen=True)
class Identity:
    """A party's long-lived secret keys: one for signatures (Ed25519), one for sealing envelopes (X25519)."""

    name: Party
    signing: Secret
    channel: Secret

    @classmethod
    def generate(cls, name: Party, entropy: Entropy) -> "Identity":
        """Generates a fresh identity."""
        return cls(name, Secret(entropy.bytes(32)), Secret(entropy.bytes(32)))

    def member(self) -> Member:
        """Returns the public half."""
        signing = Ed25519PrivateKey.from_private_bytes(self.signing.reveal())
        channel = X25519PrivateKey.from_private_bytes(self.channel.reveal())
        return Member(self.name, signing.public_key().public_bytes_raw(), channel.public_key().public_bytes_raw())


class Roster(Mapping[Party, Member]):
    """Public identities of all members of a federation, in order, including the server if there is one."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._members = {member.name: member for member in members}
        self._verified: OrderedDict[bytes, None] = OrderedDict()

    def __getitem__(self, party: Party) -> Member:
        return self._members[party]

    def __iter__(self) -> Iterator[Party]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""
        # In a simulation every receiver verifies the same signature. Statements may be long, so hashes are cached.
        known = hashlib.sha256(frame_parts(signer.encode(), statement, signature)).digest()
        if known in self._verified:
            return
        try:
            Ed25519PublicKey.from_public_bytes(self[signer].verify_key).verify(signature, statement)
        except (InvalidSignature, ValueError):  # ValueError: a key of the wrong length
            raise PeerFault(signer, Drop.BAD_SIGNATURE) from None
        self._verified[known] = None
        if len(self._verified) > REMEMBERED:
            self._verified.popitem(last=False)

    def __reduce__(self) -> tuple[type["Roster"], tuple[tuple[Member, ...]]]:
        return Roster, (tuple(self._members.values()),)


class Keys:
    """A party's own identity keys and the roster, for all rounds, with a cache of agreed keys."""

    def __init__(self, identity: Identity, roster: Roster) -> None:
        self.me, self.roster, self._identity = identity.name, roster, identity
        self._shared: dict[Party, bytes] = {}
        self._channels: dict[tuple[Party, bytes], Secret] = {}

    # Loading a private key computes its public half, which takes as long as using it. So loaded keys are cached.

    @cached_property
    def _signing(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._identity.signing.reveal())

    @cached_property
    def _channel(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._identity.channel.reveal())

    def sign(self, statement: bytes) -> bytes:
        """Returns an Ed25519 signature by our identity."""
        return self._signing.sign(statement)

    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns a key derived with HKDF from the X25519 secret of our identity and the peer's."""
        own, public = self.roster[self.me].channel_key, self.roster[peer].channel_key
        if peer not in self._shared:
            self._shared[peer] = extract_key(exchange_keys(self._channel, public))
        return expand_key(self._shared[peer], label, context, own, public)

    def channel(self, peer: Party, session: bytes) -> Secret:
        """Returns the key that seals envelopes between us and `peer` in one session."""
        # Every envelope needs this key, so it is cached.
        if (peer, session) not in self._channels:
            self._channels[peer, session] = self.pairwise(peer, "tacit/v1/channel", session)
        return self._channels[peer, session]


def exchange_keys(private: X25519PrivateKey, public: bytes) -> bytes:
    """Returns the X25519 shared secret; raises WireError for an unusable public key."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a wrong length, or a point of small order
        raise WireError(f"not a usable public key: {error}") from None


# HKDF of RFC 5869, without salt and with one block of output, in its two steps. Many keys are derived from one secret,
# and the library's HKDF class takes five times as long.


def extract_key(shared: bytes) -> bytes:
    """Returns the pseudorandom key of a shared secret (HKDF-Extract)."""
    return hmac.digest(bytes(32), shared, "sha256")


def expand_key(key: bytes, label: str, context: bytes, own: bytes, public: bytes) -> Secret:
    """Returns a key bound to a label, a context and both public halves (HKDF-Expand)."""
    info = frame_parts(label.encode(), context, *sorted((own, public)))
    return Secret(hmac.digest(key, info + b"\x01", "sha256"))
