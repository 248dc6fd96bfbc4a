"""Federations on this machine for tests: real keys, sockets and folders, with nodes in one process or in several."""

import asyncio
import hashlib
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from tacit.core.entropy import SeededEntropy
from tacit.core.suite import SERVER, Update
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import Deadlines, RosterFile
from tacit.net.node import Node
from tacit.net.store.round_store import RoundStore
from tacit.protocols import find
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.simulated_round import SimulatedRound

SOON = Deadlines(phase=20.0, start=20.0, connect=5.0)
"""Deadlines that are long enough for a busy machine. Tests that wait for a deadline use shorter ones."""
HASTY = Deadlines(phase=2.5, start=2.0, connect=1.0)
"""Deadlines for tests in which a party is missing and several deadlines pass."""


def free_ports(count):
    """Returns free ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass
class Made:
    """The files of a federation in a folder."""

    folder: Path
    roster: RosterFile
    credentials: dict = field(default_factory=dict)

    @classmethod
    def of(cls, folder, protocol, parties, deadlines=SOON, **options):
        names = [f"p{place}" for place in range(parties)] if isinstance(parties, int) else list(parties)
        everyone = find(protocol).everyone(tuple(names))
        entropy = SeededEntropy("federation", str(folder))
        made = {name: Credentials.generate(name, entropy) for name in everyone}
        cards = [
            made[name].card(f"127.0.0.1:{port}") for name, port in zip(everyone, free_ports(len(everyone)), strict=True)
        ]
        roster = RosterFile.new("try", protocol, options, entropy, cards)
        roster = RosterFile(
            **{name: getattr(roster, name) for name in roster.__struct_fields__} | {"deadlines": deadlines}
        )
        return cls(Path(folder), roster, made)

    @property
    def everyone(self):
        return tuple(self.credentials)

    def seed(self, party, number):
        return hashlib.sha256(f"{party} {number}".encode()).digest()

    def node(self, party, roster=None, proxy=None):
        store = RoundStore(self.folder / f"{party}.rounds", party, self.roster.federation)
        seed = partial(self.seed, party)
        return Node(roster or self.roster, self.credentials[party], store, seed, proxy)

    def moved(self, addresses):
        """Returns a roster in which some parties have other addresses."""
        cards = [
            self.credentials[card.name].card(addresses[card.name]) if card.name in addresses else card
            for card in self.roster.parties
        ]
        return msgspec.structs.replace(self.roster, parties=tuple(cards))

    @asynccontextmanager
    async def nodes(self, parties=None, rosters=None):
        """Yields started nodes, and closes them. Some may have other rosters."""
        made = {}
        try:
            for party in parties or self.everyone:
                made[party] = self.node(party, (rosters or {}).get(party))
                await made[party].start()
            yield made
        finally:
            await asyncio.gather(*(node.close() for node in made.values()))

    def updates(self, entries, number=1):
        rng = np.random.default_rng(number)
        return {name: Update(rng.normal(size=entries)) for name in self.roster.names}

    def played(self, entries, rounds):
        """Yields the same rounds in the simulator, with the same keys, session and seeds."""
        agreement = self.roster.agreement(entries)
        seats = {
            name: KeyedParticipant(agreement, self.credentials[name].identity)
            for name in self.roster.entry.everyone(self.roster.names)
        }
        for number in range(1, rounds + 1):
            played = SimulatedRound(agreement, seats, self.seed, number, (), record=True)
            played.run(self.updates(entries, number))
            yield played


@asynccontextmanager
async def far_apart(made, seconds):
    """Yields a roster per party with addresses of relays that delay all data by some seconds."""
    loop, calls = asyncio.get_running_loop(), set()

    async def carried(reader, writer):
        """Forwards bytes until the end of the stream."""
        async with asyncio.TaskGroup() as later:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    later.create_task(arrived(loop.time() + seconds, writer, data))
        writer.close()

    async def arrived(at, writer, data):
        await asyncio.sleep(at - loop.time())
        writer.write(data)

    async def called(address, reader, writer):
        calls.add(asyncio.current_task())
        await asyncio.sleep(seconds)
        there = await asyncio.open_connection(*address.split(":"))
        try:
            await asyncio.gather(carried(reader, there[1]), carried(there[0], writer))
        finally:
            for each in (writer, there[1]):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    rosters, servers = {}, []
    for party in made.everyone:
        found = {}
        for card in made.roster.parties:
            if card.name != party:
                server = await asyncio.start_server(partial(called, card.address), "127.0.0.1", 0)
                servers.append(server)
                found[card.name] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        rosters[party] = made.moved(found)
    yield rosters
    for server in servers:
        server.close()
    await asyncio.gather(*calls, return_exceptions=True)


async def averaged(nodes, updates):
    """Returns the result of a round for each node."""
    parties = list(nodes)
    endings = await asyncio.gather(
        *(nodes[party].average(None if party == SERVER else updates[party]) for party in parties)
    )
    return dict(zip(parties, endings, strict=True))


def written(made):
    """Writes the roster and the identities as users have them, and returns the path of the roster."""
    path = made.folder / "federation.toml"
    made.roster.save(path)
    for party, mine in made.credentials.items():
        mine.create(made.folder / f"{party}.identity")
    return path
