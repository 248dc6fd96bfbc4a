"""Partitions of users into groups, such that no pair is in the same group twice (paper 000, SecureD-FL, section IV)."""

import math
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, product
from time import process_time
from typing import NamedTuple, Self, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy, SeededEntropy
from tacit.core.errors import ConfigError
from tacit.designs import fields

Group: TypeAlias = tuple[int, ...]
Blocks: TypeAlias = tuple[Group, ...]


class Groups(msgspec.Struct, frozen=True):
    """Partitions of 0 … n−1 into groups of `size` or slightly more, such that no pair is in the same group twice.

    >>> Groups.of(4, 2, [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]).gap
    2
    """

    n: int
    """Number of users."""
    size: int
    """Smallest number of users in a group."""
    partitions: tuple[Blocks, ...]
    """The partitions, each a list of groups of users."""

    @classmethod
    def of(cls, n: int, size: int, partitions: Iterable[Iterable[Iterable[int]]]) -> Self:
        """Returns the partitions, sorted and without duplicates; raises ConfigError if they are invalid."""
        ordered = (tuple(sorted(tuple(sorted(group)) for group in partition)) for partition in partitions)
        found = cls(n, size, tuple(dict.fromkeys(ordered)))
        found.verify()
        return found

    @property
    def gap(self) -> int:
        """Number of partitions: iterations before a pair is in the same group again (t_g in the paper)."""
        return len(self.partitions)

    @property
    def bound(self) -> int:
        """Upper bound on the number of partitions: in each, a user is with at least size − 1 of n − 1 others."""
        return (self.n - 1) // (self.size - 1)

    def verify(self) -> None:
        """Raises ConfigError unless partitions have every user once, valid group sizes, and no pair a second time."""
        sizes = sorted(group_sizes(self.n, self.size))
        met: dict[tuple[int, int], int] = {}
        for i, partition in enumerate(self.partitions):
            users = [user for group in partition for user in group]
            for user in users:
                if not 0 <= user < self.n:
                    raise ConfigError(f"partition {i}: user {user} is none of the {self.n} users")
            user, times = Counter(users).most_common(1)[0] if users else (0, 0)
            if times > 1:
                raise ConfigError(f"partition {i}: user {user} is in it {times} times")
            if missing := set(range(self.n)).difference(users):
                raise ConfigError(f"partition {i}: user {min(missing)} is in no group")
            if (found := sorted(map(len, partition))) != sizes:
                raise ConfigError(f"partition {i}: the groups have {found} users, not {sizes}")
            for group in partition:
                for pair in combinations(sorted(group), 2):
                    if pair in met:
                        raise ConfigError(
                            f"users {pair[0]} and {pair[1]} meet in partition {met[pair]} and again in {i}"
                        )
                    met[pair] = i


