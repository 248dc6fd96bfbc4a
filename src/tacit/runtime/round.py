"""One party's side of one round, free of input and output.

A driver calls `start` once, then `deliver` for each envelope that arrives and `expire` when a wait times out. Each call
returns the actions to perform, in order, until the round is `over`. Only this module advances a coroutine; simulator,
network and workers decide when an envelope arrives.

**The driver's contract.** A round is a function of the agreement, the state before it, a 32-byte seed of its own, its
update, and the arguments of `deliver` and `expire`, in order. A party that crashes can therefore be rebuilt and sends
the same messages again, byte for byte, if its driver keeps to this:

1. The input of every call is on disk before any action it returned is performed: for `start` the round's number, seed,
   state and update (`RoundBegun`); for the others the bytes, or the fact that a wait timed out (`InputTaken`). A digest
   of every message that the call returned is written with it (*outbox before send*), so that a rebuilt round that would
   send anything else is detected before it does. `Journal.record` makes one record of all that. The journal's tip is
   stored separately from the records, next to the number and the state, so that an older copy of the records is not
   mistaken for the whole. A record names the tip before it. The record is written first, then the tip replaces the
   previous one: wherever a crash interrupts this, the newest record is the one of the tip or follows it.
2. Actions are performed in order. A state of a `StateSaved` is on disk before any later message leaves; it is part of
   the same record.
3. Bytes are acknowledged to their sender once they are on disk, or have been discarded. Until then the sender keeps
   them. A message deferred to the next round (`MessageDeferred`) is on nobody's disk, and not acknowledged yet.
4. A message is sent until it is acknowledged. A rebuilt round sends its messages again; receivers discard a second
   copy. A round that is over continues to acknowledge.
5. A round number is begun once, and is used up when its first record is on disk; nothing was sent before that.
   Afterwards the round can be resumed from its journal, with the same inputs, or given up. It is never begun again with
   other inputs, because its pairwise masks would then cover two vectors. A participant is therefore rebuilt with the
   last number that is used up, and with whether that round is `unfinished`. A round that is given up leaves the last
   saved state behind, not the one before it.
6. When a round is over and everything is acknowledged, its ending and state are kept, the state with its party and
   number (`encode_state`), and its journal, with the seed and the update, is deleted. The ending is kept until the next
   round has begun.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tacit.core.average import CLASSES, Average, Ending, Phase
from tacit.core.errors import StepError, TacitError
from tacit.core.link import Effect, Link, Save, Send, Wait
from tacit.core.messages import Abort, Address, Codec, Greeting, Message, size_by_class
from tacit.core.protocol import Role, State
from tacit.core.suite import SERVER, Buffer, Party, Secret, Suite, Update
from tacit.runtime.agreement import Agreement
from tacit.runtime.inbox import Discard, EarlyMessages, Inbox

# --- actions for the driver ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundBegun:
    """The round has begun, with these inputs."""

    number: int
    seed: bytes
    state: State
    update: Update | None

    def __repr__(self) -> str:
        return f"RoundBegun({self.number})"


@dataclass(slots=True)
class InputTaken:
    """An envelope was accepted, or, with None, the wait timed out."""

    data: Buffer | None

    def __repr__(self) -> str:
        return "InputTaken(timeout)" if self.data is None else f"InputTaken({len(self.data)} bytes)"


@dataclass(slots=True)
class StateSaved:
    """The protocol saved a new state."""

    state: State
    effect: int

    def __repr__(self) -> str:
        return "StateSaved(…)"


@dataclass(frozen=True)
class MessageDeferred:
    """The envelope belongs to the next round, and is kept for it in memory."""


class Post:
    """A message to send. It is sealed on demand, to the same bytes every time."""

    __slots__ = ("_codec", "_payload", "_suite", "address", "effect", "size", "sizes")

    def __init__(self, suite: Suite, codec: Codec, address: Address, message: Message, effect: int) -> None:
        self._suite, self._codec, self.address, self.effect = suite, codec, address, effect
        self._payload = codec.encode(message)
        self.size = codec.sealed_size(address, self._payload)
        self.sizes = size_by_class(message, self.size)

    @property
    def to(self) -> Party:
        """The receiver."""
        return self.address.to

    @property
    def kind(self) -> str:
        """The kind of message."""
        return self.address.kind

    @property
    def data(self) -> bytes:
        """The bytes of the envelope."""
        return self._codec.wrap_sealed(self.address, self.sealed)

    @property
    def sealed(self) -> bytes:
        """The sealed payload of the envelope."""
        return self._codec.seal(self._suite, self._key, self.address, self._payload)

    @property
    def stamp(self) -> bytes:
        """A short digest that differs for any other message at this address."""
        return self._codec.stamp(self._suite, self._key, self.address, self._payload)

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes of the envelope in short pieces."""
        return self._codec.pieces(self._suite, self._key, self.address, self._payload)

    @property
    def _key(self) -> Secret:
        return self._suite.channel(self.to, self.address.session)

    def __repr__(self) -> str:
        return f"Post({self.kind} to {self.to}, {self.size} bytes)"


