"""The linear view: which unknowns follow from the forms that a coalition knows.

Every form is a row over unknowns. An unknown is exposed exactly when its unit vector lies in the row space. Whether
anybody is exposed at all is asked modulo a prime of 31 bits, as arrays. That prime is drawn anew in every process, so
that nobody can write a protocol whose factors vanish modulo it. How it is done is asked in two steps. Masks are uniform
modulo 2^bits and cancel in whole numbers only, so the combinations of forms in which they do come first; what these
speak of is then eliminated modulo a prime of 62 bits. That says which forms a recipe uses; its exact fractions come
from `exact_solutions`.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.exact_solutions import combine_forms, is_prime, solve_exactly
from tacit.auditing.engine.rows import Ints, Rows
from tacit.auditing.symbolic.forms import Form, Unknown
from tacit.core.entropy import SystemEntropy


def _drawn_prime(bits: int) -> int:
    """Returns a random prime of so many bits."""
    entropy = SystemEntropy()
    while True:
        number: int = 2 ** (bits - 1) + 2 * entropy.below(2 ** (bits - 2)) + 1
        if is_prime(number):
            return number


SMALL_PRIME = _drawn_prime(31)
"""Small, so that a product of two residues fits a machine word."""
PRIME = _drawn_prime(62)
"""Large, so that no factor of many vanishes modulo it by chance."""
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
        for index, form in useful(forms, wanted):
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

    def list_determined(self) -> list[Unknown]:
        """Returns the unknowns that are determined, each alone."""
        return [lead for lead, row in self.rows.items() if len(row) == 1]


def cancel_masks(forms: Sequence[Form]) -> list[tuple[Form, dict[int, int]]]:
    """Returns a basis of the combinations of forms, in whole numbers, in which all masks cancel.

    A mask is added to one vector and subtracted from another, or known, so these are mostly sums and differences.
    """
    wanted = {unknown for form in forms for unknown in form.terms if unknown[0] != "mask"}
    leads: dict[Unknown, int] = {}
    pivots: list[tuple[dict[Unknown, Any], dict[int, Any]]] = []
    found: list[tuple[Form, dict[int, int]]] = []
    for index, form in sorted(useful(forms, wanted), key=lambda each: len(each[1].terms)):
        row: dict[Unknown, Any] = {each: factor for each, factor in form.terms.items() if each[0] == "mask"}
        combination: dict[int, Any] = {index: 1}
        # A pivot is free of the leads of those before it, so each has to be taken off once at most.
        due = [leads[each] for each in row if each in leads]
        heapify(due)
        while due:
            masks, how = pivots[heappop(due)]
            lead = next(iter(masks))
            if (value := row.get(lead, 0)) != 0:
                factor = value if masks[lead] == 1 else -value if masks[lead] == -1 else Fraction(value) / masks[lead]
                for each, other in masks.items():
                    rest = row.get(each, 0) - factor * other
                    if rest == 0:
                        row.pop(each, None)
                    else:
                        if each not in row and each in leads:
                            heappush(due, leads[each])
                        row[each] = rest
                for number, other in how.items():
                    combination[number] = combination.get(number, 0) - factor * other
        combination = {number: factor for number, factor in combination.items() if factor != 0}
        if row:
            leads[next(iter(row))] = len(pivots)
            pivots.append((row, combination))
            continue
        common = math.lcm(*(Fraction(factor).denominator for factor in combination.values()))
        whole = {each: int(factor * common) for each, factor in combination.items()}
        found.append((combine_forms(forms, whole), whole))
    return found


def solve_forms(
    forms: Sequence[Form], interesting: Collection[Unknown]
) -> dict[Unknown, list[tuple[Fraction, dict[int, int]]]]:
    """Returns how interesting unknowns follow from forms: as fractions of sums, in whole numbers, without masks.

    Each is verified without any prime, and left out if its fractions have more digits than can be followed.
    """
    sums, wanted = cancel_masks(forms), set(interesting)
    reduced = [form for form, _ in sums]
    space = RowSpace(reduced, wanted)
    used = sorted({index for unknown in space.recipes for index in space.recipes[unknown]})
    exposed = [unknown for unknown in space.list_determined() if unknown in wanted]
    factors = solve_exactly([reduced[index] for index in used], exposed)
    return {
        unknown: [(factors[unknown][place], sums[used[place]][1]) for place in places]
        for unknown in exposed
        if unknown in factors
        for places in [[used.index(index) for index in space.recipes[unknown]]]
    }


def _subtract(row: dict, other: dict, factor: int) -> None:  # type: ignore[type-arg]
    for key, value in other.items():
        rest = (row.get(key, 0) - factor * value) % PRIME
        if rest:
            row[key] = rest
        else:
            row.pop(key, None)


def useful(forms: Sequence[Form], wanted: Collection[Unknown]) -> Iterable[tuple[int, Form]]:
    """Yields forms, but for those with an uninteresting unknown that occurs nowhere else: they say nothing."""
    rows = Rows.of(forms)
    return ((index, forms[index]) for index in rows.useful(rows.columns.among(wanted)).tolist())


class Echelon:
    """Rows in reduced row echelon form modulo the small prime, one taken in after another."""

    def __init__(self, columns: int, most: int | None = None) -> None:
        """Has room for that many rows that say something new; for as many as there are columns unless given."""
        self.rows = np.zeros((columns if most is None else min(columns, most), columns), dtype=np.int64)
        self.leads: list[int] = []
        self._columns = np.zeros(len(self.rows), dtype=np.int64)
        self.used: list[int] = []
        """Which of the rows taken in said something new."""
        self._taken = 0

    def take(self, row: NDArray[np.integer]) -> bool:
        """Takes in a row; says whether it was new."""
        rank, number = len(self.leads), self._taken
        self._taken += 1
        rest = row.astype(np.int64) % SMALL_PRIME
        # Every row is zero in the others' leading columns, so all of them can be taken off at once.
        factors = rest[self._columns[:rank]]
        hit = factors.nonzero()[0]
        if len(hit):
            rest = (rest - (factors[hit, None] * self.rows[hit] % SMALL_PRIME).sum(axis=0)) % SMALL_PRIME
        found = rest.nonzero()[0]
        if not len(found):
            return False
        lead = int(found[0])
        if rest[lead] != 1:
            rest = rest * pow(int(rest[lead]), -1, SMALL_PRIME) % SMALL_PRIME
        factors = self.rows[:rank, lead]
        touched = factors.nonzero()[0]
        if len(touched):
            self.rows[touched] = (self.rows[touched] - factors[touched, None] * rest) % SMALL_PRIME
        self.rows[rank] = rest
        self._columns[rank] = lead
        self.leads.append(lead)
        self.used.append(number)
        return True

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The rows that are not zero."""
        return self.rows[: len(self.leads)]

    def list_determined(self) -> list[int]:
        """Returns the columns that are determined, each alone."""
        alone = np.count_nonzero(self.matrix, axis=1) == 1
        return [lead for lead, single in zip(self.leads, alone, strict=True) if single]


