"""Assessment templates: what the audit measured is filled in, and what it did not measure is left open."""

import pytest

from support.audit_data import audit
from tacit.app.reports.assessments import (
    NOT_IN_AUDIT,
    Answered,
    RunFacts,
    assess_impact,
    assess_privacy_claims,
    find_epsilon,
)
from tacit.app.reports.audit_matrix import list_late_victims, seeds_by_victim
from tacit.app.reports.audit_sections import build_sections
from tacit.learn.scenario import Privacy


@pytest.fixture(scope="module")
def noiseless():
    return audit("secagg", 4, rounds=2)[0]


@pytest.fixture(scope="module")
def noisy():
    return audit("secagg", 5, rounds=3, noise=0.5, options={"norm": 1.0})[0]


def answers(rows):
    return {row.question: " ".join(row.answer) for row in rows}


def test_the_impact_assessment_has_the_verdict_assumptions_and_gaps_of_the_audit(noiseless):
    parts = assess_impact(noiseless)
    assert [part.heading[-4:] for part in parts[:4]] == ["(a))", "(b))", "(c))", "(d))"]
    text = " ".join(line for part in parts for row in part.rows for line in row.answer)
    for each in (noiseless["verdict"], *noiseless["assumed"], *noiseless["not_covered"], *noiseless["trusted"]):
        assert each in text
    assert "no ε follows" in text


def test_purpose_people_and_consultation_are_left_open(noiseless):
    rows = [row for part in assess_impact(noiseless) for row in part.rows]
    unanswered = {row.question for row in rows if row.answered is Answered.NO}
    for word in ("purpose", "Whose data", "data protection officer", "authority", "severe"):
        assert any(word in question for question in unanswered), word
    assert all(list(row.answer) == [NOT_IN_AUDIT] for row in rows if row.answered is Answered.NO)


def test_without_noise_no_differential_privacy_is_claimed(noiseless):
    found = answers(assess_privacy_claims(noiseless))
    assert found["Is differential privacy claimed?"].startswith("No.")
    assert "ε =" not in " ".join(found.values())


def test_noise_without_a_norm_is_no_claim():
    found = answers(assess_privacy_claims(audit("secagg", 4, noise=1.0)[0]))
    assert "without a bound on vectors" in found["Is differential privacy claimed?"]


def test_with_noise_epsilon_is_the_largest_of_the_audit_and_its_worst_case(noisy):
    reports = noisy["reports"]
    most, worst = (max(each[name] for each in reports) for name in ("epsilon", "epsilon_at_worst"))
    assert most < worst
    found = answers(assess_privacy_claims(noisy))
    assert f"ε = {most:.3g}" in found["What are ε and δ?"]
    assert f"{worst:.3g} with the fewest contributors" in found["What are ε and δ?"]
    assert "moves it by 2" in found["What is the unit of privacy?"]
    assert "noise of 4 parties" in found["Who adds the noise, and who is trusted to do so (trust model)?"]
    assert find_epsilon(reports) in " ".join(
        line for part in assess_impact(noisy) for row in part.rows for line in row.answer
    )


def test_a_run_says_what_was_planned_and_spent(noisy):
    run = RunFacts(20, "The last test accuracy is 91.0%", 1.5, Privacy(epsilon=2.0, clip=0.5, unit="sample"))
    found = answers(assess_privacy_claims(noisy, run))
    assert "ε = 2 at δ = 1e-05. Spent after 20 rounds: ε = 1.5." in found["What are ε and δ?"]
    assert found["What is the unit of privacy?"].startswith("One sample.")
    assert "91.0%" in found["Is the result accurate enough?"]


def test_noise_of_the_paper_is_called_too_low(noisy):
    run = RunFacts(3, "", None, Privacy(epsilon=2.0, clip=0.5, unit="sample", sigma="paper"))
    assert "too low" in answers(assess_privacy_claims(noisy, run))["What are ε and δ?"]


def test_the_worst_case_names_only_those_that_are_not_recovered_anyway():
    found = audit("secagg", 5, ("server",), rounds=50, dropout=0.05)[0]
    (report,) = found["reports"]
    assert report["verdict_code"] == "exposed"
    anyway = set(seeds_by_victim(report))
    assert anyway == {"p0", "p1", "p2", "p3", "p4"}
    rows = answers(row for part in assess_impact(found) for row in part.rows)
    assert rows["What if more parties drop out?"] == (
        "Vectors are recovered without further dropouts (see the findings)."
    )
    columns = {column.heading: column.cells for column in build_sections(found, "")["coalitions"]}
    assert list(columns["additionally, with the fewest contributors"]) == ["–"]


def test_the_worst_case_names_those_that_are_recovered_only_then():
    found = audit("secagg", 3, ("p0",), options={"threshold": 2})[0]
    rows = answers(row for part in assess_impact(found) for row in part.rows)
    assert list_late_victims(found["reports"][0]) == ["p1"]
    assert rows["What if more parties drop out?"].endswith(
        "n one round with 2 contributors, the fewest allowed, 1 adversary recovers vectors: p1."
    )


@pytest.mark.parametrize(
    ("question", "answer", "answered"),
    [
        ({"rounds": 20}, "Rounds with different contributors were not compared. Ask again with --dropout.", "in part"),
        ({"rounds": 20, "options": {"threshold": 5}}, "No vector is recovered, whoever drops out.", "answered"),
        ({"rounds": 1}, "No vector is recovered, whoever drops out.", "answered"),
        ({"rounds": 3, "options": {"participation": "everyone", "threshold": 4}}, "exposes nobody", "in part"),
    ],
)
def test_one_round_with_few_contributors_does_not_answer_for_several_rounds(question, answer, answered):
    found = audit("secagg", 5, ("server", "p0"), **question)[0]
    rows = [row for part in assess_impact(found) for row in part.rows]
    (row,) = [row for row in rows if row.question == "What if more parties drop out?"]
    assert answer in " ".join(row.answer)
    assert row.answered.value == answered


def test_a_measure_is_no_assumption():
    found = audit("secagg", 5, ("server",), rounds=50, dropout=0.05)[0]
    assert {"with_drift", "with_slight_drift"} <= {step["code"] for step in found["next"]}
    rows = answers(row for part in assess_impact(found) for row in part.rows)
    assert "tacit plan 5" in rows["Which settings would protect more?"]
    assert "--drift" not in rows["Which settings would protect more?"]
