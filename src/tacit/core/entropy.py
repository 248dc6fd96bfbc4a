"""The only source of randomness: the operating system, or a stream derived from a seed.

Each round of a party samples from its own stream, with a fresh 32-byte seed. So rounds are independent, and a restarted
party can replay a round byte for byte. Protocol code samples through `Entropy` only. The `Suite` samples key material
from a separate stream: a symbolic run has no keys, and still has to make the same choices as a real run.
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
    """Source of random bytes, subsets and numbers. Audits treat results of methods named `secret_…` as secret."""

    @abstractmethod
    def bytes(self, count: int) -> bytes:
        """Returns `count` uniform bytes."""

    def below(self, bound: int) -> int:
        """Returns a uniform integer in [0, bound), by rejection sampling, which has no modulo bias."""
        size = (bound.bit_length() + 7) // 8
        limit = 256**size - 256**size % bound
        while (value := int.from_bytes(self.bytes(size))) >= limit:
            pass
        return value % bound

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Returns `count` of the items, sampled without replacement, in their original order."""
        if not 0 <= count <= len(items):
            raise ValueError(f"cannot draw {count} of {len(items)}")
        places = list(range(len(items)))
        for i in range(count):
            j = i + self.below(len(places) - i)
            places[i], places[j] = places[j], places[i]
        return [items[place] for place in sorted(places[:count])]

    def unit(self) -> float:
        """Returns a uniform number in [0, 1). Audits treat it as public."""
        return (int.from_bytes(self.bytes(8)) >> 11) * 2.0**-53

    def secret_factor(self, name: str = "factor") -> float:
        """Returns a secret factor for vectors, uniform in [0, 1).

        An audit cannot treat a secret factor as an unknown, because the product of two unknowns is not linear. The
        protocol lists its `name` in `Terms.known_draws`, so that audits treat the factor as public.
        """
        del name
        return self.unit()

    def secret_number(self, name: str, sampler: Callable[["Entropy"], float]) -> Any:
        """Returns a secret number from a sampler. The name states its purpose and appears in audits."""
        del name
        return sampler(self)

    def secret_vector(self, name: str, length: int) -> NDArray[Any]:
        """Returns a secret vector, uniform in [0, 1). It consumes the same number of bytes at every length."""
        del name
        words = np.frombuffer(hashlib.shake_256(self.bytes(SEED_BYTES)).digest(8 * length), dtype="<u8")
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class SystemEntropy(Entropy):
    """Randomness of the operating system."""

    def bytes(self, count: int) -> bytes:
        """Returns `count` uniform bytes."""
        return os.urandom(count)


class SeededEntropy(Entropy):
    """A repeatable stream: SHAKE-256 of a seed, which is a path of names. Each path has its own stream."""

    def __init__(self, *path: int | str | bytes) -> None:
        # Each part is hashed separately, so that the paths ("a", "bc") and ("ab", "c") have different streams.
        self._seed = b"".join(hashlib.sha256(repr(part).encode()).digest() for part in path)
        self._block = 0
        self._left = b""

    def substream(self, name: str) -> "SeededEntropy":
        """Returns an independent stream for one purpose, without advancing this one."""
        child = SeededEntropy(name)
        child._seed = self._seed + child._seed
        return child

    def bytes(self, count: int) -> bytes:
        """Returns the next `count` bytes of the stream."""
        while len(self._left) < count:
            size = max(1024, count)
            block = hashlib.shake_256(self._seed + self._block.to_bytes(8)).digest(size)
            self._left, self._block = self._left + block, self._block + 1
        drawn, self._left = self._left[:count], self._left[count:]
        return drawn


class RecordingEntropy(SeededEntropy):
    """Seeded stream that records the secret vectors it returned, so that an audit can use them as known values."""

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
