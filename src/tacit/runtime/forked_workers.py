"""Pool of forked worker processes that answer requests.

A forked process inherits everything from its owner, so only requests and answers are sent, with vectors in shared
memory. If a worker ends, or does not answer for too long, its owner gets WorkerLost. Workers end with their owner.
"""

import os
import pickle
import signal
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeAlias

from tacit.core.errors import ConfigError, TacitError, WorkerLost
from tacit.runtime.shared_memory import SharedArea

PATIENCE = 1800.0
"""Seconds without an answer from any worker after which WorkerLost is raised."""

Handler: TypeAlias = Callable[[Any], Any]
"""Function that returns the answer to a request."""


class Answer(NamedTuple):
    """The answer to a request, or the error of the worker."""

    succeeded: bool
    value: Any

    def unwrap(self) -> Any:
        """Returns the answer; raises the error of the worker."""
        if not self.succeeded:
            raise self.value
        return self.value


class ForkedPool:
    """Pool of forked processes, identified by number. Each answers one request at a time."""

    def __init__(
        self,
        make_handler: Callable[[], Handler],
        count: int,
        *,
        alternative: str,
        remedy: str,
        patience: float = PATIENCE,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Forks workers; raises ConfigError where that is impossible.

        Args:
            make_handler: Creates the handler of a worker, in the worker.
            count: The number of workers.
            alternative: What to do where processes cannot be forked, for the error.
            remedy: What to do if a worker is lost, for the error.
            patience: Seconds without an answer from any worker after which they are given up.
            around: Creates the context in which a worker runs, such as one with a limit on threads.
        """
        if "fork" not in get_all_start_methods():
            raise ConfigError(f"this system cannot fork processes; try: {alternative}")
        self._owner, self._remedy, self.patience = os.getpid(), remedy, patience
        self._areas = [(SharedArea(), SharedArea()) for _ in range(count)]
        """Shared memory for requests to each worker, and for its answers."""
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        context = get_context("fork")
        for areas in self._areas:
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            work = make_handler, around, theirs, *areas
            process = context.Process(target=_start_worker, args=(tuple(self._pipes), work), daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 warns when a process with threads, such as those of BLAS, forks. Workers do not use them.
                warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
                process.start()
            theirs.close()
            self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [process.pid for process in self._processes if process.pid is not None]

    def send(self, place: int, request: Any) -> None:
        """Sends a request to a worker; raises WorkerLost if it has ended."""
        if not self._pipes:
            raise WorkerLost(f"the workers have ended; try: {self._remedy}")
        try:
            self._pipes[place].send_bytes(self._areas[place][0].write(request))
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerLost(self._describe_loss()) from None

    def receive(self, busy: Collection[int]) -> tuple[int, Answer]:
        """Waits for an answer from one of some workers. Returns it with the worker's number; raises WorkerLost."""
        pipes = {self._pipes[place]: place for place in busy}
        ends = [process.sentinel for process in self._processes]
        ready = wait([*pipes, *ends], self.patience)
        if not ready:
            raise WorkerLost(f"no worker answered for {self.patience:g} s; try: {self._remedy}")
        pipe = next((each for each in ready if isinstance(each, Connection)), None)
        if pipe is None:
            raise WorkerLost(self._describe_loss())
        place = pipes[pipe]
        try:
            return place, Answer(*self._areas[place][1].read(pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):
            raise WorkerLost(self._describe_loss()) from None

    def run(self, jobs: Sequence[Any]) -> list[Any]:
        """Returns the answers to all jobs. Each job is sent to the next free worker.

        Raises the error of a worker, or WorkerLost. All workers are ended then.
        """
        answers: list[Any] = [None] * len(jobs)
        busy: dict[int, int] = {}
        waiting = list(range(len(jobs)))[::-1]
        free = list(range(len(self._pipes)))[::-1]
        try:
            if waiting and not free:
                raise WorkerLost(f"the workers have ended; try: {self._remedy}")
            while waiting or busy:
                while waiting and free:
                    place, job = free.pop(), waiting.pop()
                    self.send(place, jobs[job])
                    busy[place] = job
                place, answer = self.receive(busy)
                answers[busy.pop(place)] = answer.unwrap()
                free.append(place)
        except BaseException:
            self.close()
            raise
        return answers

    def close(self) -> None:
        """Ends the processes. Does nothing the second time, or in a forked copy of the owner."""
        if os.getpid() != self._owner:
            return
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()  # workers have nothing to clean up
        for process in self._processes:
            process.join()
            process.close()
        self._pipes, self._processes = [], []

    def _describe_loss(self) -> str:
        for process in self._processes:
            process.join(0.1)  # the exit code is known a moment after the end of a process
        codes = [process.exitcode for process in self._processes if process.exitcode is not None]
        how = f"by signal {-codes[0]}" if codes and codes[0] < 0 else f"with code {codes[0]}" if codes else "early"
        return f"a worker ended {how}; if memory ran out use fewer workers, otherwise {self._remedy}"


def _start_worker(owned: Sequence[Connection], work: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles interrupts
    # Each worker closes the owner's ends of the pipes. Otherwise no worker would notice the end of its owner.
    for pipe in owned:
        pipe.close()
    _serve(*work)


def _serve(
    make_handler: Callable[[], Handler],
    around: Callable[[], AbstractContextManager[Any]],
    pipe: Connection,
    requests: SharedArea,
    answers: SharedArea,
) -> None:
    """Answers requests until the owner ends."""
    with around():
        handler = make_handler()
        while True:
            try:
                request = requests.read(pipe.recv_bytes())
                pipe.send_bytes(answers.write(tuple(answer_request(handler, request))))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return


def answer_request(handler: Handler, request: Any) -> Answer:
    """Returns the answer of a handler, or its error in a form that can be pickled."""
    try:
        return Answer(True, handler(request))
    except Exception as error:  # any error is reported to the owner
        return Answer(False, make_sendable(error))


def make_sendable(error: Exception) -> Exception:
    """Returns an error that can be pickled: the error itself, or a TacitError with its text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:  # pickling another package's error may fail in any way
        return TacitError(f"a worker failed: {type(error).__name__}: {error}")
    return error
