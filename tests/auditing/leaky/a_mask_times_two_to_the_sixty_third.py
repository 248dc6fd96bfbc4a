"""A mask of which the ring leaves one bit."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    mask = suite.stream(suite.seed(), own, len(own))
    for _ in range(63):
        mask = mask + mask
    own = own + mask
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