class SmallRowSpace:
    """What some forms say about the interesting unknowns alone, modulo the small prime."""

    def __init__(self, forms: Sequence[Form] | Rows, interesting: Sequence[Unknown]) -> None:
        rows, self.interesting = Rows.of(forms), list(interesting)
        columns = rows.columns.numbers(interesting)
        place = np.full(len(rows.columns), -1)
        place[columns] = np.arange(len(columns))
        single, rest = rows.peel_singles()
        kept = rest.take(rest.useful(place >= 0))
        factors = kept.values(residues)
        units = np.flatnonzero(single[columns])
        found = [np.zeros((len(units), len(columns)), dtype=np.int64)]
        found[0][np.arange(len(units)), units] = 1
        found += [_project_rows(group, factors, place, len(columns)) for _, group in kept.groups()]
        self.rows = np.concatenate(found)
        """A basis of it, a column for each interesting unknown."""

    def list_determined(self) -> list[Unknown]:
        """Returns the interesting unknowns that are determined, each alone."""
        single = np.count_nonzero(self.rows, axis=1) == 1
        return [self.interesting[int(row.argmax())] for row in self.rows[single]]


def _project_rows(rows: Rows, factors: Ints, place: Ints, width: int) -> Ints:
    """Returns a basis of what rows say about unknowns that have a place alone: by place, modulo the small prime."""
    unknowns = rows.column_order()
    # Uninteresting unknowns come first, so that rows are led by them as long as they speak of any.
    spoken = unknowns[place[unknowns] >= 0]
    others = len(unknowns) - len(spoken)
    echelon = Echelon(len(unknowns), rows.count)
    for row in rows.matrix(np.concatenate((unknowns[place[unknowns] < 0], spoken)), factors):
        echelon.take(row)
    led = [number for number, lead in enumerate(echelon.leads) if lead >= others]
    basis = np.zeros((len(led), width), dtype=np.int64)
    basis[:, place[spoken]] = echelon.rows[led][:, others:]
    return basis


def residues(numbers: Collection[int], below: int) -> Ints:
    """Returns factors, given as numerators over a denominator, modulo the small prime."""
    inverse = 1 if below == 1 else pow(below, -1, SMALL_PRIME)
    return np.array([number * inverse % SMALL_PRIME for number in numbers], dtype=np.int64)


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
    by size. Rows are taken modulo the small prime, and may depend on each other. None if there are too many sets, or no
    row that is not zero.
    """
    echelon = Echelon(rows.shape[1])
    for row in rows:
        echelon.take(row)
    basis = echelon.matrix
    spoken = [int(column) for column in np.flatnonzero(basis.any(axis=0))]
    tried = 0
    for size in range(1, len(spoken) + 1):
        for columns in combinations(spoken, size):
            tried += 1
            if tried > MOST_SUPPORTS:
                return None
            # Some combination speaks of these columns alone exactly if the others no longer tell all rows apart.
            if _rank(np.delete(basis, columns, axis=1)) < len(basis):
                return size
    return None


def _rank(rows: NDArray[np.int64]) -> int:
    echelon = Echelon(rows.shape[1])
    return sum(echelon.take(row) for row in rows)
