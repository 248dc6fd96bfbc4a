"""Forked processes that work for their owner: each has all that the owner had, a line to it, and ends with it."""

import os
import pickle
import signal
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from tacit.core.errors import ConfigError, TacitError


class Forks:
    """Forked processes, and the owner's ends of the lines to them."""

    def __init__(self, serve: Callable[..., None], given: Sequence[tuple[Any, ...]], instead: str) -> None:
        """Forks a process for each of the given, which serves at the other end of its line, with what it is given.

        Raises ConfigError where that cannot be, with what to do instead.
        """
        if "fork" not in get_all_start_methods():
            raise ConfigError(f"this system cannot fork processes; {instead}")
        self._owner = os.getpid()
        self.lines: list[Connection] = []
        self.processes: list[BaseProcess] = []
        context = get_context("fork")
        for each in given:
            ours, theirs = context.Pipe()
            self.lines.append(ours)
            process = context.Process(target=_begin, args=(serve, theirs, tuple(self.lines), each), daemon=True)
            with warnings.catch_warnings():
                # From 3.12 on Python warns of threads, such as those of BLAS, which forked processes do without.
                warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
                process.start()
            theirs.close()
            self.processes.append(process)

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that have not been ended."""
        return [process.pid for process in self.processes if process.pid is not None]

    def close(self) -> None:
        """Ends the processes. Does nothing the second time, nor in a process that is a copy of the owner."""
        if os.getpid() != self._owner:
            return
        for line in self.lines:
            line.close()
        for process in self.processes:
            process.kill()  # they have nothing to put in order: whatever matters is the owner's
        for process in self.processes:
            process.join()
            process.close()
        self.lines, self.processes = [], []


def _begin(serve: Callable[..., None], line: Connection, owners: Sequence[Connection], given: tuple[Any, ...]) -> None:
    """Serves, in a process that was just forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the owner's to deal with
    # The owner's ends of lines are closed in each process: else none would notice that its owner is gone.
    for other in owners:
        other.close()
    serve(line, *given)


def sendable(error: Exception, whose: str) -> Exception:
    """Returns an error as it can be sent to another process: itself, or what it says and who failed."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:  # an error of anybody's may fail in any way of its own when it is packed
        return TacitError(f"{whose} failed: {type(error).__name__}: {error}")
    return error
