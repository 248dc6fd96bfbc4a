"""Averaging with neighbours, without a server: D-PSGD and CBGD, the baseline of papers 001 and 004. Leaks by design.

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | node i | `SharedEntries`: I_i and v_i[I_i], unmasked | each neighbour k ∈ View(i) |

Node i then sets v_i ← v_i + Σ_k p_ik (v_k − v_i), at each index over the neighbours that shared it.

**Who learns what.** Each neighbour learns every shared entry of the model. With TopK it also learns which entries are
largest. Onlookers of the sealed links learn who talks to whom, when, and how much.

**Faults.** A neighbour that is not heard by the deadline is left out; its weight stays with the node's own model.

**Papers.** 001 Algorithm 2 (line 3, with P doubly stochastic) and the D-PSGD of 004, Section 2.1. The weights are
those of Metropolis and Hastings; in a regular graph of degree δ they are the 1/(δ + 1) of paper 004.
"""

from typing import ClassVar

import numpy as np

from tacit.core.errors import Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Protocol, State
from tacit.core.suite import Suite, Update
from tacit.protocols.shapes.neighbourhood import (
    GraphSettings,
    GraphTerms,
    Neighbourhood,
    add_at,
    mixed,
    own_entries,
    told_entries,
)


class SharedEntries(Message, frozen=True):
    """The entries of a model that a node shares, and which ones they are (a seed, a set, or nothing for all)."""

    selection: bytes
    vector: memoryview
    per_entry: ClassVar[int] = 10
    parameters: ClassVar[tuple[str, ...]] = ("vector",)
    metadata: ClassVar[tuple[str, ...]] = ("selection",)


async def node(link: Link, update: Update, terms: GraphTerms, suite: Suite, state: State) -> Average:
    """Node i."""
    del state
    at, ring, entries = Neighbourhood(link, terms), suite.ring, len(update.vector)
    mask, selection = own_entries(suite, terms, update.vector)
    shared = ring.limited(update.vector, terms.settings.clip)[np.flatnonzero(mask)]
    encoded = {weight: ring.values(shared, weight) for weight in {at.weight(k) for k in at.view}}
    for k, party in zip(at.view, at.names, strict=True):
        await link.send(party, SharedEntries(selection, memoryview(ring.pack(encoded[at.weight(k)]))))

    total, heard = ring.zeros(entries), {}
    for party, model in (await link.gather(SharedEntries, at.names, at_least=0)).items():
        try:
            theirs = told_entries(suite, terms, model.selection, entries)
            part = ring.unpack(model.vector, int(np.count_nonzero(theirs)))
        except WireError:
            link.exclude(party, Drop.MALFORMED)
            continue
        add_at(total, theirs, part)
        heard[link.parties.place(party)] = theirs
    average = mixed(at, update.vector, ring.floats(total), heard)
    return Average(average, link.parties.named(sorted((at.me, *heard))))


GOSSIP = Protocol(
    name="gossip",
    summary="plain averaging with neighbours, who see the model",
    settings=GraphSettings,
    messages=(SharedEntries,),
    party=node,
    leaks_by_design=True,
    weighted=False,
)
