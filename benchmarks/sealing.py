"""Sealing with a nonce that is derived from the content, compared with other protections against repeated nonces.

The baseline is AES-256-GCM with a given nonce, which is the least possible cost and not safe by itself. The other ways
are measured too, so that the choice can be checked on any machine.
"""

import hashlib
from collections.abc import Iterator

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV

from benchmarks.measure import Row, Work, side_by_side, timed_row
from tacit.crypto.sealing import Sealing

KEY, NONCE, CONTEXT = bytes(range(32)), bytes(12), b"x" * 90


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the cost of each way, for a short message and for vectors."""
    repeats = 3 if quick else 15
    for size in (200, 40_000) if quick else (200, 4_000, 400_000, 4_000_000):
        plaintext = bytes(size)
        for name, work in _ways(plaintext).items():
            pair = side_by_side(work, _plain(plaintext), repeats)
            yield timed_row(f"sealing {size:,} bytes, {name}, against AES-GCM under a given nonce", pair)


def _plain(plaintext: bytes) -> Work:
    cipher = AESGCM(KEY)
    return lambda: cipher.encrypt(NONCE, plaintext, CONTEXT)


def _ways(plaintext: bytes) -> dict[str, Work]:
    ours, cipher, misuse_resistant = Sealing(KEY), AESGCM(KEY), AESGCMSIV(KEY)

    def hashed() -> bytes:
        nonce = hashlib.sha256(CONTEXT + plaintext).digest()[:12]
        return cipher.encrypt(nonce, plaintext, CONTEXT)

    return {
        "nonce by GMAC and BLAKE2b (ours)": lambda: ours.seal(plaintext, CONTEXT),
        "nonce by SHA-256": hashed,
        "AES-GCM-SIV of the library": lambda: misuse_resistant.encrypt(NONCE, plaintext, CONTEXT),
    }
