"""Protocols with a central server: participation, selection of contributors, and announcement of the sum."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.average import Average
from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Settings, State, Terms
from tacit.core.protocol_facts import ExchangePattern, Remedy
from tacit.core.suite import SERVER, Parties, Party, Ring, Vector
from tacit.designs.participation import (
    Batches,
    Everyone,
    Partition,
    Policy,
    Sampled,
    participation_from,
)
from tacit.designs.policy import Participation
from tacit.vectors.index_sets import from_bitmap, to_bitmap

PATIENCE = 8
"""Phases that a client waits for the server: more than a whole round, because it may be left out early."""

BACK = "run it again when they are back"
"""Remedy for a round in which too many parties dropped out."""


class Sum(Message, frozen=True, tag="Sum"):
    """The server's result: the contributors, and their sum followed by the sum of weights."""

    members: bytes
    vector: memoryview
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 1
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class StarSettings(Settings, frozen=True, kw_only=True):
    """Settings of a protocol with a server."""

    participation: Policy = Everyone()
    """Participation policy: an object of `tacit.designs`, its name, or a table from a scenario file."""
    sampled: int | None = None
    """E of paper 003: the exact number of vectors to sum, of those delivered."""
    oversampled: int | None = None
    """E0 of paper 003: the number of clients to ask, of those present."""
    threshold: int | None = None
    """The fewest clients that must stay to the end of the round."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"participation": participation_from}
    editor_types: ClassVar[Mapping[str, str]] = {"participation": 'Policy | Literal["everyone"] | Mapping[str, Any]'}

    @property
    def policy(self) -> Participation:
        """The participation policy. Sampling as in paper 003 is one of the policies."""
        return self.participation if self.sampled is None else Sampled(self.sampled, self.oversampled)

    def problems(self, parties: Parties) -> list[str]:
        """Returns the problems of these settings for these parties that need no further computation to find."""
        problems = super().problems(parties)
        if self.sampled is None and self.oversampled is not None:
            problems.append("oversampled=E0 goes with sampled=E; try: set both or neither")
        if self.sampled is not None and not isinstance(self.participation, Everyone):
            problems.append("sampled= and participation= both say who takes part; try: set one of them")
        return problems + self.policy.problems(len(parties))

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns what determines the smallest sum: the number of sampled clients, or the threshold."""
        return Remedy("threshold" if self.sampled is None else "sampled") if dropouts else None


class Sets:
    """Encoding of sets of users. Results are cached, because all parties of a simulated round decode the same sets.

    Users are indices on the roster. A set is sent as a bitmap.
    """

    def __init__(self, parties: Parties) -> None:
        self.users: Callable[[bytes], frozenset[int]] = lru_cache(32)(partial(_users, len(parties)))
        """Decodes a bitmap to its users; raises WireError if it is invalid."""
        self.ascending: Callable[[bytes], tuple[int, ...]] = lru_cache(32)(partial(_ascending, len(parties)))
        """Decodes a bitmap to its users, in the roster's order."""
        self.within: Callable[[bytes, bytes], bool] = lru_cache(32)(
            lambda inner, outer: self.users(inner).issubset(self.users(outer))
        )
        """Returns whether the first bitmap's users are all in the second bitmap."""
        self.names: Callable[[bytes], tuple[Party, ...]] = lru_cache(32)(partial(_names, parties))
        """Decodes a bitmap to the names of its users, in the roster's order."""
        self._bitmap: Callable[[frozenset[int]], bytes] = lru_cache(32)(partial(to_bitmap, universe=len(parties)))

    def bitmap(self, users: Collection[int]) -> bytes:
        """Encodes a set of users as a bitmap."""
        return self._bitmap(frozenset(users))


def _users(parties: int, members: bytes) -> frozenset[int]:
    return frozenset(from_bitmap(members, parties))


def _ascending(parties: int, members: bytes) -> tuple[int, ...]:
    return tuple(from_bitmap(members, parties))


def _names(parties: Parties, members: bytes) -> tuple[Party, ...]:
    return parties.names_at(from_bitmap(members, len(parties)))


