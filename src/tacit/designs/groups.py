"""Partitions of the users into groups in which no pair meets twice (paper 000, SecureD-FL, section IV)."""

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
    """Partitions of 0 … n−1 into groups of `size` or slightly more, in which no pair meets twice."""

    n: int
    size: int
    partitions: tuple[Blocks, ...]

    @classmethod
    def of(cls, n: int, size: int, partitions: Iterable[Iterable[Iterable[int]]]) -> Self:
        """Returns the partitions with everything sorted and nothing listed twice; raises ConfigError if unfit."""
        ordered = (tuple(sorted(tuple(sorted(group)) for group in partition)) for partition in partitions)
        found = cls(n, size, tuple(dict.fromkeys(ordered)))
        found.verify()
        return found

    @property
    def gap(self) -> int:
        """Number of partitions: iterations before two users meet again (t_g in the paper)."""
        return len(self.partitions)

    @property
    def bound(self) -> int:
        """Largest possible number of partitions: a user meets size − 1 or more of n − 1 others in each."""
        return (self.n - 1) // (self.size - 1)

    def verify(self) -> None:
        """Raises ConfigError unless each partition has everybody once, groups of the right sizes, and no pair twice."""
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
    """Returns the sizes of the groups, none below `size` and as equal as possible, larger ones first."""
    problems = []
    if size < 2:
        problems.append(f"groups of {size} hide nobody; use size=2 or more")
    if n < max(size, 2):
        problems.append(
            f"{n} users cannot fill a group of {size}; use at least {max(size, 2)} users, or a smaller size"
        )
    if problems:
        raise ConfigError(problems)
    count = n // size
    return [n // count + (i < n % count) for i in range(count)]


class Starter(NamedTuple):
    """A few partitions that an abelian group moves, so that they represent many.

    The users are `orbits` copies of the group Z_m1 × Z_m2 × …, one after the other, and those that it leaves alone.
    """

    moduli: tuple[int, ...]
    orbits: int
    moved: tuple[Blocks, ...]
    extra: tuple[Blocks, ...]

    def moves(self, n: int) -> list[list[int]]:
        """Returns where each element of the group takes each user."""
        elements = list(product(*map(range, self.moduli)))
        place = {element: i for i, element in enumerate(elements)}
        order, found = len(elements), []
        for shift in elements:
            along = [place[tuple((a + b) % m for a, b, m in zip(shift, x, self.moduli, strict=True))] for x in elements]
            turned = [orbit * order + x for orbit in range(self.orbits) for x in along]
            found.append(turned + list(range(len(turned), n)))
        return found

    def develop(self, n: int) -> list[Blocks]:
        """Returns all partitions, each one once, even if some moves leave it as it is."""
        found: dict[Blocks, None] = {}
        for partition, move in product(self.moved, self.moves(n)):
            found[tuple(sorted(tuple(sorted(move[user] for user in group)) for group in partition))] = None
        return [*found, *self.extra]


LETTERS = string.digits + string.ascii_letters
MOST_SEARCHED = 400
"""Users above which there is no search, only algebra, because it would take longer than it should."""


@lru_cache(maxsize=1)
def starters() -> dict[tuple[int, int], Starter]:
    """Returns the starters that `tools/groups_search.py` found, by users and size."""
    found = {}
    for line in files("tacit.designs").joinpath("data/starters.txt").read_text().splitlines():
        if not line.startswith("#"):
            n, size, moduli, orbits, moved, extra = line.split()
            found[int(n), int(size)] = Starter(
                tuple(map(int, moduli.split("x"))), int(orbits), _partitions(moved), _partitions(extra)
            )
    return found


def _partitions(letters: str) -> tuple[Blocks, ...]:
    """Reads partitions of which each is a letter for each user, the same for users of one group."""
    return tuple(
        tuple(tuple(i for i, letter in enumerate(row) if letter == name) for name in sorted(set(row)))
        for row in letters.split(",")
        if row != "-"
    )


@lru_cache(maxsize=64)
def groups(n: int, size: int) -> Groups:
    """Returns partitions of n users into groups of `size`, or slightly more where it does not divide n.

    As many as there can be where a construction is known; otherwise as many as were found. The same call always gives
    the same partitions, and they have been verified.
    """
    found = max(_ways(n, size), key=len)
    return Groups.of(n, size, found)


def _ways(n: int, size: int) -> Iterator[Sequence[Sequence[Sequence[int]]]]:
    """Yields the ways to partition n users: by algebra, from the stored results, and if there is none, by search."""
    ways: list[Sequence[Sequence[Sequence[int]]]] = [list(way) for way in _constructions(n, size)]
    if (n, size) in starters():
        ways.append(starters()[n, size].develop(n))
    yield from ways
    if n > 100 or size not in range(3, 7):  # within these, the stored results come from a longer search
        yield from _search_groups(n, size, max(map(len, ways)))


def _constructions(n: int, size: int) -> Iterator[Iterable[list[list[int]]]]:
    """Yields the algebraic constructions."""
    sizes = group_sizes(n, size)
    count, over = divmod(n, size)
    ends = np.cumsum(sizes).tolist()
    yield [[list(range(end - length, end)) for end, length in zip(ends, sizes, strict=True)]]
    if count < max(sizes):
        return  # those of the largest group cannot be spread over so few: there is no second partition
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
        # The columns of a transversal design are as many groups of `count`; each can be partitioned in its turn.
        inner = groups(count, size).partitions if count % size == 0 else ()
        within = [[[j * count + user for user in group] for j in range(size) for group in part] for part in inner]
        yield [*fields.transversal(size, count), *within]
    if over > 0 and fields.transversal_size(count) > size:
        yield fields.transversal(size + 1, count, count - over)
    yield from _side_by_side(n, size)


def _side_by_side(n: int, size: int) -> Iterator[list[list[list[int]]]]:
    """Yields the best that two transversal designs next to each other give, each on its own part of the users.

    About half of what one design on all users would give, where their number rules that one out.
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
    """Yields the n − 1 rounds of a tournament: one player stays, the others move around the table."""
    m = n - 1
    for turn in range(m):
        yield [[turn, m]] + [[(turn + k) % m, (turn - k) % m] for k in range(1, n // 2)]


def _search_groups(n: int, size: int, best: int) -> Iterator[list[Blocks]]:
    """Yields the result of a short search for a cyclic starter, if it is better than `best`.

    All parties must find the same on any machine, so it counts steps instead of time and computes in integers.
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
    """Returns a starter that Z_order moves, or None if the search ends without one.

    Two pairs are of the same kind if a move takes one to the other. If no kind occurs twice in a partition, no pair
    meets twice in the moved ones. Users of different groups are swapped until that is so.
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
        # A step that makes it worse by one is taken now and then, ever more seldom, to get out of dead ends.
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
    """Returns the kind of each pair, and how often each kind occurs already: once if it must not occur at all."""
    orbits = n // order
    users = np.arange(n)
    # Users that are left alone count as orbits of their own.
    orbit = np.where(users < orbits * order, users // order, users - orbits * order + orbits)
    place = np.where(users < orbits * order, users % order, 0)
    low, high = np.minimum.outer(orbit, orbit), np.maximum.outer(orbit, orbit)
    distance = np.where(orbit[:, None] <= orbit, 1, -1) * (place - place[:, None]) % order
    distance = np.where(low == high, np.minimum(distance, order - distance), distance)
    # A pair that some move takes to itself would meet again: two users left alone, or opposite ones of an orbit.
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
    """Returns what the paper's Algorithm 2 (Randomized-KirkmanTriple) finds; kept to compare with.

    N are the users not placed yet in the partition π under construction, G the graph of the pairs that have not met.
    Where the size does not divide n, larger groups are sampled first. The stopping criterion, which the paper leaves
    open, is that many trials (a million unless said otherwise) or CPU seconds, whichever is first. With `trials` alone
    the result depends on the entropy and on nothing else.

    As printed, the algorithm never takes a group back: a partition that cannot be finished is the last one, and all
    later trials fail (`patience=None`; it ends there, since more trials change nothing). What the paper reports, 5
    partitions of 15 users, takes the rule of its authors' code: after 1000 failures in a row, π is given up.
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
        # Trials are independent until one succeeds, so they are made in batches, and those after a success not counted.
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
    """Returns rows of `count` different numbers below `among`, each row uniform (but for 2^-32, by the scaling)."""
    words = np.frombuffer(entropy.bytes(4 * rows * count), dtype="<u4").astype(np.int64).reshape(count, rows)
    chosen = np.empty((0, rows), dtype=np.int64)
    for i in range(count):
        # Draw among the numbers that are left, and step over those that are taken, the smallest first.
        drawn = words[i] * (among - i) >> 32
        for taken in chosen:
            drawn = drawn + (drawn >= taken)
        chosen = np.sort(np.vstack((chosen, drawn)), axis=0)
    return chosen.T


def _are_cliques(graph: NDArray[np.bool], samples: NDArray[np.int64]) -> NDArray[np.bool]:
    good = np.ones(len(samples), dtype=bool)
    for i, j in combinations(range(samples.shape[1]), 2):
        good &= graph[samples[:, i], samples[:, j]]
    return good


def _has_clique(graph: NDArray[np.bool], vertices: list[int], size: int) -> bool:
    """Returns whether that many of the vertices are pairwise adjacent."""
    if size <= 1:
        return len(vertices) >= size
    return any(
        _has_clique(graph, [w for w in vertices[i + 1 :] if graph[v, w]], size - 1)
        for i, v in enumerate(vertices[: len(vertices) - size + 1])
    )
