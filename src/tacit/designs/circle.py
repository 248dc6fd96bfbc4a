"""The sparse neighbour graph of Bell et al. 2020 (SecAgg+), which every client computes for itself.

With a mask for each pair of n users, a client of secure aggregation computes n − 1 masks. About log n neighbours per
client are enough if nobody can choose who its neighbours are. So a public seed determines the order on the circle. No
party may choose the seed alone, or know it before the members are fixed.
"""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Collection, Sequence

import numpy as np

from tacit.core.errors import ConfigError


class Circle:
    """Members on a circle, in an order given by the seed. Each is joined to the degree/2 next ones on either side.

    >>> circle = Circle(range(8), 4, b"public seed")
    >>> len(circle.neighbours(0)), circle.weakest(range(8))
    (4, 2)

    Before a client helps to unmask the sum of a set of chosen members, it checks `weakest`. The argument is as follows.
    Take an honest chosen member and the degree/2 places that follow it. All of them are its neighbours. If they contain
    more chosen members than corrupted ones, at least one of them is chosen and honest, and shares a mask with it that
    the adversary does not know. So each honest chosen member is connected to the next one along the circle, and all of
    them form one connected component. In a sum over a proper subset of the component, some edge leads out of the
    subset, and its mask appears once and does not cancel. So the server can learn the sum of all honest chosen members,
    but not that of a proper subset.

    Args:
        members: The numbers of the members.
        degree: Neighbours of each member, rounded up to an even number; None joins all pairs.
        seed: The public seed.
    """

    def __init__(self, members: Sequence[int], degree: int | None, seed: bytes) -> None:
        self._members = np.array(sorted(set(members)), dtype=np.int64)
        n = len(self._members)
        if degree is not None and degree < 1:
            raise ConfigError(
                f"a graph of degree {degree} is not connected; try: 2 or more, or None for all neighbours"
            )
        # Not NumPy's generators: their streams may change from one version to the next, and all clients must agree.
        words = np.frombuffer(hashlib.shake_256(seed).digest(8 * n), dtype="<u8")
        order = np.argsort(words, kind="stable")
        self._around = self._members[order]
        self._place = np.empty(n, dtype=np.int64)
        self._place[order] = np.arange(n)
        even = n if degree is None else degree + degree % 2
        self.complete = even >= n - 1
        """Whether all pairs are joined."""
        self.degree = max(n - 1, 0) if self.complete else even
        """Number of neighbours of each member."""

    def holders(self, member: int) -> list[int]:
        """Returns the holders of shares of a member's secrets, sorted: the member itself and its neighbours."""
        at = int(np.searchsorted(self._members, member))
        if at == len(self._members) or self._members[at] != member:
            raise KeyError(member)
        if self.complete:
            found: list[int] = self._members.tolist()
        else:
            start, stop = self._place[at] - self.degree // 2, self._place[at] + self.degree // 2 + 1
            found = self._around.take(np.arange(start, stop), mode="wrap").tolist()
        return sorted(found)

    def neighbours(self, member: int) -> list[int]:
        """Returns the neighbours of a member, sorted: those it shares masks with."""
        return [other for other in self.holders(member) if other != member]

    def weakest(self, chosen: Collection[int]) -> int:
        """Returns the fewest chosen members in any run of degree/2 places; in a complete graph, the number of all."""
        marks = np.isin(self._around, np.fromiter(chosen, dtype=np.int64, count=len(chosen)))
        if self.complete:
            return int(marks.sum())
        run = self.degree // 2
        upto = np.concatenate(([0], np.cumsum(np.concatenate((marks, marks[: run - 1])))))
        return int((upto[run:] - upto[:-run]).min())


SAMPLE = 40
"""Number of consents that a user of a sparse graph verifies, out of those that the server has to send it."""


def two_thirds(users: int) -> int:
    """Returns the smallest integer above two thirds of a number."""
    return 2 * users // 3 + 1


