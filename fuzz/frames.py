"""Real frames of every protocol, mutations of them, and the deployed code that receives them.

A frame is what a peer hands over in one piece: an envelope, a greeting, a hello, or a parcel in pieces. Damage is done
to its bytes, or to what they say; and where a peer has the keys for it, what was damaged is sealed and signed anew, for
that is what a peer on the roster can do. Nothing may come of any of it but mail that does not count, or a sender that
is excluded: whatever is raised is a finding.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from fuzz.damage import NUMBERS, Chance, Draws, bend_value, chosen, damage_bytes, miswritten, spoilt
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import Link, frame_parts
from tacit.core.messages import Address, Greeting
from tacit.core.suite import SERVER, Party, Update
from tacit.net.membership.identity import Credentials
from tacit.net.membership.rendezvous import WIRE_VERSION, Hello, Rendezvous
from tacit.net.membership.replay_guard import Stamp
from tacit.net.membership.roster import RosterFile
from tacit.net.node import Node
from tacit.net.node_lifecycle import NodeLifecycle
from tacit.net.store.round_store import RoundStore
from tacit.net.transport import courier
from tacit.net.transport.tls import Tls
from tacit.protocols import REGISTRY
from tacit.runtime.agreement import Agreement, _statement
from tacit.runtime.inbox import EarlyMessages, Inbox
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import InputTaken, Post

ENTRIES = 5
PARTIES = ("p0", "p1", "p2", "p3")
SETTINGS: dict[str, dict[str, Any]] = {
    "secagg": {"threshold": 3},
    "admm": {"masked": True, "group_size": None, "iterations": 2},
    "pushsum": {"masked": True},
    "cesar": {"share": 0.6, "sparsifier": "topk"},
    "gossip": {"share": 0.6, "sparsifier": "topk"},
}
"""Under which each kind of message is said, and a handful of parties may average."""
pack = msgspec.msgpack.encode

# --- real frames ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Letter:
    """A message that was said in a real round: where it belongs, what it says, and how it travelled."""

    address: Address
    payload: bytes
    data: bytes
    before: int
    """How many its receiver had heard by then."""


@dataclass
class Federation:
    """A federation with its keys, and everything that was said in a round of it."""

    roster: RosterFile
    credentials: dict[Party, Credentials]
    letters: list[Letter] = field(default_factory=list)
    heard: dict[Party, list[bytes]] = field(default_factory=dict)
    """What each heard, in order."""

    @classmethod
    def of(cls, protocol: str, entries: int = ENTRIES) -> "Federation":
        """Returns a federation of a protocol after its first round."""
        entropy = SeededEntropy("fuzz", protocol)
        everyone = REGISTRY[protocol].everyone(PARTIES)
        made = {name: Credentials.generate(name, entropy) for name in everyone}
        cards = [made[name].card(f"127.0.0.1:{7400 + place}") for place, name in enumerate(everyone)]
        roster = RosterFile.new("fuzz", protocol, dict(SETTINGS.get(protocol, {})), entropy, cards)
        found = cls(roster, made)
        found.play(entries)
        return found

    def play(self, entries: int) -> None:
        """Plays a round, in which messages are carried by hand, and keeps what is said."""
        self.__dict__["agreement"] = self.roster.agreement(entries)
        seats = {party: self.seat(party) for party in self.credentials}
        heard: dict[Party, list[bytes]] = {party: [] for party in seats}
        waiting = [post for party, seat in seats.items() for post in self.begun(seat, party)]
        for post in waiting:  # which grows on the way
            payload, data = b"".join(map(bytes, post._payload)), post.data
            self.letters.append(Letter(post.address, payload, data, len(heard[post.to])))
            heard[post.to].append(data)
            waiting += [each for each in seats[post.to].deliver(data) if isinstance(each, Post)]
        self.heard = heard
        if wrong := [seat.round.error for seat in seats.values() if seat.round is None or seat.round.error]:
            raise ConfigError(f"the round to take frames from did not end well: {wrong}")

    @cached_property
    def agreement(self) -> Agreement:
        """What was agreed."""
        raise AssertionError  # it is there once a round was played

    def seat(self, party: Party) -> KeyedParticipant:
        """Returns the seat of a party before its first round."""
        return KeyedParticipant(self.agreement, self.credentials[party].identity)

    def begun(self, seat: KeyedParticipant, party: Party) -> list[Post]:
        """Begins the round with what the party always brings."""
        place = len(party) and sum(party.encode())
        update = None if party == SERVER else Update(np.cos(np.arange(self.agreement.entries) + place))
        return [each for each in seat.begin(update, party.encode().ljust(32)) if isinstance(each, Post)]

    def seated(self, party: Party, after: int = 0) -> KeyedParticipant:
        """Returns the seat of a party in the middle of the round, when it had heard so much."""
        seat = self.seat(party)
        self.begun(seat, party)
        for data in self.heard[party][:after]:
            seat.deliver(data)
        return seat

    @cached_property
    def suites(self) -> dict[Party, Any]:
        """Everybody's hands, to seal and sign with."""
        return {party: self.seat(party).suite(1, party.encode().ljust(32)) for party in self.credentials}

    def sealed(self, address: Address, payload: bytes) -> bytes:
        """Returns an authentic envelope around any bytes at all."""
        suite, codec = self.suites[address.sender], self.agreement.codec(self.agreement.ring().length)
        return codec.wrap_sealed(
            address, codec.seal(suite, suite.channel(address.to, address.session), address, (payload,))
        )

    def greeting(self, sender: Party, to: Party) -> Greeting:
        """Returns a greeting of a party that holds something else to be agreed."""
        heard = Address(self.agreement.session, 1, 0, "Here", to, sender)
        other = msgspec.structs.replace(self.roster, settings={**self.roster.settings, "clip": 8.0})
        agreement = other.agreement(self.agreement.entries)
        return agreement.greeting(self.suites[sender], 1, heard)

    def hello(self, sender: Party, **more: Any) -> Hello:
        """Returns a hello as parties say it."""
        told = msgspec.json.encode(self.agreement.described)
        session, entries = self.agreement.session, self.agreement.entries
        said = {"session": session, "entries": entries, "ready": 1, "known": bytes(16), "told": told, **more}
        return Hello(sender, WIRE_VERSION, sender.encode().ljust(16), **said)


