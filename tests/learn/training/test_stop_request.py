"""Services that are asked to stop: they finish the round in progress, and otherwise end at the first signal."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

import tacit
from support.federations import Made, written
from support.outbound import PATIENT
from tacit.core.errors import TransportError
from tacit.core.suite import SERVER
from tacit.learn.scenario import Scenario
from tacit.learn.training.stop_request import StopAsked, StopRequest

TACIT = Path(sys.executable).with_name("tacit")
LONG = 120
"""Seconds after which something that should have ended has not."""
ROUNDS = 40


class Services:
    """Services of a federation, each a process of the command line."""

    def __init__(self, made, stack):
        self.made, self.path, self.running = made, written(made), {}
        self.plan = made.folder / "scenario.json"
        data = {"name": "digits", "parties": 3, "train": 300, "test": 100}
        scenario = Scenario.of({"rounds": ROUNDS, "protocol": made.roster.protocol, "data": data})
        self.plan.write_bytes(scenario.encode())
        stack.callback(self.end)

    def start(self, *names):
        for name in names:
            node = ("node", self.plan, "--me", name, "--federation", self.path)
            command = [TACIT, *(("serve", self.path) if name == SERVER else node), "--log-json"]
            with self.log(name).open("ab") as err:
                self.running[name] = subprocess.Popen(  # noqa: S603
                    list(map(str, command)), stdout=subprocess.DEVNULL, stderr=err
                )

    def log(self, name):
        return self.made.folder / f"{name}.err"

    def events(self, name):
        said = self.log(name).read_text().splitlines()
        return [json.loads(line)["event"] for line in said if line.startswith("{")]

    def await_event(self, name, event):
        """Waits until a service has logged an event."""
        end = time.monotonic() + LONG
        while event not in self.events(name):
            assert self.running[name].poll() is None, self.log(name).read_text()
            assert time.monotonic() < end
            time.sleep(0.02)

    def stop(self, name):
        """Sends one SIGTERM; returns the last line that the service writes."""
        self.running[name].send_signal(signal.SIGTERM)
        assert self.running[name].wait(LONG) == 0, self.log(name).read_text()
        return [line for line in self.log(name).read_text().splitlines() if not line.startswith("{")][-1]

    def end(self):
        for each in self.running.values():
            each.kill()
            each.wait()


@pytest.fixture
def services(tmp_path):
    with ExitStack() as stack:

        def make(protocol="secagg"):
            return Services(Made.of(tmp_path, protocol, 3, PATIENT), stack)

        yield make


@pytest.mark.parametrize(
    ("protocol", "running", "event"),
    [
        pytest.param("secagg", ("p0",), "joined", id="without a server"),
        pytest.param("secagg", ("p0", SERVER), "ready", id="without the others"),
        pytest.param("gossip", ("p0",), "joined", id="without any peer"),
    ],
)
def test_a_node_that_waits_for_a_round_ends_at_the_first_signal(protocol, running, event, services):
    found = services(protocol)
    found.start(*running)
    found.await_event("p0", event)
    assert found.stop("p0").startswith("stopped after round 0; to go on, run: tacit node ")
    assert found.events("p0")[-1] == "closed"
    assert "refused" not in found.events("p0")


def test_a_server_that_waits_for_a_round_ends_at_the_first_signal(services):
    found = services()
    found.start(SERVER, "p0")
    found.await_event("p0", "ready")
    assert found.stop(SERVER).startswith("listening at ")
    assert found.events(SERVER)[-1] == "closed"


@pytest.mark.slow
def test_between_rounds_a_node_ends_at_the_first_signal_and_the_others_go_on(services):
    """Its peer is frozen, so that the round after the present one never begins while the node is there."""
    found = services("gossip")
    found.start("p0", "p1", "p2")
    found.await_event("p0", "round-finished")
    found.running["p1"].send_signal(signal.SIGSTOP)
    found.stop("p0")
    found.running["p1"].send_signal(signal.SIGCONT)
    begun, finished = (found.events("p0").count(event) for event in ("round-begun", "round-finished"))
    assert begun == finished, "what was begun is finished"
    found.start("p0")
    for name in ("p0", "p1", "p2"):
        assert found.running[name].wait(LONG) == 0, found.log(name).read_text()


def test_a_program_that_drains_its_peer_gets_an_error_instead_of_a_round(tmp_path):
    made = Made.of(tmp_path, "gossip", 3, PATIENT)
    with tacit.join(written(made), me="p0") as peer:
        peer.drain()
        with pytest.raises(TransportError, match="p0 is stopping and begins no round after round 0; try: start it"):
            peer.average([1.0, 2.0])
    peer.drain()


# --- the request itself --------------------------------------------------------------------------------------------


def test_before_it_has_joined_a_party_does_not_join():
    stop = StopRequest()
    with pytest.raises(StopAsked, match="0"), stop.interruptible():
        stop.ask()
    with pytest.raises(StopAsked, match="0"):
        stop.follow(SimpleNamespace(rounds=0, resuming=False))


def test_local_work_is_interrupted_and_files_are_not():
    drained, stop = [], StopRequest()
    stop.follow(SimpleNamespace(rounds=3, resuming=False, drain=lambda: drained.append(True)))
    stop.check()
    with pytest.raises(StopAsked, match="3"), stop.interruptible():
        stop.ask()
    stop.ask()
    assert drained == [True, True]
    with pytest.raises(StopAsked, match="3"):
        stop.check()


def test_a_round_in_progress_is_finished_first():
    peer, stop = SimpleNamespace(rounds=3, resuming=True, drain=lambda: None), StopRequest()
    stop.follow(peer)
    stop.ask()
    stop.check()
    peer.resuming = False
    with pytest.raises(StopAsked, match="3"):
        stop.check()
