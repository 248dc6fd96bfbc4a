"""Sentences of the audit of a Flower app, and its JSON with the codes beside them."""

from collections.abc import Callable
from typing import Any

from tacit.auditing.findings import Remark, plain_remarks
from tacit.auditing.render.verdicts import name_seed
from tacit.core.average import format_count
from tacit.integrations.flower.auditor.app_audit import FlowerAudit
from tacit.integrations.flower.auditor.app_facts import FEDERATION, Facts
from tacit.integrations.flower.auditor.findings import AppCode, OriginCode, ValueOrigin


def describe_app(found: FlowerAudit) -> dict[str, Any]:
    """Returns everything but the reports as plain data: codes, and the sentences beside them."""
    facts = found.facts
    return {
        "app": found.app,
        "averages": found.averages,
        "read": render_origins(facts, facts.read),
        "assumed": render_origins(facts, facts.assumed),
        "unread": [f"{name} ({render_origin(origin)})" for name, origin in facts.unread.items()],
        "facts": facts.describe(),
        "says": render_findings(found),
        "findings": plain_remarks(found.findings),
    }


# --- findings --------------------------------------------------------------------------------------------------------


def render_findings(found: FlowerAudit) -> list[str]:
    """Returns what the server of an app can learn, in sentences."""
    return [FINDINGS[AppCode(finding.code)](finding, found) for finding in found.findings]


def _describe_unread(finding: Remark, found: FlowerAudit) -> str:
    del finding
    parts = []
    for name, origin in found.facts.unread.items():
        value = found.facts.values[name]
        parts.append(f"{name} ({render_origin(origin)}){'' if value is None else f', assumed to be {value}'}")
    return f"Could not be read, so the following may not hold: {'; '.join(parts)}."


def _describe_sums(finding: Remark, found: FlowerAudit) -> str:
    del found
    sampled, nodes, dropout = finding["sampled"], finding["nodes"], finding["dropout"]
    who = f"{sampled} of {nodes} nodes, sampled in each round" if sampled < nodes else f"all {nodes} nodes"
    lost = f", each dropping out of a round with probability {dropout:g}" if dropout else ""
    return f"The server sees the sum of each round's models, over {who}{lost}."


def _describe_initial_request(finding: Remark, found: FlowerAudit) -> str:
    del found
    gives, asks = ("gives no initial_parameters", "asks") if finding["certain"] else ("may give none", "may ask")
    return (
        f"Before the first round this workflow {asks} one random node for its model, which the server gets unmasked: "
        f"the strategy {gives}. Usually that model is untrained and reveals little, but nothing enforces it. Give the "
        f"strategy initial_parameters, and no node is asked."
    )


def _describe_collusion(finding: Remark, found: FlowerAudit) -> str:
    del found
    how = "reconstruct its secrets from their shares" if finding["by_shares"] else "know all of its masks"
    return (
        f"In a coalition with {format_count(finding['nodes'], 'node')} it can recover the model of any node whose "
        f"neighbours they are: they {how}."
    )


FINDINGS: dict[AppCode, Callable[[Remark, FlowerAudit], str]] = {
    AppCode.NOT_READ: _describe_unread,
    AppCode.MODELS_SEEN: lambda it, found: (
        f"The server sees every model that a node sends: {it['exposed']} of {it['nodes']} nodes within "
        f"{format_count(it['rounds'], 'round')} ({render_origin(found.start)}). TLS protects against eavesdroppers, "
        f"not against the server."
    ),
    AppCode.HIDDEN_BY_TACIT: lambda *_: (
        "With the grid of tacit.flower in the strategy and its mod in the ClientApp, it sees their average alone."
    ),
    AppCode.SUMS_SEEN: _describe_sums,
    AppCode.DIFFERENCES_EXPOSE: lambda it, found: (
        f"Differences of rounds expose {it['exposed']} of {it['nodes']} nodes, the first in round {it['first']} of "
        f"{it['rounds']}{name_seed(found.reports[0])}, if models hardly drift. The server learns less if they drift "
        f"more."
    ),
    AppCode.SUMS_EXPOSE_NOBODY: lambda it, _: (
        f"In {format_count(it['rounds'], 'round')} these sums alone expose nobody's model; the anonymity set has "
        f"{format_count(it['anonymity_set'], 'node')}."
    ),
    AppCode.DROPOUT_WOULD_EXPOSE: lambda *_: (
        "If one node drops out of one of two rounds, their difference is its model: audit again with --dropout."
    ),
    AppCode.COLLUSION: _describe_collusion,
    AppCode.LOW_THRESHOLD: lambda it, _: (
        f"A threshold of {it['threshold']} of {it['shares']} shares lets a malicious server collect both secrets of a "
        f"node from two halves of its neighbours, without colluding nodes; set it above {it['shares'] // 2}."
    ),
    AppCode.GRAPH_CAN_SPLIT: lambda it, _: (
        f"Each node masks with {it['shares'] - 1} others. If {it['shares'] - 1} nodes drop out of a round, "
        f"{it['shares'] // 2} in each of two places of the circle, the mask graph is split, and the server sees the "
        f"sum of each part: set reconstruction_threshold above {it['shares'] // 2 + 1}, with which such a round ends "
        f"without a sum."
    ),
    AppCode.INITIAL_MODEL_REQUEST: _describe_initial_request,
    AppCode.KEYS_NOT_SIGNED: lambda *_: (
        "This holds for an honest-but-curious server. In SecAgg+ keys are not signed, and nodes do not check that all "
        "got the same messages: a malicious server can replace the keys of a node's neighbours by its own, and recover "
        "its model. docs/protocols/secagg.md has what secagg of Tacit does against that."
    ),
    AppCode.METRICS_SEEN: lambda *_: (
        "Metrics and numbers of examples are not masked: the server sees those of each node. Return numbers only."
    ),
    AppCode.FLOWER_NOISE_IGNORED: lambda it, _: (
        f"Differential privacy of Flower ({', '.join(it['names'])}) was not analysed. This audit does not count its "
        f"noise."
    ),
    AppCode.RETURN_DELAYED: lambda *_: (
        "A node that drops out is taken to miss the next round too, as in secagg; in SecAgg+ it is back."
    ),
    AppCode.MESSAGES_CARRIED: lambda *_: (
        "The server carries sealed messages, and sees sender, recipient and size of each."
    ),
    AppCode.SAMPLING_AS_DROPOUTS: lambda *_: (
        "The strategy samples nodes in each round. Nodes that it does not ask are analysed as random dropouts, so "
        "rounds have fewer contributors here, or no sum, where they would not. Have it ask all nodes, and let the "
        "protocol's participation choose, which nodes check."
    ),
    AppCode.NODES_NOT_ANALYSED: lambda *_: (
        "Nodes see the sums too. They were not analysed, because the server alone exposes some of them."
    ),
    AppCode.OVERRIDES_IGNORED: lambda it, _: (
        f"Ignored, because this kind of app does not have it: {', '.join(it['names'])}."
    ),
}


