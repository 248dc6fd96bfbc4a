"""A second auditor, which shares no code with the first, must come to the same answers.

Slow tests ask 600 questions. `FIRST_QUESTION=700000 pytest -m slow` asks other ones.
"""

import os
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from support.independent_auditor import Question, measure, recovery_errors, worst_case
from support.independent_settings import SAFE, compare, draw_question, draw_small_round, draw_sparse_question
from support.independent_sparse import exposed_fractions, measure_entries, patterns

EXPLAINED = {
    "refused": "the audit does not answer: no round had an average, or a sparse graph changes in more than 16 rounds",
    "cautious": "the audit declines, because secret factors are not linear, where knowing them would expose nobody",
    "drowned": "the vector follows in exact numbers, and rounding in the ring hides it",
    "rounding": "the audit counts rounding in the ring as noise, and finds fewer bits",
    "releases": "the audit takes releases of a vector with other noise for one with less, and finds more",
    "recipe": "both expose the vector, and the recipe of the audit multiplies rounding more than the shortest one",
    "session": "both expose the vector, and the recipe is for the sparse graph of another session",
}
"""Differences with a reason; in none of them does the audit promise what does not hold."""
DENSE, SPARSE, LONG = 520, 60, 20
"""How many of the 600 settings share all entries, some, and some of 100,000."""
CHUNKS = 20
FIRST = int(os.environ.get("FIRST_QUESTION", "0"))
"""The number of the first question of slow tests."""
QUICK = (5, 7, 8, 9, 12, 17, 23, 24, 27, 30, 33, 36, 37, 39, 42, 46, 58, 59, 70, 72, 78, 79, 83, 85, 86, 87)
"""Settings of few parties and rounds, of every protocol."""
ENTRIES = 100_000


def check_dense(numbers):
    """Asserts that both agree on some settings; returns how often they differ, by the reason."""
    counts = Counter()
    for number in numbers:
        found = compare(draw_question(number), np.float32 if number % 3 == 0 else np.float64)
        codes = {code for code, _ in found.differences}
        assert codes <= EXPLAINED.keys(), (number, found.question, found.verdict, found.differences)
        counts.update(codes or {"agreed"})
    return counts


def check_sparse(question, entries, number):
    """Asserts that both find the same entries exposed: exactly by size, and as many as expected if they are drawn."""
    vectors = np.random.default_rng(number).normal(size=(question.parties, entries)).astype(np.float32)
    mine = exposed_fractions(question, patterns(question, entries, vectors), entries)
    if "sparsifier" in question.options:
        report = question.audit(vectors=vectors)
        assert mine == dict(report.fractions), (number, question, report.verdict)
        assert mine.keys() == report.exposed.keys()
        return
    report = question.audit(length=entries)
    assert mine.keys() <= report.exposed.keys() == report.fractions.keys()
    for party, expected in report.fractions.items():
        hits = round(mine.get(party, 0.0) * entries)
        assert binom.cdf(hits, entries, expected) > 1e-6, (number, party, expected, hits)
        assert binom.sf(hits - 1, entries, expected) > 1e-6, (number, party, expected, hits)
    assert report.verdict != "holds" or not mine


def check_short(number):
    check_sparse(draw_sparse_question(number), 8 + number % 33, number)


def test_both_auditors_agree_on_some_settings():
    counts = check_dense(QUICK)
    assert counts["agreed"] >= len(QUICK) - 1, counts


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_both_auditors_find_the_same_entries_exposed(number):
    check_short(number)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_both_auditors_agree_on_random_settings(chunk):
    counts = check_dense(range(FIRST + chunk, FIRST + DENSE, CHUNKS))
    answered = counts.total() - counts["refused"]
    assert counts["agreed"] >= 0.8 * answered >= 0.8 * 0.7 * counts.total(), counts


@pytest.mark.slow
@pytest.mark.parametrize("number", range(FIRST, FIRST + SPARSE))
def test_both_auditors_find_the_same_entries_exposed_in_random_settings(number):
    check_short(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(FIRST + SPARSE, FIRST + SPARSE + LONG))
def test_as_many_entries_of_long_vectors_are_exposed_as_the_audit_expects(number):
    question = draw_sparse_question(number, most_rounds=1)
    options = {name: value for name, value in question.options.items() if name != "sparsifier"}
    check_sparse(replace(question, options=options), ENTRIES, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(FIRST, FIRST + 40))
def test_the_worst_case_of_an_audit_is_that_of_all_samples_and_dropouts(number):
    question = draw_small_round(number)
    report, found = question.audit(), worst_case(question)
    assert bool(found) == bool(report.at_worst), (question, found, report.verdict)
    assert set(report.at_worst) <= set(found), (question, found, report.at_worst)
    assert not (found and report.verdict in SAFE)


@pytest.mark.long
@pytest.mark.parametrize("masking", [1, 2])
def test_masks_hide_all_but_the_sums_that_the_paper_gives_away(masking):
    options = {"graph": {"kind": "regular", "degree": 3}, "share": 0.7, "masking": masking}
    question, entries = Question("cesar", 6, ("p0", "p2"), seed=4, options=options), 24
    expected = np.zeros((entries, len(question.honest)), bool)
    for pattern in patterns(question, entries):
        expected[pattern.places] = pattern.exposed()
    assert np.array_equal(measure_entries(question, entries), expected)


def test_a_sum_of_three_hides_who_has_what_and_two_members_solve_it():
    seen = measure(Question("secagg", 3, ("server",)))
    assert seen.exposed() == []
    assert seen.smallest_group() == 3
    assert np.allclose(np.abs(seen.combinations()), 1 / np.sqrt(3))
    assert measure(Question("secagg", 3, ("server", "p0", "p2"))).exposed() == ["p1"]


def test_enough_shares_unmask_everybody():
    options = {"threshold": 3}
    assert measure(Question("secagg", 5, ("server", "p1", "p2"), options=options)).exposed() == []
    assert measure(Question("secagg", 5, ("server", "p1", "p2", "p4"), options=options)).exposed() == ["p0", "p3"]


def test_a_recovered_vector_is_the_vector():
    question = Question("admm", 9, ("p0",), options={"group_size": 3, "iterations": 6, "bits": 64})
    seen = measure(question)
    assert seen.exposed() == list(question.honest)
    assert max(recovery_errors(seen, party, 1.0, np.float32)[0] for party in seen.exposed()) < 1e-6


def test_masks_that_are_left_out_are_seen():
    question = Question("pushsum", 4, ("p0",), options={"masked": True})
    assert measure(question).exposed() == []
    with patch("tacit.protocols.pushsum.masses.mask_among", lambda *_: None):
        assert measure(question).exposed() == ["p1", "p2", "p3"]
