"""Tables and sentences for the results of audits, plans and attacks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.app.terminal.narrow_table import FixedLines, make_table
from tacit.app.terminal.verdict_layout import arrange_result, format_command
from tacit.auditing.findings import AttackVerdict, GapCode, Remark
from tacit.auditing.questions import Question, averaging
from tacit.auditing.render.assumptions import GAPS, StepText
from tacit.auditing.render.epsilon import describe_epsilon
from tacit.auditing.render.json_report import describe_verdict
from tacit.auditing.render.notes import render_note
from tacit.auditing.render.plan import LEGEND, describe_lost_rounds, describe_proposal, name_verdict
from tacit.auditing.render.sparse import format_entries
from tacit.auditing.render.verdicts import (
    ATTACK_VERDICTS,
    RECIPE,
    describe_coverage,
    describe_omissions,
    explain_terms,
    render_summary,
)
from tacit.auditing.report import Report
from tacit.auditing.search.planner import Plan, Proposal
from tacit.auditing.summary import Summary
from tacit.core.average import format_count, list_names
from tacit.core.suite import SERVER
from tacit.integrations.flower.auditor.app_audit import FlowerAudit
from tacit.integrations.flower.auditor.render import describe_app
from tacit.lab.attacks.attack_result import Attack, Finding, group_by_measure
from tacit.protocols import REGISTRY

MOST_ROWS = 20
"""Coalitions, and parties, up to which a matrix fits a terminal."""
MOST_BROKEN = 3
"""Broken targets up to which a verdict names each."""
ALIKE = 3
"""The fewest coalitions with equal results that share a row."""


# --- audits --------------------------------------------------------------------------------------------------------


def render_audit(summary: Summary, settings: str = "") -> RenderableType:
    """Returns the verdict, who can recover whose vector, one coalition per row, and what the verdict assumes.

    Args:
        summary: The findings.
        settings: The settings in force, in one line, if they are known.
    """
    reports, first = summary.reports, summary.reports[0]
    learnt = any(report.victims for report in reports)
    table = make_table("adversary", "learns the vectors of")
    # Columns without content are left out.
    headings = (
        ["first in\nround"] * learnt + ["anonymity\nset", "bits of\nan entry"] + ["recipe off\nby at most"] * learnt
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for label, cells in _rows(reports, learnt):
        table.add_row(label, *cells)
    title = Text(f"{first.protocol}, {len(first.parties)} parties: {describe_coverage(first.coverage)}\n")
    notes = dict.fromkeys(render_note(note) for report in reports for note in report.notes)
    omitted = dict.fromkeys(describe_omissions(report.coverage) for report in reports)
    text = render_summary(summary)
    return arrange_result(
        text.verdict,
        *([Text(f"{settings}\n")] if settings else []),
        title,
        table,
        Text(""),
        _terms(reports, learnt),
        *_epsilon(reports),
        *_matrix(reports),
        *_recipe(reports),
        *(Text(f"\nNote: {note}.") for note in notes),
        *(Text(f"\nCoverage, {each}.") for each in omitted),
        *_describe_traffic(reports),
        alarming=summary.exposed,
        assumptions=text.assumptions,
        gaps=text.gaps,
        steps=text.steps,
    )


def _terms(reports: Sequence[Report], learnt: bool) -> RenderableType:
    """Returns explanations of the headings."""
    first = reports[0]
    meant = explain_terms(first.most_bits, learnt)
    if learnt:
        exact = max((error for report in reports for error in report.proof_errors.values()), default=None)
        meant[RECIPE] += f"; without noise, off by at most {exact:.0e}" if first.noise and exact is not None else ""
    grid = Table.grid(padding=(0, 2))
    for name, what in meant.items():
        grid.add_row(Text(name), Text(what))
    return grid


def render_flower(found: FlowerAudit, summary: Summary) -> RenderableType:
    """Returns what the server of a Flower app learns, the evidence for that, and the audit."""
    app = describe_app(found)
    told = [Text(f"{key.capitalize()}: {'; '.join(app[key])}.") for key in ("read", "assumed") if app[key]]
    says = [Text(f"\n{sentence}") for sentence in app["says"]]
    return Group(Text(f"{found.app} averages by: {found.averages}"), *told, *says, Text(""), render_audit(summary))


def _rows(reports: Sequence[Report], learnt: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields a row for each coalition, or one row for several with equal results."""
    told = [(", ".join(report.coalition), _cells(report, learnt), len(report.coalition)) for report in reports]
    for (cells, size), group in groupby(told, key=lambda each: each[1:]):
        names = [name for name, _, _ in group]
        if len(names) < ALIKE or names[0] == SERVER:
            yield from ((name, cells) for name in names)
        elif size == 1:
            numbered = names[0][:1] == "p" and names[0][1:].isdigit()  # "north to south" would not say who is between
            yield f"{f'{names[0]} to {names[-1]}' if numbered else list_names(names)}, each", cells
        else:
            yield f"all {len(names)} from {names[0]} to {names[-1]}", cells


