"""Inbox of one party in one round: it authenticates envelopes, excludes faulty senders, and completes waits.

A `Round` passes received bytes to its `Inbox`. Bytes that cannot be authenticated are discarded, because anybody may
have written them. Bytes that are authentic but invalid exclude their sender, because nobody else can have written them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tacit.core.errors import Drop, NotEnough, PeerFault, WireError
from tacit.core.link import Arrived, Link, Wait
from tacit.core.messages import GREETING, MAX_GREETING, Abort, Address, Codec, Envelope, Greeting, Message
from tacit.core.protocol import Terms
from tacit.core.suite import SERVER, Buffer, Party, Suite

MIN_ENVELOPE_BYTES, SPARE_ENVELOPES = 1 << 10, 64
"""Bytes counted for an envelope even if it is shorter, and number of such envelopes beyond a sender's limit."""
MAX_GREETINGS = 4
"""Most greetings sent to one party in a round in answer to unauthenticated bytes."""


class Discard(StrEnum):
    """Reasons for which bytes are discarded."""

    NOT_AN_ENVELOPE = "not an envelope"
    MISDIRECTED = "misdirected"
    OTHER_SESSION = "from another session"
    OTHER_ROUND = "from another round"
    REPLAYED = "replayed"
    EXCLUDED = "from an excluded sender"
    NOT_AUTHENTIC = "not authentic"
    EARLY = "kept for the next round"
    AGREES = "agrees"


class Delivery(NamedTuple):
    """Result of delivering one envelope."""

    sender: Party
    """The claimed sender; empty if the envelope cannot be read."""
    message: Message | None = None
    """The message, if the envelope is authentic and valid."""
    discarded: Discard | None = None
    """The reason why the bytes were discarded; None for a message, and for bytes that exclude their sender."""
    answer_to: Address | None = None
    """The sender's address in another session, if a greeting has to be sent to it."""


class MessageKey(NamedTuple):
    """Identifies a message among those of one round to one receiver."""

    sender: Party
    kind: str
    step: int


@dataclass
class EarlyMessages:
    """Envelopes of the next round, from senders that are ahead. A byte limit applies to each sender."""

    room: int
    kept: dict[MessageKey, Buffer] = field(default_factory=dict)
    _bytes: Counter[Party] = field(default_factory=Counter)

    def keep(self, place: MessageKey, data: Buffer, more: int = 0) -> None:
        """Keeps an envelope once. It is lost, as on a bad link, if it exceeds the sender's limit plus `more`."""
        size = max(len(data), MIN_ENVELOPE_BYTES)
        if (
            place not in self.kept
            and self._bytes[place.sender] + size <= self.room + more + MIN_ENVELOPE_BYTES * SPARE_ENVELOPES
        ):
            self.kept[place] = data
            self._bytes[place.sender] += size

    def take(self) -> list[Buffer]:
        """Returns the envelopes in the order of arrival, and clears them."""
        kept = list(self.kept.values())
        self.kept.clear()
        self._bytes.clear()
        return kept


