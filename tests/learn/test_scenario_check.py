"""One check of scenarios: the command line, the page and Python find the same problems."""

import pytest
from typer.testing import CliRunner

from support.printed_errors import read_errors
from tacit import train
from tacit.app.cli.main import app
from tacit.app.ui.run_folders import check_text
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.scenario_check import MOST_BOUND, load_scenario, parse_scenario

GOOD = 'rounds = 2\nmodel = "softmax"\n[data]\nname = "digits"\nparties = 4\n[protocol]\nname = "secagg"\n'
BAD = {
    "an unknown key": "rouns = 2\n" + GOOD,
    "a value of another type": GOOD.replace("parties = 4", 'parties = "four"'),
    "too few rounds": GOOD.replace("rounds = 2", "rounds = 0"),
    "an unknown protocol": GOOD.replace("secagg", "secag"),
    "an unknown option of a protocol": GOOD + "treshold = 3\n",
    "a setting that cannot be": GOOD + "threshold = 9\n",
    "a ring that cannot be": GOOD + "bits = 7\n",
    "an unknown data set": GOOD.replace("digits", "digit"),
    "an unknown option of a data set": GOOD.replace("parties = 4", "parties = 4\noptions = {shre = 0.5}"),
    "an unknown model": GOOD.replace("softmax", "softmacs"),
    "an unknown option of a model": GOOD.replace('"softmax"', '{name = "mlp", hiden = [3]}'),
    "a name that leads out of a folder": GOOD.replace("digits", "../out"),
    "several at once": GOOD.replace("digits", "digit").replace("softmax", "softmacs") + "treshold = 3\n",
    "no TOML": "rounds = \n",
}


def problems(check):
    with pytest.raises(ConfigError) as caught:
        check()
    return caught.value.problems


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_page_and_command_line_find_the_same_problems(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.toml").write_text(text)
    found = problems(lambda: load_scenario("scenario.toml"))
    assert found
    assert problems(lambda: check_text(text)) == found
    said = CliRunner().invoke(app, ["train", "scenario.toml"])
    assert said.exit_code == 2
    shown = " ".join("\n".join(read_errors(said.stderr)).split())
    assert all(" ".join(problem.split()) in shown for problem in found)
    assert not (tmp_path / "runs").exists(), "nothing is begun"


def test_python_finds_the_same_problems_without_lines(tmp_path):
    text = BAD["several at once"]
    found = problems(lambda: parse_scenario(text, "scenario.toml"))
    assert len(found) == 3
    assert [each.split(":")[0] for each in found] == [f"scenario.toml, line {line}" for line in (2, 4, 8)]
    plain = problems(lambda: train(Scenario.parse(text, "scenario.toml"), folder=tmp_path / "run"))
    assert sorted(plain) == sorted(each.partition(": ")[2] for each in found)


def test_a_good_scenario_has_no_problems():
    assert parse_scenario(GOOD, "scenario.toml") == check_text(GOOD)


def test_a_check_binds_no_more_parties_than_it_has_time_for():
    text = GOOD.replace("parties = 4", f"parties = {10**15}")
    assert parse_scenario(text, "scenario.toml").data.parties > MOST_BOUND
    assert "more than the page takes" in problems(lambda: check_text(text))[0]
