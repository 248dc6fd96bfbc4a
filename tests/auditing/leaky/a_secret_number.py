"""A vector times a secret number."""

from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-linear"


async def party(link, update, _terms, suite, _state):
    number = suite.entropy.secret_number("factor", lambda entropy: 1.0 + entropy.unit())
    await tell(link, Vector(memoryview(suite.ring.pack(suite.ring.values(update.vector * number)))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
