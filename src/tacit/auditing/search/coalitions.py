"""Coalitions of one size, and the few that represent all of them by symmetry.

A coalition of size n has n parties or, where there is a server, the server and n − 1 parties. If an exchange of parties
leaves the settings unchanged, a coalition learns the same as its image under the exchange. So only one coalition of
each orbit is audited. `Terms.ties` defines what must stay unchanged; `tacit.designs.symmetry` finds the permutations
that keep it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.scope import Scope, is_count, resolve_members
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.protocol import Protocol
from tacit.core.suite import SERVER, Party
from tacit.designs.symmetry import Permutation, Symmetry, all_different, symmetry_of
from tacit.protocols import is_shipped
from tacit.runtime.simulation.faults import Fault

SAMPLE = 64
"""Size of a random sample, where there are too many coalitions."""
MOST_COALITIONS = 256
"""The largest number of coalitions of several parties that are analysed for one size."""
Ints: TypeAlias = NDArray[np.int64]

MOST_KINDS = 100_000
"""The largest number of kinds of coalitions. One of each kind is audited."""
MOST_MOVES = 20_000
"""The largest number of permutations that are enumerated."""
MOST_IMAGES = 50_000_000
"""The largest number of images of coalitions under permutations that are computed."""
MOST_SETS = 3_000_000
"""The largest number of coalitions that are enumerated at once."""


class CoalitionKind(NamedTuple):
    """Coalitions that learn the same, up to the names of parties."""

    coalition: tuple[Party, ...]
    """One of these coalitions."""
    many: int
    """Number of coalitions of this kind."""


def list_coalitions(protocol: Protocol, parties: Sequence[Party], size: int) -> Iterator[tuple[Party, ...]]:
    """Yields every coalition of a size, those with the server first."""
    if protocol.server is not None:
        yield from ((SERVER, *members) for members in combinations(parties, size - 1))
    if size < len(parties):
        yield from combinations(parties, size)


def count_coalitions(protocol: Protocol, parties: Sequence[Party], size: int) -> int:
    """Returns the number of coalitions of a size."""
    n = len(parties)
    return (math.comb(n, size - 1) if protocol.server is not None else 0) + (math.comb(n, size) if size < n else 0)


def sample_coalitions(protocol: Protocol, parties: Sequence[Party], size: int, most: int) -> list[tuple[Party, ...]]:
    """Returns all coalitions of a size. If there are more than `most`, returns a random sample, half of it with the
    server."""
    if count_coalitions(protocol, parties, size) <= most:
        return list(list_coalitions(protocol, parties, size))
    entropy = SeededEntropy("coalitions", len(parties), size)
    sampled: dict[tuple[Party, ...], None] = {}
    for turn in range(100 * most):
        server = (SERVER,) if protocol.server is not None and turn % 2 == 0 else ()
        sampled[(*server, *entropy.sample(parties, size - len(server)))] = None
    return list(islice(sampled, most))


@dataclass(frozen=True)
class CoalitionSample:
    """The coalitions of one size to analyse."""

    size: int
    kinds: tuple[CoalitionKind, ...]
    """One coalition of each kind, or a random sample."""
    coalitions: int
    """Number of all coalitions of the size."""

    @property
    def covered(self) -> int:
        """Number of coalitions that are represented."""
        return sum(kind.many for kind in self.kinds)

    @property
    def exhaustive(self) -> bool:
        """Whether all coalitions of the size are represented."""
        return self.covered >= self.coalitions


def choose_coalitions(scope: Scope, size: int, most: int) -> CoalitionSample:
    """Returns the coalitions of a size to analyse: one of each kind, or a random sample.

    If there are more kinds than `most`, the sample is small, because a few dozen show as much as a thousand.
    """
    kinds = representative_coalitions(scope, size, most)
    if kinds is None:
        some = sample_coalitions(scope.protocol, scope.parties, size, min(most, SAMPLE))
        kinds = [CoalitionKind(members, 1) for members in some]
    return CoalitionSample(size, tuple(kinds), count_coalitions(scope.protocol, scope.parties, size))


def choose_by_size(scope: Scope, adversary: int) -> list[CoalitionSample]:
    """Returns the coalitions to analyse: single parties and the server, and those of the adversary's size.

    Single parties and the server are always all analysed. There may be too many larger coalitions.
    """
    return [
        choose_coalitions(scope, size, len(scope.parties) + 1 if size == 1 else MOST_COALITIONS)
        for size in sorted({1, adversary})
    ]


def coalitions_in_question(
    protocol: Protocol, parties: Sequence[Party], coalition: Iterable[Party] | None, size: int | None
) -> list[tuple[Party, ...]]:
    """Returns the given coalition, or all of a size; by default each single party and the server.

    Raises ConfigError if there is no coalition of that size, or if both arguments are given.
    """
    if coalition is not None and size is not None:
        raise ConfigError("coalition and coalition_size exclude each other; try: give only one")
    if coalition is not None:
        return [resolve_members(coalition, parties)]
    if size is not None and (not is_count(size) or size >= len(parties)):
        raise ConfigError(
            f"coalition_size must be from 1 to {len(parties) - 1}, not {size!r}: at least one party must be outside",
            remedy=f"use at most {len(parties) - 1} of the {len(parties)} parties",
        )
    return list(list_coalitions(protocol, parties, 1 if size is None else size))


# --- symmetry -----------------------------------------------------------------------------------------------------


def find_symmetry(scope: Scope) -> Symmetry:
    """Returns which parties can be exchanged without changing the audit; none if that is uncertain.

    Parties that a fault names are fixed. Sampling, the order of messages, stand-in coroutines and given vectors make
    every party different. `Terms.ties` is trusted only for shipped protocols, whose ties are tested: the code of others
    may treat a place differently from what their terms say.
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
    """Says whether a fault affects all parties that it does not name in the same way."""
    return fault.action in ("drop", "silence") and fault.number is None and fault.chance == 1.0


