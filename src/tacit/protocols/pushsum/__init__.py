"""Push-sum on directed graphs, plain and with private weights, without a server (paper 001, PSGD and PPSGD).

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | client i | `Mass`: p_ji x_i and p_ji y_i, plus all it sent on this link before | each receiver j of this round |

Client i then has z_i = Σ p_ij x_j and y_i = Σ p_ij y_j, and its model is w_i = z_i / y_i. The caller's change of the
model before the next round is the gradient step: x_i ← z_i + (vector − w_i).

**Who learns what.** A receiver learns what each sender pushes to it. With `private=True` that is the sender's vector up
to one factor, and all of it for a receiver who knows one entry (`tacit attack receiver`). So audits treat y_i(0) and
p_ii as public, and refuse. An eavesdropper on every link could solve for the local optima, whatever y_i(0) and p_ii
are; sealed links prevent that. With `masked=True` the in-neighbours of a client mask pairwise, and it learns only their
sum.

**Faults.** No mass is ever lost. A message carries everything sent over a link so far, and the receiver takes the
difference from what it took before. So a lost amount arrives with the next message. A client that crashes continues
from its saved state. With `masked=True` a client that lacks an in-neighbour's message waits for the next round. Masses
that would take x or y out of range are taken later, and a wrong mass is corrected by the next message.

**Deviations.** Numbers are integers in the ring. A client keeps exactly what it does not send, so total mass is
conserved exactly. Parts are rounded towards zero, so some of y_i always remains. A client that took nothing in, the
last time it had in-neighbours, keeps its mass (p_ii = 1); otherwise y_i would drain into messages that nobody takes.
This rule does not apply with `masked=True`, where sums would then reveal the pushes of the others. A weight multiplies
both x_i(0) and y_i(0). With `private=True` the models agree on Σ x_i / Σ y_i, as in the paper, and not on the average
of the initial vectors.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 001, Algorithm 3 (PSGD), Algorithm 4 (PPSGD) | `client`; with `private` it is Algorithm 4 |
| x_i and y_i | `x`, with y_i as its last entry |
| Algorithm 4, line 1: y_i(0); x_i(0) = w_i(0) | `start_mass`; the distribution is `PushSumSettings.y0` |
| lines 3 to 6: p_ii in [β, α], or 1; p_ji | `self_weight`, in a range of the settings; `part` is p_ji x_i |
| line 7 (Algorithm 3, lines 2 and 3): send and sum | `record_push`, `Mass`, `take_masses`, which computes z_i and y_i |
| N_i^out(t), N_i^in(t) | `out`, `heard`, from the `graph` of the round |
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
    """Coroutine of client i in round t of Algorithm 3 (PSGD) or, with `private`, of Algorithm 4 (PPSGD)."""
    i, ring = link.place, suite.ring
    graph = terms.graphs[(link.round - 1) % len(terms.graphs)]
    out = link.parties.names_at(sorted(graph.successors(i)))
    heard = link.parties.names_at(sorted(graph.predecessors(i)))

    if state.x is None:
        x = start_mass(terms, update, suite)
    else:
        x = apply_step(ring, unpack_elements(ring, state.x), update, terms.settings.relative_weight(update))
    # Masked sums need all pushes: if all in-neighbours but one kept their mass, the sum would be that one's push.
    pushes = state.fed or terms.settings.masked
    p_ii = self_weight(terms, suite.entropy, len(out)) if pushes else Fraction(1)
    part = ring.within(ring.portion(x, (1 - p_ii) / max(1, len(out))))
    for _ in out:
        x -= part
    fed = state.fed and not heard  # set again below if something is taken in
    state = await link.save(
        record_push(ring, msgspec.structs.replace(state, x=pack_elements(ring, x), fed=fed), out, part)
    )
    del part  # as long as the model, and no longer needed
    for party in out:
        mass = state.sent_to(party)
        if terms.settings.masked:
            mass = pack_elements(ring, mask_push(link, suite, graph, party, unpack_elements(ring, mass)))
        await link.send(party, Mass(mass))
        del mass  # so that it is freed once the message is delivered

    x, state, contributors = take_masses(
        link, terms, suite, state, x, heard, await link.gather(Mass, heard, at_least=0)
    )
    w = ring.ratio(x)  # Before saving: if the masses add up to nothing, they are not taken now, and may be later.
    await link.save(state)
    return Average(w, contributors)


def start_mass(terms: PushSumTerms, update: Update, suite: Suite) -> Vector:
    """Returns x_i(0) = w_i(0) and y_i(0), both multiplied by the weight."""
    settings = terms.settings
    y = suite.entropy.secret_number(START_WEIGHT, settings.y0.draw) if settings.private else 1.0
    weight = settings.relative_weight(update)
    x = suite.ring.encode_with_noise(suite.ring.apply_weight(update.vector, weight))
    return np.append(x, suite.ring.values(np.array([y * weight])))


def self_weight(terms: PushSumTerms, entropy: Entropy, out: int) -> Fraction:
    """Returns p_ii: 1 without receivers, random in [β, α] with `private`, else equal to each receiver's part."""
    if not out:
        return Fraction(1)
    if not terms.settings.private:
        return Fraction(1, out + 1)
    low, high = terms.settings.self_weight
    return Fraction(low + (high - low) * entropy.secret_factor(SELF_WEIGHT))


def apply_step(ring: Ring, x: Vector, update: Update, weight: float) -> Vector:
    """Returns x_i plus the caller's change of the model since the last round, times the weight; y_i is unchanged."""
    try:
        stepped = ring.step(x, update.vector, weight)
    except WireError:  # y_i(0) was rounded to zero and nothing was taken in yet, so there is no model to step from
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
