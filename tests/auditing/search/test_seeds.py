"""What was looked at, and no more is said: other luck, what cannot be estimated, and rounds that come to nothing."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from support.printed_errors import read_errors
from tacit.app.cli.main import app
from tacit.app.terminal import progress
from tacit.auditing import auditor
from tacit.auditing.engine import multi_round
from tacit.auditing.findings import Verdict
from tacit.auditing.questions import Question
from tacit.auditing.render.verdicts import ANONYMITY_SET, describe_coverage, explain_terms, render_summary
from tacit.auditing.search import seeds
from tacit.auditing.summary import summarize_reports
from tacit.core.errors import ConfigError

pytestmark = pytest.mark.long

ONE_SEED = "1 random pattern of participants was tried. Other patterns may expose more."
FIVE = {"participation": {"kind": "random", "per_round": 5}}


def batches(per_round, privacy):
    """Returns the setting by which whole batches are asked."""
    return {"participation": {"kind": "batches", "per_round": per_round, "privacy": privacy}}


def asked(protocol, parties, **question):
    """Returns the reports on a question, their summary, and its sentences."""
    put = Question(protocol, parties, **question)
    reports = list(put.answers())
    summary = summarize_reports(reports, put)
    return reports, summary, render_summary(summary)


@pytest.fixture(autouse=True)
def _without_progress(monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 1e9)  # however slow the machine is


def refused(*arguments):
    """Returns the one line that a command is refused with."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error[config]: ")
    [problem] = read_errors(done.stderr)
    return problem


# --- other luck ----------------------------------------------------------------------------------------------------


def test_who_is_asked_is_drawn_several_times_and_the_worst_counts():
    question = {"parties": 6, "coalition": ["server"], "rounds": 9, **FIVE}
    first = tacit.audit("secagg", **question)
    assert (first.exposed, first.seed, first.seeds_tried) == ({}, 0, seeds.SEEDS_TRIED)
    assert first.exposing_seeds, "what the reviewer found: another seed exposes everybody"
    for drawing in first.exposing_seeds:
        again = tacit.audit("secagg", seed=drawing.seed, **question)
        assert (tuple(again.exposed), again.safe_rounds) == (drawing.victims, drawing.safe_rounds)
    assert first.verdict is Verdict.EXPOSED_IN_WORST_CASE
    (found,), summary, text = asked("secagg", 6, coalition=("server",), rounds=9, options=FIVE)
    assert found.this_seed == first.worst_other_seed == found.worst
    assert summary.verdict is found.verdict is Verdict.EXPOSED
    assert text.verdict.startswith(
        f"Exposed. The server can recover the vectors of all 6 parties, first in round {found.safe_rounds + 1}. "
    )
    tried = f"{seeds.SEEDS_TRIED} random patterns of participants were tried"
    assert text.verdict.endswith(f" {tried}; {len(first.exposing_seeds)} exposes somebody.")
    assert f"{tried}. Other patterns may expose more." in text.assumptions
    assert f"the worst of {seeds.SEEDS_TRIED} random patterns" in describe_coverage(found.coverage)
    assert f", {seeds.SEEDS_TRIED} random patterns" in describe_coverage(first.coverage)


def test_the_table_is_of_the_drawing_that_the_verdict_is_of():
    setting = f"participation={json.dumps(FIVE['participation'])}"
    done = CliRunner().invoke(app, ["audit", "secagg", "--parties", "6", "--rounds", "9", "--set", setting])
    row, cells = [line.split() for line in done.stdout.splitlines() if line.startswith("server ")]
    assert row[1:4] == ["all", "6", "parties"]
    assert cells[1:] == 6 * ["█"]
    assert "\nFor example, " in done.stdout


def test_a_pipeline_fails_for_other_luck():
    setting = f"participation={json.dumps(FIVE['participation'])}"
    command = ["audit", "secagg", "--parties", "6", "--coalition", "server", "--rounds", "9", "--set", setting]
    done = CliRunner().invoke(app, [*command, "--fail-if-exposed"])
    assert done.exit_code == 1
    assert done.stderr.startswith("error[leak]: Exposed. The server can recover")


def test_dropouts_are_drawn_again_too(monkeypatch):
    question = {"parties": 8, "coalition": ["server"], "rounds": 24, "dropout": 0.02}
    found = tacit.audit("secagg", **question)
    assert found.exposing_seeds
    assert found.seeds_tried == seeds.SEEDS_TRIED
    for drawing in found.exposing_seeds[:2]:
        assert tuple(tacit.audit("secagg", seed=drawing.seed, **question).exposed) == drawing.victims
    monkeypatch.setattr(seeds, "SEEDS_TRIED", 1)
    assert tacit.audit("secagg", **question).exposed.keys() == found.exposed.keys(), "the first drawing is as it was"


