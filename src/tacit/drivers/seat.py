"""One party's place in a federation, over all rounds: its keys, its state, and the round that it is in."""

from abc import ABC, abstractmethod

from tacit.core.entropy import RecordingEntropy, SeededEntropy
from tacit.core.errors import ConfigError, JournalError
from tacit.core.link import Link
from tacit.core.protocol import Role, State
from tacit.core.suite import SERVER, Party, Suite, Update
from tacit.crypto.keys import Identity, Keys
from tacit.crypto.suite import RealSuite
from tacit.drivers.agreement import Agreement
from tacit.drivers.inbox import Discard, Early, Inbox
from tacit.drivers.journal import CURE, Beginning, Journal, fingerprint, said
from tacit.drivers.round import Action, Begun, Heard, Kept, Post, Round, Saved


class Seat(ABC):
    """A party of an agreement. What it needs to go on after a restart is its number, its state and its journal."""

    def __init__(
        self,
        agreement: Agreement,
        me: Party,
        length: int,
        *,
        number: int = 0,
        state: State | None = None,
        role: Role | None = None,
    ) -> None:
        """Sits down after so many rounds, with the state that the last of them left.

        `length` is that of an encoded vector; `role` puts another coroutine in the place of the protocol's.
        """
        self.agreement, self.me, self.number, self.role = agreement, me, number, role
        self.round: Round | None = None
        self.codec = agreement.codec(length)
        self.early = Early(self.codec.room)
        self._state = agreement.protocol.state() if state is None else state
        self._lobby: Inbox | None = None

    @abstractmethod
    def suite(self, number: int, seed: bytes) -> Suite:
        """Returns our hands in a round."""

    @abstractmethod
    def rebuilt(self) -> "Seat":
        """Returns the seat as it is after a restart in mid-round: only what the contract has on disk is left."""

    @property
    def state(self) -> State:
        """The state that was saved last."""
        return self._state if self.round is None else self.round.state

    def begin(self, update: Update | None, seed: bytes, at: float = 0.0) -> list[Action]:
        """Begins the next round, which nobody can begin again, and returns what is to be done.

        What came early (`early.take()`) is then to be delivered, like everything else.
        """
        if self.round is not None and not self.round.over:
            raise ConfigError(f"{self.me} is still in round {self.number}; finish it, or give it up, before the next")
        if (update is None) != (self.me == SERVER):
            raise ConfigError(f"{self.me} brings {'no' if update is None else 'an'} update to a round")
        self._state, self.number = self.state, self.number + 1
        self.round = self._round(Begun(self.number, seed, self._state, update))
        return self.round.start(at)

    def deliver(self, data: bytes, at: float = 0.0) -> list[Action]:
        """Takes in what arrived, and returns what is to be done."""
        if self.round is not None:
            return self.round.deliver(data, at)
        if self._lobby is None:
            # There is no round yet, but mail of the next one may have come.
            link = Link(self.me, self.agreement.parties, self.agreement.session, self.number)
            self._lobby = Inbox(link, self.suite(self.number, b""), self.codec, self.agreement.terms, self.early)
        return [Kept()] if self._lobby.deliver(data).discarded is Discard.EARLY else []

    def expire(self, at: float = 0.0) -> list[Action]:
        """Ends the present wait, and returns what is to be done."""
        return [] if self.round is None else self.round.expire(at)

    def give_up(self, state: State | None = None) -> None:
        """Leaves the present round, with the state that was saved last, or before it was cut off."""
        self._state = self.state if state is None else state
        if self.round is not None:
            self.round.close()
        self.round = None

    def resume(self, journal: Journal, update: Update | None, at: float = 0.0) -> list[Post]:
        """Rebuilds the round that a journal is of, and returns the messages that it said, to be sent again.

        Raises JournalError if the journal is of anything else, does not fit the update, or cannot have been all of
        what happened; then nothing may be sent.
        """
        records = journal.read()
        begun = self._begun(records[0].event, update)
        round_ = self._round(begun)
        posts: list[Post] = []
        for number, record in enumerate(records):
            if number == 0:
                actions = round_.start(at)
            elif record.event is None:
                actions = round_.expire(at)
            else:
                actions = round_.deliver(record.event, at)  # type: ignore[arg-type]  # the journal saw to it
            again = [action for action in actions if isinstance(action, Post)]
            saved = [action.state for action in actions if isinstance(action, Saved)]
            state = self.agreement.protocol.encode_state(saved[-1]) if saved else None
            counts = bool(actions) and isinstance(actions[0], Begun | Heard)
            if not counts or said(again) != record.said or state != record.state:
                round_.close()
                raise JournalError(
                    f"after record {number} of the journal, round {begun.number} would not go on as it did before, so "
                    f"nothing is sent: the journal was changed, or written by another release; {CURE}"
                )
            posts += again
        self.number, self.round = begun.number, round_
        return posts

    def _begun(self, event: object, update: Update | None) -> Begun:
        """Returns what a round was begun with; raises JournalError if it was not begun here, or with another update."""
        agreement = self.agreement
        if not isinstance(event, Beginning):
            raise JournalError(f"the journal does not say how the round was begun; {CURE}")
        if event.session != agreement.session:
            raise JournalError("the journal is of another session: a setting, the roster or the model has changed")
        if event.party != self.me:
            raise JournalError(f"the journal is of {event.party}, not of {self.me}; give each party its own")
        if event.number != self.number + 1:
            raise JournalError(
                f"the journal is of round {event.number}, but {self.me} has finished {self.number}; "
                f"resume from the state that goes with it"
            )
        if event.update != fingerprint(update):
            raise JournalError(
                f"round {event.number} was begun with another update, and must go on with that one: under the same "
                f"masks, two of them would show their difference"
            )
        return Begun(event.number, event.seed, agreement.protocol.decode_state(event.state), update)

    def _round(self, begun: Begun) -> Round:
        suite = self.suite(begun.number, begun.seed)
        self._lobby = None
        return Round(self.agreement, suite, self.codec, begun, self.role, self.early)


class RealSeat(Seat):
    """A party with real keys."""

    def __init__(
        self,
        agreement: Agreement,
        identity: Identity,
        *,
        number: int = 0,
        state: State | None = None,
        role: Role | None = None,
        bits: int | None = None,
        record: bool = False,
    ) -> None:
        """Sits down. `bits` takes a finer ring than was agreed; `record` remembers what is drawn, for audits."""
        length = agreement.ring(bits).length
        super().__init__(agreement, identity.name, length, number=number, state=state, role=role)
        self.identity, self.keys = identity, Keys(identity, agreement.roster)
        self.bits, self._record = bits, record

    def rebuilt(self) -> "RealSeat":
        """Returns the seat as it is after a restart in mid-round."""
        return RealSeat(
            self.agreement,
            self.identity,
            number=self.number - 1,
            state=self._state,
            role=self.role,
            bits=self.bits,
            record=self._record,
        )

    def suite(self, number: int, seed: bytes) -> RealSuite:
        """Returns our hands in a round."""
        del number
        entropy = (RecordingEntropy if self._record else SeededEntropy)(seed)
        return RealSuite(self.keys, entropy, self.agreement.ring(self.bits))
