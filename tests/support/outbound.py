"""Federations of parties that only dial out, with a relay if there is no server, and what has to come of them."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import numpy as np

from support.federations import Made, free_ports
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import SERVER
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import Deadlines
from tacit.net.relay_node import RelayNode
from tacit.net.transport.peer_link import PeerLink

LONG = 90
"""Seconds after which something that should have ended has not."""
PATIENT = Deadlines(phase=60.0, start=60.0, connect=5.0)
"""Where nobody is missing, however busy the machine is."""


def outbound(made, *listening):
    """Returns a roster on which only some have addresses."""
    return made.moved({name: "" for name in made.everyone if name not in listening})


POST = "post"
"""The name of the relay."""


def record_posts(monkeypatch):
    """Returns a dict that all that is sent comes into, by address."""
    found, honest = {}, PeerLink.send

    def send(link, frame, number, arrived):
        found[frame.address] = frame.data
        honest(link, frame, number, arrived)

    monkeypatch.setattr(PeerLink, "send", send)
    return found


async def until(true):
    """Waits until something is true."""
    async with asyncio.timeout(LONG):
        while not true():
            await asyncio.sleep(0.02)


def assert_simulated(made, entries, endings, posted=None):
    """Asserts that rounds ended as the simulator's do, with the same envelopes."""
    envelopes = {}
    for ended, played in zip(endings, made.played(entries, len(endings)), strict=True):
        envelopes |= {each.envelope.address: each.envelope.sealed for each in played.transcript}
        for party, ending in ended.items():
            assert ending.error is None
            narrow = np.float32 if party == SERVER else np.float64
            assert np.array_equal(ending.average, played.endings[party].average.astype(narrow))
            assert ending.contributors == played.endings[party].contributors
    if posted is not None:
        assert {address: data[-len(envelopes[address]) :] for address, data in posted.items()} == envelopes


def relayed(folder, protocol, parties, deadlines=PATIENT, listening=(), **options):
    """Returns a federation whose parties only dial out, but for some, with a relay on its roster."""
    made = Made.of(folder, protocol, parties, deadlines, **options)
    made.credentials[POST] = Credentials.generate(POST, SeededEntropy("relay"))
    card = made.credentials[POST].card(f"127.0.0.1:{free_ports(1)[0]}")
    made.roster = msgspec.structs.replace(
        made.moved({name: "" for name in made.roster.names if name not in listening}), relays=(card,)
    )
    return made


@asynccontextmanager
async def running(made, parties=None, relay=True):
    """Gives nodes and their relay, started, and ends them."""
    post = RelayNode(made.roster, made.credentials[POST])
    try:
        if relay:
            await post.start()
        async with made.nodes(parties or made.roster.names) as nodes:
            yield nodes, post
    finally:
        await post.close()
