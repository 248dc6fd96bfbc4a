"""The linear view: which unknowns follow from the forms that a coalition knows.

Every form is a row over unknowns. An unknown is exposed exactly when its unit vector lies in the row space. Rows are
eliminated modulo a prime of 2203 bits, with coefficients taken as the exact rationals that their floats are, so there
is no tolerance to choose: a wrong answer would need a determinant that happens to be divisible by that prime. Whether
anybody is exposed at all is asked first modulo a prime of 31 bits, as arrays, which is a hundred times faster.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tacit.audit.symbolic.forms import Form, Unknown

PRIME = 2**2203 - 1
"""Large, so that the fractions of a recipe can be read back from their residues."""
SMALL_PRIME = 2**31 - 1
"""Small, so that a product of two residues fits a machine word."""
MOST_SUPPORTS = 5_000
"""Sets of unknowns that are tried out, at most, in search of the smallest support."""


def residue(value: int | float | Fraction) -> int:
    """Returns a number as an element of the prime field."""
    exact = Fraction(value)
    inverse: int = pow(exact.denominator, -1, PRIME)
    return exact.numerator * inverse % PRIME


class RowSpace:
    """The span of some forms, in reduced row echelon form, with the combination that makes each row."""

    def __init__(self, forms: Sequence[Form], interesting: Collection[Unknown]) -> None:
        """Takes in forms. Only what can be said about the interesting unknowns is kept."""
        self.rows: dict[Unknown, dict[Unknown, int]] = {}
        self.recipes: dict[Unknown, dict[int, int]] = {}
        wanted = set(interesting)
        for index, form in _useful(forms, wanted):
            row = {unknown: residue(factor) for unknown, factor in form.terms.items()}
            self._insert(row, {index: 1}, wanted)

    def _insert(self, row: dict[Unknown, int], recipe: dict[int, int], wanted: set[Unknown]) -> None:
        for lead in [unknown for unknown in row if unknown in self.rows]:
            factor = row.get(lead, 0)
            if factor:
                _subtract(row, self.rows[lead], factor)
                _subtract(recipe, self.recipes[lead], factor)
        if not row:
            return
        # Uninteresting unknowns lead first, so that what is left over speaks of the interesting ones alone.
        lead = next((unknown for unknown in row if unknown not in wanted), next(iter(row)))
        inverse = pow(row[lead], -1, PRIME)
        row = {unknown: value * inverse % PRIME for unknown, value in row.items()}
        recipe = {index: value * inverse % PRIME for index, value in recipe.items()}
        for other, existing in self.rows.items():
            factor = existing.get(lead, 0)
            if factor:
                _subtract(existing, row, factor)
                _subtract(self.recipes[other], recipe, factor)
        self.rows[lead], self.recipes[lead] = row, recipe

    def exposed(self) -> list[Unknown]:
        """Returns the unknowns that are determined, each alone."""
        return [lead for lead, row in self.rows.items() if len(row) == 1]

    def determines(self, form: Form) -> bool:
        """Says whether a form is a combination of the known ones."""
        row = {unknown: residue(factor) for unknown, factor in form.terms.items()}
        for lead in list(row):
            if lead in self.rows and row.get(lead):
                _subtract(row, self.rows[lead], row[lead])
        return not row


def rational(value: int) -> Fraction:
    """Returns the fraction with small numerator and denominator that a residue stands for."""
    (r0, r1), (t0, t1) = (PRIME, value), (0, 1)
    while r1 * r1 * 2 > PRIME:
        quotient = r0 // r1
        r0, r1, t0, t1 = r1, r0 - quotient * r1, t1, t0 - quotient * t1
    return Fraction(r1, t1) if t1 else Fraction(0)


def _subtract(row: dict, other: dict, factor: int) -> None:  # type: ignore[type-arg]
    for key, value in other.items():
        rest = (row.get(key, 0) - factor * value) % PRIME
        if rest:
            row[key] = rest
        else:
            row.pop(key, None)


def _useful(forms: Sequence[Form], wanted: set[Unknown]) -> Iterable[tuple[int, Form]]:
    """Yields forms, but for those with an uninteresting unknown that occurs nowhere else: they say nothing."""
    uses = Counter(unknown for form in forms for unknown in form.terms)
    where: dict[Unknown, list[int]] = defaultdict(list)
    for index, form in enumerate(forms):
        for unknown in form.terms:
            where[unknown].append(index)
    dropped: set[int] = set()
    lonely = [unknown for unknown, count in uses.items() if count == 1 and unknown not in wanted]
    while lonely:
        unknown = lonely.pop()
        for index in where[unknown]:
            if index not in dropped:
                dropped.add(index)
                for other in forms[index].terms:
                    uses[other] -= 1
                    if uses[other] == 1 and other not in wanted:
                        lonely.append(other)
    return ((index, form) for index, form in enumerate(forms) if index not in dropped)


class Echelon:
    """Rows in reduced row echelon form modulo the small prime, one taken in after another."""

    def __init__(self, columns: int, most: int | None = None) -> None:
        """Has room for that many rows that say something new; for as many as there are columns unless given."""
        self.rows = np.zeros((columns if most is None else min(columns, most), columns), dtype=np.int64)
        self.leads: list[int] = []
        self.used: list[int] = []
        """Which of the rows taken in said something new."""
        self._taken = 0

    def take(self, row: NDArray[np.integer]) -> bool:
        """Takes in a row; says whether it was new."""
        rank, number = len(self.leads), self._taken
        self._taken += 1
        rest = row.astype(np.int64) % SMALL_PRIME
        # Every row is zero in the others' leading columns, so all of them can be taken off at once.
        factors = rest[self.leads]
        hit = np.flatnonzero(factors)
        rest = (rest - (factors[hit, None] * self.rows[hit] % SMALL_PRIME).sum(axis=0)) % SMALL_PRIME
        found = np.flatnonzero(rest)
        if not len(found):
            return False
        lead = int(found[0])
        rest = rest * pow(int(rest[lead]), -1, SMALL_PRIME) % SMALL_PRIME
        factors = self.rows[:rank, lead].copy()
        touched = np.flatnonzero(factors)
        self.rows[touched] = (self.rows[touched] - factors[touched, None] * rest) % SMALL_PRIME
        self.rows[rank] = rest
        self.leads.append(lead)
        self.used.append(number)
        return True

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The rows that are not zero."""
        return self.rows[: len(self.leads)]

    def exposed(self) -> list[int]:
        """Returns the columns that are determined, each alone."""
        alone = np.count_nonzero(self.matrix, axis=1) == 1
        return [lead for lead, single in zip(self.leads, alone, strict=True) if single]


