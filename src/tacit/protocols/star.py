"""What protocols with a server in the middle share: who takes part, and how the sum is announced."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Config, State
from tacit.core.suite import SERVER, Party, Ring, Vector
from tacit.designs import Everyone, History, Participation, Sampled, participation_from
from tacit.vectors.indices import from_bitmap, to_bitmap

PATIENCE = 8
"""Phases a client waits for the server: a whole round and some, for a client may be left out early on."""


class Sum(Message, frozen=True):
    """The server's result: whose vectors are in it, and their sum with the sum of weights behind it."""

    members: bytes
    vector: memoryview
    per_party: ClassVar[int] = 1
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class StarConfig(Config, frozen=True, kw_only=True):
    """Settings of a protocol with a server."""

    participation: Any = Everyone()
    """Who takes part in which round: a policy of `tacit.designs`, its name, or a table from a scenario file."""
    sampled: int | None = None
    """E of paper 003: exactly this many of those who delivered are summed."""
    oversampled: int | None = None
    """E0 of paper 003: this many of those present are asked."""
    threshold: int | None = None
    """How many must be there to the end."""

    def policy(self) -> Participation:
        """Returns the participation policy, with paper 003's sampling as one of them."""
        if self.sampled is not None:
            return Sampled(self.sampled, self.oversampled)
        return participation_from(self.participation)

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties)
        try:
            policy = self.policy()
            everyone = isinstance(participation_from(self.participation), Everyone)
        except ConfigError as error:
            return [*problems, *error.problems]
        if self.sampled is None and self.oversampled is not None:
            problems.append("oversampled=E0 goes with sampled=E; set both or neither")
        if self.sampled is not None and not everyone:
            problems.append("sampled= and participation= both say who takes part; set one of them")
        return problems + policy.problems(len(parties))

    def bound(self, parties: Sequence[Party]) -> Self:
        """Returns the settings with the policy filled in for these parties."""
        policy = self.policy().bind(len(parties))
        return msgspec.structs.replace(self, participation=policy, sampled=None, oversampled=None)


class StarState(State):
    """What outlives a round: the server's counts, and each client's memory of what it helped to sum."""

    counts: dict[Party, int] = msgspec.field(default_factory=dict)
    history: History = msgspec.field(default_factory=History)


def positions(link: Link, parties: Collection[Party]) -> list[int]:
    """Returns the places of some parties on the roster, ascending."""
    return [place for place, party in enumerate(link.parties) if party in parties]


def names(link: Link, places: Sequence[int]) -> tuple[Party, ...]:
    """Returns the parties at some places of the roster."""
    return tuple(link.parties[place] for place in places)


def select(
    link: Link, policy: Participation, state: StarState, present: Collection[Party], entropy: Entropy
) -> list[int]:
    """Returns the places of those to ask this round."""
    counts = np.array([state.counts.get(party, 0) for party in link.parties])
    asked = policy.select(positions(link, present), counts, entropy)
    # Being asked counts, not being summed: a batch that keeps losing a member would else be asked for ever.
    for party in names(link, asked):
        state.counts[party] = state.counts.get(party, 0) + 1
    return asked


def rehearsed(
    link: Link,
    policy: Participation,
    state: StarState,
    entropy: Entropy,
    present: Collection[Party],
    delivers: Callable[[Party], bool],
    least: int,
    smallest: int,
) -> tuple[Party, ...]:
    """Returns whose vectors a round sums, chosen as a server chooses them; nobody if it would give up."""
    asked = select(link, policy, state, present, entropy) if len(present) >= least else []
    delivered = [place for place in asked if delivers(link.parties[place])]
    if min(len(asked), len(delivered)) < least:
        return ()
    chosen = policy.settle(delivered, entropy)
    return names(link, chosen) if len(chosen) >= smallest else ()


def unpacked(link: Link, ring: Ring, received: Mapping[Party, memoryview]) -> dict[int, Vector]:
    """Returns the vectors that came, by place; whoever sent one of the wrong length is excluded."""
    vectors: dict[int, Vector] = {}
    for place in positions(link, received):
        party = link.parties[place]
        try:
            vectors[place] = ring.unpack(received[party])
        except WireError:
            link.exclude(party, Drop.MALFORMED)
    return vectors


async def announce(link: Link, ring: Ring, chosen: Sequence[int], total: Vector) -> Average:
    """Sends the sum to everyone on the roster and returns the average."""
    result = Sum(to_bitmap(chosen, len(link.parties)), memoryview(ring.pack(total)))
    for party in link.parties:
        await link.send(party, result)
    return Average(ring.mean(total), names(link, chosen))


def averaged(link: Link, ring: Ring, result: Sum) -> Average:
    """Returns the average that the server announced."""
    chosen = from_bitmap(result.members, len(link.parties))
    return Average(ring.mean(ring.unpack(result.vector)), names(link, chosen))


async def result(link: Link, ring: Ring) -> Average:
    """Waits for the server's announcement."""
    return averaged(link, ring, await link.receive(SERVER, Sum, patience=PATIENCE))
