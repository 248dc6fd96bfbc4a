"""A vector with its weight and without, under one mask."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-linear"


class Again(Vector, frozen=True):
    """The same again."""


async def party(link, update, _terms, suite, _state):
    ring, seed = suite.ring, suite.seed()
    for kind, own in ((Vector, ring.encode(update)[: len(update.vector)]), (Again, ring.values(update.vector))):
        masked = own.copy()
        suite.mask(masked, plus=[seed])
        await tell(link, kind(memoryview(ring.pack(masked))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Again)
