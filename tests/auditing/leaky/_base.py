"""What leaky protocols share: an average that shows nothing but the sum. Each adds something that shows more to p0."""

from typing import ClassVar

from tacit.core.average import Average
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, Settings, State
from tacit.core.suite import Suite, Update
from tacit.protocols.shapes.pairs import mask_among


class Part(Message, frozen=True):
    """A masked part of the sum."""

    vector: memoryview
    per_entry: ClassVar[int] = 8


class Vector(Message, frozen=True):
    """A packed vector of any length."""

    vector: memoryview
    per_entry: ClassVar[int] = 40


class Bytes(Message, frozen=True):
    """Any bytes."""

    data: bytes
    per_entry: ClassVar[int] = 200


def others(link: Link) -> list[str]:
    """Returns everybody else."""
    return [party for party in link.parties if party != link.me]


async def tell(link: Link, message: Message, *, step: int = 0) -> None:
    """Sends a message to p0, and lets p0 hear those of the others."""
    if link.me != "p0":
        await link.send("p0", message, step=step)
    else:
        await link.gather(type(message), others(link), step=step)


async def averaged(link: Link, update: Update, suite: Suite) -> Average:
    """Returns the average, of which everybody sees the sum."""
    ring = suite.ring
    own = ring.encode(update)
    mask_among(link, suite, own, others(link), "leaky/mask", link.statement("mask"))
    for party in others(link):
        await link.send(party, Part(memoryview(ring.pack(own))))
    received = await link.gather(Part, others(link))
    total = sum((ring.unpack(part.vector) for part in received.values()), own)
    return Average(ring.mean(total), link.parties)


def leaky(party, *messages: type[Message], state: type[State] = State, settings: type[Settings] = Settings) -> Protocol:
    """Returns a protocol of a coroutine and what it says besides parts of the sum."""
    return Protocol(
        name="leaky", summary="leaks", settings=settings, messages=(Part, *messages), party=party, state=state
    )
