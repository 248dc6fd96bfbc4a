"""A party that gives up, and says why in its own words."""

from leaky._base import Bytes, averaged, leaky, tell

from tacit.core.errors import TacitError

FOUND = "not-auditable"


class Own(TacitError):
    """An error with a code of its own."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


async def party(link, update, _terms, suite, _state):
    if link.me == "p1":
        raise Own(str(update.vector[0]))
    await tell(link, Bytes(b""))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
