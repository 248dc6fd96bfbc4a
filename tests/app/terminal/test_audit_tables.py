"""What an audit, a plan and an attack say to people, and what of it can be pasted."""

import io
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import tacit
from tacit.api.option_text import settings_from
from tacit.app.cli.main import app
from tacit.app.reports import figure_style, pictures
from tacit.app.terminal import progress
from tacit.app.terminal.audit_tables import render_findings
from tacit.auditing.findings import GapCode, StepCode, Verdict
from tacit.auditing.questions import Question, read_value, write_value
from tacit.auditing.render.verdicts import render_summary
from tacit.auditing.summary import summarize_reports
from tacit.core.average import format_count
from tacit.lab.attacks import epsilon
from tacit.lab.attacks.attack_result import Finding, Grid, proportion_finding


@pytest.fixture(autouse=True)
def _without_progress(monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 1e9)  # however slow the machine is


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    return done


def said(text):
    """Returns what is printed as one line, wherever it was broken."""
    return " ".join(text.split())


BATCHES = {"participation": {"kind": "batches", "per_round": 3, "privacy": 3}, "threshold": 3}


def words(protocol, parties=9, **question):
    asked = Question(protocol, parties, **question)
    summary = summarize_reports(list(asked.answers()), asked)
    return summary, render_summary(summary)


# --- an audit in words ---------------------------------------------------------------------------------------------


def test_an_audit_that_finds_nobody_does_not_read_as_private():
    told = said(run("audit", "secagg", "--rounds", "10").stdout)
    nobody = "No exposure found. In what was analysed, neither the server nor any single party can recover another"
    assert nobody in told
    for assumed in ("No party misses a round", "One round with only 7 contributors was analysed by itself."):
        assert assumed in told
    for assumed in ("each party and the server acts alone", "10 rounds", "models do not change between rounds"):
        assert assumed in told
    for uncovered in ("the average itself", "do not follow the protocol", "tacit attack lies", "who takes part"):
        assert uncovered in told
    for uncovered in ("Rounds with different contributors.", "two sums can be subtracted", "left out: rounds with"):
        assert uncovered in told
    assert "anonymity set the smallest group in which a vector can hide" in told
    assert "tacit audit secagg --parties 9 --rounds 10 --dropout 0.1" in told


@pytest.mark.slow
def test_the_next_question_is_the_one_that_finds_somebody():
    nobody, _ = words("secagg", rounds=10)
    assert nobody.verdict is Verdict.NOTHING_FOUND
    commands = {each.code: shlex.split(each.command)[1:] for each in nobody.steps}
    found = json.loads(run(*commands["with_dropouts"], "--json").stdout)
    assert (found["exposed"], found["verdict_code"]) == (True, "exposed")
    start = "Exposed. 10 of 10 adversaries, each acting alone, can recover another party's vector"
    assert found["verdict"].startswith(start)


@pytest.mark.parametrize(
    ("protocol", "question", "code", "verdict"),
    [
        (
            "fedavg",
            {},
            Verdict.EXPOSED,
            "Exposed. The server can recover the vectors of all 9 parties. In the worst case, a round with",
        ),
        (
            "fedavg",
            {"coalition": ("server",)},
            Verdict.EXPOSED,
            "Exposed. The server can recover the vectors of all 9 parties.",
        ),
        (
            "secagg",
            {"coalition": ("server", "p0")},
            Verdict.HOLDS,
            "Holds. The server and p0 together cannot recover another party's vector",
        ),
        (
            "gossip",
            {"coalition_size": 2, "parties": 4},
            Verdict.EXPOSED,
            "Exposed. 6 of 6 coalitions can recover another party's vector",
        ),
        (
            "admm",
            {"options": {"masked": True}, "parties": 4},
            Verdict.HOLDS,
            "No single party can recover another party's vector",
        ),
        (
            "secagg",
            {"parties": 4, "coalition": ("p0",), "options": {"threshold": 2}},
            Verdict.EXPOSED_IN_WORST_CASE,
            "Exposed in the worst case. If dropouts leave only 2 contributors, p0 can recover the vector of",
        ),
        ("cesar", {"rounds": 3, "options": {"share": 0.5}}, Verdict.EXPOSED, "in part (about"),
    ],
)
def test_verdicts(protocol, question, code, verdict):
    summary, text = words(protocol, **question)
    assert verdict in text.verdict
    assert summary.verdict is code


