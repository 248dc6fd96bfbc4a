"""A vector that is masked if it is not of floats."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    mask = own * 0
    suite.mask(mask, plus=[suite.seed()])
    if not isinstance(update.vector[0], float):
        own = own + mask
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
