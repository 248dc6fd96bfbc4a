"""Deterministic authenticated encryption that is safe across restarts: the nonce is derived from the plaintext.

A party that is restored after a crash sends its messages again. If it was restored incorrectly, it may send different
ones. With a counter or a repeated stream, AES-GCM would then use one key and nonce for two plaintexts, which exposes
both. Here the nonce is a pseudorandom function of context and plaintext. Equal inputs give equal bytes, and different
inputs give different nonces (two collide with probability 2^-96). This is the SIV construction (Rogaway and Shrimpton
2006): the nonce of AES-256-GCM is keyed BLAKE2b of context and plaintext. A long plaintext is first hashed by a
universal hash, as in AES-GCM-SIV. The hash is GMAC under a separate key, which is much faster, and the result is still
a pseudorandom function.

A message longer than one piece is sealed piece by piece, as in STREAM (Hoang, Reyhanitabar, Rogaway and Vizár 2015). So
no copy is needed, and each piece is authenticated before it is used. The key of the pieces is derived from the nonce,
the context and the total length; the nonce of a piece is its number.

`python -m benchmarks sealing` compares alternatives. Sealing a long message takes about twice as long as with a nonce
from outside, but SHA-256 instead of GMAC takes several times as long, and the library's AES-GCM-SIV twenty times.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from tacit.core.errors import WireError
from tacit.core.messages import PIECE
from tacit.core.suite import Buffer

NONCE_BYTES, TAG_BYTES = 12, 16
SHORT = 4096
"""Longest plaintext, in bytes, that BLAKE2b hashes directly, without GMAC."""
LEFT = 64
"""Bytes at the end of a sealed message that opening in place leaves unchanged."""
ALIGNED = 16
"""Alignment, in bytes, of the end of a long plaintext."""


def gmac(key: bytes, parts: Iterable[Buffer]) -> bytes:
    """Returns a 16-byte universal hash of some bytes under a key.

    GMAC is AES-GCM without a plaintext. Its nonce is constant here, so the tag must stay secret.
    """
    hashing = Cipher(AES(key), GCM(bytes(NONCE_BYTES))).encryptor()
    for part in parts:
        hashing.authenticate_additional_data(part)
    hashing.finalize()
    return hashing.tag


class Sealing:
    """Authenticated encryption and decryption under one key."""

    __slots__ = ("_cipher", "_hash_key", "_nonce_key")

    def __init__(self, key: bytes) -> None:
        keys = hashlib.shake_256(b"tacit/v1/seal" + key).digest(96)
        self._cipher, self._hash_key, self._nonce_key = AESGCM(keys[:32]), keys[32:64], keys[64:]

    def nonce(self, plaintext: Sequence[Buffer], context: bytes) -> bytes:
        """Returns the nonce for a plaintext, in one or more parts, and its context."""
        length = sum(map(len, plaintext))
        # The lengths make the encoding injective, and keep short and long plaintexts apart.
        lengths = len(context).to_bytes(8) + length.to_bytes(8)
        hashed = plaintext if length <= SHORT else (gmac(self._hash_key, plaintext),)
        joined = b"".join((lengths, context, *hashed))
        return hashlib.blake2b(joined, key=self._nonce_key, digest_size=NONCE_BYTES).digest()

    def _piecewise(self, nonce: bytes, length: int, context: bytes) -> AESGCM:
        """Returns the cipher for the pieces of one long plaintext."""
        label = b"".join((b"pieces", nonce, length.to_bytes(8), context))
        return AESGCM(hashlib.blake2b(label, key=self._nonce_key, digest_size=32).digest())

    def seal(self, plaintext: Buffer, context: bytes) -> bytes:
        """Returns nonce, ciphertext and tag; for a long plaintext, the nonce, then ciphertext and tag of each piece."""
        return b"".join(self.pieces((plaintext,), context))

    def pieces(self, plaintext: Sequence[Buffer], context: bytes) -> Iterator[bytes]:
        """Yields the bytes of `seal` piece by piece, for a plaintext that is given in parts."""
        nonce, length = self.nonce(plaintext, context), sum(map(len, plaintext))
        yield nonce
        if length <= PIECE:
            yield self._cipher.encrypt(nonce, plaintext[0] if len(plaintext) == 1 else b"".join(plaintext), context)
            return
        cipher = self._piecewise(nonce, length, context)
        for number, piece in enumerate(_split_pieces(plaintext)):
            yield cipher.encrypt(number.to_bytes(NONCE_BYTES), piece, None)

    def open(self, sealed: Buffer, context: bytes) -> Buffer:
        """Returns the plaintext; raises WireError if the key, the context or any bit is wrong.

        If the sealed bytes are writable, a long plaintext overwrites them, except for the last `LEFT` bytes.
        """
        view = memoryview(sealed)
        nonce, rest = bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:]
        try:
            if len(rest) <= PIECE + TAG_BYTES:
                return self._cipher.decrypt(nonce, rest, context)
            return self._open_pieces(nonce, rest, context)
        except (InvalidTag, ValueError):  # ValueError: too short to hold a nonce or a tag
            raise WireError("sealed bytes are not authentic") from None

    def _open_pieces(self, nonce: bytes, sealed: memoryview, context: bytes) -> memoryview:
        count = -(-len(sealed) // (PIECE + TAG_BYTES))
        length = len(sealed) - count * TAG_BYTES
        cipher = self._piecewise(nonce, length, context)
        spent = not sealed.readonly and (count - 1) * TAG_BYTES >= LEFT
        memory = sealed if spent else np.empty(length + ALIGNED, np.uint8).data
        # A long message ends with a vector, and reading an aligned vector is faster.
        start = -(np.frombuffer(memory, np.uint8).ctypes.data + length) % ALIGNED
        plaintext = memory[start : start + length]
        scratch = memoryview(bytearray(PIECE if spent else 0))
        for number in range(count):
            piece = sealed[number * (PIECE + TAG_BYTES) : (number + 1) * (PIECE + TAG_BYTES)]
            place = plaintext[number * PIECE : number * PIECE + len(piece) - TAG_BYTES]
            clear = scratch[: len(place)] if spent else place
            cipher.decrypt_into(number.to_bytes(NONCE_BYTES), piece, None, clear)
            if spent:
                place[:] = clear  # overwrites only pieces that are already opened
        return plaintext if spent else plaintext.toreadonly()


def _split_pieces(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yields the concatenation of the parts as pieces. Copies only where a piece spans several parts."""
    waiting: list[Buffer] = []
    free = PIECE
    for part in parts:
        view = memoryview(part)
        while len(view) >= free:
            waiting.append(view[:free])
            view = view[free:]
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, free = [], PIECE
        if len(view):
            waiting.append(view)
            free -= len(view)
    if waiting:
        yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
