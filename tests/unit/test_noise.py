import math
import sys

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, MissingExtra
from tacit.privacy import accounted_epsilon, clipped, noisy, paper_sigma, user_sigma

DELTA = 1e-5
WORK = {"samples": 100, "rounds": 100}


class Constant(SeededEntropy):
    """Draws the same number for ever."""

    def __init__(self, number):
        super().__init__(0)
        self.constant = number

    def secret_vector(self, name, length):
        del name
        return np.full(length, self.constant)


def exact_epsilon(multiplier):
    """Returns the ε of one Gaussian at DELTA, by the closed form of Balle and Wang 2018 (Theorem 5)."""

    def delta(epsilon):
        shift = 1 / (2 * multiplier)
        low, high = shift - epsilon * multiplier, -shift - epsilon * multiplier
        return norm.cdf(low) - math.exp(epsilon) * norm.cdf(high)

    return brentq(lambda epsilon: delta(epsilon) - DELTA, 0, 50)


# --- drawing noise ---------------------------------------------------------------------------------------------------


def test_noise_is_normal_and_independent():
    z = noisy(np.zeros(100_000), 1.0, SeededEntropy(1, "noise"))
    assert kstest(z, "norm").pvalue > 0.01
    # The two halves are the sines and cosines of the same angles.
    assert abs(np.corrcoef(z[:50_000], z[50_000:])[0, 1]) < 0.02
    assert abs(np.corrcoef(z[:50_000] ** 2, z[50_000:] ** 2)[0, 1]) < 0.02
    assert abs(np.corrcoef(z[1:], z[:-1])[0, 1]) < 0.02


def test_noise_is_added_to_the_vector_in_units_of_sigma():
    vector = np.linspace(-5, 5, 7)
    z = noisy(np.zeros(7), 1.0, SeededEntropy(0))
    assert noisy(vector, 3.0, SeededEntropy(0)) == pytest.approx(vector + 3 * z)
    assert noisy(vector, 0.0, SeededEntropy(0)).tolist() == vector.tolist()
    assert vector.tolist() == np.linspace(-5, 5, 7).tolist()


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_any_length_will_do(length):
    assert noisy(np.zeros(length), 1.0, SeededEntropy(0)).shape == (length,)


def test_every_draw_is_new_and_repeats_only_with_the_seed():
    entropy = SeededEntropy(0)
    first, second = (noisy(np.zeros(4), 1.0, entropy) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, noisy(np.zeros(4), 1.0, SeededEntropy(0)))


@pytest.mark.parametrize(("number", "length"), [(0.0, 0.0), (1 - 2**-53, math.sqrt(2 * 53 * math.log(2)))])
def test_the_most_extreme_draws_are_finite(number, length):
    drawn = noisy(np.zeros(2), 1.0, Constant(number))
    assert np.linalg.norm(drawn) == pytest.approx(length)


def test_only_what_is_too_long_is_clipped():
    gradients = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, -1.0]])
    assert clipped(gradients, 1.0) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [0.0, -1.0]]))
    assert gradients[0].tolist() == [3.0, 4.0]


# --- how much, and what it is worth ----------------------------------------------------------------------------------


def test_theorem_1_is_as_printed():
    sigma = paper_sigma(0.5, 1e-6, users=7, samples=30, rounds=20, lipschitz=3.0)
    assert sigma**2 == pytest.approx(8 * 3**2 * 20 * math.log(1e6) / (7**2 * 30**2 * 0.5**2))


@pytest.mark.parametrize(("m", "epsilon"), [(1, 1.02), (10, 3.38), (100, 12.17), (1000, 53.34)])
def test_theorem_1_claims_1_and_gives_about_the_root_of_m_times_that(m, epsilon):
    """The figures of zCDP at G = 1, n = 100, T = 100."""
    sigma = paper_sigma(1.0, DELTA, users=m, **WORK)
    assert accounted_epsilon(sigma, DELTA, honest=m, **WORK) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize("m", [1, 10, 100])
def test_the_tight_accountant_agrees_with_the_closed_form_and_is_below_the_others(m):
    pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    sigma = paper_sigma(1.0, DELTA, users=m, **WORK)
    zcdp, rdp, pld = (
        accounted_epsilon(sigma, DELTA, honest=m, accountant=name, **WORK) for name in ("zcdp", "rdp", "pld")
    )
    # T Gaussians are as good as one with the T-th part of the variance. The sensitivity is 2 G / n.
    exact = exact_epsilon(sigma * math.sqrt(m) / 0.02 / math.sqrt(100))
    assert exact <= pld < exact + 1e-5
    assert pld < rdp < zcdp


@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_calibration_is_the_inverse_of_accounting(accountant, epsilon):
    if accountant != "zcdp":
        pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    rest = {"honest": 6, "lipschitz": 2.0, "accountant": accountant, **WORK}
    sigma = user_sigma(epsilon, DELTA, **rest)
    assert accounted_epsilon(sigma, DELTA, **rest) == pytest.approx(epsilon, rel=1e-5)


def test_the_noise_is_shared_by_the_honest_and_grows_with_what_a_sample_can_do():
    one = user_sigma(1.0, DELTA, honest=1, **WORK)
    assert user_sigma(1.0, DELTA, honest=4, **WORK) == pytest.approx(one / 2)
    assert user_sigma(1.0, DELTA, honest=1, samples=50, rounds=100) == pytest.approx(2 * one)
    assert user_sigma(1.0, DELTA, honest=1, samples=100, rounds=400) == pytest.approx(2 * one)
    assert user_sigma(1.0, DELTA, honest=1, lipschitz=3.0, **WORK) == pytest.approx(3 * one)


def test_every_impossible_setting_is_named():
    with pytest.raises(ConfigError) as caught:
        user_sigma(0.0, 1.0, honest=0, samples=-1, rounds=0, lipschitz=math.nan)
    assert [problem.split("=")[0] for problem in caught.value.problems] == [
        "epsilon",
        "honest",
        "samples",
        "rounds",
        "lipschitz",
        "delta",
    ]
    with pytest.raises(ConfigError, match="sigma"):
        accounted_epsilon(0.0, DELTA, honest=1, **WORK)
    with pytest.raises(ConfigError, match="users"):
        paper_sigma(1.0, DELTA, users=0, **WORK)


def test_an_unknown_accountant_is_refused():
    pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    with pytest.raises(ConfigError, match="zcdp, rdp or pld"):
        accounted_epsilon(1.0, DELTA, honest=1, accountant="moments", **WORK)


def test_without_the_extra_only_zcdp_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert accounted_epsilon(1.0, DELTA, honest=1, **WORK) > 0
    with pytest.raises(MissingExtra, match=r"tacit\[dp\]"):
        accounted_epsilon(1.0, DELTA, honest=1, accountant="pld", **WORK)
