"""Both sides of Lemmas 2 and 3 of paper 003, and bytes against K and E."""

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.lab.papers.p003 import lemmas
from tacit.lab.papers.p003.lemmas import SUMMED, USERS, LemmaSides, trace_sides
from tacit.lab.papers.p003.risk import Risk, load_components
from tacit.lab.papers.p003.theorems import CONVEXITY, theorem_delay
from tacit.learn.data.splits import shards


@pytest.fixture(scope="module")
def some_risk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_DATA", "nowhere")
        patch.setenv("XDG_CACHE_HOME", "nowhere")
        data = load_components(600)
    return Risk.of(data, shards(data.y, USERS, 2, np.random.default_rng(0)))


def test_the_first_step_is_what_sampling_gives(some_risk):
    """From θ⁰ = 0, with noise of standard deviation 0.3 and K = 1."""
    sides = next(trace_sides(some_risk, 0.3, 1, 1, 0))
    rng, eta = np.random.default_rng(1), 2 / (CONVEXITY * (1 + theorem_delay(1)))
    quiet = -eta * np.array([user.slope(np.zeros(20)) for user in some_risk.users])
    left = []
    for _ in range(4000):
        models = quiet - eta * rng.normal(0, 0.3, quiet.shape)
        mean = models.mean(axis=0)
        summed = models[rng.choice(USERS, SUMMED, replace=False)].mean(axis=0)
        apart = ((models - mean) ** 2).sum(axis=1).mean()
        left.append((((summed - some_risk.best) ** 2).sum(), 0.0, apart, ((summed - mean) ** 2).sum()))
    assert sides.left == pytest.approx(np.mean(left, axis=0), rel=0.03)
    assert sides.right[1:3] == (0.0, 0.0), "with K = 1, (9) has nothing on its right side"


def test_what_fails_is_the_left_side_above_the_right_one():
    sides = LemmaSides((1.0, 1.0, 1.1, 0.0), (2.0, 1.0, 1.0, 0.0))
    assert sides.fails == (False, False, True, False)


def test_only_averages_add_what_sampling_users_adds(some_risk):
    found = list(trace_sides(some_risk, 0.0, 3, 6, 0))
    assert [bool(each.left[3]) for each in found] == [False, False, True, False, False, True]
    assert found[3].left[1] == pytest.approx(0, abs=1e-20), "everybody goes on from the average"
    assert found[4].left[1] > 0


@pytest.mark.long
def test_lemma_2_holds_and_9_does_not_as_printed(some_risk, monkeypatch):
    data = type("Data", (), {"y": np.arange(600) % 10})
    monkeypatch.setattr(lemmas, "load_components", lambda _: data)
    monkeypatch.setattr(Risk, "of", lambda *_: some_risk)
    monkeypatch.setitem(lemmas.STEPS, "small", 10)
    rows = {row.what: row for row in lemmas.run("small", ignore_progress).rows}
    two = [row.agrees for what, row in rows.items() if "Lemma 2" in what]
    assert two == [True] * len(two)
    assert not any(row.agrees for what, row in rows.items() if "(9) as printed, K = 1" in what)
