"""Reasons of proposals: one for each code, and a protocol's own words."""

from dataclasses import replace

import tacit
from tacit.auditing.render.json_report import describe_verdict
from tacit.auditing.render.reasons import REASONS
from tacit.auditing.search.planner import candidates
from tacit.core.protocol_facts import ProposedSettings, ReasonCode
from tacit.protocols import REGISTRY


def test_every_code_has_words():
    assert REASONS.keys() == set(ReasonCode)


def test_shipped_protocols_give_codes_and_no_text():
    for parties in (4, 12, 70):
        assert {type(proposed.why) for _, proposed in candidates(parties, 1)} == {ReasonCode}


def test_json_has_the_code_beside_the_words(monkeypatch):
    own = replace(
        REGISTRY["gossip"], name="own", propose=lambda *_: (ProposedSettings({"graph": "ring"}, "among friends"),)
    )
    monkeypatch.setitem(REGISTRY, "own", own)
    told = {each.protocol: describe_verdict(each) for each in tacit.plan(4, rounds=1, dropout=0).proposals}
    assert told["own"]["why"] == "among friends"
    assert told["own"]["reason"] == {"code": "own", "text": "among friends"}
    assert told["fedavg"]["why"] == "the baseline with a server"
    assert told["fedavg"]["reason"] == {"code": "baseline_with_server"}
    assert told["cesar"]["reason"] == {"code": "neighbours", "fewest": 2}
