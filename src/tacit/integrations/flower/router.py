"""Whose turn it is in a round that somebody else carries: who waits for mail, and whose time is up.

Whoever carries mail on Flower calls parties and is never called by them, and so says itself when a wait is over: when
nothing more is under way that could end it. It has a clock for that which only its own calls move, as the simulator
has, so that waits end in the order of what they were given. What it could do by lying about it any network can.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tacit.core.suite import Party
from tacit.integrations.flower.party import Said
from tacit.runtime.faults import LATENCY, PHASE

SPARE = 16
"""Calls that a party may take more."""


@dataclass
class Errand:
    """What a party is to be told."""

    mail: list[bytes] = field(default_factory=list)
    expired: int = 0
    """The number of the wait that is over; 0 if none is."""


class Router:
    """One round, as whoever carries it sees it."""

    def __init__(self, parties: Iterable[Party]) -> None:
        """Knows who was begun, the server last."""
        self.clock = 0.0
        self._mail: dict[Party, list[bytes]] = {party: [] for party in parties}
        self._until: dict[Party, tuple[int, float]] = {}
        """The present wait of each who has one, and when it ends."""
        self._begun, self._called, self._over = len(self._mail), Counter[Party](), set[Party]()

    def take(self, party: Party, said: Said) -> None:
        """Takes what a party said."""
        before = self._until.pop(party, None)
        if said.over:
            self._over.add(party)
        else:
            again = before is not None and before[0] == said.waits
            until = before[1] if before is not None and again else self.clock + said.patience * PHASE
            self._until[party] = said.waits, until
        for mail in said.mail:
            if mail.to in self._mail and mail.to != party:
                self._mail[mail.to].append(mail.data)

    def lose(self, party: Party) -> None:
        """Counts on a party no longer."""
        self._until.pop(party, None)
        self._mail.pop(party, None)

    def turns(self) -> dict[Party, Errand]:
        """Returns what is to be done next; nothing if the round is over."""
        waiting = [party for party in self._mail if party in self._until]
        if not waiting:
            return {}
        if any(self._mail[party] for party in waiting):
            self.clock += LATENCY
        else:
            self.clock = max(self.clock, min(self._until[party][1] for party in waiting))
        turns = {}
        for party in waiting:
            waits, until = self._until[party]
            errand = Errand(self._mail[party], waits if until <= self.clock else 0)
            self._mail[party] = []
            if errand.mail or errand.expired:
                turns[party] = errand
        self._called.update(turns.keys())
        return turns

    def endless(self) -> list[Party]:
        """Returns who goes on and on while most are done: more than twice as often as any of these was called."""
        if 2 * len(self._over) <= self._begun:
            return []
        most = 2 * max(self._called[party] for party in self._over) + SPARE
        return [party for party in self._until if self._called[party] > most]
