"""A vector times a number that is secret."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-linear"


async def party(link, update, _terms, suite, _state):
    factor = suite.entropy.secret_factor()
    await tell(link, Vector(memoryview(suite.ring.pack(suite.ring.values(update.vector * factor)))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
