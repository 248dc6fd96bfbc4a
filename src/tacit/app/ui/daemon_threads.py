"""Bounded set of daemon threads for blocking work beside the event loop of the page."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads:
    """At most `limit` threads at a time, none of which is waited for when the page is stopped.

    `asyncio.to_thread` waits for its threads at exit: one that is stuck in a folder that does not answer would block
    Ctrl-C for good.
    """

    def __init__(self, limit: int) -> None:
        self._slots = asyncio.Semaphore(limit)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what `work` returns, or raises what it raises. Cancelling the caller does not stop the thread."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def finish(settle: Callable[[Any], None], value: Any) -> None:
            self._slots.release()
            if not result.done():
                settle(value)

        def run_work() -> None:
            try:
                outcome: tuple[Callable[[Any], None], Any] = result.set_result, work(*args, **kwargs)
            except Exception as error:
                outcome = result.set_exception, error
            with suppress(RuntimeError):  # the page was stopped and its loop is closed
                loop.call_soon_threadsafe(finish, *outcome)

        Thread(target=run_work, daemon=True).start()
        return await result
