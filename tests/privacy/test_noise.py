import math
import sys

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, MissingExtra
from tacit.core.suite import Parties
from tacit.privacy import (
    SharedNoise,
    accounted_epsilon,
    central_sigma,
    clip_gradients,
    count_honest,
    distributed_sigma,
    epsilon_of,
    local_sigma,
    noisy,
    of_sample,
    of_user,
    paper_sigma,
    shared_noise,
    user_sigma,
)
from tacit.protocols import REGISTRY
from tacit.vectors.fixedpoint import FixedPoint, longest

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
    assert clip_gradients(gradients, 1.0) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [0.0, -1.0]]))
    assert gradients[0].tolist() == [3.0, 4.0]


# --- calibration and accounting ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("accountant", "epsilon", "delta"), [("rdp", 0.01, 1e-12), ("pld", 1.0, 1e-30)])
def test_an_accountant_that_does_not_reach_so_far_says_which_does(accountant, epsilon, delta):
    pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    for calibrated in (local_sigma, central_sigma):
        with pytest.raises(ConfigError, match=f'"{accountant}" does not reach .* use "zcdp"'):
            calibrated(epsilon, delta, sensitivity=1.0, accountant=accountant)
        assert calibrated(epsilon, delta, sensitivity=1.0) > 0
    with pytest.raises(ConfigError, match="rdp"):
        distributed_sigma(epsilon, delta, parties=10, norm=1.0, accountant=accountant)


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


# --- local, central and per user ------------------------------------------------------------------------------------


def test_one_noise_of_the_size_of_all_is_what_each_adds_if_nobody_else_counts():
    sample = {"sensitivity": of_sample(100), "rounds": 100}
    assert local_sigma(1.0, DELTA, **sample) == central_sigma(1.0, DELTA, **sample)
    assert local_sigma(1.0, DELTA, **sample) == pytest.approx(user_sigma(1.0, DELTA, honest=1, **WORK))
    assert of_user(0.5) == 1.0
    assert of_sample(100, 3.0) == pytest.approx(0.06)
    with pytest.raises(ConfigError, match="sensitivity"):
        local_sigma(1.0, DELTA, sensitivity=0.0)


@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld"])
def test_rounds_of_gaussian_noise_are_together_one_gaussian(accountant):
    if accountant != "zcdp":
        pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    rho = 7 / (2 * 5.0**2)
    seven = accounted_epsilon(5.0, DELTA, honest=1, samples=2, rounds=7, accountant=accountant)
    assert epsilon_of(rho, DELTA, accountant) == pytest.approx(seven, rel=1e-3)
    assert epsilon_of(0.0, DELTA, accountant) == 0.0
    assert epsilon_of(math.inf, DELTA, accountant) == math.inf


def test_of_discrete_noise_privacy_loss_distributions_say_nothing():
    with pytest.raises(ConfigError, match="rdp"):
        epsilon_of(1.0, DELTA, "pld", gaussian=False)
    with pytest.raises(ConfigError, match="rdp"):
        distributed_sigma(1.0, DELTA, parties=10, norm=1.0, accountant="pld")


# --- discrete noise of many in one sum -------------------------------------------------------------------------------


def law_of_sum(sigma, honest):
    """Returns the law of a sum of discrete Gaussians, on whole numbers from −n to n, exactly but for its far tails."""
    reach = math.ceil(14 * sigma * math.sqrt(honest)) + 5
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    one /= one.sum()
    law = one
    for _ in range(honest - 1):
        law = np.convolve(law, one)
    return law


def renyi(law, moved, alpha):
    """Returns the Rényi divergence of a law that was moved by whole numbers from itself."""
    here, there = law[moved:], law[: len(law) - moved]
    both = (here > 0) & (there > 0)
    terms = alpha * np.log(here[both]) + (1 - alpha) * np.log(there[both])
    return float(np.logaddexp.reduce(terms)) / (alpha - 1)


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0, 1.7])
@pytest.mark.parametrize("honest", [1, 2, 3, 8])
@pytest.mark.parametrize("moved", [1, 2, 5])
def test_a_sum_of_discrete_noise_is_as_private_as_the_bound_says(sigma, honest, moved):
    """Of one entry, against the exact divergence. The step of an entry that rounding may add is in `moved`."""
    noise = SharedNoise(sigma, 1.0, moved - 1.0, honest)
    assert noise.moved == moved
    law = law_of_sum(sigma, honest)
    # The divergence is decided α times as far away as the law was moved, where the law must still be exact.
    orders = [alpha for alpha in (1.001, 1.5, 2.0, 4.0, 8.0) if alpha * moved < 11 * sigma * math.sqrt(honest)]
    assert orders
    for alpha in orders:
        assert renyi(law, moved, alpha) <= alpha * noise.rho * (1 + 1e-6) + 1e-9


