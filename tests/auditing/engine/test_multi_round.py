"""Audits of many rounds, by what is summed in each, and how they agree with rounds that are run."""

from collections import Counter

import numpy as np
import pytest

import tacit
from tacit.auditing import auditor
from tacit.auditing.engine.algebra.linear import SMALL_PRIME, Echelon, smallest_class, smallest_support
from tacit.auditing.findings import NoteCode
from tacit.core.suite import Update
from tacit.designs import Batches, Everyone, Partition, Random, Sampled
from tacit.runtime.simulation.simulator import Simulation

pytestmark = pytest.mark.long

DROPS = {"action": "drop", "message": "MaskedInput", "chance": 0.15}


def long_and_exact(monkeypatch, **question):
    """Returns the same audit twice: from sums, and with every round run."""
    monkeypatch.setattr(auditor, "EXACT_ROUNDS", 2)
    sums = tacit.audit("secagg", **question)
    monkeypatch.setattr(auditor, "EXACT_ROUNDS", 10**6)
    return sums, tacit.audit("secagg", **question)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("drift", ["static", "free"])
@pytest.mark.parametrize(
    "participation", [Everyone(), Random(6), Sampled(4, 6), Batches(6, 2), Batches(6, 3, partial=True), Partition(4)]
)
@pytest.mark.parametrize(
    "coalition",
    [["server"], pytest.param(["server", "p1"], marks=pytest.mark.slow), pytest.param(["p2"], marks=pytest.mark.slow)],
)
def test_sums_say_what_whole_rounds_say(monkeypatch, participation, drift, coalition):
    sums, exact = long_and_exact(
        monkeypatch,
        parties=12,
        coalition=coalition,
        rounds=9,
        drift=drift,
        participation=participation,
        faults=[DROPS, {"action": "silence", "chance": 0.05}],
    )
    assert NoteCode.ONLY_SUMS in [note.code for note in sums.notes]
    assert not exact.notes
    assert sums.exposed.keys() == exact.exposed.keys()
    assert (sums.safe_rounds, sums.smallest_group) == (exact.safe_rounds, exact.smallest_group)
    assert sums.errors.keys() == exact.errors.keys()
    assert max([*sums.errors.values(), *exact.errors.values()], default=0) < 1e-9


def test_a_coalition_that_learns_more_than_sums_is_not_judged_by_them(monkeypatch):
    monkeypatch.setattr(auditor, "EXACT_ROUNDS", 2)
    report = tacit.audit("secagg", parties=5, coalition=["server", "p0", "p1"], threshold=2, rounds=9)
    assert sorted(report.exposed) == ["p2", "p3", "p4"]
    assert NoteCode.UNMASKED_WITHOUT_RECIPE in [note.code for note in report.notes]
    onlooker = tacit.audit("secagg", parties=5, coalition=["onlooker"], rounds=9)
    assert (onlooker.exposed, onlooker.safe_rounds) == ({}, 2), "no more is said than was looked at"
    assert tacit.audit("fedavg", parties=4, coalition=["server"], rounds=9).exposed.keys() == {"p0", "p1", "p2", "p3"}


@pytest.mark.parametrize(("parties", "rounds"), [(16, 100), pytest.param(40, 2000, marks=pytest.mark.slow)])
def test_whole_batches_hold_for_two_thousand_rounds_and_partial_ones_do_not(parties, rounds):
    question = {"parties": parties, "coalition": ["server"], "rounds": rounds, "faults": [{**DROPS, "chance": 0.1}]}
    whole = tacit.audit("secagg", participation=Batches(8, 2), **question)
    assert (whole.smallest_group, whole.exposed, whole.safe_rounds) == (2, {}, rounds)
    partial = tacit.audit("secagg", participation=Batches(8, 2, partial=True), **question)
    assert partial.smallest_group == 1
    assert len(partial.exposed) == parties
    assert max(partial.errors.values()) < 1e-9, "replayed on as many real rounds as the recipes need"


@pytest.mark.slow
def test_random_participation_exposes_everybody_after_about_as_many_rounds_as_users():
    report = tacit.audit("secagg", parties=40, coalition=["server"], rounds=200, participation=Random(8))
    assert report.smallest_group == 1
    assert len(report.exposed) == 40
    assert 30 <= report.safe_rounds <= 60
    assert max(report.errors.values()) < 1e-9


