"""Runs a protocol in one process: deterministic, on a virtual clock, with a plan of faults.

Same seed, same bytes. There are no threads and no asyncio: a heap of events decides who moves next.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.core.errors import TacitError
from tacit.core.link import Effect, Link, Send, Wait
from tacit.core.messages import Abort, Address, Codec, Message, size_by_class
from tacit.core.outcome import Average, Passed, Traffic, Transcript
from tacit.core.protocol import Run
from tacit.core.suite import Party, Suite
from tacit.drivers.faults import MESSAGE_ACTIONS, PHASE, Fault, deliveries
from tacit.drivers.inbox import Inbox


@dataclass
class Task:
    """One party's coroutine and where it stands."""

    link: Link
    run: Run
    suite: Suite
    inbox: Inbox
    steps: int = 0
    wait: Wait | None = None
    waits: int = 0  # so that a deadline of an earlier wait is not taken for that of the present one
    average: Average | None = None
    error: TacitError | None = None
    crashed: bool = False


class Simulation:
    """One round of one protocol, run to its end."""

    def __init__(self, tasks: Sequence[Task], codec: Codec, faults: Sequence[Fault], *, record: bool) -> None:
        self.tasks = {task.link.me: task for task in tasks}
        self.clock = 0.0
        self.traffic = Traffic()
        self.transcript = Transcript() if record else None
        self._codec = codec
        self._message_faults = [fault for fault in faults if fault.action in MESSAGE_ACTIONS]
        self._party_faults = {
            party: [fault for fault in faults if fault.party in (None, party) and fault.action not in MESSAGE_ACTIONS]
            for party in self.tasks
        }
        self.waiting = set(self.tasks)
        """Those who have neither finished nor given up nor crashed."""
        self._sent = 0
        self._scheduled = 0
        self._events: list[tuple[float, int, Party, bytes | int]] = []  # bytes: a delivery; int: the end of that wait

    def run(self) -> None:
        """Runs until every party has finished, given up or crashed. Ends because every wait has a deadline."""
        try:
            for task in self.tasks.values():
                self._advance(task, None)
            while self._events and self.waiting:
                self.clock, _, party, event = heapq.heappop(self._events)
                task = self.tasks[party]
                if isinstance(event, bytes):
                    self._deliver(task, event)
                if task.wait and (event == task.waits or task.inbox.ready(task.wait)):
                    self._advance(task, task.wait)
        finally:
            for task in self.tasks.values():
                task.run.close()

    def _deliver(self, task: Task, data: bytes) -> None:
        message = task.inbox.deliver(data)
        if message is not None:
            self.traffic.count(self.traffic.received, task.link.me, size_by_class(message, len(data)))

    def _advance(self, task: Task, finished: Wait | None) -> None:
        """Resumes a coroutine with the end of its wait, and serves its effects until it waits again or ends."""
        answer = task.inbox.collect(finished) if finished else None
        task.wait = None
        try:
            while not self._crashed(task):
                effect: Effect = task.run.send(answer)
                answer = None
                task.steps += 1
                if isinstance(effect, Send):
                    if self._crashed(task, effect):
                        return
                    self._send(task, effect.to, effect.message, effect.step)
                elif task.inbox.ready(effect):
                    answer = task.inbox.collect(effect)
                else:
                    task.wait, task.waits = effect, task.waits + 1
                    self._schedule(effect.patience * PHASE, task.link.me, task.waits)
                    return
        except StopIteration as stop:
            task.average = stop.value
            self.waiting.discard(task.link.me)
        except TacitError as error:
            # A party that gives up says so, so that nobody has to wait for it until a deadline.
            task.error = error
            self.waiting.discard(task.link.me)
            for peer in self.tasks:
                if peer != task.link.me:
                    self._send(task, peer, Abort(error.code), 0)
        except Exception as error:
            error.add_note(f"in party {task.link.me!r}, round {task.link.round}, after {task.steps} effects")
            raise

    def _crashed(self, task: Task, sending: Send | None = None) -> bool:
        link = task.link
        for fault in self._party_faults[link.me]:
            if sending is None:
                task.crashed = task.crashed or fault.stops(link.round, task.steps)
            else:
                kind = type(sending.message).__name__
                task.crashed = task.crashed or fault.stops_sending(link.round, sending.to, kind)
        if task.crashed:
            task.run.close()
            self.waiting.discard(link.me)
        return task.crashed

    def _send(self, task: Task, to: Party, message: Message, step: int) -> None:
        link = task.link
        address = Address(link.session, link.round, step, type(message).__name__, link.me, to)
        payload = self._codec.encode(message)
        data = self._codec.seal(task.suite, task.suite.channel(to, link.session), address, payload)
        number, self._sent = self._sent, self._sent + 1
        hit = [fault for fault in self._message_faults if fault.hits(link.round, number, link.me, to, address.kind)]
        mute = any(fault.mutes(link.round, link.me) for fault in self._party_faults[link.me])
        arriving = [] if mute else deliveries(hit, data)
        if not mute:
            self.traffic.count(self.traffic.sent, link.me, size_by_class(message, len(data)))
        if self.transcript is not None and not mute:
            self.transcript.passed.append(Passed(self.clock, self._codec.read(data), bool(arriving)))
        for delay, copy in arriving:
            self._schedule(delay, to, copy)

    def _schedule(self, delay: float, party: Party, event: bytes | int) -> None:
        # The running number keeps events of the same moment in the order they were made.
        self._scheduled += 1
        heapq.heappush(self._events, (self.clock + delay, self._scheduled, party, event))