class Inbox:
    """The incoming messages of one party in one round."""

    def __init__(
        self,
        link: Link,
        suite: Suite,
        codec: Codec,
        terms: Terms,
        early: EarlyMessages | None = None,
        differs: Callable[[Suite, Greeting], str | None] = lambda *_: None,
        roster: Collection[Party] = (),
    ) -> None:
        """Creates the inbox of a round.

        Args:
            link: The party, its peers, the session and the round.
            suite: Keys to open envelopes and verify greetings with.
            codec: Reads and decodes envelopes.
            terms: The protocol's terms: its peers, steps and message kinds.
            early: Store for envelopes of the next round; without one they are discarded.
            differs: Returns the first difference to the agreement in a greeting, or None.
            roster: Parties that may send greetings although they are no peers, because parties that disagree may also
                disagree on who their peers are.
        """
        self._link, self._suite, self._codec, self._terms = link, suite, codec, terms
        self._peers: Collection[Party] = terms.peers(link.me)
        self._roster = roster
        self._wait: Wait | None = None
        self._pending: set[Party] = set()
        self._unread: dict[MessageKey, tuple[Message, int]] = {}
        self._seen: set[MessageKey] = set()
        self._bytes: Counter[Party] = Counter()
        self._early, self._differs = early, differs
        self._greeters: set[Party] = set()
        self._answered: dict[Party, set[tuple[bytes, int]]] = defaultdict(set)
        self.gone: dict[Party, Drop] = {}
        """Senders from which nothing more is expected, with the reason."""
        self.why: dict[Party, str] = {}
        """Details of the reasons in `gone`, as far as there are any."""
        self.too_few = False
        """Whether the server aborted because too few parties were left."""
        self.discarded: Counter[Discard] = Counter()
        """Counts of discarded envelopes, by reason."""

    def deliver(self, data: Buffer) -> Delivery:
        """Processes the bytes of one envelope, and returns the result."""
        mail = self._classify(data)
        if mail.discarded is not None:
            self.discarded[mail.discarded] += 1
        return mail

    def _classify(self, data: Buffer) -> Delivery:
        try:
            read = self._codec.read(data)
        except WireError:
            # Messages may be longer in the sender's session, so the address is read without the length limit.
            stray = self._codec.address(data)
            if stray is None or stray.session == self._link.session:
                return Delivery("", discarded=Discard.NOT_AN_ENVELOPE)
            return self._discard_foreign(stray)
        if isinstance(read, Greeting):
            return self._check_greeting(read, data)
        address, link = read.address, self._link
        if address.session != link.session:
            return self._discard_foreign(address)
        place = MessageKey(address.sender, address.kind, address.step)
        reason = None
        if address.to != link.me or address.sender == link.me or address.sender not in self._peers:
            reason = Discard.MISDIRECTED
        elif not self._timely(address.round):
            reason = Discard.OTHER_ROUND
        elif address.round == link.round and place in self._seen:
            reason = Discard.REPLAYED
        elif address.round == link.round and address.sender in self.gone:
            reason = Discard.EXCLUDED
        return self._open_envelope(read, place, data) if reason is None else Delivery(place.sender, discarded=reason)

    def _timely(self, number: int) -> bool:
        """Returns whether a round is the present one, or the next one if early messages are kept."""
        return number == self._link.round or (self._early is not None and number == self._link.round + 1)

    def _open_envelope(self, envelope: Envelope, place: MessageKey, data: Buffer) -> Delivery:
        try:
            key = self._suite.channel(place.sender, self._link.session)
            early = envelope.address.round != self._link.round
            payload = self._codec.open(self._suite, key, envelope, keep=early)
        except WireError:
            return Delivery(place.sender, discarded=Discard.NOT_AUTHENTIC)
        if early:
            if self._early is not None:
                self._early.keep(place, data)
            return Delivery(place.sender, discarded=Discard.EARLY)
        self._seen.add(place)
        mail = Delivery(place.sender, self._accept(place, payload))
        self._update_pending(place.sender)
        return mail

    def _accept(self, place: MessageKey, payload: Buffer) -> Message | None:
        sender, kind, step = place
        try:
            message = self._codec.decode(kind, payload)
        except WireError:
            self.gone[sender] = Drop.MALFORMED
            return None
        if isinstance(message, Abort):
            self.gone[sender] = Drop.ABORTED
            self.too_few = self.too_few or (sender == SERVER and message.code == NotEnough.code)
        elif not self._due(message, sender, step) or self._bytes[sender] + len(payload) > self._codec.unread_limit:
            self.gone[sender] = Drop.BROKE_RULES
        else:
            self._unread[place] = message, len(payload)
            self._bytes[sender] += len(payload)
        return message

    def _due(self, message: Message, sender: Party, step: int) -> bool:
        """Returns whether the protocol expects such a message from this sender at this step."""
        return message.from_server == (sender == SERVER) and step in self._terms.steps(type(message))

    # --- other sessions --------------------------------------------------------------------------------------------

    def _discard_foreign(self, address: Address) -> Delivery:
        """Discards an envelope of another session. Its sender gets a greeting."""
        if address.to != self._link.me or not self._knows(address.sender):
            return Delivery(address.sender, discarded=Discard.MISDIRECTED)
        again = len(self._answered[address.sender]) >= MAX_GREETINGS
        return Delivery(
            address.sender, discarded=Discard.OTHER_SESSION, answer_to=None if again else self._answer_once(address)
        )

    def _knows(self, party: Party) -> bool:
        """Returns whether a party is a peer or on the roster."""
        return party != self._link.me and (party in self._peers or party in self._roster)

    def _answer_once(self, address: Address) -> Address | None:
        """Returns the address for a greeting, and marks it as answered; None if it was answered already."""
        answered, place = self._answered[address.sender], (address.session, address.round)
        if place in answered:
            return None
        answered.add(place)
        return address

    def _check_greeting(self, greeting: Greeting, data: Buffer) -> Delivery:
        address, link = greeting.address, self._link
        sender, reason = address.sender, None
        if address.to != link.me or not self._knows(sender):
            reason = Discard.MISDIRECTED
        elif greeting.session != link.session:
            reason = Discard.OTHER_SESSION  # it answers another party, or an earlier session of this one
        elif not self._timely(greeting.round):
            reason = Discard.OTHER_ROUND
        elif greeting.round == link.round and sender in self.gone:
            reason = Discard.EXCLUDED
        elif greeting.round == link.round and sender in self._greeters:
            reason = Discard.REPLAYED
        return self._compare_greeting(greeting, data) if reason is None else Delivery(sender, discarded=reason)

    def _compare_greeting(self, greeting: Greeting, data: Buffer) -> Delivery:
        sender = greeting.address.sender
        try:
            difference = self._differs(self._suite, greeting)
        except PeerFault:
            return Delivery(sender, discarded=Discard.NOT_AUTHENTIC)
        if difference is not None and self._early is not None and greeting.round != self._link.round:
            self._early.keep(MessageKey(sender, GREETING, 0), data, MAX_GREETING)
            return Delivery(sender, discarded=Discard.EARLY)
        self._greeters.add(sender)
        if difference is None:
            return Delivery(sender, discarded=Discard.AGREES)
        self.gone[sender], self.why[sender] = Drop.DISAGREES, difference
        self._update_pending(sender)
        return Delivery(sender, answer_to=self._answer_once(greeting.address))

    # --- waits -----------------------------------------------------------------------------------------------------

    def expect(self, wait: Wait) -> bool:
        """Begins a wait. Returns whether it is complete already."""
        self._wait = wait
        self._pending = {sender for sender in wait.senders if not self._has_answered(wait, sender)}
        return self.ready

    @property
    def ready(self) -> bool:
        """Whether every awaited sender has answered or is gone."""
        return not self._pending

    @property
    def pending(self) -> frozenset[Party]:
        """The awaited senders that have not answered."""
        return frozenset(self._pending)

    def _update_pending(self, sender: Party) -> None:
        # Only this sender's status can have changed, so a server need not check all senders each time.
        if self._wait is not None and sender in self._pending and self._has_answered(self._wait, sender):
            self._pending.discard(sender)

    def _has_answered(self, wait: Wait, sender: Party) -> bool:
        return sender in self.gone or self._place(wait, sender) is not None

    def collect(self, wait: Wait) -> Arrived:
        """Returns the messages of a wait that is complete or timed out."""
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
        why = {party: self.why[party] for party in missing if party in self.why}
        return Arrived(messages, missing, why, self.too_few and SERVER in missing)

    def _place(self, wait: Wait, sender: Party) -> MessageKey | None:
        for name in wait.names:
            place = MessageKey(sender, name, wait.step)
            if place in self._unread:
                return place
        return None
