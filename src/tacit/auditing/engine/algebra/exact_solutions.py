"""Exact solutions of linear systems: long fractions, reconstructed from their residues modulo small primes.

A solution modulo a prime of 31 bits needs only machine words. Solutions modulo several primes determine fractions of
any length, so numbers grow only as long as the result requires.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.symbolic.forms import Form, Unknown

FIRST, LAST = 4, 128
"""Number of primes that are tried first, and at most. The number is doubled until a solution is found."""


def combine_forms(forms: Sequence[Form], factors: Mapping[int, int | Fraction]) -> Form:
    """Returns a linear combination of forms, given the factor of each form by its place."""
    over = math.lcm(*(forms[place].below * factor.denominator for place, factor in factors.items()))
    total: dict[Unknown, int] = {}
    for place, factor in factors.items():
        form = forms[place]
        times = factor.numerator * (over // (form.below * factor.denominator))
        for unknown, number in form.numbers.items():
            total[unknown] = total.get(unknown, 0) + times * number
    return Form.over({unknown: number for unknown, number in total.items() if number}, over)


def solve_exactly(forms: Sequence[Form], wanted: Sequence[Unknown]) -> dict[Unknown, dict[int, Fraction]]:
    """Returns for each wanted unknown the factors that combine the forms to this unknown alone, by the places of the
    forms.

    The forms must be independent, so there is at most one solution. An unknown is left out if it has no solution, or
    one with more digits than the primes determine. Returned solutions were verified in exact arithmetic.
    """
    system, left = _System(forms), list(wanted)
    found: dict[Unknown, dict[int, Fraction]] = {}
    residues: list[list[int]] = []
    product, used, goal = 1, 0, FIRST
    for prime in _primes():
        if not left or goal > LAST:
            break
        solution = system.solve(left, prime)
        if solution is None:
            continue  # the forms are not independent modulo this one
        if used == goal:
            goal *= 2
            for unknown, values, checks in zip(left, residues, solution, strict=True):
                factors = _fractions(values, product, checks, prime)
                if factors is not None and _is_alone(combine_forms(forms, factors), unknown):
                    found[unknown] = factors
            kept = [place for place, unknown in enumerate(left) if unknown not in found]
            left = [left[place] for place in kept]
            residues, solution = ([each[place] for place in kept] for each in (residues, solution))
        residues = _lift(residues, product, solution, prime)
        product, used = product * prime, used + 1
    return found


def _is_alone(form: Form, unknown: Unknown) -> bool:
    """Says whether a form is one unknown, with factor 1."""
    return form.numbers == {unknown: form.below}


def _fractions(values: Sequence[int], product: int, checks: Sequence[int], prime: int) -> dict[int, Fraction] | None:
    """Returns the fractions with some residues, by place; None if one of them has another residue modulo one more
    prime.

    As long as there are too few primes, the first fraction has another residue, and the others need not be computed.
    """
    found: dict[int, Fraction] = {}
    below, most = 1, math.isqrt(product // 2)
    for place, (value, check) in enumerate(zip(values, checks, strict=True)):
        # Fractions of one solution often have the same denominator. At most one fraction has parts up to `most`.
        number = value * below % product
        number -= product if 2 * number > product else 0
        if abs(number) <= most:
            factor = Fraction(number, below)
        else:
            factor = rational(value, product)
            common = math.lcm(below, factor.denominator)
            below = common if common <= most else below
        if (factor.numerator - check * factor.denominator) % prime:
            return None
        if factor:
            found[place] = factor
    return found


class _System:
    """Matrix of some forms, restricted to as many columns as it has rows."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self._below = [form.below for form in forms]
        self._columns = {each: place for place, each in enumerate(dict.fromkeys(u for f in forms for u in f.numbers))}
        self._row = np.repeat(np.arange(len(forms)), [len(form.numbers) for form in forms])
        self._column = np.array([self._columns[each] for form in forms for each in form.numbers], dtype=np.int64)
        self._numbers = [number for form in forms for number in form.numbers.values()]
        self._chosen: list[int] | None = None

    def solve(self, wanted: Sequence[Unknown], prime: int) -> list[list[int]] | None:
        """Returns the factors of all forms for each unknown, modulo a prime; None if the forms are dependent modulo the
        prime."""
        matrix = np.zeros((len(self._columns), len(self._below)), dtype=np.int64)
        matrix[self._column, self._row] = [number % prime for number in self._numbers]
        sides = np.zeros((len(self._columns), len(wanted)), dtype=np.int64)
        sides[[self._columns[unknown] for unknown in wanted], range(len(wanted))] = 1
        if self._chosen is None:
            self._chosen = _independent_rows(matrix, prime)
        if len(self._chosen) < len(self._below):
            self._chosen = None
            return None
        both = np.concatenate((matrix[self._chosen], sides[self._chosen]), axis=1)
        size = len(self._chosen)
        for step in range(size):
            pivots = np.flatnonzero(both[step:, step])
            if not len(pivots):
                return None
            pivot = step + int(pivots[0])
            both[[step, pivot]] = both[[pivot, step]]
            both[step] = both[step] * pow(int(both[step, step]), -1, prime) % prime
            others = np.flatnonzero(both[:, step])
            others = others[others != step]
            both[others] = (both[others] - both[others, step, None] * both[step]) % prime
        # A form is a vector of numerators over one denominator, so its factor is multiplied by the denominator.
        below = np.array([each % prime for each in self._below], dtype=np.int64)
        scaled: list[list[int]] = (both[:, size:] * below[:, None] % prime).T.tolist()
        return scaled


def _independent_rows(matrix: NDArray[np.int64], prime: int) -> list[int]:
    """Returns the rows that are independent of all earlier rows, modulo a prime."""
    rest, found = matrix.copy(), []
    for row in range(len(rest)):
        spoken = np.flatnonzero(rest[row])
        if not len(spoken):
            continue
        found.append(row)
        lead = int(spoken[0])
        later = row + 1 + np.flatnonzero(rest[row + 1 :, lead])
        unit = rest[row] * pow(int(rest[row, lead]), -1, prime) % prime
        rest[later] = (rest[later] - rest[later, lead, None] * unit) % prime
    return found


def _lift(residues: list[list[int]], product: int, more: list[list[int]], prime: int) -> list[list[int]]:
    """Returns residues modulo the product of the earlier primes and one more prime."""
    if not residues:
        return more
    inverse = pow(product, -1, prime)
    return [
        [old + product * ((new - old) * inverse % prime) for old, new in zip(known, fresh, strict=True)]
        for known, fresh in zip(residues, more, strict=True)
    ]


def rational(value: int, modulus: int) -> Fraction:
    """Returns the fraction with small numerator and denominator that has a given residue."""
    (r0, r1), (t0, t1) = (modulus, value), (0, 1)
    while r1 * r1 * 2 > modulus:
        quotient = r0 // r1
        r0, r1, t0, t1 = r1, r0 - quotient * r1, t1, t0 - quotient * t1
    return Fraction(r1, t1) if t1 else Fraction(0)


def _primes() -> Iterator[int]:
    """Yields primes of 31 bits in descending order."""
    return (number for number in range(2**31 - 1, 2**30, -2) if is_prime(number))


def is_prime(number: int) -> bool:
    """Says whether an odd number of up to 64 bits is prime: the Miller-Rabin test is exact for these bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    powers = [pow(base, odd, number) for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)]
    return all(power == 1 or any(pow(power, 2**i, number) == number - 1 for i in range(twos)) for power in powers)