def test_a_verdict_on_everything_reads_differently_from_one_on_a_part():
    holds, held = words("secagg", 5, coalition=("server",), rounds=3, options={"threshold": 5})
    part, found = words("pushsum", 5, coalition=("p0",), rounds=3, dropout=0.05, drift="free", options={"masked": True})
    assert (holds.verdict, part.verdict) == (Verdict.HOLDS, Verdict.NOTHING_FOUND)
    assert held.verdict.startswith("Holds. The server cannot recover another party's vector, in every case under")
    assert found.verdict.startswith("No exposure found, as long as models drift. In what was analysed, p0")
    assert "not a proof" in found.verdict
    assert "not a proof" not in held.verdict


@pytest.mark.parametrize(
    ("question", "verdict", "uncompared", "argument"),
    [
        ({"rounds": 20}, Verdict.NOTHING_FOUND, True, ""),
        ({"rounds": 20, "drift": 0.5}, Verdict.NOTHING_FOUND, True, ""),
        ({"rounds": 20, "drift": "free"}, Verdict.HOLDS, False, "fresh sums"),
        ({"rounds": 20, "drift": "free", "dropout": 0.1}, Verdict.HOLDS, False, "fresh sums"),
        ({"rounds": 1}, Verdict.HOLDS, False, "fresh sums"),
        ({"rounds": 20, "options": {"threshold": 6}}, Verdict.HOLDS, False, "one sum"),
        ({"rounds": 20, "options": {"threshold": 6}, "dropout": 0.05}, Verdict.HOLDS, False, "one sum"),
        ({"rounds": 8, "options": BATCHES}, Verdict.HOLDS, False, "whole batches"),
        ({"rounds": 8, "options": BATCHES, "dropout": 0.05}, Verdict.HOLDS, False, "whole batches"),
    ],
)
def test_without_dropouts_a_verdict_over_rounds_holds_only_if_dropouts_change_nothing(
    question, verdict, uncompared, argument
):
    summary, text = words("secagg", 6, coalition=("server",), **question)
    (report,) = summary.reports
    assert (summary.verdict, report.uncompared, report.argument) == (verdict, uncompared, argument)
    assert (GapCode.DIFFERENT_CONTRIBUTORS in {each.code for each in summary.gaps}) == uncompared
    assert ("Rounds with different contributors were not compared." in " ".join(text.assumptions)) == uncompared
    if uncompared:
        assert summary.steps[0].code is StepCode.WITH_DROPOUTS


@pytest.mark.parametrize(
    ("protocol", "options", "verdict"),
    [
        ("admm", {"masked": True}, Verdict.HOLDS),  # needs everybody
        ("pushsum", {"masked": True, "graph": "complete"}, Verdict.NOTHING_FOUND),
        ("cesar", {}, Verdict.NOTHING_FOUND),
    ],
)
def test_so_it_is_without_a_server(protocol, options, verdict):
    assert words(protocol, 5, coalition=("p0",), rounds=2, options=options)[0].verdict is verdict


def test_almost_exact_vectors_are_not_said_to_be_recovered():
    summary, text = words("secagg", 5, coalition=("server",), rounds=20, dropout=0.05, drift=0.01)
    assert summary.verdict is Verdict.NEARLY_EXPOSED
    assert text.verdict.startswith("Nearly exposed. The server can learn")
    assert "almost exactly" in text.verdict
    assert "recover" not in text.verdict


def test_a_vector_that_stands_out_is_in_the_verdict():
    alone, text = words("secagg", 5, coalition=("server",), rounds=20, drift="free", dropout=0.1)
    group = min(report.smallest_group for report in alone.reports)
    assert ("A vector stands out: anonymity set 1." in text.verdict) == (group == 1)
    summary = replace(alone, reports=tuple(replace(each, smallest_group=1) for each in alone.reports))
    assert "A vector stands out: anonymity set 1." in render_summary(summary).verdict
    summary = replace(alone, reports=tuple(replace(each, smallest_group=2) for each in alone.reports))
    assert "stands out" not in render_summary(summary).verdict


