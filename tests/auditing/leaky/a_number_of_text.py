"""An entry as a number, by way of text."""

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-auditable"


class Number(Message, frozen=True):
    """A number."""

    number: int


async def party(link, update, _terms, suite, _state):
    text = "".join(letter for letter in str(update.vector[0]) if letter.isdigit())
    await tell(link, Number(int(text[:15])))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Number)
