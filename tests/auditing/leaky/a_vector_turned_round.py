"""A packed vector, last byte first."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(bytes(suite.ring.pack(suite.ring.encode(update)))[::-1]))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