@pytest.mark.parametrize(
    ("protocol", "question", "assumed"),
    [
        ("secagg", {"rounds": 2, "dropout": 0.2}, "Each party misses each round with probability 0.2"),
        (
            "secagg",
            {"rounds": 2, "drift": "free"},
            "in every round, each party contributes a new vector",
        ),
        ("secagg", {"rounds": 2, "drift": 0.1}, "each number changes by about 0.1, where a number is at most 32."),
        ("secagg", {"coalition": ("server", "p0")}, "The server and p0 collude."),
        ("gossip", {"coalition": ("p1",)}, "p1 acts alone."),
        ("gossip", {"coalition_size": 2, "parties": 4}, "Any 2 parties collude."),
        ("cesar", {"options": {"share": 0.5}}, "arties select each of 100,000 entries at random"),
        ("gossip", {"coalition": ("onlooker",), "open_links": True}, "Links are not sealed"),
    ],
)
def test_what_was_assumed_is_said(protocol, question, assumed):
    assert any(assumed in each for each in words(protocol, **question)[1].assumptions)


def test_of_noise_epsilon_is_said_to_be_what_the_average_tells():
    _, text = words("secagg", coalition=("server",), noise=1.0, options={"norm": 1.0})
    assert any("The noise limits this to ε = " in each for each in text.gaps)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("protocol", "question"),
    [
        ("fedavg", {}),
        ("gossip", {"parties": 5}),
        ("admm", {"parties": 6, "options": {"group_size": 3, "iterations": 5}}),
        pytest.param("pushsum", {"parties": 5, "rounds": 2, "options": {"masked": True}}, marks=pytest.mark.slow),
        ("secagg", {"parties": 4, "drift": "free", "dropout": 0.1, "rounds": 3}),
        pytest.param(
            "cesar", {"parties": 6, "options": {"graph": {"kind": "regular", "degree": 3}}}, marks=pytest.mark.slow
        ),
    ],
)
def test_every_next_command_runs_as_printed(protocol, question):
    summary, _ = words(protocol, **question)
    assert summary.steps
    for each in summary.steps:
        program, *arguments = shlex.split(each.command)
        assert program == "tacit"
        assert json.loads(run(*arguments, "--json").stdout)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_pipeline_can_fail_for_a_leak(as_json, monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 1e9)  # however slow the machine is
    leaks = run("audit", "gossip", "--parties", "4", "--fail-if-exposed", *as_json, code=1)
    assert leaks.stderr.startswith("error[leak]: Exposed. ")
    assert leaks.stderr.count("\n") == 1
    assert leaks.stdout
    assert run("audit", "gossip", "--parties", "4", *as_json).stderr == ""
    assert run("audit", "secagg", "--parties", "4", "--fail-if-exposed", *as_json).stderr == ""
    worst_case = ("audit", "secagg", "--parties", "4", "--coalition", "p0", "--set", "threshold=2")
    assert "in the worst case" in run(*worst_case, "--fail-if-exposed", *as_json, code=1).stderr


# --- what can be pasted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("True", True),
        ("None", None),
        ("null", None),
        ("3", 3),
        ("1e-5", 1e-5),
        ("ring", "ring"),
        ("'ring'", "ring"),
        ('"ring"', "ring"),
        ("[3, 0.1]", [3, 0.1]),
        ("(3, 0.1)", (3, 0.1)),
        ("{'kind': 'regular', 'degree': 3}", {"kind": "regular", "degree": 3}),
        ('{"kind": "regular", "degree": 3}', {"kind": "regular", "degree": 3}),
        ('{kind = "regular", degree = 3}', {"kind": "regular", "degree": 3}),
        ("2024-01-01", "2024-01-01"),
        ("a=b", "a=b"),
    ],
)
def test_a_setting_is_taken_as_it_is_written(text, value):
    assert settings_from([f"it={text}"]) == {"it": value}


@pytest.mark.parametrize("wrong", ["it", "=3", "it=[3", "it={kind: regular}", "it='ring"])
def test_a_setting_that_is_written_wrongly_is_told(wrong):
    with pytest.raises(tacit.ConfigError, match="--set"):
        settings_from([wrong])


