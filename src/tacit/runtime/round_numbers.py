"""Numbers of rounds: how many there are, and how far the word of others may move somebody.

A number is used once, so that whoever is behind goes on where the others are. One that lies about where it is must not
use up all numbers that there are.
"""

from collections.abc import Sequence
from statistics import median_low
from typing import Annotated

import msgspec

MOST = 1 << 48
"""More than there will ever be, and no more than fits wherever they are written."""
AHEAD = 1 << 24
"""Rounds that one may be behind the others."""

RoundNumber = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]


def reached(said: Sequence[int], leeway: int = 0) -> int:
    """Returns how far others are: where most are, or the furthest that any is, at most `leeway` beyond that.

    Of two that say different things it is the lower: one that lies must not move us to where nobody else is.
    """
    return min(max(said), median_low(said) + leeway)


def in_reach(own: int, number: int) -> bool:
    """Says whether somebody may be moved to a number from its own."""
    return number <= own + AHEAD and number < MOST
