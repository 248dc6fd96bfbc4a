"""Parties without addresses and without a server meet at a relay, which can only make them wait."""

import asyncio

import msgspec
import numpy as np
import pytest

from support.federations import HASTY, SOON, averaged, free_ports
from support.outbound import LONG, POST, assert_simulated, record_posts, relayed, running, until
from support.replay_cases import CASES
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, TransportError
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import Deadlines
from tacit.net.relay_node import RelayNode
from tacit.net.transport.framing import BytesFrame, FrameHeader, FrameRefused, join_frame
from tacit.net.transport.held_stream import Lane
from tacit.net.transport.relay import MessageRelay

PROTOCOLS = {
    "gossip": {},
    "admm": {"masked": True},
    "pushsum": {"masked": True},
    "cesar": {"share": 0.5},
    "rotating": {"share": 0.5},
}


@pytest.fixture
def posted(monkeypatch):
    """Gives all that was sent, by address."""
    return record_posts(monkeypatch)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_over_a_relay_parties_say_and_average_what_the_simulator_does(protocol, tmp_path, posted):
    made = relayed(tmp_path, protocol, 4, **PROTOCOLS[protocol])

    async def run():
        async with running(made) as (nodes, _):
            endings = [await averaged(nodes, made.updates(5, number)) for number in (1, 2)]
            return endings, {link.trouble for node in nodes.values() for link in node.courier.links.values()}

    endings, troubles = asyncio.run(run())
    assert_simulated(made, 5, endings, posted)
    assert troubles == {""}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.protocol in PROTOCOLS])
def test_every_mode_over_a_relay_says_and_averages_what_the_simulator_does(name, tmp_path, posted):
    case = CASES[name]
    options = msgspec.to_builtins(case.options, enc_hook=vars)
    made = relayed(tmp_path, case.protocol, case.parties, **options)

    async def run():
        async with running(made) as (nodes, _):
            return [await averaged(nodes, made.updates(5, number)) for number in (1, 2)]

    assert_simulated(made, 5, asyncio.run(run()), posted)


def test_long_frames_pass_a_relay_in_pieces(tmp_path, posted):
    made, entries = relayed(tmp_path, "pushsum", 3, masked=True), 700_000

    async def run():
        async with running(made) as (nodes, post):
            return await averaged(nodes, made.updates(entries)), post.courier._pool

    ended, pool = asyncio.run(run())
    assert_simulated(made, entries, [ended], posted)
    assert max(map(len, posted.values())) > 2**21
    assert not pool._free, "a relay keeps no frame in memory"


def test_a_party_that_listens_is_dialled_by_the_relay_if_others_cannot_reach_it(tmp_path):
    made = relayed(tmp_path, "gossip", 3, listening=("p0",))
    (nowhere,) = free_ports(1)
    blocked = msgspec.structs.replace(
        made.roster,
        parties=[
            made.credentials["p0"].card(f"127.0.0.1:{nowhere}") if card.name == "p0" else card
            for card in made.roster.parties
        ],
    )

    async def run():
        post = RelayNode(made.roster, made.credentials[POST])
        await post.start()
        try:
            async with made.nodes(made.roster.names, dict.fromkeys(("p1", "p2"), blocked)) as nodes:
                return await averaged(nodes, made.updates(4))
        finally:
            await post.close()

    assert_simulated(made, 4, [asyncio.run(run())])


@pytest.mark.long
def test_a_relay_that_is_restarted_in_a_round_is_used_again(tmp_path):
    made = relayed(tmp_path, "gossip", 3)

    async def run():
        async with running(made) as (nodes, post):
            endings = [await averaged(nodes, made.updates(4))]
            await post.close()
            work = asyncio.create_task(averaged(nodes, made.updates(4, 2)))
            await asyncio.sleep(0.5)
            again = RelayNode(made.roster, made.credentials[POST])
            await again.start()
            endings.append(await asyncio.wait_for(work, LONG))
            await again.close()
            return endings

    assert_simulated(made, 4, asyncio.run(run()))


def test_without_its_relay_a_party_says_so_and_sends_nothing(tmp_path):
    made = relayed(tmp_path, "gossip", 3, HASTY)

    async def run():
        async with running(made, relay=False) as (nodes, _):
            return await asyncio.gather(
                *(node.average(made.updates(4)[party]) for party, node in nodes.items()), return_exceptions=True
            )

    for error in asyncio.run(run()):
        assert isinstance(error, TransportError)
        assert f"nothing listens at {made.roster.address_of(POST)}; try: start {POST}" in str(error)


