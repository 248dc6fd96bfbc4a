"""As many messages as an entry says."""

from leaky._base import Bytes, averaged, leaky, others

FOUND = "not-auditable"


async def party(link, update, _terms, suite, _state):
    count = 1 if update.vector.dtype == object else 1 + int(update.vector[0] > 0)
    if link.me != "p0":
        for step in range(count):
            await link.send("p0", Bytes(b""), step=step)
    else:
        await link.gather(Bytes, others(link), at_least=0)
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes)
