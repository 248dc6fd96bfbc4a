"""Malicious servers of `secagg` that send inconsistent messages to real users over real connections.

The lies are those of `tacit attack lies`. The search on symbols finds one that works on users without a precaution, in
the session of the very federation on which it is then used: first on such users, who reveal their shares, and then on
deployed users. The server's messages are made by the roles of that attack from the messages that really arrived. Other
servers are honest except for one changed message.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from benchmarks.intruders.honest_parties import Federation, Witness
from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.core.errors import ConfigError, TransportError
from tacit.core.link import Link
from tacit.core.messages import Address, Envelope
from tacit.core.protocol import Role
from tacit.core.suite import SERVER, Party, Update
from tacit.lab.attacks.lies.cases import LieCase
from tacit.lab.attacks.lies.roles import SETS, UNMASKED, Client, ClientReply, Clients, RealCast, SymbolicCast
from tacit.lab.attacks.lies.search import Search
from tacit.lab.attacks.lies.variants import VARIANTS, use_variant
from tacit.net.membership.roster import Deadlines
from tacit.net.node import Node
from tacit.protocols import secagg
from tacit.protocols.secagg.messages import (
    AdvertiseKeys,
    Chosen,
    Consent,
    Consents,
    KeyList,
    MaskedInput,
    SealedShares,
    ShareKeys,
    Sum,
    Unmask,
)
from tacit.runtime.participant import KeyedParticipant
from tacit.vectors.index_sets import to_bitmap

ENTRIES = 3
SAID = (AdvertiseKeys, ShareKeys, MaskedInput, Consent, Unmask)
"""Messages of a user, in order."""


@dataclass
class LieOutcome:
    """Outcome of a lie: the result of the round for each user, and the shares that the server received."""

    name: str
    endings: dict[Party, dict[str, Any]]
    shares: list[Unmask]

    @property
    def errors(self) -> dict[Party, str]:
        """Reasons for which users aborted."""
        return {party: each["error"] for party, each in self.endings.items() if each["error"] and party != SERVER}


@asynccontextmanager
async def nodes(made: Federation, role: Callable[[Node], Role] | None) -> AsyncIterator[dict[Party, Node]]:
    """Yields all nodes, on this machine. The server runs another coroutine instead of its own."""
    running = {party: made.node(party) for party in made.roster.entry.everyone(made.roster.names)}
    if role is not None:
        server = running[SERVER]
        sit = server._restore

        def seated(agreement: Any) -> None:
            sit(agreement)
            server._participant.role = role(server)

        server._restore = seated
    try:
        for node in running.values():
            await node.start()
        yield running
    finally:
        await asyncio.gather(*(node.close() for node in running.values()))


async def _rounds(running: Mapping[Party, Node], rounds: int) -> dict[Party, dict[str, Any]]:
    for number in range(1, rounds + 1):
        parties = list(running)
        ended = await asyncio.gather(*(Witness(running[party], ENTRIES).average(number) for party in parties))
    return dict(zip(parties, ended, strict=True))


def _federation(folder: Path, users: int, **options: Any) -> Federation:
    soon = Deadlines(phase=4.0, start=8.0, connect=5.0)
    return Federation.of(folder, "secagg", [f"p{place}" for place in range(users)], soon, **options)


# --- a set of users for each client and step -----------------------------------------------------------------------


class Storyteller:
    """A server that sends different sets to each user, with the forwarded messages that make them credible."""

    def __init__(self, case: LieCase, story: Mapping[int, tuple[int, ...]]) -> None:
        self._case, self._story = case, story
        self.shares: list[Unmask] = []

    async def __call__(self, link: Link, terms: Any, suite: Any, state: Any) -> None:
        """Runs the server."""
        del terms, suite, state
        cast, names = RealCast(self._case), link.parties
        first = await link.gather(AdvertiseKeys, names, 0)
        clients = {u: _after(Client(u), first[names[u]]) for u in self._story if names[u] in first}
        keys = {u: client.said[0].message for u, client in clients.items()}
        cast.__dict__["_keys"] = {u: (key.c, key.s, key.signature) for u, key in keys.items()}
        for step in range(UNMASKED):
            told = {u: self._told(cast, client, clients, step) for u, client in clients.items()}
            told = {u: lie for u, lie in told.items() if lie is not None}
            for u, (_, message) in told.items():
                await link.send(names[u], message)
            came = await link.gather(SAID[step + 1], [names[u] for u in told], 0)
            for u, (users, message) in told.items():
                if names[u] in came:
                    sets = clients[u].sets if users is None else (*clients[u].sets, users)
                    now = clients[u]._replace(sets=sets, told=(*clients[u].told, (message.kind(), b"")))
                    clients[u] = _after(now, came[names[u]])
        self.shares += [each.said[UNMASKED].message for each in clients.values() if len(each.said) > UNMASKED]
        raise TransportError("the server has what it wanted, or will not get it")  # No user has to wait for a sum.

    def _told(self, cast: RealCast, client: Client, clients: Mapping[int, Client], step: int) -> Any:
        """Returns the next message to a client; None if the client has stopped."""
        story = self._story[client.place]
        if len(client.said) <= step or (step < len(SETS) and step >= len(story)):
            return None
        wanted = story[step] if step < len(SETS) else None
        words = cast._passable(client, tuple(clients.values()))
        return next((lie for lie in cast.lies(client, words) if lie[0] == wanted), None)


def _after(client: Client, message: Any) -> Client:
    envelope = Envelope(Address(bytes(32), 1, 0, message.kind(), "", SERVER), b"")
    return client._replace(said=(*client.said, ClientReply(envelope, message)))


@dataclass
class Story:
    """A federation, and a lie that works on users without a precaution."""

    made: Federation
    case: LieCase
    clients: Clients
    words: str

    @property
    def smallest(self) -> int:
        """The fewest honest users in anything that the server learns from deployed users; 0 if it learns nothing."""
        cast = SymbolicCast(self.case)
        try:
            return smallest_support(cast.known_basis(cast.replay(self.clients))) or 0
        except ConfigError:  # A user refuses a message, and stops.
            return 0


def story(name: str, folder: Path) -> Story:
    """Returns a lie for a missing precaution, in a new federation."""
    chosen = VARIANTS[name].case
    settings = {"participation": chosen.participation, "neighbours": chosen.neighbours, "threshold": chosen.threshold}
    plain = {key: msgspec.to_builtins(value, enc_hook=vars) for key, value in settings.items() if value is not None}
    made = _federation(folder, chosen.users, **plain)
    agreement = made.roster.agreement(ENTRIES)
    participants = {
        party: KeyedParticipant(agreement, made.credentials[party].identity) for party in agreement.everyone
    }
    case = replace(chosen)
    case.__dict__["simulation"] = SimpleNamespace(agreement=agreement, participants=participants)
    case.__dict__["terms"] = agreement.terms
    with use_variant(name) as bent:
        works = (each for each in Search(case).breaks() if each.smallest == 1 or not bent.exposes)
        found = next(works)
    return Story(made, case, found.clients, f"{found.story}, for {found.known_basis}")


async def told_story(found: Story, name: str, *, careful: bool) -> LieOutcome:
    """Uses a lie on deployed users or, with `careful=False`, on users without the precaution that it is for."""
    teller = Storyteller(found.case, {client.place: client.sets for client in found.clients})
    with nullcontext() if careful else use_variant(name):
        async with nodes(found.made, lambda _: teller) as running:
            return LieOutcome(found.words, await _rounds(running, 1), teller.shares)


# --- single messages -----------------------------------------------------------------------------------------------

N = 6
Change = Callable[[Party, Any, Any], Any]


def _replaced_key(_to: Party, message: Any, _: Any) -> Any:
    if not isinstance(message, KeyList):
        return message
    (v, (_c, s, signature)), *rest = message.keys.items()
    return msgspec.structs.replace(message, keys={v: (b"\x09" * 32, s, signature), **dict(rest)})


def _key_twice(_to: Party, message: Any, _: Any) -> Any:
    if not isinstance(message, KeyList):
        return message
    first, second, *_rest = message.keys
    return msgspec.structs.replace(message, keys={**message.keys, first: message.keys[second]})


def _few_asked(_to: Party, message: Any, _: Any) -> Any:
    return KeyList(to_bitmap([0, 1], N), {}) if isinstance(message, KeyList) else message


def _other_shares(_to: Party, message: Any, _: Any) -> Any:
    if not isinstance(message, SealedShares):
        return message
    return msgspec.structs.replace(message, sealed=dict(list(message.sealed.items())[1:]))


def _chosen(users: Callable[[Party], range]) -> Change:
    def change(to: Party, message: Any, _: Any) -> Any:
        if not isinstance(message, Chosen):
            return message
        return Chosen(to_bitmap(users(to), N), {v: tag for v, tag in message.views.items() if v in users(to)})

    return change


def _consents(signatures: Callable[[bytes], bytes]) -> Change:
    def change(_to: Party, message: Any, _: Any) -> Any:
        if not isinstance(message, Consents):
            return message
        return msgspec.structs.replace(message, signatures=memoryview(signatures(bytes(message.signatures))))

    return change


def _few_consents(_to: Party, message: Any, _: Any) -> Any:
    return Consents(to_bitmap([0, 1], N), message.signatures[:128]) if isinstance(message, Consents) else message


def _other_sum(to: Party, message: Any, suite: Any) -> Any:
    if not isinstance(message, Sum) or to == "p2":
        return message
    total = suite.ring.encode(Update(np.full(ENTRIES, 5.0)))
    return msgspec.structs.replace(message, vector=memoryview(bytes(suite.ring.pack(total))))


@dataclass(frozen=True)
class Lie:
    """A changed message of the server, with the expected reaction of the users and the affected users."""

    name: str
    change: Change
    words: str
    rounds: int = 1


LIES = (
    Lie("another key in a user's place", _replaced_key, "bad signature"),
    Lie("one key listed twice", _key_twice, "not all different"),
    Lie("U2 of two users", _few_asked, "which the settings do not allow"),
    Lie("shares of other users than U3", _other_shares, "not those of the users it lists"),
    Lie("U5 of three users, of six", _chosen(lambda _: range(3)), "policy does not allow"),
    Lie("U5 of one user", _chosen(lambda _: range(1)), "policy does not allow"),
    Lie("one U5 to three users, another to three", _chosen(lambda to: range(5) if to < "p3" else range(1, 6)), ""),
    Lie("consents that nobody gave", _consents(lambda data: bytes(len(data))), "bad signature"),
    Lie("one consent again and again", _consents(lambda data: data[:64] * (len(data) // 64)), "bad signature"),
    Lie("too few consents", _few_consents, "it shows that 2 users agree"),
    Lie("one sum to p2 and another to the others", _other_sum, "", rounds=2),
)


class _CrookedLink(Link):
    """A server's link that changes sent messages and records received ones."""

    change: Change
    suite: Any

    async def send(self, to: Party, message: Any, *, step: int = 0) -> None:
        await super().send(to, self.change(to, message, self.suite), step=step)