def group_sizes(n: int, size: int) -> list[int]:
    """Returns the sizes of the groups: as equal as possible, none below `size`, larger ones first."""
    problems = []
    if size < 2:
        problems.append(f"groups of {size} hide nobody; try: use size=2 or more")
    if n < max(size, 2):
        problems.append(
            f"{n} users cannot fill a group of {size}; try: use at least {max(size, 2)} users, or a smaller size"
        )
    if problems:
        raise ConfigError(problems)
    count = n // size
    return [n // count + (i < n % count) for i in range(count)]


class Starter(NamedTuple):
    """Base partitions whose translates by an abelian group are all partitions.

    The users are `orbits` copies of the group Z_m1 × Z_m2 × …, one after the other, followed by its fixed points.
    """

    moduli: tuple[int, ...]
    """The orders m1, m2, … of the cyclic factors."""
    orbits: int
    moved: tuple[Blocks, ...]
    """Partitions that the group translates."""
    extra: tuple[Blocks, ...]
    """Partitions to add as they are."""

    def moves(self, n: int) -> list[list[int]]:
        """Returns, for each element of the group, the image of every user."""
        elements = list(product(*map(range, self.moduli)))
        place = {element: i for i, element in enumerate(elements)}
        order, found = len(elements), []
        for shift in elements:
            along = [place[tuple((a + b) % m for a, b, m in zip(shift, x, self.moduli, strict=True))] for x in elements]
            turned = [orbit * order + x for orbit in range(self.orbits) for x in along]
            found.append(turned + list(range(len(turned), n)))
        return found

    def develop(self, n: int) -> list[Blocks]:
        """Returns all partitions without duplicates; some translates may coincide."""
        found: dict[Blocks, None] = {}
        for partition, move in product(self.moved, self.moves(n)):
            found[tuple(sorted(tuple(sorted(move[user] for user in group)) for group in partition))] = None
        return [*found, *self.extra]


LETTERS = string.digits + string.ascii_letters
MOST_SEARCHED = 400
"""Most users for which groups are searched. With more, only algebraic constructions are used, for reasons of time."""


@lru_cache(maxsize=1)
def starters() -> dict[tuple[int, int], Starter]:
    """Returns the stored starters that `tools/groups_search.py` found, by number of users and group size."""
    found = {}
    for line in files("tacit.designs").joinpath("data/starters.txt").read_text().splitlines():
        if not line.startswith("#"):
            n, size, moduli, orbits, moved, extra = line.split()
            found[int(n), int(size)] = Starter(
                tuple(map(int, moduli.split("x"))), int(orbits), _partitions(moved), _partitions(extra)
            )
    return found


def _partitions(letters: str) -> tuple[Blocks, ...]:
    """Parses partitions, each with a letter per user. Users with the same letter are in one group."""
    return tuple(
        tuple(tuple(i for i, letter in enumerate(row) if letter == name) for name in sorted(set(row)))
        for row in letters.split(",")
        if row != "-"
    )


@lru_cache(maxsize=64)
def groups(n: int, size: int) -> Groups:
    """Returns partitions of n users into groups of `size`, or slightly more if n is not a multiple.

    >>> design = groups(9, 3)
    >>> design.gap, design.bound
    (4, 4)
    >>> design.partitions[1]
    ((0, 3, 6), (1, 4, 7), (2, 5, 8))

    Where a construction is known, there are as many partitions as possible; otherwise as many as were found. The result
    is verified, and is the same in every call.
    """
    found = max(_ways(n, size), key=len)
    return Groups.of(n, size, found)


def _ways(n: int, size: int) -> Iterator[Sequence[Sequence[Sequence[int]]]]:
    """Yields lists of partitions: by algebra, then from stored results, then by a search if nothing is stored."""
    ways: list[Sequence[Sequence[Sequence[int]]]] = [list(way) for way in _constructions(n, size)]
    if (n, size) in starters():
        ways.append(starters()[n, size].develop(n))
    yield from ways
    if n > 100 or size not in range(3, 7):  # other sizes are stored, from a longer search
        yield from _search_groups(n, size, max(map(len, ways)))


def _constructions(n: int, size: int) -> Iterator[Iterable[list[list[int]]]]:
    """Yields the partitions of each applicable algebraic construction."""
    sizes = group_sizes(n, size)
    count, over = divmod(n, size)
    ends = np.cumsum(sizes).tolist()
    yield [[list(range(end - length, end)) for end, length in zip(ends, sizes, strict=True)]]
    if count < max(sizes):
        return  # fewer groups than users in the largest group, so no second partition can separate these users
    if size == 2 and not over:
        yield _round_robin(n)
    dimension = round(math.log(n, size))
    if size**dimension == n and fields.is_prime_power(size):
        yield fields.affine_lines(size, dimension)
    if size == 3 and n % 6 == 3:
        for q, kirkman in ((n // 2, fields.kirkman_double), (n // 3, fields.kirkman_triple)):
            if q % 6 == 1 and fields.is_prime_power(q):
                yield kirkman(q)
    if over == 0 and fields.transversal_size(count) >= size:
        # The columns of a transversal design are groups of `count` users. Each can be partitioned further.
        inner = groups(count, size).partitions if count % size == 0 else ()
        within = [[[j * count + user for user in group] for j in range(size) for group in part] for part in inner]
        yield [*fields.transversal(size, count), *within]
    if over > 0 and fields.transversal_size(count) > size:
        yield fields.transversal(size + 1, count, count - over)
    yield from _side_by_side(n, size)


def _side_by_side(n: int, size: int) -> Iterator[list[list[list[int]]]]:
    """Yields the partitions that two transversal designs give side by side, each on its own part of the users.

    Where no single design exists for n, this gives about half as many partitions as one would.
    """
    count, over = divmod(n, size)
    for half in range(count // 2, size - 1, -1):
        for a, b in ((half, count - half), (count - half, half)):
            if fields.transversal_size(a) >= size and fields.transversal_size(b) >= size + (over > 0):
                first = fields.transversal(size, a)
                second = fields.transversal(size + 1, b, b - over) if over else fields.transversal(size, b)
                yield [
                    one + [[size * a + user for user in group] for group in two]
                    for one, two in zip(first, second, strict=False)
                ]
                return


def _round_robin(n: int) -> Iterator[list[list[int]]]:
    """Yields the n − 1 rounds of a round-robin tournament: one player stays, the others rotate."""
    m = n - 1
    for turn in range(m):
        yield [[turn, m]] + [[(turn + k) % m, (turn - k) % m] for k in range(1, n // 2)]


def _search_groups(n: int, size: int, best: int) -> Iterator[list[Blocks]]:
    """Yields the result of a short search for a cyclic starter, if it has more partitions than `best`.

    All parties must find the same result on any machine. So the search counts steps instead of time, and computes in
    integers.
    """
    if n > MOST_SEARCHED or n // size < max(group_sizes(n, size)):
        return
    for percent in range(96, 12, -8):
        order = (n - 1) * percent // (100 * (size - 1))
        if order <= best:
            return
        if starter := _cyclic_starter(n, size, order):
            yield starter.develop(n)
            return


def _cyclic_starter(n: int, size: int, order: int) -> Starter | None:
    """Returns a starter for the cyclic group Z_order; None if the search finds none.

    Two pairs are of the same kind if a translation takes one to the other. If no kind occurs twice in a partition, no
    pair is in the same group twice in its translates. The search swaps users of different groups until that holds.
    """
    kinds, counts = _kinds(n, order)
    rows: list[list[int]] = []
    for length in group_sizes(n, size):
        rows.append(list(range(start := sum(map(len, rows)), start + length)))
    cost = 0
    for row in rows:
        for x, y in combinations(row, 2):
            cost += counts[kinds[x][y]] > 0
            counts[kinds[x][y]] += 1
    of = [(g, i) for g, row in enumerate(rows) for i in range(len(row))]
    steps = 300_000 // size
    words = np.frombuffer(SeededEntropy("groups", n, size, order).bytes(12 * steps), dtype="<u4").astype(np.int64)
    for step, (a, b, chance) in enumerate((words.reshape(-1, 3) % (n, n, 1000)).tolist()):
        if cost == 0:
            return Starter((order,), n // order, (tuple(map(tuple, rows)),), ())
        (g, i), (h, j) = of[a], of[b]
        if g == h:
            continue
        x, y = rows[g][i], rows[h][j]
        old = [kinds[x][z] for z in rows[g] if z != x] + [kinds[y][z] for z in rows[h] if z != y]
        new = [kinds[y][z] for z in rows[g] if z != x] + [kinds[x][z] for z in rows[h] if z != y]
        delta = 0
        for kind in old:
            counts[kind] -= 1
            delta -= counts[kind] > 0
        for kind in new:
            delta += counts[kind] > 0
            counts[kind] += 1
        # A step that is worse by one is sometimes accepted, and ever less often, to leave local minima.
        if delta <= 0 or (delta == 1 and chance * steps < 30 * (steps - step)):
            rows[g][i], rows[h][j] = y, x
            cost += delta
            continue
        for kind in old:
            counts[kind] += 1
        for kind in new:
            counts[kind] -= 1
    return None


def _kinds(n: int, order: int) -> tuple[list[list[int]], list[int]]:
    """Returns the kind of each pair, and the initial count of each kind: 1 for a kind that must not occur, else 0."""
    orbits = n // order
    users = np.arange(n)
    # Each fixed point counts as an orbit of its own.
    orbit = np.where(users < orbits * order, users // order, users - orbits * order + orbits)
    place = np.where(users < orbits * order, users % order, 0)
    low, high = np.minimum.outer(orbit, orbit), np.maximum.outer(orbit, orbit)
    distance = np.where(orbit[:, None] <= orbit, 1, -1) * (place - place[:, None]) % order
    distance = np.where(low == high, np.minimum(distance, order - distance), distance)
    # A pair that some translation maps to itself would repeat: two fixed points, or opposite users of an orbit.
    never = (low >= orbits) | ((low == high) & (2 * distance == order))
    distance = np.where(high >= orbits, 0, distance)
    codes, kinds = np.unique(np.where(never, -1, (low * n + high) * order + distance), return_inverse=True)
    return kinds.reshape(n, n).tolist(), (codes == -1).astype(int).tolist()


def randomized_groups(
    n: int,
    size: int,
    *,
    entropy: Entropy,
    trials: int | None = None,
    seconds: float | None = None,
    patience: int | None = 1000,
) -> Groups:
    """Returns the result of the paper's Algorithm 2 (Randomized-KirkmanTriple), for comparison with `groups`.

    >>> randomized_groups(9, 3, entropy=SeededEntropy(1), trials=20_000).gap
    4

    N are the users not yet placed in the partition π under construction. G is the graph of the pairs that have not been
    in the same group. If n is not a multiple of the size, larger groups are sampled first.

    As printed, the algorithm never removes a group. If a partition cannot be completed, all later trials fail; this is
    `patience=None`, which then ends early. The paper's figure of 5 partitions of 15 users takes a rule from its
    authors' code: after 1000 failures in a row, π is discarded.

    Args:
        n: Number of users.
        size: Smallest number of users in a group.
        entropy: Source of the samples. With `trials` alone, it determines the result.
        trials: Most trials; a million if neither `trials` nor `seconds` is given. The paper leaves the criterion open.
        seconds: Most CPU time.
        patience: Failures in a row after which π is discarded.
    """
    if trials is None and seconds is None:
        trials = 1_000_000
    sizes = group_sizes(n, size)
    until = math.inf if seconds is None else process_time() + seconds
    left = math.inf if trials is None else trials
    everybody = np.arange(n)
    graph = everybody[:, None] != everybody  # G
    waiting = everybody  # N
    partition: list[Group] = []  # π
    partitions: list[Blocks] = []  # Π
    failures, batch = 0, 64
    while left > 0 and len(partitions) < (n - 1) // (size - 1) and process_time() < until:
        wanted = sizes[len(partition)]
        # Trials are independent until one succeeds, so they run in batches. Those after a success do not count.
        rows = int(min(batch, left, math.inf if patience is None else patience - failures))
        samples = waiting[_samples(entropy, len(waiting), wanted, rows)]
        cliques = np.flatnonzero(_are_cliques(graph, samples))
        if len(cliques):
            left, failures, batch = left - cliques[0] - 1, 0, 64
            group = samples[cliques[0]]
            partition.append(tuple(group.tolist()))
            graph[np.ix_(group, group)] = False
            waiting = np.setdiff1d(waiting, group)
            if not len(waiting):
                partitions.append(tuple(partition))
                partition, waiting = [], everybody
            continue
        left, failures, batch = left - rows, failures + rows, min(4 * batch, 4096)
        if failures == patience:
            for taken in partition:
                graph[np.ix_(taken, taken)] = True
            graph[everybody, everybody] = False
            partition, waiting, failures, batch = [], everybody, 0, 64
        elif patience is None and failures > 4096 and not _has_clique(graph, waiting.tolist(), wanted):
            break
    return Groups.of(n, size, partitions)


def _samples(entropy: Entropy, among: int, count: int, rows: int) -> NDArray[np.int64]:
    """Returns rows of `count` distinct numbers below `among`, each row uniform up to 2^-32 (from scaling)."""
    words = np.frombuffer(entropy.bytes(4 * rows * count), dtype="<u4").astype(np.int64).reshape(count, rows)
    chosen = np.empty((0, rows), dtype=np.int64)
    for i in range(count):
        # Samples an index among the remaining numbers, then skips the taken ones, smallest first.
        drawn = words[i] * (among - i) >> 32
        for taken in chosen:
            drawn = drawn + (drawn >= taken)
        chosen = np.sort(np.vstack((chosen, drawn)), axis=0)
    return chosen.T


def _are_cliques(graph: NDArray[np.bool], samples: NDArray[np.int64]) -> NDArray[np.bool]:
    """Returns, for each sample, whether its vertices are pairwise adjacent."""
    good = np.ones(len(samples), dtype=bool)
    for i, j in combinations(range(samples.shape[1]), 2):
        good &= graph[samples[:, i], samples[:, j]]
    return good


def _has_clique(graph: NDArray[np.bool], vertices: list[int], size: int) -> bool:
    """Returns whether `size` of the vertices are pairwise adjacent."""
    if size <= 1:
        return len(vertices) >= size
    return any(
        _has_clique(graph, [w for w in vertices[i + 1 :] if graph[v, w]], size - 1)
        for i, v in enumerate(vertices[: len(vertices) - size + 1])
    )
