"""Message router of a round on Flower. It decides which node to call next, with which messages, and which waits end.

On Flower the server calls nodes, and nodes never call the server. So the router decides when a wait times out: when no
message is on its way that could end it. It has a virtual clock that only its own calls advance, as the simulator has,
so that waits end in the order of their deadlines. By wrong decisions a malicious router gains no more than any
malicious network does.

If parties exchange messages with the server only, nothing that they send after the server has finished has a receiver.
So the round is over then, and what the server sent last, such as the announcement of the sum, is left to be delivered
with the next message to each party (`take_last_messages`). No round waits for it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tacit.core.suite import SERVER, Party
from tacit.integrations.flower.party import StepResult
from tacit.runtime.simulation.faults import LATENCY, PHASE

SPARE = 16
"""Number of calls beyond twice those of the other parties after which a party counts as endless."""


@dataclass
class NodeCall:
    """Input of the next call to a party."""

    messages: list[bytes] = field(default_factory=list)
    expired: int = 0
    """Number of the wait that has timed out; 0 if none has."""


class Router:
    """State of one round, as the server that carries its messages sees it."""

    def __init__(self, parties: Iterable[Party], *, is_star: bool = False) -> None:
        """Starts with the parties that were asked to begin, the server last.

        Args:
            parties: The parties.
            is_star: Whether they exchange messages with the server only.
        """
        self.clock, self._is_star = 0.0, is_star
        self._messages: dict[Party, list[bytes]] = {party: [] for party in parties}
        self._until: dict[Party, tuple[int, float]] = {}
        """Number and deadline of the current wait, for each party that waits."""
        self._expired: dict[Party, int] = {}
        """Number of the wait whose end each party was told of last."""
        self._stuck: set[Party] = set()
        self._begun, self._called, self._over = len(self._messages), Counter[Party](), set[Party]()

    def record_result(self, party: Party, result: StepResult) -> None:
        """Records the result of a call: queues its messages and notes what the party waits for."""
        before = self._until.pop(party, None)
        if result.over:
            self._over.add(party)
        else:
            if self._expired.get(party) == result.waits:
                self._stuck.add(party)  # No honest party still waits for what it was told is over.
            again = before is not None and before[0] == result.waits
            until = before[1] if before is not None and again else self.clock + result.patience * PHASE
            self._until[party] = result.waits, until
        for message in result.messages:
            if message.to in self._messages and message.to != party:
                self._messages[message.to].append(message.data)

    def drop_party(self, party: Party) -> None:
        """Removes a party that dropped out of the round."""
        self._until.pop(party, None)
        self._messages.pop(party, None)

    def next_calls(self) -> dict[Party, NodeCall]:
        """Returns the calls to make next; none if the round is over."""
        if self._is_star and SERVER in self._over:
            return {}
        waiting = [party for party in self._messages if party in self._until]
        if not waiting:
            return {}
        if any(self._messages[party] for party in waiting):
            self.clock += LATENCY
        else:
            self.clock = max(self.clock, min(self._until[party][1] for party in waiting))
        calls = {}
        for party in waiting:
            waits, until = self._until[party]
            call = NodeCall(self._messages[party], waits if until <= self.clock else 0)
            self._messages[party] = []
            if call.messages or call.expired:
                calls[party] = call
            if call.expired:
                self._expired[party] = call.expired
        self._called.update(calls.keys())
        return calls

    def take_last_messages(self) -> dict[Party, list[bytes]]:
        """Returns the messages that were not delivered to parties that still wait for some."""
        left = {party: self._messages[party] for party in self._until if self._messages.get(party)}
        for party in left:
            self._messages[party] = []
        return left

    def find_endless(self) -> list[Party]:
        """Returns parties that never finish.

        They still wait for what has timed out, or were called over twice as often as any finished party, once most have
        finished.
        """
        endless = [party for party in self._until if party in self._stuck]
        if 2 * len(self._over) > self._begun:
            most = 2 * max(self._called[party] for party in self._over) + SPARE
            endless += [party for party in self._until if self._called[party] > most and party not in self._stuck]
        return endless
