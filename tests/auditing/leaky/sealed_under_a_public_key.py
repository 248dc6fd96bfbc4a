"""A vector, sealed under bytes that all may know."""

from leaky._base import Bytes, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    box = suite.seal(Secret(suite.key_pair().public), bytes(suite.ring.pack(suite.ring.encode(update))), b"")
    await tell(link, Bytes(box))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
