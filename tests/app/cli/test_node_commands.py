"""`tacit serve` and `tacit status`, as people use them and as they go wrong."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from support.federations import free_ports
from support.printed_errors import read_errors
from tacit.app.cli.main import app
from tacit.app.cli.node_commands import FRESH, _describe_state, _PartyView
from tacit.net.membership.roster import RosterFile
from tacit.net.observability.status import RoundSummary, Status
from tacit.net.observability.telemetry import LOG
from tacit.net.store.index import StoreSummary
from tacit.net.store.round_store import RoundStore

TACIT = Path(sys.executable).with_name("tacit")


@pytest.fixture(autouse=True)
def _unlogged():
    """Leaves nothing behind of what a command set up to log."""
    before = list(LOG.handlers), LOG.level
    yield
    LOG.handlers[:] = before[0]
    LOG.setLevel(before[1])


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def called(*given, code=0):
        done = CliRunner().invoke(app, list(given))
        assert done.exit_code == code, done.output
        return done

    return called


@pytest.fixture
def federation(run):
    """A roster of four and a server on free ports, with their identities, that waits for nobody for long."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
    server, *places = (f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
    for each in sockets:
        each.close()
    parties = ",".join(f"{name}={place}" for name, place in zip("abcd", places, strict=True))
    run("keygen", "--federation", "four", "--parties", parties, "--server", server, "--set", "threshold=3")
    path = Path("federation.toml")
    path.write_text(path.read_text().replace("phase = 30.0", "phase = 5.0").replace("start = 600.0", "start = 8.0"))
    return path


# --- relays --------------------------------------------------------------------------------------------------------


@pytest.fixture
def relayed(run):
    """A roster of three that only dial out, with a relay."""
    for name in ("a", "b", "c"):
        run("keygen", name, "--outbound")
    run("roster", "new", "three", "--protocol", "gossip")
    run("keygen", "post", "--address", f"127.0.0.1:{free_ports(1)[0]}")
    for name in ("a", "b", "c"):
        run("roster", "add", "federation.toml", f"{name}.card")
    run("roster", "add", "federation.toml", "post.card", "--relay")
    for name in ("a", "b", "c"):
        run("roster", "sign", "federation.toml", "--me", name)
    return "federation.toml"


def test_parties_that_only_dial_out_average_over_a_relay(relayed, tmp_path):
    command = [TACIT, "relay", relayed, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True) as post:  # noqa: S603
        try:
            told = json.loads(post.stdout.readline())

            def average(name):
                with tacit.join(relayed, me=name) as peer:
                    return peer.average(np.full(3, ord(name) - ord("a"), float))

            with ThreadPoolExecutor(3) as pool:
                outcomes = list(pool.map(average, "abc"))
        finally:
            post.send_signal(signal.SIGTERM)
            _, said = post.communicate(timeout=60)
    assert post.returncode == 0
    assert told == {"relay": "post", "address": RosterFile.load(relayed).address_of("post")}
    assert f"relaying at {told['address']}\n" in said
    assert said.endswith("stopped; start it again to go on\n")
    assert all(set(outcome.contributors) == set("abc") for outcome in outcomes)
    np.testing.assert_allclose(outcomes[0].average["a"], 1.0, atol=1e-3)


def test_a_relay_that_cannot_be_is_one_line(relayed, run):
    assert "there is no post2.identity" in run("relay", relayed, "--identity", "post2.identity", code=2).stderr
    said = run("relay", relayed, "--identity", "a.identity", code=2).stderr
    assert read_errors(said) == ["error[config]: this is the identity of a, not of post; try: give the file of post"]
    said = run("relay", relayed, "--me", "a", code=2).stderr
    assert "a is not on the roster of three as a relay; try: have its keeper add the card" in read_errors(said)[0]
    with pytest.raises(tacit.ConfigError, match="post is a relay, which has no model; try: tacit relay"):
        tacit.join(relayed, me="post")
    run("roster", "remove", relayed, "post")
    said = run("relay", relayed, "--identity", "post.identity", code=2).stderr
    (line,) = read_errors(said)
    assert "a and b only dial out, so neither reaches the other; try: put a relay on the roster" in line


# --- what cannot be served -----------------------------------------------------------------------------------------


def readable_by_all(_):
    Path("server.identity").chmod(0o644)


def no_key(_):
    Path("server.identity").write_text("signing_key = 'no key'\n")


def somebody_elses(_):
    shutil.copy("a.identity", "server.identity")


def gone(_):
    Path("server.identity").unlink()


def twice(path):
    text = path.read_text()
    card = text[text.index("[[parties]]") :]
    path.write_text(f"{text}\n{card[: card.index('[[parties]]', 1)]}")


def taken(path):
    place = RosterFile.load(path).address_of("server")
    return socket.create_server(("127.0.0.1", int(place.rpartition(":")[2])))


@pytest.mark.parametrize(
    ("mishap", "said"),
    [
        (
            readable_by_all,
            "server.identity can be read by others, who could then act as this party; try: chmod 600",
        ),
        (no_key, "restore the file from a copy, or make new keys: tacit keygen"),
        (somebody_elses, "this is the identity of a, not of server; try: give the file of server"),
        (gone, "there is no server.identity, and the roster has the card of server already; try: check the name"),
        (twice, "'a' is there twice; try: leave one of them out"),
        (taken, "is taken by another process; try: end that, or use another one"),
    ],
)
def test_what_is_wrong_is_one_line_and_the_journal_stays_whole(mishap, said, run, federation):
    incarnation = RoundStore("server.rounds", "server", "four")
    incarnation.close()
    held = mishap(federation)
    try:
        done = run("serve", str(federation), code=2)
    finally:
        if held is not None:
            held.close()
    lines = [line for line in read_errors(done.stderr) if line.startswith("error[config]: ")]
    assert lines == read_errors(done.stderr)
    assert any(said in line for line in lines)
    with RoundStore("server.rounds", "server", "four") as store:
        assert store.incarnation == incarnation.incarnation
        assert store.load(bytes(32)).number == 0


def test_a_place_for_metrics_that_is_taken_or_none_is_one_line(run, federation):
    with socket.create_server(("127.0.0.1", 0)) as held:
        place = f"127.0.0.1:{held.getsockname()[1]}"
        done = run("serve", str(federation), "--metrics", place, code=2)
        assert done.stderr.startswith(f"error[config]: metrics cannot be served at {place}: ")
    assert "try: host:port" in run("serve", str(federation), "--metrics", "here", code=2).stderr


# --- how it stands -------------------------------------------------------------------------------------------------


def test_status_of_what_is_no_folder_or_never_ran(run, tmp_path):
    assert (
        "nowhere is not the folder of a party; try: give the path"
        in read_errors(run("status", "nowhere", code=2).stderr)[0]
    )
    RoundStore(tmp_path / "a.rounds", "a", "three").close()
    assert run("status", "a.rounds").stdout.splitlines() == [
        "Stopped before its first round.",
        "a in three",
        "It was never started.",
    ]
    (tmp_path / "a.rounds" / "status.json").write_text('{"party": "a", "at"')
    assert "It was never started." in run("status", "a.rounds").stdout


def described(*, number, under_way, said, kept_ending=None):
    """Returns the first line of the status of a party, whose folder may be newer than its status."""
    kept = StoreSummary("server", "four", b"i", b"s", number, under_way, 1, 0.0, 0.0, kept_ending)
    ago = FRESH if said is None or said.at == 0.0 else 0.0
    return _describe_state(_PartyView(kept, said, ago))


def test_the_first_line_of_a_status_does_not_contradict_the_last_round():
    last = RoundSummary(17, ("a", "b", "c"), {}, None, {}, {}, 1.0)
    running = Status("server", 1.0, 17, 18, True, "", [], "", last)
    assert described(number=18, under_way=True, said=running) == "Running: round 17 is over, ready for round 18."
    stopped = Status("server", 0.0, 17, 0, True, "", [], "", last)
    assert described(number=17, under_way=True, said=stopped) == "Stopped after round 17."
    assert described(number=18, under_way=True, said=stopped) == (
        "Stopped in round 18, which it finishes when it is started again."
    )


@pytest.fixture
def server(federation):
    """A server in a process of its own, and what it says."""
    with Path("said").open("w") as said:
        command = [str(TACIT), "serve", str(federation), "--log-json", "--json", "--metrics", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)  # noqa: S603
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def until(true):
    """Waits until something is so; the test is ended from outside if it never is."""
    event = threading.Event()
    while not true():
        event.wait(0.1)


def test_a_federation_of_which_one_is_stopped_is_shown_as_it_stands(run, federation, server):
    with ThreadPoolExecutor(4) as pool:
        peers = dict(zip("abcd", pool.map(lambda name: tacit.join(federation, me=name), "abcd"), strict=True))
        try:
            list(pool.map(lambda peer: peer.average(np.ones(4)), peers.values()))
            first = json.loads(server.stdout.readline())
            assert (first["round"], first["contributors"]) == (1, ["a", "b", "c", "d"])
            peers["c"].close()  # without a word
            work = [pool.submit(peers[name].average, np.ones(4)) for name in "abd"]

            def shown():
                return json.loads(run("status", "server.rounds", "--json").stdout)

            until(lambda: [each["party"] for each in shown()["status"]["peers"] if each["missing"]] == ["c"])
            until(lambda: {each["party"]: each for each in shown()["status"]["peers"]}["c"]["trouble"])
            found, text = shown(), run("status", "server.rounds").stdout
            assert found["running"] is True
            assert found["last"] == first
            assert text.startswith("Running: ")
            assert "server in four" in text
            assert "Last round: round 1: 4 averaged" in text
            assert "Missing: c for " in text
            assert "start c" in " ".join(text.split())
            assert [each.result().contributors for each in work] == [("a", "b", "d")] * 3
        finally:
            list(pool.map(lambda peer: peer.close(), peers.values()))
    server.send_signal(signal.SIGTERM)
    server.wait()
    told = [json.loads(line) for line in Path("said").read_text().splitlines() if line.startswith("{")]
    names = [each["event"] for each in told]
    assert {"joined", "ready", "round-begun", "phase-ended", "trouble", "party-excluded", "round-finished"} <= set(
        names
    )
    assert names[-1] == "closed"
    os.utime("server.rounds/status.json", (0, 0))
    done = run("status", "server.rounds").stdout
    assert done.startswith("Stopped after round 2.\n")
    assert "It was last seen" in done
    assert "under way" not in done
    assert "round 2: 3 averaged (without c silent)" in done


def test_a_server_whose_output_nobody_takes_goes_on(federation):
    """Standard output on a full disk does not end it."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no device here that is always full")
    with Path("/dev/full").open("w") as full:
        command = [str(TACIT), "serve", str(federation), "--log-json", "--rounds", "2"]
        process = subprocess.Popen(command, stdout=full, stderr=full)  # noqa: S603
    try:
        with ThreadPoolExecutor(4) as pool:
            peers = list(pool.map(lambda name: tacit.join(federation, me=name), "abcd"))
            try:
                for _ in range(2):
                    found = list(pool.map(lambda peer: peer.average(np.ones(4)), peers))
                    assert [each.contributors for each in found] == [("a", "b", "c", "d")] * 4
            finally:
                list(pool.map(lambda peer: peer.leave(), peers))
    finally:
        process.kill()
        process.wait()
