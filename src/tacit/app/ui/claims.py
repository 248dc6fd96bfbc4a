"""Claims of the papers for the very setting of a query, beside the result of the audit."""

from collections.abc import Collection
from typing import Any

from tacit.auditing.findings import ClaimVerdict
from tacit.auditing.render.conditions import describe_condition, render_condition
from tacit.auditing.render.verdicts import CLAIM_VERDICTS
from tacit.auditing.scope import Scope
from tacit.core.suite import Party


def list_claims(scope: Scope, coalition: Collection[Party], victims: Collection[Party] | None) -> list[dict[str, Any]]:
    """Returns the claims of a protocol's paper, each with what it promises here and whether that is so.

    Without victims nothing was audited, and only what is promised is told.
    """
    told = []
    for claim in scope.protocol.claims:
        promise = claim.promise(scope.terms, coalition, scope.rounds) if claim.promise and coalition else None
        verdict = ClaimVerdict.NOT_APPLICABLE if promise is None else ClaimVerdict.CLAIMED
        if promise is not None and victims is not None:
            others = set(scope.parties) - set(coalition)
            kept = others <= set(victims) if promise.exposed else not victims
            verdict = ClaimVerdict.HOLDS if kept else ClaimVerdict.REFUTED
        told.append(
            {
                "where": claim.where,
                "statement": claim.statement,
                "about": "" if promise is None else render_condition(promise),
                "condition": None if promise is None else describe_condition(promise),
                "verdict": CLAIM_VERDICTS[verdict],
                "verdict_code": verdict.value,
            }
        )
    return told
