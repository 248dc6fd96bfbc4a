"""Plain averaging with a server: the baseline, which leaks by design.

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | client | `Here` | server |
| 2 | server | `Turn` | the clients it asks |
| 3 | client | `Plain`: its weighted vector and weight, unmasked | server |
| 4 | server | `Sum` | everyone |

**Who learns what.** The server learns every vector and every weight. Clients learn the sum. Links are sealed, so
onlookers learn who took part, when, and how much was sent.

**Faults.** Whoever has not answered when a phase ends is left out; fewer than `threshold` (default 2) is an abort.

**Paper.** FedAvg as the papers compare against it, and line 8 of Algorithm 1 of paper 003 without its protection. The
ring is that of `secagg`, so that both give the same average bit for bit.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from tacit.core.entropy import Entropy
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Protocol, Rehearsal
from tacit.core.suite import SERVER, Party, Suite, Update
from tacit.protocols.star import (
    PATIENCE,
    StarConfig,
    StarState,
    Sum,
    announce,
    averaged,
    names,
    rehearsed,
    result,
    select,
    unpacked,
)


class Here(Message, frozen=True):
    """The client is there."""


class Turn(Message, frozen=True):
    """The client is asked for its vector."""


class Plain(Message, frozen=True):
    """A client's encoded vector, for all to see who can open the envelope: the server."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class FedAvgConfig(StarConfig, frozen=True, kw_only=True):
    """Settings of `fedavg`."""

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        problems = super().problems(parties)
        if not problems and not 2 <= self.least() <= self.policy().most(len(parties)):
            problems.append(
                f"threshold={self.threshold} cannot be reached; it must be from 2 to the number of those who take part"
            )
        return problems

    def least(self) -> int:
        """Returns how many vectors there must be."""
        return 2 if self.threshold is None else self.threshold


async def client(link: Link, update: Update, config: FedAvgConfig, suite: Suite, state: StarState) -> Average:
    """A party that brings a vector."""
    del config, state
    await link.send(SERVER, Here())
    turn = await link.receive(SERVER, Turn, Sum, patience=PATIENCE)
    if isinstance(turn, Sum):
        return averaged(link, suite.ring, turn)
    await link.send(SERVER, Plain(memoryview(suite.ring.pack(suite.ring.encode(update)))))
    return await result(link, suite.ring)


async def server(link: Link, config: FedAvgConfig, suite: Suite, state: StarState) -> Average:
    """The server, which sees everything."""
    policy, ring = config.policy(), suite.ring
    least = max(policy.least, config.least())
    present = await link.gather(Here, link.parties, least)
    asked = select(link, policy, state, present, suite.entropy)
    link.require("clients to ask", asked, least)
    for party in names(link, asked):
        await link.send(party, Turn())

    plain = await link.gather(Plain, names(link, asked), least)
    delivered = unpacked(link, ring, {party: message.vector for party, message in plain.items()})
    chosen = policy.settle(list(delivered), suite.entropy)
    link.require("vectors to sum", chosen, least)
    total = ring.zeros()
    for place in chosen:
        total += delivered[place]
    return await announce(link, ring, chosen, total)


def sums(
    link: Link, config: FedAvgConfig, state: StarState, entropy: Entropy, sends: Callable[[type[Message], Party], bool]
) -> tuple[Party, ...]:
    """Returns whose vectors a round sums, as `server` chooses them."""
    policy = config.policy()
    least = max(policy.least, config.least())
    present = [party for party in link.parties if sends(Here, party)]
    return rehearsed(link, policy, state, entropy, present, lambda party: sends(Plain, party), least, least)


FEDAVG = Protocol(
    name="fedavg",
    summary="plain averaging with a server, which sees every vector",
    config=FedAvgConfig,
    messages=(Here, Turn, Plain, Sum),
    party=client,
    server=server,
    state=StarState,
    rehearsal=Rehearsal(Here, Plain, sums),
    leaks_by_design=True,
)
