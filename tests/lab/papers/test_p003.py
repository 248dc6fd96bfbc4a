"""Paper 003 run again: Theorem 4's bound, the least risk, Algorithm 1, and which ε its noise gives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from tacit.core.errors import ConfigError
from tacit.core.progress import ignore_progress
from tacit.lab.papers import find
from tacit.lab.papers.p003 import e as p003_e
from tacit.lab.papers.p003 import epsilon as p003_epsilon
from tacit.lab.papers.p003 import k, risk
from tacit.lab.papers.p003.risk import (
    Risk,
    RiskResult,
    RiskRuns,
    RiskSetting,
    run_algorithm_1,
    run_as_printed,
)
from tacit.lab.papers.p003.theorems import (
    CONVEXITY,
    SMOOTHNESS,
    TheoremConstants,
    exact_epsilon,
    theorem_4,
    theorem_delay,
)
from tacit.learn.random_streams import generator
from tacit.learn.training.assemble import assemble_run
from tacit.privacy import accounted_epsilon, paper_sigma, user_sigma
from tacit.privacy.distributed_noise import SharedNoise

pytestmark = pytest.mark.long

LAMBDA = CONVEXITY


@pytest.fixture(scope="module")
def data():
    """Digits, for which nothing has to be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_DATA", "nowhere")
        patch.setenv("XDG_CACHE_HOME", "nowhere")
        return risk.load_components(600)


# --- Theorem 4 -----------------------------------------------------------------------------------------------------

GIVEN = TheoremConstants(gap=0.3, distance=4.0, entries=3, smoothness=0.5, convexity=0.1, lipschitz=2.0)


def test_the_bound_is_what_a_hand_computes():
    """γ = 39; B = 0.9 + 128 + 0.12 + 24; 2 L/(λ (γ + T)) = 1/13.9; and 2 L ‖θ⁰ − θ*‖² = 4."""
    found = theorem_4(GIVEN, steps=100, every=3, users=10, summed=4, sigma=0.2)
    assert found == pytest.approx((153.02 / 0.1 + 4) / 13.9)
    assert found == pytest.approx(110.374, abs=1e-3)


def test_with_everybody_and_one_step_only_noise_and_differences_are_left():
    """B = 6 L Γ + d σ² = 0.9 + 0.12."""
    found = theorem_4(GIVEN, steps=100, every=1, users=10, summed=10, sigma=0.2)
    assert found == pytest.approx((1.02 / 0.1 + 4) / 13.9)


def test_a_single_user_has_nobody_left_out():
    assert math.isfinite(theorem_4(GIVEN, steps=10, every=1, users=1, summed=1, sigma=0.0))


def test_gamma_is_the_larger_of_two():
    assert theorem_delay(3, 0.5, 0.1) == pytest.approx(39)
    assert theorem_delay(50, 0.5, 0.1) == 50
    found = theorem_4(GIVEN, steps=100, every=50, users=10, summed=10, sigma=0.0)
    assert found == pytest.approx(((0.9 + 8 * 49**2 * 4) / 0.1 + 4) / 15)


# --- ε -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 8.0, 200.0])
def test_exact_epsilon_solves_its_equation_and_is_below_zcdp(rho):
    epsilon, mu = exact_epsilon(rho), math.sqrt(2 * rho)
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    assert delta == pytest.approx(1e-5, rel=1e-3)
    assert epsilon < rho + 2 * math.sqrt(rho * math.log(1e5))


def test_exact_epsilon_is_that_of_privacy_loss_distributions():
    pytest.importorskip("dp_accounting")
    sigma = user_sigma(1.0, 1e-5, honest=1, samples=10, rounds=7)
    rho = 7 / (2 * (sigma / 0.2) ** 2)
    tight = accounted_epsilon(sigma, 1e-5, honest=1, samples=10, rounds=7, accountant="pld")
    assert exact_epsilon(rho) == pytest.approx(tight, rel=1e-3)


def test_no_noise_that_matters_is_no_epsilon():
    assert exact_epsilon(0.0) == 0.0
    assert exact_epsilon(1e-14) == 0.0


# --- risk ----------------------------------------------------------------------------------------------------------


def test_samples_are_of_length_1_and_digits_if_there_is_no_mnist(data):
    assert data.name.startswith("digits")
    assert data.x.shape == (600, 20)
    for x in (data.x, data.x_test):
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)


@pytest.fixture(scope="module")
def some_risk(data):
    return Risk.of(data, [np.arange(10), np.arange(10, 100), np.arange(300, 340)])


