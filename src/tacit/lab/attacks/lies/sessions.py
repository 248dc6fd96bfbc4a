"""Sessions of a sequence of rounds: deployed clients of `secagg` that receive arbitrary messages of a malicious server.

Each call runs a client from the beginning of a round, with real keys, through the `Participant` that every driver uses.
A reply depends only on the client's state, its update and the messages that it received, so replies are cached.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from tacit.core.entropy import SEED_BYTES
from tacit.core.link import Link
from tacit.core.messages import Address, Envelope, Message
from tacit.core.suite import SERVER, Parties, Party, Update
from tacit.protocols.secagg import SECAGG
from tacit.protocols.secagg.messages import AdvertiseKeys, KeyList, LastSum, SignedKeys, Sum
from tacit.protocols.secagg.settings import Accord, SecAggSettings, SecAggState
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Action, Post
from tacit.runtime.simulation.simulated_round import SimulatedRound
from tacit.runtime.simulation.simulator import NONCE_BYTES, Simulation

ENTRIES = 2
"""Entries of a model."""
DIGITS = 6
"""Number of decimals to which models are compared. Sums that encode them are exact."""
Model: TypeAlias = tuple[float, ...]
"""A model, rounded."""


SECRET: Model = (0.25, -0.5)
"""The victim's contribution."""
NOTHING: Model = (0.0,) * ENTRIES
"""The update from a dead model."""


class RosterSettings(NamedTuple):
    """Settings of a roster, as far as sequences vary them."""

    users: int = 4
    clip: float = 32.0
    changes: bool = False
    """Whether contributions are changes to a model (`norm`)."""
    nonce: str = "first"
    neighbours: int = 0
    """Number of others with whom a user shares masks; 0 for all."""


class Announcement(NamedTuple):
    """A sum that a server announces to one client, true or false."""

    last: bool
    """Whether it is announced as the sum of an earlier round (`LastSum`)."""
    before: bytes
    """The lineage that its contributors are claimed to have signed."""
    round: int
    contributors: tuple[Party, ...]
    vector: bytes
    text: str = ""
    """Name of the sum in descriptions."""


class ClientInputs(NamedTuple):
    """Everything with which a client begins a round."""

    number: int
    state: bytes
    """Its encoded state."""
    lineage: bytes = b""
    """The lineage in its update; empty if its driver gives none."""


class ClientEnding(NamedTuple):
    """Result of a round at a client."""

    state: bytes
    average: Model | None
    error: str
    """The code of the error; empty if there is an average."""


def encode_state(state: SecAggState) -> bytes:
    """Returns a state as bytes, for comparison."""
    return SECAGG.encode_state(state)


def read_lineage(state: bytes) -> bytes:
    """Returns the lineage in an encoded state, as drivers read it."""
    return SECAGG.decode_state(state).continues_from()


def round_model(vector: Iterable[float]) -> Model:
    """Returns a model, rounded for comparison."""
    return tuple(round(float(each), DIGITS) + 0.0 for each in vector)


