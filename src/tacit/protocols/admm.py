"""Averaging by ADMM in groups that never meet twice within a gap, without a server (paper 000, SecureD-FL).

In iteration i, with the groups of partition i mod |Π|:

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | peer k | `Share`: y_k = x_k + λ_k/ρ | the others of its group g |
| 2 | one peer of g | `GroupSum`: z_g = 1/n Σ_{u∈g} y_u | each peer of the other groups |

Every peer then has z = Σ_g z_g and updates its λ_k. After the last iteration z is the average, up to (ρ/(ρ+2))^(i−1)
of the error that the first iteration leaves.

**Who learns what.** A peer learns y_k of those it meets and every group sum. Two y of one peer, or one y and enough
sums, give its vector, so Theorem III.2 does not hold and more iterations than the pattern protects are refused.
With `masked=True` the y of a group are masked pairwise and only their sum can be read.

**Faults.** None are tolerated: all peers take part in every iteration, and if one is missing the others abort.

**Deviations.** Numbers travel in the ring (`bits` an entry). The vector carries its weight as one more entry, so that
the result is the weighted average. Of z_g each peer gets one copy, from the peer of g whose turn it is by its place in
the group.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Claim, Config, Protocol, State
from tacit.core.suite import Party, Suite, Update, Vector
from tacit.designs.groups import Groups, groups
from tacit.protocols.pairs import mask_among

MASK = "tacit/admm/v1/mask"
SAFE_ITERATIONS = 4
"""Up to here the audit found nobody exposed to a single peer, in patterns of 9 to 30 peers in threes."""


class Share(Message, frozen=True):
    """y_k of one iteration, masked or not."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class GroupSum(Message, frozen=True):
    """z_g, the part of one group in the consensus variable."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class AdmmConfig(Config, frozen=True, kw_only=True):
    """Settings of `admm`."""

    iterations: int | None = None
    """I; by default as many as the pattern protects and an audit found safe, if the ring can tell so many apart."""
    rho: float = 0.1
    """ρ, the penalty: the error shrinks by ρ/(ρ + 2) in each iteration."""
    group_size: int | None = 3
    """s; None for all-to-all communication."""
    masked: bool = False
    """Mask y pairwise inside the group, so that only the group's sum can be read."""
    lambda0: tuple[float, float] = (0.0, 1.0)
    """λ⁰ is uniform between these two."""
    pattern: Any = None
    """The partitions; filled in from `group_size`."""

    def partitions(self, parties: int) -> Groups:
        """Returns Π."""
        return groups(parties, parties if self.group_size is None else self.group_size)

    def protected(self, pattern: Groups) -> float:
        """Returns how many iterations the pattern protects: its gap, if anybody sees more than the sum of everybody."""
        alone = len(pattern.partitions[0]) == 1
        return math.inf if alone and self.masked else pattern.gap

    def unharmed(self, pattern: Groups) -> float:
        """Returns how many iterations to run by default: the sums of many groups leak long before the gap ends."""
        cautious = math.inf if len(pattern.partitions[0]) == 1 else SAFE_ITERATIONS
        return min(self.protected(pattern), cautious)

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties)
        if self.group_size is not None and not 2 <= self.group_size <= len(parties):
            problems.append(
                f"group_size={self.group_size} must be from 2 to the {len(parties)} parties, or None for all"
            )
        if self.iterations is not None and self.iterations < 1:
            problems.append(f"iterations={self.iterations} must be at least 1")
        if not (0 < self.rho < math.inf):
            problems.append(f"rho={self.rho} must be a positive number")
        if not self.lambda0[0] <= self.lambda0[1]:
            problems.append(f"lambda0={self.lambda0} must be a lower and an upper bound")
        return problems

    def leaks(self, parties: Sequence[Party]) -> list[str]:
        """Returns why the settings would show somebody's vector."""
        pattern = self.partitions(len(parties))
        if self.iterations is None and self.protected(pattern) < 2:
            return [
                f"with {len(parties)} parties this pattern protects a single iteration, which is no average yet; "
                f"use masked=True and group_size=None"
            ]
        if self.iterations is None or self.iterations <= self.protected(pattern):
            return []
        return [
            f"{self.iterations} iterations are more than the {pattern.gap} that this pattern protects: peers meet "
            f"again and can solve for each other's vectors; use fewer iterations or other groups"
        ]

    def bound(self, parties: Sequence[Party]) -> Self:
        """Returns the settings with the pattern and the number of iterations filled in."""
        pattern = self.partitions(len(parties))
        enough = math.ceil(self.bits * math.log(2) / math.log1p(2 / self.rho)) + 1
        iterations = self.iterations or int(max(2, min(enough, self.unharmed(pattern))))
        return msgspec.structs.replace(self, pattern=pattern, iterations=iterations)

    def notes(self, parties: Sequence[Party]) -> list[str]:
        """Returns how far from the average the result may be."""
        del parties
        rest = (self.rho / (self.rho + 2)) ** (self.iterations or 1)
        drawn = 2 * max(map(abs, self.lambda0)) / self.rho**2 * rest
        if max(rest, drawn) < 1e-2:
            return []
        return [
            f"after {self.iterations} iterations the average may be off by {drawn:.1g}, and by {rest:.1g} of itself"
        ]

    def span(self) -> float:
        """Returns a bound on y = x + λ/ρ: λ ends at 2 (w − z), within 4 times the clip of where it started."""
        return self.clip + (4 * self.clip + max(map(abs, self.lambda0))) / self.rho

    def summands(self, parties: int) -> int:
        """Returns 2: what is summed is y/n, so the sum is within the clip; twice that leaves room for rounding."""
        del parties
        return 2


