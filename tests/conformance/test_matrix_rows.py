"""Rounds that read rows of one matrix and write averages back into it, and rounds in which some are absent."""

import numpy as np
import pytest

import tacit
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import Drop, NotEnough
from tacit.core.suite import SERVER, Update
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

N, D = 6, 40
PARTIES = tuple(f"p{i}" for i in range(N))
OPTIONS = {
    "fedavg": {},
    "secagg": {"threshold": 4},
    "gossip": {"graph": "ring", "share": 0.6},
    "gossip-change": {"share": 0.6, "sparsifier": "topk", "score": "change"},
    "admm": {"masked": True, "group_size": None, "iterations": 4},
    "pushsum": {"masked": True},
    "cesar": {"share": 0.6},
    "rotating": {"share": 0.6, "group_size": 6},
    "cesar-change": {"share": 0.6, "sparsifier": "topk", "score": "change"},
}
assert {name.partition("-")[0] for name in OPTIONS} == set(REGISTRY)
every_case = pytest.mark.parametrize("case", OPTIONS)
SERVERLESS = [case for case in OPTIONS if REGISTRY[case.partition("-")[0]].server is None]


def simulation(case, **more):
    return Simulation.of(case.partition("-")[0], PARTIES, D, **{"seed": 0, "twin": True, **OPTIONS[case], **more})


def models(seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(0, 0.5, (N, D)).astype(dtype)


def updates(matrix, without=()):
    return {party: Update(row) for party, row in zip(PARTIES, matrix, strict=True) if party not in without}


# --- rows ----------------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("elsewhere", [False, True])
def test_averages_are_written_into_the_rows_that_were_read(case, elsewhere):
    plain, inside = simulation(case), simulation(case)
    expected, matrix = models(), models()
    for number in range(3):
        averages = plain.average(updates(expected)).average
        out = np.full((N, D), np.nan, np.float32) if elsewhere else matrix
        outcome = inside.average(updates(matrix), out=out)
        assert outcome.average.keys() == averages.keys() == set(PARTIES)
        for place, party in enumerate(PARTIES):
            assert np.shares_memory(outcome.average[party], out[place])
            assert np.shares_memory(outcome.endings[party].average, out[place])
            np.testing.assert_array_equal(out[place], averages[party].astype(np.float32))
        step = models(seed=number + 1) / 8
        matrix = out + step
        expected = np.array([averages[party].astype(np.float32) for party in PARTIES]) + step


@every_case
def test_a_matrix_of_double_floats_gets_every_digit(case):
    matrix, expected = models(dtype=np.float64), simulation(case).average(updates(models(dtype=np.float64))).average
    simulation(case).average(updates(matrix), out=matrix)
    np.testing.assert_array_equal(matrix, [expected[party] for party in PARTIES])


@every_case
def test_single_floats_are_averaged_as_the_doubles_they_are(case):
    weights = {"weighted": True, "max_weight": 3.0} if REGISTRY[case.partition("-")[0]].weighted else {}
    several = (
        dict(zip(PARTIES, (0.1, 3.0, 0.7, 1.0, 2.0, 1.3), strict=True)) if weights else dict.fromkeys(PARTIES, 1.0)
    )
    found = []
    for dtype in (np.float32, np.float64):
        brought = {
            party: Update(row, several[party]) for party, row in zip(PARTIES, models().astype(dtype), strict=True)
        }
        outcome = simulation(case, clip=1.1, **weights).average(brought)
        found.append((outcome.clipped, outcome.warnings, [outcome.average[party].tolist() for party in PARTIES]))
    assert found[0] == found[1]
    assert found[0][0], "some are beyond the clip, which no single float is"


@pytest.mark.parametrize("case", SERVERLESS)
def test_rows_that_somebody_else_brings_are_not_written_before_they_are_read(case):
    matrix, turned = models(), np.roll(np.arange(N), 1)
    expected = simulation(case).average(updates(models()[turned])).average
    # A slice with a stride would be in everybody's way too.
    simulation(case).average({party: Update(matrix[turned[i]]) for i, party in enumerate(PARTIES)}, out=matrix)
    np.testing.assert_array_equal(matrix, [expected[party].astype(np.float32) for party in PARTIES])


@every_case
def test_columns_of_a_matrix_are_rows_of_another(case):
    turned, expected = np.asfortranarray(models()), simulation(case).average(updates(models())).average
    simulation(case).average(updates(turned), out=turned)
    np.testing.assert_array_equal(turned, [expected[party].astype(np.float32) for party in PARTIES])


@pytest.mark.parametrize("case", ["fedavg", "secagg", "gossip", "cesar", "pushsum"])
def test_whoever_has_no_average_keeps_its_row(case):
    matrix = models()
    fault = Fault(action="crash", party="p2", step=0)
    options = {"masked": False, "allow_leaks": True} if case == "pushsum" else {}
    outcome = simulation(case, faults=[fault], **options).average(updates(matrix), out=matrix)
    assert "p2" not in outcome.average
    np.testing.assert_array_equal(matrix[2], models()[2])
    assert all((matrix[place] != models()[place]).any() for place in (0, 1, 3, 4, 5))


@pytest.mark.parametrize("case", ["fedavg", "secagg", "admm"])
def test_a_round_that_fails_leaves_the_matrix_as_it_was(case):
    matrix = models()
    faults = [Fault(action="crash", party=party, step=1) for party in ((SERVER,) if case != "admm" else PARTIES[:1])]
    with pytest.raises(tacit.TacitError):
        simulation(case, faults=faults).average(updates(matrix), out=matrix)
    np.testing.assert_array_equal(matrix, models())


def test_a_recording_has_what_was_brought_and_not_what_lies_there_now():
    matrix = models()
    outcome = simulation("gossip", record=True).average(updates(matrix), out=matrix)
    for place, party in enumerate(PARTIES):
        np.testing.assert_array_equal(outcome.transcript.holdings[party].update.vector, models()[place])


def test_what_is_still_under_way_is_not_held():
    late = [Fault(action="delay", party="p0", message="SharedEntries", seconds=500)]
    played = simulation("gossip", faults=late)
    played.average(updates(models()))
    assert played.last._events == []


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        (np.zeros((N, D + 1), np.float32), "6 rows for the parties and 40 columns"),
        (np.zeros((N + 1, D), np.float32), "not an array of float32 and shape"),
        (np.zeros(N * D, np.float32), "out must be a matrix"),
        (np.zeros((N, D), np.int32), "not an array of int32"),
        (np.zeros((N, D), np.float16), "not an array of float16"),
        ([[0.0] * D] * N, "not of type list"),
        (np.broadcast_to(np.float32(0), (N, D)), "read-only"),
    ],
)
def test_what_cannot_be_written_to_is_refused_before_anything_is_sent(out, complaint):
    for average in (simulation("gossip").average, None):
        federation = tacit.Federation("gossip", PARTIES, **OPTIONS["gossip"])
        with pytest.raises(tacit.ConfigError, match=complaint):
            average(updates(models()), out=out) if average else federation.average(models(), out=out)
    assert federation.rounds == 0
    with pytest.raises(tacit.ConfigError, match="do not fit out"):
        simulation("gossip", clip=1e50).average(updates(models()), out=models())


