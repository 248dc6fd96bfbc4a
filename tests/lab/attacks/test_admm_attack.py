"""The curious peer of paper 000: its algebra, what it knows after real rounds, and whose vectors it recovers."""

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.core.suite import Update
from tacit.lab.attacks import admm
from tacit.lab.attacks.admm import (
    BROKEN,
    HOLDING,
    AdmmRounds,
    AdmmTarget,
    apply_lemma,
    bound_vectors,
    collect_view,
    derive_lines,
    solve_met_twice,
    solve_system,
)
from tacit.runtime.simulation.simulator import Simulation

pytestmark = pytest.mark.long


def one_round(peers=9, entries=3, seed=0, **options):
    """Returns the outcome of one recorded round, and what everybody brought."""
    names = tuple(f"p{k}" for k in range(peers))
    federation = Simulation.of("admm", names, entries, seed=seed, record=True, bits=64, allow_leaks=True, **options)
    w = np.random.default_rng(seed).normal(size=(peers, entries))
    outcome = federation.average({name: Update(w[k]) for k, name in enumerate(names)})
    return outcome, w


def right(guesses, w):
    """Returns of whom the vector is right."""
    return sorted(k for k, guess in guesses.items() if np.abs(guess - w[k]).max() < admm.TOLERANCE)


def by_the_book(w, start, rho, iterations):
    """Algorithm 1 of the paper, all in one place: returns y and z of each iteration."""
    lambda_, z = start, np.zeros(w.shape[1])
    ys, zs = [], []
    for rho_i in several(rho, iterations):
        x = (2 * w - lambda_ + rho_i * z) / (2 + rho_i)
        y = x + lambda_ / rho_i
        z = y.mean(axis=0)
        lambda_ = lambda_ + rho_i * (x - z)
        ys.append(y)
        zs.append(z)
    return np.array(ys), np.array(zs)


def several(rho, iterations):
    """Returns ρ of each iteration."""
    return rho if isinstance(rho, tuple) else (rho,) * iterations


FALLING = (3.0, 0.7, 0.0009, 0.3, 2.0, 0.01)

# --- the algebra ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.1, 1.0, 7.0, FALLING])
def test_lines_are_what_the_algorithm_computes(rho):
    rng = np.random.default_rng(1)
    w, start = rng.normal(size=(4, 3)), rng.uniform(size=(4, 3))
    y, z = by_the_book(w, start, rho, 6)
    rhos = several(rho, 6)
    for line, y_i in zip(derive_lines(z, rhos), y, strict=True):
        assert np.allclose(line.of_w * w + line.of_start * start / rhos[0] + line.rest, y_i, rtol=1e-11)


def test_the_lemma_is_that_of_the_paper():
    """(8) to (11), step by step, for two iterations in a row."""
    rho = 0.5
    y, z = by_the_book(np.array([[1.0], [2.0]]), np.array([[0.25], [0.75]]), rho, 2)
    lambda_1 = rho * (y[0] - z[0])
    x_2 = y[1] - lambda_1 / rho
    w = ((2 + rho) * x_2 + lambda_1 - rho * z[0]) / 2
    assert w.ravel() == pytest.approx([1, 2])
    assert apply_lemma(y[0], y[1], z[:1], (rho, rho)) == pytest.approx(w)


