"""One party's side of one round, without input or output: what comes in goes through it, and what to do comes out.

Whoever drives a round calls `start` once, then `deliver` for whatever arrives and `expire` when a wait has taken too
long. Each call returns what is to be done, in order, until the round is `over`. Nothing else knows how to advance a
coroutine: simulator, network and workers only decide when what arrives.

**The driver's contract.** A round is a function of the agreement, the state before it, a 32-byte seed of its own, its
update, and what `deliver` and `expire` were called with, in order. So a party that is cut off can be rebuilt and says
the same again, byte for byte, if its driver keeps to this:

1. Of every call, what the call was given is on disk before anything that it returned is done: for `start` the round's
   number, seed, state, and update (`Begun`); for the others the bytes, or that time was up (`Heard`). With it goes a
   digest of every message that the call returned (*outbox before send*), so that a rebuilt round which would say
   something else is found out before it does. `Journal.record` makes one record of all that. The journal's tip is kept
   apart from the records, next to the number and the state, so that an older copy of the records is not taken for all
   of them. A record names the tip before it. So the record is written first and then the tip in the place of the one
   before: wherever that is cut off, the newest record is the one of the tip or follows it.
2. What was returned is done in order. A state that was `Saved` is on disk before any message after it leaves; it is
   part of the same record.
3. Bytes are acknowledged to their sender once they are on disk, or were found not to count. Until then the sender keeps
   them. Mail that is `Kept` for the next round is on nobody's disk, and not acknowledged yet.
4. A message is sent until it is acknowledged. What a rebuilt round says is sent again; receivers throw a second copy
   away. A round that is over goes on acknowledging.
5. A round number is begun once, and is used up when its first record is on disk; before that nothing of it was said.
   Afterwards it can be resumed from its journal, with what it was begun with, or given up; it is never begun again with
   other inputs, for its pairwise masks would then cover two vectors. So a participant is rebuilt with all the numbers that
   are used up, and is told whether the last is `unfinished`. A round that is given up leaves the last saved state
   behind, not the one before it.
6. When a round is over and everything acknowledged, its ending and state are kept, the state with its party and number
   (`encode_state`), and its journal, with the seed and the update, is deleted. The ending is kept until the next round
   has begun.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tacit.core.average import CLASSES, Average, Ending, Phase
from tacit.core.errors import TacitError
from tacit.core.link import Effect, Link, Save, Send, Wait
from tacit.core.messages import Abort, Address, Codec, Greeting, Message, size_by_class
from tacit.core.protocol import Role, State
from tacit.core.suite import SERVER, Buffer, Party, Secret, Suite, Update
from tacit.runtime.agreement import Agreement
from tacit.runtime.inbox import Discard, Early, Inbox

# --- what a driver is told to do -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begun:
    """The round has begun, with this."""

    number: int
    seed: bytes
    state: State
    update: Update | None

    def __repr__(self) -> str:
        return f"Begun({self.number})"


@dataclass(slots=True)
class Heard:
    """This came in and counts; None if it is that time was up."""

    data: Buffer | None

    def __repr__(self) -> str:
        return "Heard(deadline)" if self.data is None else f"Heard({len(self.data)} bytes)"


@dataclass(slots=True)
class Saved:
    """This is the state from here on."""

    state: State
    effect: int

    def __repr__(self) -> str:
        return "Saved(…)"


@dataclass(frozen=True)
class Kept:
    """What came in belongs to the next round, and is kept for it in memory."""


class Post:
    """A message to be sent. It is sealed when its bytes are asked for, to the same bytes every time."""

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
        """What kind of message it is."""
        return self.address.kind

    @property
    def data(self) -> bytes:
        """The bytes of the envelope."""
        return self._codec.enveloped(self.address, self.sealed)

    @property
    def sealed(self) -> bytes:
        """The sealed message in it."""
        return self._codec.seal(self._suite, self._key, self.address, self._payload)

    @property
    def stamp(self) -> bytes:
        """A few bytes that are others for any other message at this address."""
        return self._codec.stamp(self._suite, self._key, self.address, self._payload)

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes of the envelope, of which there are never many at once."""
        return self._codec.pieces(self._suite, self._key, self.address, self._payload)

    @property
    def _key(self) -> Secret:
        return self._suite.channel(self.to, self.address.session)

    def __repr__(self) -> str:
        return f"Post({self.kind} to {self.to}, {self.size} bytes)"


class Greet(Post):
    """A greeting to be sent: it travels as it is."""

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
        """Yields them."""
        yield self._data


