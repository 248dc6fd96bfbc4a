"""Parties that learn on their own machines: what a simulation learns, through kills, and within a budget."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from support.federations import HASTY, Made, written
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, Drop, JournalError, NotEnough, PeerFault
from tacit.core.suite import SERVER
from tacit.learn.privacy.dp_plan import plan_noise
from tacit.learn.scenario import Scenario
from tacit.learn.training.node_training import (
    CHECKPOINT,
    LEDGER,
    METRICS,
    MODEL,
    SCENARIO,
    Learner,
    _plan_privacy,
    take_part,
)
from tacit.learn.training.train import train
from tacit.net.membership.roster import RosterFile
from tacit.net.store.index import summarize_store
from tacit.privacy import read_ledger

TACIT = Path(sys.executable).with_name("tacit")


def scenario(protocol, rounds=3, **more):
    data = {"name": "digits", "parties": 3, "train": 300, "test": 100}
    return Scenario.of({"rounds": rounds, "protocol": protocol, "data": data} | more)


async def served(made, rounds):
    node = made.node(SERVER)
    await node.start()
    try:
        await node.serve(lambda _: None, rounds)
        await node.flush(10)
    finally:
        await node.close()


def together(made, wanted):
    """Returns what each party learnt, all in this process."""
    path = written(made)
    with ThreadPoolExecutor(8) as pool:
        if made.roster.entry.server is not None:
            pool.submit(lambda: asyncio.run(served(made, wanted.rounds)))
        runs = {name: pool.submit(take_part, wanted, path, name) for name in made.roster.names}
        return {name: run.result() for name, run in runs.items()}


def test_rounds_of_a_party_are_kept_where_it_is_told(tmp_path):
    """As in a container, where the folder of the roster is read-only."""
    made, wanted = Made.of(tmp_path, "gossip", 3), scenario("gossip", 1)
    path = written(made)
    with ThreadPoolExecutor(3) as pool:
        runs = [
            pool.submit(take_part, wanted, path, name, folder=tmp_path / name / "run", journal=tmp_path / name / "kept")
            for name in made.roster.names
        ]
        assert [len(run.result().history) for run in runs] == [1, 1, 1]
    assert summarize_store(tmp_path / "p0" / "kept").party == "p0"
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["p0", "p1", "p2"]


def test_a_party_that_does_not_start_leaves_no_empty_folder(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    path, kept = written(made), tmp_path / "kept"
    (tmp_path / "p1.identity").unlink()
    kept.mkdir()
    for folder in (None, kept):
        with pytest.raises(ConfigError, match=r"p1\.identity"):
            take_part(scenario("gossip", 1), path, "p1", folder=folder)
    assert [each for each in tmp_path.iterdir() if each.is_dir()] == [kept], "what was there before stays"


@pytest.mark.parametrize(("protocol", "options"), [("secagg", {}), ("gossip", {}), ("pushsum", {"masked": True})])
def test_parties_learn_what_a_simulation_does(protocol, options, tmp_path):
    wanted = scenario({"name": protocol, **options})
    found = together(Made.of(tmp_path, protocol, 3, **options), wanted)
    alone = train(wanted, folder=tmp_path / "alone")
    learnt = np.mean([run.parameters for run in found.values()], axis=0)
    np.testing.assert_allclose(learnt, alone.parameters, atol=1e-5)
    for name, run in found.items():
        assert [each.round for each in run.history] == [1, 2, 3]
        assert run.accuracy is not None
        assert len((tmp_path / f"{name}.run" / METRICS).read_bytes().splitlines()) == 3


def test_a_party_has_its_own_samples_in_a_folder(tmp_path):
    rng = np.random.default_rng(0)
    names = ("north", "south", "west")
    for place, name in enumerate(names):
        (tmp_path / name).mkdir()
        # North has never seen the last label.
        np.savez(tmp_path / name / "mine.npz", x=rng.normal(size=(40, 5)), y=np.arange(40) % (2 if not place else 3))
    made = Made.of(tmp_path, "gossip", names)
    path = written(made)
    with ThreadPoolExecutor(3) as pool:
        runs = [
            pool.submit(
                take_part,
                scenario("gossip", 2, data={"folder": str(tmp_path / name), "options": {"classes": 3}}),
                path,
                name,
            )
            for name in names
        ]
        sizes = [run.result().parameters.size for run in runs]
    assert sizes == [18, 18, 18]
    with pytest.raises(ConfigError, match="classes=1 is too small: the largest label is 1; try: at least 2"):
        take_part(
            scenario("gossip", 2, data={"folder": str(tmp_path / "north"), "options": {"classes": 1}}), path, "north"
        )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"protocol": "secagg"}, r'the federation averages by gossip; try: write protocol = "gossip"'),
        ({"protocol": {"name": "gossip", "clip": 2.0}}, r"clip=2.0 is 'not set' in the federation; try: leave it out"),
        ({"dropout": 0.1}, r"faults and dropout are for simulations"),
        ({"workers": 2}, r"workers are for simulations"),
        ({"data": {"parties": 4}}, r"data.parties=4 must be the 3 of the federation"),
    ],
)
def test_what_does_not_fit_is_said_at_once(more, words, tmp_path):
    path = written(Made.of(tmp_path, "gossip", 3))
    with pytest.raises(ConfigError, match=words):
        take_part(scenario("gossip") if not more else scenario(**{"protocol": "gossip"} | more), path, "p0")
    with pytest.raises(ConfigError, match="p7 is not a party of try; the parties are p0, p1, p2"):
        take_part(scenario("gossip"), path, "p7")


def test_privacy_is_agreed_on_paid_before_and_ends_the_run(tmp_path):
    wanted = scenario("secagg", 4, privacy={"epsilon": 20.0, "clip": 1.0})
    private = plan_noise(wanted, wanted.privacy, {}, ("p0", "p1", "p2"), 650, [100] * 3)
    (tmp_path / "without").mkdir()
    path = written(Made.of(tmp_path / "without", "secagg", 3))
    with pytest.raises(ConfigError, match=r"this privacy takes .*noise = .* under \[settings\] of the roster, then"):
        take_part(wanted, path, "p0")
    made = Made.of(tmp_path, "secagg", 3, **private.options)
    found = together(made, wanted)
    shared = next(iter(found.values())).parameters
    for name, run in found.items():
        assert np.array_equal(run.parameters, shared)
        spent = [each.epsilon for each in run.history]
        assert spent == sorted(spent)
        assert 19 < spent[-1] <= 20.0001
        assert (tmp_path / f"{name}.run" / LEDGER).exists()
    more = msgspec.structs.replace(wanted, seed=5)
    with pytest.raises(JournalError, match="this is the ledger of"):
        take_part(more, made.folder / "federation.toml", "p0")


def test_a_model_that_is_not_that_of_the_others_is_not_gone_on_with(tmp_path):
    wanted = scenario("secagg", 2)
    made = Made.of(tmp_path, "secagg", 3, norm=1.0)
    together(made, wanted)
    # As if the first average had never come.
    for name in made.roster.names:
        checkpoint = tmp_path / f"{name}.run" / CHECKPOINT
        kept = msgspec.msgpack.decode(checkpoint.read_bytes())
        checkpoint.write_bytes(msgspec.msgpack.encode(kept | {"round": 0}))
    with pytest.raises(Exception, match=r"p0 lacks the average of round 1.*copy the checkpoint of a party"):
        take_part(wanted, tmp_path / "federation.toml", "p0")


def test_a_change_that_was_missed_stays_missed_if_a_round_fails_after_it():
    """Otherwise it would go on from another model than the others, and nobody would know."""
    peer, cohort = SimpleNamespace(rounds=0, name="p0"), SimpleNamespace(matrix=np.zeros((1, 2), np.float32))
    learner = Learner(None, peer, cohort, None, Path("p0.run"), "", changes=True)
    for rounds, error in ((1, PeerFault(SERVER, Drop.SILENT)), (2, NotEnough("users", 2, 3))):
        learner.peer.rounds = rounds
        learner._record_failure(np.zeros(2, np.float32), None, error)
    with pytest.raises(JournalError, match="lacks the average"):
        learner._adopt(np.ones(2, np.float32), 3)
    learner.number = 1
    learner._record_failure(np.zeros(2, np.float32), None, NotEnough("users", 2, 3))
    learner._adopt(np.ones(2, np.float32), 3)


@pytest.mark.parametrize(
    ("protocol", "stopped", "by"),
    [
        pytest.param("secagg", "p1", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("gossip", "p1", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("secagg", "p1", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("secagg", SERVER, signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_stopped_and_started_again_learns_on(protocol, stopped, by, tmp_path):
    made = Made.of(tmp_path, protocol, 3)
    path, plan = written(made), tmp_path / "scenario.json"
    plan.write_bytes(scenario(protocol, 6).encode())
    server = [SERVER] if protocol == "secagg" else []

    def start(name):
        command = (
            ["serve", str(path), "--rounds", "6"]
            if name == SERVER
            else ["node", str(plan), "--me", name, "--federation", str(path), "--json"]
        )
        with (tmp_path / f"{name}.out").open("wb") as out, (tmp_path / f"{name}.err").open("ab") as err:
            return subprocess.Popen([str(TACIT), *command], stdout=out, stderr=err)  # noqa: S603

    running = {name: start(name) for name in (*made.roster.names, *server)}
    try:
        metrics, deadline = tmp_path / "p1.run" / METRICS, time.monotonic() + 120
        while not metrics.exists() or not metrics.read_bytes().count(b"\n") >= 2:
            assert time.monotonic() < deadline, (tmp_path / "p1.err").read_text()
            time.sleep(0.02)
        running[stopped].send_signal(by)
        assert running[stopped].wait(60) == (-signal.SIGKILL if by == signal.SIGKILL else 0)
        if by == signal.SIGTERM and stopped != SERVER:
            done = metrics.read_bytes().count(b"\n")
            last = (tmp_path / f"{stopped}.err").read_text().splitlines()[-1]
            assert last.startswith(f"stopped after round {done}; to go on, run: tacit node ")
        running[stopped] = start(stopped)
        for name in made.roster.names:
            assert running[name].wait(120) == 0, (tmp_path / f"{name}.err").read_text()
    finally:
        for each in running.values():
            each.kill()
            each.wait()
    told = {name: json.loads((tmp_path / f"{name}.out").read_text()) for name in made.roster.names}
    assert {each["history"][-1]["round"] for each in told.values()} == {6}
    heard = [msgspec.msgpack.decode((tmp_path / f"{name}.run" / CHECKPOINT).read_bytes()) for name in told]
    assert {each["round"] for each in heard} == {6}
    if protocol == "secagg":
        assert len({each["model"] for each in heard}) == 1


def test_a_new_session_pays_anew_and_budgets_end_all_the_same(tmp_path):
    wanted = scenario("gossip", 2, privacy={"epsilon": 2.0, "clip": 1.0, "noise": "local"})
    private = plan_noise(wanted, wanted.privacy, {}, ("p0", "p1", "p2"), 650, [100] * 3)
    made = Made.of(tmp_path, "gossip", 3, **private.options)
    together(made, wanted)
    for name in made.roster.names:
        shutil.rmtree(tmp_path / f"{name}.rounds")
    made.roster = made.roster.renew(SeededEntropy("renewed"))
    made.roster.save(tmp_path / "federation.toml")
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(take_part, wanted, tmp_path / "federation.toml", name) for name in made.roster.names]
        for run in runs:
            assert run.result().history == []
            assert "ε" in run.result().notes[-1]


def test_a_ledger_that_forgot_what_was_spent_is_not_gone_on_with(tmp_path):
    wanted = scenario("gossip", 2, privacy={"epsilon": 2.0, "clip": 1.0, "noise": "local"})
    private = plan_noise(wanted, wanted.privacy, {}, ("p0", "p1", "p2"), 650, [100] * 3)
    made = Made.of(tmp_path, "gossip", 3, **private.options)
    together(made, wanted)
    path, place, lock = tmp_path / "federation.toml", tmp_path / "p0.run", f"{LEDGER}.lock"
    whole = {each.name: each.read_bytes() for each in place.iterdir()}
    other = (tmp_path / "p1.run" / CHECKPOINT).read_bytes()
    kept = msgspec.msgpack.decode(whole[CHECKPOINT])
    older = msgspec.msgpack.encode({key: value for key, value in kept.items() if key != "ledger"})

    def again(*gone, **changed):
        for name, data in (whole | changed).items():
            (place / name).write_bytes(data)
        for name in gone:
            (place / name).unlink()
        return take_part(wanted, path, "p0")

    assert again().history == []
    assert again(**{CHECKPOINT: other}).history == [], "it may be taken over, and has what another one spent"
    for renewed in (False, True):
        if renewed:
            made.roster = made.roster.renew(SeededEntropy("renewed"))
            made.roster.save(path)
            shutil.rmtree(tmp_path / "p0.rounds")
        for gone, changed in (
            ((LEDGER,), {}),
            ((LEDGER, lock), {}),
            ((LEDGER, CHECKPOINT, METRICS), {}),
            ((LEDGER, lock), {CHECKPOINT: other}),
            ((LEDGER, lock, METRICS), {CHECKPOINT: older}),
            *([] if renewed else [((LEDGER, lock, METRICS, CHECKPOINT), {})]),
        ):
            with pytest.raises(JournalError, match=r"(no payment of p0|does not have what p0 spent).* new run") as said:
                again(*gone, **changed)
            assert str(said.value).isprintable(), (gone, list(changed))
            assert not (place / LEDGER).exists()


def test_what_a_party_learns_alone_is_nobody_elses(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    before = os.umask(0)
    try:
        for name, left in (("p0.run", METRICS), ("p1.run", "notes.txt")):  # p2 has no folder yet
            (tmp_path / name).mkdir(mode=0o755)
            (tmp_path / name / left).touch(mode=0o644)
        together(made, scenario("gossip", 1))
    finally:
        os.umask(before)
    rights = {path: path.stat().st_mode & 0o777 for path in tmp_path.glob("p?.run/*") if path.name != "notes.txt"}
    assert {path.name for path in rights} == {CHECKPOINT, METRICS, MODEL, SCENARIO}
    assert set(rights.values()) == {0o600}
    # One that has other things in it is not for us to close.
    folders = {name: (tmp_path / f"{name}.run").stat().st_mode & 0o777 for name in made.roster.names}
    assert folders == {"p0": 0o700, "p1": 0o755, "p2": 0o700}


# --- noise per sample, of everybody (paper 003, Algorithm 1) --------------------------------------------------------


PER_SAMPLE = {"epsilon": 2.0, "clip": 0.001, "unit": "sample"}
ONE_STEP = {"rate": 1.0, "batch": 40, "steps": 1}


def per_sample(folder, rounds=2, **more):
    data = {"folder": str(folder), "parties": 4, "options": {"classes": 10}}
    given = {"data": data, "local": ONE_STEP, "privacy": PER_SAMPLE}
    return scenario("secagg", rounds, **given | more)


def share_out(folder, names):
    """Gives every party a folder with samples of its own, of which there are different numbers."""
    rng = np.random.default_rng(0)
    for place, name in enumerate(names):
        (folder / name).mkdir()
        x, y = rng.normal(size=(60 + 10 * place, 64)), rng.integers(10, size=60 + 10 * place)
        np.savez(folder / name / "mine.npz", x=x, y=y)


def check_noise(found, wanted, parties):
    """Checks that the noise of all is in every sum, and that each party's ledger says so."""
    spent = plan_noise(wanted, wanted.privacy, {}, tuple(f"p{n}" for n in range(parties)), 650, [40] * parties)
    # Gradients are no longer than 0.001, so that a change is noise.
    expected = spent.local.noise / np.sqrt(parties) * np.sqrt(wanted.rounds)
    assert np.std(found) == pytest.approx(expected, rel=0.1)


