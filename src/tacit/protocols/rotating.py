"""Averaging in small groups that change every round, without a server: masked sums, and designs of paper 000.

A public partition divides the parties into groups (`RotatingTerms.groups`). One member of each group, its collector,
sums the group's vectors. In the group g of a round:

| step | who | sends | to |
| --- | --- | --- | --- |
| part | each member but the collector | `MemberPart`: its vector, with pairwise masks and a self mask | the collector |
| list | the collector | `MemberList`: the members whose parts arrived | these members |
| redo, if one is missing | a listed member | `MemberPart` for the listed members, with new masks | the collector |
| release | a listed member | `SelfMaskSeed`: the seed of the self mask of its last part | the collector |
| total | the collector | `GroupTotal`: the sum | the members |

All members adopt the average. With `stages=2` the collectors do not announce their sums. They sum them in the same way
among themselves, and every party adopts the average of all.

**Who learns what.** A member learns the sum of its group, and nothing else. With `stages=2` the collectors learn their
group's sum, and the other parties only the total. A sum has at least `minimum` members. No pair is in one group twice
before the pattern ends; then the parties are relabelled at random, which is public. Over rounds, sums of overlapping
groups add up: vectors that do not change between rounds are exposed after some rounds.

**Faults.** If members drop out, the remaining ones go on without them, if they are at least `minimum`. A group gives up
its sum if they are fewer, if somebody drops out later, or if the collector does. Its members then keep their own
vectors. No party aborts, and each releases one self mask at most, so that a late part stays masked.

**Deviations.** This is no paper's protocol. The groups are those of paper 000, whose ADMM is replaced by plain sums.
The masks with a redo are those of paper 004, with the group's collector in the place of a receiver.

**From the ideas to the code.**

| idea | here |
| --- | --- |
| Π, its gap, and the relabelling after it | `RotatingTerms.pattern`, `relabel` |
| g, the group of party i in round t; its collector | `groups`, `group_of`; `collector` |
| x_i, with its weight, in the ring; the entries of this round | `part`; `chosen` |
| m_ij = −m_ji; b_i | `mask_among`; `self_mask` |
| Σ_{i∈g} x_i | `MaskedSum.collect` at the collector, `MaskedSum.contribute` at the others |
| the total of all groups | `heads`, a `MaskedSum` of stage 2 |
| x_i ← the average, or x_i | `adopt` |
"""

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np

from tacit.core.average import Average
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, Settings, State, Terms
from tacit.core.protocol_facts import (
    MOST_PHASES,
    ArgumentCode,
    CoalitionQuery,
    ExchangePattern,
    PrivacyArgument,
    ProposedSettings,
    ReasonCode,
    Remedy,
)
from tacit.core.suite import ONLOOKER, Parties, Party, Secret, Suite, Update, Vector
from tacit.designs.groups import Group, Groups, groups
from tacit.protocols.shapes.neighbourhood import sample_entries, unpack_mask
from tacit.protocols.shapes.pairs import mask_among
from tacit.protocols.shapes.proofs import LEFT, count_bits
from tacit.vectors import sparsify
from tacit.vectors.index_sets import Mask

MASK = "tacit/rotating/v1/mask"
ATTEMPTS = 2
"""Most attempts to sum a group: the first, and another one without the members whose parts are missing."""
HIDING = 3
"""The fewest members of a sum by default: one that is curious, and two that hide each other."""
WAITS = (1, 4)
"""Phases that a collector waits for parts, by stage. In the second, other groups may still redo their sums."""
LAST_WAITS = (3, 16)
"""Phases that a member waits for the total, by the number of stages."""


class GroupSum(NamedTuple):
    """A sum, and the contributors to it. The part of one member is such a sum too."""

    vector: Vector
    members: tuple[int, ...]


