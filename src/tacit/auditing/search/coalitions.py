"""Who may put their heads together: every so many parties and, if there is one, the server with one party fewer."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from tacit.auditing.scope import Scope, is_count
from tacit.auditing.search.orbits import Kind, orbits
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.protocol import Protocol
from tacit.core.suite import SERVER, Party

SAMPLE = 64
"""Coalitions that are drawn where there are too many."""


def coalitions(protocol: Protocol, parties: Sequence[Party], size: int) -> Iterator[tuple[Party, ...]]:
    """Yields every coalition of a size, those with the server first."""
    if protocol.server is not None:
        yield from ((SERVER, *members) for members in combinations(parties, size - 1))
    if size < len(parties):
        yield from combinations(parties, size)


def number(protocol: Protocol, parties: Sequence[Party], size: int) -> int:
    """Returns how many there are."""
    n = len(parties)
    return (math.comb(n, size - 1) if protocol.server is not None else 0) + (math.comb(n, size) if size < n else 0)


def some(protocol: Protocol, parties: Sequence[Party], size: int, most: int) -> list[tuple[Party, ...]]:
    """Returns all coalitions of a size, or that many at random, every other one with the server, if there are more."""
    if number(protocol, parties, size) <= most:
        return list(coalitions(protocol, parties, size))
    entropy = SeededEntropy("coalitions", len(parties), size)
    drawn: dict[tuple[Party, ...], None] = {}
    for turn in range(100 * most):
        server = (SERVER,) if protocol.server is not None and turn % 2 == 0 else ()
        drawn[(*server, *entropy.sample(parties, size - len(server)))] = None
    return list(islice(drawn, most))


def chosen(scope: Scope, size: int, most: int) -> tuple[list[Kind], int]:
    """Returns the coalitions of a size to look at, and how many there are: one of each kind, or some at random.

    If there are more kinds than `most`, no number of them is all, and a few dozen say as much as a thousand.
    """
    total = number(scope.protocol, scope.parties, size)
    kinds = orbits(scope, size, most)
    if kinds is None:
        kinds = [Kind(members, 1) for members in some(scope.protocol, scope.parties, size, min(most, SAMPLE))]
    return kinds, total


def of_size(
    protocol: Protocol, parties: Sequence[Party], size: int, coalition: Sequence[Party] | None = None
) -> list[tuple[Party, ...]]:
    """Returns every coalition of a size, the server among them where there is one.

    Raises ConfigError if there is none, or one was named besides.
    """
    if coalition is not None:
        raise ConfigError("coalition names one, and coalition_size is for all of a size; give one of the two")
    if not is_count(size) or size >= len(parties):
        raise ConfigError(f"coalition_size must be from 1 to {len(parties) - 1}, not {size!r}: somebody must be left")
    return list(coalitions(protocol, parties, size))
