"""Failures at one node: it reports each in one line, and its journal stays intact."""

import asyncio
import itertools
import re
import sqlite3

import grpc
import msgspec
import numpy as np
import pytest

from support.federations import HASTY, Made, averaged
from support.outbound import record_posts
from tacit.core.errors import ConfigError, TransportError
from tacit.core.suite import SERVER, Update
from tacit.net import node as nodes_
from tacit.net.membership.hello import HelloExchange
from tacit.net.membership.rendezvous import WIRE_VERSION, Hello
from tacit.net.membership.roster import Deadlines
from tacit.net.observability.status import STATUS
from tacit.net.store.index import StoreIndex
from tacit.net.store.round_store import RoundStore
from tacit.net.transport.peer_link import PeerEndpoint, PeerLink, explain_rpc_error


async def tried(nodes, updates):
    """Returns what each got, an ending or an error."""
    work = (node.average(None if party == SERVER else updates[party]) for party, node in nodes.items())
    return dict(zip(nodes, await asyncio.gather(*work, return_exceptions=True), strict=True))


def test_whoever_hangs_up_is_not_said_to_have_another_roster():
    """A party that is killed in the middle of a word hangs up as one does that does not know us."""
    peer = PeerEndpoint("a", "localhost:7401", b"", "a.tacit")
    for details in ("Socket closed", "recvmsg:Connection reset by peer", "Broken pipe"):
        error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
        assert explain_rpc_error(error, peer).startswith("a at localhost:7401 closed the connection; try: start it if ")


# --- other releases, other models ----------------------------------------------------------------------------------


@pytest.fixture
def newer(monkeypatch):
    """Makes p1 a node of another release, whose hellos have one more field."""
    honest = HelloExchange.sign_hello

    class Later(msgspec.Struct, array_like=True):
        party: str
        version: int
        news: list[int]

    def signed(hellos, hello, to, answered=None):
        me = hellos._keys.me
        return honest(hellos, Later(me, WIRE_VERSION + 1, [1]) if me == "p1" else hello, to, answered)

    monkeypatch.setattr(HelloExchange, "sign_hello", signed)


WORDS = f"p1 uses version {WIRE_VERSION + 1} of the wire format, and p0 version {WIRE_VERSION}"
CURE = "; try: install a newer release of Tacit at p0"


@pytest.mark.usefixtures("newer")
def test_a_peer_of_another_version_is_named_at_once_and_nothing_is_sent(tmp_path, monkeypatch):
    made, posted = Made.of(tmp_path, "gossip", 3), record_posts(monkeypatch)

    async def run():
        async with made.nodes() as nodes:
            await nodes["p0"].average(made.updates(4)["p0"])

    with pytest.raises(ConfigError, match=re.escape(WORDS + CURE)):
        asyncio.run(run())
    assert posted == {}


@pytest.mark.usefixtures("newer")
def test_a_server_goes_on_without_a_party_of_another_version_and_says_so(tmp_path):
    made = Made.of(tmp_path, "secagg", 4, HASTY, threshold=3)

    async def run():
        async with made.nodes() as nodes:
            others = {party: node for party, node in nodes.items() if party != "p1"}
            return await averaged(others, made.updates(4)), nodes[SERVER].status()

    endings, status = asyncio.run(run())
    assert endings[SERVER].contributors == ("p0", "p2", "p3")
    assert {each.party: each.trouble for each in status.peers}["p1"] == (WORDS + CURE).replace("p0", SERVER)
    assert status.trouble == ""


