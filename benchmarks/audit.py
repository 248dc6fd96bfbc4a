"""CPU time and memory of audits. There is nothing to compare with, so rows have upper limits."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tacit
from benchmarks.measure import Row, single_row
from tacit.auditing.engine.soundness.checks import check_soundness
from tacit.auditing.preflight import preflight
from tacit.auditing.scope import Scope
from tacit.core.protocol import Terms
from tacit.designs import Batches, Random, graphs
from tacit.protocols import find
from tacit.runtime.agreement import terms_for

PEAK = """
import json, sys
import tacit
tacit.audit(**json.load(sys.stdin))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
"""Program that audits the settings on its standard input, and prints its peak memory in kilobytes.

`getrusage` would count the memory of the process that started it.
"""


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields a row for each audit."""
    users, rounds = (20, 100) if quick else (200, 2000)
    drops = {"action": "drop", "message": "MaskedInput", "chance": 0.1}
    policies = {"everyone": {}, "Random(20)": {"participation": Random(10 if quick else 20)}}
    policies["Batches(20, 2)"] = {"participation": Batches(10 if quick else 20, 2), "faults": [drops]}
    for name, options in policies.items():
        yield time_audit(
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
    yield time_audit(
        f"audit of every pair, cesar, {nodes} nodes, degree {degree}",
        None if quick else 60,
        tacit.audit,
        "cesar",
        parties=nodes,
        coalition_size=2,
        graph=graphs.regular(nodes, degree),
    )
    yield from grow_parties(quick)
    yield from time_preflights(quick)
    for protocol, parties in (
        ("secagg", 5 if quick else 9),
        ("admm", 9 if quick else 15),
        ("cesar", 6 if quick else 9),
    ):
        scope = Scope(find(protocol), _terms(protocol, parties, {}))
        yield time_audit(f"guards, {protocol}, {parties} parties, one round", None, check_soundness, scope)


def grow_parties(quick: bool) -> Iterator[Row]:
    """Yields a row for each number of parties: one round, for the server or for single parties."""
    for users in (10, 20) if quick else (50, 100, 200, 300):
        name = f"audit of the server, secagg, {users} users, one round"
        yield time_audit(name, None, tacit.audit, "secagg", parties=users, coalition=["server"])
        if users in (20, 200):
            yield measure_peak(name, protocol="secagg", parties=users, coalition=["server"])
    for peers in (9,) if quick else (33, 99):
        for iterations in (4, 6):
            name = f"audit of one peer, admm, {peers} peers, {iterations} iterations"
            asked: dict[str, Any] = {"parties": peers, "coalition": ["p0"], "iterations": iterations}
            yield time_audit(name, None, tacit.audit, "admm", **asked)
            if peers < 99 and iterations == 6:
                yield measure_peak(name, protocol="admm", **asked)
    for clients in (12,) if quick else (30, 45):
        name = f"audit of every single client, masked pushsum, {clients} clients"
        yield time_audit(name, None, tacit.audit, "pushsum", parties=clients, masked=True)


def time_preflights(quick: bool) -> Iterator[Row]:
    """Yields a row for each preflight. Settings that an argument decides are not audited if that takes long."""
    sparse: dict[str, Any] = {} if quick else {"graph": {"kind": "regular", "degree": 6, "girth": 4}}
    asked: list[tuple[str, int, dict[str, Any]]] = [
        ("cesar", 6 if quick else 16, {}),
        ("secagg", 12 if quick else 100, {}),
        ("cesar", 12 if quick else 100, sparse),
        ("pushsum", 12 if quick else 100, {"masked": True, "graph": "exponential"}),
    ]
    for protocol, parties, options in asked:
        terms = _terms(protocol, parties, options)
        how = "complete" if not options else "sparse"
        name = f"preflight of every single party, {protocol}, {parties} parties, {how}"
        most = 1 if parties == 100 else None
        yield time_audit(name, most, preflight, find(protocol), terms, adversary=1, rounds=1)


def _terms(protocol: str, parties: int, options: Mapping[str, Any]) -> Terms:
    return terms_for(find(protocol), tuple(f"p{i}" for i in range(parties)), options)


def time_audit(name: str, most: float | None, work: Callable[..., Any], *arguments: Any, **options: Any) -> Row:
    """Returns the CPU time of one call. The call takes so long that it is not repeated."""
    start = time.process_time()
    work(*arguments, **options)
    seconds = time.process_time() - start
    target = None if most is None else f"at most {most:g} s"
    return Row(name, seconds, None, "s", None, target, None if most is None else seconds <= most)


def measure_peak(name: str, **asked: Any) -> Row:
    """Returns the peak memory of a process that audits some settings, with Python and all packages."""
    child = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PEAK], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return single_row(f"{name}: peak memory", int(child.stdout) / 1024, "MB", "resident, with Python and packages")
