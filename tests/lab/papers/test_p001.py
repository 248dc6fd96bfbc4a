"""Paper 001 run again: what is measured is what the papers' figures are of, and rows say what was measured."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.core.progress import ignore_progress, part_of_progress
from tacit.lab.attacks import eavesdropper_learning
from tacit.lab.attacks.inception import ClassifierSettings
from tacit.lab.attacks.traffic_series import CHANGING, LINKS, Losses
from tacit.lab.papers import find
from tacit.lab.papers.p001 import eavesdroppers, fig3, fig4, fig7, steps, table3
from tacit.lab.papers.p001.eavesdroppers import EavesdropperScores
from tacit.learn.data.datasets import load, of_arrays
from tacit.learn.random_streams import generator

pytestmark = pytest.mark.long

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the eavesdropper's classifier is a torch network")
TINY = ClassifierSettings(epochs=2, batch=50, width=2, modules=1)
SMALL = replace(eavesdropper_learning.FULL, rounds=6, training=TINY, runs=60, training_3=TINY)


def trial_of(target, who="weak", flat=False):
    found = next(t for t in eavesdropper_learning.tables_1_and_2(SMALL) if t.target == target and t.eavesdropper == who)
    return replace(found, flat=flat)


def telling(*accuracies, trial=None):
    """Returns eavesdroppers who told exactly these shares of 1000 runs."""
    labels = np.zeros(1000, np.int64)
    rows = [
        eavesdropper_learning.TrialResult(
            trial, (0.7,), (0.5,), labels, (np.arange(1000) >= round(1000 * each)).astype(np.int64), labels
        )
        for each in accuracies
    ]
    return EavesdropperScores(trial or trial_of("PSGD"), tuple(rows))


# --- Fig. 3 --------------------------------------------------------------------------------------------------------


def test_the_loss_is_that_of_equation_17():
    w = np.linspace(-3, 5, 9)
    np.testing.assert_allclose(fig3.loss(w), 5 * (w - 2) ** 2 + 5)
    models = np.array([[[0.0, 2.0], [3.0, 1.0]]])
    found = fig3.PushSumRuns("", models)
    np.testing.assert_allclose(found.over_clients(0), [10.0])
    np.testing.assert_allclose(found.worst(0), [20.0])
    np.testing.assert_allclose(found.worst(1), [5.0])


def test_plain_runs_are_algorithm_3_from_the_start_on():
    found = fig3.runs_of(fig3.PSGD, 2, rounds=8)
    optima = np.array([2.0, 4.5, 2.0, 2.0, -0.5])
    degree = np.bincount([i for i, _ in LINKS])
    p = np.diag(1 / (degree + 1))
    for i, j in LINKS:
        p[j, i] = 1 / (degree[i] + 1)
    for seed, models in enumerate(found.models):
        x, y = generator(seed, "figure 3").normal(size=5), np.ones(5)
        np.testing.assert_array_equal(models[0], x)
        for t in range(1, 9):
            z, y = p @ x, p @ y
            np.testing.assert_allclose(models[t], z / y, atol=1e-6)
            x = z - 1 / (2 * t) * 2 * (z / y - optima)


def test_private_runs_come_near_the_optimum():
    found = fig3.runs_of(fig3.PPSGD, 3, rounds=20)
    assert found.models.shape == (3, 21, 5)
    assert (found.over_clients(0) > 5).all()
    assert (found.over_clients(20) < 0.06).all()


def test_a_run_that_stays_away_from_the_optimum_does_not_agree():
    near, far = (fig3.PushSumRuns(fig3.PPSGD, np.full((40, 51, 5), w)) for w in (2.001, 2.5))
    assert {row.agrees for row in fig3.paper_rows(near, near)} == {True}
    assert {row.agrees for row in fig3.paper_rows(far, near)} == {False}
    assert fig3.start_row(near).agrees
    one_of_four = fig3.PushSumRuns(fig3.PPSGD, np.concatenate([near.models[:30], far.models[:10]]))
    assert fig3.start_row(one_of_four).agrees is False
    assert "worst 1.2" in fig3.start_row(one_of_four).why  # 5 · 0.5² of the worst
    few = fig3.PushSumRuns(fig3.PPSGD, near.models[:5])
    assert fig3.start_row(few).agrees is None, "five runs cannot show that nine of ten converge"


def test_without_steps_clients_agree_on_what_the_masses_have_in_all():
    (end,) = steps.run_schedule(lambda _: 0.0, 1, 400)[:, -1]
    rng = generator(0, "step sizes")
    x, y = rng.normal(size=5), rng.uniform(0.5, 1.5, 5)
    assert end == pytest.approx(5 * (x.sum() / y.sum() - 2) ** 2, rel=1e-6)


def test_step_sizes_that_fall_like_1_by_2t_are_those_of_the_figure():
    ours = steps.run_schedule(steps.SCHEDULES["1/(2t)"], 40, 20)
    deployed = fig3.runs_of(fig3.PPSGD, 12, rounds=20)
    assert np.median(ours[:, -1]) == pytest.approx(np.median(deployed.over_clients(20)), rel=0.5)
    slow = steps.run_schedule(steps.SCHEDULES["1/(4t)"], 40, 20)
    assert np.median(slow[:, -1]) > 5 * np.median(ours[:, -1])


# --- what eavesdroppers share --------------------------------------------------------------------------------------


@needs_torch
def test_each_eavesdropper_hears_runs_of_its_own():
    (found,) = eavesdroppers.train_eavesdroppers([trial_of("PSGD")], 2, ignore_progress)
    first, second = found.rows
    assert first.loss != second.loss
    assert found.accuracy == np.mean([first.accuracy, second.accuracy])
    assert (found.estimate.mean, found.estimate.count) == (found.accuracy, 2)
    assert " to " in found.coverage


@needs_torch
def test_progress_of_several_trials_is_that_of_a_part():
    heard = []
    trials = [trial_of("PSGD"), trial_of("PPSGD")]
    part = part_of_progress(lambda doing, done: heard.append((doing, done)), 0.5, 0.9)
    eavesdroppers.train_eavesdroppers(trials, 1, part)
    assert [done for _, done in heard] == pytest.approx([0.5, 0.7])
    assert heard[1][0].startswith("PPSGD, weak")


def test_eavesdroppers_are_compared_one_by_one():
    less = telling(0.9, 0.8).less(telling(0.7, 0.7))
    assert less.mean == pytest.approx(0.15)
    assert less.deviation == pytest.approx(0.0707, abs=1e-3)


def few(trial, runs=15):
    return replace(trial, test_runs=[(losses, label, runs) for losses, label, _ in trial.test_runs])


@pytest.mark.parametrize("target", ["PSGD", "PPSGD"])
def test_who_decodes_needs_no_training(target):
    assert eavesdroppers.decode_classes(few(trial_of(target)), CHANGING).mean == 1.0
    assert eavesdroppers.decode_classes(few(trial_of(f"{target}, noise")), CHANGING).mean < 0.8


@pytest.mark.parametrize("name", table3.PRIVATE)
def test_the_links_of_one_client_are_enough_to_decode_it_whatever_its_start(name):
    trial = next(trial for trial in eavesdropper_learning.table_3(SMALL) if trial.target == name)
    assert len(trial.channels) == 3
    assert eavesdroppers.decode_classes(few(trial), 0).mean >= 0.95


def test_a_client_that_does_not_change_is_always_taken_for_the_baseline():
    """Class 1 is then never told: only the client that changes shows it."""
    assert eavesdroppers.decode_classes(few(trial_of("PPSGD")), 0).mean == 0.5


# --- Figs. 4 and 5 -------------------------------------------------------------------------------------------------


def test_one_series_holds_the_same_numbers_link_behind_link():
    apart, flat = (trial_of("PSGD", flat=flat) for flat in (False, True))
    (several, labels), (one, same) = (t.listen(t.test_runs, np.random.default_rng(0)) for t in (apart, flat))
    assert several.shape == (200, 16, 6)
    assert one.shape == (200, 1, 96)
    np.testing.assert_array_equal(one.reshape(200, 16, 6), several)
    np.testing.assert_array_equal(labels, same)


@pytest.mark.parametrize(("ours", "agrees"), [(0.74, True), (0.69, True), (0.79, True), (1.0, False), (0.5, False)])
def test_a_printed_accuracy_agrees_within_the_spread_of_200_test_runs(ours, agrees):
    row = fig4.printed_row(telling(ours, ours + 0.001, ours - 0.001, trial=trial_of("PSGD")), fig4.APART)
    assert (row.paper, row.agrees) == ("74.0%", agrees)
    wide = fig4.printed_row(telling(0.5, 0.75, 1.0, trial=trial_of("PSGD")), fig4.APART)
    assert wide.agrees is None


def fig4_table(weak, strong):
    """Returns three eavesdroppers of each kind, with these accuracies."""
    return {
        (target, who): telling(value, value + 0.001, value - 0.001, trial=trial_of(target))
        for who, values in (("weak", weak), ("strong", strong))
        for target, value in zip(fig4.TARGETS, values, strict=True)
    }


def test_accuracies_are_compared_by_sign():
    rows = {row.what: row for row in fig4.compared_rows(fig4_table([0.9, 0.6, 0.8, 0.5], [0.95, 0.6, 0.95, 0.4]))}
    strong = [rows[fig4.declare_strong(target).what].agrees for target in fig4.TARGETS]
    assert strong == [True, None, True, False]
    assert [rows[fig4.declare_harder(who).what].agrees for who in fig4.WHO] == [True, None]
    assert [rows[fig4.declare_noise(who).what].agrees for who in fig4.WHO] == [True, None]


def test_decoding_refutes_that_ppsgd_is_harder():
    table = {(target, "weak"): telling(0.5, trial=few(trial_of(target), 100)) for target in fig4.TARGETS}
    rows = {row.what: row for row in fig4.decoded_rows(table)}
    assert rows["decoded from 5 rounds, PPSGD"].agrees is False
    assert rows["decoded from 5 rounds, PSGD"].ours == "100.0% (200 test runs)"


@pytest.mark.slow
@needs_torch
def test_fig_4_has_a_row_for_everything_that_is_printed(monkeypatch):
    size = fig4.Fig4Size(replace(TINY, epochs=1), 2, 1, fig4.TARGETS)
    monkeypatch.setitem(fig4.SIZES, "small", size)
    found = find("001-fig4").run("small", ignore_progress)
    printed = [row for row in found.rows if row.what.startswith("weak eavesdropper")]
    assert [row.paper for row in printed] == 2 * ["74.0%", "66.0%", "72.0%", "51.0%"]
    assert all(len(x) == len(y) == 4 for x, y in found.charts[0].lines.values())


# --- Table 3 and Fig. 6 --------------------------------------------------------------------------------------------


def test_variances_are_those_that_table_3_prints():
    ours = [table3.variance(name) for name in table3.PRIVATE]
    assert ours == pytest.approx(table3.PRINTED, abs=0.005)
    drawn = np.random.default_rng(0).lognormal(-1, np.sqrt(2), 4_000_000)
    assert drawn.var() == pytest.approx(ours[-1], rel=0.2)


def table_of(accuracies, noise=0.6):
    """Returns three eavesdroppers of each row of the table, a thousandth apart."""
    values = [0.999, noise, *accuracies]
    return {
        name: telling(value - 0.001, value, value + 0.001)
        for name, value in zip(eavesdropper_learning.TABLE_3, values, strict=True)
    }


def test_rows_of_table_3_say_what_was_measured():
    falling, not_falling = table_of([0.999, 0.9, 0.8, 0.7, 0.6]), table_of([0.9, 0.92, 0.8, 0.7, 0.6])
    assert table3.falling_row(falling, table3.HEARD).agrees
    assert table3.falling_row(not_falling, table3.HEARD).agrees is False
    rows = {row.what: row for row in table3.accuracy_rows(falling, table3.HEARD)}
    assert rows[f"accuracy minus that of PSGD, {table3.PRIVATE[0]}, y heard"].agrees is None
    assert rows[f"accuracy minus that of PSGD, {table3.PRIVATE[1]}, y heard"].agrees
    assert rows["accuracy, PSGD, y heard"].agrees is None


def test_noise_is_held_against_the_widest_start():
    assert table3.noise_row(table_of([0.9, 0.8, 0.7, 0.6, 0.5], noise=0.55), table3.NOISY).agrees
    row = table3.noise_row(table_of([0.9, 0.8, 0.7, 0.6, 0.57], noise=0.55), table3.NOISY)
    assert row.agrees is False
    assert "Lognormal" in row.what


def test_what_is_lost_without_y_is_the_difference():
    heard, unheard = table_of([0.9, 0.9, 0.8, 0.7, 0.6]), table_of([0.8, 0.8, 0.7, 0.65, 0.55])
    private, plain = table3.removing_rows(heard, unheard)
    assert private.why.endswith("+10.0%, +10.0%, +10.0%, +5.0%, +5.0%")
    assert private.ours == "+8.0% ± 0.0% (3 seeds)"
    assert private.agrees
    assert plain.agrees
    assert table3.removing_rows(unheard, heard)[0].agrees is False


@pytest.mark.slow
@needs_torch
def test_table_3_has_every_distribution_twice_and_the_four_panels_of_fig_6(monkeypatch):
    monkeypatch.setitem(table3.SIZES, "small", table3.Table3Size(60, 2))
    monkeypatch.setattr(table3, "DECODED_RUNS", 2)
    found = find("001-table3").run("small", ignore_progress)
    for name in eavesdropper_learning.TABLE_3:
        assert sum(row.what.startswith("accuracy") and f" {name}, y" in row.what for row in found.rows) == 2
    assert [chart.y for chart in found.charts] == ["loss", "accuracy"] * 2
    assert all(len(y) == 10 for chart in found.charts for _, y in chart.lines.values())


# --- Fig. 7 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def some_houses(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    data = of_arrays(x[:50], x[:50].sum(axis=1), x[50:], x[50:].sum(axis=1))
    monkeypatch.setattr(fig7, "load", {"boston": data}.__getitem__)
    return data


def test_all_houses_are_dealt_out_once_and_keep_their_prices(some_houses):
    x, y = fig7.houses()
    assert len(x) == 60
    np.testing.assert_allclose(x.sum(axis=1), y, rtol=1e-5)
    everything = np.concatenate([some_houses.x, some_houses.x_test])
    np.testing.assert_array_equal(np.sort(x[:, 0]), np.sort(everything[:, 0].astype(np.float64)))
    assert not np.array_equal(x[:, 0], everything[:, 0])


@needs_torch
@pytest.mark.usefixtures("some_houses")
def test_every_d_and_t_has_a_row_and_a_place_in_the_chart(monkeypatch):
    monkeypatch.setitem(fig7.SIZES, "small", fig7.Fig7Size(40, (0.1, 3.0), (2, 3), 2))
    found = find("001-fig7").run("small", ignore_progress)
    assert [row.what for row in found.rows] == [
        f"accuracy under PPSGD minus that under PSGD, d = {d:g}, t = {t}" for d in (0.1, 3.0) for t in (2, 3)
    ]
    (chart,) = found.charts
    assert set(chart.lines) == {f"{target}, t = {t}" for target in ("PSGD", "PPSGD") for t in (2, 3)}


def test_fig_7_says_where_ppsgd_hides_nothing():
    def row(psgd, ppsgd):
        return fig7.pair_row({(1, 3, "PSGD"): telling(*psgd), (1, 3, "PPSGD"): telling(*ppsgd)}, 1, 3)

    assert row((0.9, 0.91, 0.9), (0.7, 0.7, 0.7)).agrees
    assert row((0.9, 0.9, 0.9), (0.95, 0.96, 0.95)).agrees is False
    assert row((0.51, 0.5, 0.49), (0.49, 0.52, 0.5)).agrees is None


# --- as a whole ----------------------------------------------------------------------------------------------------


def test_all_five_are_found_and_say_what_they_need():
    for name in ("001-fig3", "001-fig4", "001-table3", "001-fig7", "001-steps"):
        found = find(name)
        assert found.name == name
        assert found.unstated
    assert find("001-fig3").extras == ()
    assert find("001-fig7").data == ("boston",)


def test_losses_of_the_decoded_client_are_the_papers():
    assert -Losses.of_case().b[CHANGING, 0] / 2 == -0.5
    assert -Losses.of_case(6).b[CHANGING, 0] / 2 == -0.25


@pytest.mark.slow
def test_small_fig_3_converges():
    rows = find("001-fig3").run("small", ignore_progress).rows
    assert not any(row.agrees is False for row in rows[:6])


@needs_torch
@pytest.mark.slow
def test_small_table_3_falls_with_the_variance():
    rows = find("001-table3").run("small", ignore_progress).rows
    assert not any(row.agrees is False for row in rows if row.paper == "falls")
    assert not any(row.agrees for row in rows if row.what.startswith("decoded"))


@needs_torch
@pytest.mark.slow
def test_small_fig_4_is_read_better_than_the_paper_says():
    rows = {row.what: row for row in find("001-fig4").run("small", ignore_progress).rows}
    assert rows[fig4.declare_printed("PSGD", fig4.APART).what].agrees is False
    assert rows["decoded from 5 rounds, PPSGD"].agrees is False


@needs_torch
@pytest.mark.slow
def test_small_fig_7_hides_little_changes_best():
    try:
        load("boston", download=False)
    except ConfigError:
        pytest.skip("there is no boston.csv")
    rows = find("001-fig7").run("small", ignore_progress).rows
    assert rows[0].agrees is not False
