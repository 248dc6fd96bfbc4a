"""The sign of an entry, if it has one, to a server that announces the sum to all."""

from typing import ClassVar

from leaky._base import others

from tacit.core.average import Average
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, Settings, Terms
from tacit.core.suite import SERVER
from tacit.protocols.shapes.pairs import mask_among

FOUND = "not-auditable"


class Here(Message, frozen=True):
    """A client is there, and something else."""

    flag: bool


class Masked(Message, frozen=True):
    """A part of the sum."""

    vector: memoryview
    per_entry: ClassVar[int] = 8


class Total(Message, frozen=True):
    """The sum."""

    vector: memoryview
    from_server: ClassVar[bool] = True
    per_entry: ClassVar[int] = 8


class StarTerms(Terms):
    """Everybody talks with the server."""

    def peers(self, me):
        """Returns the server, or everybody."""
        return self.parties if me == SERVER else (SERVER,)


class StarSettings(Settings, frozen=True, kw_only=True):
    """Settings with such terms."""

    def bind(self, parties):
        """Returns the terms."""
        return StarTerms(self, parties)


async def client(link, update, _terms, suite, _state):
    flag = update.vector.dtype != object and bool(update.vector[0] > 0)
    await link.send(SERVER, Here(flag))
    own = suite.ring.encode(update)
    mask_among(link, suite, own, others(link), "leaky/mask", link.statement("mask"))
    await link.send(SERVER, Masked(memoryview(suite.ring.pack(own))))
    total = await link.receive(SERVER, Total, patience=4)
    return Average(suite.ring.mean(suite.ring.unpack(total.vector)), link.parties)


async def server(link, _terms, suite, _state):
    await link.gather(Here, link.parties)
    parts = await link.gather(Masked, link.parties)
    total = sum((suite.ring.unpack(part.vector) for part in parts.values()), suite.ring.zeros())
    for party in link.parties:
        await link.send(party, Total(memoryview(suite.ring.pack(total))))
    return Average(suite.ring.mean(total), link.parties)


PROTOCOL = Protocol(
    name="leaky", summary="leaks", settings=StarSettings, messages=(Here, Masked, Total), party=client, server=server
)