# --- origins ---------------------------------------------------------------------------------------------------------


def render_origins(facts: Facts, origins: dict[str, ValueOrigin]) -> list[str]:
    """Returns values with where each is from, in words."""
    return [f"{name} = {facts.values[name]} ({render_origin(origin)})" for name, origin in origins.items()]


def render_origin(origin: ValueOrigin) -> str:
    """Returns where a value is from, or why it cannot be read, in words."""
    place = f"{origin.path}, line {origin.line}" if origin.path else ""
    return ": ".join(part for part in (place, ORIGINS[origin.code](origin)) if part)


ORIGINS: dict[OriginCode, Callable[[ValueOrigin], str]] = {
    OriginCode.LINE: lambda _: "",
    OriginCode.EXPRESSION: lambda it: it.name,
    OriginCode.CONFIG: lambda it: f"config: {it.name}",
    OriginCode.PYPROJECT: lambda it: f"pyproject.toml: {it.name}",
    OriginCode.ROSTER: lambda _: "on the roster",
    OriginCode.CALLER: lambda _: "given by the caller",
    OriginCode.FLOWER_DEFAULT: lambda _: "Flower's default",
    OriginCode.ALL_SAMPLED: lambda _: "all that are sampled",
    OriginCode.NOT_IN_APP: lambda it: f"not in the app: --{it.name}",
    OriginCode.NOT_GIVEN: lambda _: "it is not given",
    OriginCode.MAY_BE_SET_LATER: lambda it: f"{it.name} may be set after it was given",
    OriginCode.SET_LATER: lambda it: f"{it.name} is set after it was given",
    OriginCode.SEVERAL_STARTS: lambda it: f"there are several: {' and '.join(map(render_origin, it.parts))}",
    OriginCode.REPEATED_CALL: lambda _: "in a loop, or in a function that may be called often",
    OriginCode.CONTEXT_UNKNOWN: lambda _: "the context of the workflow is unknown",
    OriginCode.MOD_NOT_FOUND: lambda it: f"{it.name} was not found in the mods of the ClientApp, or not alone",
    OriginCode.ROSTER_UNREADABLE: lambda it: f"{it.name}, the roster, cannot be read, and it has the settings too",
    OriginCode.ROSTER_NOT_USED: lambda it: f"{it.name} is not read, so settings are the protocol's own",
    OriginCode.ROSTER_CREATED: lambda _: "a roster is made there",
    OriginCode.ROSTER_UNKNOWN: lambda _: "the roster of the grid is unknown",
    OriginCode.CONFIG_CHANGED: lambda _: f"the configuration, with {FEDERATION} in it, may be changed",
    OriginCode.OTHER_ROSTER: lambda it: "; ".join(map(render_origin, it.parts)),
    OriginCode.NAME_SET_IN_APP: lambda it: f"{it.name} is set in the app",
    OriginCode.REFLECTION: lambda _: "this can change anything in ways that are not visible",
    OriginCode.SERVER_UNKNOWN: lambda _: "the ServerApp cannot be identified",
    OriginCode.SERVER_HAS_STRATEGY: lambda _: "the ServerApp runs a strategy of its own",
    OriginCode.SERVER_NOT_FOLLOWED: lambda _: "the server is not followed further",
    OriginCode.SERVER_USE_NOT_FOLLOWED: lambda it: f"the use of .{it.name} of the ServerApp is not followed",
    OriginCode.NO_START: lambda _: "no start of rounds was found",
    OriginCode.OTHER_DECORATOR: lambda it: f"{it.name} has another decorator, which gets the grid",
    OriginCode.BOUND_AGAIN: lambda it: f"{it.name} is bound again",
    OriginCode.GRID_CALL: lambda it: f"it calls .{it.name}",
    OriginCode.GRID_NOT_FOLLOWED: lambda _: "the grid is not followed further",
    OriginCode.GRID_GIVEN_AWAY: lambda it: f"the grid goes to {it.name}, which is not followed",
    OriginCode.WORKFLOW_UNKNOWN: lambda _: "the grid goes to a workflow that is not known completely",
    OriginCode.METRICS: lambda it: f"{it.name} may be more than numbers, and is not masked",
    OriginCode.NOT_SECAGG: lambda it: f"{it.name} is not SecAgg for certain",
}