@pytest.mark.parametrize(
    ("protocol", "question"),
    [
        ("gossip", {"parties": 5, "options": {"graph": "ring"}, "rounds": 2, "dropout": 0.3}),
        ("secagg", {"parties": 6, "rounds": 2, "options": {"neighbours": 3}}),
    ],
)
def test_rounds_that_have_to_be_run_are_drawn_again_if_they_are_few(protocol, question, monkeypatch):
    parties = question.pop("parties")
    reports, _, text = asked(protocol, parties, coalition=("p0",), **question)
    assert reports[0].seeds_tried == seeds.SEEDS_TRIED
    assert any(f"{seeds.SEEDS_TRIED} random patterns of" in each for each in text.assumptions)
    monkeypatch.setattr(seeds, "MOST_RUN", 0)
    reports, _, text = asked(protocol, parties, coalition=("p0",), **question)
    assert reports[0].seeds_tried == 1
    assert any(each.startswith("1 random pattern of ") for each in text.assumptions)


def test_where_there_is_no_time_only_one_is_said_to_have_been_looked_at(monkeypatch):
    monkeypatch.setattr(seeds, "MOST_REHEARSED", 0)
    (found,), summary, text = asked("secagg", 6, coalition=("server",), rounds=9, options=FIVE)
    assert (found.seeds_tried, found.exposing_seeds, summary.verdict) == (1, (), Verdict.EXPOSED_IN_WORST_CASE)
    assert ONE_SEED in text.assumptions
    assert ", 1 random pattern" in describe_coverage(found.coverage)


@pytest.mark.parametrize("options", [{}, batches(6, 3), {"threshold": 6}])
def test_where_nothing_is_drawn_nothing_is_said_of_it(options):
    (found,), _, text = asked("secagg", 6, coalition=("server",), rounds=3, options=options)
    assert (found.seeds_tried, found.exposing_seeds) == (0, ())
    assert "seed" not in describe_coverage(found.coverage)
    assert not any("seed" in each for each in text.assumptions)


@pytest.mark.slow
def test_of_several_drawings_the_worst_is_told_beside_the_first():
    first = tacit.audit("secagg", parties=12, coalition=["server"], rounds=40, dropout=0.02)
    assert first.exposed
    worst = first.worst_other_seed
    assert len(worst.victims) > len(first.exposed)
    assert f"seed {worst.seed}: " in repr(first)
    (found,), _, text = asked("secagg", 12, coalition=("server",), rounds=40, dropout=0.02)
    assert tuple(found.exposed) == worst.victims
    assert {each.seed for each in found.exposing_seeds} == {0, *(each.seed for each in first.exposing_seeds)} - {
        worst.seed
    }
    assert f"vectors of {len(worst.victims)} of 12 parties" in text.verdict
    assert f"{seeds.SEEDS_TRIED} random patterns of dropouts were tried; all expose somebody." in text.verdict


# --- what cannot be estimated --------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"drift": 1e-9}, {"drift": 0.01}, {"noise": 0.05}])
def test_what_is_not_estimated_is_judged_as_if_models_stood_still(monkeypatch, changes):
    question = {"coalition": ("server",), "rounds": 60, "options": FIVE}
    still = asked("secagg", 8, **question)[0][0]
    monkeypatch.setattr(multi_round, "MOST_ESTIMATED", 4)
    (found,), summary, text = asked("secagg", 8, **question, **changes)
    assert (found.exposed, found.nearly, found.bits) == ({}, (), {})
    assert found.unsure == tuple(still.exposed)
    assert (found.safe_rounds, found.smallest_group) == (still.safe_rounds, still.smallest_group)
    assert summary.exposed, "nobody was looked for, so nobody may be called safe"
    assert summary.verdict is found.verdict is Verdict.UNDECIDED
    assert text.verdict.startswith(
        "Undecided. With 8 parties the analysis cannot compute what is known of vectors that"
    )
    assert f"could recover the vectors of all 8 parties, first in round {still.safe_rounds + 1}" in text.verdict


