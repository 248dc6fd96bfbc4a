"""Bounds on ε: never below the value from exact probabilities, and close to it."""

import math

import numpy as np
import pytest

from tacit.privacy.distributed_noise import SharedNoise
from tacit.privacy.epsilon_bounds import BoundKind, best_epsilon, gaussian_delta, gaussian_epsilon, renyi_epsilon
from tacit.privacy.noise import epsilon_of


def exact_delta(epsilon, sigma, honest, moved, rounds):
    """Returns the δ of some rounds, from all probabilities of a sum of discrete Gaussians."""
    k = np.arange(-int(14 * sigma) - 5, int(14 * sigma) + 6)
    one = np.exp(-(k**2) / (2 * sigma**2))
    total = one = one / one.sum()
    for _ in range(honest - 1):
        total = np.convolve(total, one)
    here, there = np.pad(total, (0, moved)), np.pad(total, (moved, 0))
    here, there = (each[here > 1e-20] for each in (here, there))
    with np.errstate(divide="ignore"):
        loss = np.log(here) - np.log(there)
    mass, losses = here, loss
    for _ in range(rounds - 1):
        mass, losses = np.outer(mass, here).ravel(), np.add.outer(losses, loss).ravel()
    with np.errstate(over="ignore"):
        return float((mass * np.maximum(0.0, 1 - np.exp(epsilon - losses))).sum())


@pytest.mark.parametrize(
    ("sigma", "moved", "rounds"),
    [(0.5, 1, 1), (0.8, 3, 1), (2.0, 1, 2), (2.0, 6, 1), (30.0, 1, 1), (30.0, 40, 2), (200.0, 150, 1)],
)
@pytest.mark.parametrize("honest", [1, 3])
def test_exact_probabilities_stay_within_the_bound(sigma, honest, moved, rounds):
    noise = SharedNoise(sigma, 1.0, moved - 1 + 1e-12, honest)
    assert noise.moved == pytest.approx(moved)
    for delta in (1e-1, 1e-5, 1e-9):
        bound = noise.best_epsilon(delta, rounds)
        assert exact_delta(bound.epsilon, sigma, honest, moved, rounds) <= delta
        assert bound.epsilon <= noise.epsilon(delta, rounds)


def test_the_bound_is_close_where_steps_are_fine():
    noise = SharedNoise(200.0, 1.0, 99.0)
    bound = noise.best_epsilon(1e-5)
    assert bound.kind is BoundKind.GAUSSIAN
    assert exact_delta(0.995 * bound.epsilon, 200.0, 1, 100, 1) > 1e-5


def test_coarse_steps_and_long_vectors_are_left_to_divergences():
    assert SharedNoise(2.0, 1.0, 3.0, entries=1000).best_epsilon(1e-5).kind is BoundKind.RENYI
    assert SharedNoise(2e7, 1.0, 3e7, entries=1000).best_epsilon(1e-5).kind is BoundKind.GAUSSIAN
    too_little = SharedNoise(0.4, 1.0, 3.0, honest=50).best_epsilon(1e-5)
    assert too_little.epsilon == math.inf


@pytest.mark.parametrize(("mu", "closed", "tight"), [(5.16, 38.1, 34.6), (0.354, 1.76, 1.36)])
def test_closed_form_and_tight_values(mu, closed, tight):
    rho = mu**2 / 2
    assert epsilon_of(rho, 1e-5) == pytest.approx(closed, rel=5e-3)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(tight, rel=5e-3)
    found = best_epsilon(rho, mu, 1e-5, sigma=1e9, tau=0.0, drawn=100_000)
    assert found.kind is BoundKind.GAUSSIAN
    assert gaussian_epsilon(mu, 1e-5) <= found.epsilon < 1.001 * tight + 0.01


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-30, 1e-280])
def test_bounds_are_ordered_from_tiny_to_huge_sensitivities(delta):
    for mu in (1e-3, 0.1, 1.0, 10.0, 1e3, 1e6):
        exact, renyi = gaussian_epsilon(mu, delta), renyi_epsilon(mu**2 / 2, delta)
        assert 0 <= exact <= renyi <= epsilon_of(mu**2 / 2, delta)
        assert gaussian_delta(exact, mu) <= delta
    assert gaussian_epsilon(1.0, 1e-300) == math.inf


def test_nothing_and_everything():
    assert (renyi_epsilon(0.0, 1e-5), renyi_epsilon(math.inf, 1e-5)) == (0.0, math.inf)
    assert best_epsilon(math.inf, math.inf, 1e-5, sigma=1.0, tau=0.0, drawn=1).epsilon == math.inf


@pytest.mark.slow
def test_the_accountant_of_loss_distributions_agrees():
    pytest.importorskip("dp_accounting")
    assert gaussian_epsilon(1.0, 1e-5) == pytest.approx(epsilon_of(0.5, 1e-5, "pld"), rel=1e-3)
