"""Privacy loss ε in words: how large it is, at worst, and by which proof."""

from collections.abc import Sequence

from tacit.auditing.report import Report
from tacit.privacy.epsilon_bounds import BoundKind

PROOFS = {
    BoundKind.RENYI: "Rényi divergences of every order",
    BoundKind.GAUSSIAN: "the exact ε of Gaussian noise, with the difference to discrete noise added",
    BoundKind.NOTHING_SEEN: "the coalition sees nothing that depends on the data",
}
"""What proves a bound, in a few words."""


def describe_epsilon(reports: Sequence[Report]) -> str:
    """Returns the ε that the noise gives against the coalition that learns most; an empty text without noise."""
    most = max(reports, key=lambda report: report.epsilon or 0.0)
    if most.epsilon_bound is None:
        return ""
    proof = PROOFS[most.epsilon_bound.kind]
    told = f"By the noise, ε = {most.epsilon:.3g} at δ = {most.delta:g} for all rounds"
    bounds = (report.epsilon_bound_at_worst for report in reports)
    worst = max((bound for bound in bounds if bound is not None), key=lambda bound: bound.epsilon, default=None)
    if worst is None or worst.epsilon <= most.epsilon_bound.epsilon:
        return f"{told}. Proof: {proof}."
    if worst.kind is not most.epsilon_bound.kind:
        proof = f"{proof}; in the worst case, {PROOFS[worst.kind]}"
    return f"{told}, and {worst.epsilon:.3g} if as many drop out as may. Proof: {proof}."
