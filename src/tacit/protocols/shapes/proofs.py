"""Parts of arguments that several protocols share: one sum of everybody, sums of neighbours, and plain vectors.

`docs/arguments.md` states and proves each under its name. A protocol gives one only where its terms meet the
conditions. All are about parties that follow the protocol.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.core.protocol import Terms
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument

LEFT = 2
"""The fewest contributors to a sum, apart from the coalition, that hide each other."""
MOST_BITS = 4.0
"""Where weights differ so much that more bits of an entry may be known, there is no argument."""


def count_bits(left: int) -> float:
    """Returns how many bits are known of one of so many that cannot be told apart, if their sum is known."""
    return math.log2(left / (left - 1)) / 2


def one_sum(left: int, others: str = "the others") -> PrivacyArgument:
    """Returns the argument "one sum": whatever anybody sees is the sum of everybody."""
    return PrivacyArgument("one sum", f"{{who}} learn the sum of {others} and no more, {{when}}", count_bits(left))


def plain(statement: str) -> PrivacyArgument:
    """Returns the argument "plain": receivers are sent vectors as they are."""
    return PrivacyArgument("plain", statement, math.inf, exposes=True)


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
    statement = f"{{who}} learn sums with at least {LEFT} in each who are in no other, {{when}}"
    return PrivacyArgument("private neighbours", statement, bits, dropouts)


def few_neighbours(terms: Terms, query: CoalitionQuery, received: NDArray[np.int64]) -> PrivacyArgument | None:
    """Returns the argument "few neighbours", if a receiver can subtract all but one of those in its sum."""
    if terms.selective:
        return None
    degrees = received.sum(axis=1)
    k = int(degrees.argmin())
    if degrees[k] > query.size:
        return None
    return PrivacyArgument(
        "few neighbours",
        f"{terms.parties[k]} hears {degrees[k]} others, and with all of them but one it learns the vector of that one",
        math.inf,
        exposes=True,
    )


def is_complete(received: NDArray[np.int64]) -> bool:
    """Returns whether everybody receives from everybody else."""
    return int(received.sum()) == len(received) * (len(received) - 1)
