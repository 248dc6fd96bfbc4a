"""A vector under a mask that follows from a key pair, of which the private half is shown."""

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "exposed"


class Keys(Message, frozen=True):
    """A public key and a private one."""

    ours: bytes
    theirs: bytes


async def party(link, update, _terms, suite, _state):
    ring, ours, theirs = suite.ring, suite.key_pair(), suite.key_pair()
    own = ring.encode(update)
    suite.mask(own, plus=[suite.agree(ours.secret, theirs.public, "leaky/mask", b"")])
    await tell(link, Vector(memoryview(ring.pack(own))))
    await tell(link, Keys(ours.public, theirs.secret.reveal()))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector, Keys)