class GreetingPost(Post):
    """A greeting to send. It is signed and not sealed."""

    __slots__ = ("_data",)

    def __init__(self, greeting: Greeting, effect: int) -> None:
        self.address, self._data, self.effect = greeting.address, msgspec.msgpack.encode(greeting), effect
        self.size = len(self._data)
        self.sizes = self.size, 0, 0

    @property
    def data(self) -> bytes:
        """The bytes of the greeting."""
        return self._data

    sealed = data

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes of the greeting."""
        yield self._data


Action: TypeAlias = RoundBegun | InputTaken | StateSaved | MessageDeferred | Post


# --- the round -----------------------------------------------------------------------------------------------------


class Round:
    """One protocol coroutine with its inbox, its progress and its traffic so far."""

    def __init__(
        self,
        agreement: Agreement,
        suite: Suite,
        codec: Codec,
        begun: RoundBegun,
        role: Role | None = None,
        early: EarlyMessages | None = None,
    ) -> None:
        """Prepares a round. `role` replaces the protocol's coroutine, for attacks and tests."""
        self.agreement, self.suite, self.begun, self._codec = agreement, suite, begun, codec
        protocol, terms = agreement.protocol, agreement.terms
        self.link = Link(suite.me, terms.parties, agreement.session, begun.number)
        self.inbox = Inbox(self.link, suite, codec, terms, early, agreement.difference, agreement.roster)
        self.state = begun.state
        """The last saved state."""
        self.wait: Wait | None = None
        """The present wait, if any."""
        self.waits = 0
        """Number of waits so far. It tells the timeout of an earlier wait from that of the present one."""
        self.effects = 0
        """Number of sends, saves and waits so far."""
        self.over = False
        """Whether the party has finished or given up."""
        self.average: Average | None = None
        self.error: TacitError | None = None
        self._phases: list[Phase] = []
        self._since = 0.0
        self._sent, self._received = [0, 0, 0], [0, 0, 0]
        self._is_honest = role is None
        honest: Role | None = protocol.server if suite.me == SERVER else protocol.party
        brings = () if begun.update is None else (begun.update,)
        self._run = (role or honest)(self.link, *brings, terms, suite, begun.state)  # type: ignore[misc]

    # --- calls of the driver ---------------------------------------------------------------------------------------

    def start(self, at: float = 0.0) -> list[Action]:
        """Returns the first actions. `at` is the time on the driver's clock, for statistics only."""
        return [self.begun, *self._advance(None, at)]

    def deliver(self, data: Buffer, at: float = 0.0) -> list[Action]:
        """Takes in an envelope, and returns the actions to perform."""
        delivery = self.inbox.deliver(data)
        if delivery.discarded is Discard.EARLY:
            return [MessageDeferred()]
        actions: list[Action] = []
        if delivery.discarded is None and not self.over:
            actions.append(InputTaken(data))
        # A sender in another session, or one whose greeting differs, gets our own greeting.
        if delivery.answer_to is not None:
            actions.append(self._greeting(delivery.answer_to))
        if self.over:
            return actions
        if delivery.message is not None:
            self._count(self._received, size_by_class(delivery.message, len(data)))
        if self.wait is not None and self.inbox.ready:
            actions += self._advance(self.wait, at)
        return actions

    def expire(self, at: float = 0.0) -> list[Action]:
        """Ends the present wait with the messages that have arrived, and returns the actions to perform."""
        if self.wait is None:
            return []
        return [InputTaken(None), *self._advance(self.wait, at)]

    def uncount_post(self, post: Post) -> None:
        """Removes a message that was not sent after all from the traffic counts."""
        self._count(self._sent, tuple(-size for size in post.sizes))

    def close(self) -> None:
        """Ends the coroutine where it is, and erases its keys."""
        self._run.close()
        self.wait = None
        self.suite.forget()

    @property
    def ending(self) -> Ending:
        """The ending of the round, or its progress so far."""
        ring, average = self.suite.ring, self.average
        return Ending(
            party=self.link.me,
            round=self.link.round,
            average=None if average is None else average.vector,
            contributors=() if average is None else average.contributors,
            dropped=dict(self.link.dropped),
            error=self.error,
            clipped=getattr(ring, "clipped", 0),
            largest=getattr(ring, "largest", 0.0),
            rounded=getattr(ring, "rounded", 0.0),
            sent=dict(zip(CLASSES, self._sent, strict=True)),
            received=dict(zip(CLASSES, self._received, strict=True)),
            phases=tuple(self._phases),
            replaces=average is not None and average.replaces,
            lineage=b"" if average is None else self.state.continues_from(),
            is_change=average is not None and average.is_change,
        )

    # --- progress --------------------------------------------------------------------------------------------------

    def _advance(self, finished: Wait | None, at: float) -> Iterator[Action]:
        """Resumes the coroutine with the end of its wait, and serves its effects until it waits again or ends."""
        answer = None if finished is None else self._collect(finished, at)
        self.wait = None
        try:
            while True:
                effect: Effect = self._run.send(answer)
                answer, number = None, self.effects
                self.effects += 1
                if isinstance(effect, Send):
                    self._check_steps(effect.step, type(effect.message))
                    yield self._post(effect.to, effect.message, effect.step, number)
                elif isinstance(effect, Save):
                    self.state = effect.state
                    yield StateSaved(effect.state, number)
                else:
                    self._check_steps(effect.step, *effect.kinds)
                    self._since = at
                    if not self.inbox.expect(effect):
                        self.wait, self.waits = effect, self.waits + 1
                        return
                    answer = self._collect(effect, at)
        except StopIteration as stop:
            self.over, self.average = True, stop.value
        except TacitError as error:
            self.over, self.error = True, error
            # A party that gives up sends an abort, so that nobody waits for it until a timeout.
            for peer in self.agreement.terms.peers(self.link.me):
                if peer != self.link.me:
                    yield self._post(peer, Abort(error.code), 0, self.effects)
        except Exception as error:
            error.add_note(f"in party {self.link.me!r}, round {self.link.round}, after {self.effects} effects")
            raise
        self.suite.forget()

    def _check_steps(self, step: int, *kinds: type[Message]) -> None:
        """Raises StepError if the protocol's own code uses a step at which receivers would take no such message."""
        if not self._is_honest:
            return  # An attack may send what it likes.
        for kind in kinds:
            due = self.agreement.terms.steps(kind)
            if step not in due:
                raise StepError(
                    f"{self.agreement.protocol.name} uses step {step} of {kind.kind()}, and its terms have steps "
                    f"{due.start} to {due.stop - 1}; let steps() of the terms return the steps of every message"
                )

    def _collect(self, wait: Wait, at: float) -> object:
        arrived = self.inbox.collect(wait)
        self._phases.append(Phase(" or ".join(wait.names), len(wait.senders), arrived.missing, at - self._since))
        return arrived

    def _post(self, to: Party, message: Message, step: int, effect: int) -> Post:
        link = self.link
        address = Address(link.session, link.round, step, message.kind(), link.me, to)
        post = Post(self.suite, self._codec, address, message, effect)
        self._count(self._sent, post.sizes)
        return post

    def _greeting(self, heard: Address) -> Post:
        # A round that is over greets for the next one, in which the answer still matters.
        post = GreetingPost(self.agreement.greeting(self.suite, self.link.round + self.over, heard), self.effects)
        self._count(self._sent, post.sizes)
        return post

    @staticmethod
    def _count(table: list[int], sizes: tuple[int, ...]) -> None:
        for place, size in enumerate(sizes):
            table[place] += size
