"""One round of a simulated federation, played to its end.

There are no threads and no asyncio: a heap of events on a virtual clock decides whose round moves next. What goes wrong
on the way, and when, is in the plan of faults.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from tacit.core.average import Ending
from tacit.core.errors import ConfigError
from tacit.core.messages import Envelope
from tacit.core.protocol import State
from tacit.core.suite import SERVER, Party, Update, Vector
from tacit.crypto.suite import RealSuite
from tacit.runtime.agreement import Agreement
from tacit.runtime.faults import PHASE, TO_MESSAGES, Fault, arrivals, flipped
from tacit.runtime.journal import Journal
from tacit.runtime.outcome import Outcome
from tacit.runtime.participant import KeyedParticipant, Participant
from tacit.runtime.round import Action, Post, Round, Saved
from tacit.runtime.transcript import Holdings, Passed, Transcript


@dataclass(slots=True)
class Arrival:
    """A copy of a message that reaches its receiver, and where it was bent on the way."""

    post: Post
    bent: float | None = None

    @property
    def data(self) -> bytes:
        """The bytes that arrive."""
        return self.post.data if self.bent is None else flipped(self.post.data, self.bent)


@dataclass(slots=True)
class Deadline:
    """The end of a wait, by its number."""

    wait: int


class Restart:
    """A party that was cut off is back."""


Event: TypeAlias = Arrival | Deadline | Restart
Row: TypeAlias = NDArray[np.floating[Any]]
"""Where the average of a party is written."""


@dataclass(slots=True)
class Before:
    """How a party stood before a call."""

    state: State
    effects: int
    waits: int
    event: Event | None = None


class SimulatedRound:
    """One round, played to its end."""

    def __init__(
        self,
        agreement: Agreement,
        participants: dict[Party, Participant],
        seed_of: Callable[[Party, int], bytes],
        number: int,
        faults: Sequence[Fault],
        *,
        record: bool,
        silent: Collection[Party] = (),
        away: Collection[Party] = (),
        rows: Mapping[Party, Row] | None = None,
    ) -> None:
        """Takes all participants, in which a restart puts a rebuilt one, and what gives the seed of a party's round.

        Who is `silent` listens and never answers; who is `away` does neither. Averages are written into the rows. What
        goes wrong with those who have no participant here is left out: they are played elsewhere.
        """
        self.number, self.clock, self.participants = number, 0.0, participants
        self.away = frozenset(away)
        """Those who do not begin."""
        self.waiting = set(self.participants) - self.away
        """Those who have neither finished nor given up nor crashed."""
        self.crashed: set[Party] = set()
        self.ended: list[Party] = []
        """Those who have finished or given up, in that order."""
        self.rounds: dict[Party, Round] = {}
        self.endings: dict[Party, Ending] = {}
        bits = next((participant.bits for participant in self.participants.values() if isinstance(participant, KeyedParticipant)), None)
        self.transcript = Transcript(agreement, bits) if record else None
        self._seed_of = seed_of
        self._updates: Mapping[Party, Update] = {}
        self._on_messages = [fault for fault in faults if fault.action in TO_MESSAGES]
        self._on: dict[Party, list[Fault]] = {party: [] for party in self.participants}
        for fault in faults:
            if fault.action not in TO_MESSAGES:
                for party in self.participants if fault.party is None else self.participants.keys() & {fault.party}:
                    self._on[party].append(fault)
        self._mute = {party for party, on in self._on.items() if any(fault.mutes(number, party) for fault in on)}
        self._mute |= set(silent)
        restarting = [party for party, on in self._on.items() if any(fault.action == "restart" for fault in on)]
        self._journals = {party: Journal() for party in restarting}
        self._unbegun = {party: self.participants[party].rebuild() for party in restarting}
        """Their participants before the round, none of which is begun itself."""
        self._down: dict[Party, list[Arrival]] = {}
        """Those who were cut off and will be back, and what came for them, which nobody acknowledged."""
        self._average: Any = None
        self._rows, self._at_once = rows, False
        self._posts = self._scheduled = 0
        self._events: list[tuple[float, int, Party, Event]] = []

    def run(self, updates: Mapping[Party, Update]) -> None:
        """Runs until every party has finished, given up or crashed. Ends because every wait has a deadline."""
        self._updates = updates
        # One average for all is written once it is certain that the round has not failed; others as soon as they are
        # there, unless somebody else might still have to read what lies in their place.
        self._at_once = self._rows is not None and SERVER not in self.participants and _in_place(updates, self._rows)
        try:
            for party in self.participants:
                if party not in self.away:
                    self._begin(party)
            while self._events and self.waiting:
                self.clock, _, party, event = heapq.heappop(self._events)
                self._happen(party, event)
        finally:
            self._finish()

    def _finish(self) -> None:
        """Ends everybody's round where it stands."""
        self._events.clear()  # what is still under way would be held for as long as this round is looked into
        for round_ in self.rounds.values():
            round_.close()
        for participant in self.participants.values():
            if participant.round is None or not participant.round.over:
                participant.give_up()  # it crashed, or somebody's programming error or an interrupt ended the simulation
            participant.number = self.number  # also of those who had not begun, or they would be behind for good
        # In the order of the roster, whoever ended first.
        self.endings = {party: self.endings.get(party) or each.ending for party, each in self.rounds.items()}
        if self.transcript is not None:
            self.transcript.holdings = {
                party: _holdings(participant, self.rounds[party])
                for party, participant in self.participants.items()
                if isinstance(participant, KeyedParticipant) and party in self.rounds
            }

    def _begin(self, party: Party) -> None:
        participant = self.participants[party]
        before = Before(participant.state, 0, 0)
        actions = participant.begin(self._updates.get(party), self._seed_of(party, self.number), self.clock)
        self.rounds[party] = _present(participant)
        self._perform(party, actions, before)

    def _happen(self, party: Party, event: Event) -> None:
        if party in self._down:
            if isinstance(event, Restart):
                self._resume(party)
            elif isinstance(event, Arrival):
                self._down[party].append(event)
            return
        if party in self.crashed or party in self.away:
            return
        participant, round_ = self.participants[party], self.rounds[party]
        before = Before(participant.state, round_.effects, round_.waits, event)
        if isinstance(event, Arrival):
            self._perform(party, participant.deliver(self._carried(event), self.clock), before)
        elif isinstance(event, Deadline) and event.wait == round_.waits:
            self._perform(party, participant.expire(self.clock), before)

    @staticmethod
    def _carried(arrival: Arrival) -> bytes:
        """Returns the bytes that arrive. They are sealed only now, so that there are never many at once."""
        return arrival.data

    # --- what parties do -------------------------------------------------------------------------------------------

    def _perform(self, party: Party, actions: Sequence[Action], before: Before) -> None:
        """Does what a call returned, up to where its party is cut off if it is."""
        round_, cut, fault = self.rounds[party], len(actions), None
        if self._on[party]:
            cut, fault = self._cut(party, actions, before)
        if party in self._journals and not (fault is not None and fault.unwritten):
            agreement = round_.agreement
            self._journals[party].record(agreement.protocol, agreement.session, party, actions)
        state = before.state
        for action in actions[:cut]:
            if isinstance(action, Saved):
                state = action.state
            elif isinstance(action, Post):
                self._send(party, action)
        if fault is not None:
            for action in actions[cut:]:
                if isinstance(action, Post):
                    round_.unsent(action)
            self._stop(party, fault, state, before)
        elif round_.over:
            self._end(party)
        elif round_.waits > before.waits and round_.wait is not None:
            self._schedule(round_.wait.patience * PHASE, party, Deadline(round_.waits))

    def _cut(self, party: Party, actions: Sequence[Action], before: Before) -> tuple[int, Fault | None]:
        """Returns before which action a party is cut off, and by what; after all of them, by nothing, if it is not."""
        round_ = self.rounds[party]
        for fault in self._on[party]:
            if fault.cuts(self.number, before.effects) and before.effects:
                return 0, fault
            for place, action in enumerate(actions):
                saves = isinstance(action, Saved) and fault.cuts(self.number, action.effect)
                sends = isinstance(action, Post) and fault.cuts(self.number, action.effect, action.to, action.kind)
                if saves or sends:
                    return (0 if fault.unwritten else place), fault
            # It was about to wait, which is the last of its effects so far, or to end.
            waits = round_.wait is not None and round_.waits > before.waits
            ends = round_.over and round_.error is None
            if (waits or ends) and fault.cuts(self.number, round_.effects - waits):
                return (0 if fault.unwritten else len(actions)), fault
        return len(actions), None

    def _stop(self, party: Party, fault: Fault, state: State, before: Before) -> None:
        """Cuts a party off, for good or until it is back."""
        if fault.action == "restart":
            self._on[party] = [each for each in self._on[party] if each is not fault]
            # What it was told in the call that is not on disk was not acknowledged either, and will be sent again.
            lost = [before.event] if fault.unwritten and isinstance(before.event, Arrival) else []
            self._down[party] = lost
            self._schedule(fault.seconds, party, Restart())
            return
        self.crashed.add(party)
        self.waiting.discard(party)
        self.endings[party] = replace(self.rounds[party].ending, average=None, contributors=(), error=None)
        self.participants[party].give_up(state)

    def _resume(self, party: Party) -> None:
        """Rebuilds a party from what the contract says is on disk, and nothing else."""
        written, waiting = self._journals[party], self._down.pop(party)
        journal = Journal.decode(written.encode(), written.tip)
        self.rounds[party].close()
        # Without a record nothing of the round was ever said, and the disk has the participant as it was before it.
        self.participants[party] = participant = (self.participants if journal.records else self._unbegun)[party].rebuild()
        if not journal.records:
            self._begin(party)
        else:
            posts = participant.resume(journal, self._updates.get(party), self.clock)
            self.rounds[party] = _present(participant)
            # What it had saved is on its disk, also if it is cut off again while it says all that once more.
            self._perform(party, posts, Before(participant.state, 0, 0))
        for arrival in waiting:
            self._happen(party, arrival)

    def _end(self, party: Party) -> None:
        if party in self.waiting:
            self.waiting.discard(party)
            self.ended.append(party)
            round_ = self.rounds[party]
            if round_.average is not None:
                vector = round_.average.vector
                kept = self._written(party, vector) if self._at_once else self._shared(vector)
                round_.average = replace(round_.average, vector=kept)  # which frees the one that it came with
            self.endings[party] = round_.ending

    def _shared(self, vector: Vector) -> Vector:
        """Lets parties that ended with the same average have one copy of it, which nobody may then change."""
        if isinstance(vector, np.ndarray) and vector.dtype != object:
            if isinstance(self._average, np.ndarray) and np.array_equal(vector, self._average):
                return self._average
            vector.flags.writeable = False
            self._average = vector
        return vector

    def _written(self, party: Party, vector: Vector) -> Vector:
        """Writes an average into its row, and returns that."""
        if self._rows is None:
            return vector
        row = self._rows[party]
        np.copyto(row, vector, casting="same_kind")
        return row

    def settled(self, outcome: Outcome) -> Outcome:
        """Returns the outcome with every average in its row, if there are rows."""
        if self._rows is None or self._at_once:
            return outcome
        for party, vector in outcome.average.items():
            row, round_ = self._written(party, vector), self.rounds.get(party)
            if round_ is not None and round_.average is not None:
                round_.average = replace(round_.average, vector=row)
            outcome.average[party] = row
            outcome.endings[party] = self.endings[party] = replace(self.endings[party], average=row)
        self._average = None
        return outcome

    def _send(self, party: Party, post: Post) -> None:
        number, self._posts = self._posts, self._posts + 1
        if party in self._mute:
            self.rounds[party].unsent(post)
            return
        hit = [fault for fault in self._on_messages if fault.hits(self.number, number, party, post.to, post.kind)]
        copies = arrivals(hit)
        if self.transcript is not None:
            self.transcript.passed.append(Passed(self.clock, Envelope(post.address, post.sealed), bool(copies)))
        for delay, bent in copies:
            self._schedule(delay, post.to, Arrival(post, bent))

    def _schedule(self, delay: float, party: Party, event: Event) -> None:
        # The running number keeps events of the same moment in the order they were made.
        self._scheduled += 1
        heapq.heappush(self._events, (self.clock + delay, self._scheduled, party, event))


def _in_place(updates: Mapping[Party, Update], rows: Mapping[Party, Row]) -> bool:
    """Says whether nobody brings what lies in the row of somebody else."""
    bounds = [byte_bounds(row) for row in rows.values()]
    first, last = min(low for low, _ in bounds), max(high for _, high in bounds)
    for party, update in updates.items():
        vector, row = np.asarray(update.vector), rows[party]
        low, high = byte_bounds(vector)
        if low < last and high > first and (low, high, vector.strides) != (*byte_bounds(row), row.strides):
            return False
    return True


def _present(participant: Participant) -> Round:
    if participant.round is None:
        raise ConfigError(f"{participant.me} is in no round")
    return participant.round


def _holdings(participant: KeyedParticipant, round_: Round) -> Holdings:
    suite = round_.suite
    made = tuple(secret.reveal() for secret in suite.made) if isinstance(suite, RealSuite) else ()
    identity = participant.identity.signing.reveal(), participant.identity.channel.reveal()
    return Holdings(round_.begun.update, identity, made, tuple(getattr(suite.entropy, "drawn", ())))