def test_whoever_is_no_relay_on_the_roster_does_not_relay(tmp_path):
    made = relayed(tmp_path, "gossip", 3)
    without = msgspec.structs.replace(made.roster, relays=())
    for roster, name in ((without, POST), (made.roster, "p0")):
        with pytest.raises(ConfigError, match=f"{name} is not on the roster of try as a relay; try: have its keeper"):
            RelayNode(roster, made.credentials[name])


def test_a_relay_that_does_not_know_a_party_is_named_by_it(tmp_path):
    """The relay has a roster on which p0 is another party: neither shows the other a certificate that counts."""
    made = relayed(tmp_path, "gossip", 3, HASTY)
    others = [Credentials.generate(card.name, SeededEntropy("other")).card("") for card in made.roster.parties]
    old = msgspec.structs.replace(made.roster, parties=others)

    async def run():
        post = RelayNode(old, made.credentials[POST])
        await post.start()
        try:
            async with made.nodes(made.roster.names) as nodes:
                return await asyncio.gather(
                    *(node.average(made.updates(4)[party]) for party, node in nodes.items()), return_exceptions=True
                )
        finally:
            await post.close()

    for error in asyncio.run(run()):
        assert f"{POST} at {made.roster.address_of(POST)} closed the connection" in str(error)
        assert "or give it the newest roster" in str(error)


# --- a relay that misbehaves ---------------------------------------------------------------------------------------


def misbehave(monkeypatch, how):
    """Has a relay do something to every third frame."""
    honest, count, kept = MessageRelay.pass_frame, [0], []

    async def pass_frame(relay, caller, head, pieces):
        data = b"".join([piece async for piece in pieces])
        count[0] += 1

        async def again(data):
            yield data

        if count[0] % 3 == 0:
            if how == "drops":
                return True  # as if the receiver had it
            if how == "delays":
                await asyncio.sleep(0.5)
            if how == "duplicates":
                await honest(relay, caller, head, again(data))
            if how == "reorders":
                kept.append((relay, caller, head, data))
                return True
            if how == "changes":
                data = data[:-1] + bytes([data[-1] ^ 1])
        elif kept:
            asyncio.get_running_loop().create_task(later(*kept.pop()))
        return await honest(relay, caller, head, again(data))

    async def later(relay, caller, head, data):
        async def again():
            yield data

        await asyncio.gather(honest(relay, caller, head, again()), return_exceptions=True)

    monkeypatch.setattr(MessageRelay, "pass_frame", pass_frame)
    return count


@pytest.mark.long
@pytest.mark.parametrize("how", ["drops", "delays", "duplicates", "reorders", "changes"])
def test_a_relay_that_misbehaves_causes_time_outs_and_no_wrong_average(how, tmp_path, monkeypatch):
    made = relayed(tmp_path, "gossip", 4, Deadlines(phase=5.0, start=20.0, connect=5.0), graph="complete")
    count = misbehave(monkeypatch, how)

    async def run():
        async with running(made) as (nodes, _):
            return [await averaged(nodes, made.updates(4, number)) for number in (1, 2)]

    endings = asyncio.run(asyncio.wait_for(run(), LONG))
    assert count[0] >= 12
    weights = dict.fromkeys(made.roster.names, made.roster.terms)
    assert weights
    for number, ended in enumerate(endings, 1):
        updates = made.updates(4, number)
        for ending in ended.values():
            assert ending.error is not None or is_average_of(ending, updates), ending
    if how in ("delays", "duplicates"):
        assert all(set(ending.contributors) == set(made.roster.names) for ending in endings[0].values())


def is_average_of(ending, updates):
    """Says whether an average is what gossip makes of its contributors: a missing one's weight stays with the party."""
    own = updates[ending.party].vector
    others = [updates[name].vector for name in ending.contributors if name != ending.party]
    return np.allclose(ending.average, own + sum(other - own for other in others) / len(updates), atol=1e-4)


# --- limits --------------------------------------------------------------------------------------------------------