Action: TypeAlias = Begun | Heard | Saved | Kept | Post


# --- the round -----------------------------------------------------------------------------------------------------


class Round:
    """A coroutine, where it stands, its mail, and what it has cost so far."""

    def __init__(
        self,
        agreement: Agreement,
        suite: Suite,
        codec: Codec,
        begun: Begun,
        role: Role | None = None,
        early: Early | None = None,
    ) -> None:
        """Sets a round up. `role` puts another coroutine in the place of the protocol's, for attacks and tests."""
        self.agreement, self.suite, self.begun, self._codec = agreement, suite, begun, codec
        protocol, terms = agreement.protocol, agreement.terms
        self.link = Link(suite.me, terms.parties, agreement.session, begun.number)
        self.inbox = Inbox(self.link, suite, codec, terms, early, agreement.difference, agreement.roster)
        self.state = begun.state
        """The last one saved."""
        self.wait: Wait | None = None
        """What is waited for at present."""
        self.waits = 0
        """How many waits there were, so that a deadline of an earlier one is not taken for that of the present one."""
        self.effects = 0
        """How many sends, saves and waits there were."""
        self.over = False
        """Whether the party has finished or given up."""
        self.average: Average | None = None
        self.error: TacitError | None = None
        self._phases: list[Phase] = []
        self._since = 0.0
        self._sent, self._received = [0, 0, 0], [0, 0, 0]
        honest: Role | None = protocol.server if suite.me == SERVER else protocol.party
        brings = () if begun.update is None else (begun.update,)
        self._run = (role or honest)(self.link, *brings, terms, suite, begun.state)  # type: ignore[misc]

    # --- what a driver calls ---------------------------------------------------------------------------------------

    def start(self, at: float = 0.0) -> list[Action]:
        """Returns what is to be done first. `at` is the time on the driver's clock, for the record only."""
        return [self.begun, *self._advance(None, at)]

    def deliver(self, data: Buffer, at: float = 0.0) -> list[Action]:
        """Takes in what arrived, and returns what is to be done."""
        mail = self.inbox.deliver(data)
        if mail.discarded is Discard.EARLY:
            return [Kept()]
        actions: list[Action] = []
        if mail.discarded is None and not self.over:
            actions.append(Heard(data))
        # Whoever is of another session, and whoever told us so, is told what we hold to be agreed.
        if mail.apart is not None:
            actions.append(self._greeting(mail.apart))
        if self.over:
            return actions
        if mail.message is not None:
            self._count(self._received, size_by_class(mail.message, len(data)))
        if self.wait is not None and self.inbox.ready:
            actions += self._advance(self.wait, at)
        return actions

    def expire(self, at: float = 0.0) -> list[Action]:
        """Ends the present wait with what has come, and returns what is to be done."""
        if self.wait is None:
            return []
        return [Heard(None), *self._advance(self.wait, at)]

    def unsent(self, post: Post) -> None:
        """Takes note that a message was not sent after all, so that its bytes do not count."""
        self._count(self._sent, tuple(-size for size in post.sizes))

    def close(self) -> None:
        """Ends the coroutine where it stands, and forgets its keys."""
        self._run.close()
        self.wait = None
        self.suite.forget()

    @property
    def ending(self) -> Ending:
        """How the round ended, or how it stands."""
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
        )

    # --- how it moves ----------------------------------------------------------------------------------------------

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
                    yield self._post(effect.to, effect.message, effect.step, number)
                elif isinstance(effect, Save):
                    self.state = effect.state
                    yield Saved(effect.state, number)
                else:
                    self._since = at
                    if not self.inbox.expect(effect):
                        self.wait, self.waits = effect, self.waits + 1
                        return
                    answer = self._collect(effect, at)
        except StopIteration as stop:
            self.over, self.average = True, stop.value
        except TacitError as error:
            self.over, self.error = True, error
            # A party that gives up says so, so that nobody has to wait for it until a deadline.
            for peer in self.agreement.terms.peers(self.link.me):
                if peer != self.link.me:
                    yield self._post(peer, Abort(error.code), 0, self.effects)
        except Exception as error:
            error.add_note(f"in party {self.link.me!r}, round {self.link.round}, after {self.effects} effects")
            raise
        self.suite.forget()

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
        post = Greet(self.agreement.greeting(self.suite, self.link.round + self.over, heard), self.effects)
        self._count(self._sent, post.sizes)
        return post

    @staticmethod
    def _count(table: list[int], sizes: tuple[int, ...]) -> None:
        for place, size in enumerate(sizes):
            table[place] += size
