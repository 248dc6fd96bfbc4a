import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.core.progress import ignore_progress
from tacit.designs import Batches, Partition, Random, multi_round_privacy
from tacit.lab.attacks import disaggregation
from tacit.lab.attacks.disaggregation import (
    CLOSE,
    RATE,
    DisaggregationSetting,
    ImageUsers,
    deal_images,
    deployed_rounds,
    estimate_gradients,
    exact_rounds,
    list_settings,
    measure_errors,
    reconstruction_errors,
    run_once,
    sample_dropouts,
    train_by_all,
)
from tacit.learn.data.datasets import Samples, load
from tacit.vectors.layout import Layout

pytestmark = pytest.mark.long

FAR = 0.25  # the paper's error above which all users stay under Multi-RoundSecAgg with T = 2


def digits():
    return load("digits", share=1).flat()


@pytest.fixture(scope="module")
def model():
    return train_by_all(digits())


class Watched:
    """Passes rounds on, and keeps what the server heard beside the sum of what the chosen brought."""

    def __init__(self, average):
        self.average, self.chosen, self.heard, self.brought = average, [], [], []

    def __call__(self, updates):
        self.chosen.append([])
        outcome = self.average(updates)
        self.chosen[-1] += [int(party[1:]) for party in outcome.contributors]
        self.heard.append(next(iter(outcome.average.values())) * len(outcome.contributors))
        self.brought.append(np.sum([updates[party].vector for party in outcome.contributors], axis=0))
        return outcome


def small(policy, **rest):
    return DisaggregationSetting("small", policy, users=8, rounds=30, **rest)


# --- the parts -------------------------------------------------------------------------------------------------------


def test_the_error_is_the_papers():
    truth, estimate = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[3.0, 3.0], [0.0, 0.0]])
    assert reconstruction_errors(truth, estimate).tolist() == [1 / 25, 1.0]


def test_least_squares_finds_individuals_if_participation_tells_them_apart():
    truth = np.arange(12.0).reshape(4, 3) ** 2
    rows = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 1, 0]], float)
    assert estimate_gradients(rows, rows @ truth) == pytest.approx(truth)


def test_least_squares_finds_the_mean_of_those_it_cannot_tell_apart_and_nothing_of_the_unseen():
    truth = np.array([[1.0, 2.0], [3.0, 8.0], [5.0, 5.0], [9.0, 9.0]])
    rows = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], float)
    expected = [[2.0, 5.0], [2.0, 5.0], [5.0, 5.0], [0.0, 0.0]]
    assert estimate_gradients(rows, rows @ truth) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize(("users", "alike"), [(8, False), (40, False), (40, True)])
def test_images_are_dealt_out_once_two_digits_a_user(users, alike):
    y = digits().y
    parts = deal_images(y, users, alike, np.random.default_rng(0))
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(y)))
    holds = [set(y[part].tolist()) for part in parts]
    assert {len(labels) for labels in holds} == {2}
    assert all((holds[i] == holds[i + 1]) is alike for i in range(0, users, 2))
    assert all(holds[i].isdisjoint(holds[i + 1]) is not alike for i in range(0, users, 2))


def test_dropouts_are_as_frequent_as_they_should_be():
    rng = np.random.default_rng(0)
    gone = sample_dropouts(DisaggregationSetting("", Random(8), 0.3, leaving=0.1, rounds=2000), rng)
    assert np.mean([len(absent) for absent, _ in gone]) == pytest.approx(0.3 * 40, rel=0.05)
    assert np.mean([len(leaving) for _, leaving in gone]) == pytest.approx(0.1 * 40, rel=0.05)
    mixed = sample_dropouts(DisaggregationSetting("", Random(8), rounds=2000), rng)
    counts = np.bincount([user for absent, _ in mixed for user in absent], minlength=40) / 2000
    assert set(np.round(counts, 1).tolist()) == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert not any(leaving for _, leaving in mixed)


def test_a_setting_in_which_nothing_is_ever_summed_shows_nothing(model):
    setting = DisaggregationSetting("", Partition(8), 0.99, rounds=5)
    assert run_once(digits(), model, setting, 0).tolist() == [1.0] * 40


