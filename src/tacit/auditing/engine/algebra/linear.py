"""Linear algebra of a view: the unknowns that follow from the forms that a coalition knows.

Every form is a row over unknowns. An unknown is exposed exactly if its unit vector lies in the row space. Whether
anybody is exposed is computed modulo a random prime of 31 bits. The prime is drawn anew in every process, so that
nobody can write a protocol whose factors vanish modulo it.

How a vector is recovered is computed in two steps. Masks are uniform modulo 2^bits and cancel only in whole-number
combinations, so these combinations come first. Their remaining unknowns are then eliminated modulo a prime of 62 bits,
which shows which forms a recipe uses. `exact_solutions` computes the exact fractions.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.exact_solutions import combine_forms, is_prime, solve_exactly
from tacit.auditing.engine.algebra.rows import Ints, Rows
from tacit.auditing.symbolic.forms import Form, Unknown
from tacit.core.entropy import SystemEntropy


def _drawn_prime(bits: int) -> int:
    """Returns a random prime with the given number of bits."""
    entropy = SystemEntropy()
    while True:
        number: int = 2 ** (bits - 1) + 2 * entropy.below(2 ** (bits - 2)) + 1
        if is_prime(number):
            return number


SMALL_PRIME = _drawn_prime(31)
"""Prime that is so small that the product of two residues fits into a machine word."""
PRIME = _drawn_prime(62)
"""Prime that is so large that a factor vanishes modulo it with negligible probability."""
MOST_PRODUCTS = 2**18
"""Number of entries of rows that are multiplied at once."""
MOST_SUPPORTS = 5_000
"""The largest number of sets of unknowns that are tried in the search for the smallest support."""


def residue(value: int | float | Fraction) -> int:
    """Returns a number as an element of the prime field."""
    exact = Fraction(value)
    inverse: int = pow(exact.denominator, -1, PRIME)
    return exact.numerator * inverse % PRIME


class RowSpace:
    """The span of some forms in reduced row echelon form. Each row keeps the combination of forms that it is."""

    def __init__(self, forms: Sequence[Form], interesting: Collection[Unknown]) -> None:
        """Takes the forms. Only what they determine about the interesting unknowns is kept."""
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
        # Uninteresting unknowns lead first, so the remaining rows contain only interesting ones.
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
        """Returns the unknowns that are determined individually."""
        return [lead for lead, row in self.rows.items() if len(row) == 1]


def cancel_masks(forms: Sequence[Form]) -> list[tuple[Form, dict[int, int]]]:
    """Returns a basis of the whole-number combinations of forms in which all masks cancel.

    A mask is either known, or added to one vector and subtracted from another. So most of these are sums and
    differences.
    """
    wanted = {unknown for form in forms for unknown in form.terms if unknown[0] != "mask"}
    leads: dict[Unknown, int] = {}
    pivots: list[tuple[dict[Unknown, Any], dict[int, Any]]] = []
    found: list[tuple[Form, dict[int, int]]] = []
    for index, form in sorted(useful(forms, wanted), key=lambda each: len(each[1].terms)):
        row: dict[Unknown, Any] = {each: factor for each, factor in form.terms.items() if each[0] == "mask"}
        combination: dict[int, Any] = {index: 1}
        # A pivot has no entries at earlier leads, so each of them is subtracted at most once.
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
    """Returns how interesting unknowns follow from forms: fractions of whole-number sums in which all masks cancel.

    Each result is verified in exact arithmetic. Unknowns whose fractions have too many digits are left out.
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
    """Yields the forms, without those that contain an uninteresting unknown of no other form: they determine
    nothing."""
    rows = Rows.of(forms)
    return ((index, forms[index]) for index in rows.useful(rows.columns.among(wanted)).tolist())


