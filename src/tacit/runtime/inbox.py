"""One party's incoming mail: which bytes count, what they say, and when a wait is over.

A `Round` hands raw bytes to its `Inbox`. What cannot be authenticated is thrown away, for anybody may have written it.
What is authentic but wrong excludes its sender, for nobody else can have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import Arrived, Link, Wait
from tacit.core.messages import GREETING, MAX_GREETING, Abort, Address, Codec, Envelope, Greeting, Message
from tacit.core.protocol import Terms
from tacit.core.suite import SERVER, Buffer, Party, Suite

SLIP, SLIPS = 1 << 10, 64
"""Bytes that an envelope takes in memory, however short it is, and how many short ones there is always room for."""
TOLD = 4
"""Greetings that mail which anybody may have written can draw to one party in a round."""


class Discard(StrEnum):
    """Why bytes do not count."""

    NOT_AN_ENVELOPE = "not an envelope"
    MISDIRECTED = "misdirected"
    OTHER_SESSION = "from another session"
    OTHER_ROUND = "from another round"
    REPLAYED = "replayed"
    EXCLUDED = "from an excluded sender"
    NOT_AUTHENTIC = "not authentic"
    EARLY = "kept for the next round"
    AGREES = "agrees"


class Mail(NamedTuple):
    """What became of some bytes."""

    sender: Party
    """Who says to have sent them; nobody if that cannot be read."""
    message: Message | None = None
    """What they say, if they count and are what they claim to be."""
    discarded: Discard | None = None
    """Why they do not count. None if they do: because of the message, or because they exclude their sender."""
    apart: Address | None = None
    """Where the sender is, if that is another session and it is to be told what we hold to be agreed."""


class Place(NamedTuple):
    """What tells messages of one round to one receiver apart."""

    sender: Party
    kind: str
    step: int


@dataclass
class Early:
    """Mail of the round after this one, from those who are ahead. Each may leave so much and no more."""

    room: int
    kept: dict[Place, Buffer] = field(default_factory=dict)
    _bytes: Counter[Party] = field(default_factory=Counter)

    def keep(self, place: Place, data: Buffer, more: int = 0) -> None:
        """Keeps an envelope, once. What there is no room for, or so much more, is lost, as on a bad link."""
        size = max(len(data), SLIP)
        if place not in self.kept and self._bytes[place.sender] + size <= self.room + more + SLIP * SLIPS:
            self.kept[place] = data
            self._bytes[place.sender] += size

    def take(self) -> list[Buffer]:
        """Returns what was kept, in the order it came, and keeps it no longer."""
        kept = list(self.kept.values())
        self.kept.clear()
        self._bytes.clear()
        return kept


class Inbox:
    """The mail of one party in one round."""

    def __init__(
        self,
        link: Link,
        suite: Suite,
        codec: Codec,
        terms: Terms,
        early: Early | None = None,
        differs: Callable[[Suite, Greeting], str | None] = lambda *_: None,
        roster: Collection[Party] = (),
    ) -> None:
        """Takes mail for a link. `differs` says in words on what the sender of a greeting disagrees.

        Anybody on the roster may greet: who exchanges messages with whom is among what may differ.
        """
        self._link, self._suite, self._codec, self._terms = link, suite, codec, terms
        self._peers: Collection[Party] = terms.peers(link.me)
        self._roster = roster
        self._wait: Wait | None = None
        self._pending: set[Party] = set()
        self._unread: dict[Place, tuple[Message, int]] = {}
        self._seen: set[Place] = set()
        self._bytes: Counter[Party] = Counter()
        self._early, self._differs = early, differs
        self._greeters: set[Party] = set()
        self._told: dict[Party, set[tuple[bytes, int]]] = defaultdict(set)
        self.gone: dict[Party, Drop] = {}
        """Senders from whom nothing more is expected, and why."""
        self.why: dict[Party, str] = {}
        """The same in words, where there is more to say."""
        self.discarded: Counter[Discard] = Counter()
        """Envelopes thrown away unread, by reason."""

    def deliver(self, data: Buffer) -> Mail:
        """Takes in the bytes of one envelope, and says what became of them."""
        mail = self._taken(data)
        if mail.discarded is not None:
            self.discarded[mail.discarded] += 1
        return mail

    def _taken(self, data: Buffer) -> Mail:
        try:
            read = self._codec.read(data)
        except WireError:
            # Where its sender is, messages may be longer.
            stray = self._codec.address(data)
            if stray is None or stray.session == self._link.session:
                return Mail("", discarded=Discard.NOT_AN_ENVELOPE)
            return self._elsewhere(stray)
        if isinstance(read, Greeting):
            return self._greeted(read, data)
        address, link = read.address, self._link
        if address.session != link.session:
            return self._elsewhere(address)
        place = Place(address.sender, address.kind, address.step)
        reason = None
        if address.to != link.me or address.sender == link.me or address.sender not in self._peers:
            reason = Discard.MISDIRECTED
        elif not self._timely(address.round):
            reason = Discard.OTHER_ROUND
        elif address.round == link.round and place in self._seen:
            reason = Discard.REPLAYED
        elif address.round == link.round and address.sender in self.gone:
            reason = Discard.EXCLUDED
        return self._opened(read, place, data) if reason is None else Mail(place.sender, discarded=reason)

    def _timely(self, number: int) -> bool:
        """Says whether a round is the present one, or the next, if its mail is kept."""
        return number == self._link.round or (self._early is not None and number == self._link.round + 1)

    def _opened(self, envelope: Envelope, place: Place, data: Buffer) -> Mail:
        try:
            key = self._suite.channel(place.sender, self._link.session)
            early = envelope.address.round != self._link.round
            payload = self._codec.open(self._suite, key, envelope, keep=early)
        except WireError:
            return Mail(place.sender, discarded=Discard.NOT_AUTHENTIC)
        if early:
            if self._early is not None:
                self._early.keep(place, data)
            return Mail(place.sender, discarded=Discard.EARLY)
        self._seen.add(place)
        mail = Mail(place.sender, self._accept(place, payload))
        self._noticed(place.sender)
        return mail

    def _accept(self, place: Place, payload: Buffer) -> Message | None:
        sender, kind, step = place
        try:
            message = self._codec.decode(kind, payload)
        except WireError:
            self.gone[sender] = Drop.MALFORMED
            return None
        if isinstance(message, Abort):
            self.gone[sender] = Drop.ABORTED
        elif not self._due(message, sender, step) or self._bytes[sender] + len(payload) > self._codec.room:
            self.gone[sender] = Drop.BROKE_RULES
        else:
            self._unread[place] = message, len(payload)
            self._bytes[sender] += len(payload)
        return message

    def _due(self, message: Message, sender: Party, step: int) -> bool:
        """Says whether the protocol has anybody await such a message, from such a sender, at such a step."""
        return message.from_server == (sender == SERVER) and step in self._terms.steps(type(message))

    # --- those of another session ----------------------------------------------------------------------------------

    def _elsewhere(self, address: Address) -> Mail:
        """Throws mail of another session away."""
        if address.to != self._link.me or not self._knows(address.sender):
            return Mail(address.sender, discarded=Discard.MISDIRECTED)
        again = len(self._told[address.sender]) >= TOLD
        return Mail(address.sender, discarded=Discard.OTHER_SESSION, apart=None if again else self._untold(address))

    def _knows(self, party: Party) -> bool:
        """Says whether somebody else is one of us."""
        return party != self._link.me and (party in self._peers or party in self._roster)

    def _untold(self, address: Address) -> Address | None:
        """Returns where a sender is unless it was told there already, and takes it as told."""
        told, place = self._told[address.sender], (address.session, address.round)
        if place in told:
            return None
        told.add(place)
        return address

    def _greeted(self, greeting: Greeting, data: Buffer) -> Mail:
        address, link = greeting.address, self._link
        sender, reason = address.sender, None
        if address.to != link.me or not self._knows(sender):
            reason = Discard.MISDIRECTED
        elif greeting.session != link.session:
            reason = Discard.OTHER_SESSION  # it answers what somebody else said, or we in another life
        elif not self._timely(greeting.round):
            reason = Discard.OTHER_ROUND
        elif greeting.round == link.round and sender in self.gone:
            reason = Discard.EXCLUDED
        elif greeting.round == link.round and sender in self._greeters:
            reason = Discard.REPLAYED
        return self._answered(greeting, data) if reason is None else Mail(sender, discarded=reason)

    def _answered(self, greeting: Greeting, data: Buffer) -> Mail:
        sender = greeting.address.sender
        try:
            difference = self._differs(self._suite, greeting)
        except PeerFault:
            return Mail(sender, discarded=Discard.NOT_AUTHENTIC)
        if difference is not None and self._early is not None and greeting.round != self._link.round:
            self._early.keep(Place(sender, GREETING, 0), data, MAX_GREETING)
            return Mail(sender, discarded=Discard.EARLY)
        self._greeters.add(sender)
        if difference is None:
            return Mail(sender, discarded=Discard.AGREES)
        self.gone[sender], self.why[sender] = Drop.DISAGREES, difference
        self._noticed(sender)
        return Mail(sender, apart=self._untold(greeting.address))

    # --- waits -----------------------------------------------------------------------------------------------------

    def expect(self, wait: Wait) -> bool:
        """Begins a wait; says whether it is over already."""
        self._wait = wait
        self._pending = {sender for sender in wait.senders if not self._settled(wait, sender)}
        return self.ready

    @property
    def ready(self) -> bool:
        """Whether everyone that is waited for has answered or is gone."""
        return not self._pending

    @property
    def pending(self) -> frozenset[Party]:
        """Who is waited for."""
        return frozenset(self._pending)

    def _noticed(self, sender: Party) -> None:
        # Only the sender of what just came can have changed, so that a server need not look at everybody each time.
        if self._wait is not None and sender in self._pending and self._settled(self._wait, sender):
            self._pending.discard(sender)

    def _settled(self, wait: Wait, sender: Party) -> bool:
        return sender in self.gone or self._place(wait, sender) is not None

    def collect(self, wait: Wait) -> Arrived:
        """Returns what came for a wait that is over, by readiness or by deadline."""
        self._wait, self._pending = None, set()
        messages: dict[Party, Message] = {}
        missing: dict[Party, Drop] = {}
        for sender in wait.senders:
            place = self._place(wait, sender)
            if place:
                messages[sender], size = self._unread.pop(place)
                self._bytes[sender] -= size
            else:
                missing[sender] = self.gone.get(sender, Drop.SILENT)
        return Arrived(messages, missing, {party: self.why[party] for party in missing if party in self.why})

    def _place(self, wait: Wait, sender: Party) -> Place | None:
        for name in wait.names:
            place = Place(sender, name, wait.step)
            if place in self._unread:
                return place
        return None
