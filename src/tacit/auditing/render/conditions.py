"""Conditions of papers' claims: why a claim applies to the setting and coalition of an audit."""

from typing import Any

from tacit.auditing.findings import Remark, Sentences
from tacit.core.average import format_count
from tacit.core.protocol_facts import ConditionCode, Promise


def render_condition(promise: Promise) -> str:
    """Returns the conditions under which a claim applies, in a few words."""
    if not isinstance(promise.condition, ConditionCode):
        return promise.condition
    return CONDITIONS[promise.condition](Remark.of(promise.condition, **promise.facts))


def describe_condition(promise: Promise) -> dict[str, Any]:
    """Returns the conditions as plain data: a code, and the numbers that belong to it."""
    code = promise.condition if isinstance(promise.condition, ConditionCode) else "own"
    return {"code": str(code), **promise.facts}


CONDITIONS: Sentences = {
    ConditionCode.ONE_NODE_ONE_ROUND: lambda _: "one curious node, in one round",
    ConditionCode.COLLUDING_NODES: lambda it: f"k = {it['k']}, and {it['size']} nodes that collude",
    ConditionCode.SERVER_ONE_ROUND: lambda _: "the server alone, in one round",
    ConditionCode.BATCHES: lambda it: f"batches of T = {it['batch']}, {format_count(it['rounds'], 'round')}",
    ConditionCode.PRIVATE_EAVESDROPPER: lambda _: "private=true, and an eavesdropper",
    ConditionCode.ALL_TO_ALL: lambda it: f"all to all, {it['iterations']} iterations",
    ConditionCode.GAP: lambda it: f"one curious peer, t_g = {it['gap']}, {it['iterations']} of {it['most']} iterations",
}