def test_risk_is_a_mean_over_users_and_not_over_samples(data, some_risk):
    theta = np.linspace(-1, 1, 20)
    each = []
    for part in some_risk.parts:
        margins = np.where(data.y[part] % 2, 1, -1) * (data.x[part].astype(float) @ theta)
        each.append(np.log1p(np.exp(-margins)).mean() + LAMBDA / 2 * theta @ theta)
    assert some_risk.at(theta) == pytest.approx(np.mean(each))
    assert some_risk.at(np.zeros(20)) == pytest.approx(math.log(2))


def test_slope_is_the_derivative_of_risk(some_risk):
    theta = np.linspace(-1, 1, 20)
    shifts = 1e-6 * np.eye(20)
    numeric = [(some_risk.at(theta + shift) - some_risk.at(theta - shift)) / 2e-6 for shift in shifts]
    np.testing.assert_allclose(some_risk.slope(theta), numeric, atol=1e-8)


def test_the_best_has_no_slope_and_lambda_and_l_hold(some_risk):
    assert np.linalg.norm(some_risk.slope(some_risk.best)) < 1e-12
    rng = np.random.default_rng(0)
    for _ in range(20):
        away = rng.normal(size=20)
        excess, square = some_risk.excess(some_risk.best + away), away @ away
        assert LAMBDA / 2 * square <= excess <= SMOOTHNESS / 2 * square


def test_gamma_of_users_with_the_same_samples_is_0_and_of_others_more(data, some_risk):
    same = Risk.of(data, [np.arange(50)] * 3)
    assert same.gap == pytest.approx(0, abs=1e-12)
    assert some_risk.gap > 1e-3


# --- Algorithm 1 ---------------------------------------------------------------------------------------------------


def by_hand(data, parts, steps, every, chosen=None):
    """Returns θ̄ of Algorithm 1 without noise; with sets of users, only those in them take an average over."""
    users = Risk.of(data, parts).users
    models = np.zeros((len(users), 20))
    gamma = max(8 * 0.35 / 0.1 - 1, every)
    for t in range(1, steps + 1):
        models = np.array(
            [own - 2 / (0.1 * (t + gamma)) * user.slope(own) for own, user in zip(models, users, strict=True)]
        )
        if t % every == 0:
            summed = slice(None) if chosen is None else next(chosen)
            models[summed] = models[summed].mean(axis=0)
    return models.mean(axis=0)


@pytest.mark.parametrize(("every", "split"), [(1, "i.i.d."), (3, "shards")])
def test_a_run_is_algorithm_1(data, every, split):
    setting = RiskSetting(None, users=5, steps=12, every=every, split=split)
    prepared = assemble_run(setting.scenario(), data=data)
    theta = by_hand(data, prepared.parts, 12, every)
    found = run_algorithm_1(setting, data)
    assert found.excess == pytest.approx(Risk.of(data, prepared.parts).excess(theta), rel=1e-4)
    assert (found.sigma, found.spent, found.exact) == (0, 0, 0)


def test_as_printed_only_those_who_were_summed_take_the_average_over(data):
    setting = RiskSetting(None, users=6, steps=6, every=2, summed=3, split="shards", seed=4)
    prepared = assemble_run(setting.scenario(), data=data)
    rng = generator(4, "summed")
    theta = by_hand(data, prepared.parts, 6, 2, iter([rng.choice(6, 3, replace=False) for _ in range(3)]))
    expected = Risk.of(data, prepared.parts).excess(theta)
    found = run_as_printed(setting, data)
    assert found.excess == pytest.approx(expected, rel=1e-4)
    assert run_algorithm_1(setting, data).excess != pytest.approx(expected, rel=1e-3)


def test_steps_that_do_not_end_with_an_average_are_refused():
    with pytest.raises(ConfigError, match="10 steps do not end"):
        RiskSetting(None, steps=10, every=3).scenario()


def test_the_papers_sigma_goes_by_all_users_and_its_epsilon_by_those_in_the_sum(data):
    found = run_algorithm_1(RiskSetting(1.0, "paper", users=6, steps=4, summed=3), data)
    assert found.sigma == pytest.approx(paper_sigma(1.0, 1e-5, users=6, samples=100, rounds=4))
    once = (2 / 100 / found.sigma) ** 2 / 2 / 2  # of three in the sum, one of whom looks
    assert found.rho / once == pytest.approx(round(found.rho / once))
    assert 1 <= round(found.rho / once) <= 4


