"""Sentences of notes and refusals."""

from collections.abc import Sequence

from tacit.auditing.findings import NoteCode, Remark, Sentences
from tacit.auditing.render.arguments import render_argument
from tacit.auditing.render.recipes import join_names
from tacit.auditing.render.sparse import describe_entries, render_selections
from tacit.auditing.report import Report
from tacit.core.average import format_count
from tacit.core.errors import ErrorText
from tacit.core.protocol import Settings
from tacit.core.protocol_facts import PrivacyArgument, Remedy
from tacit.core.suite import Party


def render_note(note: Remark) -> str:
    """Returns a note in words, without a full stop."""
    return NOTES[note.code](note)


def _describe_too_long(note: Remark) -> str:
    not_audited, name = "not audited, because an audit would take long; run: tacit audit", note["argument"]
    if not name:
        return not_audited
    statement = render_argument(name, dict(note.parameters), note["statement"])
    return f"{not_audited}; known without (docs/claims.md, {name}): {statement}"


def _describe_static_exposure(note: Remark) -> str:
    return (
        f"if models stayed static for {note['rounds']} rounds, {' and '.join(note['members'])} could recover the "
        f"vectors of {', '.join(note['victims'])}"
    )


NOTES: Sentences = {
    NoteCode.ROUNDS_NOT_ANALYSED: lambda it: (
        f"only {format_count(it['analysed'], 'round was', 'rounds were')} analysed, because "
        f"{', '.join(it['members'])} learns more than sums"
    ),
    NoteCode.NO_AVERAGE: lambda it: f"no round ended with an average ({it['error']})",
    NoteCode.LOST_IN_ROUNDING: lambda it: (
        f"{', '.join(it['parties'])} could be recovered from numbers with more digits, but not from {it['bits']} bits "
        f"per entry, because rounding hides the difference"
    ),
    NoteCode.ONLY_SUMS: lambda _: (
        "all messages of one round were analysed; for the other rounds the sums suffice, because a round reveals "
        "nothing but its sum"
    ),
    NoteCode.NOT_REPLAYED: lambda _: (
        "the recipes were not tried on recorded messages, because the cryptography would take too long"
    ),
    NoteCode.UNMASKED_WITHOUT_RECIPE: lambda _: (
        "rounds in which enough members meet to remove everybody's masks have no recipe"
    ),
    NoteCode.REPLAY_FAILED: lambda it: (
        f"the recipes for {', '.join(it['parties'])} gave other values when tried on recorded messages"
    ),
    NoteCode.NOISE_OF_ONE: lambda _: (
        "over several rounds ε counts one party's noise, because others pass on what the coalition did not see"
    ),
    NoteCode.TOO_LONG: _describe_too_long,
    NoteCode.NOT_LINEAR: lambda it: f"not audited: {it['error']}",
    NoteCode.PARTLY_NOT_LINEAR: lambda it: f"not audited in full: {it['error']}",
    NoteCode.FAILED: lambda it: f"not audited: {it['error']}",
    NoteCode.COALITIONS_SAMPLED: lambda it: (
        f"{it['analysed']:,} of {it['coalitions']:,} coalitions of {it['size']} were analysed; run: tacit audit"
    ),
    NoteCode.SELECTIONS: render_selections,
    NoteCode.EXPOSED_IF_STATIC: _describe_static_exposure,
    NoteCode.WORST_CASE_SKIPPED: lambda it: (
        f"the worst case of dropouts was not analysed for {it['skipped']} of {it['coalitions']} coalitions"
    ),
}


def render_refusal(
    report: Report, settings: Settings, missing: Sequence[Party] = (), sample: Sequence[Party] = ()
) -> str:
    """Returns why settings are refused, and what to change.

    Args:
        report: The report that shows the exposure.
        settings: The refused settings.
        missing: The parties that drop out in the worst case, if the exposure needs that.
        sample: The contributors that the server samples in the worst case, if the exposure needs that.
    """
    if len(report.parties) == 2:
        return "the average of two parties shows each the other's vector; try: add a party"
    victims = [*report.exposed, *report.nearly]
    whose = f"the vector of {victims[0]}" + (f" and {len(victims) - 1} more" if len(victims) > 1 else "")
    cure = _describe_cure(settings.remedy(dropouts=bool(missing or sample)))
    if report.sparse is not None and report.victims:
        whose += f", {describe_entries(report.sparse)}"
    when = ""
    if missing:
        when = f" if {missing[0]} " + (f"and {len(missing) - 1} more drop out" if len(missing) > 1 else "drops out")
    if sample:
        when = f" if the server samples {join_names(sample)}"
    known = f" once it knows {join_names(report.known_draws)}" if report.known_draws else ""
    return f"{report.protocol} would show {' and '.join(report.coalition)} {whose}{known}{when}; try: {cure}"


def render_unaudited(note: Remark) -> str:
    """Returns why settings are refused that were neither audited nor proved safe, and what to do.

    Args:
        note: The note that says why there was no audit.
    """
    why, cure = ErrorText.parse(render_note(note)).message, "use a protocol that can be audited (see tacit plan)"
    if note.code is NoteCode.TOO_LONG:
        why = "not audited, because an audit would take long and no argument (docs/claims.md) covers these settings"
        cure = "use smaller or other settings (see tacit plan)"
    return f"{why}; try: {cure}"


def render_argued_refusal(protocol: str, argument: PrivacyArgument, settings: Settings) -> str:
    """Returns why settings are refused that leak according to an argument, and what to change.

    Args:
        protocol: The name of the protocol.
        argument: The argument.
        settings: The refused settings.
    """
    statement = render_argument(argument.name, argument.facts, argument.statement)
    return (
        f"{protocol} would show vectors (docs/claims.md, {argument.name}): {statement}; try: "
        f"{_describe_cure(settings.remedy(dropouts=False))}"
    )


def _describe_cure(remedy: Remedy | None) -> str:
    if remedy is None:
        return "use other settings (see tacit plan)"
    return f"use a larger {remedy.option}" if remedy.value is None else f"use {remedy.option}={remedy.value!r}"


def render_preflight(protocol_server: bool, adversary: int, notes: Sequence[Remark]) -> list[str]:
    """Returns the result of a preflight audit that refused nothing, and its notes.

    Args:
        protocol_server: whether the protocol has a server.
        adversary: the number of colluding parties.
        notes: the notes of the preflight audit.
    """
    who = "no party" if adversary == 1 else f"no {adversary} parties together"
    server = ", nor the server," if protocol_server else ""
    nobody = f"audited: {who}{server} can recover another party's vector in a round, also in the worst case of dropouts"
    return [nobody, *map(render_note, notes)]
