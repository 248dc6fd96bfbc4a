"""A packed vector as the key of a table."""

from typing import ClassVar

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "exposed"


class Table(Message, frozen=True):
    """A table."""

    table: dict[bytes, int]
    per_entry: ClassVar[int] = 20


async def party(link, update, _terms, suite, _state):
    await tell(link, Table({bytes(suite.ring.pack(suite.ring.encode(update))): 1}))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Table)
