"""The concrete `Suite`: X25519, HKDF-SHA-256, AES-256-GCM, Ed25519, AES-256-CTR masks and Shamir shares."""

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from numpy.typing import NDArray

from tacit.core.entropy import RecordingEntropy, SeededEntropy
from tacit.core.errors import WireError
from tacit.core.link import frame_parts
from tacit.core.suite import Buffer, KeyPair, Party, Ring, Secret, Suite, Vector, Words
from tacit.crypto import masks, shares
from tacit.crypto.keys import Keys, exchange_keys, expand_key, extract_key
from tacit.crypto.sealing import TAG_BYTES, Sealing


class RealSuite(Suite):
    """One party's cryptography in one round."""

    entropy: SeededEntropy

    def __init__(self, keys: Keys, entropy: SeededEntropy, ring: Ring) -> None:
        self.me, self.entropy, self.ring = keys.me, entropy, ring
        self._keys = keys
        self._secrets = entropy.substream("secrets")
        # A separate stream, so that other samples are the same with and without noise.
        ring.draws_from(_words_from(entropy.substream("noise")))
        self.made: list[Secret] = []
        """Secrets sampled so far, in order."""
        self._loaded: dict[bytes, tuple[X25519PrivateKey, bytes]] = {}
        self._channels: dict[bytes, Sealing] = {}

    def _load(self, secret: Secret) -> tuple[X25519PrivateKey, bytes]:
        # Loading a private key recomputes its public half, which costs as much as a key agreement. So it is cached.
        raw = secret.reveal()
        if raw not in self._loaded:
            private = X25519PrivateKey.from_private_bytes(raw)
            self._loaded[raw] = private, private.public_key().public_bytes_raw()
        return self._loaded[raw]

    def forget(self) -> None:
        """Deletes the keys and seeds of the round, unless they are recorded for an audit."""
        self._loaded.clear()
        if not isinstance(self.entropy, RecordingEntropy):
            self.made.clear()
            self.entropy = self._secrets = SeededEntropy()
            self.ring.draws_from(_words_from(SeededEntropy()))

    def key_pair(self) -> KeyPair:
        """Generates a fresh X25519 key."""
        secret = self.seed()
        return KeyPair(secret, self.public(secret))

    def public(self, secret: Secret) -> bytes:
        """Returns the public half of an X25519 secret."""
        return self._load(secret)[1]

    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns HKDF of the X25519 shared secret, bound to the label, the context and both public halves."""
        private, own = self._load(secret)
        return expand_key(extract_key(exchange_keys(private, public)), label, context, own, public)

    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns a key derived with HKDF from the X25519 secret of our identity and the peer's."""
        return self._keys.pairwise(peer, label, context)

    def channel(self, peer: Party, session: bytes) -> Secret:
        """Returns the key that seals envelopes between us and `peer` in one session."""
        key = self._keys.channel(peer, session)
        if key.reveal() not in self._channels:
            self._channels[key.reveal()] = Sealing(key.reveal())
        return key

    words = staticmethod(masks.words)

    def seed(self) -> Secret:
        """Samples a fresh 256-bit secret."""
        self.made.append(Secret(self._secrets.bytes(32)))
        return self.made[-1]

    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns SHA-256 of a seed and its context. It is hiding because seeds are uniform 256-bit strings."""
        digest = Hash(SHA256())
        digest.update(frame_parts(b"tacit/v1/commit", context, secret.reveal()))
        return digest.finalize()

    def _under(self, key: Secret) -> Sealing:
        # A channel key serves many envelopes, so its cipher is cached; any other key serves one.
        return self._channels.get(key.reveal()) or Sealing(key.reveal())

    def seal(self, key: Secret, plaintext: Buffer, context: bytes) -> bytes:
        """Returns nonce, ciphertext and tag of AES-256-GCM, with the nonce derived from the plaintext."""
        return self._under(key).seal(plaintext, context)

    def seal_pieces(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> Iterator[bytes]:
        """Yields the bytes of `seal` piece by piece, for a plaintext that is given in parts."""
        return self._under(key).pieces(plaintext, context)

    def stamp(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> bytes:
        """Returns the nonce as a fingerprint: it is derived from the plaintext."""
        return self._under(key).nonce(plaintext, context)

    def open(self, key: Secret, sealed: Buffer, context: bytes) -> Buffer:
        """Returns the plaintext; raises WireError if the key, the context or any bit is wrong."""
        return self._under(key).open(sealed, context)

    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns BLAKE2b of the statement under the key, 16 bytes."""
        return hashlib.blake2b(statement, key=key.reveal(), digest_size=TAG_BYTES, person=b"tacit/v1/tag").digest()

    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is valid for the statement and the key."""
        if not hmac.compare_digest(self.tag(key, statement), tag):
            raise WireError("the tag is invalid")

    def sign(self, statement: bytes) -> bytes:
        """Returns an Ed25519 signature by our identity."""
        return self._keys.sign(statement)

    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""
        self._keys.roster.verify(signer, statement, signature)

    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds the mask streams of some seeds in place, and subtracts others, chunk by chunk."""
        masks.add_masks(vector, [seed.reveal() for seed in plus], [seed.reveal() for seed in minus])

    def stream(self, seed: Secret, like: Vector, length: int) -> Vector:
        """Returns the first elements of a seed's mask stream."""
        return masks.stream(seed.reveal(), length, like.dtype.itemsize)

    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Returns Shamir shares of a 32-byte secret."""
        return shares.split(secret.reveal(), threshold, holders, self._secrets.bytes)

    def recover(self, shares_: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret that the shares recover."""
        return Secret(shares.combine(shares_, threshold))


def _words_from(entropy: SeededEntropy) -> Words:
    """Returns a source of words that is derived from `entropy`. Each call uses a new key stream."""

    def words(count: int) -> NDArray[np.uint64]:
        return masks.stream(entropy.bytes(masks.KEY_BYTES), count, 8).view(np.uint64)

    return words
