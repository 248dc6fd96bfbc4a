"""The linear view: which unknowns follow from the forms that a coalition knows.

Every form is a row over unknowns. An unknown is exposed exactly when its unit vector lies in the row space. Rows are
eliminated modulo a prime of 2203 bits, with coefficients taken as the exact rationals that their floats are, so there
is no tolerance to choose: a wrong answer would need a determinant that happens to be divisible by that prime.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

from tacit.core.forms import Form, Unknown

PRIME = 2**2203 - 1
"""Large, so that the fractions of a recipe can be read back from their residues."""


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