async def member(link: Link, update: Update, terms: "RotatingTerms", suite: Suite, state: State) -> Average:
    """Coroutine of a party i in round t."""
    del state
    i, t = link.place, link.round
    chosen = terms.choose_entries(suite, len(update.vector), t)
    part = suite.ring.encode(update)
    part = part if chosen is None else part[chosen]
    g = MaskedSum(link, suite, terms, 1, terms.group_of(t, i), len(part))
    total = await g.compute(GroupSum(part, (i,)))
    if terms.settings.stages == 2 and i == g.collector:
        heads = MaskedSum(link, suite, terms, 2, terms.collectors(t), len(part))
        total = await heads.announce(await heads.compute(total))
    return adopt(link, suite, terms, update, await g.announce(total), chosen)


@dataclass(frozen=True)
class MaskedSum:
    """One masked sum in a round: of the vectors in a group, or of the sums of all groups."""

    link: Link
    suite: Suite
    terms: "RotatingTerms"
    stage: int
    group: Group
    length: int
    """Number of ring elements of a part."""

    @property
    def collector(self) -> int:
        """The member that sums."""
        return self.terms.collector(self.link.round, self.group)

    async def compute(self, own: GroupSum | None) -> GroupSum | None:
        """Returns the sum at the collector; None at the others, and if the group gives up."""
        if self.link.place == self.collector:
            return await self.collect(own) if len(self.group) > 1 else own
        if own is not None:
            await self.contribute(own)
        return None

    async def contribute(self, own: GroupSum) -> None:
        """Sends a masked part to the collector, another one if members are missing, and the seed of one self mask."""
        to, listed = self.link.parties[self.collector], self.group
        for step in self.steps:
            masked, self_mask = own.vector.copy(), self.suite.seed()
            self.mask_pairwise(masked, listed, step)
            self.suite.mask(masked, [self_mask])
            await self.link.send(to, MemberPart(own.members, memoryview(self.suite.ring.pack(masked))), step=step)
            answers = await self.link.gather(MemberList, [to], 0, step=step, patience=2 * self.patience)
            present = answers[to].members if to in answers else ()
            if present == listed:
                await self.link.send(to, SelfMaskSeed(self_mask.reveal()), step=step)
                return  # A second seed is never sent, so no other sum with this part can be unmasked.
            if self.link.place not in present or not self.may_sum(present, listed):
                return
            listed = present

    async def collect(self, own: GroupSum | None) -> GroupSum | None:
        """Gathers masked parts and the seeds of their self masks. Returns the sum; None if the group gives up."""
        i, link, listed = self.link.place, self.link, self.group
        for step in self.steps:
            others = link.parties.names_at(j for j in listed if j != i)
            parts = self.read_parts(await link.gather(MemberPart, others, 0, step=step, patience=self.patience))
            senders = link.parties.names_at(parts)
            if own is not None:
                parts[i] = GroupSum(own.vector.copy(), own.members)
                self.mask_pairwise(parts[i].vector, listed, step)
            present = tuple(sorted(parts))
            if not self.may_sum(present, listed):
                present = ()
            for party in senders:
                await link.send(party, MemberList(present), step=step)
            if present == listed:
                return await self.unmask(parts, senders, step)
            if not present:
                return None
            listed = present
        return None

    async def unmask(self, parts: dict[int, GroupSum], senders: Collection[Party], step: int) -> GroupSum | None:
        """Returns the sum of the parts without self masks; None if the seed of one is missing."""
        released = await self.link.gather(SelfMaskSeed, senders, 0, step=step)
        if len(released) < len(senders):
            return None
        members = tuple(sorted(j for part in parts.values() for j in part.members))
        total = sum((part.vector for part in parts.values()), self.suite.ring.zeros(self.length))
        self.suite.mask(total, minus=[Secret(message.seed) for message in released.values()])
        return GroupSum(total, members)

    async def announce(self, total: GroupSum | None) -> GroupSum | None:
        """Sends the total to the group, if this party is the collector. Otherwise waits for it and returns it."""
        link, names = self.link, self.link.parties
        if link.place == self.collector:
            said = GroupTotal((), memoryview(b""))
            if total is not None:
                said = GroupTotal(total.members, memoryview(self.suite.ring.pack(total.vector)))
            for j in self.group:
                if j != link.place:
                    await link.send(names[j], said, step=self.stage)
            return total
        to, wait = names[self.collector], LAST_WAITS[self.terms.settings.stages - 1]
        heard = (await link.gather(GroupTotal, [to], 0, step=self.stage, patience=wait)).get(to)
        if heard is None or not heard.members:
            return None
        try:
            return self.read(heard, self.terms.summed_in(link.round, self.group))
        except WireError:
            link.exclude(to, Drop.MALFORMED)
            return None

    # --- masks, and messages of others --------------------------------------------------------------------------------

    @property
    def steps(self) -> range:
        """The steps of the attempts."""
        return range((self.stage - 1) * ATTEMPTS + 1, self.stage * ATTEMPTS + 1)

    @property
    def patience(self) -> int:
        """Phases that the collector waits for parts."""
        return WAITS[self.stage - 1]

    def may_sum(self, present: tuple[int, ...], listed: tuple[int, ...]) -> bool:
        """Returns whether some of the listed members may be summed: as many as hide each other, in the listed order."""
        fewest = self.terms.minimum if self.stage == 1 else LEFT
        return len(present) >= fewest and present == tuple(j for j in listed if j in present)

    def mask_pairwise(self, vector: Vector, listed: tuple[int, ...], step: int) -> None:
        """Adds this party's pairwise masks for a sum over the listed members, in place."""
        others = [self.link.parties[j] for j in listed if j != self.link.place]
        context = self.link.statement("rotating mask", b"%d" % step, b",".join(b"%d" % j for j in listed))
        mask_among(self.link, self.suite, vector, others, MASK, context)

    def read_parts(self, received: Mapping[Party, "MemberPart"]) -> dict[int, GroupSum]:
        """Returns the received parts by index. The sender of an invalid one is excluded."""
        parts: dict[int, GroupSum] = {}
        for party, message in received.items():
            j = self.link.parties.place(party)
            try:
                parts[j] = self.read(message, self.terms.group_of(self.link.round, j) if self.stage == 2 else (j,))
            except WireError:
                self.link.exclude(party, Drop.MALFORMED)
        return parts

    def read(self, message: "MemberPart | GroupTotal", allowed: Collection[int]) -> GroupSum:
        """Returns a received sum; raises WireError unless its contributors are some of those allowed, in order."""
        if not message.members or message.members != tuple(sorted(set(message.members).intersection(allowed))):
            raise WireError(f"{message.kind()} names contributors that cannot be in it")
        return GroupSum(self.suite.ring.unpack(message.vector, self.length), message.members)


