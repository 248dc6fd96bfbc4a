"""A signature for a vector, which tells guesses apart."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(suite.sign(bytes(suite.ring.pack(suite.ring.encode(update))))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
