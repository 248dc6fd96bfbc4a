"""Some parties of a simulation, and their side of every round."""

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
from tacit.runtime.faults import Fault
from tacit.runtime.participant import KeyedParticipant, Participant
from tacit.runtime.round import Post
from tacit.runtime.simulated_round import Event, SimulatedRound
from tacit.runtime.simulator import identity_of, seed_of


class Parcel(Post):
    """A message on its way between shards: its address, and the bytes of the envelope."""

    __slots__ = ("_data",)

    def __init__(self, address: Address, data: Buffer) -> None:
        self.address, self._data = address, bytes(data)  # which is the same if they are bytes

    @property
    def data(self) -> bytes:
        """The bytes of the envelope."""
        return self._data

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type["Parcel"], tuple[Address, bytes | PickleBuffer]]:
        # From 5 on, long bytes can be carried on another way than the rest.
        return Parcel, (self.address, PickleBuffer(self._data) if int(protocol) >= 5 else self._data)

    def __repr__(self) -> str:
        return f"Parcel({self.kind} to {self.to}, {len(self._data)} bytes)"


@dataclass(slots=True)
class Start:
    """A party begins, with what it brings."""

    update: Update | None


Given: TypeAlias = tuple[Party, Event | Start]
"""Something that happens to a party."""


class Came(NamedTuple):
    """What came of it."""

    of: list[Parcel | tuple[float, Event] | None]
    """What is to be done, in order: messages, events after a while, and None for a message that is not sent."""
    over: bool
    """Whether the party has finished, given up or crashed."""
    crashed: bool


class Part(SimulatedRound):
    """The side of some parties of one round. The clock, the mail and its faults are somebody else's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, record=False)
        self._brought: dict[Party, Update] = {}
        self._updates = self._brought
        self._out: list[Parcel | tuple[float, Event] | None] = []

    def play(self, clock: float, party: Party, event: Event | Start) -> Came:
        """Lets something happen to a party, and returns what came of it."""
        self.clock, self._out = clock, []
        if isinstance(event, Start):
            if event.update is not None:
                self._brought[party] = event.update
            self._begin(party)
        else:
            self._happen(party, event)
        return Came(self._out, party not in self.waiting, party in self.crashed)

    def finished(self) -> dict[Party, Ending]:
        """Ends the round, and returns how it ended for each."""
        self._finish()
        return self.endings

    def _send(self, party: Party, post: Post) -> None:
        if party in self._mute:
            self.rounds[party].unsent(post)
            self._out.append(None)
        else:
            self._out.append(Parcel(post.address, post.data))

    def _schedule(self, delay: float, party: Party, event: Event) -> None:
        del party  # nothing happens to anybody else
        self._out.append((delay, event))


class Shard:
    """The participants of some parties. It is told what to do by requests, each of which it answers."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._twin = False
        self._identities: list[Identity] = []
        self._participants: dict[Party, Participant] = {}
        self._part: Part | None = None

    def answer(self, name: str, *given: Any) -> Any:
        """Returns what one of the methods below returns."""
        return getattr(self, name)(*given)

    def host(self, parties: Sequence[Party], seed: int | None, twin: bool) -> list[Member]:
        """Makes the identities of some parties, and returns their public halves."""
        self._seed, self._twin = seed, twin
        self._identities = [identity_of(party, seed) for party in parties]
        return [identity.member() for identity in self._identities]

    def sit(self, agreement: Agreement) -> None:
        """Has everybody take a participant."""
        self._participants = {identity.name: KeyedParticipant(agreement, identity) for identity in self._identities}

    def join(self, nonce: bytes) -> None:
        """Has everybody go on in the session of a nonce."""
        agreement = replace(next(iter(self._participants.values())).agreement, nonce=nonce)
        for participant in self._participants.values():
            participant.agreement = agreement

    def states(self) -> list[bytes]:
        """Returns what each has saved."""
        return [participant.agreement.protocol.encode_state(participant.state) for participant in self._participants.values()]

    def go_on(self, number: int, states: Mapping[Party, bytes]) -> None:
        """Has everybody go on after so many rounds, with what they had saved by then."""
        for party, participant in self._participants.items():
            participant.number = number
            participant.give_up(participant.agreement.protocol.decode_state(states[party]))

    def begin(self, number: int, faults: Sequence[Fault], silent: Collection[Party], away: Collection[Party]) -> None:
        """Makes ready for a round."""
        agreement = next(iter(self._participants.values())).agreement
        seeds = partial(seed_of, seed=self._seed, session=None if self._twin else agreement.session)
        self._part = Part(agreement, self._participants, seeds, number, faults, silent=silent, away=away)

    def play(self, clock: float, given: Sequence[Given]) -> list[Came]:
        """Lets things happen, one after the other, and returns what came of each."""
        if self._part is None:
            raise ConfigError("no round was begun")
        return [self._part.play(clock, party, event) for party, event in given]

    def finish(self) -> dict[Party, Ending]:
        """Ends the round, and returns how it ended for each."""
        part, self._part = self._part, None
        return {} if part is None else part.finished()
