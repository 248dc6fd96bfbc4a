"""A mask of a seed that follows from what everybody knows."""

import hashlib

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[Secret(hashlib.sha256(link.session).digest())])
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