# --- by the façade -------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@every_case
def test_a_federation_writes_rows_too(case):
    options = {**OPTIONS[case], "seed": 3}
    ours, plain = (tacit.Federation(case.partition("-")[0], PARTIES, **options) for _ in range(2))
    matrix = models()
    expected = plain.average(models().astype(np.float64)).average
    outcome = ours.average(matrix, out=matrix)
    assert all(np.shares_memory(outcome.average[party], matrix[place]) for place, party in enumerate(PARTIES))
    if case in ("fedavg", "secagg"):  # elsewhere other entries are drawn, for single floats are another story
        np.testing.assert_array_equal(matrix, [expected[party].astype(np.float32) for party in PARTIES])
    again = tacit.Federation(case.partition("-")[0], PARTIES, **options)
    np.testing.assert_array_equal(matrix, list(again.average(list(models()), out=models()).average.values()))


def test_models_of_several_arrays_are_written_as_vectors():
    federation = tacit.Federation("fedavg", PARTIES)
    out = np.zeros((N, 3), np.float32)
    federation.average([{"w": np.full(2, float(i)), "b": np.array([1.0])} for i in range(N)], out=out)
    np.testing.assert_allclose(out, [[2.5, 2.5, 1.0]] * N, atol=1e-6)


# --- who is absent -------------------------------------------------------------------------------------------------

TOLERANT = [case for case in OPTIONS if case != "admm"]  # in which nobody may be missing


@pytest.mark.parametrize("case", TOLERANT)
def test_to_be_absent_is_to_be_silent(case):
    """Whoever brings an update all the same listens, as one does whose messages are lost."""
    absent = ("p1", "p4")
    silenced = simulation(case, faults=[Fault(action="silence", party=party, round=2) for party in absent])
    away = simulation(case)
    for number in range(1, 4):
        matrix = models(seed=number)
        expected = silenced.average(updates(matrix))
        outcome = away.average(updates(matrix), absent=absent if number == 2 else ())
        assert outcome.contributors == expected.contributors
        assert outcome.dropped == expected.dropped
        assert outcome.traffic == expected.traffic
        assert outcome.average.keys() == expected.average.keys()
        for party, average in expected.average.items():
            np.testing.assert_array_equal(outcome.average[party], average)
    assert away.states == silenced.states


