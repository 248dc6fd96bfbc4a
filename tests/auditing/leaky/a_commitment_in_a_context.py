"""A commitment to a seed that is shown, with a vector for its context."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    seed = suite.seed()
    commitment = suite.commit(seed, bytes(suite.ring.pack(suite.ring.encode(update))))
    await tell(link, Bytes(seed.reveal() + commitment))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
