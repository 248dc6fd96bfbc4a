"""Where shards run: in forked processes, or as actors of a Ray cluster. Each is asked one thing at a time."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tacit.core.errors import ConfigError, MissingExtra, WorkerLost
from tacit.runtime.forked_workers import Forks, sendable
from tacit.runtime.shards.shard import Shard
from tacit.runtime.shards.shared_memory import SharedArea

PATIENCE = 1800.0
"""Seconds without a word from any shard after which they are given up."""
QUIET = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
"""What Ray does unless told otherwise: report to its makers, and warn about processors that nobody here uses."""
GONE = "if memory ran out use fewer of them, and else begin a new simulation"


class Pool(ABC):
    """Shards, by number."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy: set[int] = set()
        """Those that have not answered yet."""

    def ask(self, place: int, *request: Any) -> None:
        """Has a shard do something, which it answers once."""
        self._send(place, request)
        self.busy.add(place)

    def heard(self) -> tuple[int, Any]:
        """Waits for an answer, and returns whose it is and what it says; raises what went wrong there."""
        place, (fine, answer) = self._receive()
        self.busy.discard(place)
        if not fine:
            raise answer
        return place, answer

    def all(self, *requests: Sequence[Any]) -> list[Any]:
        """Has each shard do something, of as many requests, or all the same; returns the answers in order.

        If one of them cannot, all are ended: nobody knows where they stand.
        """
        try:
            for place in range(self.count):
                self.ask(place, *requests[place if len(requests) > 1 else 0])
            answers = dict(self.heard() for _ in range(self.count))
        except BaseException:
            self.close()
            raise
        return [answers[place] for place in range(self.count)]

    @abstractmethod
    def close(self) -> None:
        """Ends all shards, with what they have."""

    @abstractmethod
    def _send(self, place: int, request: Sequence[Any]) -> None:
        """Sends a request."""

    @abstractmethod
    def _receive(self) -> tuple[int, tuple[bool, Any]]:
        """Waits for an answer: whose, whether all went well, and what it says or what went wrong."""


def answered(shard: Shard, request: Sequence[Any]) -> tuple[bool, Any]:
    """Returns whether all went well, and what a shard answers or what went wrong."""
    try:
        return True, shard.answer(*request)
    except Exception as error:  # whatever it is, whoever runs the simulation is told
        return False, sendable(error, "a shard")


# --- processes -----------------------------------------------------------------------------------------------------


class Forked(Pool):
    """Shards in processes of this machine, which are ended with their owner."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._areas = [(SharedArea(), SharedArea()) for _ in range(count)]
        """Where long things lie that are on their way to each shard, and from it."""
        self._forks = Forks(_serve, self._areas, "play everybody in one")

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that have not been ended."""
        return self._forks.pids

    def close(self) -> None:
        """Ends the processes. Does nothing the second time, nor in a process that is a copy of the owner."""
        self._forks.close()

    def _send(self, place: int, request: Sequence[Any]) -> None:
        if not self._forks.lines:
            raise WorkerLost(f"the shards have ended; {GONE}")
        try:
            self._forks.lines[place].send_bytes(self._areas[place][0].put(request))
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerLost(f"a shard has ended; {GONE}") from None

    def _receive(self) -> tuple[int, tuple[bool, Any]]:
        ready = wait([self._forks.lines[place] for place in self.busy], PATIENCE)
        if not ready:
            raise WorkerLost(f"no shard said anything for {PATIENCE:g} s; {GONE}")
        place = next(place for place in self.busy if self._forks.lines[place] in ready)
        try:
            answer: tuple[bool, Any] = self._areas[place][1].taken(self._forks.lines[place].recv_bytes())
        except (EOFError, ConnectionResetError):
            raise WorkerLost(f"a shard has ended; {GONE}") from None
        return place, answer


def _serve(line: Connection, here: SharedArea, there: SharedArea) -> None:
    """Answers requests until the owner is gone."""
    shard = Shard()
    while True:
        try:
            line.send_bytes(there.put(answered(shard, here.taken(line.recv_bytes()))))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


# --- actors --------------------------------------------------------------------------------------------------------


class Actors(Pool):
    """Shards that are actors of a Ray cluster."""

    def __init__(self, count: int, address: str) -> None:
        """Connects to a cluster, unless this process is connected; "local" starts one on this machine.

        Actors run what is installed where they are, which has to be the same release.
        """
        super().__init__(count)
        try:
            import ray
        except ImportError:
            raise MissingExtra("ray", "ray") from None
        self._ray: Any = ray
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._connect(address)
        actor = self._ray.remote(Host)
        self._actors = [actor.remote() for _ in range(count)]
        self._asked: dict[Any, int] = {}

    def _connect(self, address: str) -> None:
        for name in QUIET:
            os.environ.setdefault(name, "0")
        more = {"include_dashboard": False} if address == "local" else {}
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **more)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            why = " ".join(str(error).split())
            raise ConfigError(f"there is no Ray cluster at {address!r}, or it does not answer: {why}") from None

    def close(self) -> None:
        """Ends the actors, and the connection if it was made for them. Does nothing the second time."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._asked = [], {}
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    def _send(self, place: int, request: Sequence[Any]) -> None:
        if not self._actors:
            raise WorkerLost(f"the shards have ended; {GONE}")
        self._asked[self._actors[place].answer.remote(*request)] = place

    def _receive(self) -> tuple[int, tuple[bool, Any]]:
        ready, _ = self._ray.wait(list(self._asked), timeout=PATIENCE)
        if not ready:
            raise WorkerLost(f"no shard said anything for {PATIENCE:g} s; {GONE}")
        place = self._asked.pop(ready[0])
        try:
            return place, self._ray.get(ready[0])
        except self._ray.exceptions.RayError as error:
            why = " ".join(str(error).split())
            raise WorkerLost(f"a shard has ended: {why}; {GONE}") from None


class Host:
    """A shard that is an actor."""

    def __init__(self) -> None:
        self._shard = Shard()

    def answer(self, *request: Any) -> tuple[bool, Any]:
        """Returns whether all went well, and what the shard answers or what went wrong."""
        return answered(self._shard, request)
