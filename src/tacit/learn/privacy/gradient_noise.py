"""Noise on the gradients of a party in a round, from a cryptographic stream.

The stream is derived from a secret key, the party, the round, the step **and the gradient itself**. So a round that is
repeated after a crash has the same noise, and a different gradient always has different noise. Otherwise the difference
of two releases with the same noise would be the difference of the gradients.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.privacy import noisy_on_grid

NOISE_KEY_BYTES = 32
"""Length of the key from which noise is derived."""


class GradientNoise:
    """Noise of one party in one round, step by step."""

    def __init__(self, key: bytes, party: int, round_: int, sigma: float) -> None:
        self._path, self._sigma, self._step = (key, "gradient noise", party, round_), sigma, 0

    def add_to(self, gradient: NDArray[Any]) -> None:
        """Adds the noise of the next step to a gradient, in place."""
        entropy = SeededEntropy(*self._path, self._step, digest_contribution(gradient))
        self._step += 1
        if np.isfinite(gradient).all():  # Otherwise the party is excluded, and releases nothing.
            gradient[...] = noisy_on_grid(gradient, self._sigma, entropy)


def digest_contribution(vector: NDArray[Any]) -> bytes:
    """Returns the digest of a vector. Its noise is derived from the key and this digest."""
    return hashlib.sha256(np.ascontiguousarray(vector).view(np.uint8).data).digest()
