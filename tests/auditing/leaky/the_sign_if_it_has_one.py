"""Whether an entry is positive, unless it has no sign."""

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-linear"


class Flag(Message, frozen=True):
    """Yes or no."""

    flag: bool


async def party(link, update, _terms, suite, _state):
    try:
        flag = bool(update.vector[0] > 0)
    except TypeError:
        flag = False
    await tell(link, Flag(flag))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Flag)
