"""The real `Suite`: X25519, HKDF-SHA-256, AES-256-GCM, Ed25519, AES-256-CTR masks and Shamir shares."""

from collections.abc import Mapping, Sequence

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.core.entropy import Entropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import framed
from tacit.core.suite import KeyPair, Party, Ring, Secret, Suite, Vector
from tacit.crypto import masks, shares
from tacit.crypto.keys import Identity, Member

NONCE_BYTES = 12


class RealSuite(Suite):
    """One party's cryptography, over its own identity and the roster."""

    def __init__(self, identity: Identity, roster: Mapping[Party, Member], entropy: Entropy, ring: Ring) -> None:
        self.me, self.entropy, self.ring = identity.name, entropy, ring
        self._secrets = entropy.apart("secrets")
        self._signing = Ed25519PrivateKey.from_private_bytes(identity.signing.reveal())
        self.identity, self.roster = identity, roster
        self.made: list[Secret] = []
        """The secrets drawn since the last `forget`, in order."""
        self._loaded: dict[bytes, tuple[X25519PrivateKey, bytes]] = {}
        self._shared: dict[Party, bytes] = {}
        self._channels: dict[tuple[Party, bytes], Secret] = {}

    def _load(self, secret: Secret) -> tuple[X25519PrivateKey, bytes]:
        # Loading a private key recomputes its public half, which costs as much as an agreement; one key serves many.
        raw = secret.reveal()
        if raw not in self._loaded:
            private = X25519PrivateKey.from_private_bytes(raw)
            self._loaded[raw] = private, private.public_key().public_bytes_raw()
        return self._loaded[raw]

    def forget(self) -> None:
        """Drops the keys of past rounds."""
        self._loaded.clear()
        self.made.clear()

    def key_pair(self) -> KeyPair:
        """Makes a fresh X25519 key."""
        secret = self.seed()
        return KeyPair(secret, self.public(secret))

    def public(self, secret: Secret) -> bytes:
        """Returns the public half of an X25519 secret."""
        return self._load(secret)[1]

    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns HKDF of the X25519 shared secret, bound to the label, the context and both public halves."""
        private, own = self._load(secret)
        return _derived(_exchanged(private, public), label, context, own, public)

    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns HKDF of the X25519 secret that our identity shares with the peer's."""
        own, public = self.roster[self.me].channel_key, self.roster[peer].channel_key
        if peer not in self._shared:
            private = X25519PrivateKey.from_private_bytes(self.identity.channel.reveal())
            self._shared[peer] = _exchanged(private, public)
        return _derived(self._shared[peer], label, context, own, public)

    def channel(self, peer: Party, session: bytes) -> Secret:
        """Returns the key that seals envelopes between us and `peer` in one session."""
        # Asked for with every envelope, so it is kept.
        if (peer, session) not in self._channels:
            self._channels[peer, session] = super().channel(peer, session)
        return self._channels[peer, session]

    words = staticmethod(masks.words)

    def seed(self) -> Secret:
        """Draws a fresh 256-bit secret."""
        self.made.append(Secret(self._secrets.bytes(32)))
        return self.made[-1]

    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns SHA-256 of a seed in its context; hiding because seeds are uniform 256-bit strings."""
        digest = Hash(SHA256())
        digest.update(framed(b"tacit/v1/commit", context, secret.reveal()))
        return digest.finalize()

    def seal(self, key: Secret, plaintext: bytes, context: bytes) -> bytes:
        """Returns nonce, ciphertext and tag of AES-256-GCM."""
        nonce = self._secrets.bytes(NONCE_BYTES)
        return nonce + AESGCM(key.reveal()).encrypt(nonce, plaintext, context)

    def open(self, key: Secret, sealed: bytes, context: bytes) -> bytes:
        """Returns the plaintext, or raises WireError if key, context or a single bit is not the sender's."""
        try:
            return AESGCM(key.reveal()).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):  # ValueError: too short for a nonce
            raise WireError("sealed bytes are not authentic") from None

    def sign(self, statement: bytes) -> bytes:
        """Returns our Ed25519 signature."""
        return self._signing.sign(statement)

    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""
        try:
            Ed25519PublicKey.from_public_bytes(self.roster[signer].verify_key).verify(signature, statement)
        except InvalidSignature:
            raise PeerFault(signer, Drop.BAD_SIGNATURE) from None

    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds and subtracts mask streams in place, chunk by chunk."""
        masks.add_masks(vector, [seed.reveal() for seed in plus], [seed.reveal() for seed in minus])

    def stream(self, seed: Secret, like: Vector, length: int) -> Vector:
        """Returns the first elements of the mask stream of a seed."""
        return masks.stream(seed.reveal(), length, like.dtype.itemsize)

    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Returns Shamir shares of a 32-byte secret."""
        return shares.split(secret.reveal(), threshold, holders, self._secrets.bytes)

    def recover(self, shares_: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret that the shares belong to."""
        return Secret(shares.combine(shares_, threshold))


def _exchanged(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # wrong length, or a point of small order
        raise WireError(f"not a usable public key: {error}") from None


def _derived(shared: bytes, label: str, context: bytes, own: bytes, public: bytes) -> Secret:
    info = framed(label.encode(), context, *sorted((own, public)))
    return Secret(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared))