@pytest.mark.parametrize(
    "value", [True, None, 0, 2.5, "ring", "two words", "true", "None", "3", "", [1, [2.5]], {"a": {"b": "it's"}}]
)
def test_what_is_written_is_read_as_the_same(value):
    assert read_value(write_value(value)) == value


@pytest.mark.parametrize("setting", ["masked=True", "masked=true", "group_size=None", "group_size='all'"])
def test_settings_as_in_python_are_taken(setting):
    run("audit", "admm", "--parties", "4", "--coalition", "p0", "--set", setting)


def test_one_of_anything_is_told_as_one():
    assert [format_count(number, "round") for number in (0, 1, 1000)] == [
        "0 rounds",
        "1 round",
        "1,000 rounds",
    ]
    assert [format_count(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]
    plan = run("plan", "4", "--rounds", 1, "--entries", 1, "--dropout", 0).stdout
    assert "\n\n4 parties, any 1 colluding, 1 round, dropout probability 0, 1 entry\n" in plan
    assert not re.search(r"\b1 (rounds|entries|coalitions|seeds)\b", plan)


def test_papers_go_by_name_and_year():
    listed = run("attack").stdout
    assert "Jeon et al. 2020" in " ".join(listed.split())
    assert not re.search(r"\b00[0-4]\b", listed)


@pytest.mark.slow
@pytest.mark.parametrize("colluding", [1, 2])
def test_every_line_of_a_plan_runs_as_printed_and_says_what_the_plan_does(colluding, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    size, rounds = ["--coalition-size", colluding], ["--rounds", 3]
    lines = run("plan", "6", *size, *rounds).stdout.splitlines()
    proposals = json.loads(run("plan", "6", *size, *rounds, "--json").stdout)["proposals"]
    fine = [each for each in proposals if each["verdict_code"] in ("holds", "nothing_found")]
    assert len(fine) > 2
    printed = {"tacit audit ": [], "tacit.aggregate(": []}
    for start, found in printed.items():
        found += [line for line in lines if line.startswith(start)]
    assert set(printed["tacit audit "]) >= {each["command"] for each in fine}
    assert printed["tacit.aggregate("] == [each["python"] for each in fine]
    for line in printed["tacit audit "]:
        run(*shlex.split(line)[1:], "--fail-if-exposed")
    vectors = list(np.arange(18.0).reshape(6, 3))
    for line in printed["tacit.aggregate("]:
        outcome = eval(line, {"tacit": tacit, "vectors": vectors})  # noqa: S307 (our own line)
        assert outcome.average["p0"].shape == (3,)


# --- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["plan", "1"], "PARTIES 1: a plan needs at least 3"),
        (["plan", "6", "--rounds", "0"], "--rounds 0: use a whole number of at least 1"),
        (["audit", "secagg", "--parties", "-3"], "--parties -3: use a whole number of at least 2"),
        (["audit", "secag"], "there is no protocol 'secag'; did you mean 'secagg'? (there are fedavg,"),
        (["audit", "secagg", "--set", "thresold=4"], "secagg has no option 'thresold'; did you mean 'threshold'?"),
        (["audit", "secagg", "--coalition", "server,serverr"], "serverr is nobody here; did you mean 'server'?"),
        (["attack", "epsilom"], "there is no attack 'epsilom'; did you mean 'epsilon'?"),
        (["reproduce", "000-fig44"], "there is no reproduction '000-fig44'; did you mean '000-fig4'?"),
        (["reproduce", "000-fig4", "--scale", "smal"], "there is no scale 'smal'; did you mean 'small'?"),
        (["compare", "--protocol", "secag"], "there is no protocol 'secag'; did you mean 'secagg'?"),
        (["bench", "--protocol", "local"], "there is no protocol 'local'"),
        (["bench", "--parties", "2"], "--parties 2: use a whole number of at least 5"),
    ],
)
def test_mistakes_are_one_line_that_helps(arguments, line):
    done = run(*arguments, code=2)
    assert done.stdout == ""
    first, *more = done.stderr.splitlines()
    assert first.startswith(f"error[config]: {line}")
    assert len(more) <= 1
    assert all(each.startswith("try: ") for each in more)


# --- attacks, and how fast it is -----------------------------------------------------------------------------------


