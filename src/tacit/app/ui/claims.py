"""What the papers claim for the very setting that somebody looks at, to stand beside what the audit found."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from tacit.auditing.scope import Scope
from tacit.core.average import counted
from tacit.core.suite import ONLOOKER, SERVER, Party
from tacit.designs.participation import Batches
from tacit.protocols.admm import AdmmTerms
from tacit.protocols.cesar.terms import CesarTerms
from tacit.protocols.pushsum import PushSumTerms
from tacit.protocols.shapes.star import StarTerms


class Promise(NamedTuple):
    """What a claim says of a setting: whether nobody is exposed in it or everybody, and why it is meant."""

    exposed: bool
    because: str


Reading = Callable[[Scope, Collection[Party]], Promise | None]


def _lemma_iii_1(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    terms = scope.terms
    if not isinstance(terms, AdmmTerms) or len(terms.pattern.partitions[0]) > 1 or terms.settings.masked:
        return None
    return Promise(True, f"all to all, {terms.iterations} iterations") if terms.iterations > 1 and coalition else None


def _theorem_iii_2(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    terms = scope.terms
    if not isinstance(terms, AdmmTerms) or len(terms.pattern.partitions[0]) == 1 or len(coalition) != 1:
        return None
    most = 2 * terms.pattern.gap - 1
    said = f"one curious peer, t_g = {terms.pattern.gap}, {terms.iterations} of {most} iterations"
    return Promise(False, said) if terms.iterations <= most and scope.rounds == 1 else None


def _section_3_3(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    terms = scope.terms
    private = isinstance(terms, PushSumTerms) and terms.settings.private
    return Promise(False, "private=true, and an onlooker") if private and set(coalition) == {ONLOOKER} else None


def _batches(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    terms = scope.terms
    policy = terms.policy if isinstance(terms, StarTerms) else None
    if not isinstance(policy, Batches) or set(coalition) != {SERVER} or policy.privacy < 2:
        return None
    return Promise(False, f"batches of T = {policy.privacy}, {counted(scope.rounds, 'round')}")


def _section_3(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    return (
        Promise(False, "the server alone, in one round") if set(coalition) == {SERVER} and scope.rounds == 1 else None
    )


def _theorem_1(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    return Promise(False, "one curious node, in one round") if len(coalition) == 1 and scope.rounds == 1 else None


def _theorem_5(scope: Scope, coalition: Collection[Party]) -> Promise | None:
    k = scope.terms.settings.masking if isinstance(scope.terms, CesarTerms) else 0
    if not 1 < len(coalition) <= k or scope.rounds > 1:
        return None
    return Promise(False, f"k = {k}, and {len(coalition)} nodes that collude")


READINGS: dict[tuple[str, str], Reading] = {
    ("000", "Lemma III.1"): _lemma_iii_1,
    ("000", "Theorem III.2"): _theorem_iii_2,
    ("001", "Section 3.3"): _section_3_3,
    ("002", "Theorem (guarantees)"): _batches,
    ("003", "Section 3"): _section_3,
    ("004", "Theorem 1"): _theorem_1,
    ("004", "Theorem 5"): _theorem_5,
}
"""What claims of protocols are about, by paper and section. Of others only what they say is told."""


def claims(scope: Scope, coalition: Collection[Party], victims: Collection[Party] | None) -> list[dict[str, Any]]:
    """Returns the claims of a protocol's paper, each with what it promises here and whether that is so.

    Without victims nothing was audited, and only what is promised is told.
    """
    told = []
    for claim in scope.protocol.claims:
        reading = READINGS.get((claim.paper, claim.section))
        promise = reading(scope, coalition) if reading is not None and coalition else None
        verdict = "" if promise is None else "claimed"
        if promise is not None and victims is not None:
            others = set(scope.parties) - set(coalition)
            kept = others <= set(victims) if promise.exposed else not victims
            verdict = "holds here" if kept else "refuted here"
        told.append(
            {
                "where": claim.where,
                "statement": claim.statement,
                "about": "" if promise is None else promise.because,
                "verdict": verdict,
            }
        )
    return told
