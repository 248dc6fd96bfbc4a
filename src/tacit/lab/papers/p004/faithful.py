"""CESAR with the messages and the encoding of paper 004. The deployed `cesar` sends less and masks more.

| step | sender | message | receivers | | --- | --- | --- | --- | | Algorithm 2 | i | `Prestep`: I_i, as a seed or a
set, and seed_ij | every node two hops away, j ∈ View_2(i) | | Algorithm 3 | i | `MaskedModel`: I'_ik, and v_i there
with the masks of all j ∈ View(k) | each neighbour k |

**Encoding.** An entry is a whole number of millionths in 32 bits (Section 4.6.2: "retaining only the first six decimal
places"). `keep_six_decimals` truncates entries before the round, so that nothing is rounded in it.

**Who learns what.** Node k learns the sum of its neighbours' entries, as in `cesar`. A pair uses the same mask for
every common receiver, there is no self mask, and a selection is sent to all nodes two hops away, whether it overlaps
with theirs or not. `tacit.audit` computes the consequences on a graph.

**Faults.** None are tolerated, as in the paper (Section 6): without one of the models, masks do not cancel.

**Deviations.** Links are encrypted and authenticated, as the paper assumes. A set is sent in the shortest of several
codes, which include Elias gamma. Masks are AES streams; the paper names no generator.

**Use.** The protocol goes wherever a name does: `tacit.aggregate(keep_six_decimals(vectors), FAITHFUL, graph="ring",
share=0.5, allow_leaks=True)`, `tacit.audit(FAITHFUL, parties=8)`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.average import Average
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Protocol
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument
from tacit.core.suite import Parties, Party, Secret, Suite, Update
from tacit.protocols.cesar.proposals import CLAIMS
from tacit.protocols.cesar.settings import CesarSettings, CesarTerms
from tacit.protocols.shapes.neighbourhood import (
    GraphState,
    Neighbourhood,
    combine_at,
    count_sets,
    read_selection,
    remember,
    select_entries,
    unpack_mask,
)
from tacit.vectors import index_sets
from tacit.vectors.ring_limits import limit

BITS, MILLION = 32, 1_000_000


class Prestep(Message, frozen=True, tag="Prestep"):
    """I_i, and the part of a pair's mask that its sender chooses (Algorithm 2, line 4)."""

    indices: bytes
    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    per_entry: ClassVar[int] = 2
    metadata: ClassVar[tuple[str, ...]] = ("indices",)


class MaskedModel(Message, frozen=True, tag="MaskedModel"):
    """I'_ik and w_{k←i} (Algorithm 3, line 10)."""

    indices: bytes
    vector: memoryview
    per_entry: ClassVar[int] = 10
    parameters: ClassVar[tuple[str, ...]] = ("vector",)
    metadata: ClassVar[tuple[str, ...]] = ("indices",)


class FaithfulSettings(CesarSettings, frozen=True, kw_only=True):
    """Settings of `cesar-paper`: those of `cesar`, without noise, and 32 bits."""

    def problems(self, parties: Parties) -> list[str]:
        """Returns the reasons, as far as they are visible at once, why settings cannot work for these parties."""
        wrong = [f"the paper's messages have {BITS} bits an entry, not {self.bits}"] if self.bits != BITS else []
        noisy = ["the paper's messages have no noise; leave noise out, or use cesar"] if self.noise else []
        return super().problems(parties) + wrong + noisy

    def bind(self, parties: Parties) -> "FaithfulTerms":
        """Returns the terms of the settings for these parties; raises ConfigError with all reasons why there are
        none."""
        return FaithfulTerms(self, parties, super().bind(parties).graph)


