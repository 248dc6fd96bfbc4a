"""The only source of randomness: the operating system in real runs, a seed in simulation, symbols in audits.

Protocol code draws through `Entropy` and nothing else, so that a run can be repeated byte for byte and replayed after a
restart. Key material, by contrast, is drawn by the `Suite`, from a stream apart: a symbolic run has no keys, and must
make the same choices all the same.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.forms import unknowns

T = TypeVar("T")
SEED_BYTES = 32


class Entropy(ABC):
    """Draws bytes, subsets and vectors."""

    @abstractmethod
    def bytes(self, count: int) -> bytes:
        """Returns that many uniform bytes."""

    def apart(self, name: str) -> "Entropy":
        """Returns a stream of its own for one purpose, which leaves this one as it is."""
        del name
        return self

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

    def number(self) -> float:
        """Returns a number uniform in [0, 1), known to its owner and no secret in audits."""
        return (int.from_bytes(self.bytes(8)) >> 11) * 2.0**-53

    def factor(self) -> float:
        """Returns a secret number uniform in [0, 1), to multiply vectors by. Audits cannot treat it as an unknown."""
        return self.number()

    def drawn(self, name: str, sampler: Callable[["Entropy"], float]) -> Any:
        """Returns a secret number drawn by a sampler. The name says what it is for and shows up in audits."""
        del name
        return sampler(self)

    def uniform(self, name: str, length: int) -> NDArray[Any]:
        """Returns a secret vector uniform in [0, 1). However long it is, it takes the same number of bytes."""
        del name
        words = np.frombuffer(hashlib.shake_256(self.bytes(SEED_BYTES)).digest(8 * length), dtype="<u8")
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class SystemEntropy(Entropy):
    """Randomness of the operating system."""

    def bytes(self, count: int) -> bytes:
        """Returns that many uniform bytes."""
        return os.urandom(count)


class SeededEntropy(Entropy):
    """A repeatable stream for simulation: SHAKE-256 of the seed and a path of names, one stream a path."""

    def __init__(self, *path: int | str | bytes) -> None:
        # Each part is hashed on its own so that ("a", "bc") and ("ab", "c") are different streams.
        self._seed = b"".join(hashlib.sha256(repr(part).encode()).digest() for part in path)
        self._block = 0
        self._left = b""

    def apart(self, name: str) -> "SeededEntropy":
        """Returns a stream of its own for one purpose, which leaves this one as it is."""
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
    """Remembers the secret vectors it gave, so that an audit can show what their owner could have done with them."""

    def __init__(self, *path: int | str | bytes) -> None:
        super().__init__(*path)
        self.drawn_vectors: list[NDArray[Any]] = []

    def drawn(self, name: str, sampler: Callable[[Entropy], float]) -> Any:
        """Returns a secret number drawn by a sampler."""
        self.drawn_vectors.append(np.array([super().drawn(name, sampler)]))
        return self.drawn_vectors[-1][0]

    def uniform(self, name: str, length: int) -> NDArray[Any]:
        """Returns a secret vector uniform in [0, 1)."""
        self.drawn_vectors.append(super().uniform(name, length))
        return self.drawn_vectors[-1]


class SymbolicEntropy(SeededEntropy):
    """For audits: public choices (who is sampled) stay concrete, secret vectors become unknowns."""

    def __init__(self, owner: str, *path: int | str | bytes) -> None:
        super().__init__(*path)
        self._owner, self._drawn = owner, 0
        self.factors = 0
        """How many secret factors were drawn. An unknown times an unknown is not linear, so they are numbers here."""

    def factor(self) -> float:
        """Returns the very number that a real run draws."""
        self.factors += 1
        return self.number()

    def drawn(self, name: str, sampler: Callable[[Entropy], float]) -> Any:
        """Returns a fresh unknown."""
        sampler(self)  # so that what is drawn next is the same as in a real run
        return self._fresh(name, 1)[0]

    def uniform(self, name: str, length: int) -> NDArray[Any]:
        """Returns a vector of fresh unknowns."""
        self.bytes(SEED_BYTES)
        return self._fresh(name, length)

    def _fresh(self, name: str, length: int) -> NDArray[Any]:
        self._drawn += 1
        return unknowns(name, (self._owner, self._drawn), length)
