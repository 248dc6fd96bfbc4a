"""One round of a simulated federation.

There are no threads and no asyncio: a heap of events on a virtual clock decides which party advances next. Planned
faults determine what fails, and when.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from tacit.core.average import Ending
from tacit.core.entropy import RecordingEntropy
from tacit.core.errors import ConfigError
from tacit.core.messages import Envelope
from tacit.core.protocol import State
from tacit.core.suite import SERVER, Party, Update, Vector
from tacit.crypto.suite import RealSuite
from tacit.runtime.agreement import Agreement
from tacit.runtime.journal import Journal
from tacit.runtime.outcome import Outcome
from tacit.runtime.participant import KeyedParticipant, Participant
from tacit.runtime.round import Action, Post, Round, StateSaved
from tacit.runtime.simulation.faults import PHASE, TO_MESSAGES, Fault, flip_byte, plan_copies
from tacit.runtime.simulation.transcript import Holdings, SentEnvelope, Transcript


@dataclass(slots=True)
class Arrival:
    """Event: a copy of a message reaches its receiver. The position of a corrupted byte is given, if there is one."""

    post: Post
    corrupted_at: float | None = None

    @property
    def data(self) -> bytes:
        """The bytes that arrive."""
        return self.post.data if self.corrupted_at is None else flip_byte(self.post.data, self.corrupted_at)


@dataclass(slots=True)
class Deadline:
    """Event: a wait times out. Waits are identified by number."""

    wait: int


class Restart:
    """Event: a party that crashed restarts."""


Event: TypeAlias = Arrival | Deadline | Restart
Row: TypeAlias = NDArray[np.floating[Any]]
"""The row into which a party's average is written."""


@dataclass(slots=True)
class CallContext:
    """State of a party before a call."""

    state: State
    effects: int
    waits: int
    event: Event | None = None


