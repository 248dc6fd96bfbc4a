"""Privacy loss ε in words: how large it is, at worst, and by which proof."""

import math
from collections.abc import Sequence

from tacit.auditing.findings import Accounting, AccountingGap, AccountingMethod
from tacit.auditing.report import Report
from tacit.privacy.epsilon_bounds import BoundKind

PROOFS = {
    BoundKind.RENYI: "Rényi divergences of every order",
    BoundKind.GAUSSIAN: "the exact ε of Gaussian noise, with the difference to discrete noise added",
    BoundKind.NOTHING_SEEN: "the coalition sees nothing that depends on the data",
    BoundKind.UNBOUNDED: "none",
}
"""What proves a bound, in a few words."""
GAPS = {
    AccountingGap.NOT_LINEAR: "what a party sees or trains on is not linear",
    AccountingGap.FACTORS_DRAWN: "parties multiply by secret numbers",
    AccountingGap.ENTRIES_DIFFER: "entries of a vector are treated differently",
    AccountingGap.WITHIN_ROUND: "a party encodes what it received in the same round",
    AccountingGap.ROUND_FAILED: "a round failed",
    AccountingGap.STAND_INS: "some parties do not follow the protocol",
    AccountingGap.ROUNDING: "rounding moves a vector by more than its data can",
    AccountingGap.ROUNDED: "noisy values are rounded again on their way",
    AccountingGap.TOO_LARGE: "the run has too many messages",
}
"""Why the matrix accountant gives no figure."""


def describe_accounting(accounting: Accounting) -> str:
    """Returns how ε was computed, and the other figures of the same run."""
    told = []
    if accounting.gap is not None:
        shown = (
            "No ε is proved" if accounting.method is AccountingMethod.MATRIX else "Every round counts as the smallest"
        )
        told.append(f"{shown}, because {GAPS[accounting.gap]}.")
    elif accounting.by_matrix is not None and accounting.by_matrix.kind is BoundKind.UNBOUNDED:
        told.append(f"No ε is proved: others learn a vector of {accounting.victim} without noise.")
    elif accounting.method is AccountingMethod.MATRIX:
        told.append(
            "It accounts for all that the coalition sees and honest parties train on; by the smallest sums alone it is "
            f"{accounting.by_sums.epsilon:.3g}."
        )
    if accounting.view_only is not None:
        told.append(
            f"By the view alone ε = {accounting.view_only.epsilon:.3g}, which assumes that contributions are fixed in "
            "advance."
        )
    return " ".join(told)


def describe_epsilon(reports: Sequence[Report]) -> str:
    """Returns the ε that the noise gives against the coalition that learns most; an empty text without noise."""
    most = max(reports, key=lambda report: report.epsilon or 0.0)
    if most.epsilon_bound is None:
        return ""
    proof = PROOFS[most.epsilon_bound.kind]
    told = f"By the noise, ε = {most.epsilon:.3g} at δ = {most.delta:g} for all rounds"
    accounted = "" if most.accounting is None else describe_accounting(most.accounting)
    more = f" {accounted}" if accounted and (most.rounds > 1 or most.epsilon == math.inf) else ""
    bounds = (report.epsilon_bound_at_worst for report in reports)
    worst = max((bound for bound in bounds if bound is not None), key=lambda bound: bound.epsilon, default=None)
    if worst is None or worst.epsilon <= most.epsilon_bound.epsilon:
        return f"{told}. Proof: {proof}.{more}"
    if worst.kind is not most.epsilon_bound.kind:
        proof = f"{proof}; in the worst case, {PROOFS[worst.kind]}"
    return f"{told}, and {worst.epsilon:.3g} if as many drop out as may. Proof: {proof}.{more}"
