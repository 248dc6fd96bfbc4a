"""Guards on random settings of the protocols that are shipped, as thorough as on those of others: no false alarm."""

import numpy as np
import pytest
from test_numeric_auditor import QUESTIONS, coalitions, scope_of, settled

from tacit.auditing.engine.mask_rank import hides_last_bits
from tacit.auditing.engine.soundness.checks import SEVERAL_ROUNDS, Guard
from tacit.auditing.engine.symbolic_run import SymbolicRun

QUICK = {"fedavg": 2, "gossip": 2, "admm": 1, "pushsum": 1, "cesar": 1, "secagg": 1, "sparse secagg": 1}
MANY = {
    "fedavg": 30,
    "gossip": 30,
    "admm": 15,
    "pushsum": 25,
    "cesar": 30,
    "secagg": 30,
    "sparse secagg": 20,
    "long secagg": 20,
}
CLIPS = (0.01, 1.0, 32.0, 1000.0)
LENGTH = 500
"""Of long vectors: what is tried is whether they are treated alike, and not how fast."""


def settings_of(kind, seed, number):
    """Returns the scope of a random question with a random clip and largest weight, and two coalitions."""
    ask, protocol = QUESTIONS[kind]
    chance = np.random.default_rng([seed, number])

    def draw(chance):
        # The mass of push-sum has to fit in its ring as well as any entry.
        clips = CLIPS[2:] if protocol == "pushsum" else CLIPS
        more = {"clip": float(chance.choice(clips)), "max_weight": float(chance.choice([1.0, 7.0, 0.5]))}
        question = {**ask(chance), **more, "seed": int(chance.integers(1000))}
        return {**question, "rounds": min(question["rounds"], SEVERAL_ROUNDS)}

    question = settled(protocol, draw, chance)
    if "vectors" not in question:
        question["length"] = LENGTH
    return scope_of(protocol, **question), coalitions(chance, protocol, question["parties"], 2)


def raise_alarms(kind, seed, count):
    """Returns what guards have to say of so many settings that are honest."""
    alarms = []
    for number in range(count):
        scope, members = settings_of(kind, seed, number)
        guard = Guard(scope, scope.rounds, thorough=True)
        try:
            guard.check()
            guard.check_lengths()
        except Exception as error:
            alarms.append(f"{kind} {number}: {error!r}")
        run = SymbolicRun(scope)
        if not all(hides_last_bits(run.view(coalition, scope.rounds)) for coalition in members):
            alarms.append(f"{kind} {number}: masks do not hide last bits")
    return alarms


@pytest.mark.parametrize("kind", QUICK)
def test_some_honest_settings_raise_no_alarm(kind):
    assert raise_alarms(kind, 0, QUICK[kind]) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", MANY)
def test_many_honest_settings_raise_no_alarm(kind):
    assert sum(MANY.values()) == 200
    assert raise_alarms(kind, 1, MANY[kind]) == []
