"""Reasons of proposals: what the proposed settings are meant for, in a few words."""

from tacit.auditing.findings import Remark, Sentences
from tacit.core.protocol_facts import ReasonCode


def render_reason(reason: Remark) -> str:
    """Returns what proposed settings are meant for, in a few words."""
    return REASONS[reason.code](reason)


REASONS: Sentences = {
    ReasonCode.DEFAULTS: lambda _: "default settings",
    ReasonCode.BASELINE_WITH_SERVER: lambda _: "the baseline with a server",
    ReasonCode.BASELINE_WITHOUT_SERVER: lambda _: "the baseline without",
    ReasonCode.EVERYBODY: lambda _: "everybody in every round",
    ReasonCode.EVERYBODY_SPARSE: lambda _: "everybody in every round, masks in a sparse graph",
    ReasonCode.ALL_OR_NOTHING: lambda _: "a round counts only if all take part",
    ReasonCode.WHOLE_BATCHES: lambda it: f"{it['per_round']} a round, in whole batches of {it['batch']}",
    ReasonCode.NEIGHBOURS: lambda it: f"among neighbours, at least {it['fewest']} in a sum",
    ReasonCode.ALL_TO_ALL: lambda _: "all to all, masked",
    ReasonCode.GROUPS: lambda it: f"masked groups of {it['size']}",
    ReasonCode.ROTATING: lambda it: f"masked groups of {it['size']} that change every round",
    ReasonCode.COMPLETE_GRAPH: lambda _: "masked, everybody hears everybody",
    ReasonCode.EXPONENTIAL_GRAPH: lambda _: "masked, everybody hears about log n others",
    ReasonCode.OWN: lambda it: str(it["text"]),
}
