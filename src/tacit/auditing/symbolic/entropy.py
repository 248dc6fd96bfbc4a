"""Entropy of symbolic runs: public choices are concrete numbers, and secret vectors are unknowns."""

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.symbolic.forms import INPUT, PLAIN, unknowns
from tacit.core.entropy import SEED_BYTES, Entropy, SeededEntropy
from tacit.core.suite import Party

UNIFORM = math.sqrt(1 / 12)
"""Standard deviation of a uniform number in an interval of length 1, such as an entry of a secret vector or a rounding
error."""
SAMPLES = 64
"""Number of samples from which the standard deviation of any other secret number is estimated."""
TAKEN = (INPUT, PLAIN, "mask", "ratio", "one")
"""Kinds of unknowns that are reserved: they are not secret numbers, whatever names a protocol uses."""


class SymbolicEntropy(SeededEntropy):
    """Entropy of one party in one round, with the same draws as in a real run with the same seed."""

    def __init__(self, owner: Party, round_: int, seed: bytes, known: Collection[str] = ()) -> None:
        """Takes the owner, the round, the seed, and the names of secret numbers that count as known to everybody."""
        super().__init__(seed)
        self._known = known
        self._owner, self._round, self._drawn = owner, round_, 0
        self.factors = 0
        """Number of secret factors that were drawn and do not count as known. They are numbers here, because the
        product of two unknowns is not linear."""

    def secret_factor(self, name: str = "factor") -> float:
        """Returns the number that a real run draws."""
        self.factors += name not in self._known
        return self.unit()

    def secret_number(self, name: str, sampler: Callable[[Entropy], float]) -> Any:
        """Returns a fresh unknown; the number itself if it counts as known, or has only one possible value."""
        drawn = sampler(self)  # The number is drawn in any case, so that later draws are the same as in a real run.
        if name in self._known:
            return self._nothing(drawn)
        spread = float(np.std([sampler(SeededEntropy("spread", each)) for each in range(SAMPLES)]))
        return self._fresh(name, 1, spread)[0] if spread else self._nothing(drawn)

    def secret_vector(self, name: str, length: int) -> NDArray[Any]:
        """Returns a vector of fresh unknowns."""
        self.bytes(SEED_BYTES)
        return self._fresh(name, length)

    def _nothing(self, drawn: float) -> float:
        self._drawn += 1
        return drawn

    def _fresh(self, name: str, length: int, spread: float = UNIFORM) -> NDArray[Any]:
        self._drawn += 1
        kind = f"drawn {name}" if name in TAKEN else name
        return unknowns(kind, (self._owner, self._round, self._drawn, spread), length)