@pytest.mark.parametrize("rhos", [several(0.1, 6), FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize(("i", "j"), [(0, 1), (0, 4), (2, 5), (4, 5)])
def test_any_two_iterations_will_do(i, j, rhos):
    rng = np.random.default_rng(2)
    w, start = rng.normal(size=(4, 3)), rng.uniform(size=(4, 3))
    y, z = by_the_book(w, start, rhos, 6)
    assert np.allclose(apply_lemma(y[i], y[j], z[i:j], rhos[i : j + 1]), w, atol=1e-9)
    another = (*rhos[i:j], 1.1 * rhos[j])
    assert not np.allclose(apply_lemma(y[i], y[j], z[i:j], another), w, atol=1e-3), "with another ρ"


# --- what the peer knows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("group_size", [3, None])
def test_a_peer_knows_z_and_every_sum(group_size, masked):
    outcome, w = one_round(group_size=group_size, iterations=3, masked=masked)
    start = np.array([outcome.transcript.holdings[f"p{k}"].vectors[0] for k in range(9)])
    y, z = by_the_book(w, start, 0.1, 3)
    known = collect_view(outcome.transcript, me=4)
    assert np.allclose(known.z, z, atol=1e-9)
    assert np.array_equal(known.z[-1], outcome.average["p4"])
    assert (known.w == w[4]).all()
    assert (known.start == start[4]).all()
    assert len(known.sums) == 3 * (1 if group_size is None else 3)
    for (i, group), total in known.sums.items():
        assert np.allclose(total, y[i, list(group)].sum(axis=0), atol=1e-9)
    assert len(known.y) == 3 * (8 if group_size is None else 2)
    for (i, k), share in known.y.items():
        assert np.allclose(share, y[i, k], atol=1e-9) != masked


def test_a_peer_keeps_rounds_apart():
    rounds = AdmmRounds(AdmmTarget("", solve_system, 9, 6), seed=1)
    first, second = rounds.observe(), rounds.observe()
    assert not np.allclose(first.start, second.start)
    assert len(right(solve_system(second), rounds.w)) == 8


# --- whose vectors it recovers -------------------------------------------------------------------------------------


def test_all_to_all_shows_everybody_after_two_iterations():
    for me in (0, 5):
        outcome, w = one_round(group_size=None, iterations=2)
        assert right(solve_met_twice(collect_view(outcome.transcript, me)), w) == [k for k in range(9) if k != me]


def test_one_iteration_shows_nobody():
    outcome, w = one_round(group_size=None, iterations=1)
    known = collect_view(outcome.transcript)
    assert solve_met_twice(known) == {}
    assert right(solve_system(known), w) == []


@pytest.mark.parametrize("me", [0, 4])
def test_the_fifth_iteration_shows_the_two_that_were_met_in_the_first(me):
    """Theorem III.2 promises seven iterations with this gap of four."""
    outcome, w = one_round(group_size=3, iterations=5)
    known = collect_view(outcome.transcript, me)
    again = sorted(k for i, k in known.y if i == 0)
    assert len(again) == 2
    assert right(solve_met_twice(known), w) == again
    assert right(solve_system(known), w) == again


@pytest.mark.parametrize(
    ("iterations", "with_sums", "without", "masked"),
    [(1, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 0, 0, 0), (5, 2, 2, 0), (6, 8, 4, 0), (7, 8, 6, 2), (8, 8, 8, 8)],
)
def test_how_many_of_eight_are_exposed(iterations, with_sums, without, masked):
    outcome, w = one_round(group_size=3, iterations=iterations)
    known = collect_view(outcome.transcript)
    assert len(right(solve_system(known), w)) == with_sums
    assert len(right(solve_system(known, with_sums=False), w)) == without == len(right(solve_met_twice(known), w))
    outcome, w = one_round(group_size=3, iterations=iterations, masked=True)
    assert len(right(solve_system(collect_view(outcome.transcript)), w)) == masked


@pytest.mark.parametrize(("iterations", "count"), [(5, 0), (6, 14)])
def test_among_fifteen_all_are_exposed_before_anybody_is_met_twice(iterations, count):
    outcome, w = one_round(peers=15, group_size=3, iterations=iterations)
    known = collect_view(outcome.transcript)
    assert solve_met_twice(known) == {}
    assert len(right(solve_system(known), w)) == count


def test_changing_penalties_do_not_help():
    """Whoever is met twice is known, and among fifteen all are, as with one ρ for all iterations."""
    outcome, w = one_round(peers=6, group_size=None, rho=(3.0, 0.5))
    assert right(solve_met_twice(collect_view(outcome.transcript)), w) == [1, 2, 3, 4, 5]
    outcome, w = one_round(peers=15, group_size=3, rho=(3.0, 1.0, 0.3, 2.0, 0.5, 0.1))
    assert len(right(solve_system(collect_view(outcome.transcript)), w)) == 14


def test_masked_meetings_give_noise():
    outcome, w = one_round(group_size=None, iterations=4, masked=True)
    guesses = solve_met_twice(collect_view(outcome.transcript))
    assert len(guesses) == 8
    assert min(np.abs(guess - w[k]).max() for k, guess in guesses.items()) > 1


# --- the weak mask -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.1, 2.0])
def test_one_y_bounds_w(rho):
    """That of the first iteration to within 1/ρ; later ones closer, for λ⁰ fades."""
    outcome, w = one_round(group_size=3, iterations=4, rho=rho)
    known = collect_view(outcome.transcript)
    found = bound_vectors(known)
    assert len(found) == 8
    widths = np.empty(4)
    for i, k in known.y:
        least, most = found[k]
        assert (least <= w[k] + 1e-9).all()
        assert (w[k] <= most + 1e-9).all()
        assert np.ptp(most - least) < 1e-9
        widths[i] = (most - least)[0]
    assert widths[0] == pytest.approx(1 / rho)
    assert (np.diff(widths) < 0).all()


def test_the_first_penalty_decides_how_well_one_y_hides():
    """Also in the second iteration, whose own ρ is so small: λ⁰ and w have been put together in the first."""
    for rho in ((3.0, 0.0009), (0.1, 0.00005)):
        outcome, w = one_round(group_size=3, rho=rho)
        for k, (least, most) in bound_vectors(collect_view(outcome.transcript)).items():
            assert ((least <= w[k] + 1e-6) & (w[k] <= most + 1e-6)).all()
            assert most - least == pytest.approx(1 / rho[0], rel=0.01)


def test_bounds_follow_the_range_that_is_drawn_from():
    outcome, w = one_round(group_size=3, iterations=1, lambda0=(-3.0, -1.0))
    for k, (least, most) in bound_vectors(collect_view(outcome.transcript)).items():
        assert ((least <= w[k]) & (w[k] <= most)).all()
        assert most - least == pytest.approx(20)


def test_rounds_of_the_same_vector_narrow_it_down():
    one, averaged, intersected = admm.narrow_down(40, seed=0)
    assert one.value > averaged.value > intersected.value
    assert intersected.value < 0.15
    assert [finding.broken for finding in (one, averaged, intersected)] == [False, True, True]


# --- the attack ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", BROKEN, ids=lambda setting: setting.name)
def test_what_is_called_broken_is(setting):
    assert admm.count_recovered(setting, 3) > 0


@pytest.mark.parametrize("setting", HOLDING, ids=lambda setting: setting.name)
def test_what_is_called_holding_does(setting):
    assert admm.count_recovered(setting, 3) == 0


def test_findings_are_ordered(monkeypatch):
    monkeypatch.setattr(admm, "BROKEN", BROKEN[:2])
    monkeypatch.setattr(admm, "HOLDING", HOLDING[:1])
    told = []

    def progress(doing, done):
        told.append(done)
        assert doing

    findings = admm.ATTACK.run(False, 1, progress)
    assert [finding.broken for finding in findings] == [True, True, False, True, True, False]
    assert [finding.value for finding in (*findings[:2], findings[-1])] == [1, 0.25, 0]
    assert told == sorted(told)
    assert told[-1] == 1


@pytest.mark.slow
def test_everything_in_full():
    findings = admm.ATTACK.run(True, 0, ignore_progress)
    assert [finding.broken for finding in findings] == [True] * 7 + [False, True, True] + [False] * 3
    assert [finding.value for finding in findings[:7]] == [1, 0.25, 0.5, 1, 1 / 7, 1, 1]
    assert [finding.value for finding in findings[-3:]] == [0, 0, 0]
