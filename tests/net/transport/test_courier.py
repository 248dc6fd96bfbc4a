"""Couriers with real sockets: no member can take the capacity that calls of others need."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest

from support.federations import Made
from tacit.core.errors import TransportError
from tacit.net.transport import connection_limits
from tacit.net.transport.courier import CALLS, Courier
from tacit.net.transport.framing import BytesFrame, FrameHeader, join_frame
from tacit.net.transport.peer_link import SERVICE, PeerEndpoint
from tacit.net.transport.tls import Tls

PATIENCE = 20.0
"""Long enough that no idle call ends before the others were tried."""
SOON = 0.3
LONG = 60
"""Seconds after which something that should have ended has not."""
MANY = 200


class Receiver:
    """Takes frames, and answers hellos."""

    def __init__(self):
        self.taken, self.heard = [], []

    def max_frame_bytes(self, _sender):
        return 1 << 16

    async def accept_frame(self, sender, data):
        self.taken.append((sender, bytes(data)))
        return True

    def answer_hello(self, sender, hello):
        self.heard.append((sender, hello))
        return b"hello " + sender.encode()


class Party:
    """A courier of a party, and raw channels with its certificate."""

    def __init__(self, made, name, patience):
        self.made, self.name, self.receiver, self.mine = made, name, Receiver(), made.credentials[name]
        roster = made.roster
        self.peers = {
            card.name: PeerEndpoint(
                card.name, card.address, roster.certificate_of(card.name), roster.host_of(card.name)
            )
            for card in roster.parties
            if card.name != name
        }
        tls = Tls(self.mine.key_pem.reveal(), self.mine.certificate_pem)
        self.courier = Courier(name, tls, self.peers.values(), self.receiver, patience=patience)

    def channel(self, to, *options):
        """Returns a channel that is not shared with others, and not bounded by this release's options."""
        peer = self.peers[to]
        credentials = grpc.ssl_channel_credentials(
            peer.certificate, self.mine.key_pem.reveal(), self.mine.certificate_pem
        )
        own = ("grpc.ssl_target_name_override", peer.host), ("grpc.use_local_subchannel_pool", 1), *options
        return grpc.aio.secure_channel(peer.address, credentials, own)


@asynccontextmanager
async def couriers(folder, parties=6, patience=PATIENCE):
    """Gives couriers of a federation that listen."""
    made = Made.of(folder, "gossip", parties)
    there = {card.name: Party(made, card.name, patience) for card in made.roster.parties}
    try:
        for card in made.roster.parties:
            await there[card.name].courier.start(card.address)
        yield there
    finally:
        await asyncio.gather(*(party.courier.close() for party in there.values()))


async def nothing():
    """Yields no piece, ever."""
    await asyncio.Event().wait()
    yield b""


def call_idly(channel, method, count):
    """Makes calls without sending anything in them."""
    call = channel.stream_unary(f"/{SERVICE}/{method}")
    return [call(nothing()) for _ in range(count)]


async def until(true):
    """Waits until something is true."""
    async with asyncio.timeout(LONG):
        while not true():
            await asyncio.sleep(0.01)


def greet(party, to):
    """Returns a hello of a party to another, as a header and bytes."""
    return party.courier.links[to].send_hello(FrameHeader(party.name, to, 5), b"hello")


@pytest.mark.parametrize("method", ["Hello", "Deliver"])
def test_idle_calls_of_one_member_leave_the_others_served(method, tmp_path):
    """48 idle hellos of one of six once took all calls of a node: gRPC counted them before their caller was known."""

    async def run():
        async with couriers(tmp_path) as there, there["p1"].channel("p0") as channel:
            idle = call_idly(channel, method, MANY)
            await until(lambda: sum(call.done() for call in idle) >= MANY - 6 * CALLS)
            for other in ("p2", "p3", "p4", "p5"):
                assert await greet(there[other], "p0") == b"hello " + other.encode()
                head = FrameHeader(other, "p0", 5)
                assert await there[other].courier.links["p0"].deliver(BytesFrame(memoryview(b"frame")), head, LONG)
            held = [call for call in idle if not call.done()]
            refused = {await call.code() for call in idle if call.done()}
            for call in held:
                call.cancel()
            return len(held), refused

    held, refused = asyncio.run(run())
    assert held <= CALLS
    # Refused by the courier, or by gRPC for calls made before the client knows the limit of streams.
    assert refused - {grpc.StatusCode.UNAVAILABLE} == {grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_idle_calls_on_many_connections_leave_the_others_served(tmp_path):
    async def run():
        async with couriers(tmp_path) as there, AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(there["p1"].channel("p0")) for _ in range(12)]
            idle = [call for channel in channels for call in call_idly(channel, "Hello", 2 * CALLS)]
            await until(lambda: sum(call.done() for call in idle) >= len(idle) - CALLS)
            assert await greet(there["p2"], "p0") == b"hello p2"
            held = [call for call in idle if not call.done()]
            for call in held:
                call.cancel()
            return len(held)

    assert asyncio.run(run()) <= CALLS


