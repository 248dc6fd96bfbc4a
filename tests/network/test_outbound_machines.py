"""Machines without a port that others could reach: parties, a server or a relay, and a proxy, in network namespaces.

Each party has a namespace of its own, in which nothing listens and a firewall, where there is one, refuses what comes
in. One party is behind a proxy. All processes end before their namespaces.
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
from support.outbound import PATIENT, POST, relayed
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
RULES = """
table inet outbound {
  chain input {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iif lo accept
  }
}
"""


def within(space, *command, **more):
    """Runs a command in a namespace, and returns what it prints."""
    given = [IP, "netns", "exec", space, *map(str, command)]
    return subprocess.run(given, check=True, capture_output=True, text=True, **more).stdout  # noqa: S603


def refuse_inbound(space):
    """Has a firewall refuse connections to a namespace; says whether there is a firewall."""
    if (nft := shutil.which("nft")) is None:
        return False
    within(space, nft, "-f", "-", input=RULES)
    return True


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


def connects(space, address, port):
    """Says whether a connection to an address comes about from a namespace."""
    code = f"import socket; socket.create_connection(({address!r}, {port}), timeout=2)"
    with suppress(subprocess.CalledProcessError):
        within(space, sys.executable, "-c", code)
        return True
    return False


@pytest.mark.skipif(shutil.which("ss") is None, reason="ports are listed by ss, of iproute2")
@pytest.mark.parametrize("protocol", SETTINGS)
def test_parties_without_a_port_average_what_the_simulator_does(protocol, tmp_path, capsys):
    with_server = protocol in ("secagg", "fedavg")
    make = Made.of if with_server else relayed
    made = make(tmp_path, protocol, PARTIES, PATIENT, **SETTINGS[protocol])
    meets = SERVER if with_server else POST
    with machines([*PARTIES, meets, PROXY]) as (spaces, addresses):
        firewall = [refuse_inbound(spaces[name]) for name in PARTIES]
        (port,) = free_ports(1)
        there = f"{addresses[meets]}:{port}"
        if with_server:
            made.roster = made.moved(dict.fromkeys(PARTIES, "") | {SERVER: there})
        else:
            made.roster = msgspec.structs.replace(made.roster, relays=(made.credentials[POST].card(there),))
        seen = {name: set() for name in spaces}
        calls = {name: set() for name in PARTIES}
        reached = {}

        def look():
            for name, space in spaces.items():
                seen[name].update(plain(line.split()[3]) for line in within(space, "ss", "-Htln").splitlines())
            for name in PARTIES:
                calls[name].update(plain(line.split()[4]) for line in within(spaces[name], "ss", "-Htn").splitlines())
                if name not in reached:
                    reached[name] = connects(spaces[meets], addresses[name], port)

        connecting = (sys.executable, SUPPORT / "connect_proxy.py", tmp_path / "at", addresses[PROXY])
        with process(spaces[PROXY], tmp_path, PROXY, *connecting):
            while not (tmp_path / "at").exists() or not (tmp_path / "at").read_text():
                time.sleep(0.05)
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
    assert reached == dict.fromkeys(PARTIES, False)
    assert asked == {there}
    assert {call.rpartition(":")[0] for call in calls["p0"]} == {addresses[PROXY]}, "only to the proxy"
    assert {call.rpartition(":")[0] for name in ("p1", "p2") for call in calls[name]} == {addresses[meets]}
    with capsys.disabled():
        print(f"\n{protocol}: firewall rules {'set' if all(firewall) else 'not available (no nft)'}")  # noqa: T201
