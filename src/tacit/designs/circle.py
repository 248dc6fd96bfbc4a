"""The sparse neighbour graph of Bell et al. 2020 (SecAgg+), as every client computes it for itself.

With n users and a mask for each pair, a client of secure aggregation works for n − 1 others. Joining each one to about
log n others is enough, as long as nobody could choose who its neighbours are. The order on the circle is therefore a
function of a public seed, which no party may pick alone nor know before it is settled who the members are.
"""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Collection, Sequence

import numpy as np

from tacit.core.errors import ConfigError


class Circle:
    """Members on a circle in an order drawn from the seed, each joined to the degree/2 next ones on either side.

    Why `weakest` is the number to check before unmasking a set of chosen members. Stand at an honest chosen member and
    look at the degree/2 places that follow: all of them are its neighbours. If they hold more chosen members than
    corrupted ones, one of them is chosen and honest, and shares with it a mask that the adversary does not know. So
    each honest chosen member is joined to the next one along the circle, and they are one connected piece. Take a sum
    over some but not all of a connected piece: an edge leads out of it, and the mask of that edge appears only once and
    does not cancel. The server can learn the sum of all honest chosen members, and of no arc of them.
    """

    def __init__(self, members: Sequence[int], degree: int | None, seed: bytes) -> None:
        self._members = np.array(sorted(set(members)), dtype=np.int64)
        n = len(self._members)
        if degree is not None and degree < 1:
            raise ConfigError(f"a degree of {degree} joins nobody; use 2 or more, or None to join everybody")
        # Not NumPy's generators: their streams may change from one version to the next, and all clients must agree.
        words = np.frombuffer(hashlib.shake_256(seed).digest(8 * n), dtype="<u8")
        order = np.argsort(words, kind="stable")
        self._around = self._members[order]
        self._place = np.empty(n, dtype=np.int64)
        self._place[order] = np.arange(n)
        even = n if degree is None else degree + degree % 2
        self.complete = even >= n - 1
        """Whether everybody is joined to everybody."""
        self.degree = max(n - 1, 0) if self.complete else even
        """How many neighbours each member has."""

    def holders(self, member: int) -> list[int]:
        """Returns a member and its neighbours, sorted: those who hold shares of its secrets."""
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
        """Returns those a member shares masks with, sorted, itself left out."""
        return [other for other in self.holders(member) if other != member]

    def weakest(self, chosen: Collection[int]) -> int:
        """Returns the smallest number of chosen members in any run of degree/2 places, or all in a complete graph."""
        marks = np.isin(self._around, np.fromiter(chosen, dtype=np.int64, count=len(chosen)))
        if self.complete:
            return int(marks.sum())
        run = self.degree // 2
        upto = np.concatenate(([0], np.cumsum(np.concatenate((marks, marks[: run - 1])))))
        return int((upto[run:] - upto[:-run]).min())


SAMPLE = 40
"""Consents that a user of a sparse graph checks, of those of two thirds of all users that it must receive."""


def two_thirds(users: int) -> int:
    """Returns two thirds of a number, and one more."""
    return 2 * users // 3 + 1


