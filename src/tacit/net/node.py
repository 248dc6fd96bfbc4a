"""Node of a federation: one party, or the server, on a network, with its participant, its store and its transport.

A node follows the contract of `runtime.round`: the record of a call is on disk before its messages are sent, and an
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
from tacit.net.node_lifecycle import NodeLifecycle, PendingCall, Presence
from tacit.net.observability.metrics import MetricsEndpoint, render_metrics
from tacit.net.observability.status import PeerStatus, RoundSummary, Status, write_status
from tacit.net.observability.telemetry import Telemetry
from tacit.net.party_courier import build_courier
from tacit.net.store.round_store import RoundStore, StoredAverage, keep_folder
from tacit.net.transport.proxy import Proxy
from tacit.net.wait_timer import WaitTimer
from tacit.runtime.agreement import Agreement
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Action, MessageDeferred, Post, Round, RoundBegun
from tacit.vectors.buffers import BufferPool

SEED_BYTES = 32
OFTEN = 1.0
"""Seconds between hellos to awaited peers, and between updates of the status."""


class Node:
    """A party, or the server, on a network. Between `start`, `average` and `close`, peers and timers drive it."""

    def __init__(
        self,
        roster: RosterFile,
        mine: Credentials,
        store: RoundStore,
        seed: Callable[[int], bytes] | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        """Prepares a node for a party on the roster.

        Args:
            roster: The roster of the federation.
            mine: The party's own keys, which have to match the roster.
            store: The party's folder.
            seed: Returns the seed of a round; by default seeds come from the operating system.
            proxy: The proxy through which the party dials others.
        """
        roster.check(mine)
        self.me, self.roster, self.store, self._mine, self._deadlines = mine.name, roster, store, mine, roster.deadlines
        self.peers = tuple(peer for peer in roster.terms.peers(self.me) if peer != self.me)
        self._max_wait = roster.deadlines.start * (2 if SERVER in self.peers else 1)
        """Seconds to wait for peers. With a server it is doubled, because the server first waits for other parties."""
        self._seed = seed or (lambda _: SystemEntropy().bytes(SEED_BYTES))
        self._rendezvous = Rendezvous(self.me, self.peers, store.first_seen, store.incarnation, roster.revision)
        self._rendezvous.awaits_revisions = roster.is_signed
        self._participant: KeyedParticipant | None = None
        self.last: Ending | None = None
        """The ending of the last round that is over."""
        self.lifecycle = NodeLifecycle()
        """The states of the node."""
        self._journal = Journal(kept=False)
        self._pending: PendingCall | None = None
        """The call that blocks the node until its record is on disk."""
        self._record_error: TacitError | None = None
        """Error of the last write of a record or hello, until one succeeds."""
        self._stage_error: TacitError | None = None
        """Error of the last write of a long message, until one succeeds."""
        self._changed, self._average_lock = asyncio.Event(), asyncio.Lock()
        self._timer = WaitTimer(self._deadlines.phase, self._expire_wait, self._rendezvous.is_absent)
        self._pool = BufferPool()
        self._status_task: asyncio.Task[None] | None = None
        self.telemetry = Telemetry(self.me, roster.federation, roster.protocol)
        self.metrics = MetricsEndpoint(
            lambda: render_metrics(self.telemetry, self.status(), self.courier.links),
            lambda: self.lifecycle.obstacle or self.status().trouble,
        )
        self.courier = build_courier(roster, mine, self, self.telemetry, self._pool, proxy)
        links = {peer: self.courier.links[peer] for peer in self.peers}
        self._hellos = HelloExchange(Keys(mine.identity, roster.members), links, self._make_hello, self._receive_hello)

    @property
    def rounds(self) -> int:
        """Number of the last round that was begun."""
        return 0 if self._participant is None else self._participant.number

    @property
    def agreement(self) -> Agreement:
        """The agreement; raises ConfigError before the length of the vectors is known."""
        if self._participant is None:
            raise ConfigError("no round has ended with an average yet")
        return self._participant.agreement

    @property
    def lineage(self) -> bytes:
        """Lineage of the last average that was adopted; empty if there was none, or the protocol signs none."""
        return b"" if self._participant is None else self._participant.state.continues_from()

    def load_adopted(self) -> StoredAverage | None:
        """Returns the last average that is on disk. Its lineage may be older than ours."""
        self._complete_pending()
        self._finish_round()
        return self.store.load_adopted(self.lineage)

    @property
    def interrupted(self) -> Update | None:
        """The update of the interrupted round that `average` completes; None if it begins a new one."""
        return self._round.begun.update if self.resuming and self._round is not None else None

    @property
    def resuming(self) -> bool:
        """Whether `average` completes an interrupted round instead of beginning one."""
        return self.lifecycle.is_resuming

    async def start(self, address: str | None = None, metrics: str | None = None) -> None:
        """Listens at the roster's address, if it has one, or another one, and resumes an interrupted round.

        With `metrics`, a host:port, it serves its metrics there.
        """
        self.lifecycle.change_presence(Presence.LISTENING)
        if self.store.entries:
            self._set_vector_length(self.store.entries)
        where = address or self.roster.address_of(self.me)
        await self.courier.start(where or None)
        if metrics is not None:
            await self.metrics.start(metrics)
        self.telemetry.report_joined(where, self.rounds)
        self._hellos.say()
        self._status_task = asyncio.create_task(self._write_status())

    async def average(self, update: Update | None) -> Ending:
        """Takes part in the next round. Returns its ending for this party, which may have an error.

        An interrupted round is completed first, with its own update; then its ending is returned.
        """
        async with self._average_lock:
            try:
                return await self._run_round(update)
            except TacitError as error:
                if not self.lifecycle.closing:
                    self._announce_ready(0)  # or others would begin, and wait for us
                if not self.lifecycle.draining:
                    self.telemetry.report_refused(error, self.rounds)
                raise

    async def _run_round(self, update: Update | None) -> Ending:
        if self._participant is None and update is not None:
            self._set_vector_length(len(update.vector))  # which may find an interrupted round
        if self.resuming:
            self._complete_pending()
        else:
            await self._begin(update)
        while self._pending is None and (self._round is None or not self._round.over):
            self.lifecycle.check_open(self.me, self.rounds)
            self._changed.clear()
            await self._changed.wait()
        if self._pending is not None and self._record_error is not None:
            raise self._record_error
        if (round_ := self._round) is None:
            raise TransportError("the node was closed")
        self.lifecycle.report_ending()
        if self.me != SERVER:
            self._finish_round()  # the average and its lineage are on disk before the caller has the average
        if round_.error is not None and self._stage_error is not None:
            raise self._stage_error  # peers timed out only because of that
        return round_.ending

    async def serve(self, report: Callable[[Ending], None], rounds: int | None = None) -> None:
        """Takes part in one round after another, as a server does, and reports the ending of each."""
        while (rounds is None or self.rounds < rounds) and (self.resuming or not self.lifecycle.draining):
            try:
                report(await self.average(None))
            except TransportError:
                if not self.lifecycle.draining:
                    raise

    def drain(self) -> None:
        """Lets the present round finish, and begins no other."""
        self.lifecycle.draining = True
        self._changed.set()

    async def close(self, *, leaving: bool = False) -> None:
        """Stops the node. A waiting call of `average` gets an error. With `leaving`, peers are notified."""
        self.lifecycle.closing = True
        self._changed.set()
        async with self._average_lock:
            await self._stop(leaving)

    async def _stop(self, leaving: bool) -> None:
        if leaving:
            self.lifecycle.change_presence(Presence.LEAVING)
            self._hellos.say()
            await self._hellos.wait_until_sent()
        self._hellos.stop()
        if self._status_task is not None:
            self._status_task.cancel()
        self._timer.stop()
        await self.metrics.close()
        await self.courier.close()
        try:
            # Data that is not on disk by now is recomputed after the restart.
            with suppress(TransportError):
                self._finish_round()
        finally:
            self.store.close()
            self.lifecycle.change_presence(Presence.CLOSED)
        self.telemetry.report_closed(leaving)

    async def flush(self, seconds: float) -> bool:
        """Waits until peers that are there have acknowledged all messages, or a timeout; returns whether they have."""
        try:
            async with asyncio.timeout(seconds):
                while any(link.waiting and not self._rendezvous.is_gone(p) for p, link in self.courier.links.items()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def status(self) -> Status:
        """Returns the present status."""
        rendezvous, now = self._rendezvous, self._now()
        waiting = None if self._round is None else self._round.wait
        pending = frozenset[Party]() if self._round is None or waiting is None else self._round.inbox.pending
        peers = [
            PeerStatus.of(peer, rendezvous, self.courier.links[peer], now, self._timer.since, peer in pending)
            for peer in self.peers
        ]
        wrong = self._record_error or self._stage_error or self.courier.conflict or rendezvous.wrong
        trouble, last = "" if wrong is None else str(wrong), None if self.last is None else RoundSummary.of(self.last)
        kinds, over = "" if waiting is None else " or ".join(waiting.names), not self.resuming
        return Status(self.me, round(time(), 1), self.rounds, rendezvous.ready, over, kinds, peers, trouble, last)

    async def _write_status(self) -> None:
        """Writes the status file periodically, and retries a blocked call."""
        while True:
            self.telemetry.report_links(self.courier.links)
            with suppress(TacitError):
                self._complete_pending()
            write_status(self.store.folder, self.status())
            await asyncio.sleep(OFTEN)

    # --- beginning of a round --------------------------------------------------------------------------------------

    async def _begin(self, update: Update | None) -> None:
        """Begins the next round, once the peers are ready."""
        if update is not None:
            self._set_vector_length(len(update.vector))
        number = await self._wait_for_peers()
        participant = self._participant
        if participant is None:
            raise AssertionError  # a node is not ready before the length of the vectors is known
        # The last round is completely on disk until this one has begun, and none of it is written again.
        self._complete_pending()
        over, self._journal, participant.number = bool(self._journal.tip), Journal(kept=False), number - 1
        self._rendezvous.ready = 0
        if self.last is not None:
            # Once the next round has begun the average is no longer on disk either.
            self.last = replace(self.last, average=None)
        actions = participant.begin(update, self._seed(number), self._now())
        self.lifecycle.begin_round()
        self._perform(actions, update, after_ending=over)
        for data in participant.early.take():
            self._deliver(data)

    async def _wait_for_peers(self) -> int:
        """Waits until the next round can begin, and returns its number; raises the error that prevents it."""
        since = self._timer.since = self._now()
        self._record_error = self._stage_error = None
        self._hellos.say()
        while True:
            self.lifecycle.check_open(self.me, self.rounds)
            self._changed.clear()
            rendezvous = self._rendezvous
            if (wrong := self._record_error or self.courier.conflict or rendezvous.wrong) is not None:
                raise wrong
            number = 0 if self._participant is None else rendezvous.next(self._participant.number + 1)
            if number:
                self._announce_ready(number)
                if self.me == SERVER and not any(rendezvous.is_ready(peer, number) for peer in self.peers):
                    since = self._now()  # the timeout starts when a party is waiting
            late = self._now() - since >= self._max_wait
            if (
                number
                and rendezvous.assured
                and (rendezvous.may_begin(number) or (late and rendezvous.may_begin_without_all()))
            ):
                rendezvous.needed = 0
                return number
            if late:
                raise self._rendezvous.nobody(self.roster.protocol, self.courier.links, self._max_wait)
            try:
                async with asyncio.timeout(min(OFTEN, since + self._max_wait - self._now() + 0.001)):
                    await self._changed.wait()
            except TimeoutError:
                # A hello may have been lost, on either side. A server asks only the peers that are missing.
                self._hellos.say([peer for peer in self.peers if self.me != SERVER or not rendezvous.is_there(peer)])

    # --- hellos ----------------------------------------------------------------------------------------------------

    def _make_hello(self, to: Party) -> Hello:
        """Returns our hello to a peer."""
        over = self._participant is None or not self._participant.unfinished
        return self._rendezvous.hello(to, self.rounds, over, self.lifecycle.presence is Presence.LEAVING)

    def answer_hello(self, sender: Party, hello: bytes) -> bytes:
        """Processes a hello, and returns ours."""
        return self._hellos.answer(sender, hello)

    def _receive_hello(self, sender: Party, hello: Hello | int) -> None:
        """Processes a peer's hello, or its version if that differs from ours."""
        if isinstance(hello, Hello):
            self._record_hello(sender, hello)
        else:
            self._rendezvous.foreign(sender, hello)
            self._changed.set()
        self.telemetry.report_disagreements({**self._rendezvous.disagreements, **self._rendezvous.lost})

    def _record_hello(self, sender: Party, hello: Hello) -> None:
        try:
            new = self._rendezvous.listen(sender, hello, self._now())
        except TransportError as error:  # of the disk: the hello will be repeated, and recorded then
            self._record_error, new = error, True
        if hello.left:
            self.courier.links[sender].discard_before(self.rounds)  # it may be back before this round is over
        if new:
            self._timer.follow(self._round)
            self._changed.set()
        if self._participant is None and self.me == SERVER and self._rendezvous.entries:
            with suppress(ConfigError):  # a party whose vectors fit no message reports that itself
                self._set_vector_length(self._rendezvous.entries)

    def _announce_ready(self, number: int) -> None:
        """Announces once that we are ready for a round, or, with 0, for none."""
        if self._rendezvous.ready != number:
            self._rendezvous.ready = number
            if number:
                self.telemetry.report_ready(number)
            self._hellos.say()

    # --- rounds ----------------------------------------------------------------------------------------------------

    def max_frame_bytes(self, sender: Party) -> int:
        """Returns the length of the longest message of the protocol, or of a greeting."""
        del sender
        return max(MAX_GREETING, self._participant.codec.longest if self._participant is not None else 0)

    async def accept_frame(self, sender: Party, data: Buffer) -> bool:
        """Processes a frame. Returns whether it is on disk, or discarded."""
        if self._participant is None:
            return False
        if sender in self._rendezvous.lost:
            return True
        if self._rendezvous.confirmed_hello(sender) is None:
            # Without a confirmed hello, the peer may have lost its journal.
            if not self._hellos.is_sending(sender):  # otherwise a peer could make us send any number of hellos
                self._hellos.say([sender])
            return False
        try:
            actions = self._deliver(data)
        except TacitError:
            return False  # it is not on disk, and will be sent again
        early = any(isinstance(action, MessageDeferred) for action in actions)
        if early:
            self._changed.set()
        return not early

    def _deliver(self, data: Buffer) -> list[Action]:
        """Delivers an envelope, and performs the resulting actions."""
        self._complete_pending()
        participant, view = self._participant, memoryview(data)
        if participant is None:
            return []
        if not view.readonly and participant.round is not None and participant.unfinished:
            self._stage(view)  # before it is opened, which may be in place
        else:
            view = view.toreadonly()
        actions = participant.deliver(view, self._now())
        self._perform(actions)
        return actions

    def _stage(self, view: memoryview) -> None:
        """Writes a long message to disk. An error is kept, because it explains why messages of peers are missing."""
        try:
            self.store.stage(view)
        except TacitError as error:
            self._stage_error = error
            self.telemetry.report_disk(error)
            raise
        self._stage_error = None
        self.telemetry.report_disk(None)

    @property
    def _round(self) -> Round | None:
        return None if self._participant is None else self._participant.round

    def _set_vector_length(self, entries: int) -> None:
        """Creates the participant for vectors of a length; raises ConfigError if there is one with another length."""
        if self._participant is None:
            self._restore(self.roster.agreement(entries))
        elif (kept := self._participant.agreement.entries) != entries:
            raise ConfigError(
                f"this model has {entries} numbers, and {self.store.folder} is for models with {kept}; try: bring the "
                f"same model as before, or for another model all of you {keep_folder(self.store.folder, str(kept))}, "
                f"with a new session (tacit roster renew)"
            )

    def _restore(self, agreement: Agreement) -> None:
        """Restores the participant from disk: after the last round, or in the middle of it."""
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
        # With a server, masks are sampled in each round. Without one, they are derived from the session and the round.
        needed = 0 if SERVER in self.peers or self.me == SERVER else min(len(self.peers), self.roster.adversary + 1)
        self._rendezvous.sit(agreement, 0 if self.store.has_begun(agreement.session) else needed)
        if found.journal is not None:
            self._journal.tip = found.journal.tip
            for post in participant.resume(found.journal, found.update, self._now()):
                self._send(post)
        self.lifecycle.size_known(under_way=participant.unfinished)
        if found.journal is not None:
            self._update_round(resumed=True)

    def _perform(self, actions: list[Action], update: Update | None = None, *, after_ending: bool = False) -> None:
        """Performs the actions of a call in the order of the contract, once its record is on disk.

        For a call that begins a round, see `PendingCall`.
        """
        participant, first = self._participant, actions[0] if actions else None
        if participant is None or first is None or isinstance(first, MessageDeferred):
            return
        record = self._journal.record(participant.agreement.protocol, participant.agreement.session, self.me, actions)
        self._pending = PendingCall(actions, record, update, after_ending)
        self._complete_pending()

    def _complete_pending(self) -> None:
        """Writes the record of a pending call, and performs its actions; raises the disk's error."""
        if (call := self._pending) is None:
            return
        begins = isinstance(call.actions[0], RoundBegun)
        try:
            if call.record is not None and begins:
                self.store.begin(call.record, call.update, self.agreement.entries, time(), over=call.after_ending)
            elif call.record is not None:
                self.store.record(call.record, time())
        except TacitError as error:
            self._record_error = error
            self.lifecycle.block()
            self.telemetry.report_disk(error)
            self._changed.set()
            raise
        self._pending = self._record_error = None
        self.telemetry.report_disk(None)
        for action in call.actions:
            if isinstance(action, Post):
                self._send(action)
        if begins:
            for link in self.courier.links.values():
                link.discard_before(self.rounds - 1)
            self._hellos.say()
        self._update_round()

    def _update_round(self, *, resumed: bool = False) -> None:
        """Updates timer, memory, telemetry and state after a change of the round."""
        self._timer.follow(self._round)
        # A server runs rounds all the time. Other parties return memory to the system between rounds.
        playing = self._round is not None and not self._round.over
        self._pool.keep(len(self.peers) + 1 if self.me == SERVER else 2 * playing)
        if self._round is not None:
            self.telemetry.report_round(self._round, resumed=resumed)
            self.lifecycle.advance_round(self._round.over)
            if self._round.over:
                self.last = self._round.ending
                self._changed.set()

    def _send(self, post: Post) -> None:
        self.courier.links[post.to].send(post, self.rounds, self._changed.set)

    def _expire_wait(self) -> None:
        with suppress(TacitError):  # of the disk, which the caller of `average` gets
            self._complete_pending()
            if self._participant is not None:
                self._perform(self._participant.expire(self._now()))

    def _finish_round(self) -> None:
        """Drops the journal of the last round, once it is over; its ending and the state are kept."""
        participant, round_ = self._participant, self._round
        done = self._pending is None and round_ is not None and round_.over
        if participant is not None and round_ is not None and done and self._journal.tip:
            detached: dict[bytes, memoryview] = {}
            owner = self.me, participant.number
            state = participant.agreement.protocol.encode_state(participant.state, owner, detached)
            self.store.finish(participant.number, state, round_.ending, time(), detached)
            self._journal = Journal(kept=False)

    @staticmethod
    def _now() -> float:
        """Returns the time of a monotonic clock."""
        return asyncio.get_running_loop().time()
