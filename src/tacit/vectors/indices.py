"""Sets of positions as bytes."""

from collections.abc import Iterable

import numpy as np

from tacit.core.errors import WireError


def to_bitmap(positions: Iterable[int], universe: int) -> bytes:
    """Returns a set of positions below `universe` as one bit each."""
    bits = np.zeros(universe, dtype=np.uint8)
    bits[list(positions)] = 1
    return np.packbits(bits).tobytes()


def from_bitmap(data: bytes, universe: int) -> list[int]:
    """Returns the positions, ascending; raises WireError unless the bytes are the only ones that mean this set."""
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if len(data) != (universe + 7) // 8 or bits[universe:].any():
        raise WireError(f"not a set of positions below {universe}")
    places: list[int] = np.flatnonzero(bits).tolist()
    return places
