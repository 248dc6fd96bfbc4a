"""Identity file whose secret keys are encrypted with a passphrase."""

from typing import ClassVar

from tacit.core.config_file import Section
from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, WireError
from tacit.core.link import frame_parts
from tacit.core.suite import Party, Secret
from tacit.crypto.passphrase_sealing import (
    COST,
    NONCE_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    open_with_passphrase,
    seal_under_passphrase,
)

LEAST_COST, MOST_COST = 14, 20
"""Costs of files that are read. The highest takes 1 GiB."""
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
        sealed = seal_under_passphrase(content, passphrase, salt, nonce, _context(name, cost), cost)
        return cls(name=name, cost=cost, salt=salt, nonce=nonce, sealed=sealed)

    def problems(self) -> list[str]:
        """Returns the problem of a file that was not made by `seal`."""
        sizes = len(self.salt) == SALT_BYTES, len(self.nonce) == NONCE_BYTES, TAG_BYTES < len(self.sealed) <= MAX_SEALED
        return [] if all(sizes) and LEAST_COST <= self.cost <= MOST_COST else ["it was changed"]

    def open(self, passphrase: Secret, path: str) -> bytes:
        """Returns the content; raises ConfigError, which names the file, if the passphrase is another one."""
        try:
            context = _context(self.name, self.cost)
            return open_with_passphrase(self.sealed, passphrase, self.salt, self.nonce, context, self.cost)
        except WireError:
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


def _context(name: Party, cost: int) -> bytes:
    return frame_parts(b"tacit/v1/identity", name.encode(), cost.to_bytes(1))