# --- what takes frames in ------------------------------------------------------------------------------------------


class Seats:
    """Seats in the middle of a round, that are handed envelopes and greetings nobody vouches for."""

    def __init__(self, made: Federation) -> None:
        self._made, self.outcomes = made, Counter[str]()
        self._seats: dict[Party, KeyedParticipant] = {}

    def take(self, draw: Draws) -> bytes:
        """Hands one frame over, and returns it."""
        letter: Letter = chosen(draw, self._made.letters)
        data = damage_bytes(letter.data, draw)
        if not draw.below(8):
            data = damage_bytes(pack(self._made.greeting(letter.address.sender, letter.address.to)), draw)
        self.given(letter.address.to, data)
        return data

    def given(self, to: Party, data: bytes) -> None:
        """Hands bytes to the seat of a party."""
        if to not in self._seats:
            self._seats[to] = self._made.seated(to, len(self._made.heard[to]) // 2)
        inbox = self._seats[to].round.inbox  # type: ignore[union-attr]
        before = inbox.discarded.copy()
        actions = self._seats[to].deliver(data)
        self.outcomes.update([*map(str, inbox.discarded - before)] or ["counted"])
        if any(isinstance(action, InputTaken) for action in actions):
            del self._seats[to]  # it was the real frame after all, and moved on


class Inboxes:
    """Inboxes that are handed what a peer sealed or signed itself."""

    def __init__(self, made: Federation) -> None:
        self._made, self.outcomes = made, Counter[str]()
        agreement = made.agreement
        self._codec = agreement.codec(agreement.ring().length)

    def _inbox(self, me: Party) -> Inbox:
        made, agreement = self._made, self._made.agreement
        link = Link(me, agreement.parties, agreement.session, 1)
        told = agreement.difference, agreement.roster
        return Inbox(
            link, made.suites[me], self._codec, agreement.terms, EarlyMessages(self._codec.unread_limit), *told
        )

    def take(self, draw: Draws) -> bytes:
        """Hands one frame over, and returns it."""
        letter: Letter = chosen(draw, self._made.letters)
        data = self._greeting(letter, draw) if not draw.below(10) else reseal_frame(self._made, letter, draw)
        inbox = self._inbox(letter.address.to)
        mail = inbox.deliver(data)
        gone = inbox.gone.get(mail.sender)
        self.outcomes[str(mail.discarded or gone or "counted")] += 1
        return data

    def _greeting(self, letter: Letter, draw: Draws) -> bytes:
        """Returns a greeting that says something else, signed by its sender."""
        sender, to = letter.address.sender, letter.address.to
        greeting = self._made.greeting(sender, to)
        agreed, number = miswritten(greeting.agreed, draw), chosen(draw, (1, 1, 1, 2, *NUMBERS))
        said = msgspec.structs.replace(greeting, agreed=agreed, round=number)
        return pack(msgspec.structs.replace(said, signature=self._made.suites[sender].sign(_statement(said))))


def reseal_frame(made: Federation, letter: Letter, draw: Draws) -> bytes:
    """Returns an envelope of a peer that keeps to nothing but its own keys."""
    address, payload = letter.address, damage_bytes(letter.payload, draw)
    if not draw.below(6):
        other = chosen(draw, made.letters).address
        odd = chosen(draw, NUMBERS)
        changes = {"step": odd, "kind": other.kind, "round": odd}
        name = chosen(draw, list(changes))
        address = msgspec.structs.replace(address, **{name: changes[name]})
    return made.sealed(address, payload)


class Rounds:
    """Rounds that go on with what a peer sealed itself, up to the protocol: one for each frame."""

    def __init__(self, made: Federation) -> None:
        self._made, self.outcomes = made, Counter[str]()

    def take(self, draw: Draws) -> bytes:
        """Hands one frame over in the place of the real one, and returns it; then everything else as it was."""
        letter: Letter = chosen(draw, self._made.letters)
        to, data = letter.address.to, reseal_frame(self._made, letter, draw)
        seat = self._made.seated(to, letter.before)
        seat.deliver(data)
        for real in self._made.heard[to][letter.before :]:
            seat.deliver(real)
        for _ in range(20):  # deadlines, until it has an end
            seat.expire()
        ended = seat.round
        if ended is None or not ended.over:
            raise AssertionError(f"{to} waits for ever")
        self.outcomes["averaged" if ended.error is None else f"gave up: {ended.error.code}"] += 1
        return data


class Hellos:
    """A node that is said hello to, by peers with keys and by others. It needs a loop, and a folder."""

    def __init__(self, made: Federation, folder: Path) -> None:
        self._made, self.outcomes = made, Counter[str]()
        self._nodes = {}
        for party in {PARTIES[0], next(reversed(made.credentials))}:
            store = RoundStore(folder / f"{made.roster.protocol}-{party}.rounds", party, "fuzz")
            self._nodes[party] = Node(made.roster, made.credentials[party], store)

    def take(self, draw: Draws) -> bytes:
        """Says one hello, and returns it."""
        node = chosen(draw, list(self._nodes.values()))
        sender = chosen(draw, [party for party in self._made.credentials if party != node.me])
        if not draw.below(20):  # as after a restart, so that not all is settled
            node._participant, node.lifecycle = None, NodeLifecycle()
            meeting = Rendezvous(node.me, node.peers, node.store.first_seen, node.store.incarnation)
            node._rendezvous = meeting
        if node._participant is None and node.me != SERVER and draw.below(2):
            node._set_vector_length(ENTRIES)
        said = pack(self._made.hello(sender))
        if draw.below(3):
            said = damage_bytes(said, draw)
        else:
            told = miswritten(msgspec.json.encode(self._made.agreement.described), draw)
            said = pack(self._made.hello(sender, told=told, session=bytes(32)))
        count = sum(self.outcomes.values()) + 1
        if not draw.below(8):
            count -= 1  # which was heard before
        stamp = Stamp(sender.encode().ljust(16), count, bytes(16), node._hellos._replay_guard.stamp(sender).asks)
        said = stamp.data + said
        keys = self._made.suites[sender] if draw.below(4) else self._made.suites[node.me]
        data = keys.sign(frame_parts(b"tacit/v1/hello", node.me.encode(), said)) + said
        if not draw.below(6):
            data = spoilt(data, draw)
        before = node._rendezvous.others.get(sender)
        node.answer_hello(sender, data)
        self.outcomes["listened to" if node._rendezvous.others.get(sender) is not before else "not a hello"] += 1
        return data

    def close(self) -> None:
        """Closes the folders."""
        for node in self._nodes.values():
            node.store.close()


class Parcels:
    """A courier that is handed parcels in pieces. It needs a loop."""

    def __init__(self, made: Federation) -> None:
        self._made, self.outcomes = made, Counter[str]()
        self._me = next(reversed(made.credentials))
        peers = [
            courier.PeerEndpoint(card.name, card.address, made.roster.certificate_of(card.name), "")
            for card in made.roster.parties
            if card.name != self._me
        ]

        async def accept(_sender: str, _frame: memoryview) -> bool:
            return True

        receiver: Any = SimpleNamespace(max_frame_bytes=lambda _: 1 << 16, accept_frame=accept)
        self._courier = courier.Courier(self._me, Tls(b"", b""), peers, receiver)

    async def take(self, draw: Draws) -> bytes:
        """Hands one parcel over, and returns its first piece."""
        letter: Letter = chosen(draw, self._made.letters)
        caller, size = chosen(draw, PARTIES[:2]), len(letter.data)
        head = [caller, self._me, size if draw.below(3) else chosen(draw, NUMBERS)]
        said = pack(head if draw.below(2) else bend_value(head, draw))
        length, cut = len(said) if draw.below(4) else draw.below(2**16), draw.below(size + 1)
        first = length.to_bytes(2) + said + letter.data[:cut]
        pieces = [first if draw.below(2) else spoilt(first, draw), letter.data[cut:], letter.data]
        pieces = pieces[: 1 + draw.below(3)]

        async def arriving() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        try:
            await self._courier._take_frame(caller, arriving())
            self.outcomes["taken in"] += 1
        except courier.FrameRefused as refused:
            self.outcomes[refused.code.name] += 1
        return first


# --- many of them --------------------------------------------------------------------------------------------------


@dataclass
class FuzzCounts:
    """How many frames were handed over to what, and what became of them."""

    frames: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class Finding(AssertionError):
    """Something was raised that must not be, and the frame that did it can be found by its number."""


def fuzz_frames(
    count: int,
    seed: int,
    folder: Path,
    protocols: Sequence[str] = tuple(REGISTRY),
    told: Callable[[int], None] = lambda _: None,
) -> dict[str, FuzzCounts]:
    """Hands so many frames over, to everything that takes some; raises Finding if anything is raised.

    Most go to what is cheap, and fewer to whole rounds. `told` is called now and then with how many there were.
    """
    return asyncio.run(_fuzz_frames(count, seed, folder, [Federation.of(protocol) for protocol in protocols], told))


SHARES = {"seats": 50, "inboxes": 36, "parcels": 8, "hellos": 4, "rounds": 2}
"""Of a hundred frames, to what how many go."""


async def _fuzz_frames(
    count: int, seed: int, folder: Path, made: Sequence[Federation], told: Callable[[int], None]
) -> dict[str, FuzzCounts]:
    seen = {name: FuzzCounts() for name in SHARES}
    done = 0
    for place, federation in enumerate(made):
        sinks: dict[str, Any] = {
            "seats": Seats(federation),
            "inboxes": Inboxes(federation),
            "parcels": Parcels(federation),
            "hellos": Hellos(federation, folder),
            "rounds": Rounds(federation),
        }
        for name, number in _plan_cases(count, place, len(made)):
            draw = Chance(seed * 2**40 + place * 2**32 + number)
            try:
                taken = sinks[name].take(draw)
                if asyncio.iscoroutine(taken):
                    await taken
            except Exception as error:
                protocol = federation.roster.protocol
                raise Finding(f"{protocol}, {name}, frame {number} of seed {seed}: {error!r}") from error
            seen[name].frames += 1
            done += 1
            if done % 100 == 0:
                await asyncio.sleep(0)  # deadlines that were called off are forgotten when the loop goes round
            if done % 1000 == 0:
                told(done)
        for name, sink in sinks.items():
            seen[name].outcomes.update(sink.outcomes)
        sinks["hellos"].close()
    return seen


def _plan_cases(count: int, place: int, of: int) -> Iterator[tuple[str, int]]:
    """Yields what takes the frames of one protocol of several, and their numbers."""
    turns = [name for name, share in SHARES.items() for _ in range(share)]
    mine = count // of + (place < count % of)
    for number in range(mine):
        yield turns[number * 37 % len(turns)], number