@dataclass(frozen=True)
class StarTerms(Terms):
    """What the settings of a protocol with a server mean for one roster."""

    settings: StarSettings
    policy: Participation
    threshold: int
    sets: Sets = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sets", Sets(self.parties))

    @property
    def participation(self) -> Participation:
        """The participation policy."""
        return self.policy

    @property
    def fewest_present(self) -> int:
        """The fewest clients that must be present at every step."""
        return max(self.policy.least, self.threshold)

    @property
    def cure(self) -> str:
        """Remedy where too many dropped out. It never lowers the threshold."""
        return BACK

    @property
    def rule(self) -> str:
        """The setting that says how many are needed."""
        return f"threshold={self.threshold}" if self.threshold >= self.policy.least else "participation"

    @property
    def rule_detail(self) -> str:
        """How many may drop out."""
        most, least = self.policy.most(len(self.parties)), self.fewest_present
        return f"of {most} parties, {f'at most {most - least}' if least < most else 'none'} may drop out"

    @property
    def dropout_rule(self) -> tuple[str, str, str]:
        """Remedy, setting and detail for an error that says that too many dropped out."""
        return self.cure, self.rule, self.rule_detail

    @property
    def smallest_sum(self) -> int:
        """The fewest contributors to a sum."""
        return self.fewest_present

    @property
    def sums_everybody(self) -> bool:
        """Whether every round without dropouts sums all clients."""
        return self.policy.sums_everybody(len(self.parties))

    def exchange(self) -> ExchangePattern:
        """Returns a star, for pictures: every party exchanges messages with the server only."""
        return ExchangePattern("star", ((),))

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns the relations of clients: which share a batch and, if batches are asked at random, which batch it is.

        If all clients take part in every round, all places are equivalent. If participants are random, none are.
        """
        policy, n = self.policy, len(self.parties)
        size = policy.privacy if isinstance(policy, Batches) else policy.most(n) if isinstance(policy, Partition) else 1
        if size == 1:
            return () if self.sums_everybody else None
        batch = np.arange(n) // size
        return (batch[:, None] == batch,) if self.sums_everybody else (np.diag(batch),)

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns the clients that are absent, and those that drop out later, so that the smallest sum remains."""
        n, members = len(self.parties), self._places(coalition)
        asked = self.policy.worst_order(members, n)[: self.policy.most(n)]
        summed = asked[: max(self.smallest_sum, len(members) + others)]
        # If one member of a batch is missing, the whole batch is left out, but its other members count as present.
        late = list(dict.fromkeys(self.policy.batch(place)[-1] for place in asked if place not in summed))
        # With more dropouts, the round would end without a sum.
        late = late[max(0, len(late) - (len(asked) - self.fewest_present)) :]
        if len(asked) == n and not late:
            return None
        return self.parties.names_at(sorted(set(range(n)) - set(asked))), self.parties.names_at(sorted(late))

    def prescribe_sample(self, coalition: Collection[Party], others: int) -> Self | None:
        """Returns terms under which the server sums a fixed number of clients, and samples the worst for privacy."""
        if not isinstance(self.policy, Sampled) or self.policy.sums_everybody(len(self.parties)):
            return None
        policy = self.policy.prescribe_worst(self._places(coalition), others, len(self.parties))
        return replace(self, policy=policy)

    def _places(self, coalition: Collection[Party]) -> list[int]:
        return [place for place, party in enumerate(self.parties) if party in coalition]

    def peers(self, me: Party) -> Collection[Party]:
        """Returns the server for a client, and all clients for the server."""
        return self.parties if me == SERVER else (SERVER,)


class CountingState(State, frozen=True):
    """State of a server that counts how often each client was asked."""

    counts: dict[Party, int] = msgspec.field(default_factory=dict)
    """At the server: number of times that each client was asked."""


class StarState(CountingState, frozen=True):
    """State of a protocol whose clients keep nothing. The fields beside `counts` remain for the format's sake."""

    batch: tuple[Party, ...] = ()
    among: bytes = b""
    last: bytes = bytes(32)
    members: bytes = b""
    announced: memoryview | None = None
    version: ClassVar[int] = 3


C = TypeVar("C", bound=CountingState)


# --- selection by the server ---------------------------------------------------------------------------------------


def select_asked(terms: StarTerms, state: C, present: Collection[int], entropy: Entropy) -> tuple[list[int], C]:
    """Returns the clients to ask, and the state with updated counts; no clients if too few are present."""
    if len(present) < terms.fewest_present:
        return [], state
    counts = np.array([state.counts.get(party, 0) for party in terms.parties])
    places = terms.policy.ask(sorted(present), counts, entropy)
    # The count is of being asked, not summed. Otherwise a batch that keeps losing a member would be asked every time.
    more = {party: state.counts.get(party, 0) + 1 for party in terms.parties.names_at(places)}
    return places, msgspec.structs.replace(state, counts=state.counts | more)


def select_summed(
    terms: StarTerms, link: Link, asked: Sequence[int], delivered: Collection[int], entropy: Entropy
) -> list[int]:
    """Returns the clients to sum among those that delivered; none if they are too few, or the policy allows none."""
    del link
    if min(len(asked), len(delivered)) < terms.fewest_present:
        return []
    chosen = terms.policy.choose(sorted(delivered), entropy)
    return chosen if len(chosen) >= terms.smallest_sum else []


# --- sums of vectors -----------------------------------------------------------------------------------------------


def sort_by_place(link: Link, messages: Mapping[Party, Any]) -> dict[int, Any]:
    """Returns messages by the sender's index on the roster, ascending."""
    return {place: messages[link.parties[place]] for place in link.parties.places(messages)}


def unpack_vectors(link: Link, ring: Ring, received: Mapping[int, memoryview]) -> dict[int, Vector]:
    """Returns the decoded vectors. A sender of a vector of the wrong length is excluded."""
    vectors: dict[int, Vector] = {}
    for place, data in received.items():
        try:
            vectors[place] = ring.unpack(data)
        except WireError:
            link.exclude(link.parties[place], Drop.MALFORMED)
    return vectors


def sum_vectors(vectors: list[Vector]) -> Vector:
    """Returns the sum of some vectors and empties the list. Overwrites the last vector if that is writable."""
    first = vectors.pop()
    total = first if first.flags.writeable else first.copy()
    del first
    while vectors:
        total += vectors.pop()
    return total


async def announce(link: Link, result: Message) -> None:
    """Sends a result to everyone on the roster."""
    for party in link.parties:
        await link.send(party, result)


def compute_average(terms: StarTerms, ring: Ring, result: Sum, *, spent: bool = False) -> Average:
    """Returns the average of an announced sum, which it overwrites if that is `spent`."""
    return Average(ring.mean(ring.unpack(result.vector), spent=spent), terms.sets.names(result.members))


async def await_average(link: Link, terms: StarTerms, ring: Ring) -> Average:
    """Waits for the server's `Sum`, and returns its average."""
    return compute_average(terms, ring, await link.receive(SERVER, Sum, patience=PATIENCE), spent=True)


def bind_policy(settings: StarSettings, parties: Parties) -> Participation:
    """Returns the policy for these parties; raises ConfigError with every problem of the settings."""
    if problems := settings.problems(parties):
        raise ConfigError(problems)
    return settings.policy.bind(len(parties))