def test_attacks_speak_of_targets_in_words_and_brackets_are_called_what_they_are():
    accounted = epsilon.account_game(epsilon.theorem_game(10, 100))
    assert accounted.target == "10 users, 100 rounds, noise as Huang prescribes it"
    assert accounted.paper == "Theorem 1"
    sampled = proportion_finding("x", "a target", "share of runs", wins=1, tries=2)
    format_count = Finding("x", "a target", "lies that work", 2.0, 2.0, 2.0, 10, True, "")

    def table(finding):
        console = Console(width=100, file=io.StringIO())
        console.print(render_findings([finding]))
        return console.file.getvalue().partition("broken: ")[0]

    assert "tight (PLD)," in table(accounted)
    assert "95 % interval" not in table(accounted)
    assert "95 % interval" in table(sampled)
    assert " to " not in table(format_count)


def test_how_fast_it_is_is_measured_beside_plain_averaging():
    asked = ["bench", "--entries", "100", "--parties", "5", "--repeat", "1"]
    found = json.loads(run(*asked, "--json").stdout)
    assert [row["protocol"].split()[0] for row in found["rows"]] == list(tacit.protocols.REGISTRY)
    assert found["rows"][0]["ratio"] == 1.0
    assert all(row["seconds"] > 0 and row["bytes_per_party"] > 0 for row in found["rows"])
    told = run(*asked, "--protocol", "secagg bits=16").stdout
    assert "secagg bits=16" in told


# --- pictures ------------------------------------------------------------------------------------------------------


def lightness(colour):
    """Returns L* of a colour, from 0 to 100: how light it looks, whatever its hue."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    y = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return 116 * y ** (1 / 3) - 16


def test_colours_differ_in_lightness():
    shades = sorted(map(lightness, (figure_style.LEAK, figure_style.SAFE, figure_style.WARNING)))
    assert min(np.diff(shades)) > 12
    before = lightness("#b5322f"), lightness("#3b7a57")
    assert abs(before[0] - before[1]) < 12, "which the red and green of before did not"


@pytest.fixture
def figures(monkeypatch):
    """Returns the figures that are drawn, before they are files."""
    drawn, figure = [], figure_style.figure

    def kept(*given):
        drawn.append(figure(*given))
        return drawn[-1]

    monkeypatch.setattr(figure_style, "figure", kept)
    return drawn


def test_the_matrix_says_what_it_is_of(figures, tmp_path):
    run("audit", "gossip", "--parties", "4", "--set", "graph=ring", "--picture", tmp_path / "who.svg")
    _, axes = figures[-1]
    assert axes.get_title(loc="left") == "gossip graph=ring, 4 parties: who can recover whose vector"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("whose vector", "coalition")
    assert "no dropouts" in axes.texts[0].get_text()


def test_shares_have_one_scale_and_counts_whole_numbers(figures, tmp_path):
    shares = [Finding("x", "one", "share of runs", 0.5, 0.4, 0.6, 10, True)]
    counts = [Finding("x", "one", "lies that work", float(n), n, n, 10, bool(n), "") for n in (0, 2)]
    pictures.intervals(shares + counts, str(tmp_path / "x.svg"), "seed 0")
    _, (share, count) = figures[-1]
    low, high = share.get_xlim()
    assert low == pytest.approx(-0.02)
    assert high == pytest.approx(1.02)
    assert share.get_xlabel() == "share of runs; the line is the 95 % interval"
    assert count.get_xlabel() == "lies that work"
    assert all(float(tick).is_integer() for tick in count.get_xticks())
    assert share.xaxis.get_gridlines()[0].get_visible()


def test_the_digits_are_drawn(figures, tmp_path, monkeypatch):
    grid = Grid("digits", ("the image", "fedavg"), [[np.eye(8), np.eye(8)]] * 3)
    attack = tacit.app.cli.audit_commands.ATTACKS["inversion"]
    monkeypatch.setitem(
        tacit.app.cli.audit_commands.ATTACKS,
        "inversion",
        type(attack)(attack.name, attack.summary, attack.paper, attack.run, lambda *_: ([], grid)),
    )
    run("attack", "inversion", "--picture", tmp_path / "digits.png")
    _, panels = figures[-1]
    assert panels.shape == (3, 2)
    assert all(len(axes.images) == 1 for axes in panels.ravel())
    assert [axes.get_title() for axes in panels[0]] == ["the image", "fedavg"]
