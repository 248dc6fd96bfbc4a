"""Background thread with its own event loop, for callers without one."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tacit.core.errors import TransportError

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines in a background thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        # A daemon thread, so that a program that does not close it still ends. All important data is on disk by then.
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result. An interrupt cancels the coroutine."""
        under_way = self._submit(work)
        try:
            return under_way.result()
        except BaseException:
            under_way.cancel()
            raise

    async def run_from_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, and returns its result to the caller's event loop without blocking that loop."""
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine in the thread; raises TransportError if the thread has ended."""
        if not self.alive:
            work.close()
            raise TransportError("this party has left; try: join again")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Ends the thread. Does nothing the second time."""
        if self.alive:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            # Such as the tasks that grpc keeps for calls that were cancelled. Python reports tasks that never ended.
            if left := asyncio.all_tasks(self.loop):
                for task in left:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(left, timeout=1.0))
            self.loop.close()
