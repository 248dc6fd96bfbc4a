"""A vector that is masked when it is packed, and no longer when it is sent."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    ring, seed = suite.ring, suite.seed()
    own = ring.encode(update)
    suite.mask(own, plus=[seed])
    packed = memoryview(ring.pack(own))
    suite.mask(own, minus=[seed])
    await tell(link, Vector(packed))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
