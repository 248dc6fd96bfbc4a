"""A message to whom an entry says."""

from leaky._base import Bytes, averaged, leaky, others

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    place = 0 if update.vector.dtype == object else int(update.vector[0] > 0)
    await link.send(others(link)[place], Bytes(b""))
    await link.gather(Bytes, others(link), at_least=0)
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