@pytest.mark.parametrize("case", TOLERANT)
def test_whoever_is_absent_need_not_bring_anything(case):
    absent, matrix = ("p0", "p3"), models()
    silent, away = simulation(case), simulation(case)
    expected = silent.average(updates(models()), absent=absent)
    outcome = away.average(updates(matrix, without=absent), out=matrix, absent=absent)
    there = set(PARTIES) - set(absent)
    # Masked push-sum exchanges nothing while a party is missing: each party keeps its own model.
    assert set(outcome.contributors) == (set() if case == "pushsum" else there)
    if away.agreement.protocol.server is None:
        assert outcome.average.keys() == there
        assert set(absent) <= outcome.dropped.keys()
        np.testing.assert_array_equal(matrix[[0, 3]], models()[[0, 3]])
        assert away.states["p0"] == simulation(case).states["p0"]
    else:
        assert outcome.average.keys() == set(PARTIES), "all hear what the server announces"
        assert away.states == silent.states
    for party in there:
        np.testing.assert_array_equal(outcome.average[party], expected.average[party].astype(np.float32))
    # And everybody is there again in the next round.
    again = away.average(updates(models(seed=1)))
    assert set(again.contributors) == set(PARTIES)
    assert again.average.keys() == set(PARTIES)
    assert {seat.number for seat in away.participants.values()} == {2}


def test_too_many_who_are_absent_are_told_as_ever():
    with pytest.raises(NotEnough):
        simulation("secagg").average(updates(models()), absent=PARTIES[1:])
    with pytest.raises(NotEnough):
        simulation("gossip").average({}, absent=PARTIES)
    with pytest.raises(tacit.TacitError, match="p2"):
        simulation("admm").average(updates(models(), without=["p2"]), absent=["p2"])


def test_with_a_seed_who_is_absent_is_part_of_the_story():
    runs = [simulation("gossip", twin=False, record=True) for _ in range(3)]
    for run, absent in zip(runs, ((), ("p1",), ("p1",)), strict=True):
        run.average(updates(models()), absent=absent)
    sealed = [{each.envelope.sealed for each in run.last.transcript} for run in runs]
    assert not sealed[0] & sealed[1]
    assert sealed[1] == sealed[2]


def test_an_absent_party_may_be_cut_off_as_well():
    """A plan of faults that speaks of it finds it there or not, and the round goes on."""
    faults = [Fault(action="restart", party="p1"), Fault(action="crash", party="p2", step=1)]
    outcome = simulation("gossip", faults=faults).average(updates(models(), without=["p1"]), absent=["p1"])
    assert outcome.average.keys() == {"p0", "p3", "p4", "p5"}


def test_one_name_is_as_good_as_a_list_of_it():
    federation = tacit.Federation("gossip", PARTIES, graph="ring")
    some, every = dict(zip(PARTIES, models(), strict=True)), set(PARTIES)
    some.pop("p1")
    outcomes = [federation.average(some, absent=absent) for absent in ("p1", ["p1"])]
    assert all(set(outcome.contributors) == every - {"p1"} for outcome in outcomes)


@pytest.mark.parametrize("absent", ["p9", ["p9"], 3, [["p1"]], None])
def test_who_is_absent_is_a_list_of_parties(absent):
    federation = tacit.Federation("gossip", PARTIES, graph="ring")
    for average in (
        lambda: simulation("gossip").average(updates(models()), absent=absent),
        lambda: federation.average(models(), absent=absent),
    ):
        with pytest.raises(tacit.ConfigError, match="absent must be a list of some of p0"):
            average()
    assert federation.rounds == 0


def test_models_of_those_who_are_there_are_asked_for():
    federation = tacit.Federation("fedavg", PARTIES, max_weight=2.0, weighted=True)
    some = dict(zip(PARTIES, models(), strict=True))
    there = {party: some[party] for party in PARTIES[2:]}
    outcome = federation.average(there, dict.fromkeys(PARTIES, 2.0), absent=PARTIES[:2])
    assert outcome.contributors == PARTIES[2:]
    np.testing.assert_allclose(outcome.average["p0"], models()[2:].mean(axis=0), atol=1e-6)
    assert outcome.dropped == dict.fromkeys(PARTIES[:2], Drop.SILENT) or outcome.dropped == {}
    for wrong, absent in ((there, PARTIES[:1]), (some | {"p9": some["p0"]}, PARTIES[:1]), ({}, PARTIES)):
        with pytest.raises(tacit.ConfigError, match="a model of each of p0"):
            federation.average(wrong, absent=absent)


def test_the_words_that_masks_are_drawn_from_do_not_depend_on_who_is_away():
    """So that a rehearsal, and a run that is gone on with, choose as the run does."""
    one, other = simulation("fedavg", sampled=3, oversampled=4), simulation("fedavg", sampled=3, oversampled=4)
    one.average(updates(models()), absent=["p5"])
    other.average(updates(models(), without=["p5"]), absent=["p5"])
    assert one.seed_of("p1", 2) == other.seed_of("p1", 2) == SeededEntropy(0, "party p1 round 2").bytes(32)
    assert one.average(updates(models())).contributors == other.average(updates(models())).contributors
