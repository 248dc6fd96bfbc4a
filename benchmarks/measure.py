"""Measuring tools: CPU time, alternating comparison of two ways, peak memory, and the row of a result.

CPU time (of all threads) is measured instead of wall-clock time, because the machine may have other load. Compared ways
alternate within one run, so that other load affects both.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[], Any]

_SAMPLE_SECONDS = 0.005  # Shorter work is repeated within a sample, to exceed the resolution of the clock.


@dataclass(frozen=True)
class Row:
    """One result. `ratio` is theirs over ours: how many times cheaper ours is."""

    name: str
    ours: float
    theirs: float | None
    unit: str
    ratio: float | None
    target: str | None
    met: bool | None
    note: str = ""


@dataclass(frozen=True)
class Pair:
    """Medians of two ways measured alternately, with the range of the ratios of single samples."""

    ours: float
    theirs: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Theirs over ours."""
        return self.theirs / self.ours


def cpu_seconds(work: Work, repeats: int = 7) -> float:
    """Returns the median CPU time of one call, after a warm-up."""
    count = _calls(work)
    return median(_sample(work, count) for _ in range(repeats))


def side_by_side(ours: Work, theirs: Work, repeats: int = 7) -> Pair:
    """Returns the CPU times of both, measured alternately."""
    counts = _calls(ours), _calls(theirs)
    samples = [(_sample(ours, counts[0]), _sample(theirs, counts[1])) for _ in range(repeats)]
    ratios = [b / a for a, b in samples]
    return Pair(median(a for a, _ in samples), median(b for _, b in samples), min(ratios), max(ratios))


def peak_bytes(work: Work) -> int:
    """Returns the peak of additional memory during one call, including its results."""
    work()  # Memory that is allocated once and kept, such as caches, does not count.
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def comparison_row(
    name: str, ours: float, theirs: float, unit: str, at_least: float | None = None, note: str = ""
) -> Row:
    """Returns the row of two figures, with the required ratio if there is one."""
    ratio = theirs / ours
    target = None if at_least is None else f"at least {at_least:g}x"
    return Row(name, ours, theirs, unit, ratio, target, None if at_least is None else ratio >= at_least, note)


def timed_row(name: str, pair: Pair, at_least: float | None = None, note: str = "") -> Row:
    """Returns the row of two CPU times, in milliseconds, with the range of single ratios."""
    spread = f"ratios {pair.low:.3g} to {pair.high:.3g}"
    return comparison_row(
        name, pair.ours * 1e3, pair.theirs * 1e3, "ms", at_least, f"{spread}; {note}" if note else spread
    )


def single_row(name: str, ours: float, unit: str, note: str) -> Row:
    """Returns the row of a figure without a comparison."""
    return Row(name, ours, None, unit, None, None, None, note)


def _sample(work: Work, count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - start) / count


def _calls(work: Work) -> int:
    """Warms up, and returns the number of calls per sample."""
    work()
    return max(1, round(_SAMPLE_SECONDS / max(_sample(work, 1), 1e-7)))