class Session:
    """A roster with a session, and the clients of its parties."""

    def __init__(self, roster: RosterSettings) -> None:
        """Creates keys and a session, which depend only on the roster's settings."""
        self.roster = roster
        settings = SecAggSettings(
            clip=roster.clip,
            norm=roster.clip if roster.changes else None,
            neighbours=roster.neighbours or "all",
        )
        self.terms = settings.bind(Parties(f"p{place}" for place in range(roster.users)))
        simulation = Simulation.on(SECAGG, self.terms, ENTRIES, seed=0)
        nonce = hashlib.sha256(repr(roster).encode()).digest()[:NONCE_BYTES]
        simulation.join(replace(simulation.agreement, nonce=nonce))
        self.agreement = simulation.agreement
        self._participants = {
            party: each for party, each in simulation.participants.items() if isinstance(each, KeyedParticipant)
        }
        self._codec = self.agreement.codec(self.agreement.ring().length)
        self._endings: dict[tuple[ClientInputs, Announcement | None], ClientEnding] = {}
        self._keys: dict[tuple[Party, ClientInputs], AdvertiseKeys] = {}

    @property
    def names(self) -> tuple[Party, ...]:
        """The parties on the roster."""
        return tuple(self.terms.parties)

    @property
    def runs(self) -> int:
        """Number of different rounds in which clients were run to an ending."""
        return len(self._endings)

    def encode_sum(self, value: float, weight: int | None = None) -> bytes:
        """Returns a sum of all users whose average has one value in every entry, with the given weight if there is
        one."""
        ring = self.agreement.ring()
        total = ring.zeros()
        for _ in self.names:
            total += ring.encode(Update(np.full(ENTRIES, value)))
        if weight is not None:
            total[ENTRIES] = weight
        return bytes(ring.pack(total))

    # --- replies of clients ------------------------------------------------------------------------------------------

    def conclude(self, inputs: ClientInputs, told: Announcement | None) -> ClientEnding:
        """Runs a client to the end of a round: with an announcement, or without any message until its wait times
        out."""
        key = inputs, told
        if key not in self._endings:
            self._endings[key] = self._conclude(self.names[0], inputs, told)
        return self._endings[key]

    def _conclude(self, party: Party, inputs: ClientInputs, told: Announcement | None) -> ClientEnding:
        participant = self._participants[party]
        self._begin(party, inputs)
        if told is None:
            participant.expire()
        else:
            self._deliver(party, inputs.number, self._announce(told))
        round_ = participant.round
        if round_ is None or not round_.over:
            raise AssertionError(f"{party} waits for more than {told}")
        average = None if round_.average is None else round_model(np.asarray(round_.average.vector))
        ending = ClientEnding(
            encode_state(_own_state(participant)), average, "" if round_.error is None else round_.error.code
        )
        participant.give_up()
        return ending

    def advertise(self, party: Party, inputs: ClientInputs) -> AdvertiseKeys:
        """Returns the signed keys that a client begins a round with."""
        key = party, inputs
        if key not in self._keys:
            self._keys[key] = self._read_keys(party, self._begin(party, inputs))
            self._participants[party].give_up()
        return self._keys[key]

    def mask_together(self, inputs: Mapping[int, ClientInputs], colluders: Sequence[int] = ()) -> bool:
        """Says whether honest users accept each other's keys: whether all reply with their shares.

        Args:
            inputs: The inputs with which the honest users begin the round, by place.
            colluders: Colluding users of the same round. They sign whatever each honest user has to see.
        """
        u2 = sorted([*inputs, *colluders])
        if len(u2) < self.terms.smallest_sum:
            raise AssertionError(f"{len(u2)} users are too few for a sum")
        signed = {place: self.advertise(self.names[place], each) for place, each in inputs.items()}
        keys: dict[int, SignedKeys] = {place: (each.c, each.s, each.signature) for place, each in signed.items()}
        for place, each in inputs.items():
            lineage = signed[place].lineage
            vouched = {w: self._sign_as_accomplice(self.names[w], each.number, lineage) for w in colluders}
            if not self._accepts(self.names[place], each, u2, {**keys, **vouched}):
                return False
        return True

    def _accepts(self, party: Party, inputs: ClientInputs, u2: Sequence[int], keys: Mapping[int, SignedKeys]) -> bool:
        """Says whether a client replies to a list of keys with its shares."""
        near = self._accord(inputs.number).graph(u2).neighbours(self.terms.parties.place(party))
        self._begin(party, inputs)
        message = KeyList(self.terms.sets.bitmap(u2), {v: keys[v] for v in near})
        answers = self._deliver(party, inputs.number, message)
        self._participants[party].give_up()
        return any(isinstance(each, Post) and each.kind == "ShareKeys" for each in answers)

    def _sign_as_accomplice(self, party: Party, number: int, lineage: bytes) -> SignedKeys:
        """Returns keys of a colluding user, which signs any given lineage."""
        suite = self._participants[party].suite(number, _seed(party, lineage))
        accord = Accord(Link(party, self.terms.parties, self.agreement.session, number), suite, self.terms)
        c, s = suite.key_pair(), suite.key_pair()
        statement = accord.advertisement(self.terms.parties.place(party), c.public, s.public, lineage)
        return c.public, s.public, suite.sign(statement)

    def recover_update(self, inputs: Mapping[int, ClientInputs], victim: int) -> float:
        """Runs a whole round of deployed clients and server, and returns the error of the victim's derived update.

        The others hold a dead model, so that the server knows their updates: they are zero. It subtracts them from the
        sum. Returns NaN if there is no sum that includes the victim.
        """
        number = inputs[victim].number
        away = [party for place, party in enumerate(self.names) if place not in inputs]
        for party, participant in self._participants.items():
            present = party != SERVER and party not in away
            state = SECAGG.decode_state(inputs[self.terms.parties.place(party)].state) if present else SecAggState()
            participant.give_up(state)
            participant.number = number - 1
        updates = {
            self.names[place]: Update(np.array(SECRET if place == victim else NOTHING), lineage=each.lineage)
            for place, each in inputs.items()
        }
        played = SimulatedRound(self.agreement, dict(self._participants), _seed_of, number, (), record=False, away=away)
        played.run(updates)
        ending = played.endings[SERVER]
        for participant in self._participants.values():
            participant.give_up()
        if ending.average is None or self.names[victim] not in ending.contributors:
            return float("nan")
        total = np.asarray(ending.average) * len(ending.contributors)
        return float(np.abs(total - np.array(SECRET)).max())

    # --- messages ----------------------------------------------------------------------------------------------------

    def _begin(self, party: Party, inputs: ClientInputs) -> list[Action]:
        participant = self._participants[party]
        participant.give_up(SECAGG.decode_state(inputs.state))
        participant.number = inputs.number - 1
        update = Update(np.zeros(ENTRIES), lineage=inputs.lineage)
        return participant.begin(update, _seed(party, inputs.lineage + inputs.state))

    def _deliver(self, party: Party, number: int, message: Message) -> list[Action]:
        """Delivers a message of the server, encrypted as a server does."""
        suite, codec, session = self._participants[SERVER].suite(number, b""), self._codec, self.agreement.session
        address = Address(session, number, 0, message.kind(), SERVER, party)
        sealed = codec.seal(suite, suite.channel(party, session), address, codec.encode(message))
        return self._participants[party].deliver(codec.wrap_sealed(address, sealed))

    def _read_keys(self, party: Party, actions: Sequence[Action]) -> AdvertiseKeys:
        suite = self._participants[SERVER].suite(0, b"")
        (post,) = [each for each in actions if isinstance(each, Post)]
        envelope = Envelope(post.address, post.sealed)
        payload = self._codec.open(suite, suite.channel(party, self.agreement.session), envelope)
        message = self._codec.decode(post.kind, payload)
        if not isinstance(message, AdvertiseKeys):
            raise AssertionError(f"{party} begins with {post.kind}")
        return message

    def _announce(self, told: Announcement) -> Message:
        sets = self.terms.sets
        everybody = sets.bitmap(range(len(self.names)))
        if told.last:
            return LastSum(told.before, told.round, told.contributors, everybody, memoryview(told.vector))
        members = sets.bitmap(self.terms.parties.places(told.contributors))
        return Sum(told.before, members, memoryview(told.vector))

    def _accord(self, number: int) -> Accord:
        link = Link(SERVER, self.terms.parties, self.agreement.session, number)
        return Accord(link, self._participants[SERVER].suite(number, b""), self.terms)


def _own_state(participant: KeyedParticipant) -> SecAggState:
    state = participant.state
    if not isinstance(state, SecAggState):
        raise AssertionError(f"a state of {type(state).__name__}")
    return state


def _seed(party: Party, context: bytes) -> bytes:
    return hashlib.sha256(party.encode() + context).digest()[:SEED_BYTES]


def _seed_of(party: Party, number: int) -> bytes:
    return _seed(party, b"round %d" % number)
