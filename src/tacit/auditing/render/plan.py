"""Sentences of a plan: the verdict on a proposal, its coverage and its cost in rounds."""

from tacit.auditing.findings import PlanCoverage, Verdict
from tacit.auditing.search.planner import Proposal
from tacit.core.average import format_count

VERDICTS = {
    Verdict.EXPOSED: "leaks",
    Verdict.EXPOSED_IN_WORST_CASE: "leaks in the worst case",
    Verdict.NEARLY_EXPOSED: "nearly leaks",
    Verdict.UNDECIDED: "undecided",
    Verdict.NOTHING_FOUND: "nothing found",
    Verdict.HOLDS: "holds",
    Verdict.LEAKS_BY_DESIGN: "leaks by design",
    Verdict.NOT_AUDITED: "not audited",
}
LEGEND = (
    "holds: no coalition of that size recovers a vector.",
    "nothing found: the same, but not everything could be analysed.",
    "if nobody drops out: dropouts were not analysed.",
    "if models drift: the verdict needs new models in every round. If models do not change, vectors are exposed, or "
    "may be.",
)
"""Meaning of the verdicts, one sentence each."""


def name_verdict(verdict: Verdict, needs_drift: bool = False, without_dropouts: bool = False) -> str:
    """Returns the verdict on a proposal in a few words.

    Args:
        verdict: The verdict.
        needs_drift: Whether it needs models that drift.
        without_dropouts: Whether the plan has dropouts, and the verdict is about rounds without.
    """
    conditions = [*["models drift"] * needs_drift, *["nobody drops out"] * without_dropouts]
    return VERDICTS[verdict] + (f" if {' and '.join(conditions)}" if conditions else "")


def describe_plan_coverage(coverage: PlanCoverage) -> str:
    """Returns what the audit of a proposal covered."""
    if not coverage.kinds:
        return "not audited"
    if coverage.coalitions < coverage.of_coalitions:
        many = f"{coverage.coalitions:,} of {coverage.of_coalitions:,} coalitions"
    else:
        many = f"all {format_count(coverage.of_coalitions, 'coalition')}"
    if coverage.rounds < coverage.of_rounds:
        rounds = f"{coverage.rounds} of {coverage.of_rounds} rounds"
    else:
        rounds = format_count(coverage.rounds, "round")
    dropouts = f", {coverage.dropout:.0%} dropouts" if coverage.dropout else ", no dropouts"
    fewest = f", at least {coverage.fewest} in a sum" if coverage.fewest is not None else ""
    return f"{many}, {rounds}{dropouts}{fewest}"


def describe_proposal(proposal: Proposal) -> str:
    """Returns the verdict on a proposal, with its coverage."""
    verdict = name_verdict(proposal.verdict, proposal.needs_drift, proposal.without_dropouts)
    if not proposal.coverage.kinds:
        return verdict
    reason = f"; the argument “{proposal.argument}” covers the rest" if proposal.argument else ""
    return f"{verdict} ({describe_plan_coverage(proposal.coverage)}{reason})"


def describe_lost_rounds(proposal: Proposal) -> str:
    """Returns which part of the rounds ends with an average; an empty text if all do."""
    rounds = proposal.coverage.of_rounds
    left = round(proposal.ending * rounds)
    if left >= rounds:
        return ""
    return f"with these dropouts about {left} of {format_count(rounds, 'round')} would end with an average"