def test_a_recipe_of_sums_works_on_somebody_elses_transcripts():
    options = {"participation": Random(3), "threshold": 2, "allow_leaks": True, "seed": 5}
    report = tacit.audit("secagg", parties=5, coalition=["p4"], rounds=30, **options)
    assert len(report.exposed) == 4
    names = tuple(f"p{i}" for i in range(5))
    real = Simulation.of("secagg", names, 3, record=True, bits=64, twin=True, **options)
    vectors = {name: Update(np.arange(3.0) - i) for i, name in enumerate(names)}
    transcripts = [real.average(vectors).transcript for _ in range(30)]
    for victim, recipe in report.exposed.items():
        np.testing.assert_allclose(recipe.recover(transcripts), vectors[victim].vector, atol=1e-9)


def test_real_rounds_are_played_once_however_many_coalitions_ask(monkeypatch):
    played = []
    average = Simulation.average

    def counted(simulation, *arguments, **options):
        if type(simulation) is Simulation:
            played.append(simulation)
        return average(simulation, *arguments, **options)

    monkeypatch.setattr(Simulation, "average", counted)
    question = {"parties": 6, "rounds": 20, "participation": Random(4), "faults": [DROPS]}
    alone = [tacit.audit("secagg", coalition=[member], **question) for member in ("server", "p0", "p1")]
    apart = len(played)
    played.clear()
    every = {report.coalition: report for report in tacit.audit("secagg", **question)}
    assert len(every) == 7
    # Guards play rounds of their own, as often as they are asked to.
    rounds = max(max(recipe.factors) for report in every.values() for recipe in report.exposed.values())
    assert max(Counter(map(id, played)).values()) == rounds
    assert len(played) < apart
    for report in alone:
        assert report.errors == every[report.coalition].errors
        assert report.errors.keys() == report.exposed.keys() != set()


def test_faults_that_cannot_be_rehearsed_are_refused():
    crash = [{"action": "crash", "party": "p1", "step": 3}]
    with pytest.raises(tacit.ConfigError, match="not crash"):
        tacit.audit("secagg", parties=5, coalition=["server"], rounds=100, faults=crash)
    with pytest.raises(tacit.ConfigError, match="sparse graph"):
        tacit.audit("secagg", parties=12, coalition=["server"], rounds=100, neighbours=6)


def test_protocols_without_a_rehearsal_are_run_round_by_round():
    report = tacit.audit("gossip", parties=4, coalition=["p0"], rounds=20, graph="ring")
    assert report.notes == ()
    assert sorted(report.exposed) == ["p1", "p3"]


# --- the algebra ---------------------------------------------------------------------------------------------------


def test_echelon_keeps_rank_and_finds_units():
    rng = np.random.default_rng(0)
    for _ in range(30):
        rows = rng.integers(0, 2, size=(rng.integers(1, 9), 7))
        echelon = Echelon(7)
        new = [echelon.take(row) for row in rows]
        assert sum(new) == np.linalg.matrix_rank(rows)
        assert [i for i, fresh in enumerate(new) if fresh] == echelon.used
        for column in range(7):
            unit = np.eye(7)[column]
            known = np.linalg.matrix_rank(np.vstack([rows, unit])) == np.linalg.matrix_rank(rows)
            assert (column in echelon.list_determined()) == known


def test_strict_and_relaxed_privacy_of_the_papers_examples():
    old = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]])
    echelon = Echelon(6)
    for row in old:
        echelon.take(row)
    assert smallest_class(echelon.matrix) == 2
    assert smallest_support(echelon.matrix) == 2
    # Paper 002's B_new as printed, whose rows 3 and 5 are equal.
    new = np.vstack([old, [[1, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]]])
    assert smallest_class(new) == 1
    echelon = Echelon(6)
    for row in new:
        echelon.take(row)
    assert smallest_support(echelon.matrix) == 2, "the relaxed promise holds, even with two rows alike"


def test_relaxed_privacy_can_be_larger_than_strict():
    rows = np.array([[1, 2, 0, 0], [0, 0, 1, 1]])
    assert smallest_class(rows) == 1
    assert smallest_support(rows) == 2
    assert smallest_class(np.zeros((0, 4), dtype=np.int64)) is None
    assert smallest_support(np.zeros((0, 4), dtype=np.int64)) is None
    assert smallest_support(np.ones((1, 6), dtype=np.int64) % SMALL_PRIME) == 6
