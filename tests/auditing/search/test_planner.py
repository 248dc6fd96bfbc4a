"""Proposals: what they cost, what the audit says of them, and how they are shown."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from tacit.app.cli.main import app
from tacit.app.reports import pictures
from tacit.auditing.findings import Verdict
from tacit.auditing.search import coalitions
from tacit.auditing.search.planner import MEASURED, candidates, cost
from tacit.core.protocol_facts import ReasonCode
from tacit.protocols import REGISTRY
from tacit.runtime.agreement import terms_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def small():
    return tacit.plan(6, coalition_size=1, rounds=20, entries=50_000)


def test_what_holds_comes_first_and_the_cheapest_of_it(small):
    verdicts = [proposal.holds for proposal in small.proposals]
    assert verdicts == sorted(verdicts, reverse=True)
    held = [(not each.unconditional, each.bytes_per_party) for each in small.proposals if each.holds]
    assert held == sorted(held)
    assert {conditional for conditional, _ in held} == {False, True}
    first = next(each for each in small.proposals if each.reason.code is ReasonCode.ALL_OR_NOTHING)
    assert (first.protocol, first.options) == ("secagg", {"threshold": 6})
    assert first.unconditional
    assert {"secagg", "admm"} <= {each.protocol for each in small.proposals if each.holds}
    assert {"secagg", "cesar", "pushsum", "admm"} <= {each.protocol for each in small.proposals if each.fine}


def test_the_baselines_are_there_to_compare_with(small):
    baselines = [each for each in small.proposals if each.verdict is Verdict.LEAKS_BY_DESIGN]
    assert {each.protocol for each in baselines} == {"fedavg", "gossip"}
    assert not any(each.holds for each in baselines)


def test_proposals_can_be_run_as_they_are(small):
    for proposal in small.proposals:
        vectors = [np.full(10, float(i)) for i in range(6)]
        assert tacit.aggregate(vectors, proposal.protocol, **proposal.options).average


def test_costs_are_those_of_a_run_of_that_length():
    names = tuple(f"p{i}" for i in range(5))
    for protocol, options in (("secagg", {}), ("cesar", {}), ("gossip", {"graph": "ring"})):
        entry = REGISTRY[protocol]
        mean, most = cost(entry, terms_for(entry, names, options), 3000)
        traffic = tacit.aggregate([np.zeros(3000)] * 5, protocol, **options).traffic
        measured = [traffic.of(name) for name in names]
        assert mean == pytest.approx(np.mean(measured), rel=2e-3)
        assert most == pytest.approx(max(measured), rel=2e-3)
    assert MEASURED[0] < MEASURED[1]


def test_colluding_members_of_a_batch_leave_two_others_to_hide_among_each_other():
    for c in (1, 2, 3):
        found = [each.options["participation"] for _, each in candidates(24, c) if "participation" in each.options]
        assert found
        for policy in found:
            assert policy["privacy"] >= c + 2
            assert 24 % policy["privacy"] == 0


def test_the_noise_grows_with_rounds_and_shrinks_with_honest_parties(small):
    longer = tacit.plan(6, rounds=80, entries=10)
    assert longer.sigma == pytest.approx(2 * small.sigma)
    more = tacit.privacy.user_sigma(1.0, 1e-5, honest=20, samples=2, rounds=20)
    assert more == pytest.approx(small.sigma / 2)


def test_coalitions_are_drawn_if_there_are_too_many():
    names = tuple(f"p{i}" for i in range(30))
    secagg, gossip = REGISTRY["secagg"], REGISTRY["gossip"]
    drawn = coalitions.sample_coalitions(secagg, names, 3, 30)
    assert (
        coalitions.count_coalitions(secagg, names, 3)
        == 4060 + 435
        == len(list(coalitions.list_coalitions(secagg, names, 3)))
    )
    assert len(set(drawn)) == len(drawn) == 30
    assert {len(each) for each in drawn} == {3}
    assert any("server" in each for each in drawn)
    assert any("server" not in each for each in drawn)
    every = coalitions.sample_coalitions(gossip, names[:4], 2, 30)
    assert len(every) == coalitions.count_coalitions(gossip, names[:4], 2) == 6


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"parties": 3, "coalition_size": 2}, "coalition_size must be 1 of 3 parties, not 2: two others must be left"),
        ({"parties": 2}, "parties must be 3 or more, not 2: each of two"),
        ({"parties": 1}, "parties must be 3 or more, not 1: one has nobody"),
        ({"parties": "12"}, "parties must be a whole number of at least 3, not '12'"),
        ({"parties": 4, "epsilon": "1"}, "epsilon='1' must be a positive number"),
        ({"parties": 4, "delta": None}, "delta=None must be a number between 0 and 1"),
        ({"parties": 5, "rounds": 0}, "rounds"),
        ({"parties": 5, "entries": 0}, "entries"),
        ({"parties": 5, "epsilon": -1.0}, "epsilon"),
    ],
)
def test_bad_questions(question, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        tacit.plan(**question)


def test_only_verdicts_without_conditions_count_as_hiding_every_vector():
    shown = " ".join(CliRunner().invoke(app, ["plan", "5", "--rounds", "50", "--dropout", "0.05"]).stdout.split())
    told = tacit.plan(5, rounds=50, dropout=0.05)
    assert sum(each.unconditional for each in told.proposals) == 1
    assert f"{len(told.proposals)} proposals against 1 curious party: 1 holds 3 holds if models drift" in shown
    assert "1 holds if nobody drops out 1 nothing found if models drift 2 leaks, or was not audited" in shown
    assert "First choice: secagg: holds." in shown


# --- as people see it ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_line_tells_the_same(small, tmp_path):
    picture = tmp_path / "plan.svg"
    words = ["plan", "6", "--rounds", "20", "--entries", "50000", "--json", "--picture", str(picture)]
    found = json.loads(CliRunner().invoke(app, words).stdout)
    assert [each["protocol"] for each in found["proposals"]] == [each.protocol for each in small.proposals]
    assert "megabytes" in picture.read_text(encoding="utf-8") or picture.stat().st_size > 10_000
    table = CliRunner().invoke(app, ["plan", "5", "--rounds", "2"]).stdout
    assert "holds" in table
    assert "leaks by design" in table
    assert CliRunner().invoke(app, ["plan", "2"]).exit_code == 2


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_matrix_of_an_audit_is_drawn(tmp_path, kind):
    picture = tmp_path / f"audit.{kind}"
    result = CliRunner().invoke(app, ["audit", "gossip", "--parties", "5", "--picture", str(picture)])
    assert result.exit_code == 0
    assert picture.read_bytes()[:4] == (b"\x89PNG" if kind == "png" else b"<?xm")
    again = tmp_path / f"again.{kind}"
    CliRunner().invoke(app, ["audit", "gossip", "--parties", "5", "--picture", str(again)])
    assert picture.read_bytes() == again.read_bytes(), "the same audit is the same picture"


def test_many_coalitions_fit_a_picture(tmp_path):
    reports = tacit.audit("gossip", parties=11, coalition_size=2, graph="ring")
    pictures.exposure(reports, str(tmp_path / "many.png"))
    assert (tmp_path / "many.png").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "complaint"), [("plan.pdf", ".png or .svg"), ("nowhere/plan.png", "folder not found")]
)
def test_pictures_that_cannot_be_written_are_refused_at_once(name, complaint, tmp_path):
    result = CliRunner().invoke(app, ["plan", "5", "--picture", str(tmp_path / name)])
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_what_is_missing_to_draw_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(app, ["audit", "fedavg", "--parties", "3", "--picture", "x.png"])
    assert result.exit_code == 1
    assert "tacit[pictures]" in result.stderr


@pytest.mark.slow
def test_attacks_are_listed_and_run(tmp_path):
    listed = json.loads(CliRunner().invoke(app, ["attack", "--json"]).stdout)
    assert {"admm", "decode"} <= {each["name"] for each in listed}
    assert "decode" in CliRunner().invoke(app, ["attack"]).stdout
    picture = tmp_path / "admm.png"
    found = CliRunner().invoke(app, ["attack", "admm", "--json", "--picture", str(picture)])
    verdicts = {each["verdict"] for each in json.loads(found.stdout)}
    assert verdicts == {"broken", "not broken by this"}
    assert picture.stat().st_size > 0
    wrong = CliRunner().invoke(app, ["attack", "everything"])
    assert wrong.exit_code == 2
    assert "there are admm" in wrong.stderr


def test_an_onlooker_is_told_what_it_heard():
    shown = CliRunner().invoke(app, ["audit", "gossip", "--parties", "4", "--coalition", "onlooker"]).stdout
    assert "heard" in shown
    opened = CliRunner().invoke(
        app, ["audit", "gossip", "--parties", "4", "--coalition", "onlooker", "--open-links", "--json"]
    )
    assert sorted(json.loads(opened.stdout)["reports"][0]["exposed"]) == ["p0", "p1", "p2", "p3"]


def test_the_matrix_is_shown_where_it_fits():
    shown = CliRunner().invoke(app, ["audit", "gossip", "--parties", "4", "--set", "graph=ring"]).stdout
    lines = shown.splitlines()
    first = next(place for place, line in enumerate(lines) if line.split() == ["p0", "p1", "p2", "p3"])
    rows = [line.split() for line in lines[first + 1 : first + 5]]
    assert rows == [["p0", "█", "·", "█"], ["p1", "█", "█", "·"], ["p2", "·", "█", "█"], ["p3", "█", "·", "█"]]
    sparse = CliRunner().invoke(app, ["audit", "gossip", "--parties", "3", "--set", "share=0.5"]).stdout
    assert "▒" in sparse
    assert "entries" in sparse
    assert "█" not in CliRunner().invoke(app, ["audit", "secagg", "--parties", "4"]).stdout, "nobody is exposed"
    assert "█" not in CliRunner().invoke(app, ["audit", "gossip", "--parties", "25"]).stdout, "too many to see"
