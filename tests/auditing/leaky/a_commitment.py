"""A commitment to a vector that takes it for a secret."""

from leaky._base import Bytes, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(suite.commit(Secret(bytes(suite.ring.pack(suite.ring.encode(update)))), b"")))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
