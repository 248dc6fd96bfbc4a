"""A party that waits as long as an entry says."""

from leaky._base import Bytes, averaged, leaky, others

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    patience = 1 if update.vector.dtype == object else 1 + int(update.vector[0] > 0)
    await link.gather(Bytes, others(link), at_least=0, step=0, patience=patience)
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
