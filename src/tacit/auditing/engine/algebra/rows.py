"""Linear forms as sparse arrays, so that computations for each coalition run on whole arrays.

In one run every unknown has one number. Each form is converted once, whoever sees it. What a coalition knows is
assembled from these converted forms.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.symbolic.forms import Form, Unknown

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Reading: TypeAlias = Callable[[Collection[int], int], NDArray[Any]]
"""A function that converts factors, given as numerators and their common denominator, to an array."""


class Columns:
    """Numbers of unknowns, in the order in which they first occur."""

    def __init__(self) -> None:
        self.unknowns: list[Unknown] = []
        self._numbers: dict[Unknown, int] = {}
        self._evaluated: dict[Callable[[Unknown], int], Ints] = {}

    def __len__(self) -> int:
        return len(self.unknowns)

    def numbers(self, unknowns: Iterable[Unknown]) -> Ints:
        """Returns the numbers of some unknowns. Unknowns without a number get a new one."""
        found = []
        for unknown in unknowns:
            number = self._numbers.get(unknown)
            if number is None:
                number = self._numbers[unknown] = len(self.unknowns)
                self.unknowns.append(unknown)
            found.append(number)
        return np.array(found, dtype=np.int64)

    def unknowns_at(self, numbers: Ints) -> list[Unknown]:
        """Returns the unknowns that have the given numbers."""
        return [self.unknowns[number] for number in numbers.tolist()]

    def evaluate(self, about: Callable[[Unknown], int]) -> Ints:
        """Returns the value of a function for every unknown. The function is called once for each."""
        known = self._evaluated.get(about, np.empty(0, dtype=np.int64))
        if len(known) < len(self):
            fresh = np.array([about(each) for each in self.unknowns[len(known) :]], dtype=np.int64)
            self._evaluated[about] = known = np.concatenate((known, fresh))
        return known

    def among(self, unknowns: Collection[Unknown]) -> Bools:
        """Returns for every number whether its unknown is one of the given ones."""
        numbers = self.numbers(unknowns)
        found = np.zeros(len(self), dtype=np.bool_)
        found[numbers] = True
        return found


class Written:
    """A form with the numbers of its unknowns, and with converted factors on demand."""

    __slots__ = ("_form", "_values", "columns", "rounded")

    def __init__(self, form: Form, columns: Columns) -> None:
        self.columns, self._form = columns.numbers(form.numbers), form
        self.rounded = form.below != 1 and any(number % form.below for number in form.numbers.values())
        """Whether the form has fractions. Without them it is a sum of encoded vectors, which is exact in the ring."""
        self._values: dict[Reading, NDArray[Any]] = {}

    def values(self, of: Reading) -> NDArray[Any]:
        """Returns the factors as an array made by `of`, which is called once."""
        if of not in self._values:
            self._values[of] = of(self._form.numbers.values(), self._form.below)
        return self._values[of]


@dataclass(frozen=True)
class Rows:
    """Terms of some forms in order: all of them, or a part."""

    columns: Columns
    forms: Sequence[Written]
    """Forms that the terms belong to."""
    place: Ints
    """Place of each term among all terms of the forms."""
    row: Ints
    """Row of each term."""
    column: Ints
    """Number of the unknown of each term."""
    count: int
    """Number of rows, including rows without terms."""

    @classmethod
    def from_forms(cls, columns: Columns, forms: Sequence[Written]) -> "Rows":
        """Returns the rows of converted forms."""
        lengths = [len(form.columns) for form in forms]
        column = np.concatenate([form.columns for form in forms]) if forms else np.empty(0, dtype=np.int64)
        row = np.repeat(np.arange(len(forms)), lengths)
        return cls(columns, forms, np.arange(len(column)), row, column, len(forms))

    @classmethod
    def of(cls, forms: "Sequence[Form] | Rows") -> "Rows":
        """Returns the rows of forms, which are converted with new numbers if necessary."""
        if isinstance(forms, Rows):
            return forms
        columns = Columns()
        return Rows.from_forms(columns, [Written(form, columns) for form in forms])

    def values(self, of: Reading) -> NDArray[Any]:
        """Returns the factors of all terms of the forms as an array made by `of`, by their places."""
        return np.concatenate([form.values(of) for form in self.forms]) if self.forms else of((), 1)

    def nonempty(self) -> Bools:
        """Returns which rows have at least one term."""
        return np.bincount(self.row, minlength=self.count) > 0

    def _with(self, kept: Bools) -> "Rows":
        if kept.all():
            return self
        return Rows(self.columns, self.forms, self.place[kept], self.row[kept], self.column[kept], self.count)

    def only(self, kept: Bools) -> "Rows":
        """Returns the same rows without the unknowns whose numbers are not kept."""
        return self._with(kept[self.column])

    def take(self, rows: Ints) -> "Rows":
        """Returns some of the rows, in their order here."""
        if len(rows) == self.count:
            return self
        number = np.full(self.count, -1)
        number[rows] = np.arange(len(rows))
        left = self._with(number[self.row] >= 0)
        return Rows(self.columns, self.forms, left.place, number[left.row], left.column, len(rows))

    def column_order(self) -> Ints:
        """Returns the numbers of all unknowns in the order of their first term."""
        return np.array(list(dict.fromkeys(self.column.tolist())), dtype=np.int64)

    def matrix(self, columns: Ints, values: NDArray[Any]) -> NDArray[Any]:
        """Returns the rows as a matrix with a column for each given unknown, from the values of terms; others are left
        out."""
        matrix = np.zeros((self.count, len(columns)), dtype=values.dtype)
        found, here = self._find(columns)
        matrix[self.row[here], found[here]] = values[self.place[here]]
        return matrix

    def dense(self, columns: Ints, values: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yields the rows of the same matrix, which may be too large to keep."""
        found, here = self._find(columns)
        order = np.flatnonzero(here)[np.argsort(self.row[here], kind="stable")]
        bounds = np.searchsorted(self.row[order], np.arange(self.count + 1))
        for start, stop in pairwise(bounds.tolist()):
            row = np.zeros(len(columns), dtype=values.dtype)
            row[found[order[start:stop]]] = values[self.place[order[start:stop]]]
            yield row

    def _find(self, columns: Ints) -> tuple[Ints, Bools]:
        """Returns for each term the place of its unknown among the given ones, and whether it is one of them."""
        if not len(columns):
            return np.zeros(len(self.column), dtype=np.int64), np.zeros(len(self.column), dtype=np.bool_)
        order = np.argsort(columns)
        found = order[np.minimum(np.searchsorted(columns, self.column, sorter=order), len(columns) - 1)]
        return found, columns[found] == self.column

    def useful(self, wanted: Bools) -> Ints:
        """Returns the rows, without those that contain an unwanted unknown of no other row: they determine nothing."""
        left, row, column = np.ones(self.count, dtype=np.bool_), self.row, self.column
        while True:
            lonely = (np.bincount(column, minlength=len(wanted)) == 1) & ~wanted
            silent = row[lonely[column]]
            if not len(silent):
                return np.flatnonzero(left)
            left[silent] = False
            here = left[row]
            row, column = row[here], column[here]

    def peel_singles(self) -> tuple[Bools, "Rows"]:
        """Returns the unknowns that rows of one term determine, one after another, and the other rows without these
        unknowns."""
        single, rest = np.zeros(len(self.columns), dtype=np.bool_), self
        while True:
            alone = np.bincount(rest.row, minlength=self.count) == 1
            fresh = rest.column[alone[rest.row]]
            if not len(fresh):
                return single, rest.take(np.flatnonzero(rest.nonempty()))
            single[fresh] = True
            rest = rest.only(~single)

    def groups(self) -> Iterator[tuple[Ints, "Rows"]]:
        """Yields the rows in groups that share no unknown, with the numbers of the rows. Empty rows are left out."""
        filled, label = np.flatnonzero(self.nonempty()), self._labels()
        first = np.unique(label[filled])
        if len(first) <= 1:
            if len(filled):
                yield filled, self.take(filled)
            return
        order = filled[np.argsort(label[filled], kind="stable")]
        starts = np.searchsorted(label[order], first)
        number = np.empty(self.count, dtype=np.int64)
        number[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        terms = np.argsort(label[self.row], kind="stable")
        bounds = np.searchsorted(label[self.row][terms], first)
        for rows, some in zip(np.split(order, starts[1:]), np.split(terms, bounds[1:]), strict=True):
            row, column = number[self.row[some]], self.column[some]
            yield rows, Rows(self.columns, self.forms, self.place[some], row, column, len(rows))

    def _labels(self) -> Ints:
        """Returns for each row the number of the first row that it is connected to by shared unknowns, directly or
        indirectly."""
        label = np.arange(self.count)
        while True:
            least = np.full(len(self.columns), self.count)
            np.minimum.at(least, self.column, label[self.row])
            new = label.copy()
            np.minimum.at(new, self.row, least[self.column])
            new = new[new]
            if np.array_equal(new, label):
                return label
            label = new
