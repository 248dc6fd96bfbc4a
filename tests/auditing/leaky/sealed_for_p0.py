"""A packed vector, sealed for p0 as it is and not as a message."""

from leaky._base import Bytes, averaged, leaky, others

FOUND = "exposed"


async def party(link, update, _terms, suite, _state):
    if link.me != "p0":
        key = suite.pairwise("p0", "leaky/seal", b"")
        await link.send("p0", Bytes(suite.seal(key, bytes(suite.ring.pack(suite.ring.encode(update))), b"")))
    else:
        await link.gather(Bytes, others(link))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
