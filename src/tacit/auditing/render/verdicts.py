"""Sentences of an audit's verdict, and all sentences together.

A table without exposures alone reads as "private", whatever the question was. So every view of an audit, on paper, on a
page or in a terminal, ends with these sentences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.auditing.findings import (
    AttackVerdict,
    ClaimVerdict,
    Coverage,
    Remark,
    UndecidedCode,
    Verdict,
)
from tacit.auditing.render.assumptions import GAPS, StepText, describe_part, render_assumption, render_step
from tacit.auditing.render.coalitions import capitalize, count_parties, join_members, name_coalition
from tacit.auditing.render.patterns import describe_patterns
from tacit.auditing.render.recipes import join_names
from tacit.auditing.render.sparse import describe_entries, describe_selections
from tacit.auditing.report import Report
from tacit.auditing.summary import Summary, largest_coalition
from tacit.core.average import format_count
from tacit.core.suite import SERVER, Party

MOST_NAMED = 6
"""The largest number of parties that a sentence names."""

ANONYMITY_SET = "anonymity set"
BITS = "bits of an entry"
RECIPE = "recipe"

HEADLINES = {
    Verdict.EXPOSED: "Exposed",
    Verdict.EXPOSED_IN_WORST_CASE: "Exposed in the worst case",
    Verdict.NEARLY_EXPOSED: "Nearly exposed",
    Verdict.UNDECIDED: "Undecided",
    Verdict.NOTHING_FOUND: "No exposure found",
    Verdict.HOLDS: "Holds",
    Verdict.LEAKS_BY_DESIGN: "Leaks by design",
    Verdict.NOT_AUDITED: "Not audited",
}
DRIFT_CONDITION = "as long as models drift"
UNAVERAGED = {Verdict.LEAKS_BY_DESIGN: "everybody, to whoever has the data", Verdict.HOLDS: "nobody"}
"""Exposure in a few words where no protocol averages: all data in one place, or every party alone."""
ATTACK_VERDICTS = {AttackVerdict.BROKEN: "broken", AttackVerdict.NOT_BROKEN_BY_THIS: "not broken by this"}
CLAIM_VERDICTS = {
    ClaimVerdict.NOT_APPLICABLE: "",
    ClaimVerdict.CLAIMED: "claimed",
    ClaimVerdict.HOLDS: "holds here",
    ClaimVerdict.REFUTED: "refuted here",
}


def explain_terms(most_bits: float, recipes: bool) -> dict[str, str]:
    """Returns explanations of the terms of a report, without full stops.

    Args:
        most_bits: The number of bits that represent an entry.
        recipes: Whether the report has recipes.
    """
    meant = {
        ANONYMITY_SET: (
            "the smallest group in which a vector can hide; 1 means somebody stands out, even if no vector is fully "
            "recovered"
        ),
        BITS: (
            f"the most that is known of a number of a vector; 0 is nothing, {most_bits:.1f} is the exact number; above "
            f"0.5, somebody stands out"
        ),
    }
    how = "how to compute a vector; each was tried on the recorded messages of a test run"
    return meant | ({RECIPE: how} if recipes else {})


@dataclass(frozen=True)
class AuditText:
    """Sentences of a summary."""

    verdict: str
    assumptions: tuple[str, ...]
    gaps: tuple[str, ...]
    steps: tuple[StepText, ...]


def render_summary(summary: Summary) -> AuditText:
    """Returns the sentences of a summary."""
    return AuditText(
        verdict=render_verdict(summary, assumptions_follow=True),
        assumptions=tuple(map(render_assumption, summary.assumptions)),
        gaps=tuple(GAPS[each.code](each) for each in summary.gaps),
        steps=tuple(map(render_step, summary.steps)),
    )


# --- the verdict ---------------------------------------------------------------------------------------------------


def render_heading(summary: Summary) -> str:
    """Returns the heading of a summary's page: the verdict, and its conditions."""
    within = f" in {describe_part(*summary.part)}" if summary.part is not None else ""
    return f"{HEADLINES[summary.verdict]}{within}{_name_condition(summary)}"


