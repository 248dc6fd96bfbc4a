"""What is known without an audit, for any number of parties: arguments that are proved, and tried on small ones.

Each has a name under which `docs/arguments.md` states and proves it, and is given only where its conditions are met by
the terms at hand. All are about parties that keep to the protocol.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.protocol import Protocol, Terms
from tacit.designs import graphs
from tacit.designs.participation import Batches, Partition, Sampled
from tacit.protocols import SHIPPED
from tacit.protocols.admm import AdmmTerms
from tacit.protocols.cesar.terms import CesarTerms
from tacit.protocols.fedavg import FedAvgTerms
from tacit.protocols.pushsum import PushSumTerms
from tacit.protocols.secagg.terms import SecAggTerms
from tacit.protocols.shapes.neighbourhood import GraphTerms
from tacit.protocols.shapes.star import StarTerms

LEFT = 2
"""How many others there must be in a sum, at least, to hide among each other."""
MOST_BITS = 4.0
"""Where weights differ so much that more may be known of an entry, there is no argument."""


@dataclass(frozen=True)
class Argument:
    """Why every coalition of a size learns nobody's vector or, if it `exposes`, why one does."""

    name: str
    statement: str
    bits: float = 0.0
    """The most bits of an entry that it learns, as `engine.precision` counts them. One bit halves the spread."""
    dropouts: bool = False
    """Whether it holds whoever drops out, and whenever."""
    exposes: bool = False


@dataclass(frozen=True)
class Question:
    """Whom an argument is about, and for how long."""

    size: int
    """So many parties, or the server with one fewer."""
    fresh: bool
    """Whether each vector is brought only once: in a single round, or if models are new in each."""
    rounds: int = 1


def argument_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> Argument | None:
    """Returns the best of all arguments: one that allows for dropouts or, if none does, by which least is learnt."""
    found = arguments_for(protocol, terms, coalition_size, rounds, drift)
    return min(found, key=lambda each: (not each.dropouts, each.bits), default=None)


def arguments_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> list[Argument]:
    """Returns all that is known of the coalitions of a size, over some rounds on these terms.

    Of protocols that are shipped the terms say it all. Others may have the same ones, and do something else.
    """
    if protocol not in SHIPPED or not 1 <= coalition_size < len(terms.parties):
        return []
    asked = Question(coalition_size, rounds == 1 or drift == "free", rounds)
    return [each for argument in ARGUMENTS if (each := argument(terms, asked)) is not None]


# --- sums that everybody may know ----------------------------------------------------------------------------------


def _one_sum(terms: Terms, asked: Question) -> Argument | None:
    """One sum: whatever anybody sees is the sum of everybody."""
    n, c = len(terms.parties), asked.size
    if n - c < LEFT:
        return None
    left, others = n - c, "the others"
    if isinstance(terms, SecAggTerms):
        if terms.sparse or not terms.everybody or not _masks_hold(terms, c - 1):
            return None
    elif isinstance(terms, CesarTerms):
        if not _complete(graphs.adjacency(terms.graph)):
            return None
        if terms.selective:
            # Of an entry that is sent at all, s + 1 others share it with each receiver.
            left, others = terms.settings.masking + 1 - (c - 1), f"the {LEFT} or more others that share an entry"
            if left < LEFT or not asked.fresh:
                return None
    elif isinstance(terms, PushSumTerms):
        masked = terms.settings.masked and not terms.settings.private and not terms.settings.weighted
        if not masked or not _complete(graphs.adjacency(terms.graphs[0])):
            return None
    elif not (isinstance(terms, AdmmTerms) and terms.settings.masked and len(terms.pattern.partitions[0]) == 1):
        return None
    return Argument("one sum", f"{_who(terms, c)} learn the sum of {others} and no more, {_for(asked)}", _alike(left))