def secure_degree(
    n: int, corrupted: float, dropouts: float, security_bits: int = 80, failure_bits: int = 20
) -> tuple[int, int]:
    """Returns the smallest even degree k, and the threshold t, for which a circle of n users is safe and finishes.

    `corrupted` and `dropouts` are fractions of the users. The server says who takes part: as few as two thirds, and all
    the corrupted ones among them. Over the random order of such a circle, what users look at, and all its places,

    (a) except with probability 2^-security_bits, each secret has at most 2t − (k+1) − 1 corrupted holders, so that
        the holders cannot be split over two different sets (each set takes t answers, and only corrupted holders answer
        for both, so that would take 2t ≤ holders + corrupted), and each run of k/2 places has at most half as many; and
        of two different sets of one U2, one has so few honest users behind it that of nobody's holders as many as it
        takes with the corrupted ones to reach t look at none but good signatures for it (as for users with different
        U2, each lists two thirds of all in its U3, and its neighbours in it must have sealed shares for the same U2,
        which is what stops two stories);
    (b) except with probability 2^-failure_bits, t holders of each secret survive, and more members of each run survive
        than may be corrupted in it, so that `Circle.weakest` of the survivors is above t − k/2 − 1.

    A malicious server can try the circles of many sets of users offline. 40 of the 80 bits are for that. Where no
    sparse graph suffices, the degree is n − 1 and t is that of the complete graph. Raises ConfigError if even that one
    is not both safe and certain to finish.
    """
    # The nudge undoes rounding such as 0.29 · 100 = 28.999…, which would lose a corrupted user.
    c, d = (math.floor(fraction * n + 1e-9) for fraction in (corrupted, dropouts))
    t = (n + c) // 2 + 1
    if n < 2 or min(c, d) < 0 or t > n - d:
        raise ConfigError(
            f"no threshold suits {n} users of which {c} are corrupted and {d} drop out; "
            f"corrupted + 2·dropouts must stay below {n}"
        )
    if two_thirds(n) > n - d or c >= two_thirds(n):
        return n - 1, t  # too few would be left to prove agreement

    deceived = _deception_probability(n, c)

    def threshold(k: int) -> int | None:
        return _threshold(n, k, c, d, deceived, 2.0**-security_bits / n, 2.0**-failure_bits / n)

    def works(k: int) -> bool:
        return threshold(k) is not None

    # Double, then halve, so that the cost grows with log k and the large, slow degrees are tried only if needed.
    degrees = range(2, two_thirds(n) - 1, 2)
    above = 1
    while above <= len(degrees) and not works(degrees[above - 1]):
        above *= 2
    first = bisect_left(degrees, True, lo=above // 2, hi=min(above, len(degrees)), key=works)
    # Whole numbers make a larger degree fail now and then where a slightly smaller one works, so look back a little.
    while earlier := [i for i in range(max(0, first - 8), first) if works(degrees[i])]:
        first = earlier[0]
    best = threshold(degrees[first]) if first < len(degrees) else None
    return (n - 1, t) if best is None else (degrees[first], best)


def _deception_probability(n: int, c: int) -> float:
    """Returns the largest probability that a user is deceived, over all numbers of users that the server may admit.

    The maximum may be at any of them: with more users, a smaller part of their consents is checked.
    """
    users = np.arange(two_thirds(n), n + 1)
    shown = 2 * users // 3 + 1
    good = np.minimum((users + c) // 2, shown)
    chance = np.ones(len(users))
    for i in range(SAMPLE):  # if there are fewer than SAMPLE, all are checked
        chance *= np.where(i < shown, np.maximum(good - i, 0) / np.maximum(shown - i, 1), 1.0)
    return float(chance.max())


def _threshold(n: int, k: int, c: int, d: int, deceived: float, exposed: float, stuck: float) -> int | None:
    """Returns the smallest safe threshold for degree k, or None if too few would survive to reach it."""
    from scipy.stats import binom, hypergeom  # slow to import, and not needed to join a circle

    holders, run, fewest = k + 1, k // 2, two_thirds(n)

    def splits(t: int) -> float:
        spare = t - run - 1  # half of 2t − (k+1) − 1
        return float(hypergeom.sf(2 * spare, fewest, c, holders) + hypergeom.sf(spare, fewest, c, run))

    # A larger threshold is harder to split, and harder to reach, so the smallest safe one decides.
    t = bisect_left(range(holders + 1), True, lo=run + 1, key=lambda t: splits(t) <= exposed / 2)
    # t less the 2t − (k+1) − 1 corrupted ones are holders − t + 1.
    if t > holders or binom.sf(holders - t, holders, deceived) > exposed / 2:
        return None
    spare = t - run - 1
    failure = float(hypergeom.sf(holders - t, n, d, holders) + hypergeom.sf(run - spare - 1, n, d, run))
    return t if failure <= stuck else None