def _name_condition(summary: Summary) -> str:
    """Returns the condition of a verdict that was found for drifting models only; otherwise nothing."""
    assumed = summary.verdict.clear and any(each.rounds > 1 and each.drift != "static" for each in summary.reports)
    return f", {DRIFT_CONDITION}" if summary.needs_drift or assumed else ""


def render_verdict(summary: Summary, *, assumptions_follow: bool = False) -> str:
    """Returns the sentences of a verdict. They refer to the assumptions only if these follow."""
    within = ""
    if summary.part is not None:
        within = f"Analysed: {describe_part(*summary.part)}, and no others. "
    headline = f"{HEADLINES[summary.verdict]}{_name_condition(summary)}"
    return f"{within}{headline}. {_explain_verdict(summary, assumptions_follow)}"


def _explain_verdict(summary: Summary, assumptions_follow: bool) -> str:
    reports, verdict = summary.reports, summary.verdict
    if verdict is Verdict.UNDECIDED:
        return _explain_undecided(summary)
    learning = [report for report in reports if report.worst.victims]
    if verdict.leaks and learning:
        return _explain_exposure(reports, learning, verdict is Verdict.NEARLY_EXPOSED)
    if verdict.leaks:
        worst = next(report for report in reports if report.at_worst)
        return (
            f"If {describe_worst_case(worst)}, {name_coalition(worst.coalition)} can recover "
            f"{_name_victims(worst, worst.at_worst or ())}. No exposure found otherwise."
        )
    below = " below" if assumptions_follow else " of the audit"
    nobody, standing = _name_nobody(reports), _describe_standing(reports)
    if verdict is Verdict.HOLDS:
        every = f"in every case under the assumptions{below}"
        return f"{capitalize(nobody)} recover another party's vector, {every}.{standing}"
    return (
        f"In what was analysed, {nobody} recover another party's vector. This is not a proof; it rests on the "
        f"assumptions{below}.{standing}"
    )


def _describe_standing(reports: Sequence[Report]) -> str:
    """Returns a warning if an anonymity set is 1, although no vector is recovered."""
    alone = min((report.smallest_group for report in reports), default=0) == 1
    return f" A vector stands out: {ANONYMITY_SET} 1." if alone else ""


def _explain_undecided(summary: Summary) -> str:
    if summary.undecided is not None:
        return render_undecided(summary.undecided)
    # There are several rounds here, because a single round leaves nothing to compare.
    unsure = max(summary.reports, key=lambda report: len(report.unsure))
    return (
        f"With {len(unsure.parties)} parties the analysis cannot compute what is known of vectors that drift or have "
        f"noise. If they were static, {name_coalition(unsure.coalition)} could recover "
        f"{_name_victims(unsure, unsure.unsure)}, first in round {unsure.safe_rounds + 1}."
    )


def render_undecided(reason: Remark) -> str:
    """Returns why a verdict is undecided, if the reports do not contain the reason."""
    if reason.code is UndecidedCode.APP_NOT_READ:
        given = [f"--set {name}=…" for name in reason["settable"]]
        cure = f"set it: {' '.join(given)}" if given else "change the app so that its source says it"
        return f"The app's source does not show {', '.join(reason['names'])}; {cure}."
    if reason.code is UndecidedCode.SAMPLING_NOT_ANALYSED:
        return f"The strategy samples {reason['sampled']} of {reason['nodes']} nodes itself, which was not analysed."
    return "If nodes drop out, rounds may show sums of few of them."


def _explain_exposure(reports: Sequence[Report], learning: Sequence[Report], nearly: bool) -> str:
    """Returns who recovers whose vector, for the worst seed that was tried."""
    worst = max(learning, key=lambda report: (len(report.worst.victims), -report.worst.safe_rounds))
    name, whose = name_coalition(worst.coalition), _name_victims(worst, worst.worst.victims)
    when = f", first in round {worst.worst.safe_rounds + 1}" if worst.rounds > 1 else ""
    often = _count_patterns(worst)
    can, almost = ("can learn", " almost exactly") if nearly else ("can recover", "")
    if len(learning) == 1:
        return f"{capitalize(name)} {can} {whose}{almost}{when}.{_explain_others(reports)}{often}"
    acting = "adversaries, each acting alone," if largest_coalition(reports) == 1 else "coalitions"
    verb = can.removeprefix("can ") + ("s" if len(worst.coalition) == 1 else "")
    return (
        f"{len(learning)} of {len(reports)} {acting} {can} another party's vector{almost}. Worst: {name} {verb} "
        f"{whose}{almost}{when}.{often}"
    )


