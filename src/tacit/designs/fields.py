"""Finite fields, and partitions into groups that are constructed from them.

Each construction is a list of partitions of 0 … n−1 in which no pair is in the same group twice. `tacit.designs.groups`
selects one of them and verifies it.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Partition: TypeAlias = list[list[int]]
Ints: TypeAlias = NDArray[np.int64]


class Field:
    """The field GF(q). An element is an integer 0 … q−1, whose base-p digits are the coefficients of a polynomial."""

    def __init__(self, q: int) -> None:
        ((self.p, self.degree),) = factors(q)
        self.q = q
        self._scale = self.p ** np.arange(self.degree)
        self.powers = self._powers()
        """Powers θ⁰, θ¹, … θ^(q−2) of a generator θ: all elements but 0."""

    @cached_property
    def add(self) -> Ints:
        """Addition table."""
        digits = self._digits(np.arange(self.q))
        return ((digits[:, None] + digits[None]) % self.p) @ self._scale

    @cached_property
    def times(self) -> Ints:
        """Multiplication table."""
        table = np.zeros((self.q, self.q), dtype=np.int64)
        exponents = np.arange(self.q - 1)
        table[np.ix_(self.powers, self.powers)] = self.powers[(exponents[:, None] + exponents) % (self.q - 1)]
        return table

    def log(self, element: int) -> int:
        """Returns the exponent u with θ^u equal to the element."""
        return int(np.flatnonzero(self.powers == element)[0])

    def _digits(self, elements: Ints) -> Ints:
        return elements[:, None] // self._scale % self.p

    def _powers(self) -> Ints:
        """Returns the powers of x modulo the first monic polynomial for which they are all elements but 0."""
        for low in product(range(self.p), repeat=self.degree):
            reduced = -np.array(low) % self.p  # x^degree, modulo the polynomial
            element, seen = np.zeros(self.degree, dtype=np.int64), []
            element[0] = 1
            for _ in range(self.q - 1):
                seen.append(int(element @ self._scale))
                top = element[-1]
                element = (np.concatenate(([0], element[:-1])) + top * reduced) % self.p
                if element @ self._scale <= 1:
                    break
            if len(seen) == self.q - 1 and element @ self._scale == 1:
                return np.array(seen)
        raise AssertionError("every finite field has a generator")


@lru_cache(maxsize=16)
def field(q: int) -> Field:
    """Returns GF(q) for a prime power q."""
    return Field(q)


def factors(number: int) -> list[tuple[int, int]]:
    """Returns the prime factors of a number, with their exponents."""
    found, p = [], 2
    while number > 1:
        if p * p > number:
            p = number
        exponent = 0
        while number % p == 0:
            number, exponent = number // p, exponent + 1
        if exponent:
            found.append((p, exponent))
        p += 1
    return found


def is_prime_power(number: int) -> bool:
    """Returns whether a number is a prime power, so that a field of that order exists."""
    return len(factors(number)) == 1


def affine_lines(q: int, dimension: int) -> Iterator[Partition]:
    """Yields the classes of parallel lines of the affine space over GF(q): q^dimension users in groups of q.

    Two points lie on exactly one line, so every pair of users is in the same group exactly once.
    """
    gf = field(q)
    scale = q ** np.arange(dimension)
    points = np.arange(q**dimension)[:, None] // scale % q
    for direction in points[1:]:
        if direction[np.flatnonzero(direction)[0]] != 1:
            continue  # a multiple of an earlier direction
        steps = gf.times[np.arange(q)[:, None], direction]
        lines = gf.add[points[:, None], steps[None]] @ scale
        # Each line appears once for each of its points; only the copy that starts at its smallest point is kept.
        yield lines[lines.min(axis=1) == np.arange(len(points))].tolist()


def transversal(size: int, m: int, short: int = 0) -> Iterator[Partition]:
    """Yields m partitions of size·m − short users into m groups. The last `short` groups have one user less.

    The users form `size` columns of m. Partition b has the groups {x + a_j·b in column j, for all j}, with constants
    a_j whose differences are invertible. So two users of different columns are in the same group once, and users of one
    column never. The arithmetic is that of the product of the fields whose orders are the prime powers in m. None of
    these may be smaller than `size` (`transversal_size`).
    """
    fields = [field(p**e) for p, e in factors(m)]
    scale = np.cumprod([1] + [gf.q for gf in fields[:-1]])
    points = np.arange(m)[:, None] // scale % [gf.q for gf in fields]
    for b in points:
        columns = []
        for j in range(size):
            parts = [gf.add[points[:, i], gf.times[j, b[i]]] for i, gf in enumerate(fields)]
            columns.append(np.stack(parts, axis=1) @ scale + j * m)
        blocks = np.stack(columns, axis=1)
        yield [[user for user in block if user < size * m - short] for block in blocks.tolist()]


def transversal_size(m: int) -> int:
    """Returns the largest size for which `transversal` works: the smallest prime power that divides m exactly."""
    return min((p**e for p, e in factors(m)), default=1)


def kirkman_double(q: int) -> Iterator[Partition]:
    """Yields a Kirkman triple system on 2q + 1 users for a prime power q = 6t + 1 (Ray-Chaudhuri and Wilson 1971).

    The users are two copies of GF(q), and ∞. The partitions are the translates of one base partition by all elements of
    the field. With 2θ^u = θ^t + 1, the differences within the first copy, within the second, and between the two each
    take every value of the field once.
    """
    gf, t = field(q), (q - 1) // 6
    half = gf.powers[(q - 1 - gf.log(int(gf.add[1, 1]))) % (q - 1)]
    u = gf.log(int(gf.times[half, gf.add[gf.powers[t], 1]]))

    def power(exponent: int) -> int:
        return int(gf.powers[exponent % (q - 1)])

    base = [[0, q, 2 * q]]
    for i in range(t):
        for k in (i, i + 2 * t, i + 4 * t):
            base.append([power(k), power(k + t), q + power(k + u)])
        base.append([q + power(i + u + k * t) for k in (1, 3, 5)])
    for shift in gf.add:
        move = np.concatenate((shift, shift + q, [2 * q]))
        yield move[np.array(base)].tolist()


def kirkman_triple(q: int) -> Iterator[Partition]:
    """Yields a Kirkman triple system on 3q users for a prime power q = 6t + 1 (Ray-Chaudhuri and Wilson 1971).

    The users are three copies of GF(q). The triples A_i = {θ^i, θ^(i+2t), θ^(i+4t)}, with one element in each copy,
    have all differences between copies except 0. Half of them, together with triples within a copy, form a partition,
    and so do all its translates. For each triple of the other half, its own translates form a partition.
    """
    gf, t = field(q), (q - 1) // 6

    def across(i: int) -> list[int]:
        return [copy * q + int(gf.powers[(i + 2 * t * copy) % (q - 1)]) for copy in range(3)]

    moves = np.concatenate((gf.add, gf.add + q, gf.add + 2 * q), axis=1)
    base = [[0, q, 2 * q]]
    for i in range(t):
        base += [[copy * q + int(gf.powers[i + 2 * t * k]) for k in range(3)] for copy in range(3)]
        base += [across(i + k * t) for k in (1, 3, 5)]
    for move in moves:
        yield move[np.array(base)].tolist()
    for i in range(t):
        for k in (0, 2, 4):
            yield moves[:, across(i + k * t)].tolist()
