"""Paper 003, Section 5: bytes against K and E. "A larger K and a smaller E will reduce the communication cost."

The paper gives no number. We count the bytes that all users and the server of `secagg` send for T steps: T/K averages
over E of m users, where only these are asked (E₀ = E). Bytes do not depend on the vectors, so one round of each E is
counted.
"""

from typing import Any

import numpy as np

from tacit import aggregate
from tacit.core.progress import Progress
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Scale
from tacit.lab.papers.rules import Between, Estimate, NotCompared, SameOrder

USERS, ENTRIES, STEPS = 50, 20, 200
KS, ES = (1, 2, 5, 10, 25), (5, 10, 25, 50)
FALLING_K = DeclaredRow(
    f"MB sent for T = {STEPS} steps, m = E = {USERS}, K = {', '.join(map(str, KS))}",
    "a larger K reduces it",
    SameOrder("bytes are counted, so any difference is one", rising=False),
    "MB",
    ".1f",
)
FALLING_E = DeclaredRow(
    f"MB sent for T = {STEPS} steps, m = {USERS}, K = 1, E = {', '.join(map(str, ES))}",
    "a smaller E reduces it",
    SameOrder("bytes are counted, so any difference is one", rising=True),
    "MB",
    ".1f",
)
POWER = DeclaredRow(
    "power of E with which bytes grow",
    "",
    NotCompared("the paper gives none; masks are agreed pairwise, so it is above 1"),
    form=".2f",
)
SAVED = DeclaredRow(
    "bytes with E = 10 by those with E = m", "less", Between("the paper says that it is less", high=1.0), form=".3f"
)


def count_bytes(summed: int, users: int = USERS, entries: int = ENTRIES) -> int:
    """Returns the bytes that all parties send in one average over E of m users."""
    sampled: dict[str, Any] = {} if summed == users else {"sampled": summed, "oversampled": summed}
    out = aggregate([np.zeros(entries)] * users, "secagg", seed=0, **sampled)
    return sum(sum(classes.values()) for classes in out.traffic.sent.values())


def run(scale: Scale, progress: Progress) -> Result:
    """Counts bytes for every E, and for every K from those for E = m."""
    del scale
    sizes = {}
    for done, summed in enumerate(ES):
        progress(f"E = {summed}", done / len(ES))
        sizes[summed] = count_bytes(summed) / 1e6
    by_k = [sizes[USERS] * STEPS / every for every in KS]
    by_e = [sizes[summed] * STEPS for summed in ES]
    power = float(np.polyfit(np.log(ES), np.log(by_e), 1)[0])
    everybody = f"{ENTRIES} entries; whoever is not asked still sends a hello and gets the sum"
    progress("bytes", 1.0)
    return Result(
        (
            FALLING_K.measure(tuple(map(Estimate.certain, by_k)), f"{ENTRIES} entries, as 1/K"),
            FALLING_E.measure(tuple(map(Estimate.certain, by_e)), everybody),
            POWER.measure(Estimate.certain(power), everybody),
            SAVED.measure(Estimate.certain(sizes[10] / sizes[USERS]), everybody),
        ),
        (Chart("Bytes against E, K = 1", "users summed (E)", "MB", {"secagg": (ES, by_e)}, logarithmic=True),),
    )


REPRODUCTION = Reproduction(
    name="003-bytes",
    title="Bytes against K and E",
    run=run,
    declared=(FALLING_K, FALLING_E, POWER, SAVED),
    unstated=(f"m = {USERS}, d = {ENTRIES}, T = {STEPS}. E₀ = E, because nobody drops out.",),
)
