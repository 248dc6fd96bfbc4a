"""Sealing that survives whatever a restart does: the nonce follows from what is sealed.

A party that is rebuilt after a crash says its messages again. If it is rebuilt wrongly it may say others, and under a
counter or a repeated stream AES-GCM would then meet one key and nonce with two plaintexts, which gives both away. Here
the nonce is a pseudorandom function of context and plaintext, so the same ones give the same bytes, and others another
nonce (two of them collide with probability 2^-96). This is the construction of SIV (Rogaway and Shrimpton 2006): the
nonce of AES-256-GCM is keyed BLAKE2b of context and plaintext. Of a long plaintext it is that of a universal hash of
it, as in AES-GCM-SIV, here GMAC under a key of its own, which is much faster and no less of a pseudorandom function.

`python -m benchmarks sealing` sets this against other ways. A long message takes about twice as long as under a nonce
from elsewhere, several times as long with SHA-256 in the place of GMAC, and some twenty times as long in the library's
own AES-GCM-SIV.
"""

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from tacit.core.errors import WireError

NONCE_BYTES, TAG_BYTES = 12, 16
SHORT = 4096
"""Plaintexts up to here are hashed as they are."""


class Sealing:
    """Seals and opens under one key."""

    __slots__ = ("_cipher", "_hash_key", "_nonce_key")

    def __init__(self, key: bytes) -> None:
        keys = hashlib.shake_256(b"tacit/v1/seal" + key).digest(96)
        self._cipher, self._hash_key, self._nonce_key = AESGCM(keys[:32]), AES(keys[32:64]), keys[64:]

    def nonce(self, plaintext: bytes | memoryview, context: bytes) -> bytes:
        """Returns the nonce under which the plaintext is sealed in its context."""
        # The lengths in front keep what would join to the same bytes apart, and short plaintexts from long ones.
        lengths = len(context).to_bytes(8) + len(plaintext).to_bytes(8)
        stands = plaintext if len(plaintext) <= SHORT else self._hashed(plaintext)
        joined = b"".join((lengths, context, stands))
        return hashlib.blake2b(joined, key=self._nonce_key, digest_size=NONCE_BYTES).digest()

    def _hashed(self, plaintext: bytes | memoryview) -> bytes:
        # GMAC is AES-GCM that only authenticates. Its nonce can stay the same, because nobody sees the tag.
        hashing = Cipher(self._hash_key, GCM(bytes(NONCE_BYTES))).encryptor()
        hashing.authenticate_additional_data(plaintext)
        hashing.finalize()
        return hashing.tag

    def seal(self, plaintext: bytes | memoryview, context: bytes) -> bytes:
        """Returns nonce, ciphertext and tag."""
        nonce = self.nonce(plaintext, context)
        return nonce + self._cipher.encrypt(nonce, plaintext, context)

    def open(self, sealed: bytes | memoryview, context: bytes) -> bytes:
        """Returns the plaintext, or raises WireError if key, context or a single bit is not the sender's."""
        view = memoryview(sealed)
        try:
            return self._cipher.decrypt(bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):  # ValueError: too short for a nonce
            raise WireError("sealed bytes are not authentic") from None
