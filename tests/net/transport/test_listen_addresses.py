"""Addresses at which a node listens: all that its callers may use, or none and a one-line reason."""

import asyncio
import errno
import socket
from contextlib import closing

import pytest

from support.federations import Made, averaged, written
from tacit import join
from tacit.core.errors import ConfigError
from tacit.net.transport import listen_addresses
from tacit.net.transport.listen_addresses import find_listen_addresses


def has_ipv6():
    """Returns whether this machine has an IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
ANY = listen_addresses.WILDCARDS[0]
ELSEWHERE = "192.0.2.7"
"""An address for documentation, which no machine has."""


def listener(host, port=0):
    """Returns a socket of one family alone that listens."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    if found.family == socket.AF_INET6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    found.bind((host, port))
    found.listen()
    return closing(found), found.getsockname()[1]


def answers(host, port):
    """Returns whether a process listens there."""
    try:
        with socket.create_connection((host, port), timeout=10):
            return True
    except OSError:
        return False


def found_for(address):
    return asyncio.run(find_listen_addresses(address))


@pytest.mark.parametrize(
    ("taken", "asked", "named"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost", "127.0.0.1"),
        pytest.param("::1", "localhost", "[::1]", marks=IPV6),
        pytest.param("::1", "[::1]", "[::1]", marks=IPV6),
        pytest.param("::", "[::1]", "[::1]", marks=IPV6),
        (ANY, "localhost", "127.0.0.1"),
        ("127.0.0.1", ELSEWHERE, ANY),
        pytest.param("::1", ELSEWHERE, "[::]", marks=IPV6),
        ("127.0.0.1", ANY, ANY),
        ("127.0.0.1", "[::]", ANY),
        pytest.param("::1", ANY, "[::]", marks=IPV6),
        pytest.param("::1", "[::]", "[::]", marks=IPV6),
    ],
)
def test_a_port_that_is_taken_in_one_family_is_refused(taken, asked, named, tmp_path):
    """gRPC would bind the other address family, which no caller uses."""
    made = Made.of(tmp_path, "gossip", 3)
    holder, port = listener(taken)

    async def run():
        node = made.node("p0")
        try:
            await node.start(f"{asked}:{port}")
        finally:
            await node.close()

    with holder, pytest.raises(ConfigError) as refused:
        asyncio.run(run())
    (problem,) = refused.value.problems
    assert problem == (
        f"p0 cannot listen at {asked}:{port}: {named}:{port} is taken by another process; try: "
        "end that, or use another one"
    )


def test_join_is_refused_where_its_port_is_taken_in_one_family(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    holder, port = listener("127.0.0.1")
    made.roster = made.moved({"p0": f"localhost:{port}"})
    path = written(made)
    with holder, pytest.raises(ConfigError, match=f"p0 cannot listen at localhost:{port}: 127.0.0.1:{port} is taken"):
        join(path, me="p0")
    join(path, me="p0").close()


@pytest.mark.parametrize(
    ("asked", "hosts"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        pytest.param("[::1]", ["::1"], marks=IPV6),
        pytest.param("localhost", ["127.0.0.1", "::1"], marks=IPV6),
        pytest.param(ANY, ["127.0.0.1", "::1"], marks=IPV6),
        pytest.param("[::]", ["127.0.0.1", "::1"], marks=IPV6),
        pytest.param(ELSEWHERE, ["127.0.0.1", "::1"], marks=IPV6),
    ],
)
def test_every_address_of_a_host_is_listened_at(asked, hosts, tmp_path):
    """Also with port 0, which is then one free port for all of them."""
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        node = made.node("p0")
        try:
            await node.start(f"{asked}:0")
            ports = {int(where.rpartition(":")[2]) for where in node.courier.addresses}
            return ports, [
                host for port in ports for host in ("127.0.0.1", "::1") if await asyncio.to_thread(answers, host, port)
            ]
        finally:
            await node.close()

    ports, reached = asyncio.run(run())
    assert len(ports) == 1
    assert 0 not in ports
    assert reached == hosts


def test_parties_at_localhost_average_and_start_again_at_once(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    made.roster = made.moved(
        {card.name: card.address.replace("127.0.0.1", "localhost") for card in made.roster.parties}
    )

    async def run(number):
        async with made.nodes() as nodes:
            return await averaged(nodes, made.updates(4, number))

    for number in (1, 2):
        assert [len(ending.contributors) for ending in asyncio.run(run(number)).values()] == [3, 3, 3]


def test_a_port_of_the_other_family_is_of_no_concern_to_a_numeric_address():
    holder, port = listener("127.0.0.1")
    with holder:
        if has_ipv6():
            assert found_for(f"[::1]:{port}") == [f"[::1]:{port}"]
        assert found_for("127.0.0.1:0") != [f"127.0.0.1:{port}"]


def test_without_ipv6_the_other_family_is_enough(monkeypatch):
    class NoIpv6(socket.socket):
        def __init__(self, family, *more):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *more)

    monkeypatch.setattr(listen_addresses.socket, "socket", NoIpv6)
    for asked, host in (("localhost", "127.0.0.1"), ("[::]", ANY), (ELSEWHERE, ANY)):
        (where,) = found_for(f"{asked}:0")
        assert where.startswith(f"{host}:")


@pytest.mark.parametrize("hosts", [["127.0.0.1", ELSEWHERE], [ELSEWHERE, "127.0.0.1"], [ELSEWHERE], []])
def test_a_name_with_an_address_of_another_machine_is_listened_for_at_all_of_ours(hosts, monkeypatch):
    """Behind a router: what comes by IPv4 comes to an address that the name does not have."""

    async def resolve(_host):
        return hosts

    monkeypatch.setattr(listen_addresses, "_resolve", resolve)
    (where,) = found_for("tacit.hospital-a.example:0")
    assert where.rpartition(":")[0] == ("[::]" if has_ipv6() else ANY)


def test_a_port_that_is_not_allowed_is_one_line(monkeypatch):
    class Refusing(socket.socket):
        def bind(self, _address):
            raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(listen_addresses.socket, "socket", Refusing)
    with pytest.raises(
        ConfigError, match=r"this user may not listen at 127.0.0.1:80; try: use another one, with a port from"
    ):
        found_for("127.0.0.1:80")
