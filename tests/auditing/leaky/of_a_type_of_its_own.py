"""A packed vector as an extension type of msgpack."""

from typing import ClassVar

import msgspec
from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "exposed"


class Extended(Message, frozen=True):
    """Something of a type of its own."""

    data: msgspec.msgpack.Ext
    per_entry: ClassVar[int] = 20


async def party(link, update, _terms, suite, _state):
    await tell(link, Extended(msgspec.msgpack.Ext(7, bytes(suite.ring.pack(suite.ring.encode(update))))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Extended)
