"""Paper 002, additional slides: necessity and optimality of batch partitioning, and relaxed privacy.

The paper: "any strategy satisfying the multi-round privacy guarantee must have a batch partitioning structure", and for
K ≤ N/2 such a strategy has at most C(N/T, K/T) sets of users, which is as many as batch partitioning has.

We enumerate every family of K-user sets with privacy T, for every N up to 8. The search is complete: another set can
only lower T, so a family that fails is not extended. T follows the definition, on the row space: in every combination
of the rows, each factor occurs for at least T users.

The relaxed privacy requires only that every combination of the rows involves at least T users, with any factors. The
paper gives an example (N = 6, K = 4, T = 2) with twice as many sets, and asks for the optimal strategy. For T = 2 this
is a question about subspaces: a family exposes nobody's vector if and only if its sets are orthogonal to some vector c
without zeros. So the largest family is found by enumerating all subspaces that sets span.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from math import comb, lgamma
from math import exp as exponential
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit import audit
from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.core.progress import Progress
from tacit.core.suite import SERVER
from tacit.designs import Batches, Family, multi_round_privacy
from tacit.lab.papers.reproduction import DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber

Set: TypeAlias = tuple[int, ...]
Matrix: TypeAlias = NDArray[np.int64]

MOST: dict[Scale, int] = {"small": 7, "paper": 8}
"""Largest N for which families are enumerated."""
PRINTED: Matrix = np.array(
    [
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [1, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [0, 1, 1, 1, 1, 0],
    ]
)
"""B_new of the example, as printed: rows 3 and 5 are equal."""
RELAXED = np.unique(PRINTED, axis=0)
ODD_FAMILY: tuple[Set, ...] = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 6, 7, 8))
AUDITED = 60
"""Rounds of the audits."""
ZERO = 1e-9
"""Rounding error below which a number counts as zero; entries of the matrices are 0 and 1."""


# --- the strict privacy --------------------------------------------------------------------------------------------


def rows_of(family: Sequence[Set], users: int) -> Matrix:
    """Returns the matrix of a family, a row for each set."""
    rows = np.zeros((len(family), users), np.int64)
    for row, each in zip(rows, family, strict=True):
        row[list(each)] = 1
    return rows


def list_families(users: int, per_round: int, privacy: int) -> Iterator[tuple[Set, ...]]:
    """Yields every family of K-user sets whose strict multi-round privacy is at least T, the empty one included."""
    sets = list(combinations(range(users), per_round))
    rows = rows_of(sets, users)

    def extend(chosen: tuple[int, ...], first: int) -> Iterator[tuple[Set, ...]]:
        yield tuple(sets[place] for place in chosen)
        for place in range(first, len(sets)):
            more = (*chosen, place)
            if multi_round_privacy(rows[list(more)]) >= privacy:
                yield from extend(more, place + 1)

    return extend((), 0)


def batches_of(family: Sequence[Set], users: int) -> list[Set]:
    """Returns the batches of a family: groups of participating users that are in the same sets."""
    columns: dict[tuple[bool, ...], list[int]] = {}
    for user in range(users):
        columns.setdefault(tuple(user in each for each in family), []).append(user)
    return [tuple(members) for column, members in columns.items() if any(column)]


def is_batch_partitioning(family: Sequence[Set], users: int, privacy: int) -> bool:
    """Says whether every set is a union of disjoint batches of at least T users."""
    batches = batches_of(family, users)
    whole = all(set(batch) <= set(each) or not set(batch) & set(each) for batch in batches for each in family)
    return whole and all(len(batch) >= privacy for batch in batches)


def splits_into_batches(family: Sequence[Set], users: int, privacy: int) -> bool:
    """Says whether every set is a union of batches of exactly T users, as in the paper's construction."""
    return all(len(batch) % privacy == 0 for batch in batches_of(family, users))


def largest_family(users: int, per_round: int, privacy: int) -> int:
    """Returns R_max, the largest number of sets of a family with privacy T."""
    return max(map(len, list_families(users, per_round, privacy)))