@pytest.mark.parametrize("method", ["Hello", "Deliver"])
def test_an_idle_call_ends_after_a_deadline_and_its_member_is_served_again(method, tmp_path):
    async def run():
        async with couriers(tmp_path, 3, SOON) as there, there["p1"].channel("p0") as channel:
            idle = call_idly(channel, method, CALLS)
            await until(lambda: all(call.done() for call in idle))
            codes = {await call.code() for call in idle}
            return codes, await greet(there["p1"], "p0")

    assert asyncio.run(run()) == ({grpc.StatusCode.DEADLINE_EXCEEDED}, b"hello p1")


def test_calls_that_are_cancelled_or_empty_are_no_longer_counted(tmp_path):
    async def run():
        async with couriers(tmp_path, 3) as there, there["p1"].channel("p0") as channel:
            hello = channel.stream_unary(f"/{SERVICE}/Hello")
            for _ in range(3 * CALLS):
                (idle,) = call_idly(channel, "Hello", 1)
                await asyncio.sleep(0.005)
                idle.cancel()
                with pytest.raises(grpc.aio.AioRpcError) as empty:
                    await hello(iter(()))
                assert empty.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            return await greet(there["p1"], "p0"), there["p0"].courier.calls_of("p1")

    assert asyncio.run(run()) == (b"hello p1", 0)


def test_hellos_that_one_member_has_relayed_leave_the_relay_its_own_calls(tmp_path):
    """A relay makes calls in its own name, so relaying for one member must not use up its own quota."""

    async def run():
        async with couriers(tmp_path, 4) as there, there["p1"].channel("p0") as channel:
            slow, waiting = asyncio.Event(), []

            async def send_hello(head, _said):
                waiting.append(head.sender)
                await slow.wait()  # as where p2 does not answer

            there["p0"].courier.links["p2"].send_hello = send_hello
            said = join_frame(FrameHeader("p1", "p2", 5), b"hello")
            relayed = [channel.unary_unary(f"/{SERVICE}/Hello")(said) for _ in range(CALLS)]
            await until(lambda: waiting)
            await asyncio.sleep(0.2)
            count = len(waiting)
            for call in relayed:
                call.cancel()
            return count

    assert asyncio.run(run()) == 1


def test_relays_of_many_members_leave_the_relay_half_of_its_calls(tmp_path):
    async def run():
        async with couriers(tmp_path, 10) as there, AsyncExitStack() as stack:
            slow, waiting = asyncio.Event(), []
            link = there["p0"].courier.links["p9"]

            async def send_hello(head, _said):
                waiting.append(head.sender)
                await slow.wait()
                return b"late"

            link.send_hello = send_hello
            calls = []
            for sender in [f"p{place}" for place in range(1, 9)]:
                channel = await stack.enter_async_context(there[sender].channel("p0"))
                said = join_frame(FrameHeader(sender, "p9", 5), b"hello")
                calls.append(channel.unary_unary(f"/{SERVICE}/Hello")(said))
            await until(lambda: len(waiting) >= CALLS // 2)
            await asyncio.sleep(0.2)
            count = len(waiting)
            slow.set()
            return count, {await call for call in calls}

    assert asyncio.run(run()) == (CALLS // 2, {b"late"})


def test_connections_that_one_member_leaves_idle_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(connection_limits, "SPARE", 0)
    monkeypatch.setattr(connection_limits, "IDLE", 0.5)

    async def run():
        async with couriers(tmp_path, 3) as there, AsyncExitStack() as stack:
            for _ in range(4 * CALLS):
                channel = await stack.enter_async_context(there["p1"].channel("p0"))
                channel.get_state(try_to_connect=True)
            await asyncio.sleep(0.3)
            async with asyncio.timeout(LONG):
                while True:
                    try:
                        return await greet(there["p2"], "p0")
                    except TransportError:
                        there["p2"].courier.links["p0"].trouble = "refused"
                        there["p2"].courier.links["p0"].retry_now()
                        await asyncio.sleep(0.2)

    assert asyncio.run(run()) == b"hello p2"


@pytest.mark.parametrize("turns", range(4))
def test_a_link_ends_also_when_its_peer_was_just_heard(turns, tmp_path):
    """Before Python 3.12, `asyncio.wait_for` loses a cancellation that comes with the event it waits for."""

    async def run():
        made = Made.of(tmp_path, "gossip", 2)
        link = Party(made, "p0", SOON).courier.links["p1"]  # nobody listens at its address
        link.send(BytesFrame(memoryview(b"frame")), 1, lambda: None)
        await until(lambda: link.retries)
        await asyncio.sleep(0)  # now it waits before it sends again
        link.retry_now()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(LONG):
            await link.close()

    asyncio.run(run())
