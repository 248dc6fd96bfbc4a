"""Audit of a training run: its rounds with their injected faults, for the worst seed, as far as the time allows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tacit.api.checked_run import CheckedRun
from tacit.auditing.auditor import WorstSeedAuditor
from tacit.auditing.findings import AssumptionCode, NoteCode, Remark, Verdict
from tacit.auditing.preflight import too_long
from tacit.auditing.questions import Question
from tacit.auditing.render.assumptions import describe_part
from tacit.auditing.render.json_report import FORMAT, describe_subject, describe_summary
from tacit.auditing.render.notes import render_note
from tacit.auditing.render.verdicts import DRIFT_CONDITION, render_run, render_summary
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import CoalitionKind, CoalitionSample, choose_by_size
from tacit.auditing.summary import summarize_reports
from tacit.core.errors import TacitError
from tacit.learn.scenario import Scenario

MOST_SUMS, MOST_REHEARSED = 4_000_000, 1_000
"""Limits if only the sums of rounds are analysed: rounds times the cube of parties, and rounds."""
MOST_WORK, MOST_RUN = 5_000, 16
"""Limits if each round is run in full: messages, shares and masks of all rounds together, and rounds."""


def audit_run(checked: CheckedRun, scenario: Scenario) -> bytes:
    """Returns the contents of a run's `audit.json`: the audit of its rounds, with the injected faults."""
    told: dict[str, Any] = {
        "says": "",
        "format": FORMAT,
        "verdict_code": Verdict.NOT_AUDITED.value,
        **describe_subject(checked.protocol, checked.terms),
        "reports": [],
    }
    try:
        if too_long(checked.protocol, checked.terms):
            told |= _describe_reason(Remark.of(NoteCode.TOO_LONG, argument="", statement=""))
        else:
            told |= _audit_rounds(checked, scenario)
    except TacitError as error:  # For example, the protocol is not linear, or no round has an average.
        told |= _describe_reason(Remark.of(NoteCode.FAILED, error=str(error)))
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


def _describe_reason(reason: Remark) -> dict[str, Any]:
    """Returns why there was no audit, as plain data."""
    return {"says": render_note(reason), "reason": reason.plain()}


def _audit_rounds(checked: CheckedRun, scenario: Scenario) -> dict[str, Any]:
    """Returns what single parties, the server, and coalitions of the scenario's size could learn from a run.

    What nobody learns about static models, nobody learns about drifting ones. So the static case is analysed first.
    Only if it exposes somebody is the run's own case analysed too, and both are reported. As in `tacit audit`, every
    number is for the worst of the tried seeds, which begin with the run's own.
    """
    rounds = _count_rounds(checked, scenario)
    still = Scope(
        checked.protocol,
        checked.terms,
        rounds,
        "static",
        scenario.seed,
        checked.faults,
        length=checked.length,
        dropout=scenario.dropout,
    )
    samples = choose_by_size(still, checked.adversary)
    kinds = [kind for sample in samples for kind in sample.kinds]
    options = {name: value for name, value in scenario.protocol.items() if name != "name"}
    question = Question(
        checked.protocol.name,
        len(still.parties),
        options,
        rounds=rounds,
        drift="static",
        dropout=scenario.dropout,
        length=checked.length if checked.terms.selective else None,
    )
    more: dict[str, Any] = {}
    sums = _rehearsable(checked, scenario)
    auditor = WorstSeedAuditor(still, rehearse=sums)
    found = {kind.coalition: auditor.victims(kind.coalition) for kind in kinds}
    worst = max(found, key=lambda coalition: len(found[coalition]))
    if rounds > 1 and found[worst]:
        alone = replace(question, coalition=worst)
        static = summarize_reports([auditor.report(worst)], alone)
        more["still"] = {
            "verdict": render_summary(static).verdict,
            "verdict_code": static.verdict.value,
            "asked": alone.command,
        }
        question = replace(question, drift="free")
        auditor = WorstSeedAuditor(replace(still, drift="free"), rehearse=sums)
    reports = [auditor.report(kind.coalition) for kind in kinds]
    summary = summarize_reports(reports, question)
    assumptions = [*summary.assumptions, *_sampling_assumptions(samples), *_representatives(kinds)]
    if scenario.faults:
        assumptions.append(Remark.of(AssumptionCode.FAULTS_NOT_REPEATED))
    part = (rounds, scenario.rounds) if rounds < scenario.rounds else None
    if part is not None:
        limited = Remark.of(AssumptionCode.ROUNDS_LIMITED, analysed=rounds, rounds=scenario.rounds)
        assumptions.insert(0, limited)
        more["part"] = describe_part(*part)
    needs_drift = bool(more.get("still")) and summary.verdict.clear
    if needs_drift:
        more["as_long_as"] = DRIFT_CONDITION
    summary = replace(summary, assumptions=tuple(assumptions), part=part, needs_drift=needs_drift)
    return {"says": render_run(summary), **describe_summary(summary), "asked": question.command, **more}


def _count_rounds(checked: CheckedRun, scenario: Scenario) -> int:
    """Returns the number of rounds, from the first one on, that can be analysed quickly."""
    protocol, terms = checked.protocol, checked.terms
    if _rehearsable(checked, scenario):
        cheap = min(MOST_REHEARSED, MOST_SUMS // len(terms.parties) ** 3)
    else:
        steps = max(len(terms.steps(kind)) for kind in protocol.messages)
        cheap = min(MOST_RUN, MOST_WORK // (steps * terms.work))
    return min(scenario.rounds, max(1, cheap))


def _rehearsable(checked: CheckedRun, scenario: Scenario) -> bool:
    """Says whether only the sums of rounds need to be analysed. Faults may show more, which only full rounds show."""
    return checked.protocol.choice is not None and checked.terms.rounds_alike and not scenario.faults


def _sampling_assumptions(samples: Sequence[CoalitionSample]) -> list[Remark]:
    """Yields how many coalitions of each size were analysed, if these do not represent all."""
    return [
        Remark.of(AssumptionCode.COALITIONS_SAMPLED, size=each.size, coalitions=each.coalitions, analysed=each.covered)
        for each in samples
        if not each.exhaustive
    ]


def _representatives(kinds: Sequence[CoalitionKind]) -> list[Remark]:
    """Returns the number of coalitions that each analysed one represents, if it represents several."""
    code = AssumptionCode.REPRESENTATIVE
    return [Remark.of(code, members=kind.coalition, coalitions=kind.many) for kind in kinds if kind.many > 1]
