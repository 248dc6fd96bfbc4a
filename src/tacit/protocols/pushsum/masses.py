"""Masses of `pushsum` as ring elements: what a client holds, what it has sent, and what it takes in.

Every message carries the total ever pushed over its link. A receiver takes the difference from what it took before. So
a lost message loses nothing, and total mass is conserved exactly.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tacit.core.errors import ConfigError, Drop, WireError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import State
from tacit.core.suite import Party, Ring, Suite, Vector
from tacit.protocols.pushsum.settings import PushSumTerms
from tacit.protocols.shapes.pairs import mask_among

if TYPE_CHECKING:
    import networkx as nx

MASK = "tacit/pushsum/v1/mask"
ALL = "*"
"""Stands for all senders together, if their masses are masked."""


class Mass(Message, frozen=True, tag="Mass"):
    """Total of x and y ever pushed over a link, masked or not."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class MassState(State, frozen=True):
    """Mass that a client holds, has sent and has taken in, as ring elements. A lost state is lost mass."""

    x: memoryview | None = None
    """The mass x_i, followed by y_i; None before the first round."""
    sent: dict[Party, memoryview] = msgspec.field(default_factory=dict)
    """Total ever pushed, by receiver. Receivers with equal totals share one entry."""
    alike: dict[Party, Party] = msgspec.field(default_factory=dict)
    """Receivers without an entry in `sent`, each with the receiver whose total is equal. On one graph, all but one."""
    taken: dict[Party, memoryview] = msgspec.field(default_factory=dict)
    """Total ever taken in, by sender; with masks, the total of all senders together."""
    fed: bool = True
    """Whether something was taken in the last time that there were in-neighbours."""

    @property
    def receivers(self) -> tuple[Party, ...]:
        """All parties that mass was ever pushed to."""
        return (*self.sent, *self.alike)

    def sent_to(self, party: Party) -> memoryview:
        """Returns the total ever pushed to a receiver."""
        return self.sent[self.alike.get(party, party)]

    def problems(self, terms: PushSumTerms, ring: Ring, entries: int) -> list[str]:
        """Returns the reasons why no round can continue from it: masses of another length, or of unknown parties."""
        senders = (ALL,) if terms.settings.masked else terms.parties
        wrong = [
            f"it has masses of {party!r}, who is nobody here"
            for parties, known in (
                (self.receivers, terms.parties),
                (self.alike.values(), self.sent),
                (self.taken, senders),
            )
            for party in parties
            if party not in known
        ]
        masses = [*([] if self.x is None else [self.x]), *self.sent.values(), *self.taken.values()]
        size = (entries + 1) * ring.element_bytes
        if sizes := sorted({mass.nbytes for mass in masses} - {size}):
            wrong.append(f"a mass takes {size} bytes, not {sizes[0]}")
        return wrong


def take_masses(
    link: Link,
    terms: PushSumTerms,
    suite: Suite,
    state: MassState,
    x: Vector,
    heard: Sequence[Party],
    received: dict[Party, Mass],
) -> tuple[Vector, MassState, tuple[Party, ...]]:
    """Adds the new part of the received masses to x and y.

    Args:
        link, terms, suite: Those of the round.
        state: The state before.
        x: The mass x_i, followed by y_i.
        heard: The in-neighbours of this round.
        received: The masses that arrived. The dictionary is emptied.

    Returns:
        The new x and y, the new state, and the contributors.
    """
    ring, masked = suite.ring, terms.settings.masked
    masses: dict[Party, Vector] = {ALL: ring.zeros(len(x))} if masked else {}
    there = 0
    for party in tuple(received):
        try:
            mass = ring.unpack(received.pop(party).vector, len(x))  # no other reference keeps it in memory
        except WireError:
            link.exclude(party, Drop.MALFORMED)
            continue
        there += 1
        if masked:
            masses[ALL] += mass
        else:
            masses[party] = mass
    if masked and there < len(heard):
        # The masks do not cancel. Nothing is lost: the next sum contains these pushes too.
        return x, state, (link.me,)
    taken: dict[Party, memoryview] = {}
    pushed: list[Party] = []
    for party, mass in masses.items():
        more = mass.copy() if party not in state.taken else mass - unpack_elements(ring, state.taken[party])
        new = masked or not ring.is_zero(more)  # a client that keeps its mass sends the same total again
        more += x
        try:
            x = ring.within(more)
        except ConfigError:
            if party == ALL:
                raise
            continue  # Not lost: it may fit after this client pushed some mass, or after the sender corrected it.
        taken[party] = pack_elements(ring, mass)
        if new:
            pushed.append(party)
    after = msgspec.structs.replace(
        state, x=pack_elements(ring, x), taken=state.taken | taken, fed=state.fed or bool(taken)
    )
    return x, after, (link.me, *(heard if masked else pushed))


def mask_push(link: Link, suite: Suite, graph: "nx.DiGraph", party: Party, mass: Vector) -> Vector:
    """Returns the total pushed to a party, masked pairwise with the other parties that push to it."""
    pushing = link.parties.names_at(sorted(graph.predecessors(link.parties.place(party))))
    masked, others = mass.copy(), [other for other in pushing if other != link.me]
    mask_among(link, suite, masked, others, MASK, link.statement("pushsum mask", party.encode()))
    return masked


# --- encoding of masses ----------------------------------------------------------------------------------------------


def record_push(ring: Ring, state: MassState, out: Collection[Party], part: Vector) -> MassState:
    """Returns the state after a part was pushed to some receivers. Receivers with equal totals share one entry."""
    sent: dict[Party, memoryview] = {}
    alike: dict[Party, Party] = {}
    first: dict[tuple[Party | None, bool], Party] = {}
    for party in dict.fromkeys((*state.receivers, *out)):
        like = state.alike.get(party, party)
        before = state.sent.get(like)
        same = first.setdefault((None if before is None else like, party in out), party)
        if same != party:
            alike[party] = same
        elif before is None:
            sent[party] = pack_elements(ring, part)
        else:
            sent[party] = pack_elements(ring, unpack_elements(ring, before) + part) if party in out else before
    return msgspec.structs.replace(state, sent=sent, alike=alike)


def pack_elements(ring: Ring, vector: Vector) -> memoryview:
    """Returns ring elements as bytes for the state."""
    return memoryview(ring.pack(vector))


def unpack_elements(ring: Ring, kept: memoryview) -> Vector:
    """Returns the ring elements of bytes in the state."""
    return ring.unpack(kept, kept.nbytes // ring.element_bytes)
