"""Two packed vectors in one field: one of zeros, one not."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    ring = suite.ring
    await tell(link, Bytes(bytes(ring.pack(ring.zeros())) + bytes(ring.pack(ring.encode(update)))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