def paper_bound(users: int, per_round: int, privacy: int) -> float:
    """Returns C(N/T, K/T), by the gamma function where T does not divide N or K."""
    n, k = users / privacy, per_round / privacy
    if n == int(n) and k == int(k):
        return float(comb(int(n), int(k)))
    return exponential(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1))


# --- the relaxed privacy -------------------------------------------------------------------------------------------


@cache
def largest_relaxed_family(users: int, per_round: int) -> tuple[Set, ...]:
    """Returns a largest family of K-user sets whose sums expose nobody's vector (relaxed T = 2).

    All sets in the span of a family can be added without loss of privacy, so only spans are compared.
    """
    sets = list(combinations(range(users), per_round))
    rows = rows_of(sets, users)
    best: NDArray[np.intp] = np.zeros(0, np.intp)
    for rank in range(1, users):
        for chosen in combinations(range(len(sets)), rank):
            _, scales, axes = np.linalg.svd(rows[list(chosen)])
            unseen = axes[rank:]
            # User i's vector follows if and only if every c that is orthogonal to the sets has c_i = 0.
            if scales[-1] < ZERO or np.abs(unseen).max(axis=0).min() < ZERO:
                continue
            inside = np.flatnonzero(np.abs(rows @ unseen.T).max(axis=1) < ZERO)
            if len(inside) > len(best):
                best = inside
    return tuple(sets[place] for place in best)


# --- rows ----------------------------------------------------------------------------------------------------------

EXACT = "computed over all families, so a single one more would show"
STRUCTURE = DeclaredRow(
    "families with privacy T that are no unions of batches of T or more",
    PaperNumber(0),
    Near(0.5, EXACT),
    form=".0f",
)
SPLIT = DeclaredRow(
    "settings with T dividing N and K in which a family with privacy T is not made of batches of exactly T",
    PaperNumber(0),
    Near(0.5, EXACT),
    form=".0f",
)
BOUND = DeclaredRow(
    "settings in which a family has more than C(N/T, K/T) sets, K ≤ N/2", PaperNumber(0), Near(0.5, EXACT), form=".0f"
)
REACHED = DeclaredRow(
    "settings with T dividing N and K in which R_max is C(N/T, K/T), of all such settings",
    PaperNumber(1.0),
    Near(0.01, EXACT),
    form=".2f",
)
ODD = DeclaredRow(
    "of one family, {1-3, 4-6}, {1-3, 7-9} (N = 12, K = 6, T = 2): users in no batch of exactly T",
    PaperNumber(0),
    Near(0.5, "the paper's construction has batches of exactly T"),
    form=".0f",
)
OLD_ROWS = DeclaredRow("sets of B_old", PaperNumber(3), Near(0.5, EXACT), form=".0f")
NEW_ROWS = DeclaredRow("different sets of B_new", PaperNumber(6), Near(0.5, "six rows are printed"), form=".0f")
SUPPORT = DeclaredRow("relaxed T of B_new, by its row space", PaperNumber(2), Near(0.5, EXACT), form=".0f")
AUDIT = DeclaredRow("relaxed T of B_new, by the audit of the server", PaperNumber(2), Near(0.5, EXACT), form=".0f")
STRICT = DeclaredRow(
    "strict T of B_new, by the audit", None, NotCompared("the example is of the relaxed T"), form=".0f"
)
HELPED = DeclaredRow(
    "users exposed to the server with one of them, B_new", None, NotCompared("collusion is not treated"), form=".0f"
)
OPTIMUM = DeclaredRow(
    "most sets with relaxed T = 2, N = 6, K = 4",
    "at least 6 (2 × B_old); which are optimal is asked",
    Between("the example would be a counterexample to fewer", low=6),
    form=".0f",
)


