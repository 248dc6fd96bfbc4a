"""One of two seeds, as an entry says."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    seeds = suite.seed(), suite.seed()
    place = 0 if update.vector.dtype == object else int(update.vector[0] > 0)
    await tell(link, Bytes(seeds[place].reveal()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