def test_the_term_for_sums_is_needed():
    """Without τ the bound is too small: a sum of coarse noise is less private than a Gaussian of that variance."""
    sigma, honest = 0.5, 8
    gaussian = 1 / (2 * honest * sigma**2)
    assert renyi(law_of_sum(sigma, honest), 1, 1.0001) > 1.0001 * gaussian
    assert SharedNoise(sigma, 1.0, 0.0, honest).rho > gaussian


def test_beyond_a_few_steps_discrete_noise_is_as_good_as_any():
    noise = SharedNoise(1.0, 1e-6, 0.5, honest=10, entries=1)
    assert noise.tau == 0.0
    assert noise.rho == pytest.approx(0.5**2 / (2 * 10), rel=1e-5)
    assert SharedNoise(1.0, 0.2, 0.5, honest=10).tau < 1e-100


def test_less_than_half_a_step_of_noise_is_none():
    assert SharedNoise(0.49, 1.0, 1.0).rho == math.inf
    assert SharedNoise(0.49, 1.0, 1.0).epsilon(DELTA) == math.inf


def test_entries_rounding_rounds_and_encodings_cost_and_honest_parties_help():
    plain = SharedNoise(1.0, 0.01, 1.0, honest=4)
    assert SharedNoise(1.0, 0.01, 1.0, honest=4, entries=10_000).rho == pytest.approx(
        plain.rho * (2 / 1.01) ** 2, rel=0.01
    )
    assert SharedNoise(1.0, 0.01, 1.0, honest=16).rho == pytest.approx(plain.rho / 4)
    assert SharedNoise(1.0, 0.01, 1.0, honest=4, releases=3).rho == pytest.approx(3 * plain.rho)
    assert plain.epsilon(DELTA, rounds=9) == pytest.approx(epsilon_of(9 * plain.rho, DELTA))
    assert plain.event().rho == plain.rho
    assert not plain.event().gaussian


@pytest.mark.parametrize("stochastic", [False, True])
def test_per_user_the_length_of_rounded_vectors_counts(stochastic):
    """A norm of 1 in 16 bits, where a step is a tenth of it, and ten thousand entries."""
    noise = SharedNoise(1.0, 0.1, of_user(1.0), entries=10_000, norm=1.0, stochastic=stochastic)
    assert noise.moved == min(20 + 100, 2 * longest(10.0, 10_000, stochastic=stochastic))
    fine = SharedNoise(1.0, 1e-9, of_user(1.0), entries=10_000, norm=1.0, stochastic=stochastic)
    assert fine.moved * 1e-9 == pytest.approx(2.0, abs=1e-4)


def test_the_vectors_of_a_ring_are_no_further_apart_than_is_said():
    rng = np.random.default_rng(0)
    for d, bits in ((50, 16), (400, 16), (400, 32)):
        ring = FixedPoint(bits, 4.0, 20, d, norm=1.0)
        noise = SharedNoise(1.0, ring.resolution, of_user(1.0), entries=d, norm=1.0)
        for _ in range(50):
            one, other = (rng.normal(size=d) * rng.choice([0.01, 1.0], size=d) for _ in range(2))
            apart = ring.encode_with_noise(one).view(ring._signed).astype(float) - ring.encode_with_noise(-other).view(
                ring._signed
            )
            assert np.linalg.norm(apart) <= noise.moved
            near = one + rng.normal(size=d) * 1e-3
            moved = np.linalg.norm(ring._shorten(near) - ring._shorten(one))
            apart = ring.encode_with_noise(one).view(ring._signed).astype(float) - ring.encode_with_noise(near).view(
                ring._signed
            )
            assert np.linalg.norm(apart) <= SharedNoise(1.0, ring.resolution, moved, entries=d).moved


@pytest.mark.parametrize(
    ("parties", "dropouts", "colluders", "left"),
    [(10, 0.0, 0, 10), (10, 0.2, 3, 5), (10, 0.25, 0, 7), (100, 0.29, 0, 71), (3, 0.3, 1, 1), (10, 0.3, 0, 7)],
)
def test_whoever_may_drop_out_or_collude_is_not_counted_on(parties, dropouts, colluders, left):
    assert count_honest(parties, dropouts, colluders) == left


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ((10, 1.0, 0), "dropouts"),
        ((10, -0.1, 0), "dropouts"),
        ((10, 0.0, -1), "colluders"),
        ((10, 0.0, 10), "leaves nobody"),
        ((10, 0.5, 5), "leaves nobody"),
    ],
)
def test_somebody_must_be_left(question, named):
    with pytest.raises(ConfigError, match=named):
        count_honest(*question)


