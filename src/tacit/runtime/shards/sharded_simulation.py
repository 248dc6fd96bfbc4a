"""Simulation whose parties run in shards. The clock, the message queue and the server run in this process."""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

from tacit.core.errors import ConfigError
from tacit.core.protocol import Protocol, State, Terms
from tacit.core.suite import Party, Update
from tacit.runtime.agreement import Agreement
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.shards.pool import ForkedShards, RayShards, ShardPool
from tacit.runtime.shards.shard import EventResult, PartyStart, ShardEvent, ShardMessage
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulated_round import Arrival, SimulatedRound
from tacit.runtime.simulation.simulator import Rows, Simulation, begin_session, identity_of, label_role

AT_ONCE = 32
"""Most events in one request to a shard."""
MOST_BYTES = 1 << 23
"""Approximate bytes in one request to a shard. Events and their results are held in memory twice in transit."""


class ShardedSimulation(Simulation):
    """The parties of an agreement across many rounds, in shards."""

    # Transcripts and stand-ins are not supported, because keys never leave their shard.
    driver_options = ("workers", "address", "twin")

    def __init__(
        self,
        agreement: Agreement,
        server: Mapping[Party, KeyedParticipant],
        pool: ShardPool,
        home: Mapping[Party, int],
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        twin: bool = False,
    ) -> None:
        """Creates a simulation with a pool of shards.

        Args:
            agreement: The agreement of the parties.
            server: The server's participant, if there is one.
            pool: The shards, which have all other participants.
            home: The number of each party's shard.
            seed: The seed of all keys and choices.
            faults: The planned faults of all rounds.
            twin: Whether rounds depend on the seed alone, for audits.
        """
        super().__init__(agreement, server, seed, faults, twin=twin)
        self.pool = pool
        self.home = dict(home)
        """The number of the shard of each party."""
        self.round_type = partial(ShardedRound, pool, self.home)

    @classmethod
    def on(  # type: ignore[override]
        cls,
        protocol: Protocol,
        terms: Terms,
        entries: int,
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        workers: int = 2,
        address: str | None = None,
        twin: bool = False,
    ) -> Self:
        """Returns a simulation on terms, with its own identities and session.

        Args:
            protocol: The protocol.
            terms: Its settings, bound to the parties.
            entries: The length of the vectors.
            seed: The seed of all keys and choices; without one they come from the operating system.
            faults: The planned faults.
            workers: The number of shards.
            address: The Ray cluster whose actors are the shards; without one they are forked processes.
            twin: Whether rounds depend on the seed alone, for audits.
        """
        if workers < 1:
            raise ConfigError(f"workers={workers} must be at least 1")
        parties = terms.parties
        count = min(workers, len(parties))
        bounds = [place * len(parties) // count for place in range(count + 1)]
        parts = [parties[low:high] for low, high in pairwise(bounds)]
        pool = ForkedShards(count) if address is None else RayShards(count, address)
        try:
            hosted = pool.ask_all(*(("create_identities", part, seed, twin) for part in parts))
            members = [each for some in hosted for each in some]
            servers = [identity_of(party, seed) for party in protocol.everyone(parties) if party not in parties]
            members += [identity.member() for identity in servers]
            agreement = begin_session(protocol, terms, members, entries, seed)
            pool.ask_all(("create_participants", agreement))
        except BaseException:
            pool.close()
            raise
        here = {identity.name: KeyedParticipant(agreement, identity) for identity in servers}
        home = {party: place for place, part in enumerate(parts) for party in part}
        return cls(agreement, here, pool, home, seed, faults, twin=twin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the shards, and discards the states of their parties."""
        self.pool.close()

    @property
    def states(self) -> dict[Party, State]:
        """The saved state of each party."""
        decode = self.agreement.protocol.decode_state
        return dict(zip(self.agreement.everyone, map(decode, self._encoded_states()), strict=True))

    def continue_from(self, number: int, states: Mapping[Party, State]) -> None:
        """Continues after a round, with the states that parties had saved at its end. Only a `twin` supports it."""
        if states.keys() != set(self.agreement.everyone):
            raise ConfigError("a run can be continued only with the states of all parties")
        super().continue_from(number, {party: states[party] for party in self.participants})
        encode = self.agreement.protocol.encode_state
        self.pool.ask_all(("restore_states", number, {party: encode(states[party]) for party in self.parties}))

    def bind_seeds(self, release: bytes) -> None:
        """Makes the seeds of a twin's next rounds depend on a digest of their updates."""
        super().bind_seeds(release)
        self.pool.ask_all(("bind_seeds", release))

    def join(self, agreement: Agreement) -> None:
        """Moves all participants to another session, which differs only in its nonce."""
        if agreement != replace(self.agreement, nonce=agreement.nonce):
            raise ConfigError("parties in shards keep their agreement; only its nonce can change")
        super().join(agreement)
        self.pool.ask_all(("join_session", agreement.nonce))

    def _encoded_states(self) -> Iterable[bytes]:
        remote = [state for some in self.pool.ask_all(("encode_states",)) for state in some]
        return [*remote, *super()._encoded_states()]

    def _role_labels(self) -> Iterable[bytes]:
        return [label_role() for _ in self.agreement.everyone]

    def _make_round(
        self, faults: Sequence[Fault], silent: Collection[Party], away: Collection[Party], rows: Rows | None
    ) -> SimulatedRound:
        self.pool.ask_all(("begin_round", self.number, faults, tuple(silent), tuple(away)))
        return super()._make_round(faults, silent, away, rows)


class ShardedRound(SimulatedRound):
    """One round whose parties run in shards."""

    def __init__(
        self, pool: ShardPool, home: Mapping[Party, int], agreement: Agreement, *args: Any, **options: Any
    ) -> None:
        super().__init__(agreement, *args, **options)
        self._pool, self._home, self._everyone = pool, home, agreement.everyone
        self.waiting |= self._home.keys() - self.away
        self._mail: list[deque[ShardEvent]] = []
        """Events of the present moment that each shard has not received yet."""
        self._next: list[list[ShardEvent]] = []
        """Events of the next request to each shard."""
        self._results: list[deque[EventResult]] = []
        """Results of the events of each shard that are not applied yet, in order."""

    def run(self, updates: Mapping[Party, Update]) -> None:
        """Runs until every party has finished, aborted or crashed."""
        self._updates = updates
        try:
            self._process_moment(
                [(party, PartyStart(updates.get(party))) for party in self._everyone if party not in self.away]
            )
            while self._events and self.waiting:
                self._process_moment(self._moment())
            remote = self._pool.ask_all(("finish_round",))
        except BaseException:
            self._pool.close()  # the progress of the shards is unknown
            raise
        finally:
            self._finish()
        endings = {party: ending for some in remote for party, ending in some.items()} | self.endings
        for party, ending in endings.items():
            if ending.average is not None:
                endings[party] = replace(ending, average=self._share_average(ending.average))
        self.endings = {party: endings[party] for party in self._everyone if party in endings}

    def _moment(self) -> list[ShardEvent]:
        """Returns all events of the next moment. Events that they cause are scheduled for later."""
        self.clock = self._events[0][0]
        found: list[ShardEvent] = []
        while self._events and self._events[0][0] == self.clock:
            _, _, party, event = heapq.heappop(self._events)
            found.append((party, event))
        return found

    def _process_moment(self, moment: Sequence[ShardEvent]) -> None:
        """Processes independent events in parallel, and applies their results in order."""
        count = self._pool.count
        self._mail, self._results = [deque() for _ in range(count)], [deque() for _ in range(count)]
        for party, event in moment:
            if party in self._home:
                self._mail[self._home[party]].append((party, event))
        self._next = [self._pack_events(mail) for mail in self._mail]
        for place in range(count):
            self._send_events(place)
        for party, event in moment:
            if not self.waiting:
                break
            if party in self._home:
                self._apply_result(party, self._next_result(self._home[party]))
            elif isinstance(event, PartyStart):
                self._begin(party)
            else:
                self._handle(party, event)
        while self._pool.busy:
            self._pool.next_answer()

    def _send_events(self, place: int) -> None:
        """Sends a shard its next request, and prepares the following one, so that the shard never waits for it."""
        if self._next[place]:
            self._pool.ask(place, "process_events", self.clock, self._next[place])
            self._next[place] = self._pack_events(self._mail[place])

    def _pack_events(self, mail: deque[ShardEvent]) -> list[ShardEvent]:
        packed: list[ShardEvent] = []
        size = 0
        while mail and len(packed) < AT_ONCE and size < MOST_BYTES:
            party, event = mail.popleft()
            if isinstance(event, Arrival):
                data = event.data
                event, size = Arrival(ShardMessage(event.post.address, data)), size + len(data)
            elif isinstance(event, PartyStart) and event.update is not None:
                size += getattr(event.update.vector, "nbytes", 0)
            packed.append((party, event))
        return packed

    def _next_result(self, place: int) -> EventResult:
        """Waits for the result of the next event at a shard, and returns it."""
        while not self._results[place]:
            other, result = self._pool.next_answer()
            self._send_events(other)
            self._results[other].extend(result)
        return self._results[place].popleft()

    def _apply_result(self, party: Party, result: EventResult) -> None:
        """Applies the result of an event at a party in a shard."""
        for each in result.effects:
            if isinstance(each, ShardMessage):
                self._send(party, each)
            elif each is None:
                self._posts += 1  # message numbers also count messages that are not sent
            else:
                self._schedule(each[0], party, each[1])
        if result.over and party in self.waiting:
            self.waiting.discard(party)
            if result.crashed:
                self.crashed.add(party)
            else:
                self.ended.append(party)
