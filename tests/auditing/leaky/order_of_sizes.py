"""Which entries are larger than others."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(bytes(suite.ring.magnitudes(update.vector).argsort().tolist())))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
