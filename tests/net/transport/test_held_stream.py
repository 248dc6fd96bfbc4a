"""Held streams at a listener: what a member may open, and that nothing it opens takes what others need."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import msgspec
import pytest

from support.federations import Made
from support.outbound import LONG, outbound
from tacit.core.errors import TransportError
from tacit.core.suite import SERVER
from tacit.net.membership.roster import Deadlines
from tacit.net.transport.held_stream import STREAMS, HeldAnswer, HeldStream, HeldStreams, HoldOpening, Lane
from tacit.net.transport.peer_link import SERVICE

FIRST, SECOND = bytes(16), bytes([1]) * 16
"""Identifiers of processes."""


def packed(process=FIRST, lane="frame", number=0):
    return msgspec.msgpack.encode([process, lane, number])


@asynccontextmanager
async def listening(folder, connect=5.0):
    """Gives a server that has started, and a channel with the certificate of p0, which only dials out."""
    made = Made.of(folder, "secagg", 3, Deadlines(phase=20.0, start=20.0, connect=connect))
    made.roster = outbound(made, SERVER, "p1")
    mine, roster = made.credentials["p0"], made.roster
    credentials = grpc.ssl_channel_credentials(
        roster.certificate_of(SERVER), mine.key_pem.reveal(), mine.certificate_pem
    )
    options = (("grpc.ssl_target_name_override", roster.host_of(SERVER)), ("grpc.use_local_subchannel_pool", 1))
    dialled = grpc.aio.secure_channel(roster.address_of(SERVER), credentials, options)
    async with made.nodes([SERVER]) as nodes, dialled as channel:
        yield made, nodes[SERVER], channel.stream_stream(f"/{SERVICE}/Hold")


async def code_of(call):
    """Returns the code that a call ends with."""
    async with asyncio.timeout(LONG):
        return await call.code()


@pytest.mark.parametrize(
    "opening",
    [
        b"",
        b"\x00",
        packed(process=bytes(15)),
        packed(lane="vector"),
        packed(number=STREAMS),
        packed(number=-1),
        b"\xc1",
    ],
)
def test_what_opens_no_stream_is_refused(opening, tmp_path):
    async def run():
        async with listening(tmp_path) as (_, node, hold):
            call = hold()
            await call.write(opening)
            return await code_of(call), [node.courier.links["p0"].held.count(lane) for lane in Lane]

    assert asyncio.run(run()) == (grpc.StatusCode.INVALID_ARGUMENT, [0, 0])


def test_a_party_with_an_address_holds_no_streams(tmp_path):
    """Its own roster says that it has none: one of the two is old, and frames would be sent where it does not look."""

    async def run():
        async with listening(tmp_path) as (_, node, hold):
            node.courier.links["p0"].peer = node.courier.links["p1"].peer
            call = hold()
            await call.write(packed())
            return await code_of(call), await call.details()

    code, details = asyncio.run(run())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert details == "federation.toml here has an address of p0; try: have both take the newest one"


def test_streams_that_are_never_opened_are_few_and_end(tmp_path):
    async def run():
        async with listening(tmp_path, connect=2.0) as (_, node, hold):
            call = hold()
            await call.write(packed())
            await call.initial_metadata()  # a busy machine takes a while to connect
            calls = [hold() for _ in range(3 * STREAMS)]
            codes = [await code_of(call) for call in calls]
            return codes, node.courier.calls_of("p0"), node.courier.links["p0"].held.count(Lane.FRAME)

    codes, calls, held = asyncio.run(run())
    # By the courier or, beyond the streams of a connection, by gRPC.
    refused = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert set(codes) - {grpc.StatusCode.UNAVAILABLE} == refused
    assert codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) <= 2 * STREAMS
    assert (calls, held) == (0, 1)


def test_a_member_has_one_stream_of_each_number_and_one_process(tmp_path):
    async def run():
        async with listening(tmp_path) as (_, node, hold):
            calls = []
            for process, number in ((FIRST, 0), (FIRST, 0), (FIRST, 1), (SECOND, 0)):
                calls.append(hold())
                await calls[-1].write(packed(process, number=number))
                await calls[-1].initial_metadata()
            codes = [await code_of(call) for call in calls[:3]]
            return codes, calls[3].done(), node.courier.links["p0"].held.count(Lane.FRAME)

    codes, ended, held = asyncio.run(run())
    assert codes == [grpc.StatusCode.OK, grpc.StatusCode.ABORTED, grpc.StatusCode.ABORTED]
    assert (ended, held) == (False, 1)


# --- without a network ---------------------------------------------------------------------------------------------


class Peer:
    """The other end of a stream, which answers what it is told to."""

    def __init__(self, *answers):
        self.answers, self.written = list(answers), []

    async def __anext__(self):
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def write(self, piece):
        self.written.append(piece)


def held(*peers):
    streams = HeldStreams("p0")
    for number, peer in enumerate(peers):
        streams.add(HoldOpening(FIRST, Lane.FRAME, number), HeldStream(peer, peer.write))
    return streams


async def pieces(*given):
    for each in given:
        yield each


def answer(**fields):
    return msgspec.msgpack.encode(HeldAnswer(**fields))


def test_a_message_is_written_whole_and_answered():
    peer = Peer(answer(answer=b"settled"), answer(answer=b"later"))

    async def run():
        streams = held(peer)
        return [await streams.call(Lane.FRAME, pieces(b"a", b"b"), LONG) for _ in range(2)]

    assert asyncio.run(run()) == [b"settled", b"later"]
    assert peer.written == [b"a", b"b"] * 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer(refused="too\nlong"), "p0: too long"),
        (b"\xc1", "p0: the connection was lost"),
        (StopAsyncIteration(), "p0: the connection was lost"),
        (grpc.aio.UsageError("over"), "p0: the connection was lost"),
        (None, "p0 does not answer on the connection that it holds"),
    ],
)
def test_a_stream_on_which_a_message_fails_is_closed(given, said):
    async def run():
        streams = held(Peer(*([] if given is None else [given])))
        with pytest.raises(TransportError, match=said):
            await streams.call(Lane.FRAME, pieces(b"a"), 0.2 if given is None else LONG)
        (stream,) = streams._streams[Lane.FRAME].values()
        async with asyncio.timeout(LONG):
            await stream.wait_closed()
        return stream.idle

    assert not asyncio.run(run())


def test_without_a_stream_a_message_fails_at_once_and_another_lane_is_of_no_use():
    async def run():
        with pytest.raises(TransportError, match=r"p0 has no address and is not connected; try: start p0"):
            await held(Peer()).call(Lane.HELLO, pieces(b"a"), LONG)

    asyncio.run(run())


def test_messages_wait_for_a_stream_and_a_replaced_one_fails_its_message():
    async def run():
        streams, silent = held(Peer()), Peer(answer(answer=b"yes"))
        first = asyncio.create_task(streams.call(Lane.FRAME, pieces(b"a"), LONG))
        second = asyncio.create_task(streams.call(Lane.FRAME, pieces(b"b"), LONG))
        await asyncio.sleep(0.05)
        waiting = not first.done() and not second.done()
        replaced = streams.add(HoldOpening(SECOND, Lane.FRAME, 0), HeldStream(silent, silent.write))
        return waiting, replaced, await asyncio.gather(first, second, return_exceptions=True)

    waiting, replaced, (first, second) = asyncio.run(run())
    assert waiting
    assert replaced
    assert str(first) == "p0: the connection was lost"
    assert second == b"yes"
