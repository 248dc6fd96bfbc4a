"""Lies over several rounds that once worked, found by `tacit attack lies`, played on nodes and searched for again."""

import asyncio

import numpy as np
import pytest

from support.federations import SOON, Made
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import TransportError
from tacit.core.suite import SERVER, Update
from tacit.lab.attacks.lies.programs import PROGRAM, STATE
from tacit.lab.attacks.lies.sequences import SequenceCase, SequenceSearch
from tacit.net.store.round_store import RoundStore

pytestmark = pytest.mark.long

NAMES = "abcd"


# --- the average on disk is tied to its lineage --------------------------------------------------------------------


def test_an_average_is_restored_with_its_own_lineage(tmp_path, monkeypatch):
    """The state is on disk when the sum is, and the average later. In between a machine may fail, or its disk be full.

    A new roster gives the round up, keeps its state, and finds the average of the round before.
    """
    made = Made.of(tmp_path, "secagg", list(NAMES), SOON)
    finish = RoundStore.finish

    def fail(store, *given):
        if store.party == "a":
            raise TransportError("the disk is full")
        finish(store, *given)

    async def play_two_rounds():
        async with made.nodes() as nodes:
            for value in (1.0, 8.0):
                if value == 8.0:
                    monkeypatch.setattr(RoundStore, "finish", fail)
                updates = {party: None if party == SERVER else Update(np.full(4, value)) for party in nodes}
                rounds = (node.average(updates[party]) for party, node in nodes.items())
                await asyncio.wait_for(asyncio.gather(*rounds, return_exceptions=True), 60)

    asyncio.run(play_two_rounds())
    monkeypatch.undo()
    renewed = made.roster.renew(SystemEntropy())

    async def restore(party):
        """Does what `Peer.restore` does."""
        node = made.node(party, renewed)
        await node.start()
        try:
            _, average, lineage, _ = node.load_adopted()
            return average.tolist(), lineage
        finally:
            await node.close()

    (mine, signed), (theirs, signed_by_them) = (asyncio.run(restore(party)) for party in "ab")
    np.testing.assert_allclose(theirs, 8.0, atol=1e-5)
    assert signed != signed_by_them or np.allclose(mine, theirs, atol=1e-5), (mine, theirs)


@pytest.mark.slow
def test_the_search_finds_no_restored_average_of_another_lineage():
    assert [str(each) for each in SequenceSearch(SequenceCase("the roster is renewed"), 3).breaks()] == []


# --- an interrupted round of changes is finished on top of any model -----------------------------------------------


def test_the_search_finds_no_change_on_top_of_an_older_model():
    assert [str(each) for each in SequenceSearch(SequenceCase(changes=True), 3).breaks()] == []


# --- a sum is a model under one roster and a change under the next -------------------------------------------------


@pytest.mark.parametrize("driver", [STATE, PROGRAM])
def test_a_sum_of_models_has_another_lineage_than_a_sum_of_changes(driver):
    assert [str(each) for each in SequenceSearch(SequenceCase("models become changes", driver), 2).breaks()] == []
