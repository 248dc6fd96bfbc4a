"""Parts of arguments that several protocols share: one sum of everybody, sums of neighbours, and plain vectors.

`docs/claims.md` states and proves each under its name. A protocol gives one only where its terms meet the
conditions. All are about parties that follow the protocol.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.core.protocol import Terms
from tacit.core.protocol_facts import ArgumentCode, CoalitionQuery, PrivacyArgument

LEFT = 2
"""The fewest contributors to a sum, apart from the coalition, that hide each other."""
MOST_BITS = 4.0
"""Where weights differ so much that more bits of an entry may be known, there is no argument."""
PLAIN_VECTORS = PrivacyArgument(ArgumentCode.PLAIN, bits=math.inf, exposes=True)
"""The argument "plain": receivers are sent vectors as they are."""


def count_bits(left: int) -> float:
    """Returns how many bits are known of one of so many that cannot be told apart, if their sum is known."""
    return math.log2(left / (left - 1)) / 2


def one_sum(left: int, sharing: int | None = None) -> PrivacyArgument:
    """Returns the argument "one sum": whatever anybody sees is the sum of everybody, or of those who share an entry.

    Args:
        left: The fewest contributors to the sum, apart from the coalition.
        sharing: The fewest of them that share an entry, where vectors are sparse.
    """
    return PrivacyArgument(ArgumentCode.ONE_SUM, bits=count_bits(left), facts={"sharing": sharing})


def private_neighbours(
    terms: Terms, query: CoalitionQuery, received: NDArray[np.int64], ratio: float, fewest: int = 0
) -> PrivacyArgument | None:
    """Returns the argument "private neighbours", if each receiver sums two whom no other member sums or is.

    Args:
        terms: The terms of a protocol in which a party learns the masked sum of its neighbours.
        query: The coalitions to argue about.
        received: Who receives from whom: row k has a 1 for every neighbour that k sums.
        ratio: By how much weights differ at most.
        fewest: The fewest contributors to any of these sums, whoever drops out; 0 if the settings guarantee none.
    """
    c, n = query.size, len(terms.parties)
    bits = math.log2(1 + max(c, 2) * ratio**2 / 2) / 2
    if bits > MOST_BITS:
        return None
    # What another member costs a receiver: itself, if it is received from, and those whom both receive from.
    cost = received + received.astype(np.float64) @ received.T
    np.fill_diagonal(cost, 0)
    dearest = np.sort(cost, axis=1)[:, n - (c - 1) :].sum(axis=1)
    dropouts = bool((fewest - dearest >= LEFT).all())
    if not dropouts and (terms.selective or (received.sum(axis=1) - dearest < LEFT).any()):
        return None
    return PrivacyArgument(ArgumentCode.PRIVATE_NEIGHBOURS, bits=bits, dropouts=dropouts, facts={"private": LEFT})


def few_neighbours(terms: Terms, query: CoalitionQuery, received: NDArray[np.int64]) -> PrivacyArgument | None:
    """Returns the argument "few neighbours", if a receiver can subtract all but one of those in its sum."""
    if terms.selective:
        return None
    degrees = received.sum(axis=1)
    k = int(degrees.argmin())
    if degrees[k] > query.size:
        return None
    facts = {"receiver": terms.parties[k], "neighbours": int(degrees[k])}
    return PrivacyArgument(ArgumentCode.FEW_NEIGHBOURS, bits=math.inf, exposes=True, facts=facts)


def is_complete(received: NDArray[np.int64]) -> bool:
    """Returns whether everybody receives from everybody else."""
    return int(received.sum()) == len(received) * (len(received) - 1)
