"""Rounds of many parties: the cost in one process, and the speed-up with two.

Each round runs in its own process, with a tenth of the users dropping out. Its average is compared bit for bit with the
mean of vectors that were never masked.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

from benchmarks.measure import Row, comparison_row, single_row
from benchmarks.secagg import Case, Say, _check, _updates, make_simulation
from tacit.runtime.shards.pool import ForkedShards
from tacit.runtime.shards.sharded_simulation import ShardedSimulation
from tacit.runtime.simulation.simulator import Simulation

ENTRIES, DEGREE = 100_000, 32
FEW, MANY = 1_000, 10_000
WORKERS, TIMES = 2, 3
"""Number of shards, and number of alternating comparisons with one process."""
MOST_MEGABYTES = 12_000
"""Memory limit for a round of many parties: half of a machine with 24 GB."""
CODE = "import sys; from benchmarks.many import measure_rounds; measure_rounds(*map(int, sys.argv[1:]))"


@dataclass(frozen=True)
class Taken:
    """Cost of one round."""

    cpu: float
    """CPU seconds of all processes."""
    critical: float
    """CPU seconds of the simulating process plus the slowest shard, as if they never worked at the same time."""
    wall: float
    """Wall-clock seconds, which other load increases."""
    megabytes: float
    """Sum of the processes' peak memory."""


def measure_rounds(users: int, entries: int, degree: int, workers: int) -> None:
    """Simulates a round in this process or in several shards, and prints its cost."""
    case = Case(users, entries, degree)
    updates, one = _updates(case), make_simulation(case)
    with ExitStack() as stack:
        simulation: Simulation = one
        pids = []
        if workers > 1:
            agreed = one.agreement
            spread = ShardedSimulation.on(agreed.protocol, agreed.terms, entries, 0, one.faults, workers=workers)
            simulation = stack.enter_context(spread)
            assert isinstance(spread.pool, ForkedShards)
            pids = spread.pool.pids
        before, since = [_cpu(pid) for pid in pids], (time.process_time(), time.perf_counter())
        outcome = simulation.average(updates)
        here, wall = time.process_time() - since[0], time.perf_counter() - since[1]
        apart = [_cpu(pid) - spent for pid, spent in zip(pids, before, strict=True)]
        megabytes = sum(_peak(pid) for pid in (os.getpid(), *pids))
    _check(case, outcome, updates)
    print(json.dumps(asdict(Taken(here + sum(apart), here + max(apart, default=0.0), wall, megabytes))))


def _cpu(pid: int) -> float:
    """Returns the CPU time of a process so far."""
    # The name, which may contain spaces, is in brackets; the times are the 14th and 15th field.
    after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> float:
    """Returns the peak memory of a process so far, in megabytes."""
    # getrusage would include the parent process.
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def taken(users: int, entries: int, degree: int, workers: int = 1) -> Taken:
    """Returns the cost of a round, in a process of its own."""
    given = map(str, (users, entries, degree, workers))
    done = subprocess.run([sys.executable, "-c", CODE, *given], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, f"a round of {users:,} parties failed: {done.stderr.strip().splitlines()[-1:]}"
    return Taken(**json.loads(done.stdout))


def middle(several: Sequence[Taken]) -> Taken:
    """Returns the median cost of several rounds, for each figure."""
    return Taken(*(median(getattr(each, field.name) for each in several) for field in fields(Taken)))


def rows(quick: bool = False, say: Say = lambda _: None) -> Iterator[Row]:
    """Yields memory and CPU time of many parties in one process, and of fewer parties in two."""
    few, many, entries, degree = (40, 60, 1_000, 24) if quick else (FEW, MANY, ENTRIES, DEGREE)
    where = f"degree {degree}, d = {entries:,}"
    alones, spreads = [], []
    for number in range(1 if quick else TIMES):
        say(f"a round of {few:,}, time {number + 1}")
        alones.append(taken(few, entries, degree))
        say(f"the same in {WORKERS} shards, time {number + 1}")
        spreads.append(taken(few, entries, degree, WORKERS))
    less, shards = middle(alones), middle(spreads)
    say(f"a round of {many:,}")
    more = taken(many, entries, degree)
    note = f"{more.cpu:.3g} s of CPU time, {more.wall:.3g} s on a clock, with the rest of the machine as busy as it was"
    fits = None if quick else more.megabytes < MOST_MEGABYTES
    target = None if quick else f"below {MOST_MEGABYTES:,} MB"
    name = f"memory of a round in one process, N = {many:,}, {where}"
    yield Row(name, more.megabytes, None, "MB", None, target, fits, f"resident at its peak; {note}")
    name = f"memory of a round in one process, N = {few:,}, {where}"
    yield single_row(name, less.megabytes, "MB", "resident at its peak")
    each = [taken.cpu / users * 1e3 for taken, users in ((more, many), (less, few))]
    yield comparison_row(
        f"CPU time a party, N = {many:,} against {few:,}, {where}", *each, "ms", note="one process plays everybody"
    )
    name = f"CPU time on the critical path, {WORKERS} shards against one process, N = {few:,}, {where}"
    whole = f"all processes took {shards.cpu:.3g} s; the simulation's own and the slowest shard's count"
    yield comparison_row(name, shards.critical, less.critical, "s", note=f"{whole}; medians of {len(spreads)}")
    name = f"time on a clock, {WORKERS} shards against one process, N = {few:,}, {where}"
    cores = f"{os.cpu_count()} cores, with whatever else ran on them"
    yield comparison_row(name, shards.wall, less.wall, "s", note=f"{cores}; medians of {len(spreads)}")
    name = f"memory of a round in {WORKERS} shards, N = {few:,}, {where}"
    yield single_row(name, shards.megabytes, "MB", "resident, all processes together, each at its peak")
