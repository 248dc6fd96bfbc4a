"""Masked averaging of sparsified models between neighbours, without a server (paper 004, CESAR).

Each node k receives from its neighbours View(k). For one receiver k:

| step | who | sends | to |
| --- | --- | --- | --- |
| prestep | i ∈ View(k) | `Selection`: I_i, as a seed or a set | k |
| | k | `Turn`: the members, and what i needs to know of their I_j | each member |
| masking | i | `Masked`: the entries that at least s other members share, with pairwise masks and a self mask | k |
| redo | k | `Turn` for the members that delivered, if one did not; then masking again | each member |
| release | k | `Turn` that contains only `complete` | each member |
| | i | `Release`: the seed of its self mask for this attempt | k |

**Who learns what.** At each entry, node k learns the sum of p_ki v_i over the neighbours that share the entry, if there
are at least s + 1, and nothing otherwise. Masks do not prevent inference from the sums of several receivers (Theorem 5
of the paper is false): that depends on the graph. Index information: with "random", every node may know every
selection, which says nothing about the data. With "topk" a selection is data. Then k learns I_i of its neighbours, and
i learns which entries of I_i each other neighbour of k selected too. No other node learns any of it.

**Faults.** If a neighbour drops out, the round is redone without it, without a new prestep, and never with fewer than
s + 1 neighbours. If one drops out between its masked model and its release, node k gets no sum in this round.

**Deviations.**
- *Masks are fresh for each receiver, attempt, set and positions*, keyed by the two identities instead of by seeds sent
  in the prestep. So colluding receivers cannot compare them, and a mask agreed for one set does not cancel in another.
  A receiver that lies about selections cannot align one sender's entries with another's other entries.
- *A masked model also carries a self mask*, whose seed its sender releases once. A message that arrives late, after a
  redo without its sender, stays masked; otherwise the two sums would differ by exactly one model.
- *The common neighbour forwards selections*, instead of every pair of second-degree neighbours exchanging them. The
  paper does so where there is no direct link. It costs less, and i learns only how I_j overlaps with its own selection.
- *No index sets travel with the masked models*: k computes them from the selections, as the senders do.
- *Weights are Metropolis-Hastings weights*, which in a regular graph are the 1/(δ + 1) of Algorithm 4.
- *Numbers are ring elements* with a fitting scale, instead of six decimals.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 004, Algorithm 1, node N_i | `node`, which is a sender (`Sending`) and a receiver (`Receiving`) |
| I_i; v_i; d; View(N_k); s | `selection`; `vector`; `entries`; `GraphTerms.view`; `masking` |
| Algorithm 2, lines 2 to 6: send I_i and seeds | `Selection`, `Receiving.prestep`, and `Turn`, which passes on I_j |
| line 7: I_{i∩j} | `Sending.overlaps` |
| lines 8 to 10: M_ij − M_ji | one stream of `pairwise`: one node of the pair adds it, the other node subtracts it |
| Algorithm 3, lines 3 to 9: v_{k←i}, C, I'_ik, w_{k←i} | `Sending.mask_entries`: `w`, `count_sets`, `kept` |
| line 8 with s of Section 3.4.2 | `kept`: the entries that at least `masking` other senders selected too |
| line 10: send | `Masked`, without I'_ik, which the receiver computes (`Receiving.kept`) |
| Algorithm 4: aggregate_received_models | `Receiving.add`, `Receiving.unmask`, `mix_models` |
| c, v'_i | `GraphTerms.weight`, which is 1/c in a regular graph; `average` |
| Lemma 3 | `mask_entries`: both nodes of a pair find the same entries |
"""

from tacit.core.average import Average
from tacit.core.link import Link
from tacit.core.protocol import Protocol
from tacit.core.suite import Suite, Update
from tacit.protocols.cesar.proposals import CLAIMS, propose
from tacit.protocols.cesar.receiving import Receiving
from tacit.protocols.cesar.sending import Sending
from tacit.protocols.cesar.settings import ATTEMPTS, CesarSettings, CesarTerms, Masked, Release, Selection, Turn
from tacit.protocols.shapes.neighbourhood import GraphState, Neighbourhood, mix_models, remember, select_entries


async def node(link: Link, update: Update, terms: CesarTerms, suite: Suite, state: GraphState) -> Average:
    """Coroutine of a node, which is a sender N_i to each neighbour and a receiver N_k from each neighbour."""
    at, vector = Neighbourhood(link, terms), update.vector
    bits, selection = select_entries(link, suite, terms, vector, state)
    sending = Sending(link, suite, terms, at, vector, bits, selection)
    receiving = Receiving(link, suite, terms, at, len(vector))

    for party in at.names:
        await link.send(party, Selection(selection))
    receiving.prestep(await link.gather(Selection, at.names, at_least=0))
    for attempt in range(1, ATTEMPTS + 2):
        if not receiving.done:
            await receiving.ask(attempt)
        # A node that waits for a dropped-out node delays others, so each attempt waits longer than the one before.
        asking = [link.parties[k] for k in sending.receivers]
        turns = await link.gather(Turn, asking, 0, step=attempt, patience=2 * 4 ** (attempt - 1))
        await sending.answer(turns, attempt)
        if not receiving.done:
            await receiving.collect(attempt)

    average = mix_models(suite.ring, at, vector, receiving.total, receiving.heard)
    await remember(link, suite, terms, average)
    return Average(average, link.parties.names_at(sorted((at.me, *receiving.contributors))))


CESAR = Protocol(
    name="cesar",
    summary="masked averaging of sparsified models with neighbours, who see only sums",
    settings=CesarSettings,
    messages=(Selection, Turn, Masked, Release),
    party=node,
    state=GraphState,
    claims=CLAIMS,
    weighted=False,
    propose=propose,
    example_options={"graph": {"kind": "regular", "degree": 4}},
)