def enumerated_rows(most: int, progress: Progress) -> list[Row]:
    """Returns the paper's two statements, checked on all families of up to N users."""
    apart = unsplit = above = beyond = dividing = reached = counted = 0
    settings = [(n, k, t) for n in range(2, most + 1) for t in range(2, n + 1) for k in range(t, n + 1)]
    for done, (n, k, t) in enumerate(settings):
        progress(f"families, N = {n}, K = {k}, T = {t}", 0.8 * done / len(settings))
        families = list(list_families(n, k, t))
        counted += len(families)
        apart += sum(not is_batch_partitioning(each, n, t) for each in families)
        largest, bound = max(map(len, families)), paper_bound(n, k, t)
        above += 2 * k <= n and largest > bound + ZERO
        beyond += 2 * k > n and largest > bound + ZERO
        if n % t == k % t == 0:
            dividing += 1
            unsplit += not all(splits_into_batches(each, n, t) for each in families)
            reached += largest == bound
    why = f"{counted:,} families, N up to {most}, every K and every T from 2"
    return [
        STRUCTURE.measure(Estimate.certain(apart), why),
        SPLIT.measure(Estimate.certain(unsplit), why),
        BOUND.measure(Estimate.certain(above), f"{why}; for K > N/2 in {beyond} settings"),
        REACHED.measure(Estimate.certain(reached / dividing), why),
        ODD.measure(
            Estimate.certain(sum(len(batch) for batch in batches_of(ODD_FAMILY, 12) if len(batch) % 2)),
            f"its T is {multi_round_privacy(rows_of(ODD_FAMILY, 12))}, its batches have 3 users: the statement "
            "holds for batches of T or more",
        ),
    ]


def relaxed_rows() -> list[Row]:
    """Returns the privacy of the relaxed example when it is run."""
    asked: dict[str, Any] = {"parties": 6, "rounds": AUDITED, "drift": "static", "allow_leaks": True}
    family = Family.of_matrix(RELAXED)
    alone = audit("secagg", coalition=[SERVER], participation=family, **asked)
    helped = audit("secagg", coalition=[SERVER, "p0"], participation=family, **asked)
    batches = audit("secagg", coalition=[SERVER, "p0"], participation=Batches(4, 2), **asked)
    best = largest_relaxed_family(6, 4)
    everywhere = [user for user in range(6) if all(user in each for each in best)]
    return [
        OLD_ROWS.measure(Estimate.certain(Batches(4, 2, users=6).family_size())),
        NEW_ROWS.measure(Estimate.certain(len(RELAXED)), "rows 3 and 5 are printed equal"),
        SUPPORT.measure(
            Estimate.certain(smallest_support(RELAXED) or 0), f"rank {np.linalg.matrix_rank(RELAXED)} of 6"
        ),
        AUDIT.measure(Estimate.certain(alone.smallest_support or 0), f"{AUDITED} rounds of secagg with this policy"),
        STRICT.measure(Estimate.certain(alone.smallest_group or 0), "so weights differ, as the paper says they may"),
        HELPED.measure(
            Estimate.certain(len(helped.exposed)),
            f"of 5: the rank is one less than N, so one known vector gives all. Batches of 2: {len(batches.exposed)}",
        ),
        OPTIMUM.measure(
            Estimate.certain(len(best)),
            f"of {comb(6, 4)}; exhaustive. User {everywhere[0]} is in all of them, so F is not 0"
            if everywhere
            else f"of {comb(6, 4)}; exhaustive",
        ),
    ]


def run(scale: Scale, progress: Progress) -> Result:
    """Enumerates families, and audits the relaxed example."""
    rows = enumerated_rows(MOST[scale], progress)
    progress("relaxed privacy", 0.8)
    rows += relaxed_rows()
    progress("optimality", 1.0)
    return Result(tuple(rows))


REPRODUCTION = Reproduction(
    name="002-optimality",
    title="Whether batch partitioning is necessary and optimal, and what the relaxed example is worth",
    run=run,
    declared=(
        STRUCTURE,
        SPLIT,
        BOUND,
        REACHED,
        ODD,
        OLD_ROWS,
        NEW_ROWS,
        SUPPORT,
        AUDIT,
        STRICT,
        HELPED,
        OPTIMUM,
    ),
    unstated=(
        "The sets S_i of the definition are disjoint here. Otherwise every x_i would be allowed.",
        "C(N/T, K/T) where T does not divide N or K: by the gamma function.",
        "Users who are in no sum do not count for T.",
    ),
    changed=("B_new: without the row that is printed twice.",),
)
