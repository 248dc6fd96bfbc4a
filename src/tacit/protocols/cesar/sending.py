"""Node i of `cesar` as a sender: a masked model for each neighbour k that asks, and one release for each."""

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
    """Returns a digest of some positions. It is part of the mask's key, so a mask fits these positions only."""
    return hashlib.sha256(entries.astype("<u4").tobytes()).digest()


class Sending:
    """State of node i as a sender in one round."""

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
        # If encoding is randomized, it is done once for all attempts. Otherwise the result need not be kept.
        self.encoded = encode_by_weight(suite.ring, at, self.shared) if suite.ring.draws else {}
        self.receivers = list(at.view)
        # All seeds are sampled now, so that none depends on the order in which turns arrive.
        self.seeds = {(k, attempt): suite.seed() for k in at.view for attempt in terms.steps(Masked)}
        self.used: dict[int, Secret] = {}

    def find_own(self) -> Positions | None:
        """Returns the positions of this node's selected entries; None for all."""
        # NumPy takes entries by position several times as fast as by mask.
        return np.flatnonzero(unpack_mask(self.bits, self.entries)) if self.terms.selective else None

    async def answer(self, turns: dict[Party, Turn], attempt: int) -> None:
        """Answers each receiver's turn, and removes the receivers that need nothing more."""
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
            # A seed is sent only here, and never a second one to the same receiver.
            if turn is not None and turn.complete and k in self.used:
                await self.link.send(party, Release(self.used[k].reveal()), step=attempt)
        if not self.suite.ring.draws:
            self.encoded.clear()

    def may_send(self, k: int, members: Collection[int]) -> bool:
        """Returns whether this node may take part in a turn of k with these members."""
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
        # Positions follow from all seeds, if selections are random: our own seed, and the others' as k forwarded them.
        seeds = frame_parts(*(turn.selections[j] if j != i else self.selection for j in sorted(turn.selections)))
        for j, cover in covers.items():
            # Both nodes of a pair find the same entries, because an entry is masked equally often at both (Lemma 3).
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
        """Returns, for each other member, a mask over our selected entries that shows which ones it shares."""
        others = {j: data for j, data in turn.selections.items() if j != self.at.me}
        if self.terms.shows_data:
            return {j: index_sets.decode_mask(data, len(self.shared)) for j, data in others.items()}
        told = {j: read_selection(self.suite, self.terms, data, self.entries) for j, data in others.items()}
        if own is None:
            return {j: unpack_mask(bits, self.entries) for j, bits in told.items()}
        return {j: unpack_mask(bits, self.entries).take(own) for j, bits in told.items()}
