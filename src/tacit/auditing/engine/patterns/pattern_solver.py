"""Solver of selection patterns: which parties' entries a coalition recovers at each pattern, and how often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import SMALL_PRIME
from tacit.auditing.engine.patterns.entry_patterns import (
    WeighedPatterns,
    count_patterns,
    enumerate_patterns,
    find_determined,
    sample_patterns,
)
from tacit.auditing.engine.patterns.view_structure import Bools, Ints, PartyView

MOST_PATTERNS, SAMPLED_PATTERNS = 2**16, 2**12
"""The largest number of patterns of a coalition that are all solved. If there are more over all rounds, this many are
sampled."""
MOST_NUMBERS = 2**20
"""The largest number of matrix entries, over all systems, that are eliminated at once."""
BASE = 1_000_003
"""Base of the numbers by which columns are compared."""
Views: TypeAlias = Sequence[Sequence[PartyView]]
"""The view of each member of a coalition in each of some rounds."""
Pattern: TypeAlias = Bools
"""The parties that select an entry, by round and party."""


@dataclass(frozen=True)
class SolvedPatterns:
    """What some rounds expose of an entry that is the same in all of them."""

    exposed: float = 0.0
    """Probability that some party's entry is exposed; if vectors are given, the number of such entries."""
    by_victim: Mapping[int, float] = field(default_factory=dict)
    """The same for each party, by its place."""
    patterns: Mapping[int, Pattern] = field(default_factory=dict)
    """For each victim, the most frequent pattern that exposes it."""
    count: int = 0
    """Number of patterns that were solved."""
    hits: int | None = None
    """Number of sampled patterns that expose somebody; None if patterns were not sampled."""
    group: int | None = None
    """Fewest parties that the coalition cannot tell apart in any pattern; None if it learns nothing."""


def solve_patterns(
    views: Views,
    inside: Bools,
    *,
    probability: float = 0.0,
    selected: Bools | None = None,
    seed: int = 0,
    least: float = 0.0,
) -> SolvedPatterns:
    """Returns what several rounds together expose of an entry that is the same in all of them.

    Args:
        views: The members' views.
        inside: Which parties are members.
        probability: Probability with which each party selects the entry in each round.
        selected: The entries that each party selects in a single round. If given, these are counted instead.
        seed: Seed of the sample, if there are too many patterns.
        least: The least probability at which a pattern counts for the anonymity set.
    """
    if not views:
        return SolvedPatterns()
    rounds = len(views[0])
    reach = np.flatnonzero(np.any([view.heard for each in views for view in each], axis=0))
    classes, hits = _find_classes(views, reach, inside), None
    if selected is not None:
        weighed, classes = count_patterns(selected[reach]), [[place] for place in range(len(reach))]
    else:
        exact = enumerate_patterns(classes, probability, rounds, MOST_PATTERNS)
        weighed = exact or sample_patterns(len(reach), probability, rounds, max(SAMPLED_PATTERNS // rounds, 1), seed)
        if exact is None:
            hits, classes = 0, [[place] for place in range(len(reach))]
    determined, groups = _solve(views, weighed, reach, inside)
    any_exposed = determined.any(axis=1)
    by_victim, shown = _find_victims(determined, weighed, classes, reach, len(inside))
    frequent = groups[(groups > 0) & (weighed.weights > least)]
    return SolvedPatterns(
        float(weighed.weights @ any_exposed),
        by_victim,
        shown,
        len(weighed.weights),
        None if hits is None else int(any_exposed.sum()),
        int(frequent.min()) if len(frequent) else None,
    )


def _find_classes(views: Views, reach: NDArray[np.intp], inside: Bools) -> list[list[int]]:
    """Returns the places in reach in classes that all views treat alike, so that members of a class may be exchanged.

    A constant factor of a party's entry in all views does not change what can be solved for, so it is ignored.
    """
    found: dict[Any, list[int]] = {}
    for place, party in enumerate(reach.tolist()):
        heard = tuple(bool(view.heard[party]) for each in views for view in each)
        factors = np.concatenate([view.rows[:, party] for each in views for view in each])
        if inside[party] or not factors.any():
            factors = factors[:0]
        else:
            factors = factors * pow(int(factors[factors.nonzero()[0][0]]), -1, SMALL_PRIME) % SMALL_PRIME
        found.setdefault((bool(inside[party]), heard, factors.tobytes()), []).append(place)
    return list(found.values())


def _solve(
    views: Views, weighed: WeighedPatterns, reach: NDArray[np.intp], inside: Bools
) -> tuple[Bools, NDArray[np.int64]]:
    """Returns for each pattern which parties' entries follow from the views, and the anonymity set."""
    honest = ~inside[reach]
    height = sum(len(view.rows) for each in views for view in each)
    batch = max(1, MOST_NUMBERS // max(height * len(reach), len(reach) ** 2, 1))
    found, groups = [], []
    for start in range(0, len(weighed.weights), batch):
        some = weighed.selections[start : start + batch]
        rows = []
        for each in views:
            for number, view in enumerate(each):
                here = some[:, number]
                enough = np.count_nonzero(here & view.heard[reach], axis=1) >= view.fewest
                rows.append(view.rows[None][:, :, reach] * (here & enough[:, None] & honest)[:, None, :])
        stacked = np.concatenate(rows, axis=1)
        found.append(find_determined(stacked))
        groups.append(_smallest_classes(stacked))
    return np.concatenate(found), np.concatenate(groups)


def _smallest_classes(rows: Ints) -> NDArray[np.int64]:
    """Returns, for each system, the size of the smallest class of columns with equal factors in all rows; 0 without
    rows."""
    # Columns are compared by one number each. Different columns get the same number with a probability of about
    # 1/prime.
    factors = np.array([pow(BASE, power, SMALL_PRIME) for power in range(rows.shape[1])], dtype=np.int64)
    numbers = (factors[:, None] * rows % SMALL_PRIME).sum(axis=1) % SMALL_PRIME
    spoken: Bools = np.asarray(rows.any(axis=1))
    alike = np.equal(numbers[:, :, None], numbers[:, None, :]) & spoken[:, None, :]
    sizes = np.where(spoken, alike.sum(axis=2), rows.shape[2] + 1)
    return np.where(spoken.any(axis=1), sizes.min(axis=1, initial=rows.shape[2] + 1), 0)


def _find_victims(
    determined: Bools,
    weighed: WeighedPatterns,
    classes: Sequence[Sequence[int]],
    reach: NDArray[np.intp],
    parties: int,
) -> tuple[dict[int, float], dict[int, Pattern]]:
    """Returns how often each party is exposed, and the most frequent pattern that exposes it."""
    by_victim: dict[int, float] = {}
    shown: dict[int, Pattern] = {}
    for members in classes:
        exposed = determined[:, members]
        weight = weighed.weights * exposed.any(axis=1)
        best = int(weight.argmax())
        if not weight[best]:
            continue
        each = float(weighed.weights @ exposed.sum(axis=1)) / len(members)
        there = members[int(exposed[best].argmax())]
        for member in members:
            # Members of a class may be exchanged, so that the pattern exposes this party.
            order = np.arange(len(reach))
            order[[member, there]] = there, member
            pattern = np.zeros((weighed.selections.shape[1], parties), dtype=np.bool_)
            pattern[:, reach] = weighed.selections[best][:, order]
            by_victim[int(reach[member])], shown[int(reach[member])] = each, pattern
    return by_victim, shown
