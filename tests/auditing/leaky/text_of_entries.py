"""The entries of a vector as text."""

from typing import ClassVar

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-auditable"


class Text(Message, frozen=True):
    """Words."""

    text: str
    per_entry: ClassVar[int] = 100


async def party(link, update, _terms, suite, _state):
    await tell(link, Text(" ".join(update.vector.astype(str))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Text)
