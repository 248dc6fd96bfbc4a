"""Settings, messages and terms of `cesar`, which senders and receivers share."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from tacit.core.errors import ConfigError
from tacit.core.messages import Message
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument, Remedy
from tacit.core.suite import ONLOOKER, Parties, Party
from tacit.protocols.cesar.proposals import arguments_of
from tacit.protocols.shapes.neighbourhood import GraphSettings, GraphTerms

ATTEMPTS = 3
"""Most attempts of a receiver: the first, and a new one each time that a member did not deliver."""
MASK = "tacit/cesar/v1/mask"


class Selection(Message, frozen=True, tag="Selection"):
    """I_i: the seed from which it is sampled, the set itself, or nothing if all entries are selected."""

    indices: bytes
    per_entry: ClassVar[int] = 2
    metadata: ClassVar[tuple[str, ...]] = ("indices",)


class Turn(Message, frozen=True, tag="Turn"):
    """From receiver k: the members with their selections, or `complete` when all models are there to be released."""

    selections: dict[int, bytes]
    complete: bool = False
    per_party: ClassVar[int] = 64
    metadata: ClassVar[tuple[str, ...]] = ("selections",)

    @classmethod
    def limit(cls, parties: int, entries: int) -> int:
        """Returns the largest valid size, which allows a set of entries for each neighbour."""
        return super().limit(parties, entries) + parties * (entries // 4)


class Masked(Message, frozen=True, tag="Masked"):
    """w_{k←i}. It is useless without every other model of its set and every release."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Release(Message, frozen=True, tag="Release"):
    """The seed of the sender's self mask, for one attempt."""

    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class CesarSettings(GraphSettings, frozen=True, kw_only=True):
    """Settings of `cesar`."""

    masking: int = 1
    """The masking requirement s: the number of other nodes whose masks must cover an entry before it is sent."""

    def problems(self, parties: Parties) -> list[str]:
        """Returns the reasons why settings cannot work for these parties that can be told at a glance."""
        unmasked = [f"masking={self.masking} would send entries unmasked; try: use 1 or more"] * (self.masking < 1)
        return super().problems(parties) + unmasked

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns the masking requirement, if dropouts make sums too small."""
        return Remedy("masking") if dropouts else None

    def bind(self, parties: Parties) -> "CesarTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        graph = self.draw_graph(parties)
        degrees = dict(graph.degree)
        thin = [parties[i] for i in range(len(parties)) if degrees[i] < self.masking + 1]
        least = min(degrees.values())
        if thin:
            cure = f"use masking={least - 1} or less, or" if least >= 2 else "use"
            has, times = "has" if len(thin) == 1 else "have", "once" if self.masking == 1 else f"{self.masking} times"
            raise ConfigError(
                f"{', '.join(thin)} {has} fewer than {self.masking + 1} neighbours, so nothing received there could be "
                f"masked {times}; try: {cure} a graph in which everybody has at least {self.masking + 1}"
            )
        return CesarTerms(self, parties, graph)


@dataclass(frozen=True)
class CesarTerms(GraphTerms):
    """What the settings of `cesar` mean for one roster."""

    settings: CesarSettings

    @property
    def work(self) -> int:
        """The sum of squared degrees: at every receiver, all pairs of its neighbours agree on masks."""
        return sum(degree**2 for degree in self.degrees)

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns the parties to take offline so that a member k receives the smallest sum that it may.

        k is the member with the most other members among its neighbours. These stay, with as few others as possible.
        """
        members = {place for place, party in enumerate(self.parties) if party in coalition}
        near = {k: [i for i in self.view(k) if i in members] for k in sorted(members)}
        if not near:
            return None
        k = max(near, key=lambda each: len(near[each]))
        if len(near[k]) + max(others, 2) <= self.settings.masking + 1:
            return None  # every sum that it receives has two others in it
        heard = [*near[k], *(i for i in self.view(k) if i not in members)][
            : max(self.settings.masking + 1, len(near[k]) + others)
        ]
        away = set(range(len(self.parties))) - {k, *heard} - members
        return (self.parties.names_at(sorted(away)), ()) if away else None

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields what is proved about sums of neighbours."""
        return arguments_of(self, query)

    def fewest_contributors(self, coalition: Collection[Party]) -> int:
        """Returns the fewest contributors outside a coalition whose noise protects what the coalition sees.

        It is 1 for several members or for an eavesdropper. They can compare the sums of two receivers, which miss
        different neighbours but have the same noise. It is also 1 if neighbours have different weights in a sum,
        because those do not hide each other.
        """
        members = {place for place, party in enumerate(self.parties) if party in coalition}
        if len(members) != 1 or ONLOOKER in coalition:
            return 1
        (k,) = members
        return self.settings.masking + 1 if len({self.weight(i, k) for i in self.view(k)}) == 1 else 1

    def steps(self, kind: type[Message]) -> range:
        """Returns the attempts in which messages of a kind are expected."""
        if kind is Turn:
            return range(1, ATTEMPTS + 2)
        if kind is Masked:
            return range(1, ATTEMPTS + 1)
        return range(2, ATTEMPTS + 2) if kind is Release else range(1)
