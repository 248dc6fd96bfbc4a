"""Node k of `cesar` as a receiver: who is still in, what they share, and what they sent."""

import numpy as np

from tacit.core.errors import Drop, WireError
from tacit.core.link import Link
from tacit.core.suite import Party, Secret, Suite, Vector
from tacit.protocols.cesar.terms import ATTEMPTS, CesarTerms, Masked, Release, Selection, Turn
from tacit.protocols.shapes.neighbourhood import Neighbourhood, counts, told_entries
from tacit.vectors import indices
from tacit.vectors.indices import Mask, Positions


class Receiving:
    """What node k has heard so far."""

    def __init__(self, link: Link, suite: Suite, terms: CesarTerms, at: Neighbourhood, entries: int) -> None:
        self.link, self.suite, self.terms, self.at, self.entries = link, suite, terms, at, entries
        self.selections: dict[int, bytes] = {}
        self.masks: dict[int, Mask] = {}
        self.kept: dict[int, Mask] = {}
        """What each of them sends: the entries that enough others share too,"""
        self.places: dict[int, Positions] = {}
        """and where these are."""
        self.delivered: dict[int, Vector] = {}
        self.listening = list(at.view)
        self.complete = self.done = False
        self.heard: dict[int, Mask] = {}
        """What was received of whom, in the end."""
        self.total = suite.ring.zeros(entries)

    def prestep(self, received: dict[Party, Selection]) -> None:
        """Takes in what the neighbours selected."""
        for party, message in received.items():
            i = self.link.parties.place(party)
            try:
                self.masks[i] = told_entries(self.suite, self.terms, message.indices, self.entries)
                self.selections[i] = message.indices
            except WireError:
                self.link.exclude(party, Drop.MALFORMED)

    async def ask(self, attempt: int) -> None:
        """Sends each neighbour its turn: to send, to release, or, if it is left out, to wait for us no longer."""
        asking = not self.complete and len(self.selections) > self.terms.settings.masking and attempt <= ATTEMPTS
        for i in self.listening:
            member = i in self.selections
            turn = Turn(self.told(i) if member and asking else {}, member and self.complete)
            await self.link.send(self.link.parties[i], turn, step=attempt)
        self.listening = list(self.selections)
        self.done = not asking and not self.complete

    def told(self, i: int) -> dict[int, bytes]:
        """Returns what member i needs to know of the others: their seeds, or how their sets overlap with its own."""
        if not self.terms.shows_data:
            return self.selections
        own = np.flatnonzero(self.masks[i])
        others = {j: indices.encode_mask(mask[own]) for j, mask in self.masks.items() if j != i}
        return {i: b"", **others}

    async def collect(self, attempt: int) -> None:
        """Gathers masked models, and thereafter the releases."""
        place, masking = self.link.parties.place, self.terms.settings.masking
        members = self.link.parties.named(self.selections)
        if self.complete:
            released = await self.link.gather(Release, members, 0, step=attempt, patience=4**attempt)
            if len(released) == len(members):
                self.unmask({place(party): Secret(message.seed) for party, message in released.items()})
            self.done = True
            return
        enough = counts(self.masks.values()) > masking
        self.kept = {i: mask & enough for i, mask in self.masks.items()}
        self.places = {i: np.flatnonzero(mask) for i, mask in self.kept.items()}
        received = await self.link.gather(Masked, members, 0, step=attempt, patience=4**attempt)
        self.delivered = {}
        for party, message in received.items():
            i = place(party)
            try:
                self.delivered[i] = self.suite.ring.unpack(message.vector, len(self.places[i]))
            except WireError:
                self.link.exclude(party, Drop.MALFORMED)
        self.complete = len(self.delivered) == len(members)
        if not self.complete:
            self.masks = {i: self.masks[i] for i in self.delivered}
            self.selections = {i: self.selections[i] for i in self.delivered}

    def unmask(self, seeds: dict[int, Secret]) -> None:
        """Takes the self masks off and adds up; the pairwise masks cancel in the sum."""
        for i, seed in seeds.items():
            w = self.delivered[i].copy()
            self.suite.mask(w, minus=[seed])
            np.add.at(self.total, self.places[i], w)
        self.heard = self.kept
