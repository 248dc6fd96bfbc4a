"""Privacy arguments that several protocols share: one sum of all parties, sums of neighbours, and plain vectors.

`docs/claims.md` states and proves each under its name. A protocol gives one only where its terms meet the
conditions. All are about parties that follow the protocol.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.core.protocol import Terms
from tacit.core.protocol_facts import ArgumentCode, CoalitionQuery, PrivacyArgument

LEFT = 2
"""The fewest contributors outside the coalition that hide each other in a sum."""
MOST_BITS = 4.0
"""Most bits of an entry that "private neighbours" may concede. If weights differ too much, it does not apply."""
PLAIN_VECTORS = PrivacyArgument(ArgumentCode.PLAIN, bits=math.inf, exposes=True)
"""The argument "plain": receivers are sent unmasked vectors."""


def count_bits(left: int) -> float:
    """Returns the bits of an entry learnt from the sum of `left` contributors that cannot be told apart."""
    return math.log2(left / (left - 1)) / 2


def one_sum(left: int, sharing: int | None = None, dropouts: bool = False) -> PrivacyArgument:
    """Returns the argument "one sum": nobody sees more than the sum of all parties, or of those that share an entry.

    Args:
        left: The fewest contributors to the sum outside the coalition.
        sharing: The fewest of them that share an entry, if vectors are sparse.
        dropouts: Whether it holds for all dropouts, because a round from which a party is missing has no sum.
    """
    return PrivacyArgument(ArgumentCode.ONE_SUM, bits=count_bits(left), dropouts=dropouts, facts={"sharing": sharing})


def private_neighbours(
    terms: Terms, query: CoalitionQuery, received: NDArray[np.int64], ratio: float, fewest: int = 0
) -> PrivacyArgument | None:
    """Returns the argument "private neighbours", if every receiver has two neighbours that are its own.

    Such a neighbour is no member of the coalition, and is in the sum of no other member.

    Args:
        terms: The terms of a protocol in which a party learns the masked sum of its neighbours.
        query: The coalitions to argue about.
        received: Who receives from whom: row k has a 1 for every neighbour that k sums.
        ratio: The largest ratio of two weights.
        fewest: The fewest contributors to any of these sums, under all dropouts; 0 if the settings guarantee none.
    """
    c, n = query.size, len(terms.parties)
    bits = math.log2(1 + max(c, 2) * ratio**2 / 2) / 2
    if bits > MOST_BITS:
        return None
    # Cost of another member to a receiver: that member itself, if it is a neighbour, and all common neighbours.
    cost = received + received.astype(np.float64) @ received.T
    np.fill_diagonal(cost, 0)
    dearest = np.sort(cost, axis=1)[:, n - (c - 1) :].sum(axis=1)
    dropouts = bool((fewest - dearest >= LEFT).all())
    if not dropouts and (terms.selective or (received.sum(axis=1) - dearest < LEFT).any()):
        return None
    return PrivacyArgument(ArgumentCode.PRIVATE_NEIGHBOURS, bits=bits, dropouts=dropouts, facts={"private": LEFT})


def few_neighbours(terms: Terms, query: CoalitionQuery, received: NDArray[np.int64]) -> PrivacyArgument | None:
    """Returns the argument "few neighbours", if colluding parties can subtract all but one contributor of some sum."""
    if terms.selective:
        return None
    degrees = received.sum(axis=1)
    k = int(degrees.argmin())
    if degrees[k] > query.size:
        return None
    facts = {"receiver": terms.parties[k], "neighbours": int(degrees[k])}
    return PrivacyArgument(ArgumentCode.FEW_NEIGHBOURS, bits=math.inf, exposes=True, facts=facts)


def is_complete(received: NDArray[np.int64]) -> bool:
    """Returns whether every party receives from every other."""
    return int(received.sum()) == len(received) * (len(received) - 1)
