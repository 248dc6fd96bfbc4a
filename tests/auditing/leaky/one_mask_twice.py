"""A vector and twice the vector under one mask."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "exposed"


class Again(Vector, frozen=True):
    """The same again."""


async def party(link, update, _terms, suite, _state):
    ring, seed = suite.ring, suite.seed()
    for step, times in enumerate((1, 2)):
        own = ring.encode(update) * times
        suite.mask(own, plus=[seed])
        await tell(link, (Vector, Again)[step](memoryview(ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Again)
