"""Sealing that survives whatever a restart does: the nonce follows from what is sealed.

A party that is rebuilt after a crash says its messages again. If it is rebuilt wrongly it may say others, and under a
counter or a repeated stream AES-GCM would then meet one key and nonce with two plaintexts, which gives both away. Here
the nonce is a pseudorandom function of context and plaintext, so the same ones give the same bytes, and others another
nonce (two of them collide with probability 2^-96). This is the construction of SIV (Rogaway and Shrimpton 2006): the
nonce of AES-256-GCM is keyed BLAKE2b of context and plaintext. Of a long plaintext it is that of a universal hash of
it, as in AES-GCM-SIV, here GMAC under a key of its own, which is much faster and no less of a pseudorandom function.

What is longer than a piece is sealed piece by piece, so that nobody has to hold it twice, nor believe a piece before it
is known to be the sender's: under a key that follows from that nonce, the context and the length of it all, each with
its number for a nonce, as in STREAM (Hoang, Reyhanitabar, Rogaway and Vizár 2015).

`python -m benchmarks sealing` sets this against other ways. A long message takes about twice as long as under a nonce
from elsewhere, several times as long with SHA-256 in the place of GMAC, and some twenty times as long in the library's
own AES-GCM-SIV.
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
"""Plaintexts up to here are hashed as they are."""
LEFT = 64
"""Bytes at the end of what is sealed that are left as they are where it is opened in place."""
ALIGNED = 16
"""What the address of the end of a long plaintext is a multiple of."""


def gmac(key: bytes, parts: Iterable[Buffer]) -> bytes:
    """Returns 16 bytes that follow from a key and some bytes, and are others for others, for all who lack the key.

    GMAC is AES-GCM that only authenticates. Its nonce is always the same, so the tag is for nobody else to see.
    """
    hashing = Cipher(AES(key), GCM(bytes(NONCE_BYTES))).encryptor()
    for part in parts:
        hashing.authenticate_additional_data(part)
    hashing.finalize()
    return hashing.tag


class Sealing:
    """Seals and opens under one key."""

    __slots__ = ("_cipher", "_hash_key", "_nonce_key")

    def __init__(self, key: bytes) -> None:
        keys = hashlib.shake_256(b"tacit/v1/seal" + key).digest(96)
        self._cipher, self._hash_key, self._nonce_key = AESGCM(keys[:32]), keys[32:64], keys[64:]

    def nonce(self, plaintext: Sequence[Buffer], context: bytes) -> bytes:
        """Returns the nonce under which a plaintext, in one or more parts, is sealed in its context."""
        length = sum(map(len, plaintext))
        # The lengths in front keep what would join to the same bytes apart, and short plaintexts from long ones.
        lengths = len(context).to_bytes(8) + length.to_bytes(8)
        stands = plaintext if length <= SHORT else (gmac(self._hash_key, plaintext),)
        joined = b"".join((lengths, context, *stands))
        return hashlib.blake2b(joined, key=self._nonce_key, digest_size=NONCE_BYTES).digest()

    def _piecewise(self, nonce: bytes, length: int, context: bytes) -> AESGCM:
        """Returns what seals the pieces of a long plaintext, and of no other one."""
        said = b"".join((b"pieces", nonce, length.to_bytes(8), context))
        return AESGCM(hashlib.blake2b(said, key=self._nonce_key, digest_size=32).digest())

    def seal(self, plaintext: Buffer, context: bytes) -> bytes:
        """Returns nonce, ciphertext and tag; of a long plaintext, ciphertext and tag of each piece."""
        return b"".join(self.pieces((plaintext,), context))

    def pieces(self, plaintext: Sequence[Buffer], context: bytes) -> Iterator[bytes]:
        """Yields the same, of a plaintext in parts, piece by piece."""
        nonce, length = self.nonce(plaintext, context), sum(map(len, plaintext))
        yield nonce
        if length <= PIECE:
            yield self._cipher.encrypt(nonce, plaintext[0] if len(plaintext) == 1 else b"".join(plaintext), context)
            return
        cipher = self._piecewise(nonce, length, context)
        for number, piece in enumerate(_cut(plaintext)):
            yield cipher.encrypt(number.to_bytes(NONCE_BYTES), piece, None)

    def open(self, sealed: Buffer, context: bytes) -> Buffer:
        """Returns the plaintext, or raises WireError if key, context or a single bit is not the sender's.

        A long one is put in the place of what is sealed, if that may be written, but for its last `LEFT` bytes.
        """
        view = memoryview(sealed)
        nonce, rest = bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:]
        try:
            if len(rest) <= PIECE + TAG_BYTES:
                return self._cipher.decrypt(nonce, rest, context)
            return self._opened(nonce, rest, context)
        except (InvalidTag, ValueError):  # ValueError: too short for a nonce, or for a tag
            raise WireError("sealed bytes are not authentic") from None

    def _opened(self, nonce: bytes, sealed: memoryview, context: bytes) -> memoryview:
        count = -(-len(sealed) // (PIECE + TAG_BYTES))
        length = len(sealed) - count * TAG_BYTES
        cipher = self._piecewise(nonce, length, context)
        spent = not sealed.readonly and (count - 1) * TAG_BYTES >= LEFT
        room = sealed if spent else np.empty(length + ALIGNED, np.uint8).data
        # What is long is a vector at the end of a message, which is read faster where a number begins.
        start = -(np.frombuffer(room, np.uint8).ctypes.data + length) % ALIGNED
        plaintext = room[start : start + length]
        scratch = memoryview(bytearray(PIECE if spent else 0))
        for number in range(count):
            piece = sealed[number * (PIECE + TAG_BYTES) : (number + 1) * (PIECE + TAG_BYTES)]
            place = plaintext[number * PIECE : number * PIECE + len(piece) - TAG_BYTES]
            clear = scratch[: len(place)] if spent else place
            cipher.decrypt_into(number.to_bytes(NONCE_BYTES), piece, None, clear)
            if spent:
                place[:] = clear  # which reaches into what was just opened, and no further
        return plaintext if spent else plaintext.toreadonly()


def _cut(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yields parts, one behind the other, as pieces; without a copy, but where a piece is of several parts."""
    waiting: list[Buffer] = []
    room = PIECE
    for part in parts:
        view = memoryview(part)
        while len(view) >= room:
            waiting.append(view[:room])
            view = view[room:]
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, room = [], PIECE
        if len(view):
            waiting.append(view)
            room -= len(view)
    if waiting:
        yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
