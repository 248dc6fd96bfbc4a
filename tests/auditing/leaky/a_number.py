"""An entry as a number."""

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-linear"


class Number(Message, frozen=True):
    """A number."""

    number: float


async def party(link, update, _terms, suite, _state):
    await tell(link, Number(update.vector[0]))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Number)
