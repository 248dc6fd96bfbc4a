"""Noise on the gradients of a party in a round, from a cryptographic stream.

The stream follows from a secret key, the party, the round, the step **and the gradient itself**. So a round that is
repeated after a crash has the same noise, and another gradient never has it: the difference of two releases with one
noise would be the difference of the gradients.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.privacy import noisy_on_grid

NOISE_KEY_BYTES = 32
"""Length of the key that noise follows from."""


class GradientNoise:
    """Noise of one party in one round, for one step after the other."""

    def __init__(self, key: bytes, party: int, round_: int, sigma: float) -> None:
        self._path, self._sigma, self._step = (key, "gradient noise", party, round_), sigma, 0

    def add_to(self, gradient: NDArray[Any]) -> None:
        """Adds the noise of the next step to a gradient, in place."""
        entropy = SeededEntropy(*self._path, self._step, digest_contribution(gradient))
        self._step += 1
        if np.isfinite(gradient).all():  # otherwise the party is excluded, and releases nothing
            gradient[...] = noisy_on_grid(gradient, self._sigma, entropy)


def digest_contribution(vector: NDArray[Any]) -> bytes:
    """Returns the digest of a vector, which its noise follows from besides the key."""
    return hashlib.sha256(np.ascontiguousarray(vector).view(np.uint8).data).digest()