def _count_patterns(report: Report) -> str:
    """Returns with how many random patterns a coalition recovers a vector; nothing if only one was tried."""
    if report.seeds_tried <= 1:
        return ""
    exposing = len(report.exposing_seeds) + bool(report.victims)
    many = "all expose" if exposing == report.seeds_tried else f"{exposing} expose{'s' if exposing == 1 else ''}"
    tried = describe_patterns(report.seeds_tried, bool(report.dropout), report.known_draws)
    return f" {tried}; {many} somebody."


def _explain_others(reports: Sequence[Report]) -> str:
    """Returns what other coalitions learn besides the only one that recovers a vector."""
    late = [report for report in reports if report.at_worst and not report.worst.victims]
    if late:
        return (
            f" In the worst case, a round with only {late[0].fewest} contributors, {_name_late(late)} can recover "
            f"another party's vector too."
        )
    return "" if len(reports) == 1 else " No other exposure found."


def _name_late(late: Sequence[Report]) -> str:
    """Returns the coalitions that recover a vector in the worst case only."""
    parties = late[0].parties
    if len(late) == 1:
        return name_coalition(late[0].coalition)
    if all(len(report.coalition) == 1 and report.coalition[0] in parties for report in late):
        return (
            f"each of the {len(late)} parties"
            if len(late) == len(parties)
            else f"{len(late)} of {len(parties)} parties"
        )
    return f"{len(late)} other coalitions"


def name_seed(report: Report) -> str:
    """Returns which of several seeds exposes most; nothing if only one was tried."""
    return f" (seed {report.worst.seed}, which exposes most of {report.seeds_tried})" if report.seeds_tried > 1 else ""


def describe_worse_seed(report: Report) -> str:
    """Returns what the worst seed exposes, if it exposes more than the seed of a report."""
    worst = report.worst_other_seed
    if worst is None:
        return ""
    when = f", first in round {worst.safe_rounds + 1}" if report.rounds > 1 else ""
    name = capitalize(name_coalition(report.coalition))
    return f"{name} can recover {_name_victims(report, worst.victims)}{when}{name_seed(report)}."


def _name_nobody(reports: Sequence[Report]) -> str:
    if len(reports) == 1:
        return f"{name_coalition(reports[0].coalition)} cannot"
    server, largest = any(SERVER in report.coalition for report in reports), largest_coalition(reports)
    if largest == 1:
        return "neither the server nor any single party can" if server else "no single party can"
    with_server = f"neither any {largest} parties nor the server and {count_parties(largest - 1)} can"
    return with_server if server else f"no {largest} parties can"


def _name_victims(report: Report, exposed: Sequence[Party]) -> str:
    others = len(set(report.parties) - set(report.coalition))
    rest = "parties" if others == len(report.parties) else "others"
    some = "" if report.sparse is None or not report.victims else f" in part ({describe_entries(report.sparse)})"
    if len(exposed) == 1:
        return f"the vector of {exposed[0]}{some}"
    if len(exposed) == others:
        return f"the vectors of all {others} {rest}{some}"
    named = ", ".join(exposed) if len(exposed) <= MOST_NAMED else f"{len(exposed)} of {others} parties"
    return f"the vectors of {named}{some}"


def describe_worst_case(report: Report) -> str:
    """Returns what happens in the worst case of dropouts and samples, as a condition."""
    contributors = report.worst_contributors or ()
    if len(report.worst_samples) > 2:
        some = join_names({party for sample in report.worst_samples for party in sample})
        each = len(report.worst_samples[0])
        return f"the server samples every {each} of {some}, in {len(report.worst_samples)} rounds"
    if report.worst_samples:
        return f"the server samples {', and in another round '.join(map(join_names, report.worst_samples))}"
    return f"dropouts leave only {len(contributors)} contributors"


