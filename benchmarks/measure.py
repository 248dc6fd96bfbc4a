"""Tools to measure with: CPU time, two ways side by side, peak memory, and the row that a result becomes.

CPU time (of all threads) instead of wall time, because the machine may be busy with other work. Whatever is compared is
measured alternately in the same run, so that a busy spell hits both.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[], Any]

_SAMPLE_SECONDS = 0.005  # shorter work is repeated within a sample, well above the resolution of the clock


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
    """Returns the CPU times of both, measured in turn."""
    counts = _calls(ours), _calls(theirs)
    samples = [(_sample(ours, counts[0]), _sample(theirs, counts[1])) for _ in range(repeats)]
    ratios = [b / a for a, b in samples]
    return Pair(median(a for a, _ in samples), median(b for _, b in samples), min(ratios), max(ratios))


def peak_bytes(work: Work) -> int:
    """Returns the most memory that was in use during one call, beyond what was in use before, results included."""
    work()  # what is allocated once and kept, such as caches, does not count
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
    """Returns the row of two figures, with the ratio to reach if there is one."""
    ratio = theirs / ours
    target = None if at_least is None else f"at least {at_least:g}x"
    return Row(name, ours, theirs, unit, ratio, target, None if at_least is None else ratio >= at_least, note)


def timed_row(name: str, pair: Pair, at_least: float | None = None, note: str = "") -> Row:
    """Returns the row of two CPU times, in milliseconds, and says how far single ratios were apart."""
    spread = f"ratios {pair.low:.3g} to {pair.high:.3g}"
    return comparison_row(
        name, pair.ours * 1e3, pair.theirs * 1e3, "ms", at_least, f"{spread}; {note}" if note else spread
    )


def single_row(name: str, ours: float, unit: str, note: str) -> Row:
    """Returns the row of a figure that there is nothing to compare with."""
    return Row(name, ours, None, unit, None, None, None, note)


def _sample(work: Work, count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - start) / count


def _calls(work: Work) -> int:
    """Warms up, and returns how many calls make a sample."""
    work()
    return max(1, round(_SAMPLE_SECONDS / max(_sample(work, 1), 1e-7)))
