"""Paper 002 run again: who takes part, how fairly, and what a curious server makes of it."""

from itertools import product

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.designs import Batches, Partition, Random
from tacit.lab.papers import find
from tacit.lab.papers.p002 import cardinality, reconstruction
from tacit.lab.papers.p002.cardinality import (
    PRIVACY,
    Cardinality,
    expected_cardinality,
    play_rounds,
    policy_of,
    spread_absences,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("t", PRIVACY[1:])
@pytest.mark.parametrize("p", [0.2, 0.5])
def test_for_equal_users_c_is_that_of_the_theorem(t, p):
    assert expected_cardinality(np.full(120, p), 12, t) == pytest.approx(Batches(12, t, 120).expected_cardinality(p))


def test_for_different_users_c_is_what_counting_gives():
    """Six users in batches of two, of which two are asked."""
    absence = np.array([0.1, 0.5, 0.3, 0.2, 0.4, 0.1])
    total = 0.0
    for there in product((0, 1), repeat=6):
        chance = np.prod(np.where(there, 1 - absence, absence))
        whole = sum(there[i] and there[i + 1] for i in (0, 2, 4))
        total += 4 * chance * (whole >= 2)
    assert expected_cardinality(absence, 4, 2) == pytest.approx(total)


def test_rounds_are_those_that_the_formula_is_about():
    absence = np.linspace(0.1, 0.5, 24)
    taken = play_rounds(Batches(6, 3), absence, 600, 0)
    sizes = taken.sum(axis=1)
    assert set(sizes.tolist()) == {0, 6}
    assert (taken.reshape(600, 8, 3).all(axis=2) == taken.reshape(600, 8, 3).any(axis=2)).all(), "batches stay whole"
    found = cardinality.measure_cardinality([absence], 3, 600, 1, per_round=6)
    assert found.played == pytest.approx((float(sizes.mean()),))
    assert found.consistent
    assert 0 < found.error < 0.2


def test_rounds_that_are_not_are_noticed():
    assert not Cardinality((8.0,), (7.0,), 0.2, (0.0,)).consistent
    assert Cardinality((8.0,), (7.5,), 0.2, (0.0,)).consistent
    assert Cardinality((8.0, 4.0), (7.5,), 0.2, (0.0,)).consistent, "only draws that were played count"


def test_sorted_batches_are_there_more_often_and_mixed_ones_as_for_the_mean():
    absences = spread_absences()
    assert all((np.sort(a) == b).all() for a, b in zip(absences["mixed"], absences["sorted"], strict=True))
    mixed, ordered = (
        np.mean([expected_cardinality(each, 12, 6) for each in absences[name]]) for name in ("mixed", "sorted")
    )
    assert mixed == pytest.approx(expected_cardinality(np.full(120, 0.3), 12, 6), abs=0.5)
    assert ordered > mixed + 2


def test_the_ends_of_t_are_the_papers_baselines():
    assert [policy_of(t) for t in (1, 6, 12)] == [Random(12), Batches(12, 6), Partition(12)]


@pytest.mark.slow
def test_t_is_what_the_audit_says():
    nobody, six = cardinality.audited_rows((1, 6), rounds=130)
    assert (nobody.ours, nobody.agrees) == ("1", True)
    assert nobody.why.startswith("all 120 models known after 12")
    assert (six.ours, six.agrees) == ("6", True)


def test_fairness_is_held_against_zero():
    for gaps, agrees in (((0.001, 0.002), True), ((0.069, 0.07), False), ((0.0, 0.04), None)):
        assert cardinality.example_rows(Cardinality((11.769,), (11.7, 11.8), 0.1, gaps))[2].agrees is agrees


def test_the_example_agrees_by_its_printed_digits_and_chance():
    good = Cardinality((11.772,), (11.71, 11.8, 11.79), 0.05, (0.0, 0.0))
    assert [row.agrees for row in cardinality.example_rows(good)] == [True, True, True]
    bad = Cardinality((11.78,), (11.5, 11.51, 11.49), 0.05, (0.0, 0.0))
    assert [row.agrees for row in cardinality.example_rows(bad)[:2]] == [False, False]


def test_errors_are_held_against_the_papers_two_figures():
    small, large = np.array([0.001, 0.002, 0.1]), np.array([0.3, 0.4, 0.26])
    assert reconstruction.share_known(small) == pytest.approx(200 / 3)
    assert reconstruction.least_error(large) == 0.26
    easy, hard = reconstruction.CASES[:2]
    assert reconstruction.row_of(easy, [small, small]).agrees is True
    assert reconstruction.row_of(easy, [large, large]).agrees is False
    assert reconstruction.row_of(hard, [large, large]).agrees is True
    assert reconstruction.row_of(hard, [np.append(large, 0.2)] * 2).agrees is False
    assert reconstruction.row_of(hard, [large, large / 2]).agrees is None, "from run to run it is another verdict"


def test_random_selection_gives_gradients_away_and_batches_do_not():
    data = reconstruction.load_images("small")
    model = reconstruction.train_by_all(data)
    rows = [
        reconstruction.row_of(case, [reconstruction.run_once(data, model, case.setting, 0, run) for run in (0, 1)])
        for case in reconstruction.CASES[:2]
    ]
    assert [row.agrees for row in rows] == [True, True]
    assert [row.paper for row in rows] == ["below 0.005 for many users", "above 0.25 for all users"]


@pytest.mark.slow
def test_reconstruction_whole():
    result = find("002-reconstruction").run("small", ignore_progress)
    assert [row.agrees for row in result.rows[:2]] == [True, True]
    assert [row.agrees for row in result.rows[4:6]] == [False, False]
    assert len(result.charts[0].lines) == 4


@pytest.mark.slow
def test_cardinality_whole():
    rows = {row.what: row for row in find("002-cardinality").run("small", ignore_progress).rows}
    assert rows[cardinality.EXAMPLE.what].estimates[0].mean == pytest.approx(11.777, abs=0.001)
    assert rows[cardinality.PLAYED.what].agrees is True
    assert rows[cardinality.FAIR_MIXED.what].agrees is False
    assert rows[cardinality.CONSISTENT.what].agrees is True
    assert all(row.agrees for what, row in rows.items() if what.startswith("T by the audit"))
