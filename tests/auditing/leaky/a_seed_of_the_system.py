"""A mask of a seed that nobody can account for."""

import os

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[Secret(os.urandom(32))])
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
