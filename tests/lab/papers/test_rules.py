"""Rules that compare our numbers with a paper's."""

import math

import pytest

from tacit.lab import papers
from tacit.lab.papers.rules import (
    Between,
    Estimate,
    Near,
    NotCompared,
    PaperNumber,
    RowVerdict,
    SameOrder,
    SameSign,
    WithinFactor,
)

AGREES, DIFFERS, NOT_COMPARABLE = RowVerdict.AGREES, RowVerdict.DIFFERS, RowVerdict.NOT_COMPARABLE
DECLARED = [
    pytest.param(row, id=f"{name}: {row.what}") for name in papers.names() for row in papers.find(name).declared
]


@pytest.mark.parametrize("row", DECLARED)
def test_every_declared_rule_accepts_the_papers_own_number(row):
    expected = NOT_COMPARABLE if isinstance(row.rule, NotCompared) else AGREES
    assert row.accepts_the_paper() in {expected, None}  # none where the paper has words and no number
    assert row.rule.reason, "a rule states the reason for its constant"


@pytest.mark.parametrize("name", papers.names())
def test_rows_are_declared_once(name):
    found = [row.what for row in papers.find(name).declared]
    assert len(found) == len(set(found))


def test_the_interval_of_a_mean_is_that_of_student():
    three = Estimate.over([1.0, 2.0, 3.0])
    assert (three.mean, three.deviation, three.count) == (2.0, 1.0, 3)
    assert three.half_width == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert Estimate.over([1.0]).half_width == math.inf
    assert Estimate.certain(1.0).half_width == 0.0


def test_a_share_of_none_is_not_certain():
    none = Estimate.share(0, 100)
    assert none.mean == 0.0
    assert 0.01 < none.high < 0.06


def test_a_gap_of_the_other_sign_is_not_near():
    """The old rule, |gap| at most 0.5, took −0.08 ± 0.05 for the paper's +0.30."""
    rule, paper = Near(0.5, "half a point"), PaperNumber(0.30, rounding=0.01, runs=5)
    assert rule.judge(paper, Estimate(-0.08, 0.05, 3)) is DIFFERS
    assert rule.judge(paper, Estimate(0.28, 0.05, 3)) is AGREES


def test_a_spread_that_would_accept_anything_is_not_comparable():
    rule, paper = Near(0.5, "half a point"), PaperNumber(0.30, runs=5)
    assert rule.judge(paper, Estimate(0.30, 1.0, 3)) is NOT_COMPARABLE
    assert rule.judge(paper, Estimate.over([0.30])) is NOT_COMPARABLE


def test_a_computed_number_is_near_by_its_printed_digits():
    rule, paper = Near(1.0, "printed"), PaperNumber(43.83, rounding=0.005)
    assert rule.judge(paper, Estimate.certain(43.8345)) is AGREES
    assert rule.judge(paper, Estimate.certain(43.84)) is DIFFERS


@pytest.mark.parametrize(
    ("mean", "verdict"), [(-3.2, AGREES), (-0.51, AGREES), (0.4, DIFFERS), (-0.05, NOT_COMPARABLE)]
)
def test_an_effect_of_the_same_sign_agrees_whatever_its_size(mean, verdict):
    """The old rule, at least 3 points lower, refused the paper's own −0.51."""
    assert SameSign("sign").judge(PaperNumber(-0.51), Estimate(mean, 0.1, 3)) is verdict
    assert SameSign("sign", sign=-1).judge("lower", Estimate(mean, 0.1, 3)) is verdict


def test_bounds_ask_for_the_whole_interval():
    rule = Between("bound", high=1.0)
    assert rule.judge(None, Estimate(0.5, 0.01, 3)) is AGREES
    assert rule.judge(None, Estimate(0.99, 0.1, 3)) is NOT_COMPARABLE
    assert rule.judge(None, Estimate(2.0, 0.1, 3)) is DIFFERS


def test_order_is_that_of_the_paper_beyond_chance():
    paper = (PaperNumber(3.0), PaperNumber(1.0), PaperNumber(2.0))
    ours = [Estimate(value, 0.1, 3) for value in (30.0, 10.0, 20.0)]
    assert SameOrder("order").judge(paper, tuple(ours)) is AGREES
    assert SameOrder("order").judge(paper, tuple(ours[::-1])) is DIFFERS
    blurred = tuple(Estimate(each.mean, 50.0, 3) for each in ours)
    assert SameOrder("order").judge(paper, blurred) is NOT_COMPARABLE
    assert SameOrder("order", rising=False).judge("falls", tuple(sorted(ours, key=lambda e: -e.mean))) is AGREES


def test_a_factor_holds_either_way():
    rule = WithinFactor(2.0, "factor")
    assert [rule.judge(PaperNumber(1.0), Estimate.certain(value)) for value in (0.4, 0.6, 1.9, 2.1)] == [
        DIFFERS,
        AGREES,
        AGREES,
        DIFFERS,
    ]
    assert NotCompared("changed").judge(PaperNumber(1.0), Estimate.certain(1.0)) is NOT_COMPARABLE
