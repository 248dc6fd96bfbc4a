"""A field as long as an entry says."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    count = 0 if update.vector.dtype == object else int(100 * abs(update.vector[0]))
    await tell(link, Bytes(bytes(count)))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
