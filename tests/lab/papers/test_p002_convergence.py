"""The convergence bound of paper 002 on quadratic losses."""

import numpy as np
import pytest

from tacit.lab.papers.p002 import convergence
from tacit.lab.papers.p002.convergence import SMOOTH, STRONG, TASK, QuadraticTask, descend


def test_the_best_is_where_no_gradient_is_left():
    assert (TASK.a[:, None] * (TASK.best - TASK.c)).sum(axis=0) == pytest.approx(0, abs=1e-9)
    assert TASK.excess(TASK.best) == 0
    assert TASK.excess(TASK.best + 0.1) > 0
    assert TASK.a.min() >= STRONG
    assert TASK.a.max() <= SMOOTH


def test_the_bound_is_what_a_hand_computes():
    """Two users at ±1 with a = 1: Γ = 1/2, G = 1.5 · 3, γ = 12, E = 2, K = 1, C = 0.5, J = 10."""
    task = QuadraticTask(np.ones(2), np.array([[1.0], [-1.0]]), np.array([2.0]))
    square = (1.5 * 3) ** 2
    alpha, beta = 6 * 1.5 * 0.5 + 8 * square, 4 * 4 * square
    expected = 1.5 / (12 + 0.5 * 10 * 2 - 1) * (2 * (alpha + beta) + 6 * 4)
    assert task.bound(1, 0.5, 10, 2) == pytest.approx(expected)
    assert task.bound(1, 0.5, 10, 2, constant=1e6) < 0, "as printed, a constant added to the losses moves the bound"


def test_no_gradient_of_a_run_is_longer_than_g():
    taken = np.random.default_rng(0).random((50, convergence.USERS)) < 0.2
    for steps in convergence.STEPS:
        x = descend(TASK, taken, steps)
        assert np.linalg.norm(TASK.a[:, None] * (x - TASK.c), axis=1).max() <= TASK.gradient_bound


def test_everybody_in_every_round_reaches_the_best_and_rounds_without_a_sum_change_nothing():
    everybody = np.ones((3000, convergence.USERS), np.bool_)
    assert TASK.excess(descend(TASK, everybody, 1)) < 1e-6
    nobody = np.zeros((5, convergence.USERS), np.bool_)
    assert descend(TASK, nobody, 5) is TASK.start
    mixed = np.vstack([nobody, everybody[:7]])
    assert np.array_equal(descend(TASK, mixed, 5), descend(TASK, everybody[:7], 5))


def test_users_who_are_absent_more_often_lie_farther_along_the_axis():
    order = np.argsort(TASK.c[:, 0])
    assert (np.diff(TASK.chances[order]) >= 0).all()
    assert set(TASK.chances) == set(convergence.CHANCES)


def test_a_bound_above_the_start_is_not_compared(monkeypatch):
    row = convergence.declare("Random", "p = 0.3", 1, "small")
    assert row.rule.high == pytest.approx(TASK.bound(8, 8.0, 4000, 1), rel=0.01)
    monkeypatch.setitem(convergence.ROUNDS, "small", 1)
    assert "says nothing" in convergence.declare("Random", "p = 0.3", 1, "small").rule.reason