def test_whoever_has_taken_the_same_release_is_talked_to_again(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes() as nodes:
            nodes["p0"]._rendezvous.foreign("p1", WIRE_VERSION + 1)
            wrong = nodes["p0"]._rendezvous.wrong
            nodes["p1"]._hellos.say()
            while nodes["p0"]._rendezvous.wrong is not None:
                await asyncio.sleep(0.01)
            return wrong, await averaged(nodes, made.updates(4))

    wrong, endings = asyncio.run(run())
    assert isinstance(wrong, ConfigError)
    assert [ending.error for ending in endings.values()] == [None] * 3


def test_the_version_of_a_hello_is_in_the_second_place():
    """Releases to come read it there."""
    assert Hello.__struct_fields__[:2] == ("party", "version")


UNHURRIED = Deadlines(phase=8.0, start=8.0, connect=5.0)
"""Deadlines that a busy machine meets even if a party is missing."""


def test_a_model_of_another_shape_is_said_by_its_party_and_by_the_server(tmp_path):
    made = Made.of(tmp_path, "secagg", 4, UNHURRIED, threshold=3)

    async def run():
        async with made.nodes() as nodes:
            first = await averaged(nodes, made.updates(4))
        moved = Made(tmp_path / "new", made.roster, made.credentials)  # a party that begins anew, with another model
        async with made.nodes(["p0", "p2", "p3", SERVER]) as nodes:
            nodes["p1"] = moved.node("p1")
            await nodes["p1"].start()
            updates = made.updates(4, 2) | {"p1": Update(np.ones(5))}
            return first, await tried(nodes, updates), nodes[SERVER].status()

    first, second, status = asyncio.run(asyncio.wait_for(run(), 120))
    assert isinstance(second["p1"], ConfigError)
    assert str(second["p1"]) == "entries is 4 at server and 5 here"
    assert second[SERVER].contributors == ("p0", "p2", "p3")
    assert {each.party: each.trouble for each in status.peers}["p1"] == "entries is 5 at p1 and 4 here"
    assert first[SERVER].contributors == ("p0", "p1", "p2", "p3")


# --- clocks --------------------------------------------------------------------------------------------------------


def test_nothing_depends_on_what_time_it_is(tmp_path, monkeypatch):
    """A clock that jumps by decades each time it is read."""
    made = Made.of(tmp_path, "secagg", 3, threshold=3)
    times = itertools.cycle([0.0, 4e9, -1e9, 253402300800.0])
    looked = []

    def clock():
        looked.append(next(times))
        return looked[-1]

    # Not that of grpc, which is asked twice, here and below, when a call is made, and would have to be the same.
    monkeypatch.setattr(nodes_, "time", clock)

    async def run(numbers):
        async with made.nodes() as nodes:
            return [await averaged(nodes, made.updates(4, number)) for number in numbers]

    endings = asyncio.run(run((1, 2))) + asyncio.run(run((3,)))
    assert len(looked) > 20
    for ended, played in zip(endings, made.played(4, 3), strict=True):
        for party, ending in ended.items():
            assert np.allclose(ending.average, played.endings[party].average, atol=1e-6)


# --- disks ---------------------------------------------------------------------------------------------------------


class Disk:
    """The disk of one party: it is full from one write on, until there is room again."""

    def __init__(self, monkeypatch, party):
        self.left, self.full = None, False
        honest = StoreIndex._commit

        def commit(book, *statements):
            if book._folder.name == f"{party}.rounds":
                if self.left is not None:
                    self.left -= 1
                    self.full, self.left = self.full or self.left < 0, max(self.left, 0)
                if self.full:
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error
            honest(book, *statements)

        monkeypatch.setattr(StoreIndex, "_commit", commit)

    def room(self):
        self.left, self.full = None, False


@pytest.fixture
def said(monkeypatch):
    """Returns every message by address; fails if two messages have the same one."""
    found, honest = {}, PeerLink.send

    def send(line, parcel, number, arrived):
        assert found.setdefault(parcel.address, parcel.data) == parcel.data
        honest(line, parcel, number, arrived)

    monkeypatch.setattr(PeerLink, "send", send)
    return found


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.sampled(3)
@pytest.mark.parametrize("writes", range(7))
def test_a_full_disk_is_one_line_and_the_round_goes_on_once_there_is_room(
    writes, restarts, tmp_path, monkeypatch, said
):
    made = Made.of(tmp_path, "secagg", 3, threshold=3)
    disk = Disk(monkeypatch, "p1")

    async def run():
        async with made.nodes() as nodes:
            disk.left = writes
            updates = made.updates(4)
            others = [asyncio.create_task(nodes[each].average(updates.get(each))) for each in ("p0", "p2", SERVER)]
            try:
                await nodes["p1"].average(updates["p1"])
            except TransportError as error:
                line, trouble = str(error), nodes["p1"].status().trouble
            if restarts:
                await nodes["p1"].close()
                disk.room()
                nodes["p1"] = made.node("p1")
                await nodes["p1"].start()
            disk.room()
            mine = nodes["p1"].last  # how the round ended, if all that was missing of it was the last page
            if mine is None:
                mine = await nodes["p1"].average(Update(updates["p1"].vector))
            return line, trouble, mine, await asyncio.gather(*others)

    line, trouble, mine, others = asyncio.run(run())
    assert line.endswith(
        "p1.rounds cannot be read or written (database or disk is full); try: free disk space, and go on or restart"
    )
    assert "\n" not in line
    assert trouble == line
    (played,) = made.played(4, 1)
    for ending in (mine, *others):
        assert ending.round == 1
        assert np.allclose(ending.average, played.endings["p0"].average, atol=1e-6)
    assert len(said) > 10


def test_a_disk_that_is_full_for_what_is_long_is_told_and_nobody_is_blamed(tmp_path, monkeypatch):
    made = Made.of(tmp_path, "secagg", 3, threshold=3, deadlines=Deadlines(phase=1.5, start=20.0, connect=5.0))
    stage, full = RoundStore.stage, TransportError("p1.rounds cannot be written; try: make room")

    def staged(store, message):
        if store.party == "p1":
            raise full
        stage(store, message)

    monkeypatch.setattr(RoundStore, "stage", staged)

    async def run():
        async with made.nodes() as nodes:
            updates = made.updates(20_000)
            others = [asyncio.create_task(nodes[each].average(updates.get(each))) for each in ("p0", "p2", SERVER)]
            with pytest.raises(TransportError) as caught:
                await nodes["p1"].average(updates["p1"])
            return caught.value, nodes["p1"].status().trouble, await asyncio.gather(*others)

    error, trouble, others = asyncio.run(run())
    assert error is full
    assert trouble == str(full)
    assert all(ending.error is None for ending in others)


def test_parcels_of_one_that_says_no_hello_have_us_say_one_at_a_time(tmp_path):
    made = Made.of(tmp_path, "secagg", 3)

    async def run():
        node = made.node("p0")
        await node.start()
        try:
            node._set_vector_length(4)
            node._rendezvous.others.clear()
            for _ in range(50):
                assert not await node.accept_frame(SERVER, b"x")
            return [task.get_name() for task in node._hellos._tasks].count(SERVER)
        finally:
            await node.close()

    assert asyncio.run(run()) <= 2  # with the one that it says when it is started


def test_a_disk_that_is_full_when_a_node_is_closed_loses_nothing(tmp_path, monkeypatch):
    made = Made.of(tmp_path, "gossip", 3)
    disk = Disk(monkeypatch, "p1")

    async def run():
        async with made.nodes() as nodes:
            first = await averaged(nodes, made.updates(4))
            disk.full = True
        disk.room()
        async with made.nodes() as nodes:
            last = nodes["p1"].last
            return first, last, await averaged(nodes, made.updates(4, 2))

    first, last, second = asyncio.run(run())
    assert np.array_equal(last.average, first["p1"].average)
    assert {ending.round for ending in second.values()} == {2}


def test_a_status_that_cannot_be_written_keeps_nobody_from_averaging(tmp_path, monkeypatch):
    made, tries = Made.of(tmp_path, "gossip", 3), []
    monkeypatch.setattr(nodes_, "OFTEN", 0.01)

    def full(path, _data, **_how):
        assert path.name == STATUS
        tries.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit.net.observability.status.replace_file", full)

    async def run():
        async with made.nodes() as nodes:
            return await averaged(nodes, made.updates(4))

    assert [ending.error for ending in asyncio.run(run()).values()] == [None] * 3
    assert len(tries) > 3
