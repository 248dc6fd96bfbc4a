"""Leaks by `ring.magnitudes`, of protocols that say that they select entries: the order is shown, and nothing else."""

import numpy as np
from leaky._base import Bytes, tell
from leaky.tables._table import REFUSED, Leaks, Sparse

from tacit.protocols.shapes.neighbourhood import GraphState

LEAKS = Leaks()


@LEAKS.tells(settings=Sparse)
def ratios_of_magnitudes(update, suite, _link):
    sizes = suite.ring.magnitudes(update.vector)
    return bytes((100 * sizes / sizes.max()).astype(int).tolist())


@LEAKS.tells(settings=Sparse)
def the_logarithm_of_the_largest(update, suite, _link):
    return b"%d" % int(np.log2(suite.ring.magnitudes(update.vector).max() + 1e-9))


@LEAKS.tells(settings=Sparse)
def positions_above_one(update, suite, _link):
    return bytes(np.flatnonzero(suite.ring.magnitudes(update.vector) > 1.0).tolist())


@LEAKS.tells(settings=Sparse)
def positions_above_the_clip(update, suite, _link):
    return bytes(np.flatnonzero(suite.ring.magnitudes(update.vector) > 32.0).tolist())


@LEAKS.tells(settings=Sparse)
def positions_below_a_millionth(update, suite, _link):
    return bytes(np.flatnonzero(suite.ring.magnitudes(update.vector) < 1e-6).tolist())


@LEAKS.tells(settings=Sparse)
def positions_above_the_mean(update, suite, _link):
    sizes = suite.ring.magnitudes(update.vector)
    return bytes(np.flatnonzero(sizes > sizes.mean()).tolist())


async def since_last_round(link, update, suite, state, tells):
    """Tells p0 something of how far entries came."""
    changes = suite.ring.magnitudes(update.vector, state.since)
    await tell(link, Bytes(tells(changes)))
    await link.save(GraphState(suite.ring.dump_vector(update.vector)))


@LEAKS.add(REFUSED, Bytes, rounds=2, settings=Sparse, state=GraphState)
async def ratios_of_changes(link, update, suite, state):
    await since_last_round(link, update, suite, state, lambda sizes: str((sizes / sizes.max()).round(6)).encode())


@LEAKS.add(REFUSED, Bytes, rounds=2, settings=Sparse, state=GraphState)
async def ratios_of_changes_in_percent(link, update, suite, state):
    await since_last_round(
        link, update, suite, state, lambda sizes: bytes((100 * sizes / sizes.max()).astype(int).tolist())
    )


@LEAKS.add(REFUSED, Bytes, rounds=2, settings=Sparse, state=GraphState)
async def positions_that_changed_by_more_than_one(link, update, suite, state):
    await since_last_round(link, update, suite, state, lambda sizes: bytes(np.flatnonzero(sizes > 1.0).tolist()))
