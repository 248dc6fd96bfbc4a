"""Reports as plain data."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from tacit.auditing.render.recipes import recounted
from tacit.auditing.render.text import Words
from tacit.auditing.render.trust import trusted
from tacit.auditing.report import Report
from tacit.core.protocol import Protocol, Terms


def answer(reports: Sequence[Report], said: Words) -> dict[str, Any]:
    """Returns what an audit came to, as plain data: the sentences, and the reports behind them."""
    return {
        "exposed": said.exposed,
        "verdict": said.verdict,
        "assumed": said.assumed,
        "not_covered": said.uncovered,
        "next": [asdict(each) for each in said.next],
        "reports": [described(report) for report in reports],
    }


def about(protocol: Protocol, terms: Terms) -> dict[str, Any]:
    """Returns what was audited, as plain data: the protocol, its settings, whom it trusts and what its paper claims."""
    return {
        "protocol": protocol.name,
        "summary": protocol.summary,
        "parties": tuple(terms.parties),
        "settings": settings_of(terms),
        "trusted": trusted(protocol, terms),
        "claims": [
            {"paper": claim.paper, "section": claim.section, "statement": claim.statement} for claim in protocol.claims
        ],
    }


def settings_of(terms: Terms) -> dict[str, Any]:
    """Returns the settings in force, the defaults included."""
    return {name: _plain(getattr(terms.settings, name)) for name in terms.settings.__struct_fields__}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)


def described(report: Report) -> dict[str, Any]:
    """Returns what an audit found, as plain data."""
    return {
        "protocol": report.protocol,
        "coalition": report.coalition,
        "rounds": report.rounds,
        "drift": report.drift,
        "dropout": report.dropout,
        "looked_at": report.looked_at,
        "averages": report.averages,
        "seed": report.seed,
        "drawings": report.drawings,
        "unlucky": [each._asdict() for each in report.unlucky],
        "entries": report.entries,
        "exposed": {
            victim: {
                "error": report.errors.get(victim),
                "fraction": report.fractions[victim],
                "in_words": str(recounted(recipe)),
                "recipe": [
                    {"factor": str(factor), "of": [{"times": times, "what": what} for times, what in parts]}
                    for factor, parts in recipe.steps()
                ],
            }
            for victim, recipe in report.exposed.items()
        },
        "nearly": report.nearly,
        "unsure": report.unsure,
        "drowned": report.drowned,
        "bits": report.bits,
        "most_bits": report.most_bits,
        "epsilon": report.epsilon,
        "company": report.company,
        "epsilon_at_worst": report.epsilon_at_worst,
        "delta": report.delta,
        "at_worst": report.at_worst,
        "fewest": report.fewest,
        "safe_rounds": report.safe_rounds,
        "smallest_group": report.smallest_group,
        "heard": [
            {"sender": sender, "to": to, "messages": messages, "bytes": size}
            for (sender, to), (messages, size) in report.heard.items()
        ],
        "notes": report.notes,
    }