def make_crooked_role(change: Change, shares: list[Unmask]) -> Role:
    """Returns a server that follows the protocol except for one change, and keeps the received shares."""

    async def server(link: Link, terms: Any, suite: Any, state: Any) -> Any:
        bent = _CrookedLink(link.me, link.parties, link.session, link.round, link.dropped)
        bent.change, bent.suite = change if link.round == 1 else (lambda _to, message, _: message), suite
        gather = bent.gather

        async def gathered(kind: Any, *given: Any, **more: Any) -> Any:
            found = await gather(kind, *given, **more)
            shares.extend(each for each in found.values() if isinstance(each, Unmask))
            return found

        bent.gather = gathered
        return await secagg.server(bent, terms, suite, state)

    return server


async def told_lie(lie: Lie, folder: Path) -> LieOutcome:
    """Uses a lie on six users."""
    shares: list[Unmask] = []
    async with nodes(_federation(folder, N), lambda _: make_crooked_role(lie.change, shares)) as running:
        return LieOutcome(lie.name, await _rounds(running, lie.rounds), shares)


@dataclass
class Outcome:
    """Results of a lie without a precaution, and with it."""

    name: str
    without: LieOutcome
    told: LieOutcome
    smallest: int
    """Number of users in the smallest combination that the server then knows; 0 if it knows none."""
    allowed: int
    """The smallest number that is allowed."""


def stories(names: Iterable[str] = tuple(VARIANTS)) -> Iterator[Outcome]:
    """Yields the results of a lie for each precaution."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            bare, found = story(name, Path(folder) / "without"), story(name, Path(folder) / "with")
            without = asyncio.run(told_story(bare, name, careful=False))
            told = asyncio.run(told_story(found, name, careful=True))
            yield Outcome(name, without, told, found.smallest, found.case.fewest_honest)