def test_noise_per_sample_of_everybody_is_in_sums_between_machines(tmp_path):
    names = tuple(f"p{place}" for place in range(4))
    share_out(tmp_path, names)
    made = Made.of(tmp_path, "secagg", 4, threshold=4)
    path = written(made)
    with ThreadPoolExecutor(8) as pool:
        pool.submit(lambda: asyncio.run(served(made, 2)))
        runs = [pool.submit(take_part, per_sample(tmp_path / name), path, name) for name in names]
        found = [run.result() for run in runs]
    wanted = per_sample(tmp_path / "p0")
    for name, run in zip(names, found, strict=True):
        assert np.array_equal(run.parameters, found[0].parameters)
        assert 1.9 < run.history[-1].epsilon <= 2.0 * (1 + 1e-6)
        state = read_ledger(tmp_path / name / LEDGER)
        assert (state.unit, state.runs[0].rounds) == ("sample", 2)
        assert "noise of 3 counted" in state.runs[0].mechanism
        assert "that of 3 of 4 is counted on" in run.notes[-2]
    check_noise(found[0].parameters, wanted, 4)


@pytest.mark.parametrize(
    ("options", "more", "words"),
    [
        ({}, {}, r"this privacy takes threshold = 4 under \[settings\] of the roster"),
        ({"threshold": 3}, {}, r"that of 2 of 4 is counted on|this privacy takes"),
        ({"threshold": 4}, {"local": {"rate": 1.0, "batch": 40}}, "set steps = 1"),
        ({"threshold": 4}, {"local": {"rate": 1.0, "batch": 40, "steps": 2}}, "set steps = 1"),
        ({"threshold": 4}, {"local": {"rate": 1.0, "batch": 90, "steps": 1}}, "local.batch=90 is more than the 48"),
        ({"threshold": 4}, {"privacy": {**PER_SAMPLE, "noise": "central"}}, "is for privacy.unit"),
    ],
)
def test_a_roster_that_allows_smaller_sums_or_other_batches_are_refused(options, more, words, tmp_path):
    share_out(tmp_path, ["p0"])
    path = written(Made.of(tmp_path, "secagg", 4, **options))
    if options == {"threshold": 3}:
        # A lower threshold is no error: less noise is counted on, and each adds more.
        roster = RosterFile.load(path)
        wanted = per_sample(tmp_path / "p0")
        assert _plan_privacy(wanted, roster, 650, 60).honest == 2
        assert (
            _plan_privacy(wanted, roster, 650, 60).local.noise
            > plan_noise(wanted, wanted.privacy, {}, roster.names, 650, [40] * 4).local.noise
        )
        return
    with pytest.raises(ConfigError, match=words):
        take_part(per_sample(tmp_path / "p0", **more), path, "p0")
    assert not (tmp_path / "p0" / LEDGER).exists()


