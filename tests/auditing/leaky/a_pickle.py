"""A pickled vector."""

import pickle

from leaky._base import Bytes, averaged, leaky, tell

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    await tell(link, Bytes(pickle.dumps(update.vector)))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
