"""Pool of worker processes for the page: one spare is always ready, finished audits are kept, any can be killed."""

import asyncio
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from tacit.app.ui.adversary_query import AdversaryQuery
from tacit.app.ui.worker_process import Event

PYTHON = (sys.executable, "-P")
"""Python that imports nothing from the working directory: its content is not trusted."""
PROGRAM = (*PYTHON, "-m", "tacit.app.ui.worker_process")
MOST_ANSWERED = 4
"""Queries that are answered at a time; further ones wait. Processes are at most these, the kept ones and the spare."""
MOST_KEPT = 3
"""Workers that are kept with their audit, to answer for the next coalition."""
MOST_ANSWERS = 256
"""Answers that are cached for the same query."""
DEADLINE = 120.0
"""Seconds without an event after which a query is given up."""
LONGEST = 64 * 2**20
"""Size limit of an event in bytes."""
LAST = ("done", "unsure", "problem", "plan")
"""Events that end an answer."""
JOB = 0
"""Number of the job that a worker was started for; questions count up from it."""


class Worker:
    """One worker process, and its events by question."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._events: dict[int, list[Event]] = {}
        self._news = asyncio.Condition()
        self._last_number = JOB
        self._listening = asyncio.create_task(self._listen())
        self.waiting = 0
        """Number of callers that wait for its events."""

    @classmethod
    async def start(cls) -> "Worker":
        """Starts a process that waits for its job and ends with this one."""
        # Many small linear systems are solved: threads cost more than they gain, and do not survive a fork.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipe = asyncio.subprocess.PIPE
        # In its own session it can be killed together with its fork, and gets no Ctrl-C from the terminal.
        return cls(
            await asyncio.create_subprocess_exec(
                *PROGRAM, stdin=pipe, stdout=pipe, env=environment, limit=LONGEST, start_new_session=True
            )
        )

    async def _listen(self) -> None:
        while self._process.stdout is not None and (line := await self._process.stdout.readline()):
            event: Event = msgspec.json.decode(line)
            if (events := self._events.get(event.pop("of"))) is not None:
                events.append(event)
                async with self._news:
                    self._news.notify_all()
        await self._process.wait()
        async with self._news:
            self._news.notify_all()

    def begin_job(self, job: str, query: Any) -> None:
        """Sends the job that it was started for."""
        self._send(JOB, {"job": job, "query": query})

    def ask(self, coalition: tuple[str, ...]) -> int:
        """Asks about a coalition, which ends the answer to an earlier question; returns the question's number."""
        self._last_number += 1
        self._send(self._last_number, {"coalition": coalition})
        return self._last_number

    def _send(self, number: int, line: dict[str, Any]) -> None:
        self._events[number] = []
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode({"of": number, **line}) + b"\n")

    async def events(self, number: int) -> AsyncGenerator[Event]:
        """Yields the events of a question up to the last one; raises TimeoutError if one takes too long."""
        events, seen = self._events[number], 0
        while True:
            while seen < len(events):
                seen += 1
                yield events[seen - 1]
                if events[seen - 1]["event"] in LAST:
                    return
            if self.ended:
                yield {"event": "problem", "problems": ["the process that worked on this was stopped; ask again"]}
                return
            async with asyncio.timeout(DEADLINE), self._news:
                await self._news.wait()

    def drop_question(self, number: int) -> None:
        """Forgets the events of a question that nobody listens to any more, and stops the work on it."""
        self._events.pop(number, None)
        # A newer question has stopped that work already, and must not be stopped itself.
        if number == self._last_number:
            self._events.pop(self.ask(()))

    @property
    def ready(self) -> bool:
        """Whether its job is done, so that questions can be asked."""
        return any(event["event"] == "done" for event in self._events.get(JOB, ()))

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    async def end(self) -> None:
        """Kills the process and its fork."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.wait([self._listening])  # it sees the end of the process, also if this call is cancelled


class PageWorkers:
    """Worker processes by query, and a cache of their answers."""

    def __init__(self) -> None:
        self._spare: asyncio.Task[Worker] | None = None
        self._kept: OrderedDict[bytes, Worker] = OrderedDict()
        self._answers: OrderedDict[bytes, list[Event]] = OrderedDict()
        self._slots = asyncio.Semaphore(MOST_ANSWERED)
        self._choosing = asyncio.Lock()
        """Held while the worker of a query is chosen, so that no two are started for the same."""

    def start_spare(self) -> None:
        """Starts a spare worker for the next query: starting one takes longer than most answers."""
        if self._spare is None:
            self._spare = asyncio.create_task(Worker.start())

    async def _take_spare(self) -> Worker:
        self.start_spare()
        spare, self._spare = self._spare, None
        self.start_spare()
        return await Worker.start() if spare is None else await spare

    async def close(self) -> None:
        """Kills all workers."""
        spare = [] if self._spare is None else [await self._spare]
        for worker in (*spare, *self._kept.values()):
            await worker.end()

    async def plan(self, request: dict[str, Any]) -> AsyncGenerator[Event]:
        """Yields the progress of a plan, and then the plan. Closing the generator stops the work."""
        key = msgspec.json.encode(request, order="sorted")
        if (known := self._answers.get(key)) is not None:
            yield known[-1]
            return
        try:
            async with aclosing(self._limit_concurrency(self._plan(request))) as events:
                async for event in events:
                    if event["event"] == "plan":
                        self._remember(key, [event])
                    yield event
        except TimeoutError:
            yield _report_timeout(f"tacit plan {request['parties']}")

    async def _plan(self, request: dict[str, Any]) -> AsyncGenerator[Event]:
        worker = await self._take_spare()
        try:
            worker.begin_job("plan", request)
            async with aclosing(worker.events(JOB)) as events:
                async for event in events:
                    yield event
        finally:
            await worker.end()

    async def _limit_concurrency(self, answer: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        """Yields an answer as soon as a slot is free; raises TimeoutError if none becomes free."""
        if self._slots.locked():
            yield {"event": "queued"}
        async with asyncio.timeout(DEADLINE):
            await self._slots.acquire()
        try:
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
        finally:
            self._slots.release()

    async def audit(self, query: AdversaryQuery) -> AsyncGenerator[Event]:
        """Yields the answer to a query. Closing the generator stops the work on it."""
        key = msgspec.json.encode(query)
        answer: list[Event] = []
        if (known := self._answers.get(key)) is not None:
            for event in known:
                yield event
            return
        try:
            async with aclosing(self._limit_concurrency(self._audit(query))) as events:
                async for event in events:
                    if event["event"] != "queued":
                        answer.append(event)
                    yield event
        except TimeoutError:
            yield _report_timeout(query.command())
            return
        complete = answer[-1]["event"] in ("done", "unsure") and not answer[-1].get("interrupted")
        if complete and answer[-2:][0]["event"] != "late":
            self._remember(key, answer)

    async def _audit(self, query: AdversaryQuery) -> AsyncGenerator[Event]:
        worker, number = await self._find_worker(query), JOB
        worker.waiting += 1
        try:
            async with aclosing(worker.events(JOB)) as events:
                async for event in events:
                    if event["event"] != "done":
                        yield event
            if worker.ready:
                number = worker.ask(query.coalition)
                async with aclosing(worker.events(number)) as events:
                    async for event in events:
                        yield event
        finally:
            worker.waiting -= 1
            if not worker.ready and not worker.waiting:
                await self._end(query.key, worker)  # nobody waits for its job any more
            elif number != JOB:
                worker.drop_question(number)

    async def _find_worker(self, query: AdversaryQuery) -> Worker:
        """Returns the worker that has the symbolic run of a query, or is to make it."""
        key = query.key
        async with self._choosing:
            if key in self._kept and not self._kept[key].ended:
                self._kept.move_to_end(key)
                return self._kept[key]
            idle = [each for each, kept in self._kept.items() if not kept.waiting and each != key]
            for each in idle[: max(0, len(self._kept) + 1 - MOST_KEPT)]:
                await self._end(each, self._kept[each])
            worker = self._kept[key] = await self._take_spare()
            worker.begin_job("audit", query)
            return worker

    async def _end(self, key: bytes, worker: Worker) -> None:
        if self._kept.get(key) is worker:  # and not its replacement
            del self._kept[key]
        await worker.end()

    def _remember(self, key: bytes, answer: list[Event]) -> None:
        self._answers[key] = answer
        while len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)


def _report_timeout(command: str) -> Event:
    return {"event": "problem", "problems": [f"this takes longer than a page should wait for; run: {command}"]}
