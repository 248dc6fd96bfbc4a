"""`tacit run`, `tacit compare` and `tacit reproduce`, as people use them."""

import json
import re
import shlex
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit import papers
from tacit.app.cli import app
from tacit.papers.reproduction import Reproduction

ROOT = Path(__file__).parents[2]
SCENARIO = """
title = "<first> & only"
rounds = 3
protocol = "{protocol}"
[data]
parties = 4
[local]
rate = 0.5
"""


@pytest.fixture
def tacit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def called(*given):
        return CliRunner().invoke(app, list(given))

    return called


def written(text, name="scenario.toml"):
    Path(name).write_text(text, encoding="utf-8")
    return name


class Links(HTMLParser):
    """What a page wants from elsewhere."""

    def __init__(self):
        super().__init__()
        self.wanted = []

    def handle_starttag(self, tag, attrs):
        del tag
        given = [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.wanted += [value for value in given if not value.startswith(("#", "data:"))]


@pytest.mark.parametrize("protocol", ["secagg", "gossip", "local"])
def test_a_run_leaves_a_folder_with_a_page_that_needs_nothing_else(tacit, protocol):
    done = tacit("run", written(SCENARIO.format(protocol=protocol)), "--folder", "out")
    assert done.exit_code == 0, done.output
    assert "test score" in done.output
    names = {path.name for path in Path("out").iterdir()}
    assert {"scenario.json", "metrics.jsonl", "model.safetensors", "progress.svg", "labels.svg", "report.html"} <= names
    page = Path("out/report.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(page)
    assert links.wanted == []
    assert "&lt;first&gt; &amp; only" in page
    assert page.count("<svg") == 2
    assert ("What this does not cover" in page) == (protocol != "local"), "what was audited is assessed"


def test_a_run_as_json_and_again(tacit):
    scenario = written(SCENARIO.format(protocol="secagg"))
    first = tacit("run", scenario, "--folder", "out", "--json")
    assert [each["round"] for each in json.loads(first.output)["history"]] == [1, 2, 3]
    again = tacit("run", scenario, "--folder", "out")
    assert again.exit_code == 2
    assert "has a run already" in again.output
    resumed = tacit("run", scenario, "--folder", "out", "--resume", "--json")
    assert json.loads(resumed.output)["history"] == json.loads(first.output)["history"]


LONG = """
rounds = 400
protocol = "secagg"
[data]
parties = 4
[local]
rate = 0.5
[[faults]]
action = "crash"
message = "MaskedInput"
party = "p2"
round = 2
"""


def test_rounds_are_plain_lines_where_there_is_no_terminal(tacit):
    scenario = written(LONG.replace("400", "3"))
    done = tacit("run", scenario, "--folder", "out")
    assert done.exit_code == 0, done.output
    first, second, third = done.stderr.splitlines()
    assert re.fullmatch(r"round 1 of 3, [\d.]+%, [\d.]+ kB a party", first)
    assert second.endswith("a party, 3 of 4 averaged, without p2")
    assert third.startswith("round 3 of 3")
    quiet = tacit("run", scenario, "--folder", "other", "--json")
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)


def test_ctrl_c_leaves_a_run_that_goes_on_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = written(LONG)
    command = [sys.executable, "-m", "tacit", "run", scenario, "--folder", "out"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    for line in process.stderr:
        if line.startswith("round 3 "):
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    last = err.splitlines()[-1]
    assert "Traceback" not in err
    assert last == f"stopped: what is over is kept; to go on, run: tacit run {scenario} --folder out --resume"
    kept = Path("out/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert 3 <= len(kept) < 400
    # The rest would take long, so that one round more will do to see that it goes on from there.
    shorter = Path("out/checkpoint").stat().st_mtime_ns
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", *shlex.split(last.partition("run: ")[2])], stderr=subprocess.PIPE, text=True
    )
    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert int(first.split()[1]) in (len(kept), len(kept) + 1)
    assert Path("out/checkpoint").stat().st_mtime_ns > shorter


def test_what_is_wrong_with_a_scenario_is_a_line_each(tacit):
    done = tacit("run", written("round = 3\n[data]\npartis = 4\n"))
    assert done.exit_code == 2
    assert done.output.count("\n") == 2
    assert "line 1" in done.output
    assert "did you mean 'parties'?" in done.output


def test_what_leaks_is_refused_by_name(tacit):
    done = tacit("run", written(SCENARIO.format(protocol="pushsum")))
    assert done.exit_code == 1
    assert "error[leak]" in done.output


def test_protocols_are_compared_on_the_same_work(tacit):
    done = tacit(
        "compare", "--rounds", "2", "--protocol", "fedavg", "--protocol", "secagg bits=64", "--protocol", "pushsum",
        "--protocol", "local", "--picture", "all.png", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    plain, masked, refused, alone = json.loads(done.output)
    assert plain["history"][-1]["accuracy"] == pytest.approx(masked["history"][-1]["accuracy"], abs=0.02)
    assert plain["exposed"] == "9 of 9 to server"
    assert masked["exposed"] == "nobody"
    assert "pushsum would show" in refused["refused"]
    assert alone["bytes_per_party_per_round"] == 0
    assert Path("all.png").stat().st_size > 10_000


PRIVATE = """
rounds = 1
[data]
parties = 9
[privacy]
epsilon = 8.0
clip = 1.0
noise = "{noise}"
"""


@pytest.mark.parametrize(("noise", "cannot"), [("distributed", set()), ("central", {"gossip", "cesar"})])
def test_what_cannot_be_had_with_a_scenario_is_left_out_and_told(tacit, noise, cannot):
    scenario = written(PRIVATE.format(noise=noise))
    done = tacit("compare", scenario, "--json")
    assert done.exit_code == 0, done.output
    found = {each["protocol"]: each for each in json.loads(done.output)}
    assert list(found)[:2] == ["local", "centralized"]
    for name in ("local", "centralized"):
        assert "about what is averaged" in found[name]["refused"]
    assert {name for name in ("secagg", "fedavg", "gossip", "cesar") if not found[name]["history"]} == cannot
    assert all("has no server" in found[name]["refused"] for name in cannot)
    asked = tacit("compare", scenario, "--protocol", "local")
    assert asked.exit_code == 2, "who asks for it is told that it cannot be"
    assert "about what is averaged" in asked.output


def test_what_is_wrong_with_the_scenario_itself_is_no_table_of_refusals(tacit):
    done = tacit("compare", written(PRIVATE.format(noise="central").replace("[data]", '[data]\nname = "digit"')))
    assert done.exit_code == 2
    assert done.output.count("\n") == 1


@pytest.mark.parametrize("rounds", ["0", "-1"])
def test_nothing_is_compared_in_no_rounds(tacit, rounds):
    done = tacit("compare", f"--rounds={rounds}")
    assert done.exit_code == 2
    assert f"--rounds {rounds}: use a whole number of at least 1" in done.output


def test_a_protocol_that_is_none_is_told(tacit):
    done = tacit("compare", "--protocol", "secag")
    assert done.exit_code == 2
    assert "there is no protocol 'secag'" in done.output


def test_every_reproduction_is_listed_and_says_what_it_is(tacit):
    done = tacit("reproduce", "--list", "--json")
    assert [each["name"] for each in json.loads(done.output)] == list(papers.names())
    assert {name[:3] for name in papers.names()} == {"000", "001", "002", "003", "004"}
    for name in papers.names():
        found = papers.find(name)
        assert isinstance(found, Reproduction)
        assert found.name == name


def test_a_table_is_run_again_and_drawn(tacit):
    done = tacit("reproduce", "004-table2", "--picture", "table.svg")
    assert done.exit_code == 0, done.output
    assert "43.8" in done.output
    assert Path("table.svg").exists()


@pytest.mark.parametrize("given", [["000-fig99"], ["004-table2", "--scale", "huge"]])
def test_what_cannot_be_reproduced_is_told(tacit, given):
    assert tacit("reproduce", *given).exit_code == 2


def test_the_page_of_reproductions_is_that_of_what_is_kept():
    check = subprocess.run([sys.executable, ROOT / "docs" / "reproductions.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/reproductions.py"