class SmallRowSpace:
    """What some forms say about the interesting unknowns alone, modulo the small prime."""

    def __init__(self, forms: Sequence[Form], interesting: Sequence[Unknown]) -> None:
        single, rest = _peeled(forms)
        units = [Form({unknown: 1}) for unknown in interesting if unknown in single]
        kept = [*units, *(form for _, form in _useful(rest, set(interesting)))]
        others = dict.fromkeys(unknown for form in kept for unknown in form.terms)
        for unknown in interesting:
            others.pop(unknown, None)
        # Uninteresting unknowns come first, so that rows are led by them as long as they speak of any.
        column = {unknown: place for place, unknown in enumerate((*others, *interesting))}
        echelon = Echelon(len(column), len(kept))
        for form in kept:
            row = np.zeros(len(column), dtype=np.int64)
            for unknown, factor in form.terms.items():
                row[column[unknown]] = _small(factor)
            echelon.take(row)
        led = [place for place, lead in enumerate(echelon.leads) if lead >= len(others)]
        self.interesting = list(interesting)
        self.rows = echelon.rows[led][:, len(others) :]
        """A basis of it, a column for each interesting unknown."""

    def exposed(self) -> list[Unknown]:
        """Returns the interesting unknowns that are determined, each alone."""
        single = np.count_nonzero(self.rows, axis=1) == 1
        return [self.interesting[int(row.argmax())] for row in self.rows[single]]


def _peeled(forms: Sequence[Form]) -> tuple[set[Unknown], list[Form]]:
    """Returns the unknowns that forms give away one after another, and the other forms without them."""
    terms = [dict(form.terms) for form in forms]
    where: dict[Unknown, list[int]] = defaultdict(list)
    for index, row in enumerate(terms):
        for unknown in row:
            where[unknown].append(index)
    single: set[Unknown] = set()
    fresh = [next(iter(row)) for row in terms if len(row) == 1]
    while fresh:
        unknown = fresh.pop()
        if unknown not in single:
            single.add(unknown)
            for index in where[unknown]:
                row = terms[index]
                row.pop(unknown, None)
                if len(row) == 1:
                    fresh.append(next(iter(row)))
    return single, [Form(row) for row in terms if row]


def _small(factor: int | float | Fraction) -> int:
    exact = factor if isinstance(factor, int) else Fraction(factor)
    return int(exact.numerator) * pow(int(exact.denominator), -1, SMALL_PRIME) % SMALL_PRIME


def smallest_class(rows: NDArray[np.integer]) -> int | None:
    """Returns the strict T of paper 002: the size of the smallest class of columns that every row weighs alike.

    Columns that no row speaks of do not count; None if there is no other.
    """
    spoken = rows[:, rows.any(axis=0)] if rows.size else rows
    if not spoken.size:
        return None
    return int(np.unique(spoken, axis=1, return_counts=True)[1].min())


def smallest_support(rows: NDArray[np.int64]) -> int | None:
    """Returns the relaxed T of paper 002: of how many columns, at least, any combination of the rows speaks.

    That is the least distance of a linear code, for which nothing much better is known than to try all sets of columns
    by size. None if there are too many of them, or no rows.
    """
    rank = len(rows)
    if not rank:
        return None
    spoken = [int(column) for column in np.flatnonzero(rows.any(axis=0))]
    tried = 0
    for size in range(1, len(spoken) + 1):
        for columns in combinations(spoken, size):
            tried += 1
            if tried > MOST_SUPPORTS:
                return None
            # Some combination speaks of these columns alone exactly if the others no longer tell all rows apart.
            if _rank(np.delete(rows, columns, axis=1)) < rank:
                return size
    return None


def _rank(rows: NDArray[np.int64]) -> int:
    echelon = Echelon(rows.shape[1])
    return sum(echelon.take(row) for row in rows)
