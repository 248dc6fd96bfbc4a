"""Shard of a simulation: the participants of some parties, and their part of every round."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pickle import PickleBuffer
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from tacit.core.average import Ending
from tacit.core.errors import ConfigError
from tacit.core.messages import Address
from tacit.core.suite import Buffer, Party, Update
from tacit.crypto.keys import Identity, Member
from tacit.runtime.agreement import Agreement
from tacit.runtime.participant import KeyedParticipant, Participant
from tacit.runtime.round import Post
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulated_round import Event, SimulatedRound
from tacit.runtime.simulation.simulator import identity_of, seed_of


class ShardMessage(Post):
    """A message between shards: its address, and the bytes of the envelope."""

    __slots__ = ("_data",)

    def __init__(self, address: Address, data: Buffer) -> None:
        self.address, self._data = address, bytes(data)  # no copy if they are bytes

    @property
    def data(self) -> bytes:
        """The bytes of the envelope."""
        return self._data

    def __reduce_ex__(
        self, protocol: SupportsIndex
    ) -> tuple[type["ShardMessage"], tuple[Address, bytes | PickleBuffer]]:
        # From protocol 5 on, long bytes can be transferred out of band.
        return ShardMessage, (self.address, PickleBuffer(self._data) if int(protocol) >= 5 else self._data)

    def __repr__(self) -> str:
        return f"ShardMessage({self.kind} to {self.to}, {len(self._data)} bytes)"


@dataclass(slots=True)
class PartyStart:
    """The start of a party's round, with its update."""

    update: Update | None


ShardEvent: TypeAlias = tuple[Party, Event | PartyStart]
"""An event of a party."""


class EventResult(NamedTuple):
    """The result of processing one event."""

    effects: list[ShardMessage | tuple[float, Event] | None]
    """Effects in order: messages, delayed events, and None for a message that is not sent."""
    over: bool
    """Whether the party has finished, given up or crashed."""
    crashed: bool


class ShardRound(SimulatedRound):
    """Part of one round that some parties run. The simulation has the clock, the message queue and message faults."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, record=False)
        self._contributed: dict[Party, Update] = {}
        self._updates = self._contributed
        self._out: list[ShardMessage | tuple[float, Event] | None] = []

    def play(self, clock: float, party: Party, event: Event | PartyStart) -> EventResult:
        """Processes an event of a party, and returns the result."""
        self.clock, self._out = clock, []
        if isinstance(event, PartyStart):
            if event.update is not None:
                self._contributed[party] = event.update
            self._begin(party)
        else:
            self._handle(party, event)
        return EventResult(self._out, party not in self.waiting, party in self.crashed)

    def finish_round(self) -> dict[Party, Ending]:
        """Ends the round, and returns the ending of each party."""
        self._finish()
        return self.endings

    def _send(self, party: Party, post: Post) -> None:
        if party in self._mute:
            self.rounds[party].uncount_post(post)
            self._out.append(None)
        else:
            self._out.append(ShardMessage(post.address, post.data))

    def _schedule(self, delay: float, party: Party, event: Event) -> None:
        del party  # an event schedules events of its own party only
        self._out.append((delay, event))


class Shard:
    """The participants of some parties. Requests call its methods by name."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._twin = False
        self._bound: bytes | None = None
        self._identities: list[Identity] = []
        self._participants: dict[Party, Participant] = {}
        self._round: ShardRound | None = None

    def handle(self, request: Sequence[Any]) -> Any:
        """Calls the method that a request names in its first item."""
        name, *arguments = request
        return getattr(self, name)(*arguments)

    def create_identities(self, parties: Sequence[Party], seed: int | None, twin: bool) -> list[Member]:
        """Creates the identities of some parties, and returns their public keys."""
        self._seed, self._twin = seed, twin
        self._identities = [identity_of(party, seed) for party in parties]
        return [identity.member() for identity in self._identities]

    def create_participants(self, agreement: Agreement) -> None:
        """Creates the participants of an agreement."""
        self._participants = {identity.name: KeyedParticipant(agreement, identity) for identity in self._identities}

    def join_session(self, nonce: bytes) -> None:
        """Moves all participants to the session of a nonce."""
        agreement = replace(next(iter(self._participants.values())).agreement, nonce=nonce)
        for participant in self._participants.values():
            participant.agreement = agreement

    def encode_states(self) -> list[bytes]:
        """Returns the saved state of each participant."""
        return [
            participant.agreement.protocol.encode_state(participant.state)
            for participant in self._participants.values()
        ]

    def restore_states(self, number: int, states: Mapping[Party, bytes]) -> None:
        """Continues after a round, with the states that participants had saved at its end."""
        for party, participant in self._participants.items():
            participant.number = number
            participant.give_up(participant.agreement.protocol.decode_state(states[party]))

    def bind_seeds(self, release: bytes) -> None:
        """Makes the seeds of a twin's next rounds depend on a digest of all updates."""
        self._bound = release

    def begin_round(
        self, number: int, faults: Sequence[Fault], silent: Collection[Party], away: Collection[Party]
    ) -> None:
        """Prepares a round."""
        agreement = next(iter(self._participants.values())).agreement
        seeds = partial(seed_of, seed=self._seed, session=self._bound if self._twin else agreement.session)
        self._round = ShardRound(agreement, self._participants, seeds, number, faults, silent=silent, away=away)

    def process_events(self, clock: float, given: Sequence[ShardEvent]) -> list[EventResult]:
        """Processes events in order, and returns the result of each."""
        if self._round is None:
            raise ConfigError("no round was begun")
        return [self._round.play(clock, party, event) for party, event in given]

    def finish_round(self) -> dict[Party, Ending]:
        """Ends the round, and returns the ending of each party."""
        part, self._round = self._round, None
        return {} if part is None else part.finish_round()
