"""The settings and messages of `cesar`, and what senders and receivers compute alike."""

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
"""How often a receiver may ask: once, and again after each time that somebody did not deliver."""
MASK = "tacit/cesar/v1/mask"


class Selection(Message, frozen=True, tag="Selection"):
    """I_i: the seed it is drawn from, or the set, or nothing for all."""

    indices: bytes
    per_entry: ClassVar[int] = 2
    metadata: ClassVar[tuple[str, ...]] = ("indices",)


class Turn(Message, frozen=True, tag="Turn"):
    """From receiver k: those who take part, each with what it shares; or that all is there, to be released."""

    selections: dict[int, bytes]
    complete: bool = False
    per_party: ClassVar[int] = 64
    metadata: ClassVar[tuple[str, ...]] = ("selections",)

    @classmethod
    def limit(cls, parties: int, entries: int) -> int:
        """Returns the most a turn may take: a set of entries for each neighbour."""
        return super().limit(parties, entries) + parties * (entries // 4)


class Masked(Message, frozen=True, tag="Masked"):
    """w_{k←i}, useless without every other model of its set and every release."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Release(Message, frozen=True, tag="Release"):
    """The seed of the sender's self mask, for one attempt only."""

    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class CesarSettings(GraphSettings, frozen=True, kw_only=True):
    """Settings of `cesar`."""

    masking: int = 1
    """The masking requirement s: how many others' masks must cover an entry before it is sent."""

    def problems(self, parties: Parties) -> list[str]:
        """Returns the reasons why settings cannot work for these parties that can be told at a glance."""
        unmasked = [f"masking={self.masking} would send entries unmasked; use 1 or more"] * (self.masking < 1)
        return super().problems(parties) + unmasked

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns the masking requirement, if sums are too small after dropouts."""
        return Remedy("masking") if dropouts else None

    def bind(self, parties: Parties) -> "CesarTerms":
        """Returns what the settings mean for these parties; raises ConfigError with every reason why they cannot."""
        graph = self.draw_graph(parties)
        degrees = dict(graph.degree)
        thin = [parties[i] for i in range(len(parties)) if degrees[i] < self.masking + 1]
        least = min(degrees.values())
        if thin:
            cure = f"use masking={least - 1} or less, or" if least >= 2 else "use"
            has, times = "has" if len(thin) == 1 else "have", "once" if self.masking == 1 else f"{self.masking} times"
            raise ConfigError(
                f"{', '.join(thin)} {has} fewer than {self.masking + 1} neighbours, so nothing received there could be "
                f"masked {times}; {cure} a graph in which everybody has at least {self.masking + 1}"
            )
        return CesarTerms(self, parties, graph)


@dataclass(frozen=True)
class CesarTerms(GraphTerms):
    """What the settings of `cesar` mean for some parties."""

    settings: CesarSettings

    @property
    def work(self) -> int:
        """At every receiver, its neighbours mask in pairs."""
        return sum(degree**2 for degree in self.degrees)

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns all but the member with most members around it, those, and as few others as it may still hear."""
        members = {place for place, party in enumerate(self.parties) if party in coalition}
        near = {k: [i for i in self.view(k) if i in members] for k in sorted(members)}
        if not near:
            return None
        k = max(near, key=lambda each: len(near[each]))
        if len(near[k]) + max(others, 2) <= self.settings.masking + 1:
            return None  # two others are in whatever it hears
        heard = [*near[k], *(i for i in self.view(k) if i not in members)][
            : max(self.settings.masking + 1, len(near[k]) + others)
        ]
        away = set(range(len(self.parties))) - {k, *heard} - members
        return (self.parties.names_at(sorted(away)), ()) if away else None

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields what is proved of the sums of neighbours."""
        return arguments_of(self, query)

    def fewest_contributors(self, coalition: Collection[Party]) -> int:
        """Returns how many others' noise is, at least, in whatever a coalition may see, whoever drops out.

        Two receivers that miss different ones can compare their sums, which have the same noise, and so can whoever
        hears links. In one sum, those who weigh differently do not hide each other.
        """
        members = {place for place, party in enumerate(self.parties) if party in coalition}
        if len(members) != 1 or ONLOOKER in coalition:
            return 1
        (k,) = members
        return self.settings.masking + 1 if len({self.weight(i, k) for i in self.view(k)}) == 1 else 1

    def steps(self, kind: type[Message]) -> range:
        """Returns the attempts at which messages of a kind are due."""
        if kind is Turn:
            return range(1, ATTEMPTS + 2)
        if kind is Masked:
            return range(1, ATTEMPTS + 1)
        return range(2, ATTEMPTS + 2) if kind is Release else range(1)
