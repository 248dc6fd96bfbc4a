"""Writes masks.json: the first bytes of some mask streams, by encrypting one counter block after the other.

Shares no code with tacit. Run from anywhere: python tests/crypto/vectors/write_masks.py
"""

import json
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

KEYS = {
    "zero": bytes(32),
    "ones": b"\xff" * 32,
    "counting": bytes(range(32)),
    "last_bit": bytes(31) + b"\x01",
}


def stream(key: bytes, blocks: int) -> bytes:
    block_cipher = Cipher(AES(key), ECB()).encryptor()  # noqa: S305, each block is a different counter
    return b"".join(block_cipher.update(bytes(12) + number.to_bytes(4, "big")) for number in range(2, 2 + blocks))


def cases() -> list[dict[str, str]]:
    return [{"name": name, "key": key.hex(), "stream": stream(key, 5).hex()} for name, key in KEYS.items()]


if __name__ == "__main__":
    Path(__file__).with_name("masks.json").write_text(json.dumps(cases(), indent=1) + "\n")
