"""One party's incoming mail: which bytes count, what they say, and when a wait is over.

Every driver hands raw envelopes to an `Inbox`. What cannot be authenticated is thrown away, for anybody may have
written it. What is authentic but wrong excludes its sender, for nobody else can have.
"""

from collections import Counter

from tacit.core.errors import Drop, WireError
from tacit.core.link import Arrived, Link, Wait
from tacit.core.messages import Abort, Codec, Message
from tacit.core.suite import Party, Suite

MAX_UNREAD = 1024
"""Unread messages a sender may have waiting here before it is excluded."""


class Inbox:
    """The mail of one party in one round."""

    def __init__(self, link: Link, suite: Suite, codec: Codec, everyone: tuple[Party, ...]) -> None:
        self._link, self._suite, self._codec = link, suite, codec
        self._senders = set(everyone) - {link.me}
        self._unread: dict[tuple[Party, str, int], Message] = {}
        self._seen: set[tuple[Party, str, int]] = set()
        self._waiting: Counter[Party] = Counter()
        self.gone: dict[Party, Drop] = {}
        """Senders from whom nothing more is expected, and why."""
        self.discarded: Counter[str] = Counter()
        """Envelopes thrown away unread, by reason."""

    def deliver(self, data: bytes) -> Message | None:
        """Takes in the bytes of one envelope; returns the message if it counts."""
        try:
            envelope = self._codec.read(data)
        except WireError:
            self.discarded["not an envelope"] += 1
            return None
        address = envelope.address
        place = (address.sender, address.kind, address.step)
        if address.to != self._link.me or address.sender not in self._senders:
            self.discarded["misdirected"] += 1
        elif (address.session, address.round) != (self._link.session, self._link.round):
            self.discarded["from another round"] += 1
        elif place in self._seen:
            self.discarded["replayed"] += 1
        elif address.sender in self.gone:
            self.discarded["from an excluded sender"] += 1
        else:
            try:
                payload = self._codec.open(self._suite, self._suite.channel(address.sender, address.session), envelope)
            except WireError:
                self.discarded["not authentic"] += 1
                return None
            self._seen.add(place)
            return self._accept(place, payload)
        return None

    def _accept(self, place: tuple[Party, str, int], payload: bytes) -> Message | None:
        sender, kind, _ = place
        try:
            message = self._codec.decode(kind, payload)
        except WireError:
            self.gone[sender] = Drop.MALFORMED
            return None
        if isinstance(message, Abort):
            self.gone[sender] = Drop.ABORTED
        elif self._waiting[sender] >= MAX_UNREAD:
            self.gone[sender] = Drop.BROKE_RULES
        else:
            self._unread[place] = message
            self._waiting[sender] += 1
        return message

    def ready(self, wait: Wait) -> bool:
        """Says whether every awaited sender has answered or is gone."""
        return all(self._place(wait, sender) or sender in self.gone for sender in wait.senders)

    def collect(self, wait: Wait) -> Arrived:
        """Returns what came for a wait that is over, by readiness or by deadline."""
        messages: dict[Party, Message] = {}
        missing: dict[Party, Drop] = {}
        for sender in wait.senders:
            place = self._place(wait, sender)
            if place:
                self._waiting[sender] -= 1
                messages[sender] = self._unread.pop(place)
            else:
                missing[sender] = self.gone.get(sender, Drop.SILENT)
        return Arrived(messages, missing)

    def _place(self, wait: Wait, sender: Party) -> tuple[Party, str, int] | None:
        for kind in wait.kinds:
            place = (sender, kind.__name__, wait.step)
            if place in self._unread:
                return place
        return None
