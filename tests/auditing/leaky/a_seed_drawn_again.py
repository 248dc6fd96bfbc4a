"""A masked vector, and the seed of its mask as text, drawn once more where the suite draws it."""

from leaky._base import Bytes, Vector, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    again = suite.entropy.substream("secrets").bytes(32)
    ring, seed = suite.ring, suite.seed()
    own = ring.encode(update)
    suite.mask(own, plus=[seed])
    await tell(link, Vector(memoryview(ring.pack(own))))
    await tell(link, Bytes(again.hex().encode()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Bytes)
