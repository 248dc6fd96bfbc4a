"""Numbers of one report do not contradict each other, however a question is asked."""

import json

import pytest
from typer.testing import CliRunner

import tacit
from tacit.api.checked_run import CheckedRun
from tacit.app.cli.main import app
from tacit.auditing.engine.algebra.precision import bits_of_sum, largest_group
from tacit.auditing.questions import Question
from tacit.auditing.summary import summarize_reports
from tacit.learn.scenario import Scenario
from tacit.learn.training.run_audit import audit_run


def audited(*arguments):
    return json.loads(CliRunner().invoke(app, ["audit", *arguments, "--json"]).stdout)


def test_noise_as_a_setting_and_as_an_option_is_one_question():
    question = ("fedavg", "--parties", "4", "--coalition", "server")
    one, two = audited(*question, "--noise", "0.1"), audited(*question, "--set", "noise=0.1")
    assert one == two
    assert [each["code"] for each in two["assumptions"]].count("noise") == 1
    assert any("standard deviation 0.1" in each for each in two["assumed"])
    assert all("--noise 0.1" in each["command"] for each in two["next"] if each["command"].startswith("tacit audit"))


def test_noise_that_is_given_twice_is_refused_unless_it_is_the_same():
    assert Question("fedavg", 4, {"noise": 0.1}, noise=0.1) == Question("fedavg", 4, noise=0.1)
    with pytest.raises(tacit.ConfigError, match=r"given twice, as 0\.2 and as noise=0\.1; try: give it once"):
        Question("fedavg", 4, {"noise": 0.1}, noise=0.2)
    with pytest.raises(tacit.ConfigError, match="noise"):
        Question("fedavg", 4, {"noise": "much"}).scope()


def test_a_group_is_no_larger_than_the_known_bits_allow():
    assert [largest_group(bits_of_sum(size), 10) for size in (2, 5, 10)] == [2, 5, 10]
    assert (largest_group(0.0, 10), largest_group(0.51, 10), largest_group(7.5, 10)) == (10, 1, 1)


@pytest.mark.parametrize(
    ("protocol", "coalition", "options"),
    [
        ("secagg", ("server",), {"rounds": 3, "drift": 0.05, "dropout": 0.2}),
        ("secagg", ("server",), {"rounds": 30, "drift": 0.1, "participation": tacit.designs.Random(5)}),
        ("secagg", ("server",), {"rounds": 3, "participation": tacit.designs.Batches(4, 2)}),
        ("cesar", ("p0",), {"rounds": 2, "drift": 0.05}),
        ("admm", ("p0",), {"group_size": 5}),
    ],
)
def test_anonymity_set_and_bits_agree(protocol, coalition, options):
    report = tacit.audit(protocol, parties=10, coalition=coalition, **options)
    known = max(report.bits.values())
    assert known <= bits_of_sum(report.smallest_group) + 1e-3


@pytest.mark.long
def test_the_worst_case_includes_who_is_exposed_anyway():
    question = Question("secagg", 8, rounds=17, dropout=0.2, coalition=("server",))
    (report,) = question.answers()
    assert len(report.victims) >= 3
    assert report.fewest is not None
    assert set(report.at_worst) >= set(report.victims)


def test_a_run_counts_by_one_seed_in_table_verdict_and_summary():
    options = {"participation": {"kind": "random", "per_round": 4}, "allow_leaks": True}
    checked = CheckedRun.of("fedavg", [f"p{i}" for i in range(9)], (), 1, options)
    scenario = Scenario(rounds=3, seed=1, protocol={"name": "fedavg", **options})
    found = json.loads(audit_run(checked, scenario))
    most = max(len({*each["exposed"], *each["nearly"]}) for each in found["reports"])
    assert f"{most} of 9 parties" in found["verdict"]
    assert found["says"] == f"{most} of 9 to server"
    assert {each["coverage"]["worst_seed"] for each in found["reports"]} == {True}


def test_a_summary_never_says_nobody_where_another_seed_exposes_somebody():
    report = tacit.audit(
        "fedavg", parties=9, coalition=["server"], rounds=1, participation=tacit.designs.Random(4), seed=1, dropout=0.5
    )
    summary = summarize_reports([report], Question("fedavg", 9, coalition=("server",)))
    assert report.worst.victims
    assert summary.exposed
