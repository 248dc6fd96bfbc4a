"""A proxy is used when it is asked for, and otherwise never; one that cannot be used is refused in one line."""

import asyncio

import pytest

from support.connect_proxy import ConnectProxy
from support.federations import HASTY, SOON, Made, averaged, free_ports, written
from tacit import join
from tacit.core.errors import ConfigError, PeerFault
from tacit.core.suite import SERVER
from tacit.net.node import Node
from tacit.net.store.round_store import RoundStore
from tacit.net.transport.proxy import Proxy

FORM = "try: http://host:port, or http://name:password@host:port"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("proxy.example:3128", "proxy: there is no scheme; "),
        ("https://proxy.example:3128", "proxy: https:// is not supported, only http://, through which TLS goes unread"),
        ("socks5://proxy.example:3128", "proxy: socks5:// is not supported, only http://"),
        ("http://proxy.example", "proxy: 'proxy.example' is no host and port; "),
        ("http://proxy.example:0", "proxy: 'proxy.example:0' is no host and port; "),
        ("http://proxy.example:3128/path", "proxy: 'proxy.example:3128/path' is no host and port; "),
        ("http://", "proxy: '' is no host and port; "),
        ("http://me:secret@", "proxy: '' is no host and port; "),
        ("http://me@proxy.example:3128", "proxy: there is no password for its name; "),
        ("http://me:se\ncret@proxy.example:3128", "proxy: there is no password for its name; "),
        ("", "proxy: there is no scheme; "),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_in_one_line(url, said, tmp_path):
    with pytest.raises(ConfigError) as refused:
        Proxy.parse(url)
    (problem,) = refused.value.problems
    assert problem.startswith(said)
    assert problem.endswith(FORM)
    assert "secret" not in problem
    with pytest.raises(ConfigError):
        join(written(Made.of(tmp_path, "gossip", 3)), me="p0", proxy=url)


def test_a_password_is_never_shown():
    found = Proxy.parse("http://me:se@cret@[2001:db8::1]:3128/")
    assert (found.address, found.login) == ("[2001:db8::1]:3128", "me:se@cret")
    assert "se" not in repr(found).replace("repr", "")
    assert "cret" not in repr(found)


def proxied(made, party, url):
    """Returns a node that dials through a proxy."""
    store = RoundStore(made.folder / f"{party}.rounds", party, made.roster.federation)
    return Node(made.roster, made.credentials[party], store, lambda n: made.seed(party, n), Proxy.parse(url))


async def average_through(made, proxy, login=""):
    """Averages with p0 behind a proxy, and returns the endings, or the errors."""
    await proxy.start()
    nodes = {party: made.node(party) for party in made.everyone if party != "p0"}
    nodes["p0"] = proxied(made, "p0", f"http://{login}{proxy.address}")
    try:
        for node in nodes.values():
            await node.start()
        return await averaged(nodes, made.updates(4)), nodes["p0"].courier.links[SERVER].trouble
    finally:
        await asyncio.gather(*(node.close() for node in nodes.values()))
        await proxy.close()


@pytest.mark.parametrize("login", ["", "me:se@cret@"])
def test_a_party_behind_a_proxy_averages_and_the_environment_does_not_get_past_it(login, tmp_path, monkeypatch):
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost,*")  # by which gRPC would dial directly
    made = Made.of(tmp_path, "secagg", 3, SOON)
    made.roster = made.moved(dict.fromkeys(made.roster.names, ""))
    proxy = ConnectProxy(login.removesuffix("@"))
    endings, trouble = asyncio.run(average_through(made, proxy, login))
    assert [ending.error for ending in endings.values()] == [None] * 4
    assert endings[SERVER].contributors == ("p0", "p1", "p2")
    assert trouble == ""
    assert set(proxy.asked) == {made.roster.address_of(SERVER)}
    assert len(proxy.asked) >= 2, "a connection for hellos, and one for frames"


def test_without_a_proxy_variables_of_the_environment_change_nothing(tmp_path, monkeypatch):
    made = Made.of(tmp_path, "secagg", 3, SOON)
    proxy = ConnectProxy()

    async def run():
        await proxy.start()
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.address}")
        async with made.nodes() as nodes:
            ended = await averaged(nodes, made.updates(4))
        await proxy.close()
        return ended

    assert [ending.error for ending in asyncio.run(run()).values()] == [None] * 4
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        (ConnectProxy(code=403), "refuses to connect to server at .* \\(HTTP 403\\)+; try: have it allow that"),
        (ConnectProxy("me:secret"), "wants a name and a password \\(HTTP 407\\)+; try: http"),
    ],
)
def test_a_proxy_that_refuses_is_named_within_seconds(proxy, said, tmp_path):
    made = Made.of(tmp_path, "secagg", 3, HASTY)
    made.roster = made.moved(dict.fromkeys(made.roster.names, ""))

    async def run():
        await proxy.start()
        node = proxied(made, "p0", f"http://{proxy.address}")
        try:
            await node.start()
            await node.average(made.updates(4)["p0"])
        finally:
            await node.close()
            await proxy.close()

    with pytest.raises(PeerFault, match=f"the proxy at {proxy.address or '127'}.*{said}"):
        asyncio.run(run())


def test_a_proxy_that_is_not_there_is_named_and_nobody_is_dialled_directly(tmp_path):
    made = Made.of(tmp_path, "secagg", 3, HASTY)
    made.roster = made.moved(dict.fromkeys(made.roster.names, ""))
    (port,) = free_ports(1)

    async def run():
        async with made.nodes([SERVER]) as nodes:
            node = proxied(made, "p0", f"http://127.0.0.1:{port}")
            try:
                await node.start()
                await node.average(made.updates(4)["p0"])
            finally:
                await node.close()
                heard = nodes[SERVER]._rendezvous.others
                assert heard == {}, "nothing was sent"

    with pytest.raises(
        PeerFault, match=f"no proxy answers at 127.0.0.1:{port}.?; try: correct the proxy of this party"
    ):
        asyncio.run(run())
