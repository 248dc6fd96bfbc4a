"""Machines without a port that others could reach: parties, a server or a relay, and a proxy, in network namespaces.

Each party has a namespace of its own, in which nothing listens and a packet filter drops what would open a connection
from outside. One party is behind a proxy. All processes end before their namespaces.
"""

import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from support.federations import Made, free_ports
from support.network_namespaces import IP, machines
from support.outbound import LONG, PATIENT, POST, relayed
from support.paths import SUPPORT
from support.recorded_processes import same_as_simulated, told
from tacit.core.suite import SERVER

pytestmark = pytest.mark.slow

PARTIES = ("p0", "p1", "p2")
PROXY = "proxy"
SETTINGS = {
    "secagg": {"threshold": 2},
    "fedavg": {},
    "gossip": {},
    "admm": {"masked": True},
    "pushsum": {"masked": True},
    "cesar": {"share": 0.5},
    "rotating": {},
}
TACIT = Path(sys.executable).with_name("tacit")
INGRESS = ("qdisc", "add", "dev", "eth0", "ingress")
OPENS = ("match", "ip", "protocol", "6", "0xff", "match", "u8", "0x02", "0x12", "at", "33")
"""What the filter matches: a TCP segment with SYN and without ACK, in an IPv4 header without options."""
DISCARD = ("action", "mirred", "egress", "redirect", "dev", "lo")
"""The loopback device discards what has the hardware address of another one. Few kernels have all actions of tc."""
FILTER = ("filter", "add", "dev", "eth0", "parent", "ffff:", "protocol", "ip", "prio", "1", "u32", *OPENS, *DISCARD)
LISTEN = "import socket, time; s = socket.create_server(('', {port})); time.sleep(600)"


def within(space, *command):
    """Runs a command in a namespace, and returns what it prints."""
    given = [IP, "netns", "exec", space, *map(str, command)]
    return subprocess.run(given, check=True, capture_output=True, text=True).stdout  # noqa: S603


@contextmanager
def process(space, folder, name, *command):
    """Runs a process in a namespace, and ends it, by its id, before the namespace ends."""
    with (folder / f"{name}.err").open("wb") as err:
        running = subprocess.Popen([IP, "netns", "exec", space, *map(str, command)], stderr=err)  # noqa: S603
    try:
        yield running
        assert running.poll() is None, (folder / f"{name}.err").read_text()
    finally:
        running.terminate()
        with suppress(subprocess.TimeoutExpired):
            running.wait(20)
        running.kill()
        running.wait()


def plain(address):
    """Returns an address of ss without the form that IPv4 has in sockets of both families."""
    host, _, port = address.rpartition(":")
    return f"{host.strip('[]').removeprefix('::ffff:')}:{port}"


def listening(space):
    """Returns the addresses at which something listens in a namespace."""
    return {plain(line.split()[3]) for line in within(space, "ss", "-Htln").splitlines()}


def until(true):
    """Waits until something is true."""
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def connects(space, address, port):
    """Says whether a connection to an address comes about from a namespace."""
    code = f"import socket; socket.create_connection(({address!r}, {port}), timeout=2)"
    found = subprocess.run([IP, "netns", "exec", space, sys.executable, "-c", code], check=False, capture_output=True)  # noqa: S603
    return found.returncode == 0


def refuse_inbound(space, folder, name, outside, address, port):
    """Has a packet filter drop connections to a namespace; shows that it does, and that it was nothing else."""
    with process(space, folder, f"{name}-listening", sys.executable, "-c", LISTEN.format(port=port)):
        until(lambda: listening(space))
        assert connects(outside, address, port), "without the filter, the outside reaches what listens"
        within(space, "tc", *INGRESS)
        within(space, "tc", *FILTER)
        assert not connects(outside, address, port), "with the filter it does not"
        assert connects(space, address, port), "while something listens"
    assert not listening(space)


@pytest.mark.skipif(not (shutil.which("ss") and shutil.which("tc")), reason="ss and tc of iproute2 are missing")
@pytest.mark.parametrize("protocol", SETTINGS)
def test_parties_without_a_port_average_what_the_simulator_does(protocol, tmp_path):
    with_server = protocol in ("secagg", "fedavg")
    make = Made.of if with_server else relayed
    made = make(tmp_path, protocol, PARTIES, PATIENT, **SETTINGS[protocol])
    meets = SERVER if with_server else POST
    with machines([*PARTIES, meets, PROXY]) as (spaces, addresses):
        (port,) = free_ports(1)
        for name in PARTIES:
            refuse_inbound(spaces[name], tmp_path, name, spaces[meets], addresses[name], port)
        there = f"{addresses[meets]}:{port}"
        if with_server:
            made.roster = made.moved(dict.fromkeys(PARTIES, "") | {SERVER: there})
        else:
            made.roster = msgspec.structs.replace(made.roster, relays=(made.credentials[POST].card(there),))
        seen = {name: set() for name in spaces}
        calls = {name: set() for name in PARTIES}

        def look():
            for name, space in spaces.items():
                seen[name].update(listening(space))
            for name in PARTIES:
                calls[name].update(plain(line.split()[4]) for line in within(spaces[name], "ss", "-Htn").splitlines())

        connecting = (sys.executable, SUPPORT / "connect_proxy.py", tmp_path / "at", addresses[PROXY])
        with process(spaces[PROXY], tmp_path, PROXY, *connecting):
            until(lambda: (tmp_path / "at").exists() and (tmp_path / "at").read_text())
            proxy = (tmp_path / "at").read_text()
            post = tmp_path / "federation.toml"
            made.roster.save(post)
            relay = (TACIT, "relay", post, "--identity", tmp_path / f"{POST}.identity")
            if not with_server:
                made.credentials[POST].create(tmp_path / f"{POST}.identity")
                del made.credentials[POST]  # its file is there
            idle = (sys.executable, "-c", "import time; time.sleep(600)")
            with process(spaces[meets], tmp_path, POST, *(idle if with_server else relay)):
                found = told(made, lambda name: [IP, "netns", "exec", spaces[name]], {"p0": f"http://{proxy}"}, look)
            asked = set((tmp_path / "at.asked").read_text().splitlines())
    same_as_simulated(made, found)
    assert {name: seen[name] for name in PARTIES} == {name: set() for name in PARTIES}, "nothing listens"
    assert there in seen[meets], "what listens is seen"
    assert asked == {there}
    assert {call.rpartition(":")[0] for call in calls["p0"]} == {addresses[PROXY]}, "only to the proxy"
    assert {call.rpartition(":")[0] for name in ("p1", "p2") for call in calls[name]} == {addresses[meets]}