def representative_coalitions(scope: Scope, size: int, most: int = MOST_KINDS) -> list[CoalitionKind] | None:
    """Returns one coalition of each kind with the size of the kind; a coalition may include the server.

    Returns None if there are more kinds than `most`, or if telling them apart would take too long.
    """
    return group_coalitions(scope.protocol, scope.parties, find_symmetry(scope), size, most)


def group_coalitions(
    protocol: Protocol, parties: Sequence[Party], alike: Symmetry, size: int, most: int = MOST_KINDS
) -> list[CoalitionKind] | None:
    """Returns one coalition of each kind under a symmetry. Those with the server are first, because it is never
    exchanged."""
    asked: list[tuple[tuple[Party, ...], int]] = [((SERVER,), size - 1)] if protocol.server is not None else []
    if size < len(parties):
        asked.append(((), size))
    found: list[CoalitionKind] = []
    for before, members in asked:
        sets = _sets(alike, members, most - len(found))
        if sets is None:
            return None
        found += [CoalitionKind((*before, *(parties[place] for place in places)), count) for places, count in sets]
    return found


def _sets(alike: Symmetry, size: int, most: int) -> list[tuple[list[int], int]] | None:
    """Returns one set of places of each kind, and the size of the kind; None if there are too many, or it takes too
    long.

    Only the number of members in each class matters. So a set is written as a sorted row of classes, each repeated as
    often as the set has members in it.
    """
    sizes = np.array([len(members) for members in alike.classes])
    of = {place: number for number, members in enumerate(alike.classes) for place in members}
    turns = sorted({tuple(of[move[members[0]]] for members in alike.classes) for move in alike.moves})
    turns = [turn for turn in turns if turn != tuple(range(len(turn)))]
    total = _count(sizes, size)
    if total == 0 or len(sizes) ** size >= 2**62:
        return [] if total == 0 else None
    if not turns:
        return None if total > most else [_expand_row(alike, row, 1) for row in _rows(sizes, size)]
    group = _group(turns, len(sizes))
    if group is not None and total > most * len(group):
        return None
    found = None if group is None else _by_group(group, sizes, size)
    if found is None:
        found = _by_turns(turns, sizes, size) if total <= MOST_SETS else None
    if found is None or len(found[0]) > most:
        return None
    return [_expand_row(alike, row, count) for row, count in zip(found[0].tolist(), found[1].tolist(), strict=True)]


def _expand_row(alike: Symmetry, row: Sequence[int], turns: int) -> tuple[list[int], int]:
    """Returns the first set with the given number of members in each class, and the number of such sets."""
    places: list[int] = []
    count = turns
    for number in dict.fromkeys(row):
        members, taken = alike.classes[number], row.count(number)
        places += members[:taken]
        count *= math.comb(len(members), taken)
    return sorted(places), count


def _count(sizes: Ints, size: int) -> int:
    """Returns the number of rows."""
    ways = [1] + [0] * size
    for room in sizes.tolist():
        ways = [sum(ways[taken - more] for more in range(min(room, taken) + 1)) for taken in range(size + 1)]
    return ways[size]


def _rows(sizes: Ints, size: int) -> Iterator[tuple[int, ...]]:
    """Yields every sorted row that contains no class more often than the class has members."""
    if (sizes == 1).all():
        yield from combinations(range(len(sizes)), size)
        return
    room = sizes.tolist()

    def fill_rows(first: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
            return
        for number in range(first, len(room)):
            for taken in range(min(room[number], left), 0, -1):
                for rest in fill_rows(number + 1, left - taken):
                    yield (number,) * taken + rest

    yield from fill_rows(0, size)


def _group(turns: Sequence[Permutation], length: int) -> Ints | None:
    """Returns all permutations that some of them generate; None if there are too many."""
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
    """Returns the least row of each kind and the size of the kind, by applying every permutation to rows, member by
    member.

    Any set is equivalent to one that extends the least row of a smaller set, so only least rows are extended.
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
            # The number of permutations that lead to the least row equals the number that fix it.
            ways[start : start + stride] = len(group) // (moved == moved.min(axis=0)).sum(axis=0)
        codes, first = np.unique(least, return_index=True)
        rows, counts = codes[:, None] // scale % classes, ways[first]
    return rows, counts


def _by_turns(turns: Sequence[Permutation], sizes: Ints, size: int) -> tuple[Ints, Ints]:
    """Returns the same by enumerating all rows and joining each to its images under the generators."""
    from scipy.sparse import coo_array  # Slow to import, and not needed for small groups, which are the most frequent.
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
