"""Words of a seed that was shown, for a mask."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "exposed"


async def party(link, update, _terms, suite, _state):
    words = suite.words(link.session, len(update.vector)).astype(float) / 2**32
    await tell(
        link, Vector(memoryview(suite.ring.pack(suite.ring.encode(update)[: len(words)] + suite.ring.values(words))))
    )
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
