import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.vectors.sparsify import SPARSIFIERS, alpha_for, beta, problems, random_mask, topk_mask

repeatable = settings(derandomize=True, deadline=None)


def words_of(entries, seed=0):
    return np.frombuffer(SeededEntropy("words", seed).bytes(4 * entries), "<u4")


# -- random subsampling ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 0.5, 0.9])
def test_every_entry_is_selected_on_its_own_with_the_same_probability(share):
    entries, rounds = 2000, 400
    masks = np.array([random_mask(words_of(entries, seed), share) for seed in range(rounds)])
    deviation = np.sqrt(share * (1 - share) / (entries * rounds))
    assert abs(masks.mean() - share) < 5 * deviation
    # By entry: chi-squared with one degree of freedom for each.
    expected = rounds * share * (1 - share)
    chi = ((masks.sum(axis=0) - rounds * share) ** 2 / expected).sum()
    assert abs(chi - entries) < 6 * np.sqrt(2 * entries) + entries / (rounds * share)
    # Neighbouring entries, and the same entry in successive rounds, know nothing of each other.
    for left, right in ((masks[:, 1:], masks[:, :-1]), (masks[1:], masks[:-1])):
        assert abs((left & right).mean() - share**2) < 6 * np.sqrt(share**2 / left.size) + 4 * share * deviation


def test_the_words_decide_exactly():
    words = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    assert random_mask(words, 0.5).tolist() == [True, True, True, False, False, False]
    assert random_mask(words, 1.0).all()
    assert random_mask(words, 1 - 2.0**-32).tolist() == [True] * 5 + [False]
    assert random_mask(words, 1 - 2.0**-33).all()
    assert random_mask(words, 2.0**-32).tolist() == [True] + [False] * 5
    assert random_mask(words, 1.5 * 2.0**-32).tolist() == [True, True] + [False] * 4


def test_a_set_of_the_seed_is_the_same_everywhere_and_grows_with_the_share():
    small, again, large = (random_mask(words_of(1000, seed=7), share) for share in (0.2, 0.2, 0.4))
    assert (small == again).all()
    assert (large >= small).all()


# -- topk ------------------------------------------------------------------------------------------------------------


def largest_first(magnitudes, count):
    mask = np.zeros(len(magnitudes), np.bool_)
    mask[np.argsort(-magnitudes, kind="stable")[:count]] = True
    return mask


@given(
    st.lists(st.integers(0, 6) | st.floats(0, width=32, allow_nan=False), min_size=1, max_size=60),
    st.floats(0, 1, exclude_min=True),
    st.sampled_from([np.float32, np.float64]),
)
@settings(repeatable, max_examples=150)
def test_topk_selects_the_largest_and_of_equal_ones_the_first(values, share, dtype):
    magnitudes = np.array(values, dtype)
    before = magnitudes.copy()
    count = max(1, round(share * len(values)))
    mask = topk_mask(magnitudes, share)
    assert mask.sum() == count
    assert (mask == largest_first(magnitudes, count)).all()
    assert (magnitudes == before).all()


@pytest.mark.parametrize("share", [1e-9, 0.001, 0.1, 0.5, 1.0])
def test_topk_of_a_model(share):
    magnitudes = np.abs(np.random.default_rng(0).normal(size=89_834).astype(np.float32))
    magnitudes[::3] = np.round(magnitudes[::3], 1)  # ties across the threshold too
    mask = topk_mask(magnitudes, share)
    assert (mask == largest_first(magnitudes, max(1, round(share * 89_834)))).all()


def test_topk_of_equal_entries_and_of_none():
    assert topk_mask(np.zeros(10), 0.3).tolist() == [True] * 3 + [False] * 7
    assert topk_mask(np.zeros(10), 1e-6).tolist() == [True] + [False] * 9
    assert topk_mask(np.empty(0), 0.5).tolist() == []


def test_topk_refuses_what_has_no_order():
    with pytest.raises(ConfigError, match="2 NaN"):
        topk_mask(np.array([1.0, np.nan, 2.0, np.nan]), 0.5)


# -- the registry ----------------------------------------------------------------------------------------------------


def test_sparsifiers_say_whether_they_look_at_the_vector():
    assert {name: each.data_dependent for name, each in SPARSIFIERS.items()} == {"random": False, "topk": True}
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 500))
    for name, each in SPARSIFIERS.items():
        assert each.name == name
        same_words = [each.select(vector, 0.3, words_of(500)) for vector in (one, other)]
        same_vector = [each.select(one, 0.3, words_of(500, seed)) for seed in (0, 1)]
        assert (same_words[0] != same_words[1]).any() == each.data_dependent
        assert (same_vector[0] != same_vector[1]).any() != each.data_dependent


