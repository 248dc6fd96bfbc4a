"""Symmetries of tables of ties: permutations of places that leave every table unchanged.

Ties are square tables with a row and a column for each place: the relation of place i to place j, as a number. A
permutation counts as a symmetry only after it was checked on the whole table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Permutation: TypeAlias = tuple[int, ...]
"""Where each place goes."""
Table: TypeAlias = NDArray[np.integer] | NDArray[np.bool]
Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]

MOST_PLACES = 2000
"""Most places for which symmetries are searched; with more, all places count as different."""
MOST_LOOKS = 200_000_000
"""Most places and ties that a search visits. Symmetries found by then are still valid."""


@dataclass(frozen=True)
class Symmetry:
    """The permutations that classes and moves make up together. Classes are moved as a whole, onto others as large."""

    classes: tuple[tuple[int, ...], ...]
    """Every place once. Members of a class can change places as they like."""
    moves: tuple[Permutation, ...] = ()
    """Other permutations of all places."""


def all_alike(places: int) -> Symmetry:
    """Returns the symmetry of places that differ in nothing."""
    return Symmetry((tuple(range(places)),))


def all_different(places: int) -> Symmetry:
    """Returns that of places of which no two are alike."""
    return Symmetry(tuple((place,) for place in range(places)))


def keeps(ties: Iterable[Table], move: Sequence[int] | Ints) -> bool:
    """Returns whether a permutation leaves every table unchanged."""
    order = np.asarray(move)
    if sorted(order.tolist()) != list(range(len(order))):
        return False
    return all(np.array_equal(table[np.ix_(order, order)], table) for table in ties)


def symmetry_of(ties: Sequence[Table], places: int) -> Symmetry:
    """Returns the checked symmetries of some tables; those found so far if the search takes too long."""
    if not ties:
        return all_alike(places)
    if places > MOST_PLACES:
        return all_different(places)
    tied = _merge_tables(ties)
    classes = _classes(tied)
    first = np.array([members[0] for members in classes])
    # One member represents each class, marked by the size of the class and the relation within it.
    inner = [int(tied[members[0], members[1]]) if len(members) > 1 else -1 for members in classes]
    marks = np.array([[len(members), what] for members, what in zip(classes, inner, strict=True)])
    search = _Search(tied[np.ix_(first, first)], marks)
    moves = []
    for found in search.moves():
        move = np.empty(places, dtype=np.int64)
        for members, target in zip(classes, found, strict=True):
            move[list(members)] = classes[target]
        if keeps((tied,), move):
            moves.append(tuple(move.tolist()))
    return Symmetry(tuple(classes), tuple(moves))


def _merge_tables(ties: Sequence[Table]) -> Ints:
    """Returns one table for all of them: what i is to j and j to i, as a number."""
    n = len(ties[0])
    found = np.zeros((n, n), dtype=np.int64)
    for table in (*ties, *(table.T for table in ties)):
        kinds = np.unique(table, return_inverse=True)[1].reshape(n, n)
        found = np.unique(found * (int(kinds.max()) + 1) + kinds, return_inverse=True)[1].reshape(n, n)
    return found


def _classes(tied: Ints) -> list[tuple[int, ...]]:
    """Returns the classes of places of which any two can change places, each as a sorted tuple."""
    # To change two places, they must be the same to themselves, to each other, and to all the rest. A sum of random
    # words, one for each place and what it is, says of most pairs that they are not.
    words: Words = _mix_words(_mix_words(tied.astype(np.uint64)) + np.arange(len(tied)).astype(np.uint64))
    np.fill_diagonal(words, 0)
    sums = words.sum(axis=1, dtype=np.uint64)
    classes: list[list[int]] = []
    first = np.empty(0, dtype=np.int64)
    for place in range(len(tied)):
        hits = np.flatnonzero(sums[first] - words[first, place] == sums[place] - words[place, first])
        same = (hit for hit in hits.tolist() if _can_change(tied, int(first[hit]), place))
        if (found := next(same, None)) is not None:
            classes[found].append(place)
        else:
            classes.append([place])
            first = np.append(first, place)
    return [tuple(members) for members in classes]


def _can_change(tied: Ints, a: int, b: int) -> bool:
    same = tied[a] == tied[b]
    same[[a, b]] = tied[a, a] == tied[b, b] and tied[a, b] == tied[b, a]
    return bool(same.all())


class _Search:
    """Distinguishes places by their relations, and finds the permutations that preserve all relations.

    Places have colours, and each takes on a new one by the colours of all that it is tied to, until nothing changes. To
    find a permutation that takes one place to another, both are painted, each in a copy, and the copies compared; where
    places are left that have the same colour, one more is painted in each, with every choice tried.
    """

    def __init__(self, tied: Ints, marks: Ints) -> None:
        self.n, self.tied, self.looks = len(tied), tied, 0
        kinds, counts = np.unique(tied, return_counts=True)
        # What most are to most need not be looked at: how many they are follows from all the others.
        usual = kinds[counts.argmax()]
        self.source, self.target = np.nonzero((tied != usual) & ~np.eye(self.n, dtype=bool))
        self.kind = _mix_words(tied[self.source, self.target].astype(np.uint64))
        start = np.concatenate((marks, np.diag(tied)[:, None]), axis=1).astype(np.uint64)
        self.start: Words = np.zeros(self.n, dtype=np.uint64)
        for column in start.T:
            self.start = _mix_words(self.start + column)

    def moves(self) -> list[list[int]]:
        """Returns generators of all permutations, or those that were found in time."""
        path: list[tuple[Words, int]] = []
        colours = self.refine(self.start)
        while (cell := _smallest_cell(colours)) is not None:
            path.append((colours, int(cell[0])))
            colours = self.refine(_paint(colours, int(cell[0])))
        found: list[list[int]] = []
        for colours, place in reversed(path):
            done, left = _orbit(place, found), self.refine(_paint(colours, place))
            for other in np.flatnonzero(colours == colours[place]).tolist():
                if other in done:
                    continue
                move = self.match(left, _paint(colours, other))
                if move is not None:
                    found.append(move)
                # If there is no way to it, there is none to where it can be moved.
                done |= _orbit(other if move is None else place, found)
        return found

    def match(self, left: Words, right: Words) -> list[int] | None:
        """Returns a permutation that takes colours to the refined other colours, if one is found in time."""
        right = self.refine(right)
        if self.looks > MOST_LOOKS or not np.array_equal(np.sort(left), np.sort(right)):
            return None
        cell = _smallest_cell(left)
        if cell is None:
            move = np.empty(self.n, dtype=np.int64)
            move[np.argsort(left)] = np.argsort(right)
            return move.tolist() if keeps((self.tied,), move) else None
        place = int(cell[0])
        painted = self.refine(_paint(left, place))
        for other in np.flatnonzero(right == left[place]).tolist():
            found = self.match(painted, _paint(right, other))
            if found is not None or self.looks > MOST_LOOKS:
                return found
        return None

    def refine(self, colours: Words) -> Words:
        """Returns the stable refinement of a colouring."""
        count = len(np.unique(colours))
        while count < self.n:
            self.looks += self.n + len(self.source)
            seen = np.zeros(self.n, dtype=np.uint64)
            np.add.at(seen, self.source, _mix_words(self.kind ^ colours[self.target]))
            finer = _mix_words(_mix_words(colours) + seen)
            more = len(np.unique(finer))
            if more <= count:
                break
            colours, count = finer, more
        return colours


def _mix_words(words: Words) -> Words:
    """Returns words that look random, the same for the same (the finaliser of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _paint(colours: Words, place: int) -> Words:
    painted = colours.copy()
    painted[place] = _mix_words(painted[place : place + 1] ^ np.uint64(1))[0]
    return painted


def _smallest_cell(colours: Words) -> Ints | None:
    """Returns the places of the rarest colour that several have, or None if no two have the same."""
    values, counts = np.unique(colours, return_counts=True)
    several = counts > 1
    if not several.any():
        return None
    return np.flatnonzero(colours == values[several][counts[several].argmin()])


def _orbit(place: int, moves: Sequence[Sequence[int]]) -> set[int]:
    """Returns where a place can get to."""
    found, fresh = {place}, [place]
    while fresh:
        here = fresh.pop()
        for move in moves:
            if move[here] not in found:
                found.add(move[here])
                fresh.append(move[here])
    return found
