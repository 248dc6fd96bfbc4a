"""Audits of thousands of rounds, which nobody can run one by one.

A round of secure aggregation leaves a coalition with one sum, and its masks are never seen again. So what many rounds
show is the row space of who was summed when (paper 002), and for that only the server's choices have to be made, by the
code that makes them in a real run and from the same entropy. That a round shows this sum and nothing else is not taken
on trust. Rounds differ in nothing but who is asked and who delivers, and show the more the fewer these are and the
more of them are members; so the smallest round that the settings allow, with as many members as ever meet in one, is
run whole on unknowns. If it shows more than its sum, the least number of members with which it does is searched for,
and rounds in which as many meet count as showing everybody's vector.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.linear import Echelon
from tacit.auditing.engine.noisy_replay import NoisyReplay
from tacit.auditing.engine.precision import NEAR, Spread, of_sums
from tacit.auditing.engine.recipes import SumRecipe, announced_sum, check_transcripts
from tacit.auditing.engine.symbolic_run import PROOF_ENTRIES, SymbolicRun, proof_vectors, transcripts
from tacit.auditing.scope import Scope
from tacit.auditing.search.worst_case import WorstCase
from tacit.auditing.symbolic.forms import Unknown
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.errors import ConfigError, TacitError
from tacit.core.progress import report_step
from tacit.core.suite import SERVER, Party, Vector
from tacit.protocols import is_shipped
from tacit.runtime.simulation.participation_trace import TracedRound, trace_participation
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

MOST_REPLAYED = 5_000
"""Parties times rounds that are replayed with real cryptography, at most, to prove recipes."""
MOST_ESTIMATED = 512
"""Parties up to which it is computed how many bits of an entry many rounds show."""
CHECKED, MOST_CHECKED = 2, 48
"""Rounds that are run whole to see that the rehearsal chooses as the server does, of parties up to that many."""


@dataclass(frozen=True)
class Together:
    """A round in which so many members meet that they can take everybody's masks off."""

    victim: Party
    round: int
    members: int

    def steps(self) -> list[tuple[Fraction, list[tuple[int, str]]]]:
        """Returns what it is worked out from."""
        what = f"what it sent in round {self.round}, unmasked with the shares of the {self.members} members asked in it"
        return [(Fraction(1), [(1, what)])]

    def __str__(self) -> str:
        return f"{self.victim} = {self.steps()[0][1][0][1]}"


@dataclass
class Sums:
    """What the sums of many rounds give away."""

    recipes: dict[Party, SumRecipe]
    safe_rounds: int
    rows: NDArray[np.int64]
    """A basis of what is known of the others' vectors."""
    together: dict[Party, Together]
    """Whose vectors are seen one by one in some round, since so many members meet in it."""
    bits: dict[Party, float] = field(default_factory=dict)
    """How many bits of an entry of each of the others are known; nothing if there are too many to say."""
    unsure: tuple[Party, ...] = ()
    """Who would be exposed if nothing changed between rounds, and may be although something does: without bits, nobody
    knows."""

    @property
    def exposed(self) -> dict[Party, SumRecipe | Together]:
        """Whose vectors can be worked out, and how."""
        return {**self.recipes, **self.together}

    @property
    def victims(self) -> list[Party]:
        """Whose vectors are exposed, or nearly so, or may be."""
        return [*self.recipes, *self.together, *self.nearly, *self.unsure]

    @property
    def nearly(self) -> list[Party]:
        """Whose vectors are as good as exposed."""
        return [
            party
            for party, bits in self.bits.items()
            if bits >= NEAR and party not in self.recipes and party not in self.together
        ]


