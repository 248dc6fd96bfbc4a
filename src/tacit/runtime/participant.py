"""One party's place in a federation, over all rounds: its keys, its state, and the round that it is in."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from tacit.core.entropy import RecordingEntropy, SeededEntropy
from tacit.core.errors import ConfigError, JournalError
from tacit.core.link import Link
from tacit.core.protocol import Role, State
from tacit.core.suite import SERVER, Buffer, Party, Suite, Update
from tacit.crypto.keys import Identity, Keys
from tacit.crypto.suite import RealSuite
from tacit.runtime.agreement import Agreement
from tacit.runtime.inbox import Discard, Early, Inbox
from tacit.runtime.journal import CURE, Beginning, Journal, Record, fingerprint, said
from tacit.runtime.round import Action, Begun, Greet, Heard, Kept, Post, Round, Saved
from tacit.vectors.buffers import Rooms


class Participant(ABC):
    """A party of an agreement.

    What it needs to go on after a restart is its number, its state and, until a round is over, the journal with its
    tip. A number is begun once: a participant that is rebuilt in mid-round has begun it already.
    """

    def __init__(
        self,
        agreement: Agreement,
        me: Party,
        length: int,
        *,
        number: int = 0,
        state: State | None = None,
        unfinished: bool = False,
        role: Role | None = None,
    ) -> None:
        """Sits down after so many rounds were begun, with the state that was saved last.

        `unfinished` says that the last of them was cut off: it has to be resumed, or given up, before the next.
        `length` is that of an encoded vector; `role` puts another coroutine in the place of the protocol's.
        """
        self.agreement, self.me, self.number, self.role = agreement, me, number, role
        self.round: Round | None = None
        self.codec = agreement.codec(length)
        self.early = Early(self.codec.room)
        self._state = agreement.protocol.state() if state is None else state
        self._unfinished = unfinished
        self._lobby: Inbox | None = None

    @abstractmethod
    def suite(self, number: int, seed: bytes) -> Suite:
        """Returns our hands in a round."""

    @abstractmethod
    def rebuild(self) -> "Participant":
        """Returns the participant as it is after a restart: only what the contract has on disk is left."""

    @property
    def state(self) -> State:
        """The state that was saved last."""
        return self._state if self.round is None else self.round.state

    @property
    def unfinished(self) -> bool:
        """Whether a round was begun that is neither over nor was given up."""
        return self._unfinished if self.round is None else not self.round.over

    def begin(self, update: Update | None, seed: bytes, at: float = 0.0) -> list[Action]:
        """Begins the next round, which nobody can begin again, and returns what is to be done.

        What came early (`early.take()`) is then to be delivered, like everything else.
        """
        if self.unfinished:
            raise ConfigError(
                f"{self.me} is still in round {self.number}; finish or resume it, or give it up, before the next"
            )
        if (update is None) != (self.me == SERVER):
            raise ConfigError(f"{self.me} brings {'no' if update is None else 'an'} update to a round")
        self.round = self._round(Begun(self.number + 1, seed, self.state, update))
        self.number += 1
        return self.round.start(at)

    def deliver(self, data: Buffer, at: float = 0.0) -> list[Action]:
        """Takes in what arrived, and returns what is to be done."""
        if self.round is not None:
            return self.round.deliver(data, at)
        # There is no round yet, but mail of the next one, or of the one to be resumed, may have come.
        agreement, before = self.agreement, self.number - self.unfinished
        if self._lobby is None:
            link, suite = Link(self.me, agreement.parties, agreement.session, before), self.suite(before, b"")
            told = agreement.difference, agreement.roster
            self._lobby = Inbox(link, suite, self.codec, agreement.terms, self.early, *told)
        mail = self._lobby.deliver(data)
        if mail.apart is not None:
            return [Greet(agreement.greeting(self.suite(before, b""), before + 1, mail.apart), 0)]
        return [Kept()] if mail.discarded is Discard.EARLY else []

    def expire(self, at: float = 0.0) -> list[Action]:
        """Ends the present wait, and returns what is to be done."""
        return [] if self.round is None else self.round.expire(at)

    def give_up(self, state: State | None = None) -> None:
        """Leaves the present round, whose number is used up, with the state that was saved last, or the one given."""
        self._state = self.state if state is None else state
        if self.round is not None:
            self.round.close()
        self.round, self._unfinished, self._lobby = None, False, None

    def resume(self, journal: Journal, update: Update | None, at: float = 0.0) -> list[Post]:
        """Rebuilds the round that a journal is of, and returns the messages that it said, to be sent again.

        Raises JournalError if the journal is of anything else, does not fit the update, or cannot have been all of
        what happened; then nothing may be sent.
        """
        records = journal.read()
        round_ = self._round(self._begun(records[0].event, update, {**journal.apart, **records[0].apart}))
        posts: list[Post] = []
        for number, record in enumerate(records):
            try:
                posts += self._again(round_, record, at)
            except Exception as error:  # whatever a round does with what it was never told
                round_.close()
                raise JournalError(
                    f"after record {number} of the journal, round {self.number} would not go on as it did before, so "
                    f"nothing is sent: the journal was changed, or written by another release; {CURE}"
                ) from error
        self.round = round_
        return posts

    def _again(self, round_: Round, record: Record, at: float) -> list[Post]:
        """Repeats a call, and returns the messages that came of it; raises JournalError if anything else does."""
        if isinstance(record.event, Beginning):
            actions = round_.start(at)
        else:
            actions = round_.expire(at) if record.event is None else round_.deliver(record.event, at)
        posts = [action for action in actions if isinstance(action, Post)]
        saved = [action.state for action in actions if isinstance(action, Saved)]
        state = self.agreement.protocol.encode_state(saved[-1], apart={}) if saved else None
        counts = bool(actions) and isinstance(actions[0], Begun | Heard)
        if not counts or said(posts) != record.said or state != record.state:
            raise JournalError("this is not what came of it before")
        return posts

    def _begun(self, event: object, update: Update | None, apart: Mapping[bytes, Buffer]) -> Begun:
        """Returns what a round was begun with; raises JournalError if it was not begun here, or with another update."""
        agreement = self.agreement
        if not isinstance(event, Beginning):
            raise JournalError(f"the journal does not say how the round was begun; {CURE}")
        if event.session != agreement.session:
            raise JournalError("the journal is of another session: a setting, the roster or the model has changed")
        if event.party != self.me:
            raise JournalError(f"the journal is of {event.party}, not of {self.me}; give each party its own")
        if event.number != self.number:
            raise JournalError(
                f"the journal is of round {event.number}, but {self.me} has begun {self.number}; "
                f"resume with the number that goes with it"
            )
        if event.update != fingerprint(update, event.seed):
            raise JournalError(
                f"round {event.number} was begun with another update, and must go on with that one: under the same "
                f"masks, two of them would show their difference"
            )
        return Begun(event.number, event.seed, agreement.protocol.decode_state(event.state, apart=apart), update)

    def _round(self, begun: Begun) -> Round:
        suite = self.suite(begun.number, begun.seed)
        if wrong := begun.state.problems(self.agreement.terms, suite.ring, self.agreement.entries):
            raise JournalError(f"the state before round {begun.number} cannot be gone on from: {'; '.join(wrong)}")
        self._lobby = None
        return Round(self.agreement, suite, self.codec, begun, self.role, self.early)


class KeyedParticipant(Participant):
    """A party with real keys."""

    def __init__(
        self,
        agreement: Agreement,
        identity: Identity,
        *,
        number: int = 0,
        state: State | None = None,
        unfinished: bool = False,
        role: Role | None = None,
        bits: int | None = None,
        record: bool = False,
        rooms: Rooms | None = None,
    ) -> None:
        """Sits down. `bits` takes a finer ring than was agreed; `record` remembers what is drawn, for audits.

        Given `rooms`, vectors have their memory from there, and averages are no wider than what was brought.
        """
        length = agreement.ring(bits).length
        super().__init__(agreement, identity.name, length, number=number, state=state, unfinished=unfinished, role=role)
        self.identity, self.keys = identity, Keys(identity, agreement.roster)
        self.bits, self._record, self._rooms, self._singles = bits, record, rooms, False

    def rebuild(self) -> "KeyedParticipant":
        """Returns the participant as it is after a restart."""
        return KeyedParticipant(
            self.agreement,
            self.identity,
            number=self.number,
            state=self.state,
            unfinished=self.unfinished,
            role=self.role,
            bits=self.bits,
            record=self._record,
            rooms=self._rooms,
        )

    def _round(self, begun: Begun) -> Round:
        brought = None if begun.update is None else np.asarray(begun.update.vector)
        self._singles = self._rooms is not None and (brought is None or brought.dtype == np.float32)
        return super()._round(begun)

    def suite(self, number: int, seed: bytes) -> RealSuite:
        """Returns our hands in a round."""
        del number
        entropy = (RecordingEntropy if self._record else SeededEntropy)(seed)
        ring = self.agreement.ring(self.bits)
        ring.narrow, ring.rooms = self._singles, self._rooms
        return RealSuite(self.keys, entropy, ring)
