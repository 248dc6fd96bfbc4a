"""A vector times 2^2203 − 1: a prime, but an odd number in the ring."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = doubled = suite.ring.encode(update)
    for _ in range(2203):
        doubled = doubled + doubled
    own = doubled - own
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
