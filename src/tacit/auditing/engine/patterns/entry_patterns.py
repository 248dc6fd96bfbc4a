"""Selection patterns: which parties select one entry of a sparse vector.

The same happens at all entries that the same parties select. So each position of a symbolic run stands for one pattern.
What a model of full length exposes follows from the frequency of each pattern. Parties that a coalition's views treat
alike form a class. Of a class only the number of selecting parties matters, so few patterns stand for many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import SMALL_PRIME
from tacit.core.entropy import SeededEntropy

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]


def spread_patterns(heard: Bools, count: int, seed: int) -> Bools:
    """Returns patterns to run on symbols, one per column: all parties, no party, and others of every density.

    For each receiver, every possible number of selecting senders occurs in at least one pattern.

    Args:
        heard: The parties whose selections each party learns, one row per party.
        count: The least number of patterns. More are added if some number of senders is missing.
        seed: Seed of the random patterns.
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
    """Returns the first party and number of selecting senders that occurs in no pattern; None if none is missing."""
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
    """Patterns over some rounds, each with its frequency."""

    selections: Bools
    """The selecting parties, by pattern, round and party."""
    weights: NDArray[np.float64]
    """The probability of each pattern, or the number of entries at which it occurs."""


def enumerate_patterns(
    classes: Sequence[Sequence[int]], probability: float, rounds: int, most: int
) -> WeighedPatterns | None:
    """Returns all patterns up to exchanges within classes, with their probabilities; None if there are more than
    `most`.

    Args:
        classes: The places of the parties in each class. The classes cover all places from 0 on.
        probability: Probability with which each party selects the entry in each round, independently.
        rounds: Number of rounds.
        most: The largest number of patterns.
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
    """Returns random patterns of equal weight, sampled by their probabilities."""
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
    """Returns, for each linear system, which unknowns have their unit vector in the span of the rows.

    Rows are eliminated modulo a prime. For rows of zeros and ones this is exact up to 22 rows. A determinant of n such
    rows is at most (n + 1)^((n + 1) / 2) / 2^n (Hadamard), which for n = 22 is half of the prime, so only 0 is 0 modulo
    the prime. For more rows, a wrong answer needs a determinant that is divisible by the prime by chance.
    """
    reduced = rows.astype(np.int64)
    system = np.arange(len(rows))
    for r in range(rows.shape[1]):
        row = reduced[:, r]
        lead = (row != 0).argmax(axis=1)
        factors = reduced[system, :, lead]
        pivot = factors[:, r].copy()
        factors[:, r] = 0
        pivot[pivot == 0] = 1  # A zero row: nothing is subtracted.
        reduced = (pivot[:, None, None] * reduced - factors[:, :, None] * row[:, None, :]) % SMALL_PRIME
    # Each row is now the only one with an entry in its leading column, so a unit vector in the span is one of the rows.
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
