"""`tacit ledger`, and the ledger options of `tacit train`, as people use them and as they go wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from support.printed_errors import read_errors
from tacit.app.cli.main import app

SCENARIO = """
rounds = 2
protocol = "secagg"

[data]
folder = "clinic"
parties = 4

[local]
steps = 1

[privacy]
epsilon = 2.0
clip = 1.0
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scenario.toml").write_text(SCENARIO, encoding="utf-8")
    Path("clinic").mkdir()
    write(0)

    def called(*given, code=0):
        done = CliRunner().invoke(app, list(given))
        assert done.exit_code == code, done.output
        return done

    return called


def write(seed):
    rng = np.random.default_rng(seed)
    for name in "abcd":
        np.savez(f"clinic/{name}.npz", x=rng.normal(size=(40, 5)), y=rng.integers(2, size=40))


def test_who_spent_what_is_shown_alone_and_together(run):
    for number in range(2):
        run("train", "scenario.toml", "--folder", f"run {number}")
    found = json.loads(run("ledger", "clinic/ledger.json", "--json").stdout)
    assert [each["rounds"] for each in found["runs"]] == [2, 2]
    one, two = (each["epsilon_together"] for each in found["runs"])
    assert one == pytest.approx(found["runs"][0]["epsilon_alone"]) == pytest.approx(2.0, rel=0.01)
    assert two == found["epsilon"] > 2.5
    assert found["unit"] == "user"
    assert (found["budget"], found["left"]) == (None, None)
    said = run("ledger", "clinic/ledger.json").stdout
    for words in ("ε alone", "ε together", "distributed", f"ε = {two:.4g} spent"):
        assert words in " ".join(said.split()), said
    assert "tacit ledger clinic/ledger.json" in run("ledger", "--help").stdout


def test_a_budget_refuses_a_run_in_one_line_and_says_what_is_left(run):
    run("ledger", "clinic/ledger.json", "--budget", "2.5")
    run("train", "scenario.toml", "--folder", "one")
    refused = run("train", "scenario.toml", "--folder", "two", code=1)
    (line,) = [each for each in read_errors(refused.stderr) if each.startswith("error")]
    assert line.startswith("error[budget]: this run would spend ε = ")
    assert "is left of the budget of 2.5" in line
    left = json.loads(run("ledger", "clinic/ledger.json", "--json").stdout)["left"]
    assert f"{left:.4g} is left" in line


def test_changed_data_are_asked_about(run):
    run("train", "scenario.toml", "--folder", "one")
    write(1)
    refused = run("train", "scenario.toml", "--folder", "two", code=2)
    (line,) = [each for each in read_errors(refused.stderr) if each.startswith("error")]
    assert line.startswith("error[config]: this ledger belongs to data ")
    both = run("train", "scenario.toml", "--folder", "two", "--same-people", "--new-people", code=2)
    assert "exclude each other" in both.stderr
    run("train", "scenario.toml", "--folder", "two", "--same-people")
    found = json.loads(run("ledger", "clinic/ledger.json", "--json").stdout)
    assert len(found["runs"]) == 2
    assert len(found["earlier"]) == 1


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 2, "error[config]: there is no ledger"),
        (b"{}", 1, "error[journal]: this file is not a ledger"),
        (b'{"kind":"tacit ledger","version":9}', 1, "error[journal]: this is a ledger of version 9, not 2"),
        (b'{"kind":"tacit ledger","version":2,"data":7}', 1, "error[journal]: the ledger cannot be read"),
    ],
)
def test_what_is_no_ledger_is_one_line(run, content, code, words):
    if content is not None:
        Path("ledger.json").write_bytes(content)
    (line,) = read_errors(run("ledger", "ledger.json", code=code).stderr)
    assert line.startswith(words)
    if content is not None:
        (line,) = read_errors(run("ledger", "ledger.json", "--budget", "2", code=code).stderr)
        assert line.startswith(words)
        assert Path("ledger.json").read_bytes() == content


def test_a_ledger_of_an_earlier_release_is_shown(run):
    golden = Path(__file__).parents[2] / "golden" / "0.2.0" / "ledger" / "ledger.json"
    found = json.loads(run("ledger", str(golden), "--json").stdout)
    assert found["data"] is None
    assert [each["run"] for each in found["runs"]] == ["golden run"]
    for given in (("--budget", "0"), ("--budget", "nan"), ("--delta", "0.1")):
        assert run("ledger", "new.json", *given, code=2).stderr.startswith("error[config]")
        assert not Path("new.json").exists()


def test_runs_without_noise_are_shown_where_epsilon_is(run):
    run("train", "scenario.toml", "--folder", "run")
    assert "Runs without noise: none is recorded here." in run("ledger", "clinic/ledger.json").stdout
    plain = SCENARIO[: SCENARIO.index("[privacy]")]
    Path("plain.toml").write_text(plain, encoding="utf-8")
    run("train", "plain.toml", "--folder", "plain")
    found = json.loads(run("ledger", "clinic/ledger.json", "--json").stdout)
    assert found["not_counted"] == [{"code": "runs-without-noise", "runs": 1}]
    assert [each["without_noise"] for each in found["runs"]] == [False, True]
    assert found["runs"][1]["epsilon_alone"] is None
    assert found["epsilon"] == found["runs"][0]["epsilon_alone"]
    said = " ".join(run("ledger", "clinic/ledger.json").stdout.split())
    assert "1 run with noise on data" in said
    assert "1 run without noise: nothing bounds what" in " ".join(said.split())
