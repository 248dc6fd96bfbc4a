"""A table in an order that an entry decides."""

from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-auditable"


class Table(Message, frozen=True):
    """A table."""

    table: dict[str, int]


async def party(link, update, _terms, suite, _state):
    names = ["left", "right"]
    if update.vector.dtype != object and update.vector[0] > 0:
        names = names[::-1]
    await tell(link, Table(dict.fromkeys(names, 1)))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Table)
