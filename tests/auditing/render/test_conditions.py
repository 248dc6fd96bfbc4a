"""Conditions of claims: one for each code, and a protocol's own words."""

from tacit.auditing.render.conditions import CONDITIONS, describe_condition, render_condition
from tacit.core.protocol_facts import ConditionCode, Promise


def test_every_code_has_words():
    assert CONDITIONS.keys() == set(ConditionCode)


def test_a_code_is_rendered_with_its_numbers():
    promise = Promise(False, ConditionCode.GAP, {"gap": 4, "iterations": 5, "most": 7})
    assert render_condition(promise) == "one curious peer, t_g = 4, 5 of 7 iterations"
    assert describe_condition(promise) == {"code": "gap", "gap": 4, "iterations": 5, "most": 7}


def test_a_protocol_may_use_its_own_words():
    promise = Promise(True, "if two nodes are neighbours")
    assert render_condition(promise) == "if two nodes are neighbours"
    assert describe_condition(promise) == {"code": "own"}