def test_what_is_safe_in_the_worst_case_and_what_is_new_each_time_need_no_estimate(monkeypatch):
    monkeypatch.setattr(multi_round, "MOST_ESTIMATED", 4)
    question = {"coalition": ("server",), "rounds": 60}
    for options, drift in ((batches(4, 2), 1e-9), (FIVE, "free")):
        (found,), summary, _ = asked("secagg", 8, options=options, drift=drift, **question)
        assert (found.unsure, summary.exposed) == ((), False)


def test_a_smallest_group_of_one_need_not_be_exposed_and_whoever_is_nearly_exposed_is_one():
    found = tacit.audit("secagg", parties=6, coalition=["server"], rounds=9, **FIVE)
    assert (found.smallest_group, found.exposed, found.nearly) == (1, {}, ())
    # Nobody else is in all the sums that p5 is in; but all that follows from them speaks of two or more.
    assert found.smallest_support == 2
    assert "even if no vector is fully recovered" in explain_terms(found.most_bits, recipes=False)[ANONYMITY_SET]
    near = tacit.audit("secagg", parties=12, coalition=["server"], rounds=40, dropout=0.02, drift=1e-9)
    assert near.nearly
    assert near.smallest_group == 1


# --- any so many of them, and the server ---------------------------------------------------------------------------


def test_of_a_size_the_server_is_one():
    reports, _, text = asked("secagg", 6, coalition_size=2)
    assert len(reports) == 6 + 15
    assert [each.coalition for each in reports[:2]] == [("server", "p0"), ("server", "p1")]
    assert "Neither any 2 parties nor the server and any one of them can recover another party's vector" in text.verdict
    assert "Any 2 parties, or the server and any one of them, collude. Nobody else does." in text.assumptions
    called = tacit.audit("secagg", parties=6, coalition_size=2)
    assert [each.coalition for each in called] == [each.coalition for each in reports]
    assert len(tacit.audit("secagg", parties=6, coalition_size=1)) == 7


def test_plain_averaging_does_not_pass_for_a_size():
    reports, _, text = asked("fedavg", 8, coalition_size=2, options=batches(8, 4))
    start = "Exposed. 8 of 36 coalitions can recover another party's vector. Worst: the server and p0"
    assert text.verdict.startswith(start)
    assert all(bool(each.exposed) == ("server" in each.coalition) for each in reports)


def test_without_a_server_a_size_is_of_parties():
    reports, _, text = asked("admm", 5, coalition_size=2, options={"masked": True})
    assert len(reports) == 10
    assert "No 2 parties can recover another party's vector" in text.verdict
    assert "Any 2 parties collude. Nobody else does." in text.assumptions


# --- numbers and rounds that come to nothing -----------------------------------------------------------------------


def test_models_that_hardly_drift_are_estimated():
    question = {"parties": 40, "coalition": ["server"], "rounds": 200, "dropout": 0.02}
    found = tacit.audit("secagg", drift=1e-9, **question)
    assert len(found.nearly) == 40


def test_a_ring_that_holds_less_than_one_is_guarded():
    options = {"group_size": 3, "iterations": 2, "rho": 1e9, "masked": True}
    assert tacit.audit("admm", parties=9, coalition=["p0"], **options).exposed == {}


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("Singular matrix"), OverflowError("too large")])
def test_numbers_that_cannot_be_computed_with_are_one_line(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(auditor.Auditor, "_of_everything", fail)
    told = refused("audit", "secagg", "--parties", 4, "--coalition", "server", "--json", "--fail-if-exposed")
    assert f"({type(error).__name__}: {error}); try: use settings, drift, noise and prior that are closer" in told


@pytest.mark.parametrize(("count", "dropout"), [(20, 0.95), (3, 1), (1, 1)])
def test_rounds_without_an_average_are_nothing_to_look_at(count, dropout):
    asks = ("audit", "secagg", "--parties", 6, "--coalition", "server", "--rounds", count, "--dropout", dropout)
    told = refused(*asks, "--json")
    assert "with an average, so there is nothing to analyse" in told
    assert "; try: use a smaller dropout" in told
    with pytest.raises(ConfigError, match="nothing to analyse"):
        tacit.audit("secagg", parties=6, coalition=["server"], rounds=count, dropout=dropout)


@pytest.mark.parametrize("count", [10, 30])
def test_how_many_rounds_had_an_average_is_said(count):
    (found,), _, text = asked("secagg", 6, coalition=("server",), rounds=count, dropout=0.4)
    assert 0 < found.averages < count
    observed = f"The adversary observes {count} rounds; {found.averages} of them ended with an average."
    assert observed in text.assumptions
    assert f"{count} rounds, {found.averages} of them with an average" in describe_coverage(found.coverage)
