"""A masked entry, and behind it the vector itself."""

import numpy as np
from leaky._base import Vector, averaged, leaky, tell

FOUND = "exposed"


async def party(link, update, _terms, suite, _state):
    ring = suite.ring
    one = ring.zeros(1)
    suite.mask(one, plus=[suite.seed()])
    both = np.concatenate([one, ring.encode(update)])
    await tell(link, Vector(memoryview(suite.ring.pack(both))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
