"""Round numbers: their range, and how far the claims of other parties may advance a party.

A number is used once. So a party that is behind continues at the number of the other parties. But a malicious party
must not be able to use up all numbers by claiming a high one.
"""

from collections.abc import Sequence
from statistics import median_low
from typing import Annotated

import msgspec

MOST = 1 << 48
"""Exclusive upper bound of round numbers. It fits every format that stores one."""
AHEAD = 1 << 24
"""Most rounds by which a party may be behind the others."""

RoundNumber = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]


def estimate_progress(said: Sequence[int], leeway: int = 0) -> int:
    """Returns the round that others have reached: the highest claim, but at most `leeway` above the median.

    It is the lower median: of two parties, a malicious one must not move us to a round that nobody else has reached.
    """
    return min(max(said), median_low(said) + leeway)


def in_reach(own: int, number: int) -> bool:
    """Returns whether a party may advance from its own number to another."""
    return number <= own + AHEAD and number < MOST