def _circle(terms: Terms, asked: Question) -> Argument | None:
    """Circle: in a sparse graph, honest users are in one piece as long as few collude."""
    n, c = len(terms.parties), asked.size
    if not isinstance(terms, SecAggTerms) or not terms.sparse or not terms.everybody or n - c < LEFT:
        return None
    if not _masks_hold(terms, c - 1):
        return None
    return Argument(
        "circle",
        f"{_who(terms, c)} learn the sum of the others and no more, {_for(asked)}: they are too few to cut a circle in "
        f"two on which everybody is joined to {_even(terms)} others",
        _alike(n - c),
    )


def _whole_batches(terms: Terms, asked: Question) -> Argument | None:
    """Whole batches: members of a batch are in every sum together or not at all."""
    c = asked.size
    if not isinstance(terms, SecAggTerms) or not isinstance(terms.policy, Batches | Partition):
        return None
    left = terms.policy.promise - c
    if left < LEFT or not _masks_hold(terms, c - 1):
        return None
    dropouts = _masks_hold(terms, c - 1, dropouts=True)
    return Argument(
        "whole batches",
        f"of each batch of {terms.policy.promise} at least {left} are left that nobody can tell apart, "
        f"{_for(asked, dropouts)}",
        _alike(left),
        dropouts,
    )


def _fresh_sums(terms: Terms, asked: Question) -> Argument | None:
    """Fresh sums: what is brought only once is in one sum only."""
    c = asked.size
    if not isinstance(terms, SecAggTerms) or not asked.fresh or terms.smallest - c < LEFT:
        return None
    if not _masks_hold(terms, c - 1):
        return None
    dropouts = _masks_hold(terms, c - 1, dropouts=True)
    return Argument(
        "fresh sums",
        f"a vector is in one sum, with at least {terms.smallest - c - 1} of others than the {c} that collude, "
        f"{_for(asked, dropouts)}",
        _alike(terms.smallest - c),
        dropouts,
    )


def _masks_hold(terms: SecAggTerms, colluders: int, dropouts: bool = False) -> bool:
    """Says whether the server, with so many users, learns no more from a round than its sum."""
    if colluders >= terms.threshold:
        return False
    if not terms.sparse:
        return True
    # A circle falls apart at two runs of half the degree without anybody honest, and not at one. Users see to it that
    # each run has more chosen ones in it than t − degree/2 − 1; where all are chosen, it has half the degree.
    degree = _even(terms)
    if colluders < 2 * terms.threshold - degree:
        return True
    thinned = isinstance(terms.policy, Sampled) and terms.policy.exactly < terms.policy.most(len(terms.parties))
    return not dropouts and not thinned and colluders < degree


def _even(terms: SecAggTerms) -> int:
    degree = terms.settings.degree or 0
    return degree + degree % 2


# --- sums of neighbours --------------------------------------------------------------------------------------------


def _private_neighbours(terms: Terms, asked: Question) -> Argument | None:
    """Private neighbours: each receiver hears two whom no other member hears, and who are no members."""
    heard, ratio = _heard(terms, asked)
    c, n = asked.size, len(terms.parties)
    bits = math.log2(1 + max(c, 2) * ratio**2 / 2) / 2
    if heard is None or bits > MOST_BITS:
        return None
    # What another member costs a receiver: itself, if it is heard, and those whom both hear.
    cost = heard + heard.astype(np.float64) @ heard.T
    np.fill_diagonal(cost, 0)
    dearest = np.sort(cost, axis=1)[:, n - (c - 1) :].sum(axis=1)
    # A receiver of `cesar` sums s + 1 of its neighbours or more, whichever share an entry or are still there.
    fewest = terms.settings.masking + 1 if isinstance(terms, CesarTerms) and asked.fresh else 0
    dropouts = bool((fewest - dearest >= LEFT).all())
    if not dropouts and (terms.selective or (heard.sum(axis=1) - dearest < LEFT).any()):
        return None
    return Argument(
        "private neighbours",
        f"{_who(terms, c)} learn sums with at least {LEFT} in each who are in no other, {_for(asked, dropouts)}",
        bits,
        dropouts,
    )


