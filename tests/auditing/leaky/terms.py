"""The terms of a form, or the number if it is none."""

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(str(getattr(update.vector[0], "terms", update.vector[0])).encode()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
