"""How far something is, where nobody watches a terminal: plain lines on standard error, and not too many."""

import json
import threading
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from tacit.app.cli.main import app
from tacit.app.terminal import progress
from tacit.app.terminal.progress import OFTEN, RARELY, SHORT, ProgressLines, show_progress

AUDIT = ("audit", "secagg", "--parties", "5", "--rounds", "20", "--dropout", "0.1")


class Clock:
    """A clock that is set, and lines that are kept with their time."""

    def __init__(self):
        self.time, self.said = 100.0, []

    def lines(self, **more):
        """Returns lines by this clock."""
        return ProgressLines(
            now=lambda: self.time, say=lambda line: self.said.append((self.time - 100.0, line)), **more
        )


@pytest.fixture
def clock():
    """A clock that stands still unless it is set."""
    return Clock()


@pytest.fixture
def at_once(monkeypatch):
    """Has everything said that is told."""
    for name in ("SHORT", "OFTEN"):
        monkeypatch.setattr(progress, name, 0.0, raising=False)


def test_nothing_is_said_of_what_is_over_at_once(clock):
    lines = clock.lines()
    for step in range(100):
        clock.time = 100.0 + SHORT * step / 101
        lines(f"step {step}", step, 100)
    assert clock.said == []


def test_lines_are_few_and_say_how_much_is_done(clock):
    lines = clock.lines()
    for step in range(1000):
        clock.time = 100.0 + step / 10
        lines(f"step {step}", step, 1000)
    times = [time for time, _ in clock.said]
    assert times[0] == pytest.approx(SHORT)
    assert all(later - earlier >= OFTEN for earlier, later in pairwise(times))
    assert max(later - earlier for earlier, later in pairwise(times)) <= RARELY
    assert clock.said[0][1] == "  2%  step 20"


def test_a_tenth_more_is_worth_a_line_and_less_is_not(clock):
    lines = clock.lines()
    clock.time += SHORT
    lines("solving", 0.0, 1.0)
    clock.time += OFTEN
    lines("solving", 0.09, 1.0)
    assert len(clock.said) == 1
    lines("solving", 0.1, 1.0)
    assert [line for _, line in clock.said] == ["  0%  solving", " 10%  solving"]


def test_nobody_waits_long_for_a_sign_though_nothing_changes(clock):
    lines = clock.lines()
    lines("solving", 1, 4)
    for _ in range(60):
        clock.time += 1.0
        lines.look()
    first, *again = [line for _, line in clock.said]
    assert first == " 25%  solving"
    assert again[0] == f" 25%  solving (still, after {SHORT + RARELY:.0f} s)"
    assert len(again) == 5


def test_whoever_waits_for_others_says_nothing_twice(clock):
    lines = clock.lines(waits=True)
    lines("waiting for the others", 0, 4)
    for _ in range(3600):
        clock.time += 1.0
        lines.look()
    assert [line for _, line in clock.said] == ["  0%  waiting for the others"]


def test_a_line_is_said_while_nothing_is_told(monkeypatch, capsys):
    said = threading.Event()
    for name, value in (("SHORT", 0.0), ("LOOKED", 0.001)):
        monkeypatch.setattr(progress, name, value)
    monkeypatch.setattr(progress.typer, "echo", lambda *_, **__: said.set())
    before = threading.active_count()
    with show_progress():
        assert said.wait(30)
    assert threading.active_count() == before
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("at_once")
def test_an_audit_tells_what_it_does_to_which_coalition_of_how_many():
    done = CliRunner().invoke(app, AUDIT)
    assert done.exit_code == 0, done.output
    told = done.stderr.splitlines()
    assert all(
        any(f"{who} (coalition {place} of 6)" in line for line in told) for place, who in ((1, "server"), (6, "p4"))
    )
    for doing in (
        "choosing who is summed, in round 20 of 20",
        "running round 2 of 2 on unknowns",
        "comparing the sums of 20 rounds",
        "trying seed 8 of 8",
        "checking the symbolic run against a numeric run, round 2",
    ):
        assert any(line.endswith(doing) or f"{doing} " in line for line in told), doing


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "command", [AUDIT, ("plan", "5", "--rounds", "2"), ("bench", "--entries", "10", "--repeat", "1")]
)
def test_what_is_told_is_never_in_json(command):
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert done.stderr.count("\n") > 3


@pytest.mark.usefixtures("at_once")
def test_a_plan_tells_of_coalitions():
    told = CliRunner().invoke(app, ["plan", "5", "--rounds", "2", "--json"]).stderr
    assert "secagg: everybody in every round: analysing coalition 1 of " in told