class Link:
    """Takes frames in, if it is let."""

    def __init__(self):
        self.open, self.taken, self.under_way, self.most = asyncio.Event(), [], 0, 0
        self.open.set()

    async def deliver_pieces(self, pieces, timeout):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            async with asyncio.timeout(timeout):
                await self.open.wait()
                self.taken.append([piece async for piece in pieces])
        except TimeoutError:
            raise TransportError("p1 does not answer") from None
        finally:
            self.under_way -= 1
        return True


def message(*pieces, size=None):
    """Returns a header and the pieces of a frame."""
    data = b"".join(pieces)
    head = FrameHeader("p0", "p1", len(data) if size is None else size)

    async def given():
        for number, piece in enumerate(pieces):
            yield join_frame(head, piece) if number == 0 else piece

    return head, given()


async def never():
    await asyncio.Event().wait()
    yield b""


def passing(link, patience=0.3, frames=2):
    return MessageRelay({"p1": link}, patience, lambda _: 100, {Lane.HELLO: 1, Lane.FRAME: frames})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (message(bytes(101)), "a frame of 101 bytes is longer than any"),
        (message(b"", size=0), "a frame of 0 bytes is longer than any"),
        (message(bytes(10), bytes(10), size=15), "a frame that is longer than it said"),
        (message(bytes(10), size=15), "a frame that is shorter than it said"),
        ((FrameHeader("p0", "p1", 10), never()), "too slow"),
    ],
)
def test_frames_that_are_not_as_they_said_are_refused(given, said):
    async def run():
        link = Link()
        with pytest.raises(FrameRefused, match=said):
            await passing(link).pass_frame("p0", *given)

    asyncio.run(run())


def test_a_frame_is_passed_on_before_it_is_complete():
    async def run():
        link, rest, began = Link(), asyncio.Event(), asyncio.Event()
        head = FrameHeader("p0", "p1", 20)

        async def pieces():
            yield join_frame(head, bytes(10))
            await rest.wait()
            yield bytes(10)

        async def deliver_pieces(given, _timeout):
            async for _ in given:
                began.set()
            return True

        link.deliver_pieces = deliver_pieces
        work = asyncio.create_task(passing(link, LONG).pass_frame("p0", head, pieces()))
        async with asyncio.timeout(LONG):
            await began.wait()
        rest.set()
        return await work

    assert asyncio.run(run())


def test_one_frame_of_a_caller_is_under_way_and_others_are_not_kept_waiting():
    async def run():
        link = Link()
        link.open.clear()
        relay = passing(link, LONG)
        frames = [asyncio.create_task(relay.pass_frame("p0", *message(bytes(10)))) for _ in range(3)]
        await asyncio.sleep(0.1)
        of_one = link.under_way
        frames += [asyncio.create_task(relay.pass_frame(name, *message(bytes(10)))) for name in ("p2", "p3", "p4")]
        await asyncio.sleep(0.1)
        of_all = link.under_way
        link.open.set()
        return of_one, of_all, await asyncio.gather(*frames)

    of_one, of_all, settled = asyncio.run(run())
    assert (of_one, of_all) == (1, 2)
    assert settled == [True] * 6


def test_a_destination_that_does_not_answer_has_a_deadline_of_its_own():
    async def run():
        link = Link()
        link.open.clear()
        with pytest.raises(TransportError, match="p1 does not answer"):
            async with asyncio.timeout(LONG):
                await passing(link).pass_frame("p0", *message(bytes(10)))

    asyncio.run(run())


def test_a_relay_takes_nothing_in_itself_and_passes_nothing_from_relays(tmp_path):
    made = relayed(tmp_path, "gossip", 3, SOON)

    async def run():
        async with running(made) as (nodes, post):
            await until(lambda: post.courier.links["p1"].held.count(Lane.FRAME))
            link, found = nodes["p0"].courier.links[POST], []
            for head in (FrameHeader("p0", POST, 5), FrameHeader("p2", "p1", 5), FrameHeader("p0", "p9", 5)):
                for call in (
                    link.send_hello(head, b"hello"),
                    link.deliver(BytesFrame(memoryview(b"frame")), head, 5.0),
                ):
                    with pytest.raises(TransportError) as refused:
                        await call
                    found.append(str(refused.value))
            return found

    found = asyncio.run(run())
    assert [text.partition("(")[2] for text in found] == [
        "a relay takes nothing in)",
        "a relay takes nothing in)",
        "a frame is relayed only once)",
        "a frame is relayed only once)",
        "no such parties here)",
        "no such parties here)",
    ]
