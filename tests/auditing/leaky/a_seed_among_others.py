"""A masked vector, and the seed of its mask behind another one."""

from leaky._base import Bytes, Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    ring, seed = suite.ring, suite.seed()
    own = ring.encode(update)
    suite.mask(own, plus=[seed])
    await tell(link, Vector(memoryview(ring.pack(own))))
    await tell(link, Bytes(suite.seed().reveal() + seed.reveal()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Bytes)
