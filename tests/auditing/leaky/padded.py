"""A vector behind a zero."""

import numpy as np
from leaky._base import Vector, averaged, leaky, tell

FOUND = "exposed"


async def party(link, update, _terms, suite, _state):
    padded = np.concatenate([suite.ring.zeros(1), suite.ring.encode(update)])
    await tell(link, Vector(memoryview(suite.ring.pack(padded))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
