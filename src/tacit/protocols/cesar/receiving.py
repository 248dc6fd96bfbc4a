"""Node k of `cesar` as a receiver: the remaining members, their selections, and their masked models."""

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Drop, WireError
from tacit.core.link import Link
from tacit.core.suite import Party, Secret, Suite, Vector
from tacit.protocols.cesar.settings import ATTEMPTS, CesarTerms, Masked, Release, Selection, Turn
from tacit.protocols.shapes.neighbourhood import (
    Bits,
    Neighbourhood,
    add_at,
    count_entries,
    count_sets,
    pack_mask,
    read_selection,
    unpack_mask,
)
from tacit.vectors import index_sets
from tacit.vectors.index_sets import Mask


class Receiving:
    """State of node k as a receiver in one round."""

    def __init__(self, link: Link, suite: Suite, terms: CesarTerms, at: Neighbourhood, entries: int) -> None:
        self.link, self.suite, self.terms, self.at, self.entries = link, suite, terms, at, entries
        self.selections: dict[int, bytes] = {}
        self.bits: dict[int, Bits] = {}
        """Entries that each neighbour selected."""
        self.kept: dict[int, Bits] = {}
        """Entries that each neighbour sends: those that enough other members share."""
        self.listening = list(at.view)
        self.complete = self.done = False
        self.heard: dict[int, Bits] = {}
        """Entries received from each neighbour, once the round is complete."""
        self._sum: Vector = suite.ring.zeros(0)
        """Sum of all received models, with their self masks."""
        self._places: dict[int, NDArray[np.int32] | None] = {}
        """Positions at which each neighbour's entries were added; None for all."""

    @property
    def total(self) -> Vector:
        """The sum of the received models, without masks; zeros if the round did not complete."""
        return self._sum if self.heard else self.suite.ring.zeros(self.entries)

    @property
    def contributors(self) -> list[int]:
        """Neighbours with an entry in the sum. Of the others, no entry was shared often enough."""
        return [i for i, bits in self.heard.items() if bits.any()]

    def mask(self, i: int) -> Mask:
        """Returns the selection of a member as a mask."""
        return unpack_mask(self.bits[i], self.entries)

    def prestep(self, received: dict[Party, Selection]) -> None:
        """Stores the selections of the neighbours."""
        for party, message in received.items():
            i = self.link.parties.place(party)
            try:
                self.bits[i] = read_selection(self.suite, self.terms, message.indices, self.entries)
                self.selections[i] = message.indices
            except WireError:
                self.link.exclude(party, Drop.MALFORMED)

    async def ask(self, attempt: int) -> None:
        """Sends each neighbour its turn: to send a masked model, to release its seed, or to stop waiting."""
        asking = not self.complete and len(self.selections) > self.terms.settings.masking and attempt <= ATTEMPTS
        for i in self.listening:
            member = i in self.selections
            turn = Turn(self.describe_others(i) if member and asking else {}, member and self.complete)
            await self.link.send(self.link.parties[i], turn, step=attempt)
        self.listening = list(self.selections)
        self.done = not asking and not self.complete

    def describe_others(self, i: int) -> dict[int, bytes]:
        """Returns what member i must know of the selections: all seeds, or how other sets overlap with its own."""
        if not self.terms.shows_data:
            return self.selections
        own = np.flatnonzero(self.mask(i))
        others = {j: index_sets.encode_mask(self.mask(j).take(own)) for j in self.bits if j != i}
        return {i: b"", **others}

    async def collect(self, attempt: int) -> None:
        """Gathers masked models or, if these are complete, the releases."""
        place = self.link.parties.place
        members = self.link.parties.names_at(self.selections)
        if self.complete:
            released = await self.link.gather(Release, members, 0, step=attempt, patience=4**attempt)
            if len(released) == len(members):
                self.unmask({place(party): Secret(message.seed) for party, message in released.items()})
            self.done = True
            return
        shared = pack_mask(
            count_sets(map(self.mask, self.bits), len(self.bits), self.entries) > self.terms.settings.masking
        )
        self.kept = {i: bits & shared for i, bits in self.bits.items()}
        self.add(await self.link.gather(Masked, members, 0, step=attempt, patience=4**attempt))

    def add(self, received: dict[Party, Masked]) -> None:
        """Sums the delivered models if all members delivered; otherwise only those that delivered stay members."""
        delivered: dict[int, Vector] = {}
        for party in tuple(received):
            i = self.link.parties.place(party)
            try:
                delivered[i] = self.suite.ring.unpack(received.pop(party).vector, count_entries(self.kept[i]))
            except WireError:
                self.link.exclude(party, Drop.MALFORMED)
        self.complete = len(delivered) == len(self.selections)
        if self.complete:
            # Summed before the releases arrive, so that the single models need not be kept in memory.
            total = self._sum = self.suite.ring.zeros(self.entries)
            self._places = {i: add_at(total, self.kept[i], delivered.pop(i)) for i in tuple(delivered)}
        else:
            self.bits = {i: self.bits[i] for i in delivered}
            self.selections = {i: self.selections[i] for i in delivered}

    def unmask(self, seeds: dict[int, Secret]) -> None:
        """Subtracts the self masks from the sum. The pairwise masks already cancelled."""
        for i, seed in seeds.items():
            places, mask = self._places[i], self.suite.stream(seed, self._sum, count_entries(self.kept[i]))
            if places is None:
                self._sum -= mask
            else:
                np.subtract.at(self._sum, places, mask)
        self.heard, self._places = self.kept, {}
