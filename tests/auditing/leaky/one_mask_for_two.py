"""Two masks that are one on numbers: of a key for packed zeros, which are other bytes each time on symbols only."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-auditable"


class Again(Vector, frozen=True):
    """The same again."""


async def party(link, update, _terms, suite, _state):
    ring = suite.ring
    for kind, times in ((Vector, 1), (Again, 2)):
        own = ring.encode(update) * times
        suite.mask(own, plus=[suite.pairwise(link.parties[-1], "leaky/one", bytes(ring.pack(ring.zeros())))])
        await tell(link, kind(memoryview(ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Again)
