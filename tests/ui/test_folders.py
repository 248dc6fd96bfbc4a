"""Runs and parties as the page finds them: what is in a folder is data, and nothing in it leads out of it."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from tacit.api.prepare import Metrics
from tacit.app.ui import folders
from tacit.core.errors import ConfigError
from tacit.drivers.network.status import Ended, Standing, Status, show
from tacit.learn.scenario import Scenario

SCENARIO = {"rounds": 3, "title": "first", "protocol": "secagg", "data": {"parties": 4}}


def run_in(place, name, rounds=3, over=True, **scenario):
    """Writes a run as `tacit run` leaves it."""
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "scenario.json").write_bytes(Scenario.of({**SCENARIO, **scenario}).encoded())
    lines = [
        Metrics(round=n, accuracy=n / 10, bytes=100, contributors=4, averaged=("p0", "p1", "p2", "p3"))
        for n in range(1, rounds + 1)
    ]
    (folder / "metrics.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    if over:
        (folder / "model.safetensors").write_bytes(b"model")
    return folder


def aged(folder, seconds):
    for path in folder.iterdir():
        stat = path.stat()
        os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))


def states(place):
    return {run["id"]: run["state"] for run in folders.runs(place)}


def test_runs_are_found_here_and_where_tacit_run_puts_them(tmp_path):
    run_in(tmp_path, "here")
    run_in(tmp_path, "runs/there")
    (tmp_path / "something-else").mkdir()
    assert states(tmp_path) == {"here": "finished", "runs/there": "finished"}


def test_a_run_is_running_as_long_as_it_writes_and_cut_off_when_it_stops(tmp_path):
    folder = run_in(tmp_path, "one", rounds=2, over=False)
    assert states(tmp_path) == {"one": "running"}
    aged(folder, 3600)
    assert states(tmp_path) == {"one": "cut off"}


def test_all_there_is_to_show_of_a_run(tmp_path):
    folder = run_in(tmp_path, "one", protocol={"name": "admm", "masked": True, "group_size": 2, "iterations": 2})
    (folder / "audit.json").write_text(json.dumps({"says": "nobody", "reports": []}))
    told = folders.whole("one", folder)
    assert told["says"] == "nobody"
    assert [at.round for at in told["history"]] == [1, 2, 3]
    assert told["picture"]["kind"] == "groups"
    assert sorted(i for group in told["picture"]["phases"][0]["groups"] for i in group) == [0, 1, 2, 3]


def test_what_cannot_be_read_is_said_to_be_and_stops_nothing(tmp_path):
    run_in(tmp_path, "fine")
    broken = run_in(tmp_path, "broken")
    (broken / "scenario.json").write_text("{]")
    cut = run_in(tmp_path, "cut", over=False)
    with (cut / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 4, "accu')
    (run_in(tmp_path, "odd") / "audit.json").write_text("[1]")
    assert states(tmp_path) == {"fine": "finished", "broken": "unreadable", "cut": "running", "odd": "finished"}
    assert len(folders.whole("cut", cut)["history"]) == 3
    assert folders.whole("odd", tmp_path / "odd")["says"] == ""


def test_links_that_lead_elsewhere_are_not_followed(tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "place"
    secret = run_in(outside, "secret", title="secret")
    place.mkdir()
    (place / "linked").symlink_to(secret, target_is_directory=True)
    own = run_in(place, "own")
    (own / "metrics.jsonl").unlink()
    (own / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    (place / "runs").symlink_to(outside, target_is_directory=True)
    assert set(folders.folders(place)) == {"own"}
    assert folders.history_of(own) == []


@pytest.mark.parametrize("name", ["../outside", "/etc", "..", ".", "runs/../../outside", "one/../one", "one\0"])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    run_in(tmp_path / "place", "one")
    run_in(tmp_path, "outside")
    assert name not in folders.folders(tmp_path / "place")


def test_a_party_tells_how_it_stands(tmp_path):
    folder = tmp_path / "a.rounds"
    folder.mkdir()
    peers = [Standing("b", 1, 0.5, 0, None, ""), Standing("c", 0, None, 2, 12.0, "refused")]
    last = Ended(1, ("a", "b"), {"c": "silent"}, None, {}, {}, 1.0)
    show(folder, Status("a", 0.0, 2, 0, False, "GroupPart", peers, "", last))
    (told,) = folders.parties(tmp_path)
    assert told["running"]
    assert [peer["party"] for peer in told["peers"] if peer["missing"] is not None] == ["c"]
    aged(folder, 60)
    assert not folders.parties(tmp_path)[0]["running"]
    (folder / "status.json").write_text("{")
    assert "cannot be read" in folders.parties(tmp_path)[0]["trouble"]


def test_a_scenario_is_checked_with_the_line_of_each_problem():
    good = 'rounds = 3\n[data]\nparties = 4\n[protocol]\nname = "secagg"\n'
    assert folders.checked(good).rounds == 3
    with pytest.raises(ConfigError) as caught:
        folders.checked(good.replace("rounds", "round").replace("parties = 4", 'parties = "many"'))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "scenario.toml, line 1",
        "scenario.toml, line 3",
    ]
    with pytest.raises(ConfigError, match=r"line 6: .*treshold"):
        folders.checked(good + "treshold = 3\n")


def test_stamps_change_with_what_is_shown(tmp_path, monkeypatch):
    folder = run_in(tmp_path, "one", over=False)
    before = list(folders.stamps(tmp_path))
    with (Path(folder) / "metrics.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(Metrics(round=4)) + b"\n")
    assert (now := list(folders.stamps(tmp_path))) != before
    assert list(folders.stamps(tmp_path)) == now
    # What was written long ago is shown as something else, without a change of any file.
    monkeypatch.setattr(folders, "QUIET", 0.0)
    assert list(folders.stamps(tmp_path)) != now