async def peer(link: Link, update: Update, config: AdmmConfig, suite: Suite, state: State) -> Average:
    """Peer k: the function SecureAggregation of Algorithm 3."""
    del state
    k, n, ring, rho = link.parties.index(link.me), len(link.parties), suite.ring, config.rho
    weight = update.weight / config.max_weight if config.weighted else 1.0
    vector = ring.limited(update.vector, config.clip)
    w = np.append(ring.weighted(vector, weight), weight) if config.weighted else vector
    low, high = config.lambda0
    lambda_ = suite.entropy.uniform("lambda0", len(w)) * (high - low) + low
    z = ring.floats(ring.zeros(len(w)))
    total = ring.zeros(len(w))
    for i in range(1, (config.iterations or 0) + 1):
        partition = config.pattern.partitions[(i - 1) % config.pattern.gap]
        g = next(group for group in partition if k in group)
        x = (w * 2.0 - lambda_ + z * rho) * (1.0 / (2.0 + rho))
        y = ring.values(x + lambda_ * (1.0 / rho), 1.0 / n)
        z_g = await group_sum(link, suite, config, g, i, y)
        total = z_g + await other_sums(link, suite, partition, g, i, z_g)
        z = ring.floats(total)
        lambda_ = lambda_ + (x - z) * rho
    return Average(ring.ratio(total) if config.weighted else z, link.parties)


async def group_sum(link: Link, suite: Suite, config: AdmmConfig, g: tuple[int, ...], i: int, y: Vector) -> Vector:
    """Sends our y to the group and returns the sum of all y in it."""
    others = [link.parties[u] for u in g if link.parties[u] != link.me]
    if config.masked:
        mask_among(link, suite, y, others, MASK, link.statement("admm mask", b"%d" % i))
    for party in others:
        await link.send(party, Share(memoryview(suite.ring.pack(y))), step=i)
    received = await link.gather(Share, others, step=i)
    return sum((suite.ring.unpack(share.vector, len(y)) for share in received.values()), y)


async def other_sums(
    link: Link, suite: Suite, partition: Sequence[tuple[int, ...]], g: tuple[int, ...], i: int, z_g: Vector
) -> Vector:
    """Sends our group's sum to those it is our turn for, and returns the sum of the other groups' sums."""
    k = link.parties.index(link.me)
    senders = []
    for h in partition:
        if h == g:
            continue
        senders.append(link.parties[h[g.index(k) % len(h)]])
        for place, u in enumerate(h):
            if g[place % len(g)] == k:
                await link.send(link.parties[u], GroupSum(memoryview(suite.ring.pack(z_g))), step=i)
    received = await link.gather(GroupSum, senders, step=i, patience=2)
    return sum((suite.ring.unpack(each.vector, len(z_g)) for each in received.values()), suite.ring.zeros(len(z_g)))


ADMM = Protocol(
    name="admm",
    summary="averaging by ADMM in groups that never meet twice within a gap",
    config=AdmmConfig,
    messages=(Share, GroupSum),
    party=peer,
    claims=(
        Claim("000", "Lemma III.1", "all-to-all communication shows everybody's vector after two iterations"),
        Claim("000", "Theorem III.2", "with gap t_g, 2·t_g − 1 iterations show a curious peer nobody's vector"),
    ),
)
