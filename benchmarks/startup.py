"""Start-up: CPU time of fresh processes that import Tacit, compared with one that imports its dependencies."""

import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.measure import Row, comparison_row

FOUNDATION = "import numpy, msgspec, cryptography"
IMPORTS = {
    "import tacit": 1.5,
    "from tacit import aggregate, audit, plan, train, Federation": None,
}
"""Our imports, with the largest ratio of their CPU time to that of the dependencies."""
HELP = ("-m", "tacit", "--help")
HELP_SECONDS = 0.5


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the medians of alternately started processes; targets are for the full number of repeats only."""
    repeats = 1 if quick else 15
    commands = [("-c", FOUNDATION), *(("-c", each) for each in IMPORTS), HELP]
    for command in commands:
        _cpu_seconds(command)  # Compiles changed files.
    samples = [[_cpu_seconds(command) for command in commands] for _ in range(repeats)]
    theirs, *ours, shown = (median(each) for each in zip(*samples, strict=True))
    for (name, most), seconds in zip(IMPORTS.items(), ours, strict=True):
        note = f"{seconds / theirs:.2f} times {FOUNDATION!r}"
        yield comparison_row(name, seconds * 1e3, theirs * 1e3, "ms", 1 / most if most and not quick else None, note)
    target, met = (None, None) if quick else (f"at most {HELP_SECONDS * 1e3:g} ms", shown <= HELP_SECONDS)
    yield Row("tacit --help", shown * 1e3, None, "ms", None, target, met, "depends on the machine, and how busy it is")


def _cpu_seconds(arguments: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
