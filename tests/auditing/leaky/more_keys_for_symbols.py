"""A vector that has one more mask if it is of symbols."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[suite.seed() for _ in range(1 + (own.dtype == object))])
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
