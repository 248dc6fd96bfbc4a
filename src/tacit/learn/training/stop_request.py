"""Request to a training party to stop: it finishes the round in progress, and begins no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.api.join import Peer


class StopAsked(Exception):
    """A training party stops because it was asked to. Its argument is the number of its last round."""


class StopRequest:
    """Says whether a training party was asked to stop. The request may come from a handler of signals."""

    def __init__(self) -> None:
        self._asked = self._may_interrupt = False
        self._peer: Peer | None = None

    def ask(self) -> None:
        """Asks the party to stop. While it loads data or trains, this raises StopAsked at once."""
        self._asked = True
        if self._peer is not None:
            self._peer.drain()
        if self._may_interrupt:
            self.check()

    def follow(self, peer: "Peer") -> None:
        """Has a request stop this peer from beginning rounds; raises StopAsked if there was one before."""
        self._peer = peer
        self.check()

    def check(self) -> None:
        """Raises StopAsked if the party was asked to stop, and no round is in progress."""
        if self._asked and (self._peer is None or not self._peer.resuming):
            raise StopAsked(0 if self._peer is None else self._peer.rounds)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a request interrupt work that may be cut off at any point."""
        self._may_interrupt = True
        try:
            self.check()
            yield
        finally:
            self._may_interrupt = False
