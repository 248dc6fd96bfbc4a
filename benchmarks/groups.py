"""Partitions into groups in which no pair occurs twice, compared with Algorithm 2 of paper 000, Section IV.

The figures are numbers of partitions, so more is better, and the ratio is ours over theirs. Algorithm 2 gets the same
CPU time, and the rule by which its authors' code gives up a partition that it cannot finish.
"""

import time
from collections.abc import Iterator

from benchmarks.measure import Row
from tacit.core.entropy import SeededEntropy
from tacit.designs import groups, randomized_groups

CASES = {
    3: (9, 15, 27, 45, 50, 69, 99),
    4: (28, 40, 52, 62, 100),
    5: (25, 65, 97),
    6: (49, 100),
}
"""Numbers of users, by the size of the groups."""


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields a row for each number of users and size of groups."""
    least = 0.2 if quick else 30.0
    for size, n in ((size, n) for size, users in CASES.items() for n in (users[:2] if quick else users)):
        groups.cache_clear()
        start = time.process_time()
        ours = groups(n, size)
        spent = time.process_time() - start
        seconds = max(least, spent)
        theirs = randomized_groups(n, size, entropy=SeededEntropy(n, size), seconds=seconds)
        ratio = ours.gap / max(theirs.gap, 1)
        note = f"bound {ours.bound}; CPU time {spent * 1e3:.0f} ms, theirs {seconds:g} s"
        name = f"groups of {size}, n = {n}"
        yield Row(name, ours.gap, theirs.gap, "partitions", ratio, "at least 1x", ratio >= 1, note)
