"""A party of a federation across all rounds: its keys, its state, and its present round."""

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
from tacit.runtime.inbox import Discard, EarlyMessages, Inbox
from tacit.runtime.journal import CURE, Beginning, Journal, Record, digest_posts, fingerprint_update
from tacit.runtime.round import Action, GreetingPost, InputTaken, MessageDeferred, Post, Round, RoundBegun, StateSaved
from tacit.vectors.buffers import BufferPool


class Participant(ABC):
    """A party of an agreement.

    To continue after a restart it needs its round number, its state and, until a round is over, the journal with its
    tip. Each round number is begun once. A participant that is rebuilt during a round has begun that round already.
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
        """Creates a participant, which may continue after earlier rounds.

        Args:
            agreement: The agreement of the parties.
            me: The name of the party.
            length: The length of an encoded vector.
            number: The number of the last round that was begun.
            state: The last saved state; the protocol's initial one by default.
            unfinished: Whether that round was interrupted. It must be resumed or given up before the next one.
            role: A coroutine that replaces the protocol's.
        """
        self.agreement, self.me, self.number, self.role = agreement, me, number, role
        self.round: Round | None = None
        self.codec = agreement.codec(length)
        self.early = EarlyMessages(self.codec.unread_limit)
        self._state = agreement.protocol.state() if state is None else state
        self._unfinished = unfinished
        self._lobby: Inbox | None = None

    @abstractmethod
    def suite(self, number: int, seed: bytes) -> Suite:
        """Returns the cryptographic suite of a round."""

    @abstractmethod
    def rebuild(self) -> "Participant":
        """Returns the participant as it is after a restart, with only the data that the contract keeps on disk."""

    @property
    def state(self) -> State:
        """The last saved state."""
        return self._state if self.round is None else self.round.state

    @property
    def unfinished(self) -> bool:
        """Whether a round was begun that is neither over nor given up."""
        return self._unfinished if self.round is None else not self.round.over

    def begin(self, update: Update | None, seed: bytes, at: float = 0.0) -> list[Action]:
        """Begins the next round, and returns the actions to perform. The round cannot be begun again.

        The caller delivers the early messages (`early.take()`) afterwards.
        """
        if self.unfinished:
            raise ConfigError(
                f"{self.me} is still in round {self.number}; try: finish, resume or abandon it before the next one"
            )
        if (update is None) != (self.me == SERVER):
            raise ConfigError(f"{self.me} contributes {'no' if update is None else 'an'} update to a round")
        self.round = self._round(RoundBegun(self.number + 1, seed, self.state, update))
        self.number += 1
        return self.round.start(at)

    def deliver(self, data: Buffer, at: float = 0.0) -> list[Action]:
        """Processes an envelope, and returns the actions to perform."""
        if self.round is not None:
            return self.round.deliver(data, at)
        # Without a round, messages of the next round, or of the one to be resumed, may arrive.
        agreement, before = self.agreement, self.number - self.unfinished
        if self._lobby is None:
            link, suite = Link(self.me, agreement.parties, agreement.session, before), self.suite(before, b"")
            self._lobby = Inbox(
                link, suite, self.codec, agreement.terms, self.early, agreement.difference, agreement.roster
            )
        delivery = self._lobby.deliver(data)
        if delivery.answer_to is not None:
            return [GreetingPost(agreement.greeting(self.suite(before, b""), before + 1, delivery.answer_to), 0)]
        return [MessageDeferred()] if delivery.discarded is Discard.EARLY else []

    def expire(self, at: float = 0.0) -> list[Action]:
        """Ends the present wait, and returns the actions to perform."""
        return [] if self.round is None else self.round.expire(at)

    def give_up(self, state: State | None = None) -> None:
        """Gives up the present round with the last saved state, or the given one. Its number stays used up."""
        self._state = self.state if state is None else state
        if self.round is not None:
            self.round.close()
        self.round, self._unfinished, self._lobby = None, False, None

    def resume(self, journal: Journal, update: Update | None, at: float = 0.0) -> list[Post]:
        """Rebuilds the round of a journal, and returns its messages, which have to be sent again.

        Raises JournalError if the journal belongs to another round, does not match the update, or is incomplete. Then
        nothing may be sent.
        """
        records = journal.read()
        round_ = self._round(self._read_inputs(records[0].event, update, {**journal.detached, **records[0].detached}))
        posts: list[Post] = []
        for number, record in enumerate(records):
            try:
                posts += self._repeat(round_, record, at)
            except Exception as error:  # a round may fail in any way on input that it never received
                round_.close()
                raise JournalError(
                    f"record {number} of the journal does not reproduce round {self.number}, so nothing is sent: the "
                    f"journal was changed, or written by another release; try: {CURE}"
                ) from error
        self.round = round_
        return posts

    def _repeat(self, round_: Round, record: Record, at: float) -> list[Post]:
        """Repeats a recorded call, and returns its messages; raises JournalError if the result differs."""
        if isinstance(record.event, Beginning):
            actions = round_.start(at)
        else:
            actions = round_.expire(at) if record.event is None else round_.deliver(record.event, at)
        posts = [action for action in actions if isinstance(action, Post)]
        saved = [action.state for action in actions if isinstance(action, StateSaved)]
        state = self.agreement.protocol.encode_state(saved[-1], apart={}) if saved else None
        counts = bool(actions) and isinstance(actions[0], RoundBegun | InputTaken)
        if not counts or digest_posts(posts) != record.outbox or state != record.state:
            raise JournalError("the result of a call differs from its record")
        return posts

    def _read_inputs(self, event: object, update: Update | None, detached: Mapping[bytes, Buffer]) -> RoundBegun:
        """Returns the inputs of a round; raises JournalError if the round or the update is another one."""
        agreement = self.agreement
        if not isinstance(event, Beginning):
            raise JournalError(f"the journal lacks the beginning of the round; try: {CURE}")
        if event.session != agreement.session:
            raise JournalError("the journal belongs to another session: a setting, the roster or the model has changed")
        if event.party != self.me:
            raise JournalError(f"the journal belongs to {event.party}, not to {self.me}; try: give each party its own")
        if event.number != self.number:
            raise JournalError(
                f"the journal is of round {event.number}, but {self.me} has begun {self.number}; try: "
                f"resume with the number that goes with it"
            )
        if event.update != fingerprint_update(update, event.seed):
            raise JournalError(
                f"round {event.number} was begun with another update, and must finish with that "
                "one: two updates under the same masks would reveal their difference"
            )
        state = agreement.protocol.decode_state(event.state, apart=detached)
        return RoundBegun(event.number, event.seed, state, update)

    def _round(self, begun: RoundBegun) -> Round:
        suite = self.suite(begun.number, begun.seed)
        if wrong := begun.state.problems(self.agreement.terms, suite.ring, self.agreement.entries):
            raise JournalError(
                f"the round cannot continue from the saved state before round {begun.number}: {'; '.join(wrong)}"
            )
        self._lobby = None
        return Round(self.agreement, suite, self.codec, begun, self.role, self.early)


class KeyedParticipant(Participant):
    """A participant with real keys."""

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
        pool: BufferPool | None = None,
    ) -> None:
        """Creates a participant, like `Participant`.

        Args:
            agreement: The agreement of the parties.
            identity: The party's long-lived keys.
            number: The number of the last round that was begun.
            state: The last saved state; the protocol's initial one by default.
            unfinished: Whether that round was interrupted.
            role: A coroutine that replaces the protocol's.
            bits: Bits of a finer ring than the agreed one, for audits.
            record: Whether sampled secrets are recorded, for audits.
            pool: A pool for the memory of vectors. With one, averages are no wider than the contributed vector.
        """
        length = agreement.ring(bits).length
        super().__init__(agreement, identity.name, length, number=number, state=state, unfinished=unfinished, role=role)
        self.identity, self.keys = identity, Keys(identity, agreement.roster)
        self.bits, self._record, self._pool, self._singles = bits, record, pool, False

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
            pool=self._pool,
        )

    def _round(self, begun: RoundBegun) -> Round:
        vector = None if begun.update is None else np.asarray(begun.update.vector)
        self._singles = self._pool is not None and (vector is None or vector.dtype == np.float32)
        return super()._round(begun)

    def suite(self, number: int, seed: bytes) -> RealSuite:
        """Returns the cryptographic suite of a round."""
        del number
        entropy = (RecordingEntropy if self._record else SeededEntropy)(seed)
        ring = self.agreement.ring(self.bits)
        ring.narrow, ring.pool = self._singles, self._pool
        return RealSuite(self.keys, entropy, ring)
