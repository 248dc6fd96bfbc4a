"""A malicious relay that stores all hellos and replays them later."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest

from support.federations import Made, averaged, free_ports
from tacit.core.entropy import SeededEntropy
from tacit.net.membership.hello import MAX_REPEATS
from tacit.net.membership.rendezvous import WIRE_VERSION, Rendezvous
from tacit.net.membership.replay_guard import ReplayGuard, Stamp
from tacit.net.node_lifecycle import Presence
from tacit.net.transport.framing import FrameHeader

pytestmark = pytest.mark.long

ENTRIES = 4


@dataclass
class Relay:
    """A relay, p2, between p0 and p1, that controls the hellos it forwards."""

    made: Made
    kept: list = field(default_factory=list)
    """Every hello between the two, as (head, bytes), both calls and answers."""
    instead: list = field(default_factory=list)
    """The next answer, in place of the real one."""

    @asynccontextmanager
    async def nodes(self, made=None):
        """Yields nodes of which p0 and p1 have no direct connection to each other."""
        made = made or self.made
        there = dict(zip(("p0", "p1"), free_ports(2), strict=True))
        ways = {one: made.moved({other: f"127.0.0.1:{there[other]}"}) for one, other in (("p0", "p1"), ("p1", "p0"))}
        async with made.nodes(rosters=ways) as nodes:
            for line in nodes["p2"].courier.links.values():
                line.send_hello = self._said(line.send_hello)
            yield nodes

    def _said(self, honest):
        async def say(head, said):
            if head.sender == "p2":
                return await honest(head, said)
            self.kept.append((head, said))
            answer = self.instead.pop() if self.instead else await honest(head, said)
            self.kept.append((FrameHeader(head.to, head.sender, len(answer)), answer))
            return answer

        return say

    async def say_again(self, nodes, old):
        """Replays every hello to its receiver, and uses the stored hellos as answers."""
        for head, said in old:
            await nodes["p2"].courier.links[head.to].send_hello(head, said)
            self.instead = [said]
            nodes[head.to]._hellos.say([head.sender])
            await quiet(nodes)
            assert not self.instead, "it was not asked for an answer"


async def quiet(nodes):
    """Waits until no hello is in progress."""
    while hellos := [task for node in nodes.values() for task in node._hellos._tasks]:
        await asyncio.gather(*hellos)


def known(nodes):
    """Returns all that p0 and p1 hold to be so, of what hellos say."""

    def of(meeting: Rendezvous):
        hellos = {peer: hello for peer, (hello, _) in meeting.others.items()}
        return (
            hellos,
            dict(meeting.lost),
            {peer: str(why) for peer, why in meeting.disagreements.items()},
            dict(meeting.known),
        )

    return {party: of(nodes[party]._rendezvous) for party in ("p0", "p1")}


# --- replayed hellos -----------------------------------------------------------------------------------------------


async def in_rounds(relay):
    """Hellos of rounds that are over, in which p0 and p1 were ready, had begun, and were done."""
    async with relay.nodes() as nodes:
        for number in (1, 2):
            await averaged(nodes, relay.made.updates(ENTRIES, number))


@asynccontextmanager
async def after_a_round(relay):
    """Gives nodes that have averaged, and keeps what they say from then on."""
    async with relay.nodes() as nodes:
        await averaged(nodes, relay.made.updates(ENTRIES))
        await quiet(nodes)
        relay.kept.clear()
        yield nodes
        await quiet(nodes)


async def at_leaving(relay):
    """That p0 and p1 leave, which they did once."""
    async with after_a_round(relay) as nodes:
        for party in ("p0", "p1"):
            nodes[party].lifecycle.change_presence(Presence.LEAVING)
            nodes[party]._hellos.say()
            await quiet(nodes)


async def of_another_session(relay):
    """Hellos of a session before, and of journals that are no longer there."""
    before = Made(
        relay.made.folder / "before",
        msgspec.structs.replace(relay.made.roster, nonce="ab" * 16),
        relay.made.credentials,
    )
    async with relay.nodes(before) as nodes:
        await averaged(nodes, before.updates(ENTRIES))


async def of_another_journal(relay):
    """Hellos of this session by parties whose journals were lost before they began a round, for which nobody minds."""
    before = Made(relay.made.folder / "before", relay.made.roster, relay.made.credentials)
    async with relay.nodes(before) as nodes:
        for node in nodes.values():
            node._set_vector_length(ENTRIES)
            node._hellos.say()
        await quiet(nodes)


async def of_another_release(relay):
    """Hellos of a release that p0 and p1 no longer run."""
    async with after_a_round(relay) as nodes:
        for node in (nodes["p0"], nodes["p1"]):
            node._hellos._ours = lambda to, hello=node._make_hello: msgspec.structs.replace(
                hello(to), version=WIRE_VERSION + 1
            )
            node._hellos.say()


KINDS = (in_rounds, at_leaving, of_another_session, of_another_journal, of_another_release)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_hellos_of_an_earlier_life_that_are_said_again_move_nobody(kind, tmp_path):
    relay = Relay(Made.of(tmp_path, "gossip", 3))

    async def run():
        await kind(relay)
        old = list(relay.kept)
        async with relay.nodes() as nodes:
            await averaged(nodes, relay.made.updates(ENTRIES, 3))
            await quiet(nodes)
            before = known(nodes)
            await relay.say_again(nodes, old)
            return len(old), before, known(nodes), await averaged(nodes, relay.made.updates(ENTRIES, 4))

    count, before, after, endings = asyncio.run(run())
    assert count >= 4
    assert after == before
    assert [sorted(ending.contributors) for ending in endings.values()] == [["p0", "p1", "p2"]] * 3


def test_hellos_of_this_life_that_are_said_again_move_nobody(tmp_path):
    relay = Relay(Made.of(tmp_path, "gossip", 3))

    async def run():
        async with relay.nodes() as nodes:
            await averaged(nodes, relay.made.updates(ENTRIES, 1))
            await averaged(nodes, relay.made.updates(ENTRIES, 2))
            await quiet(nodes)
            before = known(nodes)
            await relay.say_again(nodes, relay.kept[::-1])
            return before, known(nodes), await averaged(nodes, relay.made.updates(ENTRIES, 3))

    before, after, endings = asyncio.run(run())
    assert after == before
    assert [sorted(ending.contributors) for ending in endings.values()] == [["p0", "p1", "p2"]] * 3


# --- stamps --------------------------------------------------------------------------------------------------------


def process(name):
    return ReplayGuard(SeededEntropy(name))


def met(one, other):
    """Has two processes, a and b, learn each other's marks, as nodes do."""
    for _ in range(3):
        said = one.stamp("b")
        other.is_fresh("a", said)
        one.is_fresh("b", other.stamp("a", said))


