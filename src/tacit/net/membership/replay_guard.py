"""Whether a hello is news, or one of before that somebody says again.

A hello goes by way of others where there is no straight way, and whoever passes it on can keep it. It is signed, so it
cannot be changed; that it counts once, and only as long as it is true, is what stamps are for. A process draws a mark
for each peer, and a hello of a peer counts only if it repeats the mark. So what was said to an earlier process of ours
does not count. Hellos are numbered, and one that comes after a later one does not count. A process that is started
again numbers anew: once we have heard it we draw another mark, so that nothing that was said before does.

Whoever does not know our mark yet learns it from our answer, and says its hello again.
"""

from typing import NamedTuple

from tacit.core.entropy import Entropy
from tacit.core.suite import Party

MARK_BYTES = 16
NUMBER_BYTES = 8
STAMP_BYTES = 3 * MARK_BYTES + NUMBER_BYTES
NONE = bytes(MARK_BYTES)
"""In the place of a mark that is not known."""


class Stamp(NamedTuple):
    """What goes ahead of every hello, in the same bytes in every release."""

    start: bytes
    """Drawn by the sender's process when it started."""
    number: int
    """Of the hellos that this process has said, which this is."""
    asks: bytes
    """The mark that the receiver has to repeat."""
    repeats: bytes
    """The mark that the receiver asked to be repeated."""

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.start + self.number.to_bytes(NUMBER_BYTES) + self.asks + self.repeats

    @classmethod
    def of(cls, data: bytes) -> "Stamp":
        """Returns the stamp that bytes begin with; raises ValueError if they are too few."""
        if len(data) < STAMP_BYTES:
            raise ValueError("this is too short for a stamp")
        middle = MARK_BYTES + NUMBER_BYTES
        asks, repeats = data[middle : middle + MARK_BYTES], data[middle + MARK_BYTES : STAMP_BYTES]
        return cls(data[:MARK_BYTES], int.from_bytes(data[MARK_BYTES:middle]), asks, repeats)


class ReplayGuard:
    """What a process has asked its peers to repeat, and the last that it heard of each. None of it outlives it."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._start, self._count = entropy.bytes(MARK_BYTES), 0
        self._asks: dict[Party, bytes] = {}
        self._heard: dict[Party, Stamp] = {}

    def expected_mark(self, by: Party) -> bytes:
        """Returns the mark that a peer has to hear from us."""
        return self._heard[by].asks if by in self._heard else NONE

    def stamp(self, to: Party, answered: Stamp | None = None) -> Stamp:
        """Returns the stamp of our next hello, which may be the answer to one.

        An answer repeats what it was asked for, whether or not that is news: it may be the first that is heard of us.
        """
        self._count += 1
        repeats = self.expected_mark(to) if answered is None else answered.asks
        return Stamp(self._start, self._count, self._ask(to), repeats)

    def is_fresh(self, sender: Party, stamp: Stamp) -> bool:
        """Says whether a hello of a sender, which has signed it, counts; the same one does not again."""
        if stamp.repeats != self._ask(sender):
            return False
        last = self._heard.get(sender)
        if last is not None and last.start != stamp.start:
            del self._asks[sender]  # another one is drawn, which nobody has repeated yet
        elif last is not None and stamp.number <= last.number:
            return False
        self._heard[sender] = stamp
        return True

    def _ask(self, peer: Party) -> bytes:
        if peer not in self._asks:
            self._asks[peer] = self._entropy.bytes(MARK_BYTES)
        return self._asks[peer]
