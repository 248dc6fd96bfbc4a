"""Settings that `cesar` proposes to planners, its privacy arguments, and the claims of its paper."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.protocol_facts import (
    Claim,
    CoalitionQuery,
    ConditionCode,
    PrivacyArgument,
    Promise,
    ProposedSettings,
    ReasonCode,
)
from tacit.core.suite import Party
from tacit.designs import graphs
from tacit.protocols.shapes.proofs import LEFT, few_neighbours, is_complete, one_sum, private_neighbours

if TYPE_CHECKING:
    from tacit.protocols.cesar.settings import CesarTerms


def arguments_of(terms: "CesarTerms", query: CoalitionQuery) -> Iterator[PrivacyArgument]:
    """Yields the privacy arguments whose conditions hold."""
    n, c = len(terms.parties), query.size
    received = graphs.adjacency(terms.graph)
    # An entry is sent only if s + 1 neighbours of each receiver share it.
    fewest = terms.settings.masking + 1
    if is_complete(received) and n - c >= LEFT:
        left = fewest - (c - 1) if terms.selective else n - c
        if not terms.selective:
            yield one_sum(left)
        elif left >= LEFT and query.fresh:
            yield one_sum(left, sharing=LEFT)
    weights = 1 + np.array(terms.degrees)
    ratio = float(weights.max() / weights.min())
    if (found := private_neighbours(terms, query, received, ratio, fewest if query.fresh else 0)) is not None:
        yield found
    if (found := few_neighbours(terms, query, received)) is not None:
        yield found


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields a regular graph in which any `colluding` nodes share few neighbours."""
    for girth in range(3 if colluding == 1 else 5 if colluding == 2 else 7, 2, -1):
        graph = _regular(parties, max(colluding + 1, 3), girth)
        if graph is not None:
            options = {"graph": graph, "masking": colluding}
            yield ProposedSettings(options, ReasonCode.NEIGHBOURS, {"fewest": colluding + 1})
            break


def _regular(n: int, degree: int, girth: int) -> dict[str, Any] | None:
    for each in (degree, degree + 1):
        try:
            graphs.regular(n, each, girth)
        except ConfigError:
            continue
        return {"kind": "regular", "degree": each, "girth": girth}
    return None


def _theorem_1(terms: "CesarTerms", coalition: Collection[Party], rounds: int) -> Promise | None:
    del terms
    return Promise(False, ConditionCode.ONE_NODE_ONE_ROUND) if len(coalition) == 1 and rounds == 1 else None


def _theorem_5(terms: "CesarTerms", coalition: Collection[Party], rounds: int) -> Promise | None:
    k = terms.settings.masking
    if not 1 < len(coalition) <= k or rounds > 1:
        return None
    return Promise(False, ConditionCode.COLLUDING_NODES, {"k": k, "size": len(coalition)})


CLAIMS = (
    Claim("004", "Theorem 1", "no honest-but-curious node learns a single entry of a neighbour's model", _theorem_1),
    Claim("004", "Theorem 5", "with masking requirement k, nor do k colluding nodes", _theorem_5),
)
