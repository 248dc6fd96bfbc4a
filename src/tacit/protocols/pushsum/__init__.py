"""Push-sum on directed graphs, plain and with private weights, without a server (paper 001, PSGD and PPSGD).

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | client i | `Mass`: p_ji x_i and p_ji y_i, on top of all it sent before | each j that it sends to in this round |

Client i then has z_i = Σ p_ij x_j and y_i = Σ p_ij y_j, and its model is w_i = z_i / y_i. What the caller does to the
model before the next round is the gradient step: x_i ← z_i + (vector − w_i).

**Who learns what.** Receivers learn what each sender pushes to them. With `private=True` that is the sender's vector up
to one factor, and all of it for a receiver who knows one entry (`tacit attack receiver`): audits count y_i(0) and p_ii
as known, and refuse. An eavesdropper who hears every link can solve for the local optima, whatever y_i(0) and p_ii are;
links are sealed against that. With `masked=True` the in-neighbours of a client mask pairwise, and it learns only the
sum that it needs.

**Faults.** No mass is ever lost. Messages carry everything sent over a link so far, and receivers take the difference
to what they took before, so what was lost arrives with the next message; a client that crashes goes on from its saved
state. With `masked=True` a client whose in-neighbours are not all heard waits for the next round. Masses that would
take x or y out of range are left for later, and a mass that was wrong once comes right with the next.

**Deviations.** Numbers are integers in the ring: a client keeps what it does not send, to the last unit, so that total
mass is conserved exactly; parts are rounded towards zero, so that what is left of y_i is never nothing. A client that
took nothing in, when there was last anybody to hear, keeps its mass (p_ii = 1), or y_i would drain away into messages
that nobody takes; not with `masked=True`, where sums would then show the pushes of the others. A weight multiplies both
x_i(0) and y_i(0). With `private=True` the models agree on Σ x_i / Σ y_i, as in the paper, and not on the average of the
vectors that they started from.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 001, Algorithm 3 (PSGD), Algorithm 4 (PPSGD) | `client`; with `private` it is Algorithm 4 |
| x_i and y_i | `x`, with y_i as its last entry |
| Algorithm 4, line 1: y_i(0); x_i(0) = w_i(0) | `start_mass`; the distribution is `PushSumSettings.y0` |
| lines 3 to 6: p_ii in [β, α], or 1; p_ji | `self_weight`, in a range of the settings; `part` is p_ji x_i |
| line 7 (Algorithm 3, lines 2 and 3): send and sum | `record_push`, `Mass`, `take_masses`, which returns z_i, y_i |
| N_i^out(t), N_i^in(t) | `out`, `heard`, of the `graph` of the round |
| line 8 (4): w_i = z_i/y_i | `w` |
| line 9 (5): x_i ← z_i − η ∇l_i(w_i) | `apply_step`, in the next round: the caller has taken the step |
"""

from fractions import Fraction

import msgspec
import numpy as np

from tacit.core.average import Average
from tacit.core.entropy import Entropy
from tacit.core.errors import WireError
from tacit.core.link import Link
from tacit.core.protocol import Protocol
from tacit.core.suite import Ring, Suite, Update, Vector
from tacit.protocols.pushsum.masses import (
    Mass,
    MassState,
    mask_push,
    pack_elements,
    record_push,
    take_masses,
    unpack_elements,
)
from tacit.protocols.pushsum.proposals import SECTION_3_3, propose
from tacit.protocols.pushsum.settings import SELF_WEIGHT, START_WEIGHT, PushSumSettings, PushSumTerms


async def client(link: Link, update: Update, terms: PushSumTerms, suite: Suite, state: MassState) -> Average:
    """Client i at round t of Algorithm 3 (PSGD), or of Algorithm 4 (PPSGD) with `private`."""
    i, ring = link.place, suite.ring
    graph = terms.graphs[(link.round - 1) % len(terms.graphs)]
    out = link.parties.names_at(sorted(graph.successors(i)))
    heard = link.parties.names_at(sorted(graph.predecessors(i)))

    if state.x is None:
        x = start_mass(terms, update, suite)
    else:
        x = apply_step(ring, unpack_elements(ring, state.x), update, terms.settings.relative_weight(update))
    # Masked sums need everybody's push: if all in-neighbours of a client but one kept theirs, it would see that one's.
    pushes = state.fed or terms.settings.masked
    p_ii = self_weight(terms, suite.entropy, len(out)) if pushes else Fraction(1)
    part = ring.within(ring.portion(x, (1 - p_ii) / max(1, len(out))))
    for _ in out:
        x -= part
    fed = state.fed and not heard  # until something is taken in below
    state = await link.save(
        record_push(ring, msgspec.structs.replace(state, x=pack_elements(ring, x), fed=fed), out, part)
    )
    del part  # it is as long as the model, and nobody needs it any more
    for party in out:
        mass = state.sent_to(party)
        if terms.settings.masked:
            mass = pack_elements(ring, mask_push(link, suite, graph, party, unpack_elements(ring, mass)))
        await link.send(party, Mass(mass))
        del mass  # It is the courier's now, and gone once it has arrived.

    x, state, contributors = take_masses(
        link, terms, suite, state, x, heard, await link.gather(Mass, heard, at_least=0)
    )
    w = ring.ratio(x)  # Before anything is kept: masses that add up to nothing are not taken, and may come right later.
    await link.save(state)
    return Average(w, contributors)


def start_mass(terms: PushSumTerms, update: Update, suite: Suite) -> Vector:
    """Returns x_i(0) = w_i(0) and y_i(0), both times the weight."""
    settings = terms.settings
    y = suite.entropy.secret_number(START_WEIGHT, settings.y0.draw) if settings.private else 1.0
    weight = settings.relative_weight(update)
    x = suite.ring.encode_with_noise(suite.ring.apply_weight(update.vector, weight))
    return np.append(x, suite.ring.values(np.array([y * weight])))


def self_weight(terms: PushSumTerms, entropy: Entropy, out: int) -> Fraction:
    """Returns p_ii: 1 with nobody to send to, random in [β, α] with `private`, else as much as each receiver gets."""
    if not out:
        return Fraction(1)
    if not terms.settings.private:
        return Fraction(1, out + 1)
    low, high = terms.settings.self_weight
    return Fraction(low + (high - low) * entropy.secret_factor(SELF_WEIGHT))


def apply_step(ring: Ring, x: Vector, update: Update, weight: float) -> Vector:
    """Returns x_i after what the caller did to the model since the last round, times the weight; y_i is as it was."""
    try:
        stepped = ring.step(x, update.vector, weight)
    except WireError:  # y_i(0) was rounded to nothing and nothing was taken in yet: there is no model to step from.
        stepped = ring.zeros(len(x))
    stepped += x
    return ring.within(stepped)


PUSHSUM = Protocol(
    name="pushsum",
    summary="push-sum on directed graphs, where no mass is ever lost",
    settings=PushSumSettings,
    messages=(Mass,),
    party=client,
    state=MassState,
    claims=(SECTION_3_3,),
    propose=propose,
    example_options={"masked": True},
)
