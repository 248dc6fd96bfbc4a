"""A vector that is kept as bytes for a round, and then sent."""

from leaky._base import Bytes, averaged, leaky, tell

from tacit.core.protocol import State

FOUND = "not-auditable"
ROUNDS = 2


class Kept(State, frozen=True):
    """What was brought last."""

    before: bytes = b""


async def party(link, update, _terms, suite, state):
    await tell(link, Bytes(state.before))
    await link.save(Kept(update.vector.tobytes()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Bytes, state=Kept)
