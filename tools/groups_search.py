"""Searches for starters of `tacit.designs.groups` and writes them to its data file.

    python tools/groups_search.py starters --sizes 3 4 5 6 --users 6 100 --seconds 1
    python tools/groups_search.py randomized --sizes 3 4 5 6 --users 6 100 --seconds 1.5

The first command tries to improve on the data file, with that many CPU seconds for each attempt, and keeps
improvements. It can be stopped and restarted. The second command measures the paper's Algorithm 2, with that many CPU
seconds for each number of users and group size, for comparison in tests.

A starter is a partition of the users together with an abelian group that moves it. The users are `orbits` copies of the
abelian group, followed by users that it leaves fixed. Two pairs of users are of the same kind if the abelian group maps
one to the other. So the moved partitions have no pair in common if no kind occurs twice in the partition. That leaves a
small problem, one partition instead of many, for simulated annealing: swap two users of different groups; the cost is
the number of repeated kinds.

Needs NumPy, and Tacit for the file format. With Numba the search is a hundred times faster.
"""

import argparse
import logging
import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tacit import designs
from tacit.core.entropy import SeededEntropy
from tacit.designs.groups import LETTERS, Groups, Starter, group_sizes, groups, randomized_groups, starters

DATA = Path(designs.__file__).parent / "data"
log = logging.getLogger("groups_search")
Ints = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Returns the function compiled by Numba, or unchanged if Numba is not installed."""
    try:
        from numba import njit  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return function
    return cast(Function, njit(cache=True)(function))


class Shape(NamedTuple):
    """Form of a starter: `bases` partitions that are moved, and `still` ones that the abelian group maps to
    themselves."""

    moduli: tuple[int, ...]
    orbits: int
    bases: int
    still: int

    @property
    def total(self) -> int:
        """The number of partitions that the starter gives."""
        return self.bases * math.prod(self.moduli) + self.still


@compiled
def count(row: Ints, first: int, last: int, at: int, user: int, kinds: Ints, counts: Ints, sign: int) -> int:
    """Counts the pairs of a user at a place of a group, in or out; returns the change of the cost."""
    change = 0
    for r in range(first, last):
        if r != at:
            kind = kinds[user, row[r]]
            if sign < 0:
                counts[kind] -= 1
            change += sign * (counts[kind] > 0)
            if sign > 0:
                counts[kind] += 1
    return change


@compiled
def anneal(
    members: Ints, start: Ints, fixed: Ints, size: int, order: int, kinds: Ints, counts: Ints, steps: int, seed: int
) -> int:
    """Swaps users until no kind of pair occurs twice, or all steps are used; returns the number of repeated kinds.

    `members[b]` lists the groups of base partition b one after the other, and `start` is where each begins. `fixed[u]`
    lists one user of each orbit, in groups of `size`: a partition that the abelian group maps to itself. `counts`
    begins with 1 for kinds that must not occur at all.
    """
    np.random.seed(seed)
    bases, n = members.shape
    still, orbits = fixed.shape
    of = np.empty(n, np.int64)
    cost = 0
    for g in range(len(start) - 1):
        for p in range(start[g], start[g + 1]):
            of[p] = g
            for b in range(bases):
                cost += count(members[b], p + 1, start[g + 1], p, members[b, p], kinds, counts, 1)
    for u in range(still):
        for p in range(orbits):
            cost += count(fixed[u], p + 1, (p // size + 1) * size, p, fixed[u, p], kinds, counts, 1)
    heat, cooling = 0.6, (0.12 / 0.6) ** (1.0 / steps)
    for _ in range(steps):
        if cost == 0:
            break
        heat *= cooling
        place = np.random.randint(bases * n + still * orbits)
        if place < bases * n:
            row = members[place // n]
            p, q = place % n, np.random.randint(n)
            a, b, c, d = start[of[p]], start[of[p] + 1], start[of[q]], start[of[q] + 1]
        else:
            row = fixed[(place - bases * n) // orbits]
            p, q = (place - bases * n) % orbits, np.random.randint(orbits)
            a, c = p // size * size, q // size * size
            b, d = a + size, c + size
        x, y = row[p], row[q]
        if a == c:  # In one group there is nothing to swap, but a user can be replaced by another of its orbit.
            if place < bases * n:
                continue
            q, c, d, y = p, 0, 0, x // order * order + np.random.randint(order)
        delta = count(row, a, b, p, x, kinds, counts, -1) + count(row, c, d, q, y, kinds, counts, -1)
        delta += count(row, a, b, p, y, kinds, counts, 1) + count(row, c, d, q, x, kinds, counts, 1)
        if delta <= 0 or np.random.random() < math.exp(-delta / heat):
            row[q], row[p] = x, y
            cost += delta
        else:
            count(row, a, b, p, y, kinds, counts, -1)
            count(row, c, d, q, x, kinds, counts, -1)
            count(row, a, b, p, x, kinds, counts, 1)
            count(row, c, d, q, y, kinds, counts, 1)
    return cost


def kinds_of_pairs(n: int, moduli: tuple[int, ...], orbits: int) -> tuple[Ints, Ints]:
    """Returns the kind of each pair, and for each kind 1 if it must not occur.

    A pair that some move maps to itself would occur again in another partition.
    """
    moves = np.array(Starter(moduli, orbits, (), ()).moves(n))
    low = np.minimum(moves[:, :, None], moves[:, None, :])
    codes = low * n + np.maximum(moves[:, :, None], moves[:, None, :])
    kinds = np.unique(codes.min(axis=0), return_inverse=True)[1].reshape(n, n)
    ordered = np.sort(codes.reshape(len(moves), -1), axis=0)
    short = (ordered[1:] == ordered[:-1]).any(axis=0).reshape(n, n)
    counts = np.zeros(kinds.max() + 1, np.int64)
    counts[kinds[short]] = 1
    return kinds, counts


def search(n: int, size: int, shape: Shape, seconds: float, rng: np.random.Generator) -> Starter | None:
    """Returns a starter of that shape; None if none was found in that CPU time."""
    start = np.concatenate(([0], np.cumsum(group_sizes(n, size))))
    kinds, counts = kinds_of_pairs(n, shape.moduli, shape.orbits)
    order = math.prod(shape.moduli)
    steps, until = 100_000, time.process_time() + seconds
    while time.process_time() < until:
        members = np.array([rng.permutation(n) for _ in range(shape.bases)])
        fixed = np.array([rng.permutation(shape.orbits) * order for _ in range(shape.still)], dtype=np.int64)
        fixed = fixed.reshape(shape.still, shape.orbits)
        seed = int(rng.integers(2**31))
        if not anneal(members, start, fixed, size, order, kinds, counts.copy(), steps, seed):
            moves = np.array(Starter(shape.moduli, shape.orbits, (), ()).moves(n))
            developed = [split(row, start) for row in members]
            for row in fixed:
                blocks = row.reshape(-1, size)
                developed.append([sorted(move[block].tolist()) for block in blocks for move in moves])
            return Starter(shape.moduli, shape.orbits, tuple(as_partition(part) for part in developed), ())
        steps = min(int(steps * 1.5), 10_000_000)
    return None


def split(row: Ints, start: Ints) -> list[list[int]]:
    """Returns the groups that a row lists one after the other."""
    return [row[a:b].tolist() for a, b in pairwise(start)]


def as_partition(found: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """Returns the groups sorted, as tuples."""
    return tuple(sorted(tuple(sorted(group)) for group in found))


def complete(n: int, size: int, starter: Starter, seconds: float, rng: np.random.Generator) -> Starter:
    """Returns the starter with additional fixed partitions, made of pairs that do not occur yet."""
    start = np.concatenate(([0], np.cumsum(group_sizes(n, size))))
    kinds, counts = kinds_of_pairs(n, (1,), n)
    for partition in starter.develop(n):
        for group in partition:
            for a, b in product(group, group):
                if a < b:
                    counts[kinds[a, b]] = 1
    free = n - 1 - np.array([sum(counts[kinds[a, b]] for b in range(n) if b != a) for a in range(n)])
    extra, steps, until = list(starter.extra), 50_000, time.process_time() + seconds
    while time.process_time() < until and free.min() >= size - 1:
        row = rng.permutation(n)[None]
        if not anneal(
            row, start, np.empty((0, 0), np.int64), size, 1, kinds, counts.copy(), steps, int(rng.integers(2**31))
        ):
            extra.append(as_partition(split(row[0], start)))
            for group in extra[-1]:
                for a, b in product(group, group):
                    if a != b:
                        counts[kinds[a, b]] = 1
                        free[a] -= 1
        steps = min(int(steps * 1.5), 2_000_000)
    return starter._replace(extra=tuple(extra))


def most(n: int, size: int) -> int:
    """Returns the upper bound on the number of partitions, by the other users of each user and by the number of
    pairs."""
    sizes = group_sizes(n, size)
    used = sum(math.comb(group, 2) for group in sizes)
    return min((n - 1) // (size - 1), math.comb(n, 2) // used) if len(sizes) >= max(sizes) else 1


def shapes(n: int, size: int, total: int) -> Iterator[Shape]:
    """Yields the shapes that could give that many partitions, large abelian groups first."""
    even = n % size == 0
    for order in range(min(n, total), 0, -1):
        for still in range(min(total, n // size) if even else 1):
            bases, rest = divmod(total - still, order)
            if rest or not bases or bases > max(4, 24 // order):
                continue
            for orbits in range(n // order, 0, -1):
                alone = n - orbits * order
                if alone > n // size or (alone and orbits < bases * (size - 1)):
                    break
                if still and (alone or orbits % size):
                    continue
                if order == 1 and orbits < n:
                    continue
                if enough(n, size, Shape((order,), orbits, bases, still)):
                    yield Shape((order,), orbits, bases, still)


def enough(n: int, size: int, shape: Shape) -> bool:
    """Returns whether there are as many kinds of pairs as the shape needs."""
    order, alone = shape.moduli[0], n - shape.orbits * shape.moduli[0]
    pure = shape.orbits * ((order - 1) // 2)
    mixed = math.comb(shape.orbits, 2) * order
    needed = shape.bases * sum(math.comb(group, 2) for group in group_sizes(n, size))
    needed += shape.still * shape.orbits // size * math.comb(size, 2)
    return needed <= pure + mixed + alone * shape.orbits


def rotational(size: int, moduli: tuple[int, ...], seconds: float, rng: np.random.Generator) -> Starter | None:
    """Returns a starter of a resolvable design on the abelian group and one more user ∞; None if none was found.

    H is a subgroup of size − 1 elements. {∞} ∪ H is a group of the partition. The others are B + h, for h in H and a
    few blocks B that together have one element in each coset of H except H itself, and each difference outside H once.
    """
    moves = np.array(Starter(moduli, 1, (), ()).moves(math.prod(moduli)))
    order = len(moves)
    difference = np.array([[int(np.flatnonzero(moves[b] == a)[0]) for b in range(order)] for a in range(order)])
    for subgroup in subgroups(moves, size - 1):
        cosets = {tuple(sorted(moves[x, subgroup].tolist())) for x in range(order)}
        table = np.array(sorted(cosets - {tuple(subgroup)}))
        until, steps = time.process_time() + seconds, 100_000
        while time.process_time() < until:
            block = table[rng.permutation(len(table)), rng.integers(size - 1, size=len(table))]
            if not anneal_lifts(block, size, moves[:, subgroup], difference, steps, int(rng.integers(2**31))):
                lifted = [moves[h, b].tolist() for b in block.reshape(-1, size) for h in subgroup]
                return Starter(moduli, 1, (as_partition([[order, *subgroup], *lifted]),), ())
            steps = min(int(steps * 1.5), 5_000_000)
    return None


def subgroups(moves: Ints, order: int) -> Iterator[list[int]]:
    """Yields the subgroups of that order that one or two elements generate."""
    seen = set()
    for pair in product(range(len(moves)), repeat=2):
        found, new = {0}, {0}
        while new and len(found) <= order:
            new = {int(moves[g, x]) for g in pair for x in found} - found
            found |= new
        if len(found) == order and frozenset(found) not in seen:
            seen.add(frozenset(found))
            yield sorted(found)


@compiled
def anneal_lifts(block: Ints, size: int, cosets: Ints, difference: Ints, steps: int, seed: int) -> int:
    """Moves elements within cosets and swaps them until no difference occurs twice; returns the number of repeated
    ones."""
    np.random.seed(seed)
    heat, cooling = 1.5, (0.2 / 1.5) ** (1.0 / steps)
    counts = np.empty(len(difference), np.int64)
    cost = len(difference) * size
    for _ in range(steps):
        heat *= cooling
        p, q = np.random.randint(len(block)), np.random.randint(len(block))
        old_p, old_q = block[p], block[q]
        block[p], block[q] = old_q, old_p
        block[p] = cosets[block[p], np.random.randint(size - 1)]
        counts[:] = 0
        counts[cosets[0]] = 1
        new = 0
        for a in range(len(block)):
            for b in range(a // size * size, (a // size + 1) * size):
                if a != b:
                    d = difference[block[a], block[b]]
                    new += counts[d] > 0
                    counts[d] += 1
        if new <= cost or np.random.random() < math.exp((cost - new) / heat):
            cost = new
        else:
            block[p], block[q] = old_p, old_q
        if cost == 0:
            break
    return cost


ROTATIONAL: dict[tuple[int, int], list[tuple[int, ...]]] = {
    (28, 4): [(3, 3, 3)],
    (40, 4): [(39,)],
    (52, 4): [(51,)],
    (76, 4): [(75,), (5, 5, 3)],
    (88, 4): [(87,)],
    (100, 4): [(99,), (3, 3, 11)],
    (65, 5): [(64,), (8, 8), (16, 4)],
    (85, 5): [(84,), (2, 2, 21)],
}
"""Abelian groups to search, for parameters with a known resolvable design."""


def load() -> dict[tuple[int, int], Starter]:
    """Returns the starters in the data file."""
    return dict(starters()) if (DATA / "starters.txt").exists() else {}


def save(found: dict[tuple[int, int], Starter]) -> None:
    """Writes the data file."""
    lines = [f"{n} {size} {encode(n, starter)}" for (n, size), starter in sorted(found.items())]
    head = "# Made by tools/groups_search.py: users, size, moduli, orbits, partitions that are moved, others."
    (DATA / "starters.txt").write_text("\n".join([head, *lines, ""]))


def encode(n: int, starter: Starter) -> str:
    """Returns the starter as a line. A partition has one letter per user, equal for users of one group."""

    def letters(partitions: tuple[Any, ...]) -> str:
        found = []
        for partition in partitions:
            of = {user: letter for letter, group in zip(LETTERS, partition, strict=False) for user in group}
            found.append("".join(of[user] for user in range(n)))
        return ",".join(found) or "-"

    moduli = "x".join(map(str, starter.moduli))
    return f"{moduli} {starter.orbits} {letters(starter.moved)} {letters(starter.extra)}"


def improve(n: int, size: int, have: int, seconds: float, rng: np.random.Generator) -> Starter | None:
    """Returns a starter with more partitions than the present one; None if none was found."""
    # Many more partitions than for slightly fewer users are unlikely, and the search for them takes most of the time.
    near = max((groups(m, size).gap for m in range(max(n - 4, size), n)), default=n) + 2
    limit = most(n, size) if n < size**2 + 2 * size else min(most(n, size), near)
    for moduli in ROTATIONAL.get((n, size), []):
        if starter := rotational(size, moduli, 10 * seconds, rng):
            return starter
    # Leftover pairs often give one more partition, so totals slightly below the present one are tried too.
    for total in range(limit, max(have - 3, 0), -1):
        for shape in list(shapes(n, size, total))[:3]:
            starter = search(n, size, shape, seconds, rng)
            if starter:
                starter = complete(n, size, starter, seconds / 2, rng)
                log.info("n=%d size=%d %s -> %d of %d", n, size, shape, len(starter.develop(n)), limit)
                return starter if len(starter.develop(n)) > have else None
    return None


def search_all(arguments: argparse.Namespace) -> None:
    """Goes through the sizes and users and keeps what is better."""
    rng = np.random.default_rng(arguments.seed)
    low, high = arguments.users
    for n, size in product(range(low, high + 1), arguments.sizes):
        if n < size or (have := groups(n, size).gap) >= most(n, size):
            continue
        found = load()
        starter = improve(n, size, have, arguments.seconds, rng)
        if starter:
            Groups.of(n, size, starter.develop(n))
            save({**found, (n, size): starter})
            starters.cache_clear()
            groups.cache_clear()


def measure_randomized(arguments: argparse.Namespace) -> None:
    """Writes how many partitions Algorithm 2 finds."""
    low, high = arguments.users
    lines = [f"# Made by tools/groups_search.py randomized --seconds {arguments.seconds:g}: users, size, partitions."]
    for n, size in product(range(low, high + 1), arguments.sizes):
        if n < size or most(n, size) == 1:
            continue  # One partition always exists.
        gap = randomized_groups(n, size, entropy=SeededEntropy(n, size), seconds=arguments.seconds).gap
        log.info("n=%d size=%d: %d", n, size, gap)
        lines.append(f"{n} {size} {gap}")
        (DATA / "randomized.txt").write_text("\n".join([*lines, ""]))


def main() -> None:
    """Reads the command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("starters", "randomized"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 4, 5, 6])
    parser.add_argument("--users", type=int, nargs=2, default=[6, 100])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    {"starters": search_all, "randomized": measure_randomized}[arguments.what](arguments)


if __name__ == "__main__":
    main()
