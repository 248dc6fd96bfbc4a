"""A vector, masked with one mask for all entries, last entry first."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "exposed"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)[: len(update.vector)]
    mask = suite.stream(suite.seed(), own, 1)
    own[:-1] += mask[0]
    own = own[::-1].copy()
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
