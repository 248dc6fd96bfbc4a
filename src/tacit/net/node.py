"""Node of a federation: one party, or the server, on a network, with its participant, its store and its courier.

A node keeps the contract of `runtime.round`: every call of its participant is on disk before its messages leave, and an
envelope is acknowledged once it is on disk. So a node can be killed at any moment, and resumes from its folder.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import time

from tacit.core.average import Ending
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, TacitError, TransportError
from tacit.core.messages import MAX_GREETING
from tacit.core.suite import SERVER, Buffer, Party, Update
from tacit.crypto.keys import Keys
from tacit.net.membership.hello import HelloExchange
from tacit.net.membership.identity import Credentials
from tacit.net.membership.rendezvous import Hello, Rendezvous
from tacit.net.membership.roster import RosterFile
from tacit.net.observability.metrics import MetricsEndpoint, render_metrics
from tacit.net.observability.status import PeerStatus, RoundSummary, Status, write_status
from tacit.net.observability.telemetry import Telemetry
from tacit.net.store.round_store import RoundStore
from tacit.net.transport.courier import Courier
from tacit.net.transport.peer_link import PeerEndpoint, Tls
from tacit.net.wait_timer import WaitTimer
from tacit.runtime.agreement import Agreement
from tacit.runtime.journal import Journal, Record
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Action, MessageDeferred, Post, Round, RoundBegun
from tacit.vectors.buffers import BufferPool

SEED_BYTES = 32
OFTEN = 1.0
"""Seconds between hellos to those who are waited for, and between looks at how it stands."""


class Node:
    """A party, or the server, on a network. Everything but `start`, `average` and `close` happens in between."""

    def __init__(
        self, roster: RosterFile, mine: Credentials, store: RoundStore, seed: Callable[[int], bytes] | None = None
    ) -> None:
        """Knows everybody on the roster, and must be on it itself.

        A round draws from the operating system, or from what `seed` gives for its number.
        """
        roster.check(mine)
        self.me, self.roster, self.store, self._mine = mine.name, roster, store, mine
        self.peers = tuple(peer for peer in roster.terms.peers(self.me) if peer != self.me)
        self._deadlines = roster.deadlines
        self._seed = seed or (lambda _: SystemEntropy().bytes(SEED_BYTES))
        self._rendezvous = Rendezvous(self.me, self.peers, store.first_seen, store.incarnation)
        self._participant: KeyedParticipant | None = None
        self.last: Ending | None = None
        """How the last round ended that is over."""
        self._journal = Journal(kept=False)
        self._undone: tuple[list[Action], Record | None, tuple[Update | None, bool]] | None = None
        """What a call of the participant returned that is not on disk yet, and so not done."""
        self._failed: TacitError | None = None
        """What the disk failed with, as long as it does;"""
        self._untaken: TacitError | None = None
        """and with what came last that is long."""
        self._owed = False
        """Whether whoever averages was told of that, instead of how the round ended."""
        self._left = False
        self._stirred = asyncio.Event()
        self._turn = asyncio.Lock()
        self._timer = WaitTimer(self._deadlines.phase, self._expired)
        self._pool = BufferPool()
        self._telling: asyncio.Task[None] | None = None
        self.telemetry = Telemetry(self.me, roster.federation, roster.protocol)
        self.metrics = MetricsEndpoint(lambda: render_metrics(self.telemetry, self.status(), self.courier.links))
        self.courier = Courier(
            self.me,
            Tls(mine.key_pem.reveal(), mine.certificate_pem),
            [
                PeerEndpoint(card.name, card.address, roster.certificate_of(card.name), roster.host_of(card.name))
                for card in roster.parties
                if card.name != self.me
            ],
            self,
            self._between,
            roster.deadlines.connect,
            self._pool,
        )
        links = {peer: self.courier.links[peer] for peer in self.peers}
        self._hellos = HelloExchange(Keys(mine.identity, roster.members), links, self._hello, self._heard)

    @property
    def rounds(self) -> int:
        """The number of the last round that was begun."""
        return 0 if self._participant is None else self._participant.number

    @property
    def agreement(self) -> Agreement:
        """What was agreed; there is nothing yet before it is known how long vectors are."""
        if self._participant is None:
            raise ConfigError("nothing was averaged yet")
        return self._participant.agreement

    @property
    def resuming(self) -> bool:
        """Whether a round that was cut off is being finished."""
        return self._participant is not None and (self._participant.unfinished or self._owed)

    async def start(self, address: str | None = None, metrics: str | None = None) -> None:
        """Listens where the roster has it, or elsewhere, and goes on with a round that was cut off.

        What it counts can be had at `metrics`, a host:port, if that is given.
        """
        if self.store.entries:
            self._settle(self.store.entries)
        where = address or self.roster.address_of(self.me)
        await self.courier.start(where)
        if metrics is not None:
            await self.metrics.start(metrics)
        self.telemetry.report_joined(where, self.rounds)
        self._hellos.say()
        self._telling = asyncio.create_task(self._tell())

    def _between(self, peer: Party) -> tuple[Party, ...]:
        """Returns who may pass on what we have for a peer: those whom both of us know as peers."""
        theirs = self.roster.terms.peers(peer) if peer in self.peers else ()
        return tuple(each for each in self.peers if each != peer and each in theirs and each != SERVER)

    async def average(self, update: Update | None) -> Ending:
        """Takes part in the next round and returns how it ended for us, which may be with an error.

        If a round was cut off it is finished first, with what was brought to it then, and its ending is returned.
        """
        async with self._turn:
            try:
                return await self._averaged(update)
            except TacitError as error:
                self._declare(0)  # or others would begin, and wait for us
                self.telemetry.report_refused(error, self.rounds)
                raise

    async def _averaged(self, update: Update | None) -> Ending:
        if self._participant is None and update is not None:
            self._settle(len(update.vector))  # which may find that a round was begun
        if self.resuming:
            self._go_on()
        else:
            await self._begin(update)
        await self._until(lambda: self._undone is not None or (self._round is not None and self._round.over))
        if self._undone is not None and self._failed is not None:
            raise self._failed
        round_, self._owed = self._round, False
        if round_ is None:
            raise TransportError("the node was closed")
        if round_.error is not None and self._untaken is not None:
            raise self._untaken  # others are said to be silent only because of that
        return round_.ending

    async def serve(self, told: Callable[[Ending], None], rounds: int | None = None) -> None:
        """Takes part in round after round, as a server does, and tells how each of them ended."""
        while rounds is None or self.rounds < rounds:
            told(await self.average(None))

    async def close(self, *, leaving: bool = False) -> None:
        """Says no more. Whoever leaves says so, and the others do not wait for it any longer."""
        if leaving:
            self._left = True
            self._hellos.say()
            await self._hellos.wait_until_sent()
        self._hellos.stop()
        if self._telling is not None:
            self._telling.cancel()
        self._timer.stop()
        await self.metrics.close()
        await self.courier.close()
        try:
            # What is not on disk by now is done again by whoever goes on from there.
            with suppress(TransportError):
                self._finish()
        finally:
            self.store.close()
        self.telemetry.report_closed(leaving)

    async def flushed(self, seconds: float) -> bool:
        """Waits until all that was said has arrived, up to so long; says whether it has."""
        try:
            async with asyncio.timeout(seconds):
                await self._until(lambda: not any(link.waiting for link in self.courier.links.values()))
        except TimeoutError:
            return False
        return True

    def status(self) -> Status:
        """Returns how it stands."""
        rendezvous, now = self._rendezvous, self._now()
        round_ = self._round if self._round is not None and self._round.wait is not None else None
        pending = frozenset[Party]() if round_ is None else round_.inbox.pending
        kinds = () if round_ is None or round_.wait is None else round_.wait.names
        peers = [
            PeerStatus.of(peer, rendezvous, self.courier.links[peer], now, self._timer.since, peer in pending)
            for peer in self.peers
        ]
        wrong = self._failed or self._untaken or rendezvous.wrong
        return Status(
            self.me,
            round(time(), 1),  # which is enough for people
            self.rounds,
            rendezvous.ready,
            not self.resuming,
            " or ".join(kinds),
            peers,
            "" if wrong is None else str(wrong),
            None if self.last is None else RoundSummary.of(self.last),
        )

    async def _tell(self) -> None:
        """Writes down how it stands, for those who look, again and again."""
        while True:
            self.telemetry.report_links({peer: self.courier.links[peer] for peer in self.peers})
            with suppress(TacitError):
                self._go_on()
            write_status(self.store.folder, self.status())
            await asyncio.sleep(OFTEN)

    # --- when to begin ---------------------------------------------------------------------------------------------

    async def _begin(self, update: Update | None) -> None:
        """Begins the next round, once it is time to."""
        if update is not None:
            self._settle(len(update.vector))
        number = await self._due()
        participant = self._participant
        if participant is None:
            raise AssertionError  # nobody is ready before it knows what is averaged
        # All of the last round is on disk until this one has begun, and nothing of it is written once more.
        self._go_on()
        over, self._journal, participant.number = bool(self._journal.tip), Journal(kept=False), number - 1
        self._rendezvous.ready = 0
        if self.last is not None:
            # Where the next round has begun it is no longer on disk either.
            self.last = replace(self.last, average=None)
        self._do(participant.begin(update, self._seed(number), self._now()), (update, over))
        for data in participant.early.take():
            self._deliver(data)

    async def _due(self) -> int:
        """Returns which round to begin, when it is time to; raises what keeps us from it."""
        since = self._timer.since = self._now()
        self._failed = self._untaken = None
        self._hellos.say()
        while True:
            self._stirred.clear()
            rendezvous = self._rendezvous
            if (wrong := self._failed or rendezvous.wrong) is not None:
                raise wrong
            number = 0 if self._participant is None else rendezvous.next(self._participant.number + 1)
            if number:
                self._declare(number)
                if self.me == SERVER and not any(rendezvous.is_ready(peer, number) for peer in self.peers):
                    since = self._now()  # as long as nobody waits, there is no hurry
            late = self._now() - since >= self._longest
            if (
                number
                and rendezvous.assured
                and (rendezvous.may_begin(number) or (late and rendezvous.may_begin_without_all()))
            ):
                rendezvous.needed = 0
                return number
            if late:
                raise self._rendezvous.nobody(self.roster.protocol, self.courier.links, self._longest)
            try:
                async with asyncio.timeout(min(OFTEN, since + self._longest - self._now() + 0.001)):
                    await self._stirred.wait()
            except TimeoutError:
                # What was said may not have been heard, on either side. A server has many to ask, and asks a few.
                self._hellos.say([peer for peer in self.peers if self.me != SERVER or not rendezvous.is_there(peer)])

    @property
    def _longest(self) -> float:
        """How long we wait for others, in seconds. A server waits as long for others before it begins."""
        return self._deadlines.start * (2 if SERVER in self.peers else 1)

    # --- hellos ----------------------------------------------------------------------------------------------------

    def _hello(self, to: Party) -> Hello:
        """Returns how far we are."""
        over = self._participant is None or not self._participant.unfinished
        return self._rendezvous.hello(to, self.rounds, over, self._left)

    def greet(self, sender: Party, hello: bytes) -> bytes:
        """Takes a hello in, and returns ours."""
        return self._hellos.answer(sender, hello)

    def _heard(self, sender: Party, hello: Hello | int) -> None:
        """Takes in how far a peer is, or of which version it is if that is another than ours."""
        if isinstance(hello, Hello):
            self._note(sender, hello)
        else:
            self._rendezvous.foreign(sender, hello)
            self._stirred.set()
        self.telemetry.report_disagreements({**self._rendezvous.disagreements, **self._rendezvous.lost})

    def _note(self, sender: Party, hello: Hello) -> None:
        if hello.left:
            self.courier.links[sender].discard_before(self.rounds + 1)
        try:
            new = self._rendezvous.listen(sender, hello, self._now())
        except TransportError as error:  # of the disk: it is said again, and then noted again
            self._failed, new = error, True
        if new:
            self._stirred.set()
        if self._participant is None and self.me == SERVER and self._rendezvous.entries:
            with suppress(ConfigError):  # whoever brings vectors that fit no message was told so at home
                self._settle(self._rendezvous.entries)

    def _declare(self, number: int) -> None:
        """Says that we are ready for a round, once, or no longer for any."""
        if self._rendezvous.ready != number:
            self._rendezvous.ready = number
            if number:
                self.telemetry.report_ready(number)
            self._hellos.say()

    # --- rounds ----------------------------------------------------------------------------------------------------

    def most(self, sender: Party) -> int:
        """Returns how long a frame may be: as long as any message of the protocol, or as a greeting."""
        del sender
        return max(MAX_GREETING, self._participant.codec.longest if self._participant is not None else 0)

    async def take(self, sender: Party, data: Buffer) -> bool:
        """Takes in what came; says whether it is on disk, or does not count."""
        if self._participant is None:
            return False
        if sender in self._rendezvous.lost:
            return True
        if self._rendezvous.heard(sender) is None:
            # Before it has said hello it may be one that has lost its journal.
            if not self._hellos.is_sending(sender):  # or it could have us say any number of them
                self._hellos.say([sender])
            return False
        try:
            actions = self._deliver(data)
        except TacitError:
            return False  # it is not on disk, and comes again
        early = any(isinstance(action, MessageDeferred) for action in actions)
        if early:
            self._stirred.set()
        return not early

    def _deliver(self, data: Buffer) -> list[Action]:
        """Delivers what came, and does what that asks for."""
        self._go_on()
        participant, view = self._participant, memoryview(data)
        if participant is None:
            return []
        if not view.readonly and participant.round is not None and participant.unfinished:
            self._stage(view)  # before it is opened, which may be where it lies
        else:
            view = view.toreadonly()
        actions = participant.deliver(view, self._now())
        self._do(actions)
        return actions

    def _stage(self, view: memoryview) -> None:
        """Has the disk take what came. What that fails with is why nothing comes any more, if nothing does."""
        try:
            self.store.stage(view)
        except TacitError as error:
            self._untaken = error
            self.telemetry.report_disk(error)
            raise
        self._untaken = None
        self.telemetry.report_disk(None)

    @property
    def _round(self) -> Round | None:
        return None if self._participant is None else self._participant.round

    def _settle(self, entries: int) -> None:
        """Sits down for vectors of a length, if we have not."""
        if self._participant is None:
            self._sit(self.roster.agreement(entries))
        elif self._participant.agreement.entries != entries:
            raise ConfigError(
                f"this model has {entries} numbers, and the federation averages ones of "
                f"{self._participant.agreement.entries}; bring the same model as before, or begin anew, all of you "
                f"with empty folders: tacit roster renew"
            )

    def _sit(self, agreement: Agreement) -> None:
        """Goes on from what is on disk: after the last round, or in the middle of it."""
        found, protocol = self.store.load(agreement.session), agreement.protocol
        self._participant = participant = KeyedParticipant(
            agreement,
            self._mine.identity,
            number=found.number,
            state=found.state_of(protocol),
            unfinished=found.journal is not None,
            pool=self._pool,
        )
        self.last = found.ending
        self._pool.fit(agreement.ring().length * agreement.ring().element_bytes)
        # With a server, masks are drawn anew in each round; without one, they follow from the session and the round.
        needed = 0 if SERVER in self.peers or self.me == SERVER else min(len(self.peers), self.roster.adversary + 1)
        self._rendezvous.sit(agreement, 0 if self.store.has_begun(agreement.session) else needed)
        if found.journal is not None:
            self._journal.tip = found.journal.tip
            for post in participant.resume(found.journal, found.update, self._now()):
                self._send(post)
            self._moved(resumed=True)

    def _do(self, actions: list[Action], begun: tuple[Update | None, bool] = (None, False)) -> None:
        """Does what a call of the participant returned, in the order of the contract.

        A round is `begun` with an update, and while the one before it, though over, may not have been finished.
        """
        participant, first = self._participant, actions[0] if actions else None
        if participant is None or first is None or isinstance(first, MessageDeferred):
            return
        agreement = participant.agreement
        record = self._journal.record(agreement.protocol, agreement.session, self.me, actions)
        self._undone = actions, record, begun
        self._go_on()

    def _go_on(self) -> None:
        """Does what is still to be done, as far as the disk allows; raises what that fails with."""
        if self._undone is None:
            return
        actions, record, (update, over) = self._undone
        begun = isinstance(actions[0], RoundBegun)
        try:
            if record is not None and begun:
                self.store.begin(record, update, self.agreement.entries, time(), over=over)
            elif record is not None:
                self.store.record(record, time())
        except TacitError as error:
            self._failed, self._owed = error, True
            self.telemetry.report_disk(error)
            self._stirred.set()
            raise
        self._undone = self._failed = None
        self.telemetry.report_disk(None)
        for action in actions:
            if isinstance(action, Post):
                self._send(action)
        if begun:
            for link in self.courier.links.values():
                link.discard_before(self.rounds - 1)
            self._hellos.say()
        self._moved()

    def _moved(self, *, resumed: bool = False) -> None:
        """Takes note of where the round is by now."""
        self._timer.follow(self._round)
        # Rounds are all that a server does; others give memory back in between.
        playing = self._round is not None and not self._round.over
        self._pool.keep(len(self.peers) + 1 if self.me == SERVER else 2 * playing)
        if self._round is not None:
            self.telemetry.report_round(self._round, resumed=resumed)
            if self._round.over:
                self.last = self._round.ending
                self._stirred.set()

    def _send(self, post: Post) -> None:
        self.courier.links[post.to].send(post, self.rounds, self._stirred.set)

    def _expired(self) -> None:
        with suppress(TacitError):  # of the disk, which whoever averages is told
            self._go_on()
            if self._participant is not None:
                self._do(self._participant.expire(self._now()))

    def _finish(self) -> None:
        """Forgets what the last round took, once it is over: its ending and the state are kept."""
        participant, round_ = self._participant, self._round
        done = self._undone is None and round_ is not None and round_.over
        if participant is not None and round_ is not None and done and self._journal.tip:
            apart: dict[bytes, memoryview] = {}
            state = participant.agreement.protocol.encode_state(participant.state, (self.me, participant.number), apart)
            self.store.finish(participant.number, state, round_.ending, time(), apart)
            self._journal = Journal(kept=False)

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._stirred.clear()
            await self._stirred.wait()

    @staticmethod
    def _now() -> float:
        """Returns the time by a clock that nobody sets."""
        return asyncio.get_running_loop().time()
