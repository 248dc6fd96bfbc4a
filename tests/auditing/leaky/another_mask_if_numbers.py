"""A vector under a mask that is known, if it is of numbers."""

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own, seed = suite.ring.encode(update), suite.seed()
    suite.mask(own, plus=[seed if own.dtype == object else Secret(bytes(32))])
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
