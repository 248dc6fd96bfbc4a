"""Timer of a node for the present wait of its round."""

import asyncio
from collections.abc import Callable

from tacit.runtime.round import Round


class WaitTimer:
    """A timer for one wait of one round at a time."""

    def __init__(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        """A wait may take so many seconds for each unit of its patience; `on_timeout` is called when it has."""
        self._seconds, self._on_timeout = seconds, on_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._round: Round | None = None
        self._waits = 0
        self.since = 0.0
        """When what is waited for at present, or was last, was first waited for."""

    def follow(self, round_: Round | None) -> None:
        """Sets it for the present wait of a round, unless it is; stops it if there is none."""
        if round_ is None or round_.wait is None or round_.over:
            self.stop()
        elif self._timer is None or self._round is not round_ or self._waits != round_.waits:
            self.stop()
            loop = asyncio.get_running_loop()
            self._round, self._waits, self.since = round_, round_.waits, loop.time()
            self._timer = loop.call_later(round_.wait.patience * self._seconds, self._expire)

    def stop(self) -> None:
        """Has it never go off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        # The round may have gone on meanwhile, or another one have begun, whose waits are their own.
        if self._round is not None and self._round.waits == self._waits:
            self._on_timeout()
