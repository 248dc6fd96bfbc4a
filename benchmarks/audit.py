"""How long audits take. There is no peer to compare with, so these are CPU seconds, with limits to keep."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import tacit
from benchmarks.measure import Row
from tacit.designs import Batches, Random, graphs


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields a row for each audit."""
    users, rounds = (20, 100) if quick else (200, 2000)
    drops = {"action": "drop", "message": "MaskedInput", "chance": 0.1}
    policies = {"everyone": {}, "Random(20)": {"participation": Random(10 if quick else 20)}}
    policies["Batches(20, 2)"] = {"participation": Batches(10 if quick else 20, 2), "faults": [drops]}
    for name, options in policies.items():
        yield timed(
            f"audit of the server, secagg, {users} users, {rounds} rounds, {name}",
            None if quick else 30,
            tacit.audit,
            "secagg",
            parties=users,
            coalition=["server"],
            rounds=rounds,
            **options,
        )
    nodes, degree = (12, 4) if quick else (48, 6)
    yield timed(
        f"audit of every pair, cesar, {nodes} nodes, degree {degree}",
        None if quick else 60,
        tacit.audit,
        "cesar",
        parties=nodes,
        coalition_size=2,
        graph=graphs.regular(nodes, degree),
    )
    yield timed("preflight of every single party, cesar, 16 nodes, complete", None, _preflight, 6 if quick else 16)


def _preflight(parties: int) -> Any:
    return tacit.aggregate([[0.0]] * parties, "cesar")


def timed(name: str, most: float | None, work: Callable[..., Any], *arguments: Any, **options: Any) -> Row:
    """Returns the CPU time of one call. It is long enough not to be repeated."""
    start = time.process_time()
    work(*arguments, **options)
    seconds = time.process_time() - start
    target = None if most is None else f"at most {most:g} s"
    return Row(name, seconds, None, "s", None, target, None if most is None else seconds <= most)