class SimulatedRound:
    """One round of all participants, run to its end."""

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
        """Prepares a round.

        Args:
            agreement: The agreement of the parties.
            participants: The parties that run here. A restart replaces one of them by a rebuilt one.
            seed_of: Returns the seed of a party's round.
            number: The number of the round.
            faults: The planned faults. Faults of parties that run elsewhere are ignored.
            record: Whether a transcript is recorded.
            silent: Parties that receive messages and never send any.
            away: Parties that neither receive nor send.
            rows: The rows into which averages are written.
        """
        self.number, self.clock, self.participants = number, 0.0, participants
        self.away = frozenset(away)
        """Parties that do not begin the round."""
        self.waiting = set(self.participants) - self.away
        """Parties that have not finished, aborted or crashed."""
        self.crashed: set[Party] = set()
        self.ended: list[Party] = []
        """Parties that have finished or aborted, in the order in which they did."""
        self.rounds: dict[Party, Round] = {}
        self.endings: dict[Party, Ending] = {}
        bits = next((each.bits for each in participants.values() if isinstance(each, KeyedParticipant)), None)
        self.transcript = Transcript(agreement, bits) if record else None
        self._seed_of = seed_of
        self._updates: Mapping[Party, Update] = {}
        self._message_faults = [fault for fault in faults if fault.action in TO_MESSAGES]
        self._faults_by_sender: dict[Party, list[Fault]] = {}
        self._party_faults: dict[Party, list[Fault]] = {party: [] for party in self.participants}
        for fault in faults:
            if fault.action not in TO_MESSAGES:
                for party in self.participants if fault.party is None else self.participants.keys() & {fault.party}:
                    self._party_faults[party].append(fault)
        planned = self._party_faults.items()
        self._mute = {*silent, *(party for party, on in planned if any(fault.mutes(number, party) for fault in on))}
        restarting = [party for party, on in planned if any(fault.action == "restart" for fault in on)]
        self._journals = {party: Journal() for party in restarting}
        self._before_round = {party: self.participants[party].rebuild() for party in restarting}
        """State before the round of participants that will restart."""
        self._restarting: dict[Party, list[Arrival]] = {}
        """Crashed parties that will restart, with the unacknowledged messages for them."""
        self._average: Any = None
        self._rows, self._at_once = rows, False
        self._posts = self._scheduled = 0
        self._events: list[tuple[float, int, Party, Event]] = []

    def run(self, updates: Mapping[Party, Update]) -> None:
        """Runs until every party has finished, aborted or crashed. It terminates because every wait times out."""
        self._updates = updates
        # A common average is written when the round has succeeded. Individual averages are written at once, unless the
        # row may still be needed as another party's update.
        self._at_once = self._rows is not None and SERVER not in self.participants and _in_place(updates, self._rows)
        try:
            for party in self.participants:
                if party not in self.away:
                    self._begin(party)
            while self._events and self.waiting:
                self.clock, _, party, event = heapq.heappop(self._events)
                self._handle(party, event)
        finally:
            self._finish()

    def _finish(self) -> None:
        """Ends the round of every party, whatever its progress."""
        self._events.clear()  # otherwise pending messages stay in memory as long as this round is inspected
        for round_ in self.rounds.values():
            round_.close()
        for participant in self.participants.values():
            if participant.round is None or not participant.round.over:
                participant.give_up()  # it crashed, or an exception or an interrupt ended the simulation
            participant.number = self.number  # also for parties that did not begin, so that they do not fall behind
        # Endings are in the order of the roster, not in the order in which parties ended.
        self.endings = {party: self.endings.get(party) or each.ending for party, each in self.rounds.items()}
        if self.transcript is not None:
            self.transcript.holdings = {
                party: _holdings(participant, self.rounds[party])
                for party, participant in self.participants.items()
                if isinstance(participant, KeyedParticipant) and party in self.rounds
            }

    def _begin(self, party: Party) -> None:
        participant = self.participants[party]
        before = CallContext(participant.state, 0, 0)
        actions = participant.begin(self._updates.get(party), self._seed_of(party, self.number), self.clock)
        self.rounds[party] = _current_round(participant)
        self._perform(party, actions, before)

    def _handle(self, party: Party, event: Event) -> None:
        if party in self._restarting:
            if isinstance(event, Restart):
                self._resume(party)
            elif isinstance(event, Arrival):
                self._restarting[party].append(event)
            return
        if party in self.crashed or party in self.away:
            return
        participant, round_ = self.participants[party], self.rounds[party]
        before = CallContext(participant.state, round_.effects, round_.waits, event)
        if isinstance(event, Arrival):
            # Messages are sealed on arrival, so that few sealed ones are in memory at once.
            self._perform(party, participant.deliver(event.data, self.clock), before)
        elif isinstance(event, Deadline) and event.wait == round_.waits:
            self._perform(party, participant.expire(self.clock), before)

    # --- actions of parties ----------------------------------------------------------------------------------------

    def _perform(self, party: Party, actions: Sequence[Action], before: CallContext) -> None:
        """Performs the actions of a call. If the party crashes, it performs only those before the crash."""
        round_, cut, fault = self.rounds[party], len(actions), None
        if self._party_faults[party]:
            cut, fault = self._find_cut(party, actions, before)
        if party in self._journals and not (fault is not None and fault.unwritten):
            agreement = round_.agreement
            self._journals[party].record(agreement.protocol, agreement.session, party, actions)
        state = before.state
        for action in actions[:cut]:
            if isinstance(action, StateSaved):
                state = action.state
            elif isinstance(action, Post):
                self._send(party, action)
        if fault is not None:
            for action in actions[cut:]:
                if isinstance(action, Post):
                    round_.uncount_post(action)
            self._stop(party, fault, state, before)
        elif round_.over:
            self._end(party)
        elif round_.waits > before.waits and round_.wait is not None:
            self._schedule(round_.wait.patience * PHASE, party, Deadline(round_.waits))

    def _find_cut(self, party: Party, actions: Sequence[Action], before: CallContext) -> tuple[int, Fault | None]:
        """Returns the index of the action before which a party crashes, and the fault; None if it does not crash."""
        round_ = self.rounds[party]
        for fault in self._party_faults[party]:
            if fault.cuts(self.number, before.effects) and before.effects:
                return 0, fault
            for place, action in enumerate(actions):
                saves = isinstance(action, StateSaved) and fault.cuts(self.number, action.effect)
                sends = isinstance(action, Post) and fault.cuts(self.number, action.effect, action.to, action.kind)
                if saves or sends:
                    return (0 if fault.unwritten else place), fault
            # The last effect of a call is a wait, or the end of the round.
            waits = round_.wait is not None and round_.waits > before.waits
            ends = round_.over and round_.error is None
            if (waits or ends) and fault.cuts(self.number, round_.effects - waits):
                return (0 if fault.unwritten else len(actions)), fault
        return len(actions), None

    def _stop(self, party: Party, fault: Fault, state: State, before: CallContext) -> None:
        """Crashes a party, permanently or until it restarts."""
        if fault.action == "restart":
            self._party_faults[party] = [each for each in self._party_faults[party] if each is not fault]
            # The input of an unwritten call was not acknowledged either, so its sender sends it again.
            lost = [before.event] if fault.unwritten and isinstance(before.event, Arrival) else []
            self._restarting[party] = lost
            self._schedule(fault.seconds, party, Restart())
            return
        self.crashed.add(party)
        self.waiting.discard(party)
        self.endings[party] = replace(self.rounds[party].ending, average=None, contributors=(), error=None)
        self.participants[party].give_up(state)

    def _resume(self, party: Party) -> None:
        """Rebuilds a party using only the data that the contract keeps on disk."""
        written, waiting = self._journals[party], self._restarting.pop(party)
        journal = Journal.decode(written.encode(), written.tip)
        self.rounds[party].close()
        # Without a record, nothing of the round was sent, and the participant on disk is the one before the round.
        self.participants[party] = participant = (self.participants if journal.records else self._before_round)[
            party
        ].rebuild()
        if not journal.records:
            self._begin(party)
        else:
            posts = participant.resume(journal, self._updates.get(party), self.clock)
            self.rounds[party] = _current_round(participant)
            # Its saved state is on disk, even if it crashes again while it repeats its messages.
            self._perform(party, posts, CallContext(participant.state, 0, 0))
        for arrival in waiting:
            self._handle(party, arrival)

    def _end(self, party: Party) -> None:
        if party in self.waiting:
            self.waiting.discard(party)
            self.ended.append(party)
            round_ = self.rounds[party]
            if round_.average is not None:
                vector = round_.average.vector
                kept = self._write_row(party, vector) if self._at_once else self._share_average(vector)
                round_.average = replace(round_.average, vector=kept)  # which frees the original vector
            self.endings[party] = round_.ending

    def _share_average(self, vector: Vector) -> Vector:
        """Returns one shared, read-only copy for all parties with the same average."""
        if isinstance(vector, np.ndarray) and vector.dtype != object:
            if isinstance(self._average, np.ndarray) and np.array_equal(vector, self._average):
                return self._average
            vector.flags.writeable = False
            self._average = vector
        return vector

    def _write_row(self, party: Party, vector: Vector) -> Vector:
        """Writes an average into its row, and returns the row."""
        if self._rows is None:
            return vector
        row = self._rows[party]
        np.copyto(row, vector, casting="same_kind")
        return row

    def place_averages(self, outcome: Outcome) -> Outcome:
        """Writes every average into its row, if there are rows, and returns the outcome."""
        if self._rows is None or self._at_once:
            return outcome
        for party, vector in outcome.average.items():
            row, round_ = self._write_row(party, vector), self.rounds.get(party)
            if round_ is not None and round_.average is not None:
                round_.average = replace(round_.average, vector=row)
            outcome.average[party] = row
            outcome.endings[party] = self.endings[party] = replace(self.endings[party], average=row)
        self._average = None
        return outcome

    def _send(self, party: Party, post: Post) -> None:
        number, self._posts = self._posts, self._posts + 1
        if party in self._mute:
            self.rounds[party].uncount_post(post)
            return
        if party not in self._faults_by_sender:
            planned = [fault for fault in self._message_faults if fault.party in (None, party)]
            self._faults_by_sender[party] = planned
        planned = self._faults_by_sender[party]
        hit = [fault for fault in planned if fault.hits(self.number, number, party, post.to, post.kind)]
        copies = plan_copies(hit)
        if self.transcript is not None:
            self.transcript.passed.append(SentEnvelope(self.clock, Envelope(post.address, post.sealed), bool(copies)))
        for delay, corrupted_at in copies:
            self._schedule(delay, post.to, Arrival(post, corrupted_at))

    def _schedule(self, delay: float, party: Party, event: Event) -> None:
        # The sequence number keeps simultaneous events in the order in which they were scheduled.
        self._scheduled += 1
        heapq.heappush(self._events, (self.clock + delay, self._scheduled, party, event))


def _in_place(updates: Mapping[Party, Update], rows: Mapping[Party, Row]) -> bool:
    """Returns whether no update overlaps the row of another party."""
    bounds = [byte_bounds(row) for row in rows.values()]
    first, last = min(low for low, _ in bounds), max(high for _, high in bounds)
    for party, update in updates.items():
        vector, row = np.asarray(update.vector), rows[party]
        low, high = byte_bounds(vector)
        if low < last and high > first and (low, high, vector.strides) != (*byte_bounds(row), row.strides):
            return False
    return True


def _current_round(participant: Participant) -> Round:
    if participant.round is None:
        raise ConfigError(f"{participant.me} is in no round")
    return participant.round


def _holdings(participant: KeyedParticipant, round_: Round) -> Holdings:
    suite = round_.suite
    made = tuple(secret.reveal() for secret in suite.made) if isinstance(suite, RealSuite) else ()
    identity = participant.identity.signing.reveal(), participant.identity.channel.reveal()
    recorded = suite.entropy.recorded if isinstance(suite.entropy, RecordingEntropy) else ()
    return Holdings(round_.begun.update, identity, made, tuple(recorded))
