"""Runs that the page starts: where they write, how many there are, and how they are ended."""

import asyncio
import os
import shutil
import sys

import pytest

from tacit.app.ui import launched_runs
from tacit.app.ui.daemon_threads import DaemonThreads
from tacit.app.ui.launched_runs import MOST_RUNNING, LaunchedRuns
from tacit.core.errors import ConfigError

SCENARIO = 'rounds = 1\nprotocol = "fedavg"\n[data]\nparties = 3\n'
WAITING = (sys.executable, "-c", "import time; time.sleep(60)")
FAILING = (sys.executable, "-c", "import sys; sys.exit('it cannot be')")
STUBBORN = (sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)")


def using(place, work):
    """Returns what comes of some work with runs of a place, which are ended after it."""

    async def whole():
        runs = LaunchedRuns(place, DaemonThreads(4))
        try:
            return await work(runs)
        finally:
            await runs.close()

    return asyncio.run(whole())


async def ended(runs):
    while runs.list_running():
        await asyncio.sleep(0.05)


def test_a_folder_is_data_also_to_the_runs_that_are_started_in_it(tmp_path, monkeypatch):
    for name in ("msgspec", "numpy", "tacit", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'RAN')!r}, 'a').write({name!r})\nraise SystemExit\n"
        )
    monkeypatch.chdir(tmp_path)

    async def work(runs):
        name = await runs.start(SCENARIO)
        await ended(runs)
        return name, runs.list_failures()

    name, failed = using(tmp_path, work)
    assert failed == {}
    assert (tmp_path / name / "model.safetensors").exists()
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("name", ["../../out", "/srv/out", ".out", "a\\u0000b"])
def test_nothing_is_written_outside_of_the_folder_whatever_its_data_is_called(tmp_path, monkeypatch, name):
    monkeypatch.setattr(launched_runs, "PROGRAM", WAITING)
    place = tmp_path / "deep" / "place"
    place.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be part of a folder's name"):
        using(place, lambda runs: runs.start(f'[data]\nname = "{name}"\n'))
    assert [each.name for each in tmp_path.rglob("*")] == ["deep", "place"]


@pytest.mark.parametrize("folder", ["../../out", "/srv/out", ".out", "..", "/", "a\\u0000b", "a\\nb"])
def test_nor_whatever_folder_its_data_is_in(tmp_path, monkeypatch, folder):
    monkeypatch.setattr(launched_runs, "PROGRAM", WAITING)
    place = tmp_path / "deep" / "place"
    place.mkdir(parents=True)
    try:
        name = using(place, lambda runs: runs.start(f'[data]\nfolder = "{folder}"\n'))
    except ConfigError:
        name = ""
    written = {each for each in tmp_path.rglob("*") if each.is_file()}
    assert {each.parent for each in written} == ({place / name} if name else set())
    assert not name or (place / name).resolve().parent == (place / "runs").resolve()


def test_nothing_is_written_through_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(launched_runs, "PROGRAM", WAITING)
    place, outside = tmp_path / "place", tmp_path / "outside"
    place.mkdir()
    outside.mkdir()
    (place / "runs").symlink_to(outside, target_is_directory=True)
    with pytest.raises(ConfigError, match="runs is a link"):
        using(place, lambda runs: runs.start(SCENARIO))
    assert list(outside.iterdir()) == []
    (place / "runs").unlink()
    (place / "runs").write_text("no folder")
    with pytest.raises(ConfigError, match="or not a folder"):
        using(place, lambda runs: runs.start(SCENARIO))


def test_the_same_scenario_has_a_folder_for_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(launched_runs, "PROGRAM", WAITING)

    async def work(runs):
        return [await runs.start(SCENARIO) for _ in range(3)]

    first, second, third = using(tmp_path, work)
    assert (second, third) == (f"{first}--2", f"{first}--3")
    assert (tmp_path / third / "scenario.toml").read_text() == SCENARIO


def test_of_many_that_are_started_at_once_only_so_many_are(tmp_path, monkeypatch):
    monkeypatch.setattr(launched_runs, "PROGRAM", WAITING)

    async def work(runs):
        told = await asyncio.gather(*(runs.start(SCENARIO) for _ in range(12)), return_exceptions=True)
        return told, runs.list_running()

    told, running = using(tmp_path, work)
    assert len(running) == sum(isinstance(each, str) for each in told) == MOST_RUNNING
    assert {str(each) for each in told if not isinstance(each, str)} == {
        "4 runs are in progress; try: wait until one ends"
    }
    assert len(list((tmp_path / "runs").iterdir())) == MOST_RUNNING


def test_why_a_run_failed_is_told_until_its_folder_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(launched_runs, "PROGRAM", FAILING)

    async def work(runs):
        name = await runs.start(SCENARIO)
        await ended(runs)
        told = [runs.list_failures()]
        (tmp_path / name / "run.log").unlink()
        os.mkfifo(tmp_path / name / "run.log")
        told.append(runs.list_failures())
        shutil.rmtree(tmp_path / "runs")
        return name, [*told, runs.list_failures()]

    name, told = using(tmp_path, work)
    assert told == [{name: "it cannot be"}, {name: "run.log is no plain file"}, {}]


def test_a_run_that_does_not_end_by_itself_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(launched_runs, "PROGRAM", STUBBORN)
    monkeypatch.setattr(launched_runs, "PATIENCE", 0.2)

    async def work(runs):
        await runs.start(SCENARIO)
        await asyncio.sleep(0.5)
        return runs

    assert using(tmp_path, work).list_running() == []
