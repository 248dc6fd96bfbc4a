"""Processes that work for the page: one is always ready, those with an audit are kept, and any can be ended."""

import asyncio
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from tacit.app.ui.adversary_query import Asked
from tacit.app.ui.worker import Event

PYTHON = (sys.executable, "-P")
"""Python that imports nothing from the folder it is started in: that is the one whose runs are shown, and data."""
PROGRAM = (*PYTHON, "-m", "tacit.app.ui.worker")
MOST_ANSWERED = 4
"""Questions that are worked on at a time; whoever asks more waits. So there are never more processes than these, those
that are kept, and the one that is ready."""
MOST_KEPT = 3
"""Audits that are kept for the next coalition."""
MOST_ANSWERS = 256
"""Answers that are kept for whoever asks the same again."""
DEADLINE = 120.0
"""Seconds without a word after which somebody is told to ask on the command line."""
LONGEST = 64 * 2**20
"""Bytes of an event, at most."""
LAST = ("done", "unsure", "problem", "plan")
"""Events after which there are none."""
JOB = 0
"""The number of what a worker was started for; questions have those after it."""


class Worker:
    """One process, and what it says to each question."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said: dict[int, list[Event]] = {}
        self._news = asyncio.Condition()
        self._asked = JOB
        self._listening = asyncio.create_task(self._listen())
        self.waiting = 0
        """How many wait for what it says."""

    @classmethod
    async def start(cls) -> "Worker":
        """Starts one. It has nothing to do yet, and ends with whoever started it."""
        # Many small systems are solved: threads cost more than they bring, and a fork would have none of them.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipe = asyncio.subprocess.PIPE
        # In a session of its own it is ended together with its fork, and does not hear of Ctrl-C in a terminal.
        return cls(
            await asyncio.create_subprocess_exec(
                *PROGRAM, stdin=pipe, stdout=pipe, env=environment, limit=LONGEST, start_new_session=True
            )
        )

    async def _listen(self) -> None:
        while self._process.stdout is not None and (line := await self._process.stdout.readline()):
            event: Event = msgspec.json.decode(line)
            if (said := self._said.get(event.pop("of"))) is not None:
                said.append(event)
                async with self._news:
                    self._news.notify_all()
        await self._process.wait()
        async with self._news:
            self._news.notify_all()

    def begin(self, job: str, asked: Any) -> None:
        """Gives it what it is for."""
        self._say(JOB, {"job": job, "asked": asked})

    def ask(self, coalition: tuple[str, ...]) -> int:
        """Asks it about a coalition, which ends what it is still saying to others; returns the question's number."""
        self._asked += 1
        self._say(self._asked, {"coalition": coalition})
        return self._asked

    def _say(self, number: int, line: dict[str, Any]) -> None:
        self._said[number] = []
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode({"of": number, **line}) + b"\n")

    async def events(self, number: int) -> AsyncGenerator[Event]:
        """Yields what it says to a question, up to the last of it; raises TimeoutError if that takes too long."""
        said, place = self._said[number], 0
        while True:
            while place < len(said):
                place += 1
                yield said[place - 1]
                if said[place - 1]["event"] in LAST:
                    return
            if self.ended:
                yield {"event": "problem", "problems": ["what worked on this was ended; ask again"]}
                return
            async with asyncio.timeout(DEADLINE), self._news:
                await self._news.wait()

    def leave(self, number: int) -> None:
        """Drops what was said to a question, and cuts short what is left to say, for nobody listens any more."""
        self._said.pop(number, None)
        # A newer question has done that already, and must not be cut short itself by whoever left late.
        if number == self._asked:
            self._said.pop(self.ask(()))

    @property
    def made(self) -> bool:
        """Whether what it is for is there, so that it can be asked."""
        return any(event["event"] == "done" for event in self._said.get(JOB, ()))

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.returncode is not None

    async def end(self) -> None:
        """Ends it, whatever it does."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.wait([self._listening])  # which hears the end, also if whoever ends it is cut short


class Workers:
    """All of them."""

    def __init__(self) -> None:
        self._spare: asyncio.Task[Worker] | None = None
        self._kept: OrderedDict[bytes, Worker] = OrderedDict()
        self._answers: OrderedDict[bytes, list[Event]] = OrderedDict()
        self._turns = asyncio.Semaphore(MOST_ANSWERED)
        self._choosing = asyncio.Lock()
        """Held by whoever looks for the worker of a question, so that no two start one for the same."""

    def begin(self) -> None:
        """Has one ready for whoever asks next: to start one takes longer than most answers."""
        if self._spare is None:
            self._spare = asyncio.create_task(Worker.start())

    async def _fresh(self) -> Worker:
        self.begin()
        spare, self._spare = self._spare, None
        self.begin()
        return await Worker.start() if spare is None else await spare

    async def close(self) -> None:
        """Ends all of them."""
        spare = [] if self._spare is None else [await self._spare]
        for worker in (*spare, *self._kept.values()):
            await worker.end()

    async def plan(self, asked: dict[str, Any]) -> AsyncGenerator[Event]:
        """Yields how far a plan is, and then the plan. Who stops listening ends it."""
        key = msgspec.json.encode(asked, order="sorted")
        if (known := self._answers.get(key)) is not None:
            yield known[-1]
            return
        try:
            async with aclosing(self._in_turn(self._plan(asked))) as events:
                async for event in events:
                    if event["event"] == "plan":
                        self._remember(key, [event])
                    yield event
        except TimeoutError:
            yield _late(f"tacit plan {asked['parties']}")

    async def _plan(self, asked: dict[str, Any]) -> AsyncGenerator[Event]:
        worker = await self._fresh()
        try:
            worker.begin("plan", asked)
            async with aclosing(worker.events(JOB)) as events:
                async for event in events:
                    yield event
        finally:
            await worker.end()

    async def _in_turn(self, answer: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        """Yields what is said to a question once there are not too many others; raises TimeoutError if there stay."""
        if self._turns.locked():
            yield {"event": "queued"}
        async with asyncio.timeout(DEADLINE):
            await self._turns.acquire()
        try:
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
        finally:
            self._turns.release()

    async def audit(self, question: Asked) -> AsyncGenerator[Event]:
        """Yields what there is to say to a question. Who stops listening ends the work on it."""
        key = msgspec.json.encode(question)
        said: list[Event] = []
        if (known := self._answers.get(key)) is not None:
            for event in known:
                yield event
            return
        try:
            async with aclosing(self._in_turn(self._audit(question))) as events:
                async for event in events:
                    if event["event"] != "queued":
                        said.append(event)
                    yield event
        except TimeoutError:
            yield _late(question.command())
            return
        if said[-1]["event"] in ("done", "unsure") and not said[-1].get("cut") and said[-2:][0]["event"] != "late":
            self._remember(key, said)

    async def _audit(self, question: Asked) -> AsyncGenerator[Event]:
        worker, number = await self._keeping(question), JOB
        worker.waiting += 1
        try:
            async with aclosing(worker.events(JOB)) as events:
                async for event in events:
                    if event["event"] != "done":
                        yield event
            if worker.made:
                number = worker.ask(question.coalition)
                async with aclosing(worker.events(number)) as events:
                    async for event in events:
                        yield event
        finally:
            worker.waiting -= 1
            if not worker.made and not worker.waiting:
                await self._end(question.key, worker)  # what nobody waits for any more is not finished
            elif number != JOB:
                worker.leave(number)

    async def _keeping(self, question: Asked) -> Worker:
        """Returns the worker that has the run of a question, or is to make it."""
        key = question.key
        async with self._choosing:
            if key in self._kept and not self._kept[key].ended:
                self._kept.move_to_end(key)
                return self._kept[key]
            idle = [each for each, kept in self._kept.items() if not kept.waiting and each != key]
            for each in idle[: max(0, len(self._kept) + 1 - MOST_KEPT)]:
                await self._end(each, self._kept[each])
            worker = self._kept[key] = await self._fresh()
            worker.begin("audit", question)
            return worker

    async def _end(self, key: bytes, worker: Worker) -> None:
        if self._kept.get(key) is worker:  # and not one that has taken its place
            del self._kept[key]
        await worker.end()

    def _remember(self, key: bytes, said: list[Event]) -> None:
        self._answers[key] = said
        while len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)


def _late(command: str) -> Event:
    return {"event": "problem", "problems": [f"this takes longer than a page should wait for; run: {command}"]}
