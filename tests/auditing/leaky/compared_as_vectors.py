"""Whether a vector is the same last entry first."""

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-linear"


class Flag(Message, frozen=True):
    """Yes or no."""

    flag: bool


async def party(link, update, _terms, suite, _state):
    await tell(link, Flag(bool((update.vector == update.vector[::-1]).all())))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Flag)