def summarize_exposure(reports: Sequence[Report]) -> str:
    """Returns in a few words how many parties the worst coalition exposes, and who is in it, for the worst seed."""
    worst = max(reports, key=lambda report: len(report.worst.victims))
    if not worst.worst.victims:
        late = next((report for report in reports if report.at_worst), None)
        return "nobody" if late is None else f"nobody, unless {describe_worst_case(late)}"
    others = len(worst.parties) - len(set(worst.coalition) & set(worst.parties))
    some = "" if worst.sparse is None else f" in {describe_entries(worst.sparse)}"
    return f"{len(worst.worst.victims)} of {others} to {' and '.join(worst.coalition)}{some}"


def render_run(summary: Summary) -> str:
    """Returns in a few words which parties are exposed in a run, and under which conditions."""
    drifting = f", {DRIFT_CONDITION}" if summary.needs_drift else ""
    within = f", in {describe_part(*summary.part)}" if summary.part is not None else ""
    return f"{summarize_exposure(summary.reports)}{drifting}{within}"


def render_headline(coalition: Sequence[Party], victims: Mapping[Party, int], rounds: int, anonymity_set: int) -> str:
    """Returns one sentence about a coalition, for a verdict without proof.

    Args:
        coalition: the members.
        victims: the parties whose vectors it recovers, each with the first round in which it does.
        rounds: the number of rounds that it observes.
        anonymity_set: the fewest parties whose contributions it cannot tell apart.
    """
    name, one = capitalize(join_members(coalition)), len(coalition) == 1
    if victims:
        when = f", from round {min(victims.values())} on" if rounds > 1 else ""
        return f"{name} can recover the model of {join_names(victims)}{when}."
    over = "one round" if rounds == 1 else f"{rounds} rounds"
    hidden = f"; the anonymity set has {anonymity_set} parties" if anonymity_set > 1 else ""
    return f"{name} {'recovers' if one else 'recover'} nobody's model in {over}{hidden}."


# --- coverage ------------------------------------------------------------------------------------------------------


def describe_coverage(coverage: Coverage) -> str:
    """Returns what an audit covered."""
    if coverage.rounds_analysed < coverage.rounds:
        rounds = f"{coverage.rounds_analysed} of {coverage.rounds} rounds"
    else:
        rounds = format_count(coverage.rounds, "round")
    if coverage.rounds_with_average < coverage.rounds_analysed:
        rounds += f", {coverage.rounds_with_average} of them with an average"
    models = f"models that drift by {coverage.drift} per round"
    if isinstance(coverage.drift, str):
        models = "models that do not change" if coverage.drift == "static" else "new models in every round"
    dropouts = f"dropout probability {coverage.dropout:g}" if coverage.dropout else "no dropouts"
    if coverage.faults:
        dropouts = f"{format_count(coverage.faults, 'injected fault')}" + (f", {dropouts}" if coverage.dropout else "")
    seeds = ""
    if coverage.seeds:
        worst = "the worst of " if coverage.worst_seed and coverage.seeds > 1 else ""
        seeds = f", {worst}{format_count(coverage.seeds, 'random pattern')}"
    every = "one number stands for all numbers of a vector"
    entries = every if coverage.sparse is None else describe_selections(coverage.sparse)
    fewest = coverage.fewest
    worst = "" if fewest is None else f"; also the worst case, one round with only {fewest} contributors"
    return f"{rounds}, {models}, {dropouts}{seeds}; {entries}{worst}"


def describe_omissions(coverage: Coverage) -> str:
    """Returns what an audit left out of the question."""
    if coverage.exhaustive:
        proof = f"; the argument “{coverage.argument}” (docs/claims.md) covers what was not computed"
        return f"left out: nothing of the question{'' if coverage.computed else proof}"
    left = []
    if coverage.rounds_analysed < coverage.rounds:
        left.append(f"{format_count(coverage.rounds - coverage.rounds_analysed, 'later round')}")
    if coverage.seeds:
        left.append(f"other {'patterns of dropouts' if coverage.dropout else 'random patterns'}")
    if coverage.uncompared:
        left.append("rounds with different contributors")
    if coverage.sparse is not None and not coverage.sparse.exact:
        left.append("other selections of entries")
    if not coverage.worst_case:
        left.append("the worst case of dropouts")
    return f"left out: {', '.join(left) or 'what the notes say'}"
