"""Processes, and machines of their own as far as the network goes: every word is what the simulator says."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest

from support.federations import Made, free_ports, written
from support.paths import SUPPORT
from support.replay_cases import CASES
from tacit.core.suite import SERVER

pytestmark = pytest.mark.long

SAID = SUPPORT / "recorded_party_process.py"
ENTRIES, ROUNDS = 5, 2
IP = shutil.which("ip")


def told(made, prefix=None):
    """Runs everybody in a process of its own, and returns what each of them said and averaged."""
    written(made)
    running = {}
    try:
        for name in made.everyone:
            command = [*(prefix(name) if prefix else []), sys.executable, SAID, made.folder, name, ENTRIES, ROUNDS]
            with (made.folder / f"{name}.err").open("wb") as err:
                running[name] = subprocess.Popen(list(map(str, command)), stderr=err)  # noqa: S603
        for name, process in running.items():
            assert process.wait(120) == 0, (made.folder / f"{name}.err").read_text()
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return {name: json.loads((made.folder / f"{name}.said").read_text()) for name in made.everyone}


def same_as_simulated(made, found):
    expected = {}
    for number, played in enumerate(made.played(ENTRIES, ROUNDS)):
        for each in played.transcript:
            address = msgspec.json.encode(each.envelope.address).decode()
            expected[address] = hashlib.sha256(each.envelope.sealed).hexdigest()
        for name, said in found.items():
            contributors, average, error = said["averages"][number]
            ending = played.endings[name]
            assert (tuple(contributors), error) == (ending.contributors, "")
            narrow = np.float32 if name == SERVER else np.float64
            np.testing.assert_array_equal(average, ending.average.astype(narrow))
    assert {address: digest for said in found.values() for address, digest in said["envelopes"].items()} == expected


def quick(*names):
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", quick("secagg"))
def test_processes_say_and_average_what_the_simulator_does(name, tmp_path):
    case = CASES[name]
    options = msgspec.to_builtins(case.options, enc_hook=vars)
    # In a file there is no None. What it stands for, where there is one, is a group of all.
    options = {option: case.parties if value is None else value for option, value in options.items()}
    made = Made.of(tmp_path, case.protocol, case.parties, **options)
    same_as_simulated(made, told(made))


# --- machines ------------------------------------------------------------------------------------------------------


def run(*command):
    subprocess.run([IP, *map(str, command)], check=True, capture_output=True)  # noqa: S603


@contextmanager
def machines(names):
    """Gives each a network namespace with an address of its own, all on one bridge; yields names and addresses."""
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces take iproute2, and privileges that this user does not have")
    tag = f"t{os.getpid() % 10000}"
    hub, spaces = f"{tag}hub", {name: f"{tag}{place}" for place, name in enumerate(names)}
    try:
        try:
            # The bridge is in a namespace too, so that nothing of this is seen outside.
            run("netns", "add", hub)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.decode().strip()}")
        run("-n", hub, "link", "add", "bridge", "type", "bridge")
        run("-n", hub, "link", "set", "bridge", "up")
        addresses = {}
        for place, (name, space) in enumerate(spaces.items(), 1):
            run("netns", "add", space)
            run("-n", hub, "link", "add", f"v{place}", "type", "veth", "peer", "name", "eth0", "netns", space)
            run("-n", hub, "link", "set", f"v{place}", "master", "bridge", "up")
            run("-n", space, "addr", "add", f"10.77.0.{place}/24", "dev", "eth0")
            run("-n", space, "link", "set", "eth0", "up")
            run("-n", space, "link", "set", "lo", "up")
            addresses[name] = f"10.77.0.{place}"
        yield spaces, addresses
    finally:
        for space in (*spaces.values(), hub):
            subprocess.run([str(IP), "netns", "del", space], capture_output=True, check=False)  # noqa: S603


PARTIES = ("p0", "p1", "p2", "p3", "p4")
SETTINGS = {
    "secagg": ("secagg", {"threshold": 3}),
    "pushsum": ("pushsum", {"masked": True}),
    "cesar": ("cesar", {"share": 0.5}),
    "admm": ("admm", {"masked": True}),
    "gossip": ("gossip", {}),
    "fedavg": ("fedavg", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("title", SETTINGS)
def test_five_machines_with_addresses_of_their_own(title, tmp_path):
    protocol, options = SETTINGS[title]
    made = Made.of(tmp_path, protocol, PARTIES, **options)
    with machines(made.everyone) as (spaces, addresses):
        port = free_ports(1)[0]
        made.roster = made.moved({name: f"{address}:{port}" for name, address in addresses.items()})
        found = told(made, lambda name: [IP, "netns", "exec", spaces[name]])
    same_as_simulated(made, found)
