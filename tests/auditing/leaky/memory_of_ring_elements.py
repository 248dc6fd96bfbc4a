"""The memory of an encoded vector, in a field of bytes."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(suite.ring.encode(update).tobytes()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
