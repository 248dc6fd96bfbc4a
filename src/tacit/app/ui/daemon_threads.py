"""Work that may take long, done beside the loop that serves the page."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Aside:
    """So many threads at a time, none of which is waited for when the page is stopped.

    Those of `asyncio.to_thread` are: one that is stuck in a folder that does not answer would hold up Ctrl-C for good.
    """

    def __init__(self, most: int) -> None:
        self._turns = asyncio.Semaphore(most)

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what some work returns, and raises what it raises. It goes on to its end if nobody waits any more."""
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def over(tell: Callable[[Any], None], told: Any) -> None:
            self._turns.release()
            if not done.done():
                tell(told)

        def working() -> None:
            try:
                outcome: tuple[Callable[[Any], None], Any] = done.set_result, work(*args, **kwargs)
            except Exception as error:
                outcome = done.set_exception, error
            with suppress(RuntimeError):  # the page was stopped, and there is no loop any more
                loop.call_soon_threadsafe(over, *outcome)

        Thread(target=working, daemon=True).start()
        return await done
