"""Selection patterns: who selects an entry of a sparse vector.

At entries that the same parties select the same happens. So the positions of a symbolic run are patterns, and what a
model shows at its full length follows from how often each pattern occurs. Parties that a coalition's views treat alike
form a class. Of a class only the number of parties with each selection matters, which makes few patterns out of many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.linear import SMALL_PRIME
from tacit.core.entropy import SeededEntropy

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]


def spread_patterns(heard: Bools, count: int, seed: int) -> Bools:
    """Returns patterns to run on symbols, a column each: everybody, nobody, and the rest at every density.

    Each party hears every number of selecting parties in at least one of them.

    Args:
        heard: whose selections each party hears, a row for each.
        count: number of patterns, at least; there are more where some number would be missing.
        seed: seed of who selects.
    """
    parties = len(heard)
    entropy = SeededEntropy("patterns", seed, parties)
    density = np.linspace(1.0, 0.0, max(count, 2))
    density = density[[0, -1, *range(1, len(density) - 1)]]
    patterns = _draw_units(entropy, (parties, len(density))) < density
    numbers = heard.sum(axis=1)
    while missing := _missing_number(heard, patterns, numbers):
        party, number = missing
        column = _draw_units(entropy, (parties,)) < number / max(int(numbers[party]), 1)
        column[heard[party]] = False
        column[entropy.sample(np.flatnonzero(heard[party]).tolist(), number)] = True
        patterns = np.column_stack((patterns, column))
    return patterns


def _missing_number(heard: Bools, patterns: Bools, numbers: Ints) -> tuple[int, int] | None:
    """Returns the first party, and a number of selecting parties, that no pattern shows it."""
    seen = heard.astype(np.int64) @ patterns
    for party, most in enumerate(numbers.tolist()):
        absent = set(range(most + 1)) - set(seen[party].tolist())
        if absent:
            return party, min(absent)
    return None


def _draw_units(entropy: SeededEntropy, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Returns uniform numbers in [0, 1)."""
    words = np.frombuffer(entropy.bytes(4 * math.prod(shape)), dtype="<u4")
    return words.reshape(shape) / 2.0**32


@dataclass(frozen=True)
class WeighedPatterns:
    """Patterns over some rounds, each with how often it occurs."""

    selections: Bools
    """Who selects: by pattern, round and party."""
    weights: NDArray[np.float64]
    """Probability of each pattern, or the number of entries at which it occurs."""


def enumerate_patterns(
    classes: Sequence[Sequence[int]], probability: float, rounds: int, most: int
) -> WeighedPatterns | None:
    """Returns one pattern for all that differ only within classes, with their probability; None for more than `most`.

    Args:
        classes: the places of the parties of each class; all places from 0 on are in one.
        probability: probability with which each party selects the entry in each round, independently.
        rounds: number of rounds.
        most: largest number of patterns.
    """
    kinds = 2**rounds
    counts = [math.comb(len(members) + kinds - 1, kinds - 1) for members in classes]
    total = math.prod(counts)
    if total > most:
        return None
    chosen = np.array([number.bit_count() for number in range(kinds)])
    single = probability**chosen * (1 - probability) ** (rounds - chosen)
    numbers = np.unravel_index(np.arange(total), counts) if counts else ()
    weights, kind_of = np.ones(total), np.zeros((total, sum(map(len, classes))), dtype=np.int64)
    for members, number in zip(classes, numbers, strict=True):
        options = np.array(list(_compositions(len(members), kinds)))
        ways = np.array([_multinomial(option) for option in options.tolist()], dtype=np.float64)
        weights *= (ways * np.prod(single**options, axis=1))[number]
        filled = np.array([np.repeat(np.arange(kinds), option) for option in options])
        kind_of[:, members] = filled[number]
    return WeighedPatterns((kind_of[:, None, :] >> np.arange(rounds)[None, :, None]) & 1 == 1, weights)


def _compositions(total: int, parts: int) -> Iterator[list[int]]:
    """Yields every way to write a number as an ordered sum."""
    for bars in combinations(range(total + parts - 1), parts - 1):
        edges = (-1, *bars, total + parts - 1)
        yield [edges[i + 1] - edges[i] - 1 for i in range(parts)]


def _multinomial(counts: Sequence[int]) -> int:
    found, left = 1, sum(counts)
    for count in counts:
        found *= math.comb(left, count)
        left -= count
    return found


def sample_patterns(parties: int, probability: float, rounds: int, count: int, seed: int) -> WeighedPatterns:
    """Returns random patterns of equal weight, as they occur."""
    entropy = SeededEntropy("sampled patterns", seed, parties, rounds)
    return WeighedPatterns(
        _draw_units(entropy, (count, rounds, parties)) < probability, np.full(count, 1 / max(count, 1))
    )


def count_patterns(selected: Bools) -> WeighedPatterns:
    """Returns the patterns that occur in given selections of one round, each with the number of its entries."""
    packed = np.ascontiguousarray(np.packbits(selected, axis=0).T)
    codes = packed.view(np.dtype((np.void, max(packed.shape[1], 1)))).ravel() if packed.size else packed[:, :0].ravel()
    if not codes.size:
        return WeighedPatterns(np.zeros((1, 1, len(selected)), np.bool_), np.array([float(selected.shape[1])]))
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return WeighedPatterns(selected[:, first].T[:, None, :], counts.astype(np.float64))


def find_determined(rows: NDArray[np.integer]) -> Bools:
    """Returns which unknowns have their unit vectors in the span of the rows, system by system.

    Rows are eliminated modulo a prime. For zeros and ones that is exact for up to 22 rows: a determinant of n rows of
    these is at most (n + 1)^((n + 1) / 2) / 2^n (Hadamard), for n = 22 half the prime, so none but 0 is 0 modulo the
    prime. Otherwise, a wrong answer would take a determinant that happens to be divisible by it.
    """
    reduced = rows.astype(np.int64)
    system = np.arange(len(rows))
    for r in range(rows.shape[1]):
        row = reduced[:, r]
        lead = (row != 0).argmax(axis=1)
        factors = reduced[system, :, lead]
        pivot = factors[:, r].copy()
        factors[:, r] = 0
        pivot[pivot == 0] = 1  # the row is zero, and nothing is subtracted
        reduced = (pivot[:, None, None] * reduced - factors[:, :, None] * row[:, None, :]) % SMALL_PRIME
    # Each row is now alone in its leading column, so a unit vector in the span must be one of the rows.
    alone = np.count_nonzero(reduced, axis=2) == 1
    return np.asarray(((reduced != 0) & alone[:, :, None]).any(axis=1))


def bound_probability(hits: int, tries: int, confidence: float) -> float:
    """Returns the upper bound of Clopper and Pearson on a probability."""
    if hits >= tries:
        return 1.0
    if not hits:
        return float(-math.expm1(math.log1p(-confidence) / tries))
    from scipy.special import betaincinv  # slow to import, and rarely needed

    return float(betaincinv(hits + 1, tries - hits, confidence))
