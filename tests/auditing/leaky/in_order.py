"""A vector in the order of its entries."""

import numpy as np
from leaky._base import Vector, averaged, leaky, tell

FOUND = "not-linear"


async def party(link, update, _terms, suite, _state):
    await tell(link, Vector(memoryview(suite.ring.pack(suite.ring.values(np.sort(update.vector))))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
