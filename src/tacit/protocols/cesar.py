"""Masked averaging of sparsified models between neighbours, without a server (paper 004, CESAR).

Each node k receives from its neighbours View(k). For one receiver k:

| step | who | sends | to |
| --- | --- | --- | --- |
| prestep | i ∈ View(k) | `Selection`: I_i, as a seed or a set | k |
| | k | `Turn`: who takes part, and what i needs of their I_j | each of them |
| masking | i | `Masked`: the entries that at least s others share too, under pairwise masks and a self mask | k |
| redo | k | `Turn` for those who delivered, if somebody did not; back to masking | each of them |
| release | k | `Turn` with nothing in it but `complete` | each of them |
| | i | `Release`: the seed of its self mask for this one attempt | k |

**Who learns what.** Node k learns, at each entry, the sum of p_ki v_i over those of its neighbours that share it, if
there are s + 1 or more, and nothing of the others. What can be inferred from the sums of several receivers is not
prevented by masks (Theorem 5 of the paper is false): it depends on the graph. Index information: with "random"
everybody may know everybody's selection, it says nothing about the data. With "topk" a selection is data: k learns I_i
of its neighbours, and i learns which entries of I_i each other neighbour of k selected too. Nobody else learns any of
it.

**Faults.** If a neighbour drops out the round is redone without it, without a new prestep, and never with fewer than s
+ 1. If one drops out between its masked model and its release, node k goes without its neighbours in this round.

**Deviations.**
- *Masks are fresh for each receiver, attempt and set*, keyed by the two identities instead of by seeds sent in the
  prestep. Colluding receivers cannot difference them, and a mask agreed for one set does not cancel in another.
- *A masked model also carries a self mask*, whose seed its sender releases once. A message that comes late, after a
  redo without its sender, stays masked; otherwise the two sums would differ by exactly one model.
- *The common neighbour passes selections on*, instead of every pair of second-degree neighbours exchanging them. The
  paper does so where there is no direct link. It costs less, and i learns only how I_j overlaps with its own
  selection.
- *No index sets travel with the masked models*: k computes them from the selections, as the senders do.
- *Weights are those of Metropolis and Hastings*, which in a regular graph are the 1/(δ + 1) of Algorithm 4.
- *Numbers are in a ring* whose scale fits them, in place of six decimals.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Claim, Protocol, State
from tacit.core.suite import Party, Secret, Suite, Update, Vector
from tacit.designs import graphs
from tacit.protocols.gossip import GraphConfig, Mask, Neighbourhood, mixed, select, selected
from tacit.vectors import indices
from tacit.vectors.indices import Positions

ATTEMPTS = 3
"""How often a receiver may ask: once, and again after each time that somebody did not deliver."""
MASK = "tacit/cesar/v1/mask"


class Selection(Message, frozen=True):
    """I_i: the seed it is drawn from, or the set, or nothing for all."""

    indices: bytes
    per_entry: ClassVar[int] = 2
    metadata: ClassVar[tuple[str, ...]] = ("indices",)


class Turn(Message, frozen=True):
    """From receiver k: those who take part, each with what it shares; or that all is there, to be released."""

    selections: dict[int, bytes]
    complete: bool = False
    per_party: ClassVar[int] = 64
    metadata: ClassVar[tuple[str, ...]] = ("selections",)

    @classmethod
    def limit(cls, parties: int, entries: int) -> int:
        """Returns the most a turn may take: a set of entries for each neighbour."""
        return super().limit(parties, entries) + parties * (entries // 4)


class Masked(Message, frozen=True):
    """w_{k←i}, useless without every other model of its set and every release."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Release(Message, frozen=True):
    """The seed of the sender's self mask, for one attempt only."""

    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class CesarConfig(GraphConfig, frozen=True, kw_only=True):
    """Settings of `cesar`."""

    masking: int = 1
    """s: with how many others' masks an entry must be covered to be sent."""

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties)
        if self.masking < 1:
            problems.append(f"masking={self.masking} would send entries unmasked; use 1 or more")
        if problems:
            return problems
        graph = graphs.graph_from(self.graph, parties)
        thin = [parties[i] for i in range(len(parties)) if graph.degree(i) < self.masking + 1]
        least = min(graph.degree(i) for i in range(len(parties)))
        if thin:
            cure = f"use masking={least - 1} or less, or" if least >= 2 else "use"
            problems.append(
                f"{', '.join(thin)} have fewer than {self.masking + 1} neighbours, so nothing they receive could be "
                f"masked {self.masking} times; {cure} a graph in which everybody has at least {self.masking + 1}"
            )
        return problems


