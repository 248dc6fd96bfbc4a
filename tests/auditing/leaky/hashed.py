"""The hash of an entry."""

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-linear"


class Flag(Message, frozen=True):
    """Yes or no."""

    flag: bool


async def party(link, update, _terms, suite, _state):
    await tell(link, Flag(hash(update.vector[0]) % 2 == 0))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Flag)
