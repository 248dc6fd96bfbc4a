"""Parties that only dial out: the simulator's bytes and averages, and recovery from kills, cuts and half-open links."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import SimpleNamespace

import msgspec
import pytest

from support.federations import HASTY, Made, averaged
from support.outbound import LONG, PATIENT, assert_simulated, outbound, record_posts, until
from support.replay_cases import CASES
from tacit.core.errors import JournalError, TransportError
from tacit.core.suite import SERVER
from tacit.net.membership.roster import Deadlines
from tacit.net.transport import hold_keeper
from tacit.net.transport.framing import FrameHeader
from tacit.net.transport.held_stream import STREAMS, Lane


@pytest.fixture
def posted(monkeypatch):
    """Gives all that was sent, by address."""
    return record_posts(monkeypatch)


WITH_SERVER = [name for name, case in CASES.items() if case.protocol in ("secagg", "fedavg")]
OFTEN = {"secagg", "fedavg"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in WITH_SERVER]
)
def test_outbound_only_parties_say_and_average_what_the_simulator_does(name, tmp_path, posted):
    case = CASES[name]
    made = Made.of(tmp_path, case.protocol, case.parties, **msgspec.to_builtins(case.options, enc_hook=vars))
    made.roster = outbound(made, SERVER)

    async def run():
        async with made.nodes() as nodes:
            endings = [await averaged(nodes, made.updates(5, number)) for number in (1, 2)]
            return endings, [node.courier.addresses for party, node in nodes.items() if party != SERVER]

    endings, addresses = asyncio.run(run())
    assert set(addresses) == {()}, "nobody but the server listens"
    assert_simulated(made, 5, endings, posted)


def test_long_vectors_travel_down_in_pieces(tmp_path, posted):
    made, entries = Made.of(tmp_path, "secagg", 3, PATIENT), 700_000
    made.roster = outbound(made, SERVER)

    async def run():
        async with made.nodes() as nodes:
            return await averaged(nodes, made.updates(entries))

    assert_simulated(made, entries, [asyncio.run(run())], posted)
    assert max(len(data) for address, data in posted.items() if address.sender == SERVER) > 2 * 2**20


def test_parties_that_listen_and_parties_that_do_not_share_a_round(tmp_path):
    made = Made.of(tmp_path, "gossip", 4, PATIENT)
    made.roster = outbound(made, "p0", "p1")

    async def run():
        async with made.nodes() as nodes:
            endings = [await averaged(nodes, made.updates(4, number)) for number in (1, 2)]
            return endings, nodes["p2"].courier.links["p3"].trouble

    endings, trouble = asyncio.run(run())
    assert_simulated(made, 4, endings)
    assert trouble == "", "p2 and p3 have common neighbours that relay, as a rule and not for want of anything better"


# --- broken connections --------------------------------------------------------------------------------------------


@asynccontextmanager
async def cable(made):
    """Gives a link to the server through which bytes pass as long as it is whole, and the roster that leads there."""
    host, port = made.roster.address_of(SERVER).split(":")
    calls, state = set(), {"whole": True, "stalled": False, "calls": 0}

    async def carry(reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                while state["stalled"]:
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def called(reader, writer):
        state["calls"] += 1
        calls.add(asyncio.current_task())
        if not state["whole"]:
            writer.close()
            return
        there = await asyncio.open_connection(host, port)
        state.setdefault("writers", []).extend((writer, there[1]))
        await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))

    server = await asyncio.start_server(called, "127.0.0.1", 0)
    yield state, made.moved({SERVER: f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "p0": ""})
    server.close()
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


def cut(state):
    for writer in state.pop("writers", []):
        writer.transport.abort()


def held_by(nodes, party="p0"):
    return nodes[SERVER].courier.links[party].held


@pytest.mark.long
def test_a_cut_connection_is_held_again_and_the_round_goes_on(tmp_path):
    made = Made.of(tmp_path, "secagg", 3, PATIENT)
    made.roster = outbound(made, SERVER)

    async def run():
        async with cable(made) as (state, roster), made.nodes(rosters={"p0": roster}) as nodes:
            endings = [await averaged(nodes, made.updates(4))]
            work = asyncio.create_task(averaged(nodes, made.updates(4, 2)))
            await until(lambda: nodes["p0"].rounds == 2)
            cut(state)
            endings.append(await asyncio.wait_for(work, LONG))
            return endings

    assert_simulated(made, 4, asyncio.run(run()))


@pytest.mark.long
def test_a_half_open_connection_is_noticed_and_replaced(tmp_path):
    """Nothing passes and nothing is closed, as after a firewall has forgotten a connection."""
    made = Made.of(tmp_path, "secagg", 3, Deadlines(phase=60.0, start=60.0, connect=1.0))
    made.roster = outbound(made, SERVER)

    async def run():
        async with cable(made) as (state, roster), made.nodes(rosters={"p0": roster}) as nodes:
            endings = [await averaged(nodes, made.updates(4))]
            state["stalled"] = True
            work = asyncio.create_task(averaged(nodes, made.updates(4, 2)))
            await until(lambda: nodes["p0"].courier.links[SERVER].trouble)
            cut(state)  # whatever was in it never arrives
            state["stalled"] = False
            endings.append(await asyncio.wait_for(work, LONG))
            return endings

    assert_simulated(made, 4, asyncio.run(run()))


@pytest.mark.long
def test_streams_that_a_process_left_behind_do_not_use_up_its_calls(tmp_path):
    """Each reconnection leaves streams that look alive; the newest ones count, and their number is bounded."""
    made = Made.of(tmp_path, "secagg", 3, PATIENT)
    made.roster = outbound(made, SERVER)

    async def run():
        async with cable(made) as (state, roster), made.nodes(rosters={"p0": roster}) as nodes:
            for number in range(1, 5):
                await averaged(nodes, made.updates(4, number))
                before = state["calls"]
                state.pop("writers")  # these stay open at the server's end, and nobody reads them
                await nodes["p0"].close()
                nodes["p0"] = made.node("p0", roster)
                await nodes["p0"].start()
                await until(lambda: state["calls"] > before)  # noqa: B023
            held = held_by(nodes)
            return await averaged(nodes, made.updates(4, 5)), [held.count(lane) for lane in Lane]

    ended, counts = asyncio.run(run())
    assert {ending.error for ending in ended.values()} == {None}
    assert max(counts) <= STREAMS


def test_the_newest_process_holds_the_streams_and_both_sides_say_so(tmp_path, caplog):
    made = Made.of(tmp_path, "secagg", 3, HASTY)
    made.roster = outbound(made, SERVER)
    copy = Made(tmp_path / "elsewhere", made.roster, made.credentials)
    (tmp_path / "elsewhere").mkdir()

    async def run():
        async with made.nodes([SERVER, "p0"]) as nodes, AsyncExitStack() as stack:
            await until(lambda: all(held_by(nodes).count(lane) for lane in Lane))
            others = await stack.enter_async_context(copy.nodes(["p0"]))
            first, second = nodes["p0"], others["p0"]
            await until(lambda: first.courier.conflict is not None)
            calls = nodes[SERVER].courier.calls_of("p0")
            found = await asyncio.gather(
                *(node.average(made.updates(4)["p0"]) for node in (first, second)), return_exceptions=True
            )
            # The replaced one pauses long: otherwise the two would replace each other for ever.
            replaced = len([each for each in caplog.records if getattr(each, "event", "") == "identity-conflict"])
            return found, first.status().trouble, calls, replaced

    with caplog.at_level("WARNING", "tacit.node"):
        (first, _), trouble, calls, replaced = asyncio.run(run())
    line = "another process with the identity of p0 is connected to server; try: stop one of them, or make"
    assert isinstance(first, TransportError)
    assert str(first).startswith(line)
    assert trouble.startswith(line)
    assert calls == 0, "held streams are no calls"
    assert replaced == 1
    (said,) = {each.getMessage() for each in caplog.records if getattr(each, "event", "") == "identity-conflict"}
    assert "server: another process has taken over the connection of p0" in said
    assert hold_keeper.REPLACED >= 10


@pytest.mark.long
def test_a_lost_journal_of_an_outbound_only_party_is_noticed(tmp_path):
    made = Made.of(tmp_path, "secagg", 3, HASTY, threshold=2)
    made.roster = outbound(made, SERVER)

    async def run():
        async with made.nodes() as nodes:
            await averaged(nodes, made.updates(4))
        (tmp_path / "p2.rounds").rename(tmp_path / "lost")
        async with made.nodes() as nodes:
            return await asyncio.wait_for(
                asyncio.gather(nodes["p2"].average(made.updates(4, 2)["p2"]), return_exceptions=True), LONG
            )

    (error,) = asyncio.run(run())
    assert isinstance(error, JournalError)
    assert "server refuses messages of p2, which has lost its journal" in str(error)


def test_a_hello_does_not_wait_behind_a_long_frame(tmp_path):
    """Both lanes have a connection of their own, and streams of their own on it."""
    made = Made.of(tmp_path, "secagg", 3, PATIENT)
    made.roster = outbound(made, SERVER)

    async def run():
        async with made.nodes([SERVER, "p0"]) as nodes:
            held = held_by(nodes)
            await until(lambda: all(held.count(lane) for lane in Lane))
            stopped, taken = asyncio.Event(), nodes["p0"].courier

            async def endless(_sender, _data):
                await stopped.wait()
                return True

            taken.receiver = SimpleNamespace(
                max_frame_bytes=lambda _: 1 << 24, accept_frame=endless, answer_hello=lambda *_: b"hello"
            )
            frames = [
                asyncio.create_task(
                    nodes[SERVER].courier.links["p0"].deliver(Zeros(1 << 22), Zeros.head(SERVER, "p0", 1 << 22), LONG)
                )
                for _ in range(STREAMS)
            ]
            await until(lambda: held.count(Lane.FRAME) == STREAMS)
            async with asyncio.timeout(LONG):
                answer = await nodes[SERVER].courier.links["p0"].send_hello(Zeros.head(SERVER, "p0", 5), b"hello")
            waiting = sum(not frame.done() for frame in frames)
            stopped.set()
            return answer, waiting, await asyncio.gather(*frames)

    answer, waiting, settled = asyncio.run(run())
    assert answer == b"hello"
    assert waiting == STREAMS
    assert settled == [True] * STREAMS


class Zeros:
    """A long frame."""

    def __init__(self, size):
        self.size = size

    @staticmethod
    def head(sender, to, size):
        return FrameHeader(sender, to, size)

    def pieces(self):
        for _ in range(0, self.size, 1 << 20):
            yield bytes(min(self.size, 1 << 20))
