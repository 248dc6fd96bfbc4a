"""One party's side of one round, free of input and output.

A driver calls `start` once, then `deliver` for each envelope that arrives and `expire` when a wait times out. Each call
returns the actions to perform, in order, until the round is `over`. Only this module advances a coroutine; simulator,
network and workers decide when an envelope arrives.

**The driver's contract.** A round is a function of the agreement, the state before it, its own 32-byte seed, its
update, and the arguments of `deliver` and `expire`, in order. So a party that crashes can be rebuilt, and sends the
same messages again, byte for byte, if its driver follows these rules:

1. The input of every call is on disk before any action that the call returned is performed. For `start` it is the
   round's number, seed, state and update (`RoundBegun`). For the others it is the bytes, or the fact that a wait timed
   out (`InputTaken`). A digest of every message that the call returned is written with it (*outbox before send*), so
   that a rebuilt round that would send anything else is detected before it sends. `Journal.record` makes one record of
   all this. The journal's tip is stored separately from the records, next to the number and the state, so that an older
   copy of the records is not mistaken for the complete journal. A record names the tip before it. The record is written
   first, then the new tip replaces the previous one. Wherever a crash interrupts this, the newest record is that of the
   tip, or the one that follows it.
2. Actions are performed in order. The state of a `StateSaved` is on disk before any later message is sent; it is part
   of the same record.
3. Bytes are acknowledged to their sender once they are on disk, or have been discarded. Until then the sender keeps
   them. A message deferred to the next round (`MessageDeferred`) is not on disk, so it is not acknowledged yet.
4. A message is sent until it is acknowledged. A rebuilt round sends its messages again, and receivers discard a second
   copy. A round that is over continues to acknowledge messages.
5. A round number is begun once. It is used up when its first record is on disk; nothing is sent before that.
   Afterwards the round can be resumed from its journal, with the same inputs, or given up. It is never begun again with
   other inputs, because its pairwise masks would then cover two vectors. So a participant is rebuilt with the last
   number that is used up, and with whether that round is `unfinished`. A round that is given up leaves the last saved
   state behind, not the one before it.
6. When a round is over and all its messages are acknowledged, its ending and its state are kept, the state with its
   party and number (`encode_state`). Its journal, which has the seed and the update, is deleted. The ending is kept
   until the next round has begun.
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
    """A round has begun, with these inputs."""

    number: int
    seed: bytes
    state: State
    update: Update | None

    def __repr__(self) -> str:
        return f"RoundBegun({self.number})"


@dataclass(slots=True)
class InputTaken:
    """An envelope was accepted or, if `data` is None, a wait timed out."""

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
    """The envelope belongs to the next round, and is kept in memory until then."""


class Post:
    """A message to send. It is sealed on demand, always to the same bytes."""

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
        """A short digest that differs between any two messages at this address."""
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
        """Prepares a round. `role` replaces the protocol's coroutine, in attacks and tests."""
        self.agreement, self.suite, self.begun, self._codec = agreement, suite, begun, codec
        protocol, terms = agreement.protocol, agreement.terms
        self.link = Link(suite.me, terms.parties, agreement.session, begun.number)
        self.inbox = Inbox(self.link, suite, codec, terms, early, agreement.difference, agreement.roster)
        self.state = begun.state
        """The last saved state."""
        self.wait: Wait | None = None
        """The present wait, if any."""
        self.waits = 0
        """Number of waits so far. It distinguishes the timeout of an earlier wait from that of the present one."""
        self.effects = 0
        """Number of sends, saves and waits so far."""
        self.over = False
        """Whether the party has finished or aborted."""
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
        """Processes an envelope, and returns the actions to perform."""
        delivery = self.inbox.deliver(data)
        if delivery.discarded is Discard.EARLY:
            return [MessageDeferred()]
        actions: list[Action] = []
        if delivery.discarded is None and not self.over:
            actions.append(InputTaken(data))
        # A sender of another session, or one whose greeting shows a difference, gets our own greeting.
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
        """Removes a message from the traffic counts that was not sent after all."""
        self._count(self._sent, tuple(-size for size in post.sizes))

    def close(self) -> None:
        """Ends the coroutine at its present wait, and erases its keys."""
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
        """Resumes the coroutine with the result of its wait, and serves its effects until it waits again or ends."""
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
            # A party that aborts sends a notice, so that its peers need not wait for a timeout.
            for peer in self.agreement.terms.peers(self.link.me):
                if peer != self.link.me:
                    yield self._post(peer, Abort(error.code), 0, self.effects)
        except Exception as error:
            error.add_note(f"in party {self.link.me!r}, round {self.link.round}, after {self.effects} effects")
            raise
        self.suite.forget()

    def _check_steps(self, step: int, *kinds: type[Message]) -> None:
        """Raises StepError if the protocol's own code uses a step at which receivers refuse the message."""
        if not self._is_honest:
            return  # an attack may send anything
        for kind in kinds:
            due = self.agreement.terms.steps(kind)
            if step not in due:
                raise StepError(
                    f"{self.agreement.protocol.name} uses step {step} of {kind.kind()}, and its terms have steps "
                    f"{due.start} to {due.stop - 1}; try: let steps() of the terms return the steps of every message"
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
        # After its end, a round greets on behalf of the next round, in which the answer still matters.
        post = GreetingPost(self.agreement.greeting(self.suite, self.link.round + self.over, heard), self.effects)
        self._count(self._sent, post.sizes)
        return post

    @staticmethod
    def _count(table: list[int], sizes: tuple[int, ...]) -> None:
        for place, size in enumerate(sizes):
            table[place] += size