def test_noise_is_worth_the_epsilon_that_was_asked_for_only_if_calibrated(data):
    setting = RiskSetting(1.0, users=6, steps=4)
    calibrated, paper = (run_algorithm_1(replace(setting, sigma=sigma), data) for sigma in ("calibrated", "paper"))
    assert calibrated.spent == pytest.approx(1.0)
    assert paper.exact > 1.5
    assert calibrated.sigma == pytest.approx(user_sigma(1.0, 1e-5, honest=5, samples=100, rounds=4))
    several = run_algorithm_1(replace(setting, every=2), data)
    assert several.sigma == pytest.approx(math.sqrt(5) * calibrated.sigma)
    assert several.spent == pytest.approx(1.0)


def test_estimates_are_over_seeds_and_epsilon_is_the_worst(data):
    setting = RiskSetting(1.0, users=6, steps=4, summed=3)
    one, two = run_algorithm_1(setting, data), run_algorithm_1(replace(setting, seed=1), data)
    both = risk.repeat_runs(setting, data, 2)
    assert one.excess != two.excess
    assert both.excess.mean == pytest.approx((one.excess + two.excess) / 2)
    assert both.excess.deviation > 0
    assert both.worst.spent == max(one.spent, two.spent)


# --- rows ----------------------------------------------------------------------------------------------------------


def runs_of(excess=1e-4, bound=1e-2, sigma="paper", rho=0.01, spent=1.0, noise=0.1, **setting):
    """Returns two runs whose excess is a thousandth off the given one, either way."""
    made = RiskSetting(setting.pop("epsilon", 1.0), sigma, **setting)
    runs = [RiskResult(made, excess * off, bound, 0.05, noise, spent, rho, 0.8, 0.3, excess) for off in (0.999, 1.001)]
    return RiskRuns(tuple(runs))


def test_a_claim_is_refuted_by_the_least_epsilon():
    assert p003_epsilon.accounted_row(runs_of(rho=0.01, spent=1.02)).agrees is True
    assert p003_epsilon.accounted_row(runs_of(rho=1.0, spent=8.0)).agrees is False
    assert p003_epsilon.accounted_row(runs_of(sigma="calibrated", spent=1.0)).agrees is None


def test_an_excess_is_held_against_its_bound_and_bounds_that_say_nothing_are_not_compared():
    for excess, bound, agrees in ((1e-3, 1e-2, True), (1e-1, 1e-2, False), (1e-3, 0.04, True), (1e-3, 0.06, None)):
        row = p003_epsilon.excess_row(runs_of(excess, bound))
        assert row.agrees is agrees
        assert row.ours.startswith(f"5.0e-02, {bound:.1e}, {excess:.1e}")


def test_the_power_of_epsilon_is_fitted_where_noise_counts():
    clean = runs_of(1e-6)
    falling = [runs_of(1e-3 / epsilon**2, epsilon=epsilon) for epsilon in (0.1, 0.3, 1.0)]
    row = p003_epsilon.falling_row([*falling, runs_of(2e-6, epsilon=3.0)], clean)
    assert (row.ours, row.agrees) == ("-2.00 ± 0.00 (2 seeds)", True)
    assert "for ε up to 1;" in row.why
    once = [runs_of(1e-3 / epsilon, epsilon=epsilon) for epsilon in (0.1, 0.3, 1.0)]
    assert p003_epsilon.falling_row(once, clean).agrees is False
    assert p003_epsilon.falling_row([clean], clean).agrees is False


def test_ratios_are_of_excess_and_of_variance():
    row = p003_epsilon.cheaper_row(runs_of(5e-3, noise=0.7), runs_of(1e-4, noise=0.1))
    assert row.ours == "50 ± 0, 49"


def k_runs(power, split="shards"):
    return [runs_of(1e-6 * (1 + (every - 1) ** power), every=every, split=split) for every in k.KS]


def test_a_larger_k_costs_utility_and_the_power_is_fitted():
    order, power, telling = k.cost_rows("shards", k_runs(1.5))
    assert (order.agrees, power.agrees) == (True, True)
    assert power.ours.startswith("1.50")
    assert telling.ours == "25"
    assert k.cost_rows("shards", k_runs(2.5))[1].agrees is False
    flat = [runs_of(1e-6, every=every) for every in k.KS]
    order, telling = k.cost_rows("i.i.d.", flat)
    assert order.agrees is None
    assert k.cost_rows("shards", flat)[1].verdict == "differs", "there is no power of a loss that is none"


def test_epsilon_with_several_steps_is_between_two():
    one, two = k.spent_row(runs_of(rho=2.0)), k.spent_row(runs_of(rho=100.0, every=2, users=50))
    assert one.ours == two.ours
    assert (one.agrees, two.agrees) == (False, False)
    assert f"{exact_epsilon(100.0):.3g}" in two.why
    assert k.spent_row(runs_of(rho=0.01)).agrees is True