def adopt(
    link: Link, suite: Suite, terms: "RotatingTerms", update: Update, total: GroupSum | None, chosen: Mask | None
) -> Average:
    """Returns the average of a total, or the party's own vector if there is none, or not with its part in it."""
    ring, entries = suite.ring, len(update.vector)
    own = ring.mix(update.vector, ring.zeros(entries), {})
    if total is None or (terms.settings.stages == 1 and link.place not in total.members):
        return Average(own, (link.me,))
    summed = total.vector
    if chosen is not None:
        summed = ring.zeros()
        summed[chosen] = total.vector
    try:
        mean = ring.mean(summed)
    except WireError:  # Masks are left, so some part was of another sum.
        return Average(own, (link.me,))
    average = mean if chosen is None else np.where(chosen[:entries], mean, own)
    return Average(average, link.parties.names_at(total.members))


# --- messages --------------------------------------------------------------------------------------------------------


class MemberPart(Message, frozen=True, tag="MemberPart"):
    """A masked part of a sum, and the contributors to the part: its sender or, in the second stage, their group."""

    members: tuple[int, ...]
    vector: memoryview
    per_party: ClassVar[int] = 9
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class MemberList(Message, frozen=True, tag="MemberList"):
    """The members whose parts arrived. If it is complete, they release their self masks; if empty, there is no sum."""

    members: tuple[int, ...]
    per_party: ClassVar[int] = 9


class SelfMaskSeed(Message, frozen=True, tag="SelfMaskSeed"):
    """The seed of the self mask of the sender's part in one attempt."""

    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class GroupTotal(Message, frozen=True, tag="GroupTotal"):
    """A sum and its contributors; none if the group gave up."""

    members: tuple[int, ...]
    vector: memoryview
    per_party: ClassVar[int] = 9
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