def told(config: CesarConfig, receiving: "Receiving", i: int) -> dict[int, bytes]:
    """Returns what member i needs to know of the others: their seeds, or how their sets overlap with its own."""
    if config.shows_data:
        own = np.flatnonzero(receiving.masks[i])
        others = {j: indices.encode_mask(mask[own]) for j, mask in receiving.masks.items() if j != i}
        return {i: b"", **others}
    return receiving.selections


def overlaps(suite: Suite, config: CesarConfig, turn: Turn, i: int, own: Positions, entries: int) -> dict[int, Mask]:
    """Returns, for each other member, which of our own entries it shares too."""
    others = {j: data for j, data in turn.selections.items() if j != i}
    if config.shows_data:
        return {j: indices.decode_mask(data, len(own)) for j, data in others.items()}
    return {j: selected(suite, config, data, entries)[own] for j, data in others.items()}


def counts(masks: Mapping[int, Mask]) -> NDArray[np.unsignedinteger]:
    """Returns how many of some sets each entry is in."""
    first, *others = masks.values()
    total = first.astype(np.min_scalar_type(len(masks)))
    for mask in others:
        total += mask
    return total


class Sending:
    """Node i as a sender: one masked model for each neighbour k that asks for it, and one release each."""

    def __init__(self, link: Link, suite: Suite, config: CesarConfig, at: Neighbourhood, vector: Vector, mask: Mask):
        self.link, self.suite, self.config, self.at = link, suite, config, at
        self.entries, self.own = len(vector), np.flatnonzero(mask)
        self.values = suite.ring.limited(vector, config.clip)[self.own]
        self.encoded: dict[float, Vector] = {}  # by weight, of which there is one in a regular graph
        self.receivers = list(at.view)
        self.seeds: dict[int, Secret] = {}

    async def answer(self, turns: dict[Party, Turn], attempt: int) -> None:
        """Answers each receiver's turn, and forgets those from whom nothing more is to come."""
        for k in list(self.receivers):
            party = self.link.parties[k]
            turn = turns.get(party)
            if turn is not None and self.may_send(k, turn.selections):
                await self.link.send(party, Masked(memoryview(self.masked(k, turn, attempt))), step=attempt)
                continue
            self.receivers.remove(k)
            # Only here does a seed leave us, and never a second one for the same receiver.
            if turn is not None and turn.complete and k in self.seeds:
                await self.link.send(party, Release(self.seeds[k].reveal()), step=attempt)

    def may_send(self, k: int, members: Collection[int]) -> bool:
        """Says whether a turn of k is one that we may take part in."""
        return self.at.me in members and len(members) > self.config.masking and self.at.graph[k].keys() >= set(members)

    def masked(self, k: int, turn: Turn, attempt: int) -> bytes | memoryview:
        """Returns w_{k←i} for the members of a turn (Algorithm 3, with s of Section 3.4.2)."""
        i, ring = self.at.me, self.suite.ring
        covers = overlaps(self.suite, self.config, turn, i, self.own, self.entries)
        kept = counts(covers) >= self.config.masking
        weight = self.at.weight(i, k)
        if weight not in self.encoded:
            self.encoded[weight] = ring.values(self.values, weight)
        w = self.encoded[weight].copy()
        members = b",".join(b"%d" % j for j in sorted(turn.selections))
        context = self.link.statement("cesar mask", b"%d" % k, b"%d" % attempt, members)
        for j, cover in covers.items():
            # Both sides of a pair find the same entries here, because an entry has as many masks with each (Lemma 3).
            common = np.flatnonzero(cover & kept)
            mask = self.suite.stream(self.suite.pairwise(self.link.parties[j], MASK, context), w, len(common))
            w[common] = w[common] + mask if i < j else w[common] - mask
        w = w[np.flatnonzero(kept)]
        self.seeds[k] = self.suite.seed()
        self.suite.mask(w, [self.seeds[k]])
        return ring.pack(w)


