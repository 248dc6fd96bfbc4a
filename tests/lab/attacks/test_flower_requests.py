"""Requests of a Flower server that nodes once signed alike, found by `tacit attack lies`, on the deployed driver."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from support.flower_fleet import NODES, Trial, asked, carried
from tacit.lab.attacks.lies.flower_messages import FlowerSearch

pytestmark = pytest.mark.long

ENTRIES = 12
LIVE, DEAD = np.zeros(ENTRIES // 2), np.full(ENTRIES // 2, 1e6)
BASE = {
    "arrays": ArrayRecord({"w": Array(LIVE), "v": Array(DEAD)}),
    "config": ConfigRecord({"server-round": 1, "rate": 0.1}),
}
SIGNED_ALIKE = {
    "the same arrays in another order": {"arrays": ArrayRecord({"v": Array(DEAD), "w": Array(LIVE)})},
    "configuration as metrics": {"config": MetricRecord({"server-round": 1, "rate": 0.1})},
    "one more record without arrays": {"more": ArrayRecord()},
}


def ask_one_otherwise(tmp_path, odd, run=None):
    """Sends one node something else than the others, as bytes; returns whom the round left out."""
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    fleet.contexts[NODES + 2].run_config = run or {}
    messages = []
    for place, message in enumerate(asked(fleet, ENTRIES, 1)):
        content = carried(RecordDict({**BASE, **(odd if place == 2 else {})}))
        messages.append(Message(content, dst_node_id=message.metadata.dst_node_id, message_type="train"))
    grid = trial.grid(fleet)
    list(grid.send_and_receive(messages))
    assert grid.last is not None
    return grid.lost


@pytest.mark.parametrize("odd", SIGNED_ALIKE)
def test_nodes_do_not_mask_with_a_node_that_was_sent(tmp_path, odd):
    assert ask_one_otherwise(tmp_path, SIGNED_ALIKE[odd]) == {"p2": "behind"}


def test_nodes_do_not_mask_with_a_node_whose_run_is_configured_otherwise(tmp_path):
    assert ask_one_otherwise(tmp_path, {}, run={"rate": 0.0}) == {"p2": "behind"}


def test_the_same_message_to_all_is_no_reason_to_leave_anybody_out(tmp_path):
    assert ask_one_otherwise(tmp_path, {}) == {}


def test_the_search_finds_no_requests_that_are_signed_alike():
    assert [str(each) for each in FlowerSearch().breaks()] == []
