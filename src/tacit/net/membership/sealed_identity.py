"""Identity file that is encrypted with a passphrase.

scrypt derives a key from the passphrase, under which AES-256-GCM seals the secret keys. scrypt runs
with r = 8, p = 1 and n = 2^17, which takes 128 MiB and a few tenths of a second.
"""

from typing import ClassVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tacit.core.config_file import Section
from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError
from tacit.core.link import frame_parts
from tacit.core.suite import Party, Secret

COST = 17
"""Binary logarithm of scrypt's n for new files."""
LEAST_COST, MOST_COST = 14, 20
"""Costs of files that are read. The highest takes 1 GiB."""
SALT_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
MAX_SEALED = 1 << 14


class SealedIdentity(Section, frozen=True, kw_only=True):
    """Content of an encrypted identity file. The name and the cost are authenticated, and not secret."""

    secret: ClassVar[bool] = True

    name: Party
    cost: int
    salt: bytes
    nonce: bytes
    sealed: bytes

    @classmethod
    def seal(
        cls, name: Party, content: bytes, passphrase: Secret, entropy: Entropy, cost: int = COST
    ) -> "SealedIdentity":
        """Encrypts the content of an identity file."""
        salt, nonce = entropy.bytes(SALT_BYTES), entropy.bytes(NONCE_BYTES)
        sealed = AESGCM(_derive_key(passphrase, salt, cost)).encrypt(nonce, content, _context(name, cost))
        return cls(name=name, cost=cost, salt=salt, nonce=nonce, sealed=sealed)

    def problems(self) -> list[str]:
        """Returns the problem of a file that was not made by `seal`."""
        sizes = len(self.salt) == SALT_BYTES, len(self.nonce) == NONCE_BYTES, 16 < len(self.sealed) <= MAX_SEALED
        return [] if all(sizes) and LEAST_COST <= self.cost <= MOST_COST else ["it was changed"]

    def open(self, passphrase: Secret, path: str) -> bytes:
        """Returns the content; raises ConfigError, which names the file, if the passphrase is another one."""
        try:
            key = _derive_key(passphrase, self.salt, self.cost)
            return AESGCM(key).decrypt(self.nonce, self.sealed, _context(self.name, self.cost))
        except InvalidTag:
            raise ConfigError(
                f"{path} cannot be decrypted: the passphrase is wrong, or the file was changed; try: give its own "
                f"passphrase, or restore the file from a copy"
            ) from None
        except MemoryError:
            raise ConfigError(
                f"{path} needs {1 << (self.cost - 10)} MiB to be decrypted; try: allow more memory"
            ) from None

    def __repr__(self) -> str:
        return f"SealedIdentity({self.name!r}, …)"


def _derive_key(passphrase: Secret, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt, KEY_BYTES, n=1 << cost, r=8, p=1).derive(passphrase.reveal())


def _context(name: Party, cost: int) -> bytes:
    return frame_parts(b"tacit/v1/identity", name.encode(), cost.to_bytes(1))