def _few_neighbours(terms: Terms, asked: Question) -> Argument | None:
    """Few neighbours: a receiver takes all but one of those it hears off its sum."""
    heard, _ = _heard(terms, asked)
    if heard is None or terms.selective:
        return None
    degrees = heard.sum(axis=1)
    k = int(degrees.argmin())
    if degrees[k] > asked.size:
        return None
    return Argument(
        "few neighbours",
        f"{terms.parties[k]} hears {degrees[k]} others, and with all of them but one it learns the vector of that one",
        math.inf,
        exposes=True,
    )


def _heard(terms: Terms, asked: Question) -> tuple[NDArray[np.int64] | None, float]:
    """Returns who hears the masked sum of whom, and by how much weights differ at most; None if that is not all."""
    if isinstance(terms, CesarTerms):
        weighed = 1 + np.array(terms.degrees)
        return graphs.adjacency(terms.graph), float(weighed.max() / weighed.min())
    if not isinstance(terms, PushSumTerms):
        return None, 1.0
    settings, sends = terms.settings, graphs.adjacency(terms.graphs[0])
    weighed = 1 + sends.sum(axis=1)
    regular = len({*sends.sum(axis=0).tolist(), *sends.sum(axis=1).tolist()}) == 1
    # With other degrees models are not what was pushed last, and a second round shows sums from further away.
    if not settings.masked or settings.private or settings.weighted or not (regular or asked.rounds == 1):
        return None, 1.0
    return sends.T, float(weighed.max() / weighed.min())


# --- what is sent as it is -----------------------------------------------------------------------------------------


def _plain(terms: Terms, asked: Question) -> Argument | None:
    """Plain: receivers are sent vectors as they are."""
    who = _who(terms, asked.size)
    if isinstance(terms, FedAvgTerms):
        statement = "the server is sent every vector that it sums"
    elif isinstance(terms, GraphTerms) and not isinstance(terms, CesarTerms):
        statement = f"{who} learn what their neighbours share"
    elif isinstance(terms, PushSumTerms) and _pushes_plainly(terms):
        statement = f"{who} learn, in the first round, the vectors of those they hear"
    else:
        return None
    return Argument("plain", statement, math.inf, exposes=True)


def _pushes_plainly(terms: PushSumTerms) -> bool:
    settings = terms.settings
    return not settings.masked and not settings.private and not settings.weighted and len(terms.graphs) == 1


# --- words and numbers ---------------------------------------------------------------------------------------------

ARGUMENTS: tuple[Callable[[Terms, Question], Argument | None], ...] = (
    _one_sum,
    _circle,
    _whole_batches,
    _fresh_sums,
    _private_neighbours,
    _few_neighbours,
    _plain,
)


def _complete(heard: NDArray[np.int64]) -> bool:
    return int(heard.sum()) == len(heard) * (len(heard) - 1)


def _alike(left: int) -> float:
    """Returns how many bits are known of one of so many that cannot be told apart, if their sum is known."""
    return math.log2(left / (left - 1)) / 2


def _who(terms: Terms, size: int) -> str:
    """Returns whom an argument is about. With a server, one fewer may be with it."""
    parties = f"any {size} of {len(terms.parties)} parties" if size > 1 else "single parties"
    if not isinstance(terms, StarTerms):
        return parties
    return f"{parties}, or the server with any {size - 1}," if size > 1 else f"{parties}, or the server,"


def _for(asked: Question, dropouts: bool = False) -> str:
    how = "whoever drops out" if dropouts else "if nobody drops out"
    if asked.rounds == 1:
        return f"in one round, {how}"
    return f"in any number of rounds {'of new vectors' if asked.fresh else 'of the same vectors'}, {how}"
