"""Averaging with neighbours, without a server: D-PSGD and CBGD, the baseline of papers 001 and 004. It leaks by design.

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | node i | `SharedEntries`: I_i and v_i[I_i], unmasked | each neighbour k ∈ View(i) |

Node i then sets v_i ← v_i + Σ_k p_ik (v_k − v_i). At each index the sum is over the neighbours that shared it.

**Who learns what.** Each neighbour learns every shared entry of the model. With TopK it also learns which entries are
largest, or changed most. Links are sealed, so an eavesdropper learns who exchanges messages, when, and how much.

**Faults.** A neighbour whose message does not arrive by the deadline is left out. Its weight stays with the node's own
model.

**Papers.** 001 Algorithm 2 (line 3, with P doubly stochastic) and the D-PSGD of 004, Section 2.1. The weights are
Metropolis-Hastings weights. In a regular graph of degree δ they are the 1/(δ + 1) of paper 004.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 001, Algorithm 2 (CBGD), client i; 004, D-PSGD, node N_i | `node` |
| line 2: send w_i(t) to N_i; receive w_j(t) | `share` sends `SharedEntries` and gathers the neighbours' messages |
| line 3: z_i(t) = Σ p_ij w_j(t), P doubly stochastic | `mix_models`, with `GraphTerms.weight` |
| line 4: w_i(t+1) = z_i(t) − η_t ∇l_i | what the caller does between rounds |
| 004: I_i, α, TopK | `select_entries`; `GraphSettings.share`, `sparsifier` |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tacit.core.average import Average
from tacit.core.errors import Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Protocol
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument, ProposedSettings, ReasonCode
from tacit.core.suite import Parties, Suite, Update, Vector
from tacit.protocols.shapes.neighbourhood import (
    GraphSettings,
    GraphState,
    GraphTerms,
    Neighbourhood,
    add_at,
    count_entries,
    encode_by_weight,
    mix_models,
    read_selection,
    remember,
    select_entries,
    take_entries,
)
from tacit.protocols.shapes.proofs import PLAIN_VECTORS


class SharedEntries(Message, frozen=True, tag="SharedEntries"):
    """The shared entries of a node's model, and their selection: a seed, a set, or nothing if all are shared."""

    selection: bytes
    vector: memoryview
    per_entry: ClassVar[int] = 10
    parameters: ClassVar[tuple[str, ...]] = ("vector",)
    metadata: ClassVar[tuple[str, ...]] = ("selection",)


class GossipSettings(GraphSettings, frozen=True, kw_only=True):
    """Settings of `gossip`."""

    def bind(self, parties: Parties) -> "GossipTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        return GossipTerms(self, parties, self.draw_graph(parties))


@dataclass(frozen=True)
class GossipTerms(GraphTerms):
    """What the settings of `gossip` mean for one roster."""

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields the argument that neighbours see all shared entries."""
        del query
        yield PLAIN_VECTORS


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields settings for a ring, as a baseline for comparison."""
    del parties, colluding
    yield ProposedSettings({"graph": "ring"}, ReasonCode.BASELINE_WITHOUT_SERVER)


async def node(link: Link, update: Update, terms: GraphTerms, suite: Suite, state: GraphState) -> Average:
    """Coroutine of node i."""
    at, ring, vector = Neighbourhood(link, terms), suite.ring, update.vector
    await share(link, suite, terms, at, vector, state)
    received = await link.gather(SharedEntries, at.names, at_least=0)
    total, heard = ring.zeros(len(vector)), {}
    for party in tuple(received):
        model = received.pop(party)  # so that no other reference keeps it in memory
        try:
            theirs = read_selection(suite, terms, model.selection, len(vector))
            part = ring.unpack(model.vector, count_entries(theirs))
        except WireError:
            link.exclude(party, Drop.MALFORMED)
            continue
        add_at(total, theirs, part)
        heard[link.parties.place(party)] = theirs
    average = mix_models(ring, at, vector, total, heard)
    await remember(link, suite, terms, average)
    return Average(average, link.parties.names_at(sorted((at.me, *heard))))


async def share(
    link: Link, suite: Suite, terms: GraphTerms, at: Neighbourhood, vector: Vector, state: GraphState
) -> None:
    """Sends each neighbour the shared entries. Neighbours of equal weight get one message, which is encoded once."""
    bits, selection = select_entries(link, suite, terms, vector, state)
    encoded = encode_by_weight(suite.ring, at, take_entries(suite.ring, vector, bits, terms.settings.clip))
    said = {weight: SharedEntries(selection, memoryview(suite.ring.pack(part))) for weight, part in encoded.items()}
    for k, party in zip(at.view, at.names, strict=True):
        await link.send(party, said[at.weight(k)])


GOSSIP = Protocol(
    name="gossip",
    summary="plain averaging with neighbours, who see the model",
    settings=GossipSettings,
    messages=(SharedEntries,),
    party=node,
    state=GraphState,
    leaks_by_design=True,
    weighted=False,
    propose=propose,
    example_options={"graph": {"kind": "regular", "degree": 4}},
    alternative="cesar",
)
