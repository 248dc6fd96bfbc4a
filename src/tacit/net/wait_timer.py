"""Timer of a node for the present wait of its round."""

import asyncio
from collections.abc import Callable

from tacit.core.suite import Party
from tacit.runtime.round import Round


class WaitTimer:
    """A timer for one wait of one round at a time. A wait for nobody but absent parties times out at once."""

    def __init__(self, seconds: float, on_timeout: Callable[[], None], is_absent: Callable[[Party, int], bool]) -> None:
        """Creates a timer.

        Args:
            seconds: Seconds per unit of a wait's patience.
            on_timeout: Called when a wait times out.
            is_absent: Returns whether a party sends nothing in a round.
        """
        self._seconds, self._on_timeout, self._is_absent = seconds, on_timeout, is_absent
        self._timer: asyncio.TimerHandle | None = None
        self._round: Round | None = None
        self._waits = 0
        self.since = 0.0
        """Start time of the present wait, or of the last one."""

    def follow(self, round_: Round | None) -> None:
        """Starts the timer for the present wait of a round, unless it is running; stops it if there is no wait."""
        if round_ is None or round_.wait is None or round_.over:
            self.stop()
        elif self._timer is None or self._round is not round_ or self._waits != round_.waits:
            self.stop()
            loop = asyncio.get_running_loop()
            self._round, self._waits, self.since = round_, round_.waits, loop.time()
            self._timer = loop.call_later(round_.wait.patience * self._seconds, self._expire)
        if self._timer is None or round_ is None:
            return
        if all(self._is_absent(party, round_.begun.number) for party in round_.inbox.pending):
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(0, self._expire)

    def stop(self) -> None:
        """Cancels the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        # Meanwhile the round may have continued, or another round may have begun. Their waits have their own timers.
        if self._round is not None and self._round.waits == self._waits:
            self._on_timeout()
