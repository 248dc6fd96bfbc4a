"""Nodes that talk over TLS: the same bytes and averages as in the simulator, and what goes wrong between machines."""

import asyncio
import resource

import msgspec
import numpy as np
import pytest

from support.federations import HASTY, Made, averaged, far_apart, free_ports
from support.replay_cases import CASES
from tacit.core.errors import ConfigError, JournalError, PeerFault, TransportError
from tacit.core.suite import SERVER, Update
from tacit.net.membership.replay_guard import STAMP_BYTES
from tacit.net.membership.roster import Deadlines
from tacit.net.transport import connection_limits
from tacit.net.transport.courier import CALLS
from tacit.net.transport.peer_link import PeerLink

HASTY_TO_BEGIN = Deadlines(phase=20.0, start=1.5, connect=1.0)


@pytest.fixture
def posted(monkeypatch):
    """Gives all that was sent, by address."""
    found = {}
    honest = PeerLink.send

    def send(line, parcel, number, arrived):
        found[parcel.address] = parcel.data
        honest(line, parcel, number, arrived)

    monkeypatch.setattr(PeerLink, "send", send)
    return found


OFTEN = {"fedavg", "secagg", "secagg-neighbours", "gossip", "admm", "admm-masked", "pushsum", "pushsum-masked", "cesar"}
OFTEN |= {"rotating", "rotating-stages"}
"""Every protocol and its hardened mode; the other cases differ in what they send, and not in how."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in CASES]
)
def test_nodes_say_and_average_what_the_simulator_does(name, tmp_path, posted):
    case = CASES[name]
    made = Made.of(tmp_path, case.protocol, case.parties, **msgspec.to_builtins(case.options, enc_hook=vars))

    async def run():
        async with made.nodes() as nodes:
            return [await averaged(nodes, made.updates(5, number)) for number in (1, 2)]

    endings = asyncio.run(run())
    envelopes = {}
    for ended, played in zip(endings, made.played(5, 2), strict=True):
        envelopes |= {each.envelope.address: each.envelope.sealed for each in played.transcript}
        for party, ending in ended.items():
            assert ending.error is None
            # A server has no use for more digits than these.
            narrow = np.float32 if party == SERVER else np.float64
            assert np.array_equal(ending.average, played.endings[party].average.astype(narrow))
            assert ending.contributors == played.endings[party].contributors
    assert {address: data[-len(envelopes[address]) :] for address, data in posted.items()} == envelopes


def test_long_vectors_travel_in_pieces(tmp_path, posted):
    made, entries = Made.of(tmp_path, "secagg", 3), 700_000

    async def run():
        async with made.nodes() as nodes:
            return await averaged(nodes, made.updates(entries))

    endings = asyncio.run(run())
    (played,) = made.played(entries, 1)
    assert all(np.array_equal(endings[party].average, played.endings[party].average) for party in made.roster.names)
    assert max(map(len, posted.values())) > 2 * 2**20


def test_parties_that_start_at_different_times_wait_for_each_other(tmp_path):
    made = Made.of(tmp_path, "pushsum", 3, masked=True)

    async def run():
        async with made.nodes() as nodes:
            updates = made.updates(4)

            async def late(party, seconds):
                await asyncio.sleep(seconds)
                return await nodes[party].average(updates[party])

            return await asyncio.gather(*(late(party, 0.7 * place) for place, party in enumerate(nodes)))

    assert [ending.error for ending in asyncio.run(run())] == [None] * 3


def test_who_is_not_there_is_left_out_after_the_deadline_and_catches_up(tmp_path):
    made = Made.of(tmp_path, "secagg", 4, HASTY, threshold=3)

    async def run():
        async with made.nodes(["p0", "p1", "p2", SERVER]) as nodes:
            first = await averaged(nodes, made.updates(4))
            nodes["p3"] = made.node("p3")
            await nodes["p3"].start()
            return first, *[await averaged(nodes, made.updates(4, number)) for number in (2, 3)]

    first, second, third = asyncio.run(run())
    assert first[SERVER].contributors == ("p0", "p1", "p2")
    assert first[SERVER].dropped == {"p3": "silent"}
    # The round that it was not in is no longer to be had, and before the next it must have heard an average.
    assert second["p3"].round == 2
    assert np.array_equal(second["p3"].average, second["p0"].average)
    assert third[SERVER].contributors == ("p0", "p1", "p2", "p3")


def test_without_a_server_whoever_is_behind_goes_on_where_the_others_are(tmp_path):
    made = Made.of(tmp_path, "gossip", 4, HASTY)

    async def run():
        async with made.nodes(["p0", "p1", "p2"]) as nodes:
            for number in (1, 2):
                await averaged(nodes, made.updates(4, number))
            nodes["p3"] = made.node("p3")
            await nodes["p3"].start()
            third = await averaged(nodes, made.updates(4, 3))
            return third, nodes["p3"].rounds

    third, rounds = asyncio.run(run())
    assert rounds == 3
    assert all(set(ending.contributors) == {"p0", "p1", "p2", "p3"} for ending in third.values())


def test_a_round_that_needs_everybody_is_not_begun_without_somebody(tmp_path):
    made = Made.of(tmp_path, "admm", 3, HASTY_TO_BEGIN, masked=True, group_size="all")

    async def tried(nodes, *parties):
        updates = made.updates(4)
        work = (nodes[party].average(updates[party]) for party in parties)
        return await asyncio.gather(*work, return_exceptions=True)

    async def run():
        async with made.nodes(["p0", "p1"]) as nodes:
            found = await tried(nodes, "p0", "p1")
            nodes["p2"] = made.node("p2")
            await nodes["p2"].start()
            found += await tried(nodes, "p2")  # those who waited for it are no longer ready
            begun = [node.rounds for node in nodes.values()]
            first = await averaged(nodes, made.updates(4))
            await nodes.pop("p2").close(leaving=True)
            return found + await tried(nodes, "p0", "p1"), begun, first

    found, begun, first = asyncio.run(run())
    why = [str(error).partition(" was not ready after 1.5 s, and admm needs every party (")[::2] for error in found]
    assert [type(error) for error in found] == [TransportError] * 5
    # Of two who wait for a third, the later one may find that the other has given up before it.
    assert "p2" in (why[0][0], why[1][0])
    assert "p2" in (why[3][0], why[4][0])
    assert {why[0][0], why[1][0], why[3][0], why[4][0]} <= {"p0", "p1", "p2"}
    assert why[2][0] in ("p0", "p1")
    assert all(reason.startswith("nothing listens at") for who, reason in why[:2] if who == "p2")
    assert why[2][1] == f"it is not ready); try: start {why[2][0]}"
    assert begun == [0, 0, 0]
    assert [len(ending.contributors) for ending in first.values()] == [3, 3, 3]


def test_before_a_session_has_a_round_one_peer_is_not_enough_to_know_our_journal(tmp_path):
    """It could be the one that lies, and have us use a mask again."""
    made = Made.of(tmp_path, "pushsum", 3, HASTY, masked=True)

    async def run():
        async with made.nodes(["p0", "p1"]) as nodes:
            updates = made.updates(4)
            return await asyncio.gather(*(nodes[p].average(updates[p]) for p in nodes), return_exceptions=True)

    for error in asyncio.run(run()):
        assert isinstance(error, TransportError)
        assert "2 must have confirmed our journal before the first round of a session" in str(error)


def test_nobody_there_is_said_after_the_deadline(tmp_path):
    made = Made.of(tmp_path, "secagg", 3, HASTY)

    async def alone(party):
        async with made.nodes([party]) as nodes:
            await nodes[party].average(made.updates(4)[party])

    with pytest.raises(PeerFault, match=r"server: silent .after 4 s: nothing listens at 127.0.0.1:.*try: start server"):
        asyncio.run(alone("p0"))
    peers = Made.of(tmp_path / "peers", "gossip", 3, HASTY)
    made = peers
    with pytest.raises(TransportError, match=r"no peer was ready after 2 s: nothing listens at"):
        asyncio.run(alone("p0"))


def test_whoever_leaves_is_not_waited_for(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
            await nodes.pop("p2").close(leaving=True)
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(0)
            ready = nodes["p0"]._rendezvous.is_gone("p2") and nodes["p1"]._rendezvous.is_gone("p2")
            return ready, asyncio.get_running_loop().time() - began

    ready, _ = asyncio.run(run())
    assert ready


@pytest.mark.parametrize("protocol", ["secagg", "gossip"])
@pytest.mark.parametrize("leaves", ["before", "during"])
def test_a_round_does_not_wait_for_a_party_that_left(leaves, protocol, tmp_path):
    """Without this, each round would take a phase longer than it does: more than this test may take."""
    endless = Deadlines(phase=3600.0, start=3600.0, connect=5.0)
    made = Made.of(tmp_path, protocol, 4, endless, **({"threshold": 3} if protocol == "secagg" else {}))

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
            others = {name: node for name, node in nodes.items() if name != "p3"}
            if leaves == "during":  # the others begin, because it says that it is ready
                nodes["p3"]._rendezvous.may_begin = lambda _: False
                last = asyncio.create_task(nodes["p3"].average(made.updates(4, 2)["p3"]))
            else:
                await nodes.pop("p3").close(leaving=True)
            work = asyncio.create_task(averaged(others, made.updates(4, 2)))
            if leaves == "during":
                async with asyncio.timeout(60):
                    while not all(node.rounds == 2 for node in others.values()):
                        await asyncio.sleep(0.02)
                await nodes.pop("p3").close(leaving=True)
                await asyncio.gather(last, return_exceptions=True)
            return await asyncio.wait_for(work, 60)

    endings = asyncio.run(run())
    assert {ending.error for ending in endings.values()} == {None}
    assert {ending.contributors for ending in endings.values()} == {("p0", "p1", "p2")}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_server_begins_no_round_that_a_party_that_left_would_abort(restarted, tmp_path):
    """With and without a restart of the server, whose memory of who left ends with its process."""
    made = Made.of(tmp_path, "secagg", 3, Deadlines(phase=0.5, start=60.0, connect=1.0))

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
            if restarted:
                await nodes[SERVER].close()
                nodes[SERVER] = made.node(SERVER)
                await nodes[SERVER].start()
                await averaged(nodes, made.updates(4, 2))
            before = nodes[SERVER].rounds
            await nodes.pop("p2").close(leaving=True)
            work = asyncio.create_task(averaged(nodes, made.updates(4, 3)))
            await asyncio.sleep(3.0)  # six phases
            assert nodes[SERVER].rounds == nodes["p0"].rounds == before, "it began a round that cannot have an average"
            nodes["p2"] = made.node("p2")
            await nodes["p2"].start()
            ended = await nodes["p2"].average(made.updates(4, 3)["p2"])
            return ended, (await work)[SERVER], before

    ended, summed, before = asyncio.run(run())
    assert ended.error is None
    assert (summed.round, summed.contributors) == (before + 1, ("p0", "p1", "p2"))


def test_parties_say_why_the_server_ended_a_round(tmp_path):
    made = Made.of(tmp_path, "secagg", 3, Deadlines(phase=1.0, start=1.0, connect=1.0))

    async def run():
        async with made.nodes(["p0", "p1", SERVER]) as nodes:
            return await averaged(nodes, made.updates(4))

    endings = asyncio.run(run())
    assert endings[SERVER].error.code == "not-enough"
    for party in ("p0", "p1"):
        assert endings[party].error.code == "peer"
        assert str(endings[party].error) == (
            "round 1 has no average: the server ended the round because too few parties were there; "
            "try: run it again when they are back"
        )


@pytest.mark.parametrize("change", ["entries", "setting"])
def test_what_differs_is_named_at_once(change, tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    other = made.roster if change == "entries" else msgspec.structs.replace(made.roster, settings={"clip": 8.0})
    lengths = (4, 5) if change == "entries" else (4, 4)

    async def run():
        nodes = [made.node("p0"), made.node("p1", other)]
        try:
            for node in nodes:
                await node.start()
            found = await asyncio.gather(
                *(node.average(Update(np.ones(length))) for node, length in zip(nodes, lengths, strict=True)),
                return_exceptions=True,
            )
        finally:
            await asyncio.gather(*(node.close() for node in nodes))
        return found

    words = {"entries": "entries is 5 at p1 and 4 here", "setting": "clip is 8.0 at p1 and 32.0 here"}
    first, second = asyncio.run(run())
    assert isinstance(first, ConfigError)
    assert isinstance(second, ConfigError)
    assert str(first) == words[change]


def test_a_lost_journal_is_noticed_and_forces_a_new_session(tmp_path):
    made = Made.of(tmp_path, "gossip", 3, HASTY)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
        (tmp_path / "p2.rounds").rename(tmp_path / "lost")
        async with made.nodes() as nodes:
            updates = made.updates(4, 2)
            return await asyncio.gather(
                *(nodes[party].average(updates[party]) for party in nodes), return_exceptions=True
            )

    first, second, third = asyncio.run(run())
    assert isinstance(third, JournalError)
    assert "p2, which has lost its journal" in str(third)
    assert "tacit roster renew" in str(third)
    assert set(first.contributors) == set(second.contributors) == {"p0", "p1"}


def test_a_port_that_is_taken_is_one_line(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes(["p0"]):
            second = Made(tmp_path / "again", made.roster, made.credentials)
            async with second.nodes(["p0"]):
                pass

    with pytest.raises(ConfigError, match=r"p0 cannot listen at 127.0.0.1:.*use another one"):
        asyncio.run(run())


def test_neighbours_without_a_way_between_them_are_passed_on(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)
    ports = dict(zip(("p0", "p1"), free_ports(2), strict=True))
    # Where p0 and p1 believe each other to be there is nobody.
    apart = {party: made.moved({other: f"127.0.0.1:{ports[other]}"}) for party, other in (("p0", "p1"), ("p1", "p0"))}

    async def run():
        async with made.nodes(rosters=apart) as nodes:
            found = [await averaged(nodes, made.updates(4, number)) for number in (1, 2)]
            return found, nodes["p0"].courier.links["p1"].trouble

    endings, trouble = asyncio.run(run())
    for ended, played in zip(endings, made.played(4, 2), strict=True):
        for party, ending in ended.items():
            assert set(ending.contributors) == {"p0", "p1", "p2"}
            assert np.array_equal(ending.average, played.endings[party].average)
    assert "nothing listens" in trouble


def test_strangers_take_some_connections_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(connection_limits, "SPARE", 10)
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
            address = made.roster.address_of("p0").split(":")
            calls = [await asyncio.open_connection(*address) for _ in range(100)]
            await asyncio.sleep(0.5)
            left = [writer for reader, writer in calls if not reader.at_eof() and reader.exception() is None]
            ended = await averaged(nodes, made.updates(4, 2))
            for _, writer in calls:
                writer.close()
            # Whoever comes back finds a place as soon as they are gone.
            await nodes.pop("p1").close()
            nodes["p1"] = made.node("p1")
            await nodes["p1"].start()
            return len(left), ended, await averaged(nodes, made.updates(4, 3))

    left, *endings = asyncio.run(run())
    assert 0 < left <= 10 + CALLS * 3
    assert [len(ending.contributors) for each in endings for ending in each.values()] == [3] * 6


@pytest.mark.parametrize(("files", "most"), [(1024, 512), (10**6, 4096 + 24), (resource.RLIM_INFINITY, 4096 + 24)])
def test_half_of_all_files_are_not_for_those_who_call(files, most, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert dict(connection_limits.connection_options(2, CALLS, 1.0))["grpc.max_allowed_incoming_connections"] == most


def test_parties_that_are_far_from_each_other_average(tmp_path):
    """A connection once had a tenth of a second to come about, which a certificate from another continent takes."""
    made = Made.of(tmp_path, "gossip", 3, Deadlines(phase=5.0, start=5.0, connect=5.0))

    async def run():
        async with far_apart(made, 0.15) as rosters, made.nodes(rosters=rosters) as nodes:
            return await averaged(nodes, made.updates(4))

    assert [len(ending.contributors) for ending in asyncio.run(run()).values()] == [3, 3, 3]


def test_who_passes_a_hello_on_cannot_change_it(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
            hello = nodes["p0"]._make_hello("p1")
            other = msgspec.structs.replace(hello, incarnation=bytes(16))
            signed = nodes["p0"]._hellos.sign_hello(hello, "p1")
            for said in (
                signed[: 64 + STAMP_BYTES] + msgspec.msgpack.encode(other),
                nodes["p2"]._hellos.sign_hello(other, "p1"),
                b"",
                signed[:40],
            ):
                nodes["p1"].answer_hello("p0", said)
            wrong = dict(nodes["p1"]._rendezvous.lost)
            nodes["p1"].answer_hello("p0", nodes["p0"]._hellos.sign_hello(other, "p1"))
            return wrong, set(nodes["p1"]._rendezvous.lost)

    assert asyncio.run(run()) == ({}, {"p0"})
