"""Rounds between a few parties in one process, repeatable byte for byte, for writers and readers of golden files.

Every party has the identity in its file, every vector and seed follows from its party and round, and messages are
delivered in the order in which they were sent. So a release that plays the same rounds sends the same bytes.
"""

import hashlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tacit.core.suite import SERVER, Update
from tacit.net.store.round_store import RoundStore
from tacit.runtime.agreement import Agreement
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Post

ENTRIES = 3
FEDERATION = "golden"
SETTINGS = {
    "fedavg": {"participation": {"kind": "batches", "per_round": 2, "privacy": 2}},
    "secagg": {"threshold": 3},
    "gossip": {"share": 0.6, "sparsifier": "topk", "score": "change"},
    "admm": {"masked": True, "iterations": 2, "allow_leaks": True},
    "pushsum": {"masked": True},
    "cesar": {"share": 0.6, "sparsifier": "topk", "score": "change"},
    "rotating": {"stages": 2, "share": 0.6},
}
"""Settings of each protocol, chosen so that its states and messages have content."""
PARTIES = {"admm": 6, "rotating": 6}
"""How many parties there are, where it is not four."""


def names(protocol):
    return tuple(f"p{place}" for place in range(PARTIES.get(protocol, 4)))


def update_of(party, number):
    if party == SERVER:
        return None
    return Update(np.random.default_rng([number, int(party[1:])]).normal(size=ENTRIES))


def seed_of(party, number):
    return hashlib.sha256(f"golden {party} {number}".encode()).digest()


def digest_of(posts):
    """Returns a digest of envelopes as they travel, in their order."""
    digest = hashlib.sha256()
    for data in posts:
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()


def plain(value):
    """Returns a value as JSON has it, bytes in hex."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {key.hex() if isinstance(key, bytes) else str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def fields_of(struct):
    """Returns the fields of a message or a state, as JSON has them."""
    return {name: plain(getattr(struct, name)) for name in struct.__struct_fields__}


@dataclass
class Desk:
    """A party with its journal and, as long as it has one, its folder."""

    seat: KeyedParticipant
    store: RoundStore | None = None
    journal: Journal = field(default_factory=Journal)

    @classmethod
    def of(cls, agreement: Agreement, identity, folder: Path | None = None):
        """Returns a party that begins anew, or goes on from its folder, and what it says again."""
        if folder is None:
            return cls(KeyedParticipant(agreement, identity))
        store = RoundStore(folder, identity.name, FEDERATION)
        found = store.load(agreement.session)
        state, unfinished = found.state_of(agreement.protocol), found.journal is not None
        seat = KeyedParticipant(agreement, identity, number=found.number, state=state, unfinished=unfinished)
        return cls(seat, store, found.journal or Journal())

    def begin(self, number):
        update = update_of(self.seat.me, number)
        self.journal = Journal()
        return self._recorded(self.seat.begin(update, seed_of(self.seat.me, number)), update)

    def deliver(self, data):
        return self._recorded(self.seat.deliver(data))

    def expire(self):
        return self._recorded(self.seat.expire())

    def finish(self):
        """Writes down that the round is over."""
        if self.store is not None:
            seat, apart = self.seat, {}
            state = seat.agreement.protocol.encode_state(seat.state, (seat.me, seat.number), apart)
            self.store.finish(seat.number, state, seat.round.ending, apart=apart)

    def leave(self):
        """Closes the folder, and goes on without it."""
        self.store.close()
        self.store = None

    def _recorded(self, actions, update=None):
        agreement = self.seat.agreement
        record = self.journal.record(agreement.protocol, agreement.session, self.seat.me, actions)
        if record is not None and self.store is not None:
            if len(self.journal.records) == 1:
                self.store.begin(record, update, agreement.entries)
            else:
                self.store.record(record)
        return [action for action in actions if isinstance(action, Post)]


def play(desks, number, delivered=None):
    """Plays a round; returns what was sent, in its order. `delivered` is told of everything before it is delivered."""
    sent, queue = [], deque()

    def take(posts):
        sent.extend(posts)
        queue.extend((post.to, post.data) for post in posts)

    for desk in desks.values():
        take(desk.begin(number))
    while queue or any(desk.seat.round.wait is not None for desk in desks.values()):
        while queue:
            to, data = queue.popleft()
            if delivered is not None:
                delivered(to, data)
            take(desks[to].deliver(data))
        waiting = [desk for desk in desks.values() if desk.seat.round.wait is not None]
        if waiting:
            take(min(waiting, key=lambda desk: desk.seat.round.wait.patience).expire())
    for desk in desks.values():
        desk.finish()
    return sent
