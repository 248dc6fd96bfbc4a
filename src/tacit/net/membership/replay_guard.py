"""Replay guard for hellos: stamps that make each hello count once, and only while it is current.

A hello may be relayed, and a relay can store it. A signature prevents changes to a hello; stamps prevent its replay. A
process samples a mark for each peer, and a peer's hello counts only if it repeats the mark. So a hello to an earlier
process of the same party does not count. Hellos are numbered, and one that arrives after a later one does not count. A
process that restarts begins to count again. So once its hello was received, another mark is sampled for it, and no
earlier hello counts any more.

A peer that does not know its mark yet learns it from our answer, and sends its hello again.
"""

from typing import NamedTuple

from tacit.core.entropy import Entropy
from tacit.core.suite import Party

MARK_BYTES = 16
NUMBER_BYTES = 8
STAMP_BYTES = 3 * MARK_BYTES + NUMBER_BYTES
NONE = bytes(MARK_BYTES)
"""Mark that stands for an unknown one."""


class Stamp(NamedTuple):
    """Prefix of every hello. Its format is the same in every release."""

    start: bytes
    """Random identifier of the sender's process."""
    number: int
    """Number of this hello among those of the sender's process."""
    asks: bytes
    """Mark that the receiver has to repeat in its next hello."""
    repeats: bytes
    """Mark that the receiver had asked the sender to repeat."""

    @property
    def data(self) -> bytes:
        """The encoded stamp."""
        return self.start + self.number.to_bytes(NUMBER_BYTES) + self.asks + self.repeats

    @classmethod
    def of(cls, data: bytes) -> "Stamp":
        """Returns the stamp at the beginning of some bytes; raises ValueError if there are too few."""
        if len(data) < STAMP_BYTES:
            raise ValueError("this hello is too short")
        middle = MARK_BYTES + NUMBER_BYTES
        asks, repeats = data[middle : middle + MARK_BYTES], data[middle + MARK_BYTES : STAMP_BYTES]
        return cls(data[:MARK_BYTES], int.from_bytes(data[MARK_BYTES:middle]), asks, repeats)


class ReplayGuard:
    """Marks that this process asks its peers to repeat, and the last stamp of each peer, in memory only."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._start, self._count = entropy.bytes(MARK_BYTES), 0
        self._asks: dict[Party, bytes] = {}
        self._heard: dict[Party, Stamp] = {}

    def expected_mark(self, by: Party) -> bytes:
        """Returns the mark that a peer asked us to repeat."""
        return self._heard[by].asks if by in self._heard else NONE

    def stamp(self, to: Party, answered: Stamp | None = None) -> Stamp:
        """Returns the stamp of our next hello, which may be an answer.

        An answer repeats the mark of the hello that it answers, even if that is not fresh: the peer may not know its
        own mark from us yet.
        """
        self._count += 1
        repeats = self.expected_mark(to) if answered is None else answered.asks
        return Stamp(self._start, self._count, self._ask(to), repeats)

    def is_fresh(self, sender: Party, stamp: Stamp) -> bool:
        """Returns whether an authentic hello of a sender counts. A replayed one does not."""
        if stamp.repeats != self._ask(sender):
            return False
        last = self._heard.get(sender)
        if last is not None and last.start != stamp.start:
            del self._asks[sender]  # so that another mark is sampled, which no earlier hello repeats
        elif last is not None and stamp.number <= last.number:
            return False
        self._heard[sender] = stamp
        return True

    def _ask(self, peer: Party) -> bytes:
        if peer not in self._asks:
            self._asks[peer] = self._entropy.bytes(MARK_BYTES)
        return self._asks[peer]
