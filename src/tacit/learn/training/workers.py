"""Processes that share a task: forked, so that they have all that the task needs, and ended with their owner.

What the task writes into shared memory everybody sees; what else comes of it is sent back. A process that ends, or says
nothing for too long, is missed and not waited for.
"""

from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from tacit.core.errors import WorkerLost
from tacit.learn.training.threads import one_thread
from tacit.runtime.forked_workers import Forks, sendable

PATIENCE = 1800.0
"""Seconds without a word from any process after which they are given up. A piece of work is one party's round."""


class TrainingWorkers:
    """Forked processes that run one task over and over."""

    def __init__(self, task: Callable[[Any], Any], count: int, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._forks = Forks(_serve, [(task,)] * count, "use workers=1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that have not been ended."""
        return self._forks.pids

    def run(self, jobs: Sequence[Any]) -> list[Any]:
        """Returns what the task makes of each job, whoever is free taking the next.

        Raises what the task raises, and WorkerLost if a process ends or nothing is heard for too long. Then all of them
        are ended.
        """
        try:
            return self._run(jobs)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the processes. Does nothing the second time, nor in a process that is a copy of the owner."""
        self._forks.close()

    def _run(self, jobs: Sequence[Any]) -> list[Any]:
        found: list[Any] = [None] * len(jobs)
        busy: dict[Connection, int] = {}
        waiting = list(range(len(jobs)))[::-1]
        for line in self._forks.lines:
            self._hand_out(line, jobs, waiting, busy)
        ends = [process.sentinel for process in self._forks.processes]
        while busy:
            heard = wait([*busy, *ends], self.patience)
            if not heard:
                raise WorkerLost(f"no worker said anything for {self.patience:g} s; use workers=1, or more patience")
            for line in [each for each in heard if isinstance(each, Connection)]:
                job = busy.pop(line)
                fine, answer = self._answer(line)
                if not fine:
                    raise answer
                found[job] = answer
                self._hand_out(line, jobs, waiting, busy)
            if not any(isinstance(each, Connection) for each in heard):
                raise WorkerLost(self._describe_loss())
        return found

    def _hand_out(self, line: Connection, jobs: Sequence[Any], waiting: list[int], busy: dict[Connection, int]) -> None:
        if waiting:
            job = waiting.pop()
            try:
                line.send(jobs[job])
            except (BrokenPipeError, ConnectionResetError):
                raise WorkerLost(self._describe_loss()) from None
            busy[line] = job

    def _answer(self, line: Connection) -> tuple[bool, Any]:
        try:
            fine, answer = line.recv()
        except (EOFError, ConnectionResetError):
            raise WorkerLost(self._describe_loss()) from None
        return fine, answer

    def _describe_loss(self) -> str:
        for process in self._forks.processes:
            process.join(0.1)  # its end is noticed a moment before its exit code is known
        codes = [process.exitcode for process in self._forks.processes if process.exitcode is not None]
        how = f"by signal {-codes[0]}" if codes and codes[0] < 0 else f"with code {codes[0]}" if codes else "early"
        return f"a worker ended {how}; if memory ran out use fewer workers, and else begin the round again"


def _serve(line: Connection, task: Callable[[Any], Any]) -> None:
    """Answers jobs until the owner is gone."""
    with one_thread():
        while True:
            try:
                job = line.recv()
            except (EOFError, ConnectionResetError):
                return
            try:
                answer = True, task(job)
            except Exception as error:  # whatever it is, the owner is told
                answer = False, sendable(error, "a worker")
            try:
                line.send(answer)
            except (BrokenPipeError, ConnectionResetError):
                return
