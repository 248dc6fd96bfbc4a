"""A packed vector in a table, under a key that is one as well."""

from typing import ClassVar

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "exposed"


class Table(Message, frozen=True):
    """A table."""

    table: dict[bytes, bytes]
    per_entry: ClassVar[int] = 20


async def party(link, update, _terms, suite, _state):
    ring = suite.ring
    await tell(link, Table({bytes(ring.pack(ring.zeros())): bytes(ring.pack(ring.encode(update)))}))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Table)