def _cells(report: Report, learnt: bool) -> tuple[str, ...]:
    named = report.victims
    others = len(set(report.parties) - set(report.coalition))
    whole = all(report.fractions.get(victim, 0.0) == 1.0 for victim in named)
    listed = ", ".join(_victim(report, victim) for victim in named) or "nobody"
    rest = "parties" if others == len(report.parties) else "others"
    learns = f"all {others} {rest}" if len(named) == others > 2 and whole else listed
    group, bits = str(report.smallest_group), f"{max(report.bits.values()):.1f}" if report.bits else ""
    if not learnt:
        return learns, group, bits
    off = f"{max(report.errors.values()):.0e}" if report.errors else ""
    return learns, str(report.safe_rounds + 1) if named else "", group, bits, off


def _victim(report: Report, victim: str) -> str:
    """Returns a victim's name and, if its vector is not exposed completely and exactly, to what extent it is."""
    if victim in report.nearly:
        return f"{victim} (nearly, {report.bits[victim]:.1f} bits)"
    if report.sparse is not None:
        return f"{victim} ({format_entries(report.sparse.by_victim.get(victim, 0.0))} entries)"
    fraction = report.fractions.get(victim, 1.0)
    return victim if fraction == 1.0 else f"{victim} ({fraction:.0%})"


def _epsilon(reports: Sequence[Report]) -> Iterator[Text]:
    """Yields the ε of the noise, if there is noise."""
    if told := describe_epsilon(reports):
        yield Text(f"\n{told}")


def _recipe(reports: Sequence[Report]) -> Iterator[Text]:
    """Yields the shortest recipe as an example."""
    recipes = [(report, recipe) for report in reports for recipe in report.exposed.values()]
    if recipes:
        report, recipe = min(recipes, key=lambda each: len(str(each[1])))
        yield Text(f"\nFor example, {', '.join(report.coalition)} can compute\n  {recipe}")


def _matrix(reports: Sequence[Report]) -> Iterator[RenderableType]:
    """Yields the exposed parties by coalition, as a matrix if it is small enough, otherwise as a list."""
    parties = reports[0].parties
    if (
        not 2 <= len(reports) <= MOST_ROWS
        or len(parties) > MOST_ROWS
        or not any(report.worst.victims for report in reports)
    ):
        return
    names = [", ".join(report.coalition) for report in reports]
    margin, wide = max(map(len, names)), max(map(len, parties))
    lines = [f"{'':{margin}} {' '.join(f'{party:>{wide}}' for party in parties)}"]
    for name, report in zip(names, reports, strict=True):
        cells = (f"{_cell(report, party):>{wide}}" for party in parties)
        lines.append(f"{name:{margin}} {' '.join(cells)}")
    title = "\nWho is exposed (█ all, ▒ some entries or nearly) to whom:\n\n"
    listed = [f"to {name}: {_list_exposed(report)}" for name, report in zip(names, reports, strict=True)]
    yield FixedLines(title + "\n".join(lines), title + "\n".join(listed))


