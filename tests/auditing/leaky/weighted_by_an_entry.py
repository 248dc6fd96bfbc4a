"""A vector times one of its entries."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-linear"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.apply_weight(update.vector, update.vector[0])
    await tell(link, Vector(memoryview(suite.ring.pack(suite.ring.values(own)))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
