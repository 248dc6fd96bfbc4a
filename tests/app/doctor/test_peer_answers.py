"""What `tacit doctor` finds out about peers by asking them: releases, rosters, rounds, relays and proxies."""

import asyncio
import threading
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

from support.connect_proxy import ConnectProxy
from support.federations import HASTY, SOON, Made, averaged, free_ports, written
from support.outbound import POST, outbound, relayed
from tacit.app.doctor.findings import Level, examine
from tacit.app.doctor.peer_answers import explain_answer
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import SERVER
from tacit.core.version import RELEASE
from tacit.net.membership.rendezvous import WIRE_VERSION, Hello
from tacit.net.membership.revision_guard import RevisionGuard
from tacit.net.relay_node import RelayNode
from tacit.net.store.index import StoreSummary


class Background:
    """An event loop in a thread, in which nodes, relays and proxies run."""

    def __init__(self, stack):
        self.loop, self._stack = asyncio.new_event_loop(), stack
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def start(self, *started):
        """Starts what has `start` and `close`, and closes it at the end."""
        for each in started:
            self._stack.callback(lambda each=each: self.run(each.close()))
            self.run(each.start())
        return started[0]

    def make(self, build):
        """Returns what is built in the loop."""

        async def built():
            return build()

        return self.run(built())

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def background():
    with ExitStack() as stack:
        found = Background(stack)
        stack.callback(found.end)
        yield found


def run_nodes(background, made, *names, rosters=None):
    found = {name: background.make(lambda name=name: made.node(name, (rosters or {}).get(name))) for name in names}
    background.start(*found.values())
    return found


def about(found, code, party=""):
    return [(each.level, each.text, each.remedy) for each in found if (each.code, each.party) == (code, party)]


def failures(found):
    return [(each.code, each.party, each.remedy) for each in found if each.level is Level.FAILED]


def test_a_peer_says_its_release_its_revision_and_its_rounds(tmp_path, background):
    made = Made.of(tmp_path, "gossip", 3)
    path = written(made)
    nodes = run_nodes(background, made, "p0", "p1", "p2")
    found = examine(path, "p0")
    assert failures(found) == []
    text = f"it runs tacit {RELEASE} (wire version {WIRE_VERSION})"
    assert about(found, "version", "p1") == [(Level.OK, text, "")]
    (revision,) = about(found, "revision", "p1")
    assert revision == (Level.OK, f"it has revision {made.roster.revision} of the roster", "")
    ((_, text, _),) = about(found, "rounds", "p1")
    assert text == "it has begun no round since its start, and waits for its own model"
    background.run(averaged(nodes, made.updates(4)))
    assert about(examine(path, "p0"), "rounds", "p1") == [(Level.OK, "its last round is 1", "")]
    recorded, _ = nodes["p1"]._rendezvous.others["p0"]
    assert recorded.incarnation == nodes["p0"].store.incarnation, "who is asked records nothing"
    endings = background.run(averaged(nodes, made.updates(4, 2)))
    assert {ending.error for ending in endings.values()} == {None}


def test_a_peer_with_another_revision_of_the_roster_is_named(tmp_path, background):
    made = Made.of(tmp_path, "gossip", 3)
    run_nodes(background, made, "p1", "p2", rosters={"p2": made.roster.renew(SeededEntropy("new"))})
    found = examine(written(made), "p0")
    older, newer = made.roster.revision, made.roster.revision + 1
    (only,) = [each for each in found if each.level is Level.FAILED]
    assert (only.code, only.party) == ("revision", "p2")
    assert only.text == f"it has revision {newer} of the roster, and p0 revision {older}"
    assert only.remedy == "have p0 take the newest federation.toml, and start it again"


