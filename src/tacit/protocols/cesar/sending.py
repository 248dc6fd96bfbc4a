"""Node i of `cesar` as a sender: one masked model for each neighbour k that asks for it, and one release each."""

import hashlib
from collections.abc import Collection

import numpy as np

from tacit.core.errors import Drop, WireError
from tacit.core.link import Link, frame_parts
from tacit.core.suite import Party, Secret, Suite, Vector
from tacit.protocols.cesar.settings import MASK, CesarTerms, Masked, Release, Turn
from tacit.protocols.shapes.neighbourhood import (
    Bits,
    Neighbourhood,
    combine_at,
    count_sets,
    encode_by_weight,
    read_selection,
    take_entries,
    unpack_mask,
)
from tacit.vectors import index_sets
from tacit.vectors.index_sets import Mask, Positions


def positions(entries: Positions) -> bytes:
    """Returns what stands for some positions. A mask is for these alone, so no lie can line it up with others."""
    return hashlib.sha256(entries.astype("<u4").tobytes()).digest()


class Sending:
    """What node i has to send, and to whom it still may."""

    def __init__(
        self,
        link: Link,
        suite: Suite,
        terms: CesarTerms,
        at: Neighbourhood,
        vector: Vector,
        bits: Bits,
        selection: bytes,
    ) -> None:
        self.link, self.suite, self.terms, self.at, self.selection = link, suite, terms, at, selection
        self.entries, self.bits = len(vector), bits
        self.shared = take_entries(suite.ring, vector, bits, terms.settings.clip)
        # If there is chance in it, it is encoded once for all attempts; otherwise it need not be held in between.
        self.encoded = encode_by_weight(suite.ring, at, self.shared) if suite.ring.draws else {}
        self.receivers = list(at.view)
        # All of them at once, so that none depends on the order in which turns come.
        self.seeds = {(k, attempt): suite.seed() for k in at.view for attempt in terms.steps(Masked)}
        self.used: dict[int, Secret] = {}

    def find_own(self) -> Positions | None:
        """Returns the positions of the entries that we selected; None for all."""
        # NumPy takes entries at positions several times as fast as those under a mask.
        return np.flatnonzero(unpack_mask(self.bits, self.entries)) if self.terms.selective else None

    async def answer(self, turns: dict[Party, Turn], attempt: int) -> None:
        """Answers each receiver's turn, and forgets those from whom nothing more is to come."""
        own = self.find_own()
        for k in list(self.receivers):
            party = self.link.parties[k]
            turn = turns.get(party)
            if turn is not None and self.may_send(k, turn.selections):
                try:
                    masked = self.mask_entries(k, turn, attempt, own)
                except WireError:
                    self.link.exclude(party, Drop.MALFORMED)
                    self.receivers.remove(k)
                else:
                    await self.link.send(party, Masked(memoryview(masked)), step=attempt)
                continue
            self.receivers.remove(k)
            # Only here does a seed leave us, and never a second one for the same receiver.
            if turn is not None and turn.complete and k in self.used:
                await self.link.send(party, Release(self.used[k].reveal()), step=attempt)
        if not self.suite.ring.draws:
            self.encoded.clear()

    def may_send(self, k: int, members: Collection[int]) -> bool:
        """Says whether a turn of k is one that we may take part in."""
        enough = self.at.me in members and len(members) > self.terms.settings.masking
        return enough and set(self.terms.graph[k]).issuperset(members)

    def mask_entries(self, k: int, turn: Turn, attempt: int, own: Positions | None) -> bytes | memoryview:
        """Returns w_{k←i} for the members of a turn (Algorithm 3, with s of Section 3.4.2)."""
        i, ring = self.at.me, self.suite.ring
        covers = self.overlaps(turn, own)
        kept = count_sets(covers.values(), len(covers), len(self.shared)) >= self.terms.settings.masking
        self.encoded = self.encoded or encode_by_weight(ring, self.at, self.shared)
        w = self.encoded[self.at.weight(k)].copy()
        members = b",".join(b"%d" % j for j in sorted(turn.selections))
        # Positions follow from everybody's seeds, if they are drawn: ours as it is, the others' as we were told.
        seeds = frame_parts(*(turn.selections[j] if j != i else self.selection for j in sorted(turn.selections)))
        for j, cover in covers.items():
            # Both sides of a pair find the same entries here, because an entry has as many masks with each (Lemma 3).
            common = cover & kept
            chosen = own if self.terms.shows_data else None
            where = seeds if chosen is None else positions(chosen.take(np.flatnonzero(common)))
            context = self.link.statement("cesar mask", b"%d" % k, b"%d" % attempt, members, where)
            key = self.suite.pairwise(self.link.parties[j], MASK, context)
            mask = self.suite.stream(key, w, int(np.count_nonzero(common)))
            combine_at(np.add if i < j else np.subtract, w, common, mask)
        w = w if kept.all() else w.take(np.flatnonzero(kept))
        self.used[k] = self.seeds[k, attempt]
        self.suite.mask(w, [self.used[k]])
        return ring.pack(w)

    def overlaps(self, turn: Turn, own: Positions | None) -> dict[int, Mask]:
        """Returns, for each other member, which of our own entries it shares too."""
        others = {j: data for j, data in turn.selections.items() if j != self.at.me}
        if self.terms.shows_data:
            return {j: index_sets.decode_mask(data, len(self.shared)) for j, data in others.items()}
        told = {j: read_selection(self.suite, self.terms, data, self.entries) for j, data in others.items()}
        if own is None:
            return {j: unpack_mask(bits, self.entries) for j, bits in told.items()}
        return {j: unpack_mask(bits, self.entries).take(own) for j, bits in told.items()}
