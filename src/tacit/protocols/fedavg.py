"""Plain averaging with a server: the baseline, which leaks by design.

| step | who | sends | to |
| --- | --- | --- | --- |
| 1 | client | `Here` | server |
| 2 | server | `Asked` | the clients it asks |
| 3 | client | `Plain`: its weighted vector and weight, unmasked | server |
| 4 | server | `Sum` | everyone |

**Who learns what.** The server learns every vector and every weight. Clients learn the sum. Links are sealed, so an
eavesdropper learns who takes part, when, and how much is sent.

**Faults.** A client that has not answered when a phase ends is left out. With fewer than `threshold` clients (default
2) the round aborts.

**Paper.** FedAvg, as the papers compare against it, and line 8 of Algorithm 1 of paper 003 without its protection. The
ring is that of `secagg`, so both give the same average bit for bit.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 001, Algorithm 1 (FedAvg): server; client k ∈ S_t | `server`; `client` |
| S_t, a random set of clients | `select_asked`, `select_summed`, by `participation` |
| ClientUpdate(k, w_t) | what the caller does between rounds |
| w_{t+1} = Σ n_k/n w_{t+1}^k | `sum_vectors` of `Plain`, announced as `Sum`; n_k is the weight of a party |
| 003, Algorithm 1, line 8 | the same average, without the paper's protection |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tacit.core.average import Average
from tacit.core.errors import ConfigError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Choice, Protocol
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument, ProposedSettings, ReasonCode
from tacit.core.suite import SERVER, Parties, Suite, Update
from tacit.protocols.shapes import star
from tacit.protocols.shapes.proofs import PLAIN_VECTORS
from tacit.protocols.shapes.star import PATIENCE, StarSettings, StarState, StarTerms, Sum


class Here(Message, frozen=True, tag="Here"):
    """Notice that the client is present."""


class Asked(Message, frozen=True, tag="Asked"):
    """Request for the client's vector."""

    from_server: ClassVar[bool] = True


class Plain(Message, frozen=True, tag="Plain"):
    """A client's encoded vector, unmasked. The server, which opens the envelope, sees it."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class FedAvgSettings(StarSettings, frozen=True, kw_only=True):
    """Settings of `fedavg`."""

    def bind(self, parties: Parties) -> "FedAvgTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        policy = star.bind_policy(self, parties)
        threshold = 2 if self.threshold is None else self.threshold
        if not 2 <= threshold <= policy.most(len(parties)):
            raise ConfigError(f"threshold must be from 2 to the number of participants, not {threshold}")
        return FedAvgTerms(self, parties, policy, threshold)


@dataclass(frozen=True)
class FedAvgTerms(StarTerms):
    """What the settings of `fedavg` mean for one roster."""

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields the argument that the server sees every vector."""
        del query
        yield PLAIN_VECTORS


async def client(link: Link, update: Update, terms: FedAvgTerms, suite: Suite, state: StarState) -> Average:
    """Coroutine of a client, which contributes a vector."""
    del state
    await link.send(SERVER, Here())
    asked = await link.receive(SERVER, Asked, Sum, patience=PATIENCE)
    if isinstance(asked, Sum):
        return star.compute_average(terms, suite.ring, asked, spent=True)
    await link.send(SERVER, Plain(memoryview(suite.ring.pack(suite.ring.encode(update)))))
    return await star.await_average(link, terms, suite.ring)


async def server(link: Link, terms: FedAvgTerms, suite: Suite, state: StarState) -> Average:
    """The server, which sees everything."""
    link.cure, link.rule, link.rule_detail, ring = *terms.dropout_rule, suite.ring
    present = link.parties.places(await link.gather(Here, link.parties, terms.fewest_present))
    asked, state = star.select_asked(terms, state, present, suite.entropy)
    link.require("clients to ask", asked, terms.fewest_present)
    await link.save(state)
    for place in asked:
        await link.send(link.parties[place], Asked())

    plain = star.sort_by_place(link, await link.gather(Plain, link.parties.names_at(asked), terms.fewest_present))
    delivered = star.unpack_vectors(link, ring, {place: message.vector for place, message in plain.items()})
    chosen = star.select_summed(terms, link, asked, delivered, suite.entropy)
    link.require("vectors to sum", chosen, terms.smallest_sum)
    del plain
    total = star.sum_vectors([delivered.pop(place) for place in chosen])
    result = Sum(terms.sets.bitmap(chosen), memoryview(ring.pack(total)))
    await star.announce(link, result)
    return star.compute_average(terms, ring, result)


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields the default settings, as a baseline for comparison."""
    del parties, colluding
    yield ProposedSettings({}, ReasonCode.BASELINE_WITH_SERVER)


FEDAVG = Protocol(
    name="fedavg",
    summary="plain averaging with a server, which sees every vector",
    settings=FedAvgSettings,
    messages=(Here, Asked, Plain, Sum),
    party=client,
    server=server,
    state=StarState,
    choice=Choice(Here, Plain, star.select_asked, star.select_summed, Sum),
    leaks_by_design=True,
    common_result=True,
    propose=propose,
    alternative="secagg",
)