# --- settings --------------------------------------------------------------------------------------------------------


class RotatingSettings(Settings, frozen=True, kw_only=True):
    """Settings of `rotating`."""

    group_size: int | Literal["all"] | None = None
    """Number of members of a group, or slightly more; "all" for a single group. Unless set, it is the square root of
    the number of parties, rounded down, and at least 3. In larger groups pairs meet again sooner."""
    minimum: int | None = None
    """The fewest members of a sum. If fewer are left, the group gives up its sum. Unless set, it is 3."""
    stages: Literal[1, 2] = 1
    """1 if members adopt their group's average; 2 if groups sum their sums, and all parties adopt the total."""
    share: float = 1.0
    """Fraction α of the entries that a round averages. They are sampled anew in each round, alike for all parties."""

    def problems(self, parties: Parties) -> list[str]:
        """Returns the problems of these settings for these parties that need no further computation to find."""
        n, problems = len(parties), super().problems(parties)
        problems += sparsify.problems(self.share, "random")
        if isinstance(self.group_size, int) and not 2 <= self.group_size <= max(n, 2):
            problems.append(f"group_size={self.group_size} must be from 2 to the {n} parties")
        elif self.minimum is not None and not 2 <= self.minimum <= self.find_size(n):
            problems.append(
                f"minimum={self.minimum} must be from 2 to the {self.find_size(n)} members of a group; try: "
                f"use a larger group_size, or a smaller minimum"
            )
        return problems

    def find_size(self, parties: int) -> int:
        """Returns the size of a group of so many parties."""
        if self.group_size == "all":
            return parties
        return self.group_size or min(max(HIDING, math.isqrt(parties)), parties)

    def bind(self, parties: Parties) -> "RotatingTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        if problems := self.problems(parties):
            raise ConfigError(problems)
        size = self.find_size(len(parties))
        return RotatingTerms(self, parties, groups(len(parties), size), self.minimum or min(HIDING, size))

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns the fewest members of a sum, if dropouts make sums too small; otherwise the size of a group."""
        return Remedy("minimum" if dropouts else "group_size")


@dataclass(frozen=True)
class RotatingTerms(Terms):
    """What the settings of `rotating` mean for one roster."""

    settings: RotatingSettings
    pattern: Groups
    """Π, the partitions in which no pair is in one group twice."""
    minimum: int
    """The fewest members of a sum."""

    # --- groups ------------------------------------------------------------------------------------------------------

    def groups(self, t: int) -> tuple[Group, ...]:
        """Returns the groups of round t."""
        return draw_partition(self.pattern.n, self.pattern.size, t)

    def group_of(self, t: int, i: int) -> Group:
        """Returns the group of party i in round t."""
        return next(g for g in self.groups(t) if i in g)

    def collector(self, t: int, g: Group) -> int:
        """Returns the member of a group that sums in round t."""
        return g[t % len(g)]

    def collectors(self, t: int) -> Group:
        """Returns the collectors of all groups of round t: the group of the second stage."""
        return tuple(sorted(self.collector(t, g) for g in self.groups(t)))

    def summed_in(self, t: int, g: Group) -> Collection[int]:
        """Returns the parties that may be in the total that a group announces."""
        del t
        return g if self.settings.stages == 1 else range(self.pattern.n)

    def choose_entries(self, suite: Suite, entries: int, t: int) -> Mask | None:
        """Returns the ring elements that round t sums: the chosen entries and those of the weight; None for all."""
        if not self.selective:
            return None
        seed = hashlib.sha256(b"tacit/rotating/v1/entries %d" % t).digest()
        bits = sample_entries(suite.words, "random", seed, entries, self.settings.share)
        return np.append(unpack_mask(bits, entries), [True, True])

    # --- facts for audits, plans and pictures ------------------------------------------------------------------------

    @property
    def summands(self) -> int:
        """The most vectors in one sum."""
        return self.pattern.n if self.settings.stages == 2 else max(map(len, self.pattern.partitions[0]))

    @property
    def selective(self) -> bool:
        """Whether a round averages only some of the entries."""
        return self.settings.share < 1.0

    @property
    def covering(self) -> "RotatingTerms":
        """The terms with all entries. In each round an entry is summed as with `share=1`, or not at all."""
        return replace(self, settings=msgspec.structs.replace(self.settings, share=1.0)) if self.selective else self

    @property
    def work(self) -> int:
        """Number of pairwise masks of a step."""
        return sum(len(g) ** 2 for g in self.pattern.partitions[0])

    @property
    def rounds_alike(self) -> bool:
        """Whether all rounds have the same groups: if there is only one."""
        return len(self.pattern.partitions[0]) == 1

    @property
    def period(self) -> int:
        """The gap: after so many rounds pairs meet again."""
        return self.pattern.gap

    def leaks(self) -> list[str]:
        """Returns the reason why a member would learn a single vector."""
        if self.minimum >= HIDING:
            return []
        return [
            f"a sum of {self.minimum} members shows each of them the other's vector; try: use minimum={HIDING} and "
            f"group_size={HIDING} or more"
        ]

    def fewest_contributors(self, coalition: Collection[Party]) -> int:
        """Returns the fewest contributors to a sum outside a coalition. All its members may be in one group."""
        return 1 if ONLOOKER in coalition else max(1, self.minimum - len(coalition))

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns the parties to take offline so that one other is left in a group: the first such group."""
        for t in range(1, self.period + 1):
            for g in self.groups(t):
                inside = [j for j in g if self.parties[j] in coalition]
                outside = [j for j in g if j not in inside]
                # The collector has to stay.
                outside.sort(key=self.collector(t, g).__ne__)
                away = outside[max(self.minimum - len(inside), others, 1) :]
                if inside and away and self.minimum - len(inside) < max(others, LEFT):
                    return self.parties.names_at(sorted(away)), ()
        return None  # Every sum has two others in it.

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields the argument that no vector is in two sums: if it is new in each round, or if no pair meets again."""
        left = self.minimum - query.size
        apart = query.size == 1 and query.rounds <= self.pattern.gap and self.settings.stages == 1
        if (query.fresh or apart) and left >= LEFT:
            yield PrivacyArgument(
                ArgumentCode.DISJOINT_GROUPS, bits=count_bits(left), dropouts=True, facts={"others": left}
            )

    def exchange(self) -> ExchangePattern:
        """Returns the groups of each round, for pictures."""
        return ExchangePattern("groups", tuple(self.groups(t) for t in range(1, min(self.period, MOST_PHASES) + 1)))

    def steps(self, kind: type[Message]) -> range:
        """Returns the attempts of all stages, or the stages."""
        stages = self.settings.stages
        return range(1, stages + 1) if kind is GroupTotal else range(1, stages * ATTEMPTS + 1)


@lru_cache(maxsize=256)
def draw_partition(n: int, size: int, t: int) -> tuple[Group, ...]:
    """Returns the groups of round t. After the pattern's last partition, its users get other numbers at random."""
    pattern = groups(n, size)
    epoch, place = divmod(t - 1, pattern.gap)
    order = relabel(n, size, epoch)
    return tuple(sorted(tuple(sorted(order[user] for user in g)) for g in pattern.partitions[place]))


@lru_cache(maxsize=64)
def relabel(n: int, size: int, epoch: int) -> tuple[int, ...]:
    """Returns the party of each user of the pattern. It is public, and the same on every machine."""
    if epoch == 0:
        return tuple(range(n))
    words = np.frombuffer(SeededEntropy("tacit/rotating/v1/labels", n, size, epoch).bytes(8 * n), dtype="<u8")
    return tuple(np.argsort(words, kind="stable").tolist())


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields groups in which any `colluding` members leave two others, whoever drops out."""
    fewest = colluding + LEFT
    size = max(fewest, math.isqrt(parties))
    if size <= parties:
        yield ProposedSettings({"group_size": size, "minimum": fewest}, ReasonCode.ROTATING, {"size": size})


ROTATING = Protocol(
    name="rotating",
    summary="masked averages of small groups that change every round, without a server",
    settings=RotatingSettings,
    messages=(MemberPart, MemberList, SelfMaskSeed, GroupTotal),
    party=member,
    propose=propose,
    attacks=("rotation",),
)
