"""Averaging by ADMM, without a server, in groups where no pair meets again before the gap ends (paper 000, SecureD-FL).

In iteration i, with the groups of partition i mod |Π|:

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | peer k | `GroupPart`: y_k = x_k + λ_k/ρ_i | the other peers of its group g |
| 2 | one peer of g | `GroupSum`: z_g = 1/n Σ_{u∈g} y_u | each peer of the other groups |

Every peer then has z = Σ_g z_g and updates its λ_k. After the first iteration, the error of z is 2 λ̄⁰/(ρ_1 (ρ_1 + 2))
− w̄ ρ_1/(ρ_1 + 2), and all λ add up to zero. Each later iteration multiplies the error by ρ_i/(ρ_i + 2).

**Who learns what.** A peer learns y_k of each peer in its group, and every group sum. Two y of one peer, or one y and
enough sums, determine its vector. So Theorem III.2 does not hold, and more iterations than the pattern protects are
refused. With `masked=True` the y of a group are masked pairwise, and only their sum is revealed.

**Faults.** None are tolerated: all peers take part in every iteration, and if one drops out the others abort.

**Deviations.** Numbers are sent as ring elements (`bits` per entry). The vector has its weight as a last entry, so the
result is the weighted average. Each peer of another group receives one copy of z_g; its place in its group determines
the peer of g that sends it. ρ may differ between iterations, as in the authors' code. The paper has one ρ, with which
two iterations are not enough. λ is stored unscaled, and not as λ/ρ, so the updates are those of the paper with ρ_i for
ρ.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 000, Algorithm 3: SecureAggregation(k, w_k) | `peer` |
| w_k; n; I; ρ | `w`, with the weight as its last entry; `n`; `AdmmTerms.iterations`; `rho`, one for each iteration |
| initialize λ_k⁰; z⁰ = 0 | `lambda_`, uniform in `AdmmSettings.lambda0`; `z` |
| π: the (i mod \\|Π\\|)-th partition in Π; g: the group of k | `partition`, of `AdmmTerms.pattern`; `g` |
| x_k^i, "x minimization", (4) | `x` |
| y_k^i, sent to the other peers in g | `y`, divided by n already; `group_sum` sends it as `GroupPart` |
| z_g^i, sent to the other groups | `z_g`, what `group_sum` returns; `other_sums` sends it as `GroupSum` |
| z^i = Σ_h z_h^i, (5) | `total` in the ring, `z` as floats |
| λ_k^i, (6) | `lambda_`, in the last line of the loop |
| return z^I | `Average`, of `total` |
| Algorithm 2: Randomized-KirkmanTriple; t_g | `groups`, which constructs patterns by design theory; `pattern.gap` |
| Update(k, w) | what the caller does between rounds |
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tacit.core.average import Average
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, State
from tacit.core.suite import Party, Ring, Suite, Update, Vector
from tacit.protocols.admm.proposals import CLAIMS, propose
from tacit.protocols.admm.settings import AdmmSettings, AdmmTerms
from tacit.protocols.shapes.pairs import mask_among

MASK = "tacit/admm/v1/mask"
CURE = "run it again when all are back, leave the missing out of the federation, or use secagg, which has a server"
"""Remedy where a party is missing."""
RULE = "admm needs every party"


async def peer(link: Link, update: Update, terms: AdmmTerms, suite: Suite, state: State) -> Average:
    """Coroutine of peer k: the function SecureAggregation of Algorithm 3."""
    del state
    link.cure, link.rule, settings = CURE, RULE, terms.settings
    k, n, ring = link.place, len(link.parties), suite.ring
    weight = settings.relative_weight(update)
    vector = ring.add_noise(ring.clip_vector(update.vector, settings.clip))
    w = np.append(ring.apply_weight(vector, weight), weight) if settings.weighted else vector
    low, high = settings.lambda0
    lambda_ = suite.entropy.secret_vector("lambda0", len(w)) * (high - low) + low
    z = ring.floats(ring.zeros(len(w)))
    total = ring.zeros(len(w))
    for i, (rho, stretch) in enumerate(zip(terms.rhos, terms.stretches, strict=True), start=1):
        partition = terms.pattern.partitions[(i - 1) % terms.pattern.gap]
        g = next(group for group in partition if k in group)
        x = (w * 2.0 - lambda_ + z * rho) * (1.0 / (2.0 + rho))
        y = ring.values((x + lambda_ * (1.0 / rho)) * stretch, Fraction(1, n))
        z_g = await group_sum(link, suite, terms, g, i, y)
        total = z_g + await other_sums(link, suite, partition, g, i, z_g)
        z = ring.floats(total) * (1.0 / stretch)
        lambda_ = lambda_ + (x - z) * rho
    return Average(ring.ratio(total) if settings.weighted else z, link.parties)


async def group_sum(link: Link, suite: Suite, terms: AdmmTerms, g: tuple[int, ...], i: int, y: Vector) -> Vector:
    """Sends this peer's y to its group, and returns the sum of all y in the group."""
    others = [link.parties[u] for u in g if link.parties[u] != link.me]
    if terms.settings.masked:
        mask_among(link, suite, y, others, MASK, link.statement("admm mask", b"%d" % i))
    for party in others:
        await link.send(party, GroupPart(memoryview(suite.ring.pack(y))), step=i)
    received = await link.gather(GroupPart, others, step=i)
    return sum(unpack_all(suite.ring, received, len(y)), y)


async def other_sums(
    link: Link, suite: Suite, partition: Sequence[tuple[int, ...]], g: tuple[int, ...], i: int, z_g: Vector
) -> Vector:
    """Sends the group's sum to the peers that this peer is responsible for, and returns the sum of all other groups."""
    k = link.place
    senders = []
    for h in partition:
        if h == g:
            continue
        senders.append(link.parties[h[g.index(k) % len(h)]])
        for place, u in enumerate(h):
            if g[place % len(g)] == k:
                await link.send(link.parties[u], GroupSum(memoryview(suite.ring.pack(z_g))), step=i)
    received = await link.gather(GroupSum, senders, step=i, patience=2)
    return sum(unpack_all(suite.ring, received, len(z_g)), suite.ring.zeros(len(z_g)))


# --- messages --------------------------------------------------------------------------------------------------------


class GroupPart(Message, frozen=True, tag="GroupPart"):
    """y_k of one iteration, masked or not."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class GroupSum(Message, frozen=True, tag="GroupSum"):
    """z_g, the contribution of one group to the consensus variable z."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


def unpack_all(ring: Ring, received: Mapping[Party, GroupPart | GroupSum], length: int) -> Iterator[Vector]:
    """Yields the received vectors; raises PeerFault at the first invalid one, because all of them are needed."""
    for party, message in received.items():
        try:
            yield ring.unpack(message.vector, length)
        except WireError as error:
            raise PeerFault(party, Drop.MALFORMED, str(error)) from None


ADMM = Protocol(
    name="admm",
    summary="averaging by ADMM in groups that never meet twice within a gap",
    settings=AdmmSettings,
    messages=(GroupPart, GroupSum),
    party=peer,
    claims=CLAIMS,
    needs_everybody=True,
    common_result=True,
    propose=propose,
    example_options={"masked": True, "group_size": "all"},
)