def secure_degree(
    n: int, corrupted: float, dropouts: float, security_bits: int = 80, failure_bits: int = 20
) -> tuple[int, int]:
    """Returns the smallest even degree k, and the threshold t, with which a circle of n users is safe and completes.

    >>> secure_degree(1000, corrupted=0.05, dropouts=0.1)
    (144, 108)

    In the worst case the server admits only two thirds of the users, with all corrupted ones among them. The guarantees
    hold over the random order of the circle and the signatures that users sample, for all places of the circle:

    (a) Safety, except with probability 2^-security_bits. Each secret has at most 2t − (k+1) − 1 corrupted holders.
        Then its holders cannot unmask two different sets: each set takes t answers, and only corrupted holders answer
        for both, which would take 2t ≤ holders + corrupted. Each run of k/2 places has at most half as many corrupted
        users. The server cannot get two different sets for the same U2 accepted either. An honest user consents to one
        set only, so one of the two sets has few valid consents. Each user verifies a sample of the consents, and for no
        secret do enough holders sample only valid ones to reach t together with the corrupted holders. Users with
        different U2 are no help to the server: each accepts only a U3 of two thirds of all users, in which its
        neighbours must have sealed shares for the same U2.
    (b) Completion, except with probability 2^-failure_bits. Of each secret, t holders survive. In each run more members
        survive than may be corrupted there, so that `Circle.weakest` of the survivors is above t − k/2 − 1.

    A malicious server can evaluate the circles of many sets of users offline; 40 of the default 80 bits allow for that.
    If no sparse graph suffices, the degree is n − 1 and t is that of the complete graph.

    Args:
        n: Number of users.
        corrupted: Fraction of the users that may be corrupted.
        dropouts: Fraction of the users that may drop out.
        security_bits: Bits of security of (a).
        failure_bits: Bits of certainty of (b).

    Raises:
        ConfigError: Even a complete graph is not both safe and certain to complete.
    """
    # The small addend undoes rounding such as 0.29 · 100 = 28.999…, which would drop a corrupted user.
    c, d = (math.floor(fraction * n + 1e-9) for fraction in (corrupted, dropouts))
    t = (n + c) // 2 + 1
    if n < 2 or min(c, d) < 0 or t > n - d:
        raise ConfigError(
            f"no threshold suits {n} users if {c} are corrupted and {d} drop out; "
            f"corrupted + 2·dropouts must stay below {n}"
        )
    if two_thirds(n) > n - d or c >= two_thirds(n):
        return n - 1, t  # too few users would be left to prove their agreement

    deceived = _deception_probability(n, c)

    def threshold(k: int) -> int | None:
        return _threshold(n, k, c, d, deceived, 2.0**-security_bits / n, 2.0**-failure_bits / n)

    def works(k: int) -> bool:
        return threshold(k) is not None

    # Doubling and then bisecting makes the cost grow with log k, and avoids large degrees, which are slow to check.
    degrees = range(2, two_thirds(n) - 1, 2)
    above = 1
    while above <= len(degrees) and not works(degrees[above - 1]):
        above *= 2
    first = bisect_left(degrees, True, lo=above // 2, hi=min(above, len(degrees)), key=works)
    # Because of rounding, a larger degree may fail where a slightly smaller one works. So smaller ones are tried.
    while earlier := [i for i in range(max(0, first - 8), first) if works(degrees[i])]:
        first = earlier[0]
    best = threshold(degrees[first]) if first < len(degrees) else None
    return (n - 1, t) if best is None else (degrees[first], best)


def _deception_probability(n: int, c: int) -> float:
    """Returns the largest probability that a user is deceived, over all numbers of users that the server may admit.

    The maximum may be at any number: with more users, a smaller fraction of the consents is verified.
    """
    users = np.arange(two_thirds(n), n + 1)
    shown = 2 * users // 3 + 1
    good = np.minimum((users + c) // 2, shown)
    chance = np.ones(len(users))
    for i in range(SAMPLE):  # with fewer than SAMPLE consents, all are verified
        chance *= np.where(i < shown, np.maximum(good - i, 0) / np.maximum(shown - i, 1), 1.0)
    return float(chance.max())


def _threshold(n: int, k: int, c: int, d: int, deceived: float, exposed: float, stuck: float) -> int | None:
    """Returns the smallest safe threshold for degree k; None if too few holders would survive to reach it."""
    from scipy.stats import binom, hypergeom  # slow to import, and not needed to compute a circle

    holders, run, fewest = k + 1, k // 2, two_thirds(n)

    def splits(t: int) -> float:
        spare = t - run - 1  # half of 2t − (k+1) − 1
        return float(hypergeom.sf(2 * spare, fewest, c, holders) + hypergeom.sf(spare, fewest, c, run))

    # With a larger threshold splits are rarer, but fewer rounds complete. So the smallest safe threshold is best.
    t = bisect_left(range(holders + 1), True, lo=run + 1, key=lambda t: splits(t) <= exposed / 2)
    # t minus the 2t − (k+1) − 1 corrupted holders is holders − t + 1.
    if t > holders or binom.sf(holders - t, holders, deceived) > exposed / 2:
        return None
    spare = t - run - 1
    failure = float(hypergeom.sf(holders - t, n, d, holders) + hypergeom.sf(run - spare - 1, n, d, run))
    return t if failure <= stuck else None
