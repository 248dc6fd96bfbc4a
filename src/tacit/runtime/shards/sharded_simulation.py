"""A simulation whose parties are spread over shards: the clock, the mail and the server are here."""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

from tacit.core.errors import ConfigError
from tacit.core.protocol import Protocol, State, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Roster
from tacit.protocols import find
from tacit.runtime.agreement import Agreement, agree, terms_for
from tacit.runtime.faults import Fault, faults_from
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.shards.pool import Actors, Forked, Pool
from tacit.runtime.shards.shard import Came, Given, Parcel, Start
from tacit.runtime.simulated_round import Arrival, SimulatedRound
from tacit.runtime.simulator import NONCE_BYTES, Rows, Simulation, by_whom, entropy_for, identity_of

AT_ONCE = 32
"""Events that a shard is brought at once, at most,"""
MOST_BYTES = 1 << 23
"""and about how many bytes: what is brought, and what comes of it, is held twice on the way."""


class ShardedSimulation(Simulation):
    """The parties of an agreement, round after round, in shards."""

    def __init__(
        self,
        agreement: Agreement,
        server: Mapping[Party, KeyedParticipant],
        pool: Pool,
        home: Mapping[Party, int],
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        twin: bool = False,
    ) -> None:
        """Takes the server's participant, if there is one, and the shards with everybody else's."""
        super().__init__(agreement, server, seed, faults, twin=twin)
        self.pool, self.home = pool, dict(home)
        """The shards, and which of them has whom."""

    @classmethod
    def of(  # nothing is recorded, for keys stay where they are, and nobody stands in
        cls,
        protocol: str,
        parties: Sequence[Party],
        entries: int,
        *,
        workers: int = 2,
        address: str | None = None,
        seed: int | None = None,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        twin: bool = False,
        **options: Any,
    ) -> "ShardedSimulation":
        """Returns a simulation for some options; raises ConfigError with every problem, or LeakRefused.

        Its parties are played by so many processes, or actors of the Ray cluster at an address.
        """
        entry = find(protocol)
        planned, problems = faults_from(faults, entry, parties)
        terms = terms_for(entry, parties, options, problems)
        return cls.on(entry, terms, entries, seed, planned, workers=workers, address=address, twin=twin)

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
    ) -> "ShardedSimulation":
        """Returns a simulation on terms, with identities and a session of its own."""
        if workers < 1:
            raise ConfigError(f"workers={workers} must be at least 1")
        parties = terms.parties
        count = min(workers, len(parties))
        bounds = [place * len(parties) // count for place in range(count + 1)]
        parts = [parties[low:high] for low, high in pairwise(bounds)]
        pool = Forked(count) if address is None else Actors(count, address)
        try:
            members = [each for some in pool.all(*(("host", part, seed, twin) for part in parts)) for each in some]
            servers = [identity_of(party, seed) for party in protocol.everyone(parties) if party not in parties]
            roster = Roster([*members, *(identity.member() for identity in servers)])
            agreement = agree(protocol, terms, roster, entries, entropy_for(seed, "session").bytes(NONCE_BYTES))
            pool.all(("sit", agreement))
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
        """Ends the shards, with all that parties have saved."""
        self.pool.close()

    @property
    def states(self) -> dict[Party, State]:
        """What each party has saved."""
        decode = self.agreement.protocol.decode_state
        return dict(zip(self.agreement.everyone, map(decode, self._encoded_states()), strict=True))

    def go_on(self, number: int, states: Mapping[Party, State]) -> None:
        """Goes on after so many rounds, with what parties had saved by then. Only a `twin` can."""
        if states.keys() != set(self.agreement.everyone):
            raise ConfigError("a run is gone on with by all of its parties")
        super().go_on(number, {party: states[party] for party in self.participants})
        encode = self.agreement.protocol.encode_state
        self.pool.all(("go_on", number, {party: encode(states[party]) for party in self.parties}))

    def join(self, agreement: Agreement) -> None:
        """Has everybody go on in a session, which differs from the one before in its nonce alone."""
        if agreement != replace(self.agreement, nonce=agreement.nonce):
            raise ConfigError("parties that are played elsewhere stay with what they agreed on, but for the nonce")
        super().join(agreement)
        self.pool.all(("join", agreement.nonce))

    def _encoded_states(self) -> Iterable[bytes]:
        apart = [state for some in self.pool.all(("states",)) for state in some]
        return [*apart, *super()._encoded_states()]

    def _by_whom(self) -> Iterable[bytes]:
        return [by_whom() for _ in self.agreement.everyone]

    def _played(
        self, faults: Sequence[Fault], silent: Collection[Party], away: Collection[Party], rows: Rows | None
    ) -> SimulatedRound:
        self.pool.all(("begin", self.number, faults, tuple(silent), tuple(away)))
        return Joint(self, faults, silent, away, rows)


class Joint(SimulatedRound):
    """One round, of which shards play the sides of their parties."""

    def __init__(
        self,
        simulation: ShardedSimulation,
        faults: Sequence[Fault],
        silent: Collection[Party],
        away: Collection[Party],
        rows: Rows | None,
    ) -> None:
        one = simulation
        super().__init__(
            one.agreement, one.participants, one.seed_of, one.number, faults, record=False, silent=silent, away=away, rows=rows
        )
        self._pool, self._home, self._everyone = one.pool, one.home, one.agreement.everyone
        self.waiting |= self._home.keys() - self.away
        self._mail: list[deque[Given]] = []
        """What has yet to happen at each shard in this moment,"""
        self._next: list[list[Given]] = []
        """what is brought to it next,"""
        self._came: list[deque[Came]] = []
        """and what came of what was, in the same order."""

    def run(self, updates: Mapping[Party, Update]) -> None:
        """Runs until every party has finished, given up or crashed."""
        self._updates = updates
        try:
            self._together([(party, Start(updates.get(party))) for party in self._everyone if party not in self.away])
            while self._events and self.waiting:
                self._together(self._moment())
            apart = self._pool.all(("finish",))
        except BaseException:
            self._pool.close()  # nobody knows where they stand
            raise
        finally:
            self._finish()
        endings = {party: ending for some in apart for party, ending in some.items()} | self.endings
        for party, ending in endings.items():
            if ending.average is not None:
                endings[party] = replace(ending, average=self._shared(ending.average))
        self.endings = {party: endings[party] for party in self._everyone if party in endings}

    def _moment(self) -> list[Given]:
        """Returns all that happens next at one time. What comes of it happens later, or is made later."""
        self.clock = self._events[0][0]
        found: list[Given] = []
        while self._events and self._events[0][0] == self.clock:
            _, _, party, event = heapq.heappop(self._events)
            found.append((party, event))
        return found

    def _together(self, moment: Sequence[Given]) -> None:
        """Lets things happen that do not depend on each other, and takes up what came of them in their order."""
        count = self._pool.count
        self._mail, self._came = [deque() for _ in range(count)], [deque() for _ in range(count)]
        for party, event in moment:
            if party in self._home:
                self._mail[self._home[party]].append((party, event))
        self._next = [self._packed(mail) for mail in self._mail]
        for place in range(count):
            self._bring(place)
        for party, event in moment:
            if not self.waiting:
                break
            if party in self._home:
                self._take(party, self._heard(self._home[party]))
            elif isinstance(event, Start):
                self._begin(party)
            else:
                self._happen(party, event)
        while self._pool.busy:
            self._pool.heard()

    def _bring(self, place: int) -> None:
        """Brings a shard what is packed for it, and packs what comes next, so that it need not wait for that."""
        if self._next[place]:
            self._pool.ask(place, "play", self.clock, self._next[place])
            self._next[place] = self._packed(self._mail[place])

    def _packed(self, mail: deque[Given]) -> list[Given]:
        packed: list[Given] = []
        size = 0
        while mail and len(packed) < AT_ONCE and size < MOST_BYTES:
            party, event = mail.popleft()
            if isinstance(event, Arrival):
                data = self._carried(event)
                event, size = Arrival(Parcel(event.post.address, data)), size + len(data)
            elif isinstance(event, Start) and event.update is not None:
                size += getattr(event.update.vector, "nbytes", 0)
            packed.append((party, event))
        return packed

    def _heard(self, place: int) -> Came:
        """Returns what came of the next event at a shard, once it is known."""
        while not self._came[place]:
            other, came = self._pool.heard()
            self._bring(other)
            self._came[other].extend(came)
        return self._came[place].popleft()

    def _take(self, party: Party, came: Came) -> None:
        """Does what a party elsewhere has come to."""
        for each in came.of:
            if isinstance(each, Parcel):
                self._send(party, each)
            elif each is None:
                self._posts += 1  # messages are counted, also those that are not sent
            else:
                self._schedule(each[0], party, each[1])
        if came.over and party in self.waiting:
            self.waiting.discard(party)
            if came.crashed:
                self.crashed.add(party)
            else:
                self.ended.append(party)