def test_a_hello_counts_once_and_none_before_it():
    a, b = process("a"), process("b")
    met(a, b)
    first, second = a.stamp("b"), a.stamp("b")
    assert b.is_fresh("a", second)
    assert not b.is_fresh("a", second)
    assert not b.is_fresh("a", first)


def test_whoever_does_not_repeat_our_mark_is_not_heard_and_learns_it_from_the_answer():
    a, b = process("a"), process("b")
    said = a.stamp("b")
    assert not b.is_fresh("a", said)
    assert a.is_fresh("b", b.stamp("a", said))
    assert b.is_fresh("a", a.stamp("b"))


def test_nothing_that_was_held_back_counts_once_its_process_was_started_again():
    a, b = process("a"), process("b")
    met(a, b)
    held_back = [a.stamp("b") for _ in range(100)]
    again = process("a, started again")
    met(again, b)
    assert b.is_fresh("a", again.stamp("b"))
    assert [b.is_fresh("a", each) for each in held_back] == [False] * 100
    assert b.is_fresh("a", again.stamp("b")), "the process that is there is heard as before"


def test_nothing_that_was_said_to_an_earlier_process_counts():
    a, b = process("a"), process("b")
    met(a, b)
    held_back = a.stamp("b")
    assert not process("b, started again").is_fresh("a", held_back)


def test_a_stamp_has_the_same_place_in_every_release():
    stamp = Stamp(b"s" * 16, 2**64 - 1, b"a" * 16, b"r" * 16)
    assert stamp.data == b"s" * 16 + b"\xff" * 8 + b"a" * 16 + b"r" * 16
    assert Stamp.of(stamp.data + b"a hello") == stamp
    with pytest.raises(ValueError, match="too short"):
        Stamp.of(stamp.data[:-1])


def test_a_peer_that_asks_for_something_else_every_time_does_not_keep_us_at_it(tmp_path):
    made = Made.of(tmp_path, "gossip", 3)

    async def run():
        async with made.nodes(["p0", "p1"]) as nodes:
            await quiet(nodes)
            asked, greet = [], nodes["p1"].answer_hello

            def another(sender, hello):
                asked.append(sender)
                nodes["p1"]._hellos._replay_guard._asks.clear()
                return greet(sender, hello)

            nodes["p1"].answer_hello = another
            nodes["p0"]._hellos.say(["p1"])
            await quiet({"p0": nodes["p0"]})
            return asked

    assert asyncio.run(run()) == ["p0"] * MAX_REPEATS
