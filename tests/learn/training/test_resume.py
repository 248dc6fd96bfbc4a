"""A run that is killed, wherever that may be, and goes on, ends as one that is not."""

import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.training.run_folder import CHECKPOINT, METRICS, MODEL, SCENARIO
from tacit.learn.training.train import train

pytestmark = pytest.mark.long

SCENARIOS = {
    "secagg": {"rounds": 12, "data": {"parties": 5}, "protocol": {"name": "secagg", "bits": 16}},
    "batches": {
        "rounds": 12,
        "data": {"parties": 12},
        "protocol": {"name": "secagg", "participation": {"kind": "batches", "per_round": 6, "privacy": 3}},
        "dropout": 0.1,
    },
    "pushsum": {"rounds": 12, "data": {"parties": 5}, "protocol": {"name": "pushsum", "masked": True}},
    "cesar": {
        "rounds": 12,
        "data": {"parties": 6},
        "protocol": {"name": "cesar", "graph": "complete", "share": 0.4, "sparsifier": "topk", "allow_leaks": True},
    },
}


def started(scenario, folder):
    command = [
        str(Path(sys.executable).with_name("tacit")),
        "train",
        str(scenario),
        "--folder",
        str(folder),
        "--resume",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603


def ending(folder):
    """Returns what must be the same: the model, what was sent, what was spent, and how well it did."""
    lines = (folder / METRICS).read_bytes().splitlines()
    metrics = [msgspec.json.decode(line) for line in lines]
    for each in metrics:
        del each["seconds"]
    return (folder / MODEL).read_bytes(), metrics


def killed_and_resumed(scenario, folder, rng, kills):
    """Kills a run at random moments, each after some more rounds at least, and then lets it end."""
    for _ in range(kills):
        process, before = started(scenario, folder), rounds_in(folder)
        target, deadline = rng.randint(before, before + 3), time.monotonic() + 120
        while process.poll() is None and rounds_in(folder) < target and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.communicate()
    process = started(scenario, folder)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode()


def rounds_in(folder):
    path = folder / METRICS
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def tried(name, tmp_path, tries, seed):
    given = SCENARIOS[name]
    scenario = tmp_path / "scenario.json"
    scenario.write_bytes(msgspec.json.encode(given))
    train(Scenario.of(given), folder=tmp_path / "whole")
    rng = random.Random(seed)
    for number in range(tries):
        killed_and_resumed(scenario, tmp_path / f"cut {number}", rng, 2)
        assert ending(tmp_path / f"cut {number}") == ending(tmp_path / "whole")


@pytest.mark.parametrize("name", ["batches"])
def test_a_killed_run_goes_on_as_if_it_had_not_been(name, tmp_path):
    tried(name, tmp_path, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_runs_go_on_as_if_they_had_not_been(name, tmp_path):
    tried(name, tmp_path, 5, 1)


@pytest.mark.parametrize(
    "name", [name if name != "cesar" else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
)
@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_a_run_goes_on_from_every_protocols_state(name, after, tmp_path):
    class Cut(Exception):
        pass

    def cut(metrics):
        if metrics.round == after:
            raise Cut

    scenario = Scenario.of(SCENARIOS[name])
    train(scenario, folder=tmp_path / "whole")
    with pytest.raises(Cut):
        train(scenario, folder=tmp_path / "cut", on_round=cut)
    train(scenario, folder=tmp_path / "cut", resume=True)
    assert ending(tmp_path / "cut") == ending(tmp_path / "whole")
    train(scenario, folder=tmp_path / "cut", resume=True)  # there is nothing left to do
    assert ending(tmp_path / "cut") == ending(tmp_path / "whole")


def test_a_folder_with_a_run_is_not_written_over(tmp_path):
    scenario = Scenario.of({"rounds": 1})
    train(scenario, folder=tmp_path)
    with pytest.raises(ConfigError, match="already has a run"):
        train(scenario, folder=tmp_path)
    with pytest.raises(ConfigError, match="another scenario"):
        train(Scenario.of({"rounds": 2}), folder=tmp_path, resume=True)


def test_a_checkpoint_of_another_scenario_or_version_or_that_was_changed_is_refused(tmp_path):
    train(Scenario.of({"rounds": 1}), folder=tmp_path / "one")
    train(Scenario.of({"rounds": 2}), folder=tmp_path / "two")
    written = (tmp_path / "one" / CHECKPOINT).read_bytes()
    (tmp_path / "two" / CHECKPOINT).write_bytes(written)
    with pytest.raises(ConfigError, match="another scenario"):
        train(Scenario.of({"rounds": 2}), folder=tmp_path / "two", resume=True)
    (tmp_path / "one" / CHECKPOINT).write_bytes(written[:-1])
    with pytest.raises(ConfigError, match="changed or truncated"):
        train(Scenario.of({"rounds": 1}), folder=tmp_path / "one", resume=True)
    assert (tmp_path / "one" / SCENARIO).exists()


def test_rounds_that_were_written_over_are_refused(tmp_path):
    train(Scenario.of({"rounds": 1}), folder=tmp_path)
    (tmp_path / METRICS).write_bytes(b"{not json}\n")
    with pytest.raises(ConfigError, match="was changed"):
        train(Scenario.of({"rounds": 1}), folder=tmp_path, resume=True)