def _list_exposed(report: Report) -> str:
    """Returns the parties exposed to a coalition, each with its mark in the matrix."""
    marked = [f"{_cell(report, party)} {party}" for party in report.victims]
    return ", ".join(marked) or "nobody"


def _cell(report: Report, party: str) -> str:
    if party in report.coalition:
        return ""
    fraction = report.fractions.get(party, 0.0)
    return "█" if fraction == 1.0 else "▒" if fraction or party in report.nearly else "·"


def _describe_traffic(reports: Sequence[Report]) -> Iterator[Text]:
    for report in reports:
        if report.heard:
            messages = sum(count for count, _ in report.heard.values())
            size = sum(size for _, size in report.heard.values())
            yield Text(
                f"\nThe eavesdropper heard {format_count(messages, 'message')} on "
                f"{format_count(len(report.heard), 'link')}, {size:,} bytes in all."
            )


# --- attacks -------------------------------------------------------------------------------------------------------


def render_attacks(listed: Sequence[Attack]) -> RenderableType:
    """Returns the list of attacks."""
    table = make_table("attack", "what it does", "paper")
    for each in listed:
        table.add_row(each.name, each.summary, each.paper)
    return Group(table, Text("\nTo run one:"), format_command(f"tacit attack {listed[0].name}"))


def describe_finding(finding: Finding) -> dict[str, Any]:
    """Returns the result of an attack on one target as plain data."""
    code = finding.verdict
    return {**asdict(finding), "verdict": ATTACK_VERDICTS[code], "verdict_code": code.value}


def render_findings(results: Sequence[Finding]) -> RenderableType:
    """Returns the results of an attack, one target per row, grouped by measure."""
    parts: list[RenderableType] = []
    broken = [finding.target for finding in results if finding.verdict is AttackVerdict.BROKEN]
    for some in group_by_measure(results):
        table, measure, bracket = make_table("target"), some[0].measure, some[0].bracket
        for heading in ("measured", *([bracket] if bracket else []), some[0].tried):
            table.add_column(heading.replace(", ", ",\n"), justify="right")
        table.add_column("verdict")
        for finding in some:
            between = [f"{finding.low:.3g} to {finding.high:.3g}"] if bracket else []
            tries = f"{finding.samples:,}" if finding.samples > 1 or not bracket else ""
            table.add_row(finding.target, f"{finding.value:.3g}", *between, tries, ATTACK_VERDICTS[finding.verdict])
        parts += [Text(f"{measure}\n", "bold"), table, Text()]
    tried = format_count(len(results), "target")
    named = f": {', '.join(broken)}" if 1 <= len(broken) <= MOST_BROKEN else ""
    verdict = f"The attack breaks {len(broken)} of {tried}{named}." if broken else ""
    return arrange_result(
        verdict or f"The attack breaks none of {tried}.",
        *parts[:-1],
        assumptions=(
            "broken: the attack does what the target is there to prevent.",
            "Some targets are weak on purpose: the attack must break them, or it would prove nothing.",
        ),
        gaps=("Other attacks. A target that is not broken by this one may be broken by another.",),
    )


# --- plans ---------------------------------------------------------------------------------------------------------


def describe_plan(proposed: Plan) -> dict[str, Any]:
    """Returns a plan as plain data: codes, sentences, and the next commands."""
    told = [
        {
            **describe_verdict(proposal),
            "command": make_question(proposed, proposal).command,
            "python": averaging(proposal.protocol, proposal.options),
        }
        for proposal in proposed.proposals
    ]
    return {**asdict(proposed), "proposals": told}


def make_question(proposed: Plan, proposal: Proposal) -> Question:
    """Returns the question that repeats the audit of a proposal, as far as it was analysed."""
    colluding, coalition, size = proposed.coalition_size, None, None
    if colluding > 1 and REGISTRY[proposal.protocol].server is not None:
        coalition = (SERVER, *(f"p{place}" for place in range(colluding - 1)))
    elif colluding > 1:
        size = colluding
    coverage = proposal.coverage
    return Question(
        proposal.protocol,
        proposed.parties,
        proposal.options,
        coalition,
        size,
        rounds=max(coverage.rounds, 1),
        drift="free" if proposal.needs_drift else "static",
        dropout=coverage.dropout,
    )