class Echelon:
    """Rows in reduced row echelon form modulo the small prime, built row by row."""

    def __init__(self, columns: int, most: int | None = None) -> None:
        """Reserves space for `most` independent rows; by default as many as there are columns."""
        self.rows = np.zeros((columns if most is None else min(columns, most), columns), dtype=np.int64)
        self.leads: list[int] = []
        self._columns = np.zeros(len(self.rows), dtype=np.int64)
        self.used: list[int] = []
        """Numbers of the given rows that were independent of the earlier ones."""
        self._taken = 0

    def take(self, row: NDArray[np.integer]) -> bool:
        """Adds a row; says whether it was independent of the earlier ones."""
        rank, number = len(self.leads), self._taken
        self._taken += 1
        rest = row.astype(np.int64) % SMALL_PRIME
        # Every row is zero in the others' leading columns, so all of them can be subtracted at once.
        factors = rest[self._columns[:rank]]
        for hit in self._blocks(factors.nonzero()[0]):
            rest = (rest - (factors[hit, None] * self.rows[hit] % SMALL_PRIME).sum(axis=0)) % SMALL_PRIME
        found = rest.nonzero()[0]
        if not len(found):
            return False
        lead = int(found[0])
        if rest[lead] != 1:
            rest = rest * pow(int(rest[lead]), -1, SMALL_PRIME) % SMALL_PRIME
        factors = self.rows[:rank, lead]
        for touched in self._blocks(factors.nonzero()[0]):
            self.rows[touched] = (self.rows[touched] - factors[touched, None] * rest) % SMALL_PRIME
        self.rows[rank] = rest
        self._columns[rank] = lead
        self.leads.append(lead)
        self.used.append(number)
        return True

    def _blocks(self, rows: NDArray[np.intp]) -> Iterable[NDArray[np.intp]]:
        """Returns some rows in blocks, so that products of wide rows do not take much memory."""
        size = max(1, MOST_PRODUCTS // max(1, self.rows.shape[1]))
        return (rows[start : start + size] for start in range(0, len(rows), size))

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The rows that are not zero."""
        return self.rows[: len(self.leads)]

    def list_determined(self) -> list[int]:
        """Returns the columns that are determined individually."""
        alone = np.count_nonzero(self.matrix, axis=1) == 1
        return [lead for lead, single in zip(self.leads, alone, strict=True) if single]


class SmallRowSpace:
    """What some forms determine about the interesting unknowns alone, modulo the small prime."""

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
        """A basis of the row space, with one column for each interesting unknown."""

    def list_determined(self) -> list[Unknown]:
        """Returns the interesting unknowns that are determined individually."""
        single = np.count_nonzero(self.rows, axis=1) == 1
        return [self.interesting[int(row.argmax())] for row in self.rows[single]]


def _project_rows(rows: Rows, factors: Ints, place: Ints, width: int) -> Ints:
    """Returns a basis of what rows determine about the unknowns that have a place, modulo the small prime."""
    unknowns = rows.column_order()
    # Uninteresting unknowns come first, so rows lead with them as long as they contain any.
    spoken = unknowns[place[unknowns] >= 0]
    others = len(unknowns) - len(spoken)
    echelon = Echelon(len(unknowns), rows.count)
    for row in rows.dense(np.concatenate((unknowns[place[unknowns] < 0], spoken)), factors):
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
    """Returns the strict T of paper 002: the size of the smallest class of columns with equal factors in every row.

    Columns that are zero in all rows do not count. Returns None if all columns are.
    """
    spoken = rows[:, rows.any(axis=0)] if rows.size else rows
    if not spoken.size:
        return None
    return int(np.unique(spoken, axis=1, return_counts=True)[1].min())


def smallest_support(rows: NDArray[np.int64]) -> int | None:
    """Returns the relaxed T of paper 002: the least number of nonzero columns in any combination of the rows.

    This is the minimum distance of a linear code. No known method is much better than trying all sets of columns by
    size. Rows are taken modulo the small prime, and may be dependent. Returns None if there are too many sets, or if
    all rows are zero.
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
            # Some combination is zero outside these columns exactly if the other columns have a lower rank than all
            # rows.
            if _rank(np.delete(basis, columns, axis=1)) < len(basis):
                return size
    return None


def _rank(rows: NDArray[np.int64]) -> int:
    echelon = Echelon(rows.shape[1])
    return sum(echelon.take(row) for row in rows)
