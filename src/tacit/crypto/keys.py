"""Who is who: the long-lived identities of a federation and the roster of their public halves."""

from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.core.entropy import Entropy
from tacit.core.suite import Party, Secret


@dataclass(frozen=True)
class Member:
    """The public half of an identity: what the roster says of a party."""

    name: Party
    verify_key: bytes
    channel_key: bytes


@dataclass(frozen=True)
class Identity:
    """A party's long-lived secrets: one to sign with (Ed25519), one to seal envelopes with (X25519)."""

    name: Party
    signing: Secret
    channel: Secret

    @classmethod
    def generate(cls, name: Party, entropy: Entropy) -> "Identity":
        """Makes a fresh identity."""
        return cls(name, Secret(entropy.bytes(32)), Secret(entropy.bytes(32)))

    def member(self) -> Member:
        """Returns the public half."""
        signing = Ed25519PrivateKey.from_private_bytes(self.signing.reveal())
        channel = X25519PrivateKey.from_private_bytes(self.channel.reveal())
        return Member(self.name, signing.public_key().public_bytes_raw(), channel.public_key().public_bytes_raw())


def roster(identities: Iterable[Identity]) -> dict[Party, Member]:
    """Returns the public halves of some identities, by name."""
    return {identity.name: identity.member() for identity in identities}
