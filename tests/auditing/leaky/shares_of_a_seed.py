"""A masked vector, and enough shares of the seed of its mask."""

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "exposed"


class Seed(Message, frozen=True):
    """What the mask follows from."""

    shares: dict[int, bytes]


async def party(link, update, _terms, suite, _state):
    ring, seed = suite.ring, suite.seed()
    own = ring.encode(update)
    suite.mask(own, plus=[seed])
    await tell(link, Vector(memoryview(ring.pack(own))))
    await tell(link, Seed(suite.share(seed, 2, [1, 2])))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Seed)