# --- the deployed protocol -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [exact_rounds, deployed_rounds])
@pytest.mark.parametrize("policy", [Random(4), Batches(4, 2)], ids=["random", "batches"])
def test_what_the_server_hears_are_exact_sums_of_those_who_were_there(kind, policy, model):
    setting = small(policy, leaving=0.1)
    rng = np.random.default_rng(1)
    cohort = ImageUsers(digits(), deal_images(digits().y, 8, False, rng), model)
    gone = sample_dropouts(setting, rng)
    entries = (Layout.of(model).size,) if kind is deployed_rounds else ()
    watched = Watched(kind(setting, gone, 5, *entries))
    found = measure_errors(cohort, setting, watched)
    assert len(watched.heard) > 10
    assert np.array(watched.heard) == pytest.approx(np.array(watched.brought), abs=1e-12)
    for chosen, (absent, leaving) in zip(watched.chosen, gone, strict=True):
        assert not {*chosen}.intersection({*absent, *leaving})
    matrix = np.array([np.isin(np.arange(8), chosen) for chosen in watched.chosen])
    if isinstance(policy, Batches):
        assert multi_round_privacy(matrix) == 2
        assert found.min() > FAR
    else:
        assert np.mean(found < CLOSE) > 0.5


# --- the experiment --------------------------------------------------------------------------------------------------


def test_random_participation_gives_most_users_away(model):
    found = run_once(digits(), model, DisaggregationSetting("", Random(8)), 0)
    assert np.mean(found < CLOSE) > 0.9


@pytest.mark.parametrize("policy", [Batches(8, 2), Partition(8)], ids=["batches", "partition"])
@pytest.mark.parametrize("leaving", [0.0, 0.1])
def test_whole_batches_give_nobody_away(policy, leaving, model):
    found = run_once(digits(), model, DisaggregationSetting("", policy, leaving=leaving), 0)
    assert found.min() > FAR


def test_batches_that_are_summed_in_part_give_most_users_away(model):
    found = run_once(digits(), model, DisaggregationSetting("", Batches(8, 2, partial=True), leaving=0.1), 0)
    assert np.mean(found < CLOSE) > 0.9


def test_the_faster_models_change_the_less_is_given_away(model):
    slow, fast, faster = (
        np.median(run_once(digits(), model, DisaggregationSetting("", Random(8), rate=rate), 0))
        for rate in (RATE, 10 * RATE, 50 * RATE)
    )
    assert 10 * slow < fast
    assert 3 * fast < faster


def test_batchmates_who_hold_the_same_digits_are_known_better_than_the_paper_says(model):
    """T = 2 hides who of two has what. If both have the same, their mean tells a lot about either."""
    found = run_once(digits(), model, DisaggregationSetting("", Batches(8, 2), alike=True), 0)
    assert CLOSE < found.min() < FAR
    assert np.median(found) < FAR


def test_a_run_repeats_with_its_seeds(model):
    setting = small(Random(4))
    assert run_once(digits(), model, setting, 1, 2).tolist() == run_once(digits(), model, setting, 1, 2).tolist()
    assert run_once(digits(), model, setting, 1, 2).tolist() != run_once(digits(), model, setting, 1, 3).tolist()


def test_the_report_has_two_findings_a_setting(monkeypatch, model):
    chosen = [small(Random(4)), small(Batches(4, 2))]
    monkeypatch.setattr(disaggregation, "list_settings", lambda _: chosen)
    monkeypatch.setattr(disaggregation, "train_by_all", lambda _: model)
    heard = []
    found = disaggregation.ATTACK.run(False, 0, lambda _, done: heard.append(done))
    assert [each.broken for each in found] == [True, True, False, False]
    assert [each.samples for each in found] == [24, 3, 24, 3]
    assert all(each.attack == "disaggregate" and "digits" in each.target for each in found)
    assert found[3].value > FAR
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_settings_are_all_different_and_name_themselves():
    for full in (False, True):
        assert len({setting.target for setting in list_settings(full)}) == len(list_settings(full))
    assert len([setting for setting in list_settings(True) if setting.dropout is not None]) == 15


@pytest.mark.slow
def test_mnist_shows_the_papers_two_figures():
    try:
        images = load("mnist", download=False).flat()
    except ConfigError as missing:
        pytest.skip(str(missing))
    images = Samples(images.x[:6000], images.y[:6000])
    start = train_by_all(images)
    assert np.mean(run_once(images, start, DisaggregationSetting("", Random(8)), 0) < CLOSE) > 0.5
    assert run_once(images, start, DisaggregationSetting("", Batches(8, 2)), 0).min() > FAR


@pytest.mark.slow
def test_the_short_experiment_breaks_what_it_should():
    found = disaggregation.ATTACK.run(False, 0, ignore_progress)
    shares = found[::2]
    assert [each.broken for each in shares] == [True] * 4 + [False] * 5
