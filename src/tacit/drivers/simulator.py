"""Plays all parties of a federation in one process: deterministic, on a virtual clock, with a plan of faults.

Same run, same bytes: with a seed, keys and choices follow from the seed *and* from all that was agreed, brought and
planned to go wrong up to the present round. So two runs of one seed have no key in common unless they are the same run
so far. There are no threads and no asyncio: a heap of events decides whose round moves next.
"""

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tacit.core.entropy import SEED_BYTES, Entropy, SeededEntropy, SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import framed
from tacit.core.messages import Envelope
from tacit.core.outcome import Ending
from tacit.core.protocol import Protocol, Role, State, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Identity, Roster
from tacit.crypto.suite import RealSuite
from tacit.drivers.agreement import Agreement, agree, terms_for
from tacit.drivers.faults import PHASE, TO_MESSAGES, Fault, arrivals, faults_from, flipped
from tacit.drivers.journal import Journal, fingerprint
from tacit.drivers.outcome import Outcome, merged
from tacit.drivers.recording import Holdings, Passed, Transcript
from tacit.drivers.round import Action, Post, Round, Saved
from tacit.drivers.seat import RealSeat, Seat
from tacit.protocols import find

NONCE_BYTES = 16


class Simulation:
    """The parties of an agreement, round after round."""

    def __init__(
        self,
        agreement: Agreement,
        seats: Mapping[Party, Seat],
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        twin: bool = False,
    ) -> None:
        """Takes everybody's seat. Without a seed, the seeds of rounds are those of the operating system.

        `twin` lets rounds follow from the seed alone, whatever is brought to them. It is for audits, whose run on
        symbols and whose run on numbers must choose alike, and for nobody whose vectors matter.
        """
        self.agreement, self.seats, self.faults = agreement, dict(seats), tuple(faults)
        self.number = 0
        """How many rounds were begun."""
        self.last: Played | None = None
        """The last round as it was played, to look into after an abort."""
        self._seed, self._record, self._twin = seed, record, twin
        self._story = repr(self.faults).encode()
        """What stands for all that a run with a seed depends on besides its agreement, round after round."""

    @classmethod
    def of(
        cls,
        protocol: str,
        parties: Sequence[Party],
        entries: int,
        *,
        seed: int | None = None,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        record: bool = False,
        stand_ins: Mapping[Party, Role] | None = None,
        twin: bool = False,
        **options: Any,
    ) -> "Simulation":
        """Returns a simulation for some options; raises ConfigError with every problem, or LeakRefused."""
        entry = find(protocol)
        kinds = [kind.__name__ for kind in entry.messages]
        planned, problems = faults_from(faults, entry.everyone(tuple(parties)), kinds)
        terms = terms_for(entry, parties, options, problems)
        return cls.on(entry, terms, entries, seed, planned, record=record, stand_ins=stand_ins, twin=twin)

    @classmethod
    def on(
        cls,
        protocol: Protocol,
        terms: Terms,
        entries: int,
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        stand_ins: Mapping[Party, Role] | None = None,
        bits_played: int | None = None,
        twin: bool = False,
    ) -> "Simulation":
        """Returns a simulation on terms, with identities and a session of its own.

        `stand_ins` puts other coroutines in the place of some parties', for attacks and tests; `bits_played` plays in a
        finer ring than the one agreed on; `twin` is explained above.
        """
        everyone = protocol.everyone(terms.parties)
        identities = [Identity.generate(party, entropy_for(seed, f"identity {party}")) for party in everyone]
        nonce = entropy_for(seed, "session").bytes(NONCE_BYTES)
        agreement = agree(protocol, terms, Roster(identity.member() for identity in identities), entries, nonce)
        roles = stand_ins or {}
        seats = {
            each.name: RealSeat(agreement, each, role=roles.get(each.name), bits=bits_played, record=record)
            for each in identities
        }
        return cls(agreement, seats, seed, faults, record=record, twin=twin)

    @property
    def parties(self) -> tuple[Party, ...]:
        """Those who bring vectors."""
        return self.agreement.parties

    @property
    def states(self) -> dict[Party, State]:
        """What each party has saved."""
        return {party: seat.state for party, seat in self.seats.items()}

    def seed_of(self, party: Party, number: int) -> bytes:
        """Returns the seed of a party's round: fresh, or the one that follows from the run so far."""
        path = () if self._twin else (self.agreement.session,)
        return entropy_for(self._seed, f"party {party} round {number}", *path).bytes(SEED_BYTES)

    def _renew(self, updates: Mapping[Party, Update]) -> None:
        """Begins a session of a seed and of all that was brought so far, so that no other run has its keys."""
        brought = (fingerprint(updates[party]) for party in self.parties)
        states = (self.agreement.protocol.encode_state(seat.state) for seat in self.seats.values())
        played = (_by_whom(seat) for seat in self.seats.values())
        self._story = hashlib.sha256(framed(self._story, *brought, *states, *played)).digest()
        nonce = entropy_for(self._seed, "session", self._story).bytes(NONCE_BYTES)
        self.agreement = replace(self.agreement, nonce=nonce)
        for seat in self.seats.values():
            seat.agreement = self.agreement

    def average(self, updates: Mapping[Party, Update]) -> Outcome:
        """Plays one round and returns its outcome; raises what was first to go wrong if it failed."""
        if updates.keys() != set(self.parties):
            raise ConfigError(f"a round takes an update of each of {', '.join(self.parties)}, and of nobody else")
        weights = {update.weight for update in updates.values() if isinstance(update.weight, int | float)}
        if len(weights) > 1 and not self.agreement.settings.weighted and self.agreement.protocol.server is None:
            raise ConfigError(
                "parties have different weights; pass weighted=True, for everybody must know that they may"
            )
        if self._seed is not None and not self._twin:
            self._renew(updates)
        self.number += 1
        faults = [fault for fault in self.faults if fault.round in (None, self.number)]
        self.last = played = Played(self, self.number, faults, record=self._record)
        played.run(updates)
        outcome = merged(self.agreement, played.endings, played.crashed, played.ended)
        outcome.seconds, outcome.transcript, outcome.seed = played.clock, played.transcript, self._seed
        return outcome


