"""CPU time of secagg over outbound-only links, compared with links in both directions and with plain grpc, in one run.

The rounds of the three alternate, so that other load affects all of them. See `wire` for the processes and the
baseline.
"""

from collections.abc import Iterator
from contextlib import closing
from statistics import median

from benchmarks.federation import free_ports
from benchmarks.measure import Row
from benchmarks.wire import COMPARED, ENTRIES, PARTIES, Told, ours, plain
from tacit.core.suite import SERVER

MOST_LISTENING, MOST_PLAIN = 1.1, 2.4
"""Most CPU seconds of outbound-only links, in those of links in both directions and of plain grpc."""
ROUNDS = COMPARED + 2


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the CPU seconds of a round; targets are for the full size only."""
    entries, rounds = (200_000, 3) if quick else (ENTRIES, ROUNDS)
    with (
        closing(ours("secagg", PARTIES, entries, rounds, outbound=True)) as held,
        closing(ours("secagg", PARTIES, entries, rounds)) as listening,
        closing(plain(free_ports(1)[0], PARTIES, entries * 4, rounds)) as moving,
    ):
        found = list(zip(held, listening, moving, strict=True))[1:]  # in the first round processes still load
    what = f"{PARTIES} parties and a server, d = {entries:,}"
    spent = [(_total(ours_), _total(theirs), bare) for ours_, theirs, bare in found]
    cpu, other, bare = (median(each) for each in zip(*spent, strict=True))
    split = "; ".join(
        f"{name} {median(told[SERVER][0] for told in each):.3g} s of the server"
        for name, each in zip(("held", "listening"), list(zip(*found, strict=True))[:2], strict=True)
    )
    for name, theirs, most in (
        ("links in both directions", other, MOST_LISTENING),
        ("plain grpc", bare, MOST_PLAIN),
    ):
        ratio = cpu / theirs
        yield Row(
            f"CPU of a round of secagg over outbound-only links, against {name}",
            cpu,
            theirs,
            "s",
            theirs / cpu,
            None if quick else f"at most {most:g} times theirs",
            None if quick else ratio <= most,
            f"{what}, {ratio:.2f} times theirs; {split}; all processes, the median after the first round of {rounds}",
        )


def _total(told: Told) -> float:
    return sum(each[0] for each in told.values())
