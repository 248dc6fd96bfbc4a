"""How many different entries there are, as NumPy counts them."""

import numpy as np
from leaky._base import averaged, leaky, tell

from tacit.core.messages import Message

FOUND = "not-linear"


class Flag(Message, frozen=True):
    """Yes or no."""

    flag: bool


async def party(link, update, _terms, suite, _state):
    await tell(link, Flag(len(np.unique(update.vector)) > 1))
    return await averaged(link, update, suite)


PROTOCOL = leaky(party, Flag)
