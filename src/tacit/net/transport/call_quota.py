"""Quota of simultaneous calls per peer, so that one peer's calls cannot starve those of another."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tacit.core.suite import Party
from tacit.net.transport.framing import FrameRefused


class CallQuota:
    """Calls in progress, counted by the authenticated peer that made them."""

    def __init__(self, limit: int) -> None:
        """Allows every peer `limit` calls at a time."""
        self._limit = limit
        self._calls: Counter[Party] = Counter()

    @contextmanager
    def hold(self, peer: Party) -> Iterator[None]:
        """Counts a call of a peer until it ends; raises FrameRefused if the peer has too many."""
        if self._calls[peer] >= self._limit:
            raise FrameRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {self._limit} calls at a time")
        self._calls[peer] += 1
        try:
            yield
        finally:
            self._calls[peer] -= 1

    def count(self, peer: Party) -> int:
        """Returns the number of a peer's calls in progress."""
        return self._calls[peer]
