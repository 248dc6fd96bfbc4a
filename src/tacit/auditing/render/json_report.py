"""JSON of reports and summaries: stable codes, with the sentences beside them.

`verdict`, `assumed`, `not_covered`, `next`, `looked_at` and `notes` are sentences, for people. Programs read
`verdict_code`, `assumptions`, `gaps`, `coverage` and `note_codes`, which keep their values when a sentence is reworded.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tacit.auditing.findings import Accounting, plain_remarks
from tacit.auditing.render.epsilon import describe_accounting
from tacit.auditing.render.formulas import list_terms
from tacit.auditing.render.notes import render_note
from tacit.auditing.render.plan import describe_lost_rounds, describe_proposal, name_verdict
from tacit.auditing.render.recipes import describe_recipe
from tacit.auditing.render.settings import list_settings
from tacit.auditing.render.sparse import render_exposed_entries
from tacit.auditing.render.trust import describe_trust
from tacit.auditing.render.verdicts import describe_coverage, describe_omissions, render_heading, render_summary
from tacit.auditing.report import Report
from tacit.auditing.search.planner import Proposal
from tacit.auditing.summary import Summary
from tacit.core.protocol import Protocol, Terms
from tacit.privacy.epsilon_bounds import EpsilonBound

FORMAT = 2
"""Version of the JSON of an audit. Version 1, of Tacit 0.2, has no version number and no codes."""


def describe_summary(summary: Summary) -> dict[str, Any]:
    """Returns the findings of an audit as plain data: codes, sentences, and the reports behind them."""
    text = render_summary(summary)
    return {
        "format": FORMAT,
        "exposed": summary.exposed,
        "verdict_code": summary.verdict.value,
        "needs_drift": summary.needs_drift,
        "heading": render_heading(summary),
        "verdict": text.verdict,
        "assumed": text.assumptions,
        "assumptions": plain_remarks(summary.assumptions),
        "not_covered": text.gaps,
        "gaps": plain_remarks(summary.gaps),
        "next": [
            {"code": step.code.value, **asdict(words)} for step, words in zip(summary.steps, text.steps, strict=True)
        ],
        "reports": [describe_report(report) for report in summary.reports],
    }


def describe_subject(protocol: Protocol, terms: Terms, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns what was audited as plain data: the protocol, its settings, its trust assumptions and its paper's claims.

    Args:
        protocol: The protocol.
        terms: The terms that were audited.
        given: The options of the question; None if the terms are those of a run.
    """
    return {
        "protocol": protocol.name,
        "summary": protocol.summary,
        "parties": tuple(terms.parties),
        "settings": list_settings(terms, given),
        "trusted": describe_trust(protocol, terms),
        "claims": [
            {"paper": claim.paper, "section": claim.section, "statement": claim.statement} for claim in protocol.claims
        ],
    }


def describe_report(report: Report) -> dict[str, Any]:
    """Returns the report on one coalition as plain data."""
    return {
        "verdict_code": report.verdict.value,
        "coverage": report.coverage.plain(),
        "protocol": report.protocol,
        "coalition": report.coalition,
        "rounds": report.rounds,
        "drift": report.drift,
        "dropout": report.dropout,
        "looked_at": describe_coverage(report.coverage),
        "left_out": describe_omissions(report.coverage),
        "averages": report.averages,
        "seed": report.seed,
        "drawings": report.seeds_tried,
        "unlucky": [each._asdict() for each in report.exposing_seeds],
        "entries": report.entries,
        "sparse": None
        if report.sparse is None
        else {**report.sparse.plain(), "in_words": render_exposed_entries(report.sparse)},
        "exposed": {
            victim: {
                "error": report.errors.get(victim),
                "error_without_noise": report.proof_errors.get(victim),
                "fraction": report.fractions[victim],
                "in_words": str(describe_recipe(recipe)),
                "recipe": [
                    {"factor": str(factor), "of": [{"times": times, "what": what} for times, what in parts]}
                    for factor, parts in list_terms(recipe)
                ],
            }
            for victim, recipe in report.exposed.items()
        },
        "nearly": report.nearly,
        "unsure": report.unsure,
        "drowned": report.drowned,
        "noise": report.noise,
        "bits": report.bits,
        "most_bits": report.most_bits,
        "epsilon": report.epsilon,
        "epsilon_bound": _name_bound(report.epsilon_bound),
        "accounting": None if report.accounting is None else _describe_accounting(report.accounting),
        "company": report.company,
        "epsilon_at_worst": report.epsilon_at_worst,
        "epsilon_bound_at_worst": _name_bound(report.epsilon_bound_at_worst),
        "delta": report.delta,
        "at_worst": report.at_worst,
        "fewest": report.fewest,
        "worst_contributors": report.worst_contributors,
        "worst_samples": report.worst_samples,
        "safe_rounds": report.safe_rounds,
        "smallest_group": report.smallest_group,
        "heard": [
            {"sender": sender, "to": to, "messages": messages, "bytes": size}
            for (sender, to), (messages, size) in report.heard.items()
        ],
        "notes": list(map(render_note, report.notes)),
        "note_codes": plain_remarks(report.notes),
    }


def _describe_accounting(accounting: Accounting) -> dict[str, Any]:
    """Returns how ε was computed as plain data: codes, the figures behind them, and the sentence beside them."""
    bounds = {"by_sums": accounting.by_sums, "by_matrix": accounting.by_matrix, "view_only": accounting.view_only}
    return {
        "method": accounting.method.value,
        "gap": None if accounting.gap is None else accounting.gap.value,
        "victim": accounting.victim,
        "leverage": accounting.leverage,
        **{name: None if bound is None else bound.epsilon for name, bound in bounds.items()},
        "in_words": describe_accounting(accounting),
    }


def _name_bound(bound: EpsilonBound | None) -> str | None:
    """Returns the code of what proves a bound on ε."""
    return None if bound is None else bound.kind.value


def describe_verdict(proposal: Proposal) -> dict[str, Any]:
    """Returns a proposal of a plan as plain data: the verdict's code and condition, and the sentences beside them."""
    coverage = asdict(proposal.coverage)
    return {
        **asdict(proposal),
        "noise": proposal.noise,
        "why": proposal.why,
        "reason": proposal.reason.plain(),
        "verdict": name_verdict(proposal.verdict, proposal.needs_drift, proposal.without_dropouts),
        "verdict_code": proposal.verdict.value,
        "looked": coverage,
        "coverage": coverage,
        "told": describe_proposal(proposal),
        "spared": describe_lost_rounds(proposal),
    }
