"""A party that gives up if an entry says so."""

from leaky._base import Bytes, averaged, leaky, tell

from tacit.core.errors import ConfigError

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    if update.vector.dtype != object and update.vector[0] > 0:
        raise ConfigError("no")
    await tell(link, Bytes(b""))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