def test_a_roster_that_is_older_than_the_accepted_one_is_named(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    signed = msgspec.structs.replace(made.roster, quorum=1)
    newer = signed.renew(SeededEntropy("new"))
    guard, mine = RevisionGuard(tmp_path / "p0.rounds", "p0"), made.credentials["p0"]
    guard.admit(newer.sign(mine), mine)
    made.roster = signed
    (found,) = [each for each in examine(written(made), "p0") if each.code == "revision"]
    assert found.level is Level.FAILED
    assert f"is older than revision {newer.revision}, which p0 accepted" in found.text
    assert found.remedy == "take the newest federation.toml"
    newer.save(tmp_path / "federation.toml")
    (found,) = [each for each in examine(tmp_path / "federation.toml", "p0") if each.code == "revision"]
    assert (found.level, found.text) == (Level.OK, f"revision {newer.revision}, which the party accepted")


def test_peers_that_only_dial_out_are_asked_through_the_relay(tmp_path, background):
    made = relayed(tmp_path, "gossip", 3, SOON)
    path = written(made)
    post = background.make(lambda: RelayNode(made.roster, made.credentials[POST]))
    background.start(post)
    nodes = run_nodes(background, made, "p1", "p2")
    while not all(post.courier.links[name].held.count("hello") for name in nodes):
        threading.Event().wait(0.05)
    found = examine(path, "p0")
    assert failures(found) == []
    assert [about(found, code, POST)[0][0] for code in ("resolve", "port", "tls")] == [Level.OK] * 3
    assert about(found, "version", "p2")[0][0] is Level.OK
    background.run(nodes["p2"].close())
    assert failures(examine(path, "p0")) == [("hello", "p2", "start p2")]


def test_a_relay_that_was_not_started_is_named(tmp_path):
    made = relayed(tmp_path, "gossip", 3, HASTY)
    found = examine(written(made), "p0")
    assert ("port", POST, f"start {POST}, then run this again") in failures(found)
    assert {(code, party) for code, party, _ in failures(found)} == {("port", POST), ("hello", "p1"), ("hello", "p2")}


def test_a_listening_party_cannot_ask_one_that_only_dials_out(tmp_path, background):
    made = Made.of(tmp_path, "secagg", 3)
    made.roster = outbound(made, SERVER)
    path = written(made)
    found = examine(path, SERVER)
    assert about(found, "hello", "p0")[0][:2] == (
        Level.UNCHECKED,
        "it only dials out: run tacit doctor on its machine",
    )
    run_nodes(background, made, SERVER)
    assert failures(examine(path, "p0")) == []


# --- proxies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["", "me:secret"])
def test_peers_are_checked_through_the_proxy(login, tmp_path, background):
    made = Made.of(tmp_path, "secagg", 3)
    made.roster = outbound(made, SERVER)
    proxy = background.start(ConnectProxy(login))
    run_nodes(background, made, SERVER)
    found = examine(written(made), "p0", proxy=f"http://{login}{'@' if login else ''}{proxy.address}")
    assert failures(found) == []
    assert about(found, "proxy") == [(Level.OK, f"{proxy.address} is open; every peer is dialled through it", "")]
    assert set(proxy.asked) == {made.roster.address_of(SERVER)}
    assert about(found, "tls", SERVER)[0][0] is Level.OK
    assert about(found, "version", SERVER)[0][0] is Level.OK


@contextmanager
def refusing(background, kind):
    (port,) = free_ports(1)
    if kind == "nobody":
        yield f"127.0.0.1:{port}"
    elif kind == "no proxy":

        async def answer(_, writer):
            writer.write(b"SSH-2.0-x\r\n\r\n")
            writer.close()

        server = background.run(asyncio.start_server(answer, "127.0.0.1", port))
        yield f"127.0.0.1:{port}"
        background.loop.call_soon_threadsafe(server.close)
    else:
        yield background.start(ConnectProxy("a:b") if kind == "password" else ConnectProxy(code=403)).address


@pytest.mark.parametrize(
    ("kind", "party", "text"),
    [
        ("nobody", "", "no proxy answers at {proxy}"),
        ("no proxy", SERVER, "{proxy} does not answer as an HTTP proxy"),
        ("password", SERVER, "the proxy at {proxy} wants a name and a password (HTTP 407)"),
        ("refused", SERVER, "the proxy at {proxy} refuses to connect to {server} (HTTP 403)"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_with_what_to_do(kind, party, text, tmp_path, background):
    made = Made.of(tmp_path, "secagg", 3, HASTY)
    made.roster = outbound(made, SERVER)
    with refusing(background, kind) as proxy:
        found = examine(written(made), "p0", proxy=f"http://{proxy}")
    (only,) = [each for each in found if each.level is Level.FAILED]
    assert (only.code, only.party) == ("proxy", party)
    assert only.text == text.format(proxy=proxy, server=made.roster.address_of(SERVER))
    assert only.remedy


# --- answers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def roster(tmp_path):
    return Made.of(tmp_path, "gossip", 3).roster


@pytest.mark.parametrize(("version", "older"), [(4, "p1"), (WIRE_VERSION + 1, "p0")])
def test_another_wire_version_names_who_is_older(version, older, roster):
    (only,) = explain_answer(roster, "p0", "p1", version, None)
    assert (only.code, only.level) == ("version", Level.FAILED)
    assert only.remedy == f"install a newer release of Tacit at {older}"


@pytest.mark.parametrize(
    ("said", "level", "text"),
    [
        ({"begun": 5}, Level.OK, "its last round is 5"),
        ({"begun": 6, "over": False}, Level.OK, "it is in round 6"),
        ({"begun": 9}, Level.OK, "its last round is 9; p0 is behind at 5, and goes on where the others are"),
        (
            {"begun": 3},
            Level.WARNING,
            "its last round is 3, and the last of p0 is 5: it seems to have lost its journal",
        ),
        ({"begun": 5, "known": b"x" * 16}, Level.FAILED, "its last round is 5; it knows another journal of p0"),
    ],
)
def test_the_rounds_of_a_peer_are_compared_with_ours(said, level, text, roster):
    agreement = roster.agreement(4)
    own = StoreSummary("p0", "try", b"o" * 16, agreement.session, 5, False, 0, 0.0, 0.0, None)
    hello = Hello(
        "p1",
        WIRE_VERSION,
        b"i" * 16,
        agreement.session,
        4,
        told=msgspec.json.encode(agreement.described),
        release=RELEASE,
        revision=roster.revision,
    )
    *_, only = explain_answer(roster, "p0", "p1", msgspec.structs.replace(hello, **said), own)
    assert (only.code, only.level) == ("rounds", level)
    assert only.text.startswith(text)
    assert bool(only.remedy) is (level is not Level.OK)


def test_another_session_of_the_same_revision_is_named(roster):
    other = roster.renew(SeededEntropy("other")).agreement(4)
    hello = Hello("p1", WIRE_VERSION, b"i", other.session, 4, told=msgspec.json.encode(other.described))
    hello = msgspec.structs.replace(hello, revision=roster.revision)
    (only,) = [each for each in explain_answer(roster, "p0", "p1", hello, None) if each.level is Level.FAILED]
    assert (only.code, only.text) == ("revision", "it is in another session of try, with a roster of the same revision")