def render_plan(proposed: Plan) -> RenderableType:
    """Returns the proposals, those that hold first, with the next commands for each usable one."""
    table = make_table("", "protocol", "what for")
    table.add_column("MB a party\na round", justify="right")
    table.add_column(f"--noise for\nε ≤ {proposed.epsilon:g}", justify="right")
    table.add_column("verdict")
    for place, proposal in enumerate(proposed.proposals, start=1):
        cost, noise = f"{proposal.bytes_per_party / 1e6:.2f}", f"{proposal.noise:.3g}"
        table.add_row(
            str(place),
            proposal.protocol,
            proposal.why,
            cost,
            noise,
            _name_verdict(proposal),
        )
    title = Text(
        f"{proposed.parties} parties, any {proposed.coalition_size} colluding, "
        f"{format_count(proposed.rounds, 'round')}, dropout probability {proposed.dropout:g}, "
        f"{format_count(proposed.entries, 'entry', 'entries')}\n"
    )
    listed = proposed.proposals
    return arrange_result(
        _summarize_plan(proposed),
        title,
        table,
        assumptions=(
            *LEGEND,
            f"--noise for ε: the setting noise with norm=1, for ε ≤ {proposed.epsilon:g} of one user's vector at "
            f"δ = {proposed.delta:g} over all {format_count(proposed.rounds, 'round')}, in the worst case of dropouts. "
            f"For another norm, multiply it by that norm. To audit it, add --noise and --set norm=1 to a command below "
            f"and ask for --rounds {proposed.rounds}.",
        ),
        gaps=[
            GAPS[each.code](each)
            for each in (
                Remark.of(GapCode.AVERAGE),
                Remark.of(GapCode.MALICIOUS, searchable=True),
                Remark.of(GapCode.PRIOR_KNOWLEDGE),
                Remark.of(GapCode.METADATA),
            )
        ],
        steps=[step for place, each in enumerate(listed, start=1) for step in _list_steps(proposed, each, place)],
    )


def _name_verdict(proposal: Proposal) -> str:
    return name_verdict(proposal.verdict, proposal.needs_drift, proposal.without_dropouts)


def _summarize_plan(proposed: Plan) -> str:
    """Returns the verdict of a plan: how many proposals have which verdict, a line each, and the first of all."""
    listed = proposed.proposals
    against = format_count(proposed.coalition_size, "curious party", "colluding parties")
    counts = Counter((_name_verdict(each), each.verdict) for each in listed if each.fine)
    lines = [f"{format_count(len(listed), 'proposal')} against {against}:"]
    lines += [f"{count:>3}  {name}" for (name, _), count in counts.items()]
    leaking = sum(not each.fine for each in listed)
    lines += [f"{leaking:>3}  leaks, or was not audited"] * bool(leaking)
    best = next((each for each in listed if each.fine), None)
    lines.append(
        "None can be recommended." if best is None else f"First choice: {best.protocol}: {_name_verdict(best)}."
    )
    return "\n".join(lines)


def _list_steps(proposed: Plan, proposal: Proposal, place: int) -> Iterator[StepText]:
    """Yields the commands that audit a proposal again, with what its verdict rests on, and the call that averages."""
    if not proposal.fine:
        return
    lost = describe_lost_rounds(proposal)
    question = make_question(proposed, proposal)
    reason = f"{place}  {proposal.protocol}: {describe_proposal(proposal)}{f'; {lost}' if lost else ''}"
    yield StepText(f"{reason}. Audit it", question.command)
    if question.coalition is not None:
        every = replace(question, coalition=None, coalition_size=proposed.coalition_size)
        yield StepText("the same without the server in the coalition", every.command)
    yield StepText("in Python (vectors: a list, or a dict by party)", averaging(proposal.protocol, proposal.options))