def test_the_cost_of_a_small_e_is_fitted():
    """With m = 50: (m−E)/((m−1) E) is 48/98, 45/245 and 40/490."""
    assert p003_e.variance_factor(5, 50) == pytest.approx(45 / 245)
    everybody = runs_of(1e-6, summed=50, users=50)
    runs = [runs_of(1e-6 + 1e-3 * p003_e.variance_factor(e, 50), summed=e) for e in (2, 5, 10)]
    (power,) = p003_e.cost_rows("shards", [*runs, everybody])
    assert (power.ours, power.agrees) == ("1.00 ± 0.00 (2 seeds)", True)
    flat = [runs_of(2e-6, summed=e) for e in (2, 5, 10)]
    assert p003_e.cost_rows("shards", [*flat, everybody])[0].agrees is False
    assert p003_e.cost_rows("shards", [*flat, runs_of(3e-6, summed=50, users=50)])[0].ours == "failed"


# --- noise in the ring ---------------------------------------------------------------------------------------------


def test_of_fewer_honest_users_epsilon_is_larger():
    noise = SharedNoise(1.0, 1e-6, 0.1, entries=20)
    few, many = (p003_epsilon.epsilon_of_sums(noise, [honest] * 5) for honest in (4, 16))
    assert few / many == pytest.approx(2, rel=0.05)


def test_noise_in_the_ring_keeps_its_epsilon_while_some_drop_out_and_others_collude(data):
    held, trusting = p003_epsilon.ring_rows(replace(p003_epsilon.RING, users=12, steps=4), data)
    spent, real = (each.mean for each in held.estimates)
    assert max(spent, real) <= p003_epsilon.WANTED * (1 + 1e-9)
    assert trusting.estimates[0].mean > p003_epsilon.WANTED
    assert "4 of 4 rounds had a sum" in held.why or "3 of 4 rounds had a sum" in held.why


# --- as a whole ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(data, monkeypatch):
    for module in (p003_epsilon, k, p003_e):
        monkeypatch.setattr(module, "load_components", lambda *_: data)
        monkeypatch.setitem(module.SIZES, "small", risk.RiskSize(None, 10, 2, users=6))
    monkeypatch.setattr(p003_epsilon, "RING", replace(p003_epsilon.RING, users=12, steps=2))
    monkeypatch.setattr(k, "KS", (1, 5))
    monkeypatch.setattr(k, "APART", (1, 5))
    monkeypatch.setattr(p003_e, "ES", (2, 4))
    monkeypatch.setattr(p003_e, "APART", (2, 6))
    monkeypatch.setattr(p003_e, "TOLD", (4, 6))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "name",
    ["003-epsilon", pytest.param("003-k", marks=pytest.mark.slow), pytest.param("003-e", marks=pytest.mark.slow)],
)
def test_bounds_hold_and_the_papers_noise_does_not(name):
    heard = []
    found = find(name).run("small", lambda *told: heard.append(told))
    assert [done for _, done in heard] == sorted(done for _, done in heard)
    assert heard[-1][1] == 1.0
    bounds = [row for row in found.rows if "Theorem 4's bound, and" in row.what]
    assert bounds
    assert not any(row.agrees is False for row in bounds)
    claims = [row for row in found.rows if row.what.startswith("least ε of the noise,") and row.paper]
    assert claims
    assert not any(row.agrees for row in claims)
    for chart in found.charts:
        assert set(chart.dashed) <= set(chart.lines)
        assert all(len(places) == len(values) for places, values in chart.lines.values())


@pytest.mark.usefixtures("tiny")
def test_both_protocols_give_the_same_models(data):
    row = p003_epsilon.same_row(risk.RiskSize(None, 50, 1, users=6), data)
    assert (row.ours, row.agrees) == ("0", True)


@pytest.mark.slow
def test_small_epsilon_falls_with_the_square():
    rows = {row.what: row for row in find("003-epsilon").run("small", ignore_progress).rows}
    assert rows[p003_epsilon.FALLING.what].agrees
    assert rows[p003_epsilon.declare_claim("paper", 1.0).what].agrees is False


@pytest.mark.slow
def test_small_k_costs_utility_where_users_differ():
    rows = {row.what: row for row in find("003-k").run("small", ignore_progress).rows}
    assert rows[k.declare_order("shards").what].agrees


@pytest.mark.slow
def test_small_e_costs_utility():
    rows = {row.what: row for row in find("003-e").run("small", ignore_progress).rows}
    assert all(rows[p003_e.declare_order(p003_e.LINES[0], split).what].agrees is not False for split in risk.SPLITS)
