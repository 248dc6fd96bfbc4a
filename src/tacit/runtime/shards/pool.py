"""Pools of shards: in forked processes, or as actors of a Ray cluster."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tacit.core.errors import ConfigError, MissingExtra, WorkerLost
from tacit.runtime.forked_workers import PATIENCE, Answer, ForkedPool, answer_request
from tacit.runtime.shards.shard import Shard

QUIET = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
"""Environment variables that stop Ray from reporting usage, and from warning about accelerators."""
REMEDY = "begin a new simulation"


class ShardPool(ABC):
    """Pool of shards, identified by number. Each answers one request at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy: set[int] = set()
        """Shards that have not answered yet."""

    def ask(self, place: int, *request: Any) -> None:
        """Sends a request to a shard."""
        self._send(place, request)
        self.busy.add(place)

    def next_answer(self) -> tuple[int, Any]:
        """Waits for an answer, and returns it with the shard's number; raises the error of the shard."""
        place, answer = self._receive()
        self.busy.discard(place)
        return place, answer.unwrap()

    def ask_all(self, *requests: Sequence[Any]) -> list[Any]:
        """Sends each shard its own request, or all the same one. Returns the answers in the order of the shards.

        If one fails, all shards are ended, because their progress is unknown.
        """
        try:
            for place in range(self.count):
                self.ask(place, *requests[place if len(requests) > 1 else 0])
            answers = dict(self.next_answer() for _ in range(self.count))
        except BaseException:
            self.close()
            raise
        return [answers[place] for place in range(self.count)]

    @abstractmethod
    def close(self) -> None:
        """Ends all shards, and discards their states."""

    @abstractmethod
    def _send(self, place: int, request: Sequence[Any]) -> None:
        """Sends a request."""

    @abstractmethod
    def _receive(self) -> tuple[int, Answer]:
        """Waits for an answer, and returns it with the shard's number."""


class ForkedShards(ShardPool):
    """Shards in forked processes of this machine."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._workers = ForkedPool(
            lambda: Shard().handle, count, alternative="run all parties in one process", remedy=REMEDY
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return self._workers.pids

    def close(self) -> None:
        """Ends the processes. Does nothing the second time, or in a forked copy of the owner."""
        self._workers.close()

    def _send(self, place: int, request: Sequence[Any]) -> None:
        self._workers.send(place, request)

    def _receive(self) -> tuple[int, Answer]:
        return self._workers.receive(self.busy)


class RayShards(ShardPool):
    """Shards that are actors of a Ray cluster."""

    def __init__(self, count: int, address: str) -> None:
        """Connects to a cluster, unless this process is connected; "local" starts one on this machine.

        Actors run the Tacit release that is installed on their machine, which has to be the same one.
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
        actor = self._ray.remote(ShardActor)
        self._actors = [actor.remote() for _ in range(count)]
        self._requests: dict[Any, int] = {}

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
        self._actors, self._requests = [], {}
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    def _send(self, place: int, request: Sequence[Any]) -> None:
        if not self._actors:
            raise WorkerLost(f"the workers have ended; try: {REMEDY}")
        self._requests[self._actors[place].answer.remote(*request)] = place

    def _receive(self) -> tuple[int, Answer]:
        ready, _ = self._ray.wait(list(self._requests), timeout=PATIENCE)
        if not ready:
            raise WorkerLost(f"no worker answered for {PATIENCE:g} s; try: {REMEDY}")
        place = self._requests.pop(ready[0])
        try:
            return place, Answer(*self._ray.get(ready[0]))
        except self._ray.exceptions.RayError as error:
            why = " ".join(str(error).split())
            raise WorkerLost(f"a worker ended: {why}; try: {REMEDY}") from None


class ShardActor:
    """A shard that is an actor."""

    def __init__(self) -> None:
        self._shard = Shard()

    def answer(self, *request: Any) -> tuple[bool, Any]:
        """Returns whether the request succeeded, and the answer or the error."""
        return tuple(answer_request(self._shard.handle, request))
