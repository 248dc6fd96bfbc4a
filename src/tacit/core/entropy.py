"""The only source of randomness: the operating system's, or a stream that follows from a seed.

Every round of a party samples from its own stream, with a fresh 32-byte seed for each round. So a round can be replayed
byte for byte after a restart, and rounds are independent. Protocol code samples through `Entropy` only. The `Suite`
samples key material from a separate stream: a symbolic run has no keys, and must make the same choices.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
SEED_BYTES = 32


class Entropy(ABC):
    """Samples bytes, subsets and numbers. Methods whose results are secret in an audit are named `secret_…`."""

    @abstractmethod
    def bytes(self, count: int) -> bytes:
        """Returns that many uniform bytes."""

    def below(self, bound: int) -> int:
        """Returns a uniform integer in [0, bound), without the bias of a plain remainder."""
        size = (bound.bit_length() + 7) // 8
        limit = 256**size - 256**size % bound
        while (value := int.from_bytes(self.bytes(size))) >= limit:
            pass
        return value % bound

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Returns `count` of the items, drawn without replacement, in the order they were given."""
        if not 0 <= count <= len(items):
            raise ValueError(f"cannot draw {count} of {len(items)}")
        places = list(range(len(items)))
        for i in range(count):
            j = i + self.below(len(places) - i)
            places[i], places[j] = places[j], places[i]
        return [items[place] for place in sorted(places[:count])]

    def unit(self) -> float:
        """Returns a number uniform in [0, 1), which audits treat as public."""
        return (int.from_bytes(self.bytes(8)) >> 11) * 2.0**-53

    def secret_factor(self, name: str = "factor") -> float:
        """Returns a secret factor for vectors, uniform in [0, 1), by a name for `Terms.known_draws`.

        Audits cannot treat it as an unknown.
        """
        del name
        return self.unit()

    def secret_number(self, name: str, sampler: Callable[["Entropy"], float]) -> Any:
        """Returns a secret number from a sampler. The name states its purpose and appears in audits."""
        del name
        return sampler(self)

    def secret_vector(self, name: str, length: int) -> NDArray[Any]:
        """Returns a secret vector uniform in [0, 1). It takes the same number of bytes at any length."""
        del name
        words = np.frombuffer(hashlib.shake_256(self.bytes(SEED_BYTES)).digest(8 * length), dtype="<u8")
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class SystemEntropy(Entropy):
    """Randomness of the operating system."""

    def bytes(self, count: int) -> bytes:
        """Returns that many uniform bytes."""
        return os.urandom(count)


class SeededEntropy(Entropy):
    """A repeatable stream: SHAKE-256 of a seed and a path of names, one stream per path."""

    def __init__(self, *path: int | str | bytes) -> None:
        # Each part is hashed on its own so that ("a", "bc") and ("ab", "c") are different streams.
        self._seed = b"".join(hashlib.sha256(repr(part).encode()).digest() for part in path)
        self._block = 0
        self._left = b""

    def substream(self, name: str) -> "SeededEntropy":
        """Returns a separate stream for one purpose, without advancing this one."""
        child = SeededEntropy(name)
        child._seed = self._seed + child._seed
        return child

    def bytes(self, count: int) -> bytes:
        """Returns that many bytes of the stream."""
        while len(self._left) < count:
            size = max(1024, count)
            block = hashlib.shake_256(self._seed + self._block.to_bytes(8)).digest(size)
            self._left, self._block = self._left + block, self._block + 1
        drawn, self._left = self._left[:count], self._left[count:]
        return drawn


class RecordingEntropy(SeededEntropy):
    """Records the secret vectors it returned, so that an audit can show what their owner could compute."""

    def __init__(self, *path: int | str | bytes) -> None:
        super().__init__(*path)
        self.recorded: list[NDArray[Any]] = []

    def secret_number(self, name: str, sampler: Callable[[Entropy], float]) -> Any:
        """Returns a secret number from a sampler."""
        self.recorded.append(np.array([super().secret_number(name, sampler)]))
        return self.recorded[-1][0]

    def secret_vector(self, name: str, length: int) -> NDArray[Any]:
        """Returns a secret vector uniform in [0, 1)."""
        self.recorded.append(super().secret_vector(name, length))
        return self.recorded[-1]
