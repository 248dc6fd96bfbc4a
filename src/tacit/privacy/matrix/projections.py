"""How much of one party's noisy vector a set of rows shows: leverages and covering radii, with exact decisions of rank.

The vectors of one round form a block. Vectors with equal factors in all rows form a class, and only the sum of a class
is ever seen. Let P be the projection onto the span of the rows, in units of each class sum's noise. An adversary that
sees the rows learns of a change of one class sum at most what P shows of it.

Noise is a whole number of steps, so a change must be compensated by whole numbers. The compensation that is closest to
the best real one is within the covering radius of the lattice of all whole-number combinations that no row shows.
Half of each Gram-Schmidt vector of any basis bounds that radius (Babai 1986).
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd, inf, lcm
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SystemEntropy

MOST_CLASSES = 64
"""The most classes of a block whose projection is computed. In larger blocks every class sum counts as seen."""
WORST_CONDITION = 1e8
"""The largest condition number of rows whose projection is computed. Beyond it, every class sum counts as seen."""
Whole: TypeAlias = Sequence[Sequence[int]]
"""A matrix of whole numbers, row by row."""


def _random_prime() -> int:
    """Returns a prime of 31 bits that nobody could know beforehand."""
    entropy = SystemEntropy()
    while True:
        found: int = 2**30 + 2 * entropy.below(2**29) + 1
        if all(found % divisor for divisor in range(3, 2**15 + 2**14, 2)):
            return found


PRIME = _random_prime()


class Block(NamedTuple):
    """What rows show of the vectors of one round, class by class."""

    sizes: tuple[int, ...]
    """The number of vectors in each class."""
    projection: NDArray[np.float64] | None
    """Entries of P for pairs of classes, at least their true size; None if P is the identity or counts as it."""
    covering: float
    """Bound on the squared covering radius of the combinations that no row shows, in units of the noise of one step."""


def covering_of_sum(size: int) -> float:
    """Returns the squared covering radius of the whole numbers that add up to zero.

    >>> covering_of_sum(4), covering_of_sum(1)
    (1.0, 0.0)
    """
    return (size // 2) * (size - size // 2) / size


@lru_cache(maxsize=4096)
def analyse_block(sizes: tuple[int, ...], parts: tuple[float, ...], rows: tuple[tuple[int, ...], ...]) -> Block:
    """Returns what rows show of class sums.

    Args:
        sizes: The number of vectors in each class.
        parts: The fraction that the vectors of each class and their noise were multiplied by.
        rows: The factor of each class, row by row.
    """
    count = len(sizes)
    if count == 1 or count > MOST_CLASSES or modular_rank(rows, count) == count:
        # A rank that is full modulo a prime is full.
        return Block(sizes, None, 0.0)
    reduced, leads = reduce_rows(rows, count)
    if len(leads) == count:
        return Block(sizes, None, 0.0)
    spread = np.array([part * size**0.5 for part, size in zip(parts, sizes, strict=True)])
    projection = _project(np.array([[float(each) for each in row] for row in reduced]) * spread)
    if projection is None:
        return Block(sizes, None, 0.0)
    covering = sum(covering_of_sum(size) / part**2 for size, part in zip(sizes, parts, strict=True))
    return Block(sizes, projection, covering + _half_lengths(integer_kernel(reduced, leads, count), spread))


def _project(rows: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Returns the entries of the projection onto independent rows, rounded away from zero; None if ill-conditioned."""
    scaled = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    _, singular, basis = np.linalg.svd(scaled, full_matrices=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else inf
    if not condition < WORST_CONDITION:
        return None
    found = basis.T @ basis
    # Wedin's bound on the change of a row space, with a generous constant for the error of the decomposition.
    error = 64 * sum(rows.shape) * np.finfo(np.float64).eps * condition
    rounded: NDArray[np.float64] = np.abs(found) + error
    return rounded


def _half_lengths(kernel: Whole, spread: NDArray[np.float64]) -> float:
    """Returns a quarter of the sum of squared Gram-Schmidt lengths, in units of the noise of one step.

    A combination of class sums is spread evenly over the members of a class: the differences inside classes are
    counted by their own covering radius.
    """
    total, basis = 0.0, list[NDArray[np.float64]]()
    for combination in sorted(kernel, key=lambda each: sum(value * value for value in each)):
        # A class sum of x needs x/k of each of its k members: x²/k in all, over the noise of their part.
        vector = np.array([float(value) for value in combination]) / spread
        length = float(vector @ vector)
        for other in basis:
            vector = vector - (vector @ other) * other
        rest = float(vector @ vector)
        total += min(length, rest * (1 + 1e-9) + 1e-12 * length)
        if rest > 0:
            basis.append(vector / rest**0.5)
    return total / 4


def modular_rank(rows: Whole, columns: int) -> int:
    """Returns the rank of a matrix of whole numbers modulo a random prime, which is at most its rank."""
    left = np.array([[value % PRIME for value in row] for row in rows], dtype=np.int64).reshape(len(rows), columns)
    rank = 0
    for column in range(columns):
        found = np.flatnonzero(left[rank:, column])
        if not len(found):
            continue
        place = rank + int(found[0])
        left[[rank, place]] = left[[place, rank]]
        left[rank] = left[rank] * pow(int(left[rank, column]), -1, PRIME) % PRIME
        below = left[rank + 1 :]
        below -= below[:, column, None] * left[rank] % PRIME
        below %= PRIME
        rank += 1
        if rank == len(left):
            break
    return rank


def reduce_rows(rows: Whole, columns: int) -> tuple[list[list[Fraction]], list[int]]:
    """Returns the reduced row echelon form of a matrix in exact fractions, and the leading columns.

    >>> reduce_rows([(2, 2, 0), (1, 1, 0), (0, 3, 3)], 3)[1]
    [0, 1]
    """
    reduced: list[list[Fraction]] = []
    leads: list[int] = []
    for given in rows:
        row = [Fraction(value) for value in given]
        for lead, other in zip(leads, reduced, strict=True):
            if factor := row[lead]:
                row = [value - factor * each for value, each in zip(row, other, strict=True)]
        lead = next((column for column in range(columns) if row[column]), -1)
        if lead < 0:
            continue
        row = [value / row[lead] for value in row]
        for place, other in enumerate(reduced):
            if factor := other[lead]:
                reduced[place] = [value - factor * each for value, each in zip(other, row, strict=True)]
        reduced.append(row)
        leads.append(lead)
    return reduced, leads


def integer_kernel(reduced: Sequence[Sequence[Fraction]], leads: Sequence[int], columns: int) -> list[list[int]]:
    """Returns independent whole-number combinations that reduced rows do not show, as many as there are.

    >>> integer_kernel(*reduce_rows([(1, 1, 0), (0, 3, 3)], 3), 3)
    [[1, -1, 1]]
    """
    kernel = []
    for free in (column for column in range(columns) if column not in leads):
        vector = [Fraction(0)] * columns
        vector[free] = Fraction(1)
        for lead, row in zip(leads, reduced, strict=True):
            vector[lead] = -row[free]
        common = lcm(*(value.denominator for value in vector))
        whole = [int(value * common) for value in vector]
        shared = gcd(*whole)
        kernel.append([value // shared for value in whole])
    return kernel
