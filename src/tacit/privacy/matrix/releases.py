"""Rows of a run: the whole-number combinations of noisy vectors that a coalition sees and that parties train on.

A noisy vector is what one call of a party encodes: its contribution plus fresh noise. Everything that is sent later is
a combination of noisy vectors, of vectors without noise, and of masks. Masks are eliminated before rows are made.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tacit.core.suite import Party


class NoisyVector(NamedTuple):
    """One vector that a party encoded with fresh noise."""

    party: Party
    round: int
    number: int = 1
    """Number of the call among those of the party in the round."""
    part: float = 1.0
    """The fraction that the vector and its noise were multiplied by."""


class BareVector(NamedTuple):
    """A vector that a party contributed in a round, without noise."""

    party: Party
    round: int


@dataclass(frozen=True, eq=False)
class Row:
    """A combination of vectors that somebody learns. Rows are compared by identity: shared rows are counted once."""

    factors: Mapping[NoisyVector, int]
    bare: frozenset[BareVector] = frozenset()
    """The vectors without noise in it."""

    @classmethod
    def sum_of(cls, parties: Iterable[Party], round_: int) -> "Row":
        """Returns the sum of one noisy vector of each party in a round.

        >>> len(Row.sum_of(["a", "b"], 1).factors)
        2
        """
        return cls({NoisyVector(party, round_): 1 for party in parties})

    @cached_property
    def by_round(self) -> Mapping[int, tuple[tuple[NoisyVector, int], ...]]:
        """The noisy vectors with their factors, by round."""
        found: dict[int, list[tuple[NoisyVector, int]]] = {}
        for vector, factor in self.factors.items():
            found.setdefault(vector.round, []).append((vector, factor))
        return {round_: tuple(sorted(each)) for round_, each in found.items()}

    @cached_property
    def last_rounds(self) -> Mapping[Party, int]:
        """The last round of each party from which the row contains a vector."""
        last: dict[Party, int] = {}
        for vectors in (self.factors, self.bare):
            for vector in vectors:
                last[vector.party] = max(last.get(vector.party, 0), vector.round)
        return last


@dataclass(frozen=True)
class Releases:
    """Everything in a run that an account of one coalition needs."""

    coalition: frozenset[Party]
    seen: Collection[Row]
    """The rows that the coalition sees."""
    trained: Mapping[tuple[Party, int], Collection[Row]] = field(default_factory=dict)
    """The rows that a party's vectors of later rounds depend on, by party and the round in which it received them."""

    def list_retained(self) -> tuple[list[Row], dict[Party, list[Row]]]:
        """Returns the rows that count, and the rows in which vectors of their own party do not count.

        A row that a party trains on counts only if a vector that depends on it is in a row that counts. All others
        leave what the coalition sees unchanged.

        Returns:
            The rows that the coalition sees or that honest parties train on, and the rows by the party that trains.
        """
        reached: dict[Party, int] = {}
        rows: dict[int, Row] = {}
        own: dict[Party, dict[int, Row]] = {}
        received: dict[Party, list[int]] = {}
        for party, round_ in self.trained:
            if party not in self.coalition:
                received.setdefault(party, []).append(round_)
        fresh = [*self.seen]
        while fresh:
            row = fresh.pop()
            if id(row) not in rows:
                rows[id(row)] = row
            for party, last in row.last_rounds.items():
                before = reached.get(party, 0)
                if party in self.coalition or last <= before:
                    continue
                reached[party] = last
                for round_ in received.get(party, ()):
                    if before <= round_ < last:
                        for each in self.trained[party, round_]:
                            own.setdefault(party, {})[id(each)] = each
                            if id(each) not in rows:
                                fresh.append(each)
        return list(rows.values()), {party: list(each.values()) for party, each in own.items()}