class Receiving:
    """Node k as a receiver: who is still in, what they share, and what they sent."""

    def __init__(self, link: Link, suite: Suite, config: CesarConfig, at: Neighbourhood, entries: int) -> None:
        self.link, self.suite, self.config, self.at, self.entries = link, suite, config, at, entries
        self.selections: dict[int, bytes] = {}
        self.masks: dict[int, Mask] = {}
        self.kept: dict[int, Positions] = {}
        self.delivered: dict[int, Vector] = {}
        self.listening = list(at.view)
        self.complete = self.done = False
        self.heard: tuple[int, ...] = ()
        self.total, self.weights = suite.ring.zeros(entries), np.zeros(entries)

    def prestep(self, received: dict[Party, Selection]) -> None:
        """Takes in what the neighbours selected."""
        for party, message in received.items():
            try:
                self.masks[self.at.place(party)] = selected(self.suite, self.config, message.indices, self.entries)
                self.selections[self.at.place(party)] = message.indices
            except WireError:
                self.link.exclude(party, Drop.MALFORMED)

    async def ask(self, attempt: int) -> None:
        """Sends each neighbour its turn: to send, to release, or, if it is left out, to wait for us no longer."""
        asking = not self.complete and len(self.selections) > self.config.masking and attempt <= ATTEMPTS
        for i in self.listening:
            member = i in self.selections
            turn = Turn(told(self.config, self, i) if member and asking else {}, member and self.complete)
            await self.link.send(self.link.parties[i], turn, step=attempt)
        self.listening = list(self.selections)
        self.done = not asking and not self.complete

    async def collect(self, attempt: int) -> None:
        """Gathers masked models, and thereafter the releases."""
        members = [self.link.parties[i] for i in self.selections]
        if self.complete:
            released = await self.link.gather(Release, members, 0, step=attempt, patience=4**attempt)
            if len(released) == len(members):
                self.unmask({self.at.place(party): Secret(message.seed) for party, message in released.items()})
            self.done = True
            return
        enough = counts(self.masks) > self.config.masking
        self.kept = {i: np.flatnonzero(mask & enough) for i, mask in self.masks.items()}
        received = await self.link.gather(Masked, members, 0, step=attempt, patience=4**attempt)
        self.delivered = {}
        for party, message in received.items():
            i = self.at.place(party)
            try:
                self.delivered[i] = self.suite.ring.unpack(message.vector, len(self.kept[i]))
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
            self.total[self.kept[i]] += w
            self.weights[self.kept[i]] += self.at.weight(self.at.me, i)
        self.heard = tuple(seeds)


async def node(link: Link, update: Update, config: CesarConfig, suite: Suite, state: State) -> Average:
    """A node, which is a sender N_i to each of its neighbours and their receiver N_k at once."""
    del state
    at, vector = Neighbourhood(link, config.graph), update.vector
    mask, selection = select(suite, config, vector)
    sending = Sending(link, suite, config, at, vector, mask)
    receiving = Receiving(link, suite, config, at, len(vector))

    for party in at.names:
        await link.send(party, Selection(selection))
    receiving.prestep(await link.gather(Selection, at.names, at_least=0))
    for attempt in range(1, ATTEMPTS + 2):
        if not receiving.done:
            await receiving.ask(attempt)
        # Whoever waits for a node that is gone keeps others waiting, hence patience that doubles from wait to wait.
        asking = [link.parties[k] for k in sending.receivers]
        turns = await link.gather(Turn, asking, 0, step=attempt, patience=2 * 4 ** (attempt - 1))
        await sending.answer(turns, attempt)
        if not receiving.done:
            await receiving.collect(attempt)

    average = mixed(vector, suite.ring.floats(receiving.total), receiving.weights)
    return Average(average, tuple(link.parties[i] for i in sorted((at.me, *receiving.heard))))


CESAR = Protocol(
    name="cesar",
    summary="masked averaging of sparsified models with neighbours, who see only sums",
    config=CesarConfig,
    messages=(Selection, Turn, Masked, Release),
    party=node,
    claims=(
        Claim("004", "Theorem 1", "no honest-but-curious node learns a single entry of a neighbour's model"),
        Claim("004", "Theorem 5", "with masking requirement k, nor do k colluding nodes"),
    ),
    weighted=False,
)
