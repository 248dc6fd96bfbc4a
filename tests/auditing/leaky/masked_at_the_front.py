"""A vector of which only the first entry is masked."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "exposed"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    own[:1] += suite.stream(suite.seed(), own, 1)
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
