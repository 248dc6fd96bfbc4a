"""Structure of views: what a party learns at an entry by who selects it, read from a run on symbols.

At the entry that every party selects, a party learns some combinations of the others' entries. At any other entry it is
expected to learn the same combinations, restricted to the parties that select the entry, if there are enough of these,
and otherwise nothing. A coalition is expected to learn what its members learn. All of this is checked against the
deployed code, for every party and coalition in question and every pattern that was run. Where it differs, there is no
structure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import SMALL_PRIME, Echelon
from tacit.auditing.engine.symbolic_run import Knowledge, SymbolicRun
from tacit.core.suite import Party

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Place: TypeAlias = tuple[int, int]
"""A round, 0 if entries are the same in all rounds, and an entry."""


@dataclass(frozen=True)
class PartyView:
    """What one party learns at an entry."""

    rows: Ints
    """Combinations that the party learns where every party selects: one column per party, modulo the small prime."""
    fewest: int
    """The fewest selecting parties in these combinations with which the party learns anything."""

    @property
    def heard(self) -> Bools:
        """The parties whose selections matter."""
        return np.asarray(self.rows.any(axis=0))

    def restrict(self, selected: Bools) -> Ints:
        """Returns what the party learns at an entry, given who selects it."""
        enough = np.count_nonzero(selected & self.heard) >= self.fewest
        return self.rows * selected if enough else self.rows[:0]


def read_views(run: SymbolicRun, party: Party, patterns: Sequence[Bools], rounds: int) -> tuple[PartyView, ...] | None:
    """Returns the view of a party in each of the first rounds; None if one of them does not have the structure.

    Args:
        run: A run whose positions are patterns. In the first pattern every party selects.
        party: The party.
        patterns: The selecting parties for each round, one row per party. Repeated if there are fewer than rounds.
        rounds: Number of rounds. If more than one, the run must have different entries in each round.
    """
    learnt = split_knowledge(run, run.knowledge([party], rounds))
    if learnt is None:
        return None
    views = []
    for number in range(1, rounds + 1):
        key = 0 if run.scope.static else number
        here = {entry: rows for (when, entry), rows in learnt.items() if when == key}
        view = _read_view(here, patterns[(number - 1) % len(patterns)])
        if view is None:
            return None
        views.append(view)
    return tuple(views)


def _read_view(learnt: Mapping[int, Ints], pattern: Bools) -> PartyView | None:
    """Returns a party's view in a round, given what it learnt at each entry; None if it does not have the structure."""
    whole = reduce_rows(learnt.get(0, np.zeros((0, len(pattern)), dtype=np.int64)))
    heard = whole.any(axis=0)
    passed, failed = [len(pattern) + 1], [-1]
    for entry, selected in enumerate(pattern.T):
        expected, actual = reduce_rows(whole * selected), learnt.get(entry)
        count = int(np.count_nonzero(selected & heard))
        if actual is None:
            if len(expected):
                failed.append(count)
        elif np.array_equal(reduce_rows(actual), expected):
            passed.append(count)
        else:
            return None
    # Between the two, a number of senders that was never run counts as enough, which errs on the side of exposure.
    return PartyView(whole, max(failed) + 1) if max(failed) < min(passed) else None


def split_knowledge(run: SymbolicRun, known: Knowledge) -> dict[Place, Ints] | None:
    """Returns what is known at each entry of each round, one column per party; None if it mixes several entries.

    Places of which nothing is known are left out.
    """
    whose, code = known.at[:, 0], known.at[:, 1] * run.entries + known.at[:, 2]
    row, column = known.rows.nonzero()
    least, most = np.full(len(known.rows), np.iinfo(np.int64).max), np.full(len(known.rows), -1)
    np.minimum.at(least, row, code[column])
    np.maximum.at(most, row, code[column])
    filled = most >= 0
    if not np.array_equal(least[filled], most[filled]):
        return None
    dense = np.zeros((len(known.rows), len(run.names)), dtype=np.int64)
    dense[row, whose[column]] = known.rows[row, column]
    return {
        (int(each) // run.entries, int(each) % run.entries): dense[most == each] for each in np.unique(most[filled])
    }


def agrees(
    run: SymbolicRun,
    views: Mapping[Party, Sequence[PartyView]],
    coalition: Sequence[Party],
    patterns: Sequence[Bools],
) -> bool:
    """Says whether a coalition learns exactly what its members' views say, at every pattern that was run.

    An eavesdropper has no view: on sealed links it adds nothing to what the members learn.
    """
    rounds = run.scope.rounds
    learnt = split_knowledge(run, run.knowledge(coalition, rounds))
    if learnt is None:
        return False
    honest = np.array([party not in coalition for party in run.names])
    said: dict[Place, list[Ints]] = {}
    for number in range(1, rounds + 1):
        pattern = patterns[(number - 1) % len(patterns)]
        for entry, selected in enumerate(pattern.T):
            key = 0 if run.scope.static else number, entry
            for of_rounds in views.values():
                rows = of_rounds[(number - 1) % len(of_rounds)].restrict(selected) * honest
                if rows.any():
                    said.setdefault(key, []).append(rows)
    if said.keys() != learnt.keys():
        return False
    return all(
        np.array_equal(reduce_rows(np.concatenate(rows)), reduce_rows(learnt[key])) for key, rows in said.items()
    )


def reduce_rows(rows: Ints) -> Ints:
    """Returns the reduced row echelon form of rows, ordered by their leading columns."""
    if len(rows) == 1:
        (lead,) = rows[0].nonzero()[0][:1] if rows.any() else (-1,)
        return rows[:0] if lead < 0 else rows * pow(int(rows[0, lead]), -1, SMALL_PRIME) % SMALL_PRIME
    echelon = Echelon(rows.shape[1], len(rows))
    for row in rows:
        echelon.take(row)
    return echelon.matrix[np.argsort(echelon.leads)] if echelon.leads else rows[:0]
