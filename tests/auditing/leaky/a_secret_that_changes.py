"""A mask of a secret that is another one each time it is looked at."""

from leaky._base import Vector, averaged, leaky, tell

from tacit.core.suite import Secret

FOUND = "not-auditable"


class Fickle(Secret):
    """Bytes, or zeros if they are of numbers."""

    looked = 0

    def reveal(self):
        """Returns the bytes the first time."""
        Fickle.looked += 1
        return super().reveal() if Fickle.looked % 2 else bytes(32)


async def party(link, update, _terms, suite, _state):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[Fickle(suite.seed().reveal())])
    await tell(link, Vector(memoryview(suite.ring.pack(own))))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Vector)
