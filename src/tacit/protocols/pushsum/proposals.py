"""Settings that `pushsum` proposes to planners, its privacy arguments, and the claim of its paper."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tacit.core.protocol_facts import (
    Claim,
    CoalitionQuery,
    ConditionCode,
    PrivacyArgument,
    Promise,
    ProposedSettings,
    ReasonCode,
)
from tacit.core.suite import ONLOOKER, Party
from tacit.designs import graphs
from tacit.protocols.shapes.proofs import LEFT, PLAIN_VECTORS, few_neighbours, is_complete, one_sum, private_neighbours

if TYPE_CHECKING:
    from tacit.protocols.pushsum.settings import PushSumTerms

LARGE = 64
"""Most clients for which masks between all pairs are proposed."""


def arguments_of(terms: "PushSumTerms", query: CoalitionQuery) -> Iterator[PrivacyArgument]:
    """Yields the arguments about masked sums of in-neighbours, and about plain masses."""
    settings, left = terms.settings, len(terms.parties) - query.size
    if settings.weighted:
        return
    if not settings.masked:
        if len(terms.graphs) == 1:
            yield PLAIN_VECTORS  # also with `private`, because audits treat y_i(0) and p_ii as public
        return
    if settings.private:
        return
    sends = graphs.adjacency(terms.graphs[0])
    if is_complete(sends) and left >= LEFT:
        yield one_sum(left)
    # If degrees differ, a model is not what was pushed last, and a second round reveals sums of more distant clients.
    regular = len({*sends.sum(axis=0).tolist(), *sends.sum(axis=1).tolist()}) == 1
    if not regular and query.rounds > 1:
        return
    weights = 1 + sends.sum(axis=1)
    ratio = float(weights.max() / weights.min())
    if (found := private_neighbours(terms, query, sends.T, ratio)) is not None:
        yield found
    if (found := few_neighbours(terms, query, sends.T)) is not None:
        yield found


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields settings with masks: in a sparse graph if no two parties collude, else among all."""
    if colluding == 1 and parties >= 5:
        options = {"masked": True, "graph": "exponential"}
        yield ProposedSettings(options, ReasonCode.EXPONENTIAL_GRAPH)
    elif parties <= LARGE:
        yield ProposedSettings({"masked": True, "graph": "complete"}, ReasonCode.COMPLETE_GRAPH)


def _section_3_3(terms: "PushSumTerms", coalition: Collection[Party], rounds: int) -> Promise | None:
    del rounds
    if not terms.settings.private or set(coalition) != {ONLOOKER}:
        return None
    return Promise(False, ConditionCode.PRIVATE_EAVESDROPPER)


STATEMENT = "random y_i(0) and p_ii keep an onlooker from decoding the local models"
SECTION_3_3 = Claim("001", "Section 3.3", STATEMENT, _section_3_3)
