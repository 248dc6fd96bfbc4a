"""Memory of rounds among many parties whose models are rows of one matrix, in copies of that matrix.

A training loop has one matrix with all parties' models. It passes the rows to a round, and averages are written back
into them. This measures what the protocol adds: the peak of allocated memory in a round, including the matrix.
"""

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.measure import Row
from tacit.core.suite import Update
from tacit.runtime.simulation.simulator import Simulation

PARTIES, ENTRIES = 48, 89_834
ROUNDS = 2
"""The second round includes caches, and everything that the first one kept."""


@dataclass(frozen=True)
class Case:
    """A protocol, and the number of copies of the matrix that a round may take."""

    protocol: str
    most: int | None = None
    options: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        how = [
            f"share {value}" if name == "share" else name if value is True else str(value)
            for name, value in self.options.items()
            if name != "graph"
        ]
        return " ".join([self.protocol, *how])


def cases(degree: int) -> Iterator[Case]:
    """Yields the measured cases."""
    graph: dict[str, object] = {"graph": {"kind": "regular", "degree": degree}}
    sparse = graph | {"share": 0.3}
    yield Case("fedavg", 4)
    yield Case("secagg", 4)
    for protocol in ("gossip", "cesar"):
        yield Case(protocol, 8, sparse)
        yield Case(protocol, 8, sparse | {"sparsifier": "topk"})
        yield Case(protocol, 8, sparse | {"sparsifier": "topk", "score": "change"})
        yield Case(protocol, 8, graph)
    yield Case("pushsum", None, graph | {"masked": True})


def copies(case: Case, parties: int, entries: int, rounds: int = ROUNDS) -> float:
    """Returns the peak of Python's and NumPy's allocations in the last of some rounds, in copies of the matrix."""
    names = tuple(f"p{place}" for place in range(parties))
    simulation = Simulation.of(case.protocol, names, entries, seed=0, **case.options)
    tracemalloc.start()
    try:
        matrix = np.random.default_rng(0).normal(0, 0.1, (parties, entries)).astype(np.float32)
        for _ in range(rounds):
            tracemalloc.reset_peak()
            simulation.average({name: Update(row) for name, row in zip(names, matrix, strict=True)}, out=matrix)
            matrix += 0.01  # Stands for training.
        return tracemalloc.get_traced_memory()[1] / matrix.nbytes
    finally:
        tracemalloc.stop()


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the copies of each protocol; targets are for the full size only."""
    parties, entries, degree = (12, 5_000, 4) if quick else (PARTIES, ENTRIES, 6)
    for case in cases(degree):
        found = copies(case, parties, entries)
        target, met = (None, None) if quick or case.most is None else (f"at most {case.most}", found <= case.most)
        where = f"{parties} parties, d = {entries:,}" + (f", degree {degree}" if "graph" in case.options else "")
        note = (
            f"{where}; the most that was allocated at once in round {ROUNDS}, over the matrix of everybody's models of "
            f"{parties * entries * 4 / 1e6:.1f} MB, which is counted in; read from its rows and written back into them"
        )
        yield Row(f"copies, {case}", found, None, "copies", None, target, met, note)