@pytest.mark.parametrize("accountant", ["zcdp", "rdp"])
@pytest.mark.parametrize(
    "ring", [{"bits": 16, "clip": 1.0, "entries": 100}, {"entries": 10_000}, {"bits": 64, "entries": 1_000_000}]
)
@pytest.mark.parametrize("bound", [{"norm": 0.5}, {"sensitivity": 0.02}])
def test_the_noise_of_each_is_the_least_that_will_do(accountant, ring, bound):
    if accountant != "zcdp":
        pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    question = {"parties": 10, "dropouts": 0.2, "colluders": 1, "rounds": 20, **bound, **ring}
    sigma = distributed_sigma(2.0, DELTA, accountant=accountant, **question)
    options = {"noise": sigma, "bits": ring.get("bits", 32), "clip": ring.get("clip", 32.0)}
    terms = terms_of(10, threshold=8, **options, **({"norm": 0.5} if "norm" in bound else {}))
    noise = shared_noise(terms, ring["entries"], sensitivity=bound.get("sensitivity"), colluders=1)
    assert noise.honest == 7
    assert noise.epsilon(DELTA, 20, accountant) == pytest.approx(2.0, rel=1e-4)
    less = terms_of(10, threshold=8, **{**options, "noise": sigma * 0.98}, **({"norm": 0.5} if "norm" in bound else {}))
    weaker = shared_noise(less, ring["entries"], sensitivity=bound.get("sensitivity"), colluders=1)
    assert weaker.epsilon(DELTA, 20, accountant) > 2.0


def terms_of(parties, protocol="secagg", **options):
    names = Parties(f"p{place}" for place in range(parties))
    return REGISTRY[protocol].settings_from(options).bind(names)


def test_a_ring_may_be_too_coarse_for_any_noise():
    with pytest.raises(ConfigError, match=r"no noise gives ε = 0.1 .* use more bits"):
        distributed_sigma(0.1, DELTA, parties=1000, sensitivity=0.1, entries=1_000_000, bits=16, rounds=100)


def test_noise_for_sums_is_asked_for_by_one_bound_and_numbers_that_can_be():
    for bounds in ({}, {"norm": 1.0, "sensitivity": 1.0}):
        with pytest.raises(ConfigError, match="give the norm"):
            distributed_sigma(1.0, DELTA, parties=10, **bounds)
    with pytest.raises(ConfigError) as caught:
        distributed_sigma(-1.0, 2.0, parties=10, norm=0.0)
    assert [problem.split("=")[0] for problem in caught.value.problems] == ["epsilon", "sensitivity", "delta"]


def test_what_settings_promise_is_what_their_noise_is_worth():
    terms = terms_of(9, noise=0.1, norm=1.0)
    assert terms.smallest_sum == 7
    assert shared_noise(terms, 100).honest == 7
    assert shared_noise(terms, 100, colluders=3).honest == 4
    assert shared_noise(terms, 100, honest=2).honest == 2
    assert shared_noise(terms, 100, sensitivity=0.3).sensitivity == 0.3
    assert shared_noise(terms, 100).sensitivity == 2.0
    # A server that sees vectors one by one sees each with its own noise.
    assert shared_noise(terms_of(9, "fedavg", noise=0.1, norm=1.0), 100).honest == 1
    with pytest.raises(ConfigError) as caught:
        shared_noise(terms_of(9), 100)
    assert [problem.split(";")[0] for problem in caught.value.problems] == [
        "the settings have no noise",
        "how far a vector can be moved is not bounded",
    ]
    with pytest.raises(ConfigError, match="larger threshold"):
        shared_noise(terms, 100, colluders=7)


def test_in_an_irregular_graph_a_vector_is_seen_with_other_noise_by_neighbours_of_other_weights():
    regular = terms_of(6, "cesar", noise=0.1, norm=1.0, graph="complete")
    assert (regular.releases, regular.part) == (1, pytest.approx(1 / 6))
    star = [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (3, 4), (4, 5), (5, 3)]
    odd = terms_of(6, "gossip", noise=0.1, norm=1.0, graph=star)
    assert odd.releases > 1
    assert shared_noise(odd, 10).rho == pytest.approx(odd.releases * shared_noise(regular, 10).rho, rel=1e-4)