def _by_whom(seat: Seat) -> bytes:
    """Returns what tells apart seats that play one party otherwise: by another coroutine, or in a finer ring."""
    names = (getattr(seat.role, name, "") for name in ("__module__", "__qualname__"))
    return " ".join([*names, str(getattr(seat, "bits", None))]).encode()


def entropy_for(seed: int | None, *purpose: str | bytes) -> Entropy:
    """Returns the operating system's entropy, or that of a seed for one purpose."""
    return SystemEntropy() if seed is None else SeededEntropy(seed, *purpose)


# --- one round -----------------------------------------------------------------------------------------------------


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


class Played:
    """One round, played to its end."""

    def __init__(self, simulation: Simulation, number: int, faults: Sequence[Fault], *, record: bool) -> None:
        self.number, self.clock, self.seats = number, 0.0, simulation.seats
        self.waiting = set(self.seats)
        """Those who have neither finished nor given up nor crashed."""
        self.crashed: set[Party] = set()
        self.ended: list[Party] = []
        """Those who have finished or given up, in that order."""
        self.rounds: dict[Party, Round] = {}
        self.endings: dict[Party, Ending] = {}
        bits = next((seat.bits for seat in self.seats.values() if isinstance(seat, RealSeat)), None)
        self.transcript = Transcript(simulation.agreement, bits) if record else None
        self._seed_of = simulation.seed_of
        self._updates: Mapping[Party, Update] = {}
        self._on_messages = [fault for fault in faults if fault.action in TO_MESSAGES]
        self._on: dict[Party, list[Fault]] = {party: [] for party in self.seats}
        for fault in faults:
            if fault.action not in TO_MESSAGES:
                for party in self.seats if fault.party is None else [fault.party]:
                    self._on[party].append(fault)
        self._mute = {party for party, on in self._on.items() if any(fault.mutes(number, party) for fault in on)}
        restarting = [party for party, on in self._on.items() if any(fault.action == "restart" for fault in on)]
        self._journals = {party: Journal() for party in restarting}
        self._unbegun = {party: self.seats[party].rebuilt() for party in restarting}
        """Their seats before the round, none of which is begun itself."""
        self._down: dict[Party, list[Arrival]] = {}
        """Those who were cut off and will be back, and what came for them, which nobody acknowledged."""
        self._average: Any = None
        self._posts = self._scheduled = 0
        self._events: list[tuple[float, int, Party, Event]] = []

    def run(self, updates: Mapping[Party, Update]) -> None:
        """Runs until every party has finished, given up or crashed. Ends because every wait has a deadline."""
        self._updates = updates
        try:
            for party in self.seats:
                self._begin(party)
            while self._events and self.waiting:
                self.clock, _, party, event = heapq.heappop(self._events)
                self._happen(party, event)
        finally:
            for round_ in self.rounds.values():
                round_.close()
            for seat in self.seats.values():
                if seat.round is None or not seat.round.over:
                    seat.give_up()  # it crashed, or somebody's programming error or an interrupt ended the simulation
                seat.number = self.number  # also of those who had not begun, or they would be behind for good
            # In the order of the roster, whoever ended first.
            self.endings = {party: self.endings.get(party) or each.ending for party, each in self.rounds.items()}
            if self.transcript is not None:
                self.transcript.holdings = {
                    party: _holdings(seat, self.rounds[party])
                    for party, seat in self.seats.items()
                    if isinstance(seat, RealSeat) and party in self.rounds
                }

    def _begin(self, party: Party) -> None:
        seat = self.seats[party]
        before = Before(seat.state, 0, 0)
        actions = seat.begin(self._updates.get(party), self._seed_of(party, self.number), self.clock)
        self.rounds[party] = _present(seat)
        self._perform(party, actions, before)

    def _happen(self, party: Party, event: Event) -> None:
        if party in self._down:
            if isinstance(event, Restart):
                self._resume(party)
            elif isinstance(event, Arrival):
                self._down[party].append(event)
            return
        if party in self.crashed:
            return
        seat, round_ = self.seats[party], self.rounds[party]
        before = Before(seat.state, round_.effects, round_.waits, event)
        if isinstance(event, Arrival):
            self._perform(party, seat.deliver(self._carried(event), self.clock), before)
        elif isinstance(event, Deadline) and event.wait == round_.waits:
            self._perform(party, seat.expire(self.clock), before)

    @staticmethod
    def _carried(arrival: Arrival) -> bytes:
        """Returns the bytes that arrive. They are sealed only now, so that there are never many at once."""
        return arrival.data

    # --- what parties do -------------------------------------------------------------------------------------------

    def _perform(self, party: Party, actions: Sequence[Action], before: "Before") -> None:
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

    def _cut(self, party: Party, actions: Sequence[Action], before: "Before") -> tuple[int, Fault | None]:
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

    def _stop(self, party: Party, fault: Fault, state: State, before: "Before") -> None:
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
        self.seats[party].give_up(state)

    def _resume(self, party: Party) -> None:
        """Rebuilds a party from what the contract says is on disk, and nothing else."""
        written, waiting = self._journals[party], self._down.pop(party)
        journal = Journal.decode(written.encode(), written.tip)
        self.rounds[party].close()
        # Without a record nothing of the round was ever said, and the disk has the seat as it was before it.
        self.seats[party] = seat = (self.seats if journal.records else self._unbegun)[party].rebuilt()
        if not journal.records:
            self._begin(party)
        else:
            posts = seat.resume(journal, self._updates.get(party), self.clock)
            self.rounds[party] = _present(seat)
            # What it had saved is on its disk, also if it is cut off again while it says all that once more.
            self._perform(party, posts, Before(seat.state, 0, 0))
        for arrival in waiting:
            self._happen(party, arrival)

    def _end(self, party: Party) -> None:
        if party in self.waiting:
            self.waiting.discard(party)
            self.ended.append(party)
            self.endings[party] = self._shared(self.rounds[party].ending)

    def _shared(self, ending: Ending) -> Ending:
        """Lets parties that ended with the same average have one copy of it, which nobody may then change."""
        vector = ending.average
        if isinstance(vector, np.ndarray) and vector.dtype != object:
            if isinstance(self._average, np.ndarray) and np.array_equal(vector, self._average):
                return replace(ending, average=self._average)
            vector.flags.writeable = False
            self._average = vector
        return ending

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


@dataclass(slots=True)
class Before:
    """How a party stood before a call."""

    state: State
    effects: int
    waits: int
    event: Event | None = None


def _present(seat: Seat) -> Round:
    if seat.round is None:
        raise ConfigError(f"{seat.me} is in no round")
    return seat.round


def _holdings(seat: RealSeat, round_: Round) -> Holdings:
    suite = round_.suite
    made = tuple(secret.reveal() for secret in suite.made) if isinstance(suite, RealSuite) else ()
    identity = seat.identity.signing.reveal(), seat.identity.channel.reveal()
    return Holdings(round_.begun.update, identity, made, tuple(getattr(suite.entropy, "drawn", ())))
