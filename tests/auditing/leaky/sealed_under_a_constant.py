"""A vector, sealed under a key that is in the source."""

from leaky._base import Bytes, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(suite.seal(Secret(bytes(32)), bytes(suite.ring.pack(suite.ring.encode(update))), b"")))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