@pytest.mark.long
def test_algorithm_1_runs_in_processes_and_sums_none_without_the_noise_that_epsilon_counts(tmp_path):
    names = tuple(f"p{place}" for place in range(4))
    share_out(tmp_path, names)
    made = Made.of(tmp_path, "secagg", 4, HASTY, threshold=4)
    path = written(made)
    for name in names:
        (tmp_path / f"{name}.json").write_bytes(per_sample(tmp_path / name, 3).encode())

    def start(name):
        command = (
            ["serve", str(path), "--rounds", "3"]
            if name == SERVER
            else ["node", str(tmp_path / f"{name}.json"), "--me", name, "--federation", str(path), "--json"]
        )
        with (tmp_path / f"{name}.out").open("wb") as out, (tmp_path / f"{name}.err").open("ab") as err:
            return subprocess.Popen([str(TACIT), *command], stdout=out, stderr=err)  # noqa: S603

    running = {name: start(name) for name in (SERVER, *names)}
    try:
        metrics, deadline = tmp_path / "p3.run" / METRICS, time.monotonic() + 120
        while not metrics.exists() or not metrics.read_bytes().count(b"\n") >= 1:
            assert time.monotonic() < deadline, (tmp_path / "p3.err").read_text()
            time.sleep(0.005)
        running["p3"].kill()  # its noise is missing now
        for name in names[:3]:
            running[name].wait(240)
    finally:
        for each in running.values():
            each.kill()
            each.wait()
    for name in names[:3]:
        lines = (tmp_path / f"{name}.run" / METRICS).read_bytes().splitlines()
        summed = [msgspec.json.decode(line)["contributors"] for line in lines]
        assert summed[0] == 4
        assert set(summed) <= {4, 0}, "no sum has the noise of three"
        state = read_ledger(tmp_path / name / LEDGER)
        assert state.runs[0].rounds >= len([count for count in summed if count])
        assert state.epsilon <= 2.0 * (1 + 1e-6)
