"""A vector that is masked if it is of symbols."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    mask = own * 0
    suite.mask(mask, plus=[suite.seed()])
    if update.vector.dtype == object:
        own = own + mask
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