@dataclass(frozen=True)
class FaithfulTerms(CesarTerms):
    """Terms of the `cesar-paper` settings for some parties."""

    @property
    def summands(self) -> int:
        """The number of neighbours of a node, whose entries are added without weights."""
        return max(self.degrees)

    @property
    def span(self) -> float:
        """The largest magnitude whose sum fits, in millionths."""
        return limit(BITS, self.summands) / MILLION

    @property
    def part(self) -> float:
        """1: entries are encoded unchanged."""
        return 1.0

    def second_view(self, i: int) -> list[int]:
        """Returns View_2(i): the neighbours of the neighbours, without the node itself."""
        return sorted({j for k in self.view(i) for j in self.view(k)} - {i})

    def peers(self, me: Party) -> Collection[Party]:
        """Returns the neighbours and their neighbours."""
        i = self.parties.place(me)
        return self.parties.names_at(sorted({*self.view(i), *self.second_view(i)}))

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns None: without everybody there is no average."""
        del coalition, others
        return None

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields nothing: the proofs require that no two receivers have a mask in common."""
        del query
        return iter(())

    def fewest_contributors(self, coalition: Collection[Party]) -> int:
        """Returns 1, because there is no noise."""
        del coalition
        return 1

    def steps(self, kind: type[Message]) -> range:
        """Returns one step, because nothing is repeated."""
        del kind
        return range(1)


async def node(link: Link, update: Update, terms: FaithfulTerms, suite: Suite, state: GraphState) -> Average:
    """A node N_i, by Algorithms 1 to 4."""
    at, ring, vector = Neighbourhood(link, terms), suite.ring, update.vector
    i, entries, parties = at.me, len(vector), link.parties
    bits, selection = select_entries(link, suite, terms, vector, state)
    own, encoded = unpack_mask(bits, entries), ring.values(ring.clip_vector(vector, terms.span))

    # Algorithm 2
    second = terms.second_view(i)
    seeds = {j: suite.seed() for j in second}
    for j in second:
        await link.send(parties[j], Prestep(selection, seeds[j].reveal()))
    told = await link.gather(Prestep, parties.names_at(second))
    common, masks = {}, {}
    for party, message in told.items():
        j = parties.place(party)
        common[j] = own & unpack_mask(read_selection(suite, terms, message.indices, entries), entries)
        count = int(np.count_nonzero(common[j]))
        masks[j] = suite.stream(seeds[j], encoded, count) - suite.stream(Secret(message.seed), encoded, count)

    # Algorithm 3
    for k in at.view:
        w, others = encoded.copy(), [j for j in terms.view(k) if j != i]
        for j in others:
            combine_at(np.add, w, common[j], masks[j])
        kept = count_sets((common[j] for j in others), len(others), entries) >= terms.settings.masking
        await link.send(parties[k], MaskedModel(index_sets.encode_mask(kept), memoryview(ring.pack(w[kept]))))

    # Algorithm 4
    received = await link.gather(MaskedModel, at.names, patience=2)
    total, heard, contributors = ring.zeros(entries), np.zeros(entries), [i]
    for party, model in received.items():
        kept = index_sets.decode_mask(model.indices, entries)
        places = np.flatnonzero(kept)
        np.add.at(total, places, ring.unpack(model.vector, len(places)).copy())
        heard += kept
        contributors += [parties.place(party)] * bool(len(places))
    c = 1 + len(at.view)
    average = (c - heard) / c * vector + ring.floats(total) * (1 / c)
    await remember(link, suite, terms, average)
    return Average(average, parties.names_at(sorted(contributors)))


FAITHFUL = Protocol(
    name="cesar-paper",
    summary="cesar with the messages and the six decimals of its paper, for comparison",
    settings=FaithfulSettings,
    messages=(Prestep, MaskedModel),
    party=node,
    state=GraphState,
    claims=CLAIMS,
    weighted=False,
    needs_everybody=True,
    alternative="cesar",
)


def keep_six_decimals(vectors: Sequence[NDArray[Any]]) -> list[NDArray[np.float64]]:
    """Returns vectors with entries truncated after six decimals."""
    return [np.trunc(np.asarray(vector, np.float64) * MILLION) / MILLION for vector in vectors]
