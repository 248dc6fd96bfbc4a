"""Attack on rotating groups: curious members solve the averages of overlapping groups for single vectors.

A member learns one average a round, that of its group, and who is in it. A sum of vectors that do not change is one
linear equation in them. As soon as the equations of the coalition determine a vector, it is found by least squares.
Two members of one group know all but the rest of it. In another session the same groups meet again: if a member drops
out in one of the two, the difference of the two sums is its vector.

The members use only what the deployed protocol returns to them: their own vectors, averages and contributors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.core.suite import Update
from tacit.lab.attacks.attack_result import Attack, Finding, proportion_finding
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

ENTRIES = 8
TOLERANCE = 1e-6
RANK = 1e-9


@dataclass(frozen=True)
class RotationTarget:
    """Settings of the protocol, and who attacks them over how many rounds."""

    name: str
    parties: int
    members: int = 1
    """Number of colluding parties: the first ones, who are in one group in the first round."""
    rounds: int = 1
    static: bool = True
    """Whether vectors are the same in each round."""
    sessions: int = 1
    """Number of sessions, each with these rounds. In the last one a party drops out of its first round."""
    options: Mapping[str, Any] = field(default_factory=dict)


BROKEN = (
    RotationTarget("9 parties in groups of 3, 12 rounds of the same vectors, one member", 9, rounds=12),
    RotationTarget("16 parties in groups of 4, 20 rounds of the same vectors, one member", 16, rounds=20),
    RotationTarget("9 parties in groups of 3, two members of one group", 9, 2),
    RotationTarget("16 parties in groups of 4, two sessions with the same vectors, one member", 16, sessions=2),
)
HOLDING = (
    RotationTarget("9 parties in groups of 3, 12 rounds of new vectors, one member", 9, rounds=12, static=False),
    RotationTarget(
        "16 parties in groups of 4, as many rounds of the same vectors as the gap, one member", 16, rounds=5
    ),
    RotationTarget("16 parties in groups of 4, two members of one group", 16, 2),
    RotationTarget(
        "16 parties in groups of 4, minimum 4, two sessions with the same vectors, one member",
        16,
        sessions=2,
        options={"minimum": 4},
    ),
)


def run_target(target: RotationTarget, seed: int) -> tuple[int, int]:
    """Returns how many vectors of others the members find, and how many there are."""
    rng, names = np.random.default_rng(seed), tuple(f"p{place}" for place in range(target.parties))
    vectors: list[NDArray[np.float64]] = []
    rows: list[NDArray[np.float64]] = []
    right: list[NDArray[np.float64]] = []
    own = range(target.members)
    for session in range(target.sessions):
        away = Fault(action="silence", party=names[3], round=1)
        faults = [away] if session and session == target.sessions - 1 else []
        simulation = Simulation.of(
            "rotating", names, ENTRIES, seed=seed + session, faults=faults, bits=64, allow_leaks=True, **target.options
        )
        for _ in range(target.rounds):
            if not vectors or not target.static:
                vectors += list(rng.normal(size=(target.parties, ENTRIES)))
            start = len(vectors) - target.parties
            outcome = simulation.average({name: Update(vectors[start + place]) for place, name in enumerate(names)})
            for member in own:
                ending = outcome.endings[names[member]]
                rows.append(np.zeros(target.parties * target.rounds * target.sessions))
                rows[-1][[start + names.index(each) for each in ending.contributors]] = 1.0
                right.append(len(ending.contributors) * np.asarray(ending.average))
                rows.append(np.zeros_like(rows[-1]))
                rows[-1][start + member] = 1.0
                right.append(vectors[start + member])
    return _count_found(np.array(rows)[:, : len(vectors)], np.array(right), np.array(vectors), target)


def _count_found(
    rows: NDArray[np.float64], right: NDArray[np.float64], vectors: NDArray[np.float64], target: RotationTarget
) -> tuple[int, int]:
    guesses = np.linalg.pinv(rows, rcond=RANK) @ right
    found = np.abs(guesses - vectors).max(axis=1) < TOLERANCE
    others = np.arange(len(vectors)) % target.parties >= target.members
    return int(np.count_nonzero(found & others)), int(np.count_nonzero(others))


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Recovers vectors where that is possible, and tries the rest."""
    trials, findings = 20 if full else 3, []
    for place, target in enumerate((*BROKEN, *HOLDING)):
        progress(target.name, place / (len(BROKEN) + len(HOLDING)))
        rng = np.random.default_rng([seed, place])
        seeds = rng.integers(2**31, size=trials).tolist()
        wins, tries = np.sum([run_target(target, each) for each in seeds], axis=0).tolist()
        measure = f"share of others' vectors found to {TOLERANCE:g}"
        findings.append(proportion_finding(ATTACK.name, target.name, measure, wins=wins, tries=tries))
    progress(ATTACK.name, 1.0)
    return findings


ATTACK = Attack(
    name="rotation",
    summary="curious members of rotating groups solve the averages of overlapping groups for single vectors",
    paper=PAPERS["000"],
    run=run,
)
