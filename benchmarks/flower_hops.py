"""A deployed round of `secagg` and of Flower's SecAgg+ by the hop: its messages, its seconds, and where they go.

Both run in turn in one run of one app, on the same SuperLink and SuperNodes. The first round of each is not counted. A
node starts a process for a message, or the worker forks one.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.flower_engines import run_deployed
from benchmarks.measure import Row, comparison_row, single_row

AT_MOST = 2.0
"""The largest ratio of a round's seconds to those of SecAgg+."""
NODES, ENTRIES, ROUNDS = 3, 1_000, 4
TOLERANCE, THEIR_TOLERANCE = 1e-5, 1e-2
ENGINES = {False: "a process for each message", True: "forked by the worker"}
"""How the process of a message starts, by whether Tacit's worker is used."""

Hop = dict[str, Any]
Call = dict[str, float]
STAGES: dict[str, Callable[[Hop, Call], float]] = {
    "until Flower starts the process of a message": lambda hop, call: call["started"] - hop["began"],
    "start of that process, with Flower's imports": lambda _, call: call["called"] - call["started"],
    "imports of the protocol": lambda _, call: call["ready"] - call["called"],
    "the app and the protocol": lambda _, call: call["left"] - call["ready"],
    "from there to the server, which then has all answers": lambda hop, call: hop["ended"] - call["left"],
}
"""Parts of a hop, which add up to it."""


def rows(models: Sequence[np.ndarray]) -> Iterator[Row]:
    """Yields the results of both engines; `models` are the vectors of the nodes."""
    for forked, engine in ENGINES.items():
        with tempfile.TemporaryDirectory() as folder:
            runs = run_deployed(Path(folder), NODES, ENTRIES, ROUNDS, beside=True, forked=forked)
        ours, theirs = ([run for run in runs if run["protocol"] == name] for name in ("secagg", "SecAgg+"))
        check_averages(ours, models, TOLERANCE)
        check_averages(theirs, models, THEIR_TOLERANCE)
        yield from compare_rounds(engine, ours, theirs)


def check_averages(runs: Sequence[Hop], models: Sequence[np.ndarray], tolerance: float) -> None:
    """Raises AssertionError if a round lost a node, or has another average."""
    for run in runs:
        assert run["lost"] == {}, f"a round in deployment lost {run['lost']}"
        off = np.abs(np.array(run["average"]) - np.mean(models, axis=0)).max()
        assert off < tolerance, f"an average in deployment is off by {off:g}"


def compare_rounds(engine: str, ours: Sequence[Hop], theirs: Sequence[Hop]) -> Iterator[Row]:
    """Yields the rows of one engine: seconds and messages of a round, and the seconds of a hop by stage."""
    what = f"of secagg on Flower, deployment, {engine}"
    first, (ours, theirs) = (ours[0]["seconds"], theirs[0]["seconds"]), (ours[1:], theirs[1:])
    pairs = [(one["seconds"], other["seconds"]) for one, other in zip(ours, theirs, strict=True)]
    ratios = ", ".join(f"{one:.1f} / {other:.1f} = {one / other:.2f}" for one, other in pairs)
    note = (
        f"{NODES} nodes, d = {ENTRIES:,}, TLS and node authentication; wall seconds, median of {len(pairs)} rounds in "
        f"turn ({ratios}); the first round, left out, took {first[0]:.1f} and {first[1]:.1f} s"
    )
    seconds = [median(each) for each in zip(*pairs, strict=True)]
    yield comparison_row(f"a round {what}, against SecAgg+", *seconds, "s", 1 / AT_MOST, note)
    counts = [mean(sum(hop["messages"] for hop in run["times"]) for run in runs) for runs in (ours, theirs)]
    yield comparison_row(f"messages of a round {what}", *counts, "", note="to nodes; each is answered once")
    hops = [[hop for run in runs for hop in run["times"] if hop["calls"]] for runs in (ours, theirs)]
    lengths = [mean(hop["ended"] - hop["began"] for hop in each) for each in hops]
    yield comparison_row(f"a hop {what}", *lengths, "s", note="mean")
    for stage, part in STAGES.items():
        parts = [mean(mean(part(hop, call) for call in hop["calls"]) for hop in each) for each in hops]
        yield single_row_beside(f"a hop {what}: {stage}", parts)


def single_row_beside(name: str, figures: Sequence[float]) -> Row:
    """Returns the row of two figures whose ratio says nothing."""
    row = single_row(name, figures[0], "s", "mean of nodes and hops")
    return Row(row.name, row.ours, figures[1], row.unit, None, None, None, row.note)