class RehearsedRun:
    """The sums of many rounds, looked at by one coalition after another."""

    def __init__(self, scope: Scope, worst_case: WorstCase, *, checked: bool = True) -> None:
        """Chooses for all rounds; raises ConfigError if the first ones, where they are run, choose differently.

        They are run for protocols of others, and for few parties, unless they need not be `checked` again.
        """
        # Sums fare alike in all entries, so one of them stands for all.
        self.scope, self.names, self.rounds = replace(scope, entries=1, vectors=None), scope.parties, scope.rounds
        simulation = SymbolicSimulation(scope.protocol, scope.terms, 1, scope.seed, scope.faults)
        self.sets: list[TracedRound] = []
        for number, each in enumerate(trace_participation(simulation, self.rounds), start=1):
            self.sets.append(each)
            report_step(f"choosing who is summed, in round {number} of {self.rounds}")
        self.spread: Spread = scope.spread(simulation.agreement.ring().resolution)
        self.worst_case = worst_case
        self._least: dict[tuple[bool, int], int | None] = {}
        self._real: list[list[Transcript]] = []
        """Transcripts of the rounds that were replayed on numbers so far."""
        self._heard: dict[tuple[Party, int], Vector] = {}
        """Sums that were announced in those rounds, by receiver and round."""
        self.first: SymbolicRun | None = None
        if checked and (len(self.names) <= MOST_CHECKED or not is_shipped(scope.protocol)):
            self.first = first = SymbolicRun(replace(self.scope, rounds=min(CHECKED, self.rounds)))
            if [each.summed for each in self.sets[: len(first.contributors)]] != first.contributors:
                raise ConfigError(f"{scope.protocol.name} chose other parties in a round that was run than rehearsed")

    def agrees(self, members: Sequence[Party]) -> bool:
        """Says whether, in the first rounds, where they were run, members learnt no more than is said here."""
        if self.first is None:
            return True
        count = len(self.first.contributors)
        known = self.first.knowledge(members, count)
        rows, rounds = self.matrix(members)
        said = Echelon(len(known.others))
        for row, number in zip(rows, rounds, strict=True):
            if number <= count:
                said.take(np.array([self._in_row(each, row, number) for each in known.others], dtype=np.int64))
        return not any(said.take(row) for row in known.rows)

    def _in_row(self, unknown: Unknown, row: NDArray[np.int64], number: int) -> int:
        _, owner, entry = unknown
        party, when = owner if isinstance(owner, tuple) else (owner, number)
        return int(row[self.names.index(party)]) if entry == 0 and when == number else 0

    def meeting(self, members: Sequence[Party]) -> list[int]:
        """Returns how many members are asked in each round."""
        inside = set(members)
        return [sum(party in inside for party in each.asked) for each in self.sets]

    def least(self, members: Sequence[Party]) -> int | None:
        """Returns how many members must meet in a round for it to show more than its sum; None if no round does."""
        most = max(self.meeting(members), default=0)
        # A sum of one other tells nothing about what else a round shows. So two are left, and with fewer all is shown.
        tried = min(most, max((len(each.asked) for each in self.sets), default=0) - 2)
        key = SERVER in members, most
        if key not in self._least:
            found = None if tried >= most or SERVER not in members else tried + 1
            if tried >= 0 and not self.shows_a_sum(key[0], tried):
                found = bisect_left(range(tried + 1), True, key=lambda count: not self.shows_a_sum(key[0], count))
            self._least[key] = found
        return self._least[key]

    def shows_a_sum(self, server: bool, count: int) -> bool:
        """Says whether so many members, with the server or without, learn its sum from the smallest round, and no more.

        Users are alike but for their names, so the first ones stand for any.
        """
        members = [*([SERVER] if server else []), *self.names[:count]] or [self.names[-1]]
        known = self.worst_case.knowledge(members, others=2) or self._full.knowledge(members, 1)
        chosen = known.run.contributors[0]
        taken, summed = (Echelon(len(known.others)) for _ in range(2))
        for row in known.rows:
            taken.take(row)
        row = np.array([_in_sum(unknown, chosen) for unknown in known.others], dtype=np.int64)
        summed.take(row)
        return not taken.take(row) and len(taken.leads) == len(summed.leads)

    @cached_property
    def _full(self) -> SymbolicRun:
        """A round in which nobody may be missing."""
        return SymbolicRun(replace(self.scope, rounds=1, faults=()))

    def matrix(self, members: Sequence[Party]) -> tuple[NDArray[np.int64], list[int]]:
        """Returns which of the others' vectors were shown together, row by row, and the round of each row.

        A round in which too many members meet shows each vector that was delivered, in a row of its own.
        """
        column = {party: place for place, party in enumerate(self.names) if party not in members}
        least, shown, rounds = self.least(members), [], []
        for number, (each, met) in enumerate(zip(self.sets, self.meeting(members), strict=True), start=1):
            groups = [each.summed]
            if least is not None and met >= least:
                groups += [(party,) for party in each.delivered]
            for group in groups:
                shown.append([column[party] for party in group if party in column])
                rounds.append(number)
        rows = np.zeros((len(shown), len(self.names)), dtype=np.int64)
        for row, places in zip(rows, shown, strict=True):
            row[places] = 1
        return rows, rounds

    def sums(self, members: Sequence[Party]) -> Sums:
        """Returns what a coalition learns over all rounds."""
        report_step(f"comparing the sums of {self.rounds} rounds")
        rows, rounds = self.matrix(members)
        found = self._standing(members, rows, rounds) if self.scope.static else self._fresh(members, rows, rounds)
        if len(self.names) <= MOST_ESTIMATED:
            bits, near = of_sums(list(rows), rounds, self.spread, len(self.names))
            # Sums are exact in the ring, so what is worked out from them alone is, unless there is noise in it.
            exact = {party: self.spread.most for party in found.exposed if not self.spread.noise}
            known = dict(zip(self.names, bits.tolist(), strict=True)) | exact
            found.bits = {party: each for party, each in known.items() if party not in members}
            if found.nearly and near is not None:
                found.safe_rounds = min(found.safe_rounds, near - 1)
        elif self.scope.tied:
            # What changes little shows as much as what stands still. How little that is only bits would say, so what
            # they cannot be computed of is judged by the worst case: who is safe in that is safe.
            still = self._standing(members, rows, rounds)
            found.unsure = tuple(party for party in still.exposed if party not in found.exposed)
            found.safe_rounds, found.rows = min(found.safe_rounds, still.safe_rounds), still.rows
        return found

    @property
    def averages(self) -> int:
        """How many rounds end with an average."""
        return sum(bool(each.summed) for each in self.sets)

    def _standing(self, members: Sequence[Party], rows: NDArray[np.int64], rounds: Sequence[int]) -> Sums:
        """Returns what a coalition learns if everybody brings the same vector every time."""
        echelon, safe = Echelon(len(self.names)), self.rounds
        for number, row in zip(rounds, rows, strict=True):
            if echelon.take(row) and safe == self.rounds and echelon.list_determined():
                safe = number - 1
        together = self._together(members, rows, rounds)
        recipes: dict[Party, SumRecipe] = {}
        exposed = [column for column in sorted(echelon.list_determined()) if self.names[column] not in together]
        if exposed:
            # All at once: what takes long is to decompose the matrix, not to solve for one more column.
            whole = {rounds.index(number) for number in set(rounds)}  # the sum of a round is the first of its rows
            # In the columns that lead, the rows are a square matrix that has an inverse.
            used, units = rows[echelon.used].astype(np.float64), np.eye(len(self.names))[:, exposed]
            found = np.linalg.solve(used[:, echelon.leads].T, units[echelon.leads])
            for column, factors in zip(exposed, found.T, strict=True):
                used_rows = {echelon.used[i]: float(factor) for i, factor in enumerate(factors) if abs(factor) > 1e-12}
                victim, alone = self.names[column], [row for row in used_rows if row not in whole]
                if alone:
                    last = max(rounds[row] for row in alone)
                    together[victim] = Together(victim, last, self.meeting(members)[last - 1])
                else:
                    kept = {rounds[row]: factor for row, factor in used_rows.items()}
                    recipes[victim] = self._recipe(victim, members, kept)
        return Sums(recipes, safe, echelon.matrix, together)

    def _fresh(self, members: Sequence[Party], rows: NDArray[np.int64], rounds: Sequence[int]) -> Sums:
        """Returns what a coalition learns if everybody brings a new vector every time: each sum stands alone."""
        sizes = rows.sum(axis=1)
        recipes: dict[Party, SumRecipe] = {}
        together = self._together(members, rows, rounds)
        alone = np.flatnonzero(sizes == 1)
        for place in alone:
            victim = self.names[int(rows[place].argmax())]
            if victim not in together:
                recipes.setdefault(victim, self._recipe(victim, members, {rounds[int(place)]: 1.0}))
        safe = rounds[int(alone[0])] - 1 if len(alone) else self.rounds
        # One column a round and party: the classes are then the sets themselves, of which only the sizes matter.
        smallest = int(sizes[sizes > 0].min()) if sizes.any() else 0
        ones = np.ones((1, smallest), dtype=np.int64)
        return Sums(recipes, safe, ones, together)

    def _together(
        self, members: Sequence[Party], rows: NDArray[np.int64], rounds: Sequence[int]
    ) -> dict[Party, Together]:
        """Returns whose vectors are seen one by one, and in which round first."""
        least, met = self.least(members), self.meeting(members)
        found: dict[Party, Together] = {}
        for row, number in zip(rows, rounds, strict=True):
            if least is not None and met[number - 1] >= least and row.sum() == 1:
                victim = self.names[int(row.argmax())]
                found.setdefault(victim, Together(victim, number, met[number - 1]))
        return found

    def _recipe(self, victim: Party, members: Sequence[Party], factors: dict[int, float]) -> SumRecipe:
        own = {
            (member, round_): factor
            for round_, factor in factors.items()
            for member in members
            if member in self.sets[round_ - 1].summed
        }
        listener = SERVER if SERVER in members else members[0]
        return SumRecipe(victim, listener, factors, own)

    def rounds_to_replay(self, recipes: dict[Party, SumRecipe]) -> int:
        """Returns how many rounds recipes are replayed on; 0 if there are none, or if that would take too long."""
        last = max((round_ for recipe in recipes.values() for round_ in recipe.factors), default=0)
        return last if last * len(self.names) <= MOST_REPLAYED else 0

    def errors(self, recipes: dict[Party, SumRecipe]) -> dict[Party, float]:
        """Returns how far recipes are off when replayed without noise; of none if that would take too long."""
        last = self.rounds_to_replay(recipes)
        if not last:
            return {}
        found = {}
        for victim, recipe in recipes.items():
            truth = self.proof_inputs(max(recipe.factors))[victim]
            heard = partial(self._announced_sum, recipe.listener, last)
            try:
                found[victim] = float(
                    np.abs(recipe.combine(check_transcripts(self._replay_rounds(last)), heard) - truth).max()
                )
            except (TacitError, LookupError):
                found[victim] = math.inf  # the real run went another way
        return found

    def proof_inputs(self, number: int) -> dict[Party, NDArray[np.float64]]:
        """Returns the vectors on which recipes are proved, of a round."""
        return proof_vectors(self.names, 1 if self.scope.static else number, PROOF_ENTRIES, self.scope.proof_size)

    def _replay_rounds(self, rounds: int) -> list[Transcript]:
        """Returns transcripts of the first rounds on numbers. They are the same for all coalitions, and played once."""
        while len(self._real) < rounds:
            self._real.append([*transcripts(self._simulation, [self.proof_inputs(len(self._real) + 1)])])
        return [transcript for each in self._real[:rounds] for transcript in each]

    @cached_property
    def _simulation(self) -> Simulation:
        return self.scope.real(PROOF_ENTRIES)

    @cached_property
    def noisy(self) -> NoisyReplay:
        """The same rounds with the noise of the settings."""
        return NoisyReplay(self.scope, PROOF_ENTRIES, self.proof_inputs)

    def _announced_sum(self, listener: Party, rounds: int, number: int) -> Vector:
        """Returns the sum that somebody heard in one of the first rounds, which is opened once."""
        if (listener, number) not in self._heard:
            self._heard[listener, number] = announced_sum(self._replay_rounds(rounds)[number - 1], listener)
        return self._heard[listener, number]


def _in_sum(unknown: Unknown, chosen: Sequence[Party]) -> bool:
    """Says whether a vector is in the sum of the one round that was run."""
    _, owner, entry = unknown
    return entry == 0 and (owner[0] if isinstance(owner, tuple) else owner) in chosen
