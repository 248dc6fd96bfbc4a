"""Encryption under a passphrase: scrypt derives a key from it, under which AES-256-GCM seals some bytes.

scrypt runs with r = 8, p = 1 and by default n = 2^17, which takes 128 MiB and a few tenths of a second.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tacit.core.errors import WireError
from tacit.core.suite import Secret

COST = 17
"""Binary logarithm of scrypt's n."""
SALT_BYTES, NONCE_BYTES, TAG_BYTES, KEY_BYTES = 16, 12, 16, 32


def seal_under_passphrase(
    content: bytes, passphrase: Secret, salt: bytes, nonce: bytes, context: bytes, cost: int = COST
) -> bytes:
    """Encrypts some bytes. The salt must be new, because the key depends on it; the context is authenticated."""
    return AESGCM(_derive_key(passphrase, salt, cost)).encrypt(nonce, content, context)


def open_with_passphrase(
    sealed: bytes, passphrase: Secret, salt: bytes, nonce: bytes, context: bytes, cost: int = COST
) -> bytes:
    """Decrypts some bytes; raises WireError for another passphrase or changed bytes."""
    try:
        return AESGCM(_derive_key(passphrase, salt, cost)).decrypt(nonce, sealed, context)
    except InvalidTag:
        raise WireError("it cannot be decrypted") from None


def _derive_key(passphrase: Secret, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt, KEY_BYTES, n=1 << cost, r=8, p=1).derive(passphrase.reveal())