def test_select_uses_magnitudes_and_checks_the_words():
    vector = np.array([0.5, -3.0, 2.0, -0.1])
    assert SPARSIFIERS["topk"].select(vector, 0.5, words_of(4)).tolist() == [False, True, True, False]
    with pytest.raises(ValueError, match="4 entries need one word each, not 3"):
        SPARSIFIERS["random"].select(vector, 0.5, words_of(3))


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), float("inf"), "0.5", None, True, [0.5]])
def test_bad_shares_are_named(share):
    (sentence,) = problems(share, "random")
    assert "above 0 and at most 1" in sentence
    assert repr(share) in sentence
    for select in (random_mask, topk_mask):
        with pytest.raises(ConfigError, match="above 0 and at most 1"):
            select(np.ones(3, np.uint32), share)


def test_problems_come_all_at_once():
    assert problems(0.3, "random") == problems(1, "topk") == problems(np.float32(0.5), "topk") == []
    wrong = problems(2, "topK")
    assert len(wrong) == 2
    assert '"random" or "topk", not \'topK\'' in wrong[1]
    assert len(problems(0.5, ["random"])) == 1


def test_scores_are_for_those_that_rank():
    assert problems(0.3, "topk", "change") == problems(0.3, "random", "magnitude") == []
    (sentence,) = problems(0.3, "random", "change")
    assert 'use sparsifier="topk"' in sentence
    (sentence,) = problems(0.3, "topk", "Change")
    assert '"magnitude" or "change", not \'Change\'' in sentence


# -- expected shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "share", "percent"), [(3, 0.3, 43.83), (3, 0.5, 59.70), (6, 0.3, 34.22), (6, 0.5, 51.39)]
)
def test_table_2_of_paper_004(degree, share, percent):
    assert round(100 * alpha_for(share, degree), 2) == percent


@pytest.mark.parametrize("degree", [2, 3, 6, 20, 2000])
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.1, 0.3422, 0.9, 1.0])
def test_theorem_6_and_corollary_7(degree, alpha):
    assert beta(alpha, degree) == pytest.approx(alpha * (1 - (1 - alpha) ** (degree - 1)), rel=1e-9, abs=1e-15)
    for s in {1, 2, degree // 2, degree - 1} & set(range(1, degree)):
        # The sum from i = s to degree - 1, each term one probability of a binomial distribution.
        terms = alpha * binom.pmf(np.arange(s, degree), degree - 1, alpha)
        assert beta(alpha, degree, s) == pytest.approx(terms.sum(), rel=1e-9, abs=1e-15)


def test_theorem_6_on_sets_that_were_drawn():
    degree, s, alpha, entries = 5, 2, 0.4, 200_000
    masks = np.array([random_mask(words_of(entries, seed), alpha) for seed in range(degree)])
    sent = masks[0] & (masks[1:].sum(axis=0) >= s)
    expected = beta(alpha, degree, s)
    assert abs(sent.mean() - expected) < 5 * np.sqrt(expected / entries)


@given(st.floats(1e-6, 1), st.integers(2, 60), st.data())
@settings(repeatable, max_examples=200)
def test_alpha_for_inverts_beta(share, degree, data):
    s = data.draw(st.integers(1, degree - 1))
    alpha = alpha_for(share, degree, s)
    assert share <= alpha <= 1
    # A step of 1e-12 in α is at most a step of degree · 1e-12 in β.
    assert abs(beta(alpha, degree, s) - share) <= degree * 1e-12


def test_impossible_shares_say_what_would_work():
    with pytest.raises(ConfigError, match=r"3 neighbours allows from 1 to 2 masks on an entry, not s = 3"):
        beta(0.3, 3, 3)
    with pytest.raises(ConfigError, match=r"from 1 to 5 masks"):
        alpha_for(0.3, 6, 0)
    with pytest.raises(ConfigError, match=r"degree must be at least 2"):
        alpha_for(0.3, 1)
    with pytest.raises(ConfigError, match=r"alpha must be a number from 0 to 1, not 1\.5"):
        beta(1.5, 3)
    for wrong in (0, 1.01, float("nan")):
        with pytest.raises(ConfigError, match="beta must be a number above 0 and at most 1"):
            alpha_for(wrong, 3)
