"""A masked vector, and the seed of its mask in two fields."""

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-auditable"


class Seed(Message, frozen=True):
    """What the mask follows from."""

    left: bytes
    right: bytes


async def party(link, update, _terms, suite, _state):
    ring, seed = suite.ring, suite.seed()
    own = ring.encode(update)
    suite.mask(own, plus=[seed])
    await tell(link, Vector(memoryview(ring.pack(own))))
    await tell(link, Seed(seed.reveal()[:16], seed.reveal()[16:]))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Seed)
