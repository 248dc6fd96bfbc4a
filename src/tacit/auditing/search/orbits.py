"""Coalitions that are alike: where the settings treat places alike, one of each kind stands for all of it.

If parties change places and nothing that the settings say is different, a coalition learns of the others what the one
in its place learnt before. So of all coalitions one of each orbit has to be audited. What counts as the same is said by
the protocol's terms (`Terms.ties`), and which permutations keep it is found and tried by `tacit.designs.symmetry`.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.scope import Scope
from tacit.core.protocol import Protocol
from tacit.core.suite import SERVER, Party
from tacit.designs.symmetry import Permutation, Symmetry, all_different, symmetry_of
from tacit.protocols import is_shipped
from tacit.runtime.faults import Fault

Ints: TypeAlias = NDArray[np.int64]

MOST_KINDS = 100_000
"""Kinds above which nobody would audit one of each."""
MOST_MOVES = 20_000
"""Permutations that are written out one by one, at most."""
MOST_IMAGES = 50_000_000
"""Coalitions that are moved, at most, in search of those that are alike,"""
MOST_SETS = 3_000_000
"""and that are written out at once."""


class Kind(NamedTuple):
    """Coalitions that learn the same of others, but for names."""

    coalition: tuple[Party, ...]
    """One of them."""
    many: int
    """How many there are."""


def symmetry(scope: Scope) -> Symmetry:
    """Returns which parties can change places in an audit without it being another; none can, if that is not certain.

    Parties that a fault names stay where they are. Luck, the order of messages, other coroutines and given vectors make
    every party different. What terms say is believed only of protocols that are shipped, of which tests try it: the
    code of others may treat a place otherwise than their terms, which they may have from elsewhere.
    """
    n, ties = len(scope.parties), scope.terms.ties() if is_shipped(scope.protocol) else None
    named = {place for fault in scope.faults for place in _places(scope, fault)}
    particular = scope.vectors is not None or scope.links is not None or scope.stand_ins
    if ties is None or particular or not all(map(_treats_alike, scope.faults)):
        return all_different(n)
    if named:
        marks = np.zeros((n, n), dtype=np.int64)
        for mark, place in enumerate(sorted(named), start=1):
            marks[place, place] = mark
        ties = (*ties, marks)
    return symmetry_of(ties, n)


def _places(scope: Scope, fault: Fault) -> list[int]:
    parties = scope.terms.parties
    return [parties.place(party) for party in (fault.party, fault.to) if party is not None and party in parties]


def _treats_alike(fault: Fault) -> bool:
    """Says whether a fault befalls all those alike whom it does not name."""
    return fault.action in ("drop", "silence") and fault.number is None and fault.chance == 1.0


def orbits(scope: Scope, size: int, most: int = MOST_KINDS) -> list[Kind] | None:
    """Returns one coalition of each kind, as many parties or the server with one fewer, and how many there are of it.

    None if there are more kinds than `most`, or it would take too long to tell them apart.
    """
    return kinds(scope.protocol, scope.parties, symmetry(scope), size, most)


def kinds(
    protocol: Protocol, parties: Sequence[Party], alike: Symmetry, size: int, most: int = MOST_KINDS
) -> list[Kind] | None:
    """Returns one coalition of each kind under some symmetry; those with the server first, which nobody replaces."""
    asked: list[tuple[tuple[Party, ...], int]] = [((SERVER,), size - 1)] if protocol.server is not None else []
    if size < len(parties):
        asked.append(((), size))
    found: list[Kind] = []
    for before, members in asked:
        sets = _sets(alike, members, most - len(found))
        if sets is None:
            return None
        found += [Kind((*before, *(parties[place] for place in places)), count) for places, count in sets]
    return found


def _sets(alike: Symmetry, size: int, most: int) -> list[tuple[list[int], int]] | None:
    """Returns one set of places of each kind, and how many there are; None if that is too many, or takes too long.

    What matters of a set is how many members it has in each class. So it is written as a sorted row of classes, each as
    often as it has members there.
    """
    sizes = np.array([len(members) for members in alike.classes])
    of = {place: number for number, members in enumerate(alike.classes) for place in members}
    turns = sorted({tuple(of[move[members[0]]] for members in alike.classes) for move in alike.moves})
    turns = [turn for turn in turns if turn != tuple(range(len(turn)))]
    total = _count(sizes, size)
    if total == 0 or len(sizes) ** size >= 2**62:
        return [] if total == 0 else None
    if not turns:
        return None if total > most else [_described(alike, row, 1) for row in _rows(sizes, size)]
    group = _group(turns, len(sizes))
    if group is not None and total > most * len(group):
        return None
    found = None if group is None else _by_group(group, sizes, size)
    if found is None:
        found = _by_turns(turns, sizes, size) if total <= MOST_SETS else None
    if found is None or len(found[0]) > most:
        return None
    return [_described(alike, row, count) for row, count in zip(found[0].tolist(), found[1].tolist(), strict=True)]


def _described(alike: Symmetry, row: Sequence[int], turns: int) -> tuple[list[int], int]:
    """Returns the first set with so many members in each class, and how many sets there are like it."""
    places: list[int] = []
    count = turns
    for number in dict.fromkeys(row):
        members, taken = alike.classes[number], row.count(number)
        places += members[:taken]
        count *= math.comb(len(members), taken)
    return sorted(places), count


def _count(sizes: Ints, size: int) -> int:
    """Returns how many rows there are."""
    ways = [1] + [0] * size
    for room in sizes.tolist():
        ways = [sum(ways[taken - more] for more in range(min(room, taken) + 1)) for taken in range(size + 1)]
    return ways[size]


def _rows(sizes: Ints, size: int) -> Iterator[tuple[int, ...]]:
    """Yields every sorted row in which no class is more often than it has members."""
    if (sizes == 1).all():
        yield from combinations(range(len(sizes)), size)
        return
    room = sizes.tolist()

    def filled(first: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
            return
        for number in range(first, len(room)):
            for taken in range(min(room[number], left), 0, -1):
                for rest in filled(number + 1, left - taken):
                    yield (number,) * taken + rest

    yield from filled(0, size)


def _group(turns: Sequence[Permutation], length: int) -> Ints | None:
    """Returns every permutation that some make up, or None if they are too many."""
    tables = [np.array(turn) for turn in turns]
    start = np.arange(length)
    found, fresh = {start.tobytes(): start}, [start]
    while fresh:
        here = fresh.pop()
        for table in tables:
            there = table[here]
            if there.tobytes() not in found:
                if len(found) >= MOST_MOVES:
                    return None
                found[there.tobytes()] = there
                fresh.append(there)
    return np.stack(list(found.values()))


def _by_group(group: Ints, sizes: Ints, size: int) -> tuple[Ints, Ints] | None:
    """Returns the least row of each kind, and how many there are of it: member by member, each row moved every way.

    Any set is alike to one that has the least row of a smaller set in it, so only those are made larger.
    """
    classes, scale = len(sizes), None
    rows, counts = np.empty((1, 0), dtype=np.int64), np.ones(1, dtype=np.int64)
    for length in range(1, size + 1):
        longer = np.concatenate(
            (np.repeat(rows, classes, axis=0), np.tile(np.arange(classes), len(rows))[:, None]), axis=1
        )
        fits = (longer == longer[:, -1:]).sum(axis=1) <= sizes[longer[:, -1]]
        scale = classes ** np.arange(length - 1, -1, -1)
        codes = np.unique(np.sort(longer[fits], axis=1) @ scale)
        if len(codes) * len(group) > MOST_IMAGES:
            return None
        least, ways = np.empty_like(codes), np.empty_like(codes)
        stride = max(1, 1_000_000 // len(group))
        for start in range(0, len(codes), stride):
            some = codes[start : start + stride, None] // scale % classes
            moved = np.sort(group[:, some], axis=2) @ scale
            least[start : start + stride] = moved.min(axis=0)
            # As many moves lead to the least row as leave it where it is.
            ways[start : start + stride] = len(group) // (moved == moved.min(axis=0)).sum(axis=0)
        codes, first = np.unique(least, return_index=True)
        rows, counts = codes[:, None] // scale % classes, ways[first]
    return rows, counts


def _by_turns(turns: Sequence[Permutation], sizes: Ints, size: int) -> tuple[Ints, Ints]:
    """Returns the same, of all rows written out and joined to where each permutation takes them."""
    from scipy.sparse import coo_array  # slow to import, and most groups are small enough to do without
    from scipy.sparse.csgraph import connected_components

    rows = np.array(list(_rows(sizes, size)), dtype=np.int64)
    scale = len(sizes) ** np.arange(size - 1, -1, -1)
    codes = rows @ scale
    order = np.argsort(codes)
    rows, codes = rows[order], codes[order]
    here = np.tile(np.arange(len(codes)), len(turns))
    there = np.concatenate([np.searchsorted(codes, np.sort(np.array(turn)[rows], axis=1) @ scale) for turn in turns])
    joined = coo_array((np.ones(len(here), dtype=bool), (here, there)), shape=(len(codes), len(codes)))
    _, piece = connected_components(joined, directed=False)
    _, first, counts = np.unique(piece, return_index=True, return_counts=True)
    return rows[first], counts
