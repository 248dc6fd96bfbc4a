import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from tacit.core.progress import ignore_progress
from tacit.lab.attacks import epsilon
from tacit.lab.attacks.epsilon import (
    DELTA,
    EPSILON,
    Game,
    account_game,
    add_plainly,
    choose_threshold,
    lower_bound,
    play_game,
    ring_game,
    ring_statistics,
    sample_statistics,
    secagg_summation,
    sum_game,
    theorem_game,
)

pytestmark = pytest.mark.long

pytest.importorskip("dp_accounting", reason="the tight figures come from dp-accounting")


@pytest.mark.parametrize("colluding", [0, 2])
def test_the_deployed_protocol_and_plain_sums_give_the_same_numbers(colluding):
    game = Game("some noise", users=4, sigma=0.05, rounds=3, colluding=colluding)
    deployed = sample_statistics(game, 20, 7, secagg_summation(game, 40, 7))
    plain = sample_statistics(game, 20, 7, add_plainly)
    assert np.concatenate(deployed) == pytest.approx(np.concatenate(plain), abs=1e-9)
    assert play_game(game, 20, 7, secagg_summation(game, 40, 7)) == play_game(game, 20, 7, add_plainly)


@pytest.mark.parametrize("game", [theorem_game(5, 4), sum_game(4, honest=3, colluding=7)], ids=lambda game: game.noise)
def test_the_adversary_sees_two_unit_gaussians_as_far_apart_as_it_expects(game):
    without, there = sample_statistics(game, 4000, 0, add_plainly)
    for sample, mean in ((without, -game.separation / 2), (there, game.separation / 2)):
        assert sample.mean() == pytest.approx(mean, abs=0.05)
        assert sample.std() == pytest.approx(1, abs=0.04)


def test_the_separation_is_what_the_accountants_account_for():
    """A Gaussian that is moved by μ has ρ = μ²/2."""
    game = theorem_game(10, 100)
    rho = game.separation**2 / 2
    assert game.account("zcdp") == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / DELTA)))


def test_the_lower_bound_is_that_of_the_two_error_rates():
    fpr = binomtest(3, 1000).proportion_ci(0.95, "exact").high
    fnr = binomtest(400, 1000).proportion_ci(0.95, "exact").high
    assert lower_bound(3, 400, 1000) == pytest.approx(math.log((1 - DELTA - fnr) / fpr))
    assert lower_bound(400, 3, 1000) == lower_bound(3, 400, 1000)
    assert lower_bound(500, 500, 1000) == 0.0
    assert lower_bound(1000, 1000, 1000) == 0.0
    # Without a single error in n trials nothing above about log(n / 3.7) is proved.
    assert lower_bound(0, 0, 1000) == pytest.approx(math.log(1000 / 3.7), abs=0.02)


@pytest.mark.slow
def test_the_lower_bound_is_one():
    """With noise that gives ε exactly, it is above ε in at most 5 % of the games; in fact in far fewer."""
    game, trials = theorem_game(10, 1), 2000
    place, true = choose_threshold(game.separation, trials), game.account("pld")
    rng = np.random.default_rng(0)
    rates = norm.sf(place + game.separation / 2), norm.cdf(place - game.separation / 2)
    bounds = [lower_bound(*rng.binomial(trials, rates).tolist(), trials) for _ in range(300)]
    assert np.mean(np.array(bounds) > true) <= 0.05
    assert np.mean(bounds) > 0.3 * true


@pytest.mark.parametrize(("users", "trials"), [(10, 20_000), (100, 2000)])
def test_the_noise_of_theorem_1_is_broken_by_playing(users, trials):
    found = play_game(theorem_game(users, 2), trials, 0, add_plainly)
    assert found.broken
    assert EPSILON < found.value < found.high


def test_noise_for_the_sum_is_not_broken_by_playing():
    found = play_game(sum_game(2, honest=10), 20_000, 0, add_plainly)
    assert not found.broken
    assert 0.2 < found.value < EPSILON
    assert found.high == pytest.approx(EPSILON, abs=1e-4)


def test_whoever_colludes_must_not_be_counted_on():
    counted = play_game(sum_game(2, honest=10, colluding=9), 20_000, 0, add_plainly)
    assert counted.broken
    discounted = play_game(sum_game(2, honest=1, colluding=9), 20_000, 0, add_plainly)
    assert not discounted.broken


def test_in_the_ring_it_sees_the_noise_of_those_who_neither_drop_out_nor_collude():
    game = ring_game(4, theorem_game(10, 4).sigma)
    assert (game.honest, game.dropped, game.colluding) == (5, 2, 3)
    without, there = ring_statistics(game, 3000, 0)
    for sample, mean in ((without, -game.separation / 2), (there, game.separation / 2)):
        assert sample.mean() == pytest.approx(mean, abs=0.06)
        assert sample.std() == pytest.approx(1, abs=0.04)


def test_colluders_tell_what_they_encoded_to_the_last_step():
    """With nobody honest but the user with the canary, and next to no noise of its own, nothing else is left."""
    game = Game("next to none", users=4, sigma=2e-8, rounds=2, colluding=3, in_ring=True)
    without, there = ring_statistics(game, 50, 0)
    # What is left is that one's noise and its rounding: a few steps of the ring, where a vector is half a billion.
    assert np.abs(there * game.sigma * math.sqrt(2) - 2 * 1e-2).max() < 1e-6
    assert np.abs(without * game.sigma * math.sqrt(2) + 2 * 1e-2).max() < 1e-6


def test_the_noise_of_theorem_1_is_broken_in_the_ring():
    found = play_game(ring_game(2, theorem_game(10, 2).sigma), 20_000, 0)
    assert found.broken
    assert EPSILON < found.value < found.high


def test_noise_for_those_who_are_left_is_not_broken_in_the_ring():
    game = ring_game(2)
    found = play_game(game, 20_000, 0)
    assert not found.broken
    assert 0.1 < found.value < EPSILON
    assert found.high == pytest.approx(EPSILON, abs=1e-4)
    assert found.high == game.account("rdp") < game.account("zcdp")


@pytest.mark.parametrize(
    ("users", "zcdp", "pld", "broken"),
    [(1, 1.02, 0.76, False), (10, 3.38, 2.72, True), (100, 12.17, 10.52, True), (1000, 53.34, 49.05, True)],
)
def test_what_is_accounted_for_against_the_claim_of_1(users, zcdp, pld, broken):
    found = account_game(theorem_game(users, 100))
    assert (found.value, found.low) == (pytest.approx(zcdp, abs=0.005), pytest.approx(pld, abs=0.005))
    assert found.broken is broken


@pytest.mark.slow
def test_the_experiment_breaks_what_it_should_first_and_nothing_else(monkeypatch):
    monkeypatch.setattr(epsilon, "ROUNDS", 20)  # a single round of every game; the claim scales with T
    heard = []
    found = epsilon.ATTACK.run(False, 3, lambda _, done: heard.append(done))
    assert [each.broken for each in found] == [True] * 7 + [False] * 5
    assert all(each.attack == "epsilon" and each.low <= each.value <= each.high for each in found)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.slow
def test_the_whole_experiment():
    found = epsilon.ATTACK.run(True, 0, ignore_progress)
    assert [each.broken for each in found] == [True] * 7 + [False] * 5
