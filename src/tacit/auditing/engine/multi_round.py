"""Audits of thousands of rounds, which would take too long to run one by one.

In a round of secure aggregation a coalition learns one sum, and the masks are never used again. So what it learns over
many rounds is the row space of the matrix of contributors by round (paper 002). For this matrix only the server's
choices are needed. They are made by the deployed code, from the same entropy as in a real run.

That a round shows only its sum is checked, not assumed. Rounds differ only in who is asked and who delivers. They show
more, the fewer parties they have and the more of these collude. So the smallest round that the settings allow is run in
full on symbols, with as many colluding parties as ever meet in one round. If it shows more than its sum, the least
number of colluding parties for that is searched for, and rounds in which as many meet count as exposing every vector.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import Echelon
from tacit.auditing.engine.algebra.precision import NEAR, Spread, of_sums
from tacit.auditing.engine.noisy_replay import NoisyReplay
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
"""The largest product of parties and rounds that is replayed with real cryptography to prove recipes."""
MOST_ESTIMATED = 512
"""The largest number of parties for which the bits that many rounds expose are computed."""
CHECKED, MOST_CHECKED = 2, 48
"""Number of rounds that are run in full to check that the rehearsal makes the server's choices, and the largest number
of parties for which this is done."""


@dataclass(frozen=True)
class Together:
    """Recipe of a round in which enough coalition members meet to remove the masks of every party."""

    victim: Party
    round: int
    members: int

    def __str__(self) -> str:
        from tacit.auditing.render.formulas import render_formula  # it imports this module

        return render_formula(self)


@dataclass
class Sums:
    """What a coalition learns from the sums of many rounds."""

    recipes: dict[Party, SumRecipe]
    safe_rounds: int
    rows: NDArray[np.int64]
    """Basis of what the coalition knows of the others' vectors."""
    together: dict[Party, Together]
    """Parties whose vectors are exposed one by one, because enough coalition members meet in a round."""
    bits: dict[Party, float] = field(default_factory=dict)
    """Bits that the coalition knows of an entry of each other party; empty if there are too many parties to compute
    them."""
    unsure: tuple[Party, ...] = ()
    """Parties that would be exposed if models were static. They may be exposed although models drift or carry noise,
    which is not computed without `bits`."""

    @property
    def exposed(self) -> dict[Party, SumRecipe | Together]:
        """Recipes for the parties whose vectors can be recovered."""
        return {**self.recipes, **self.together}

    @property
    def victims(self) -> list[Party]:
        """Parties whose vectors are exposed, nearly exposed, or possibly exposed."""
        return [*self.recipes, *self.together, *self.nearly, *self.unsure]

    @property
    def nearly(self) -> list[Party]:
        """Parties whose vectors are known so closely that they count as exposed."""
        return [
            party
            for party, bits in self.bits.items()
            if bits >= NEAR and party not in self.recipes and party not in self.together
        ]


class RehearsedRun:
    """The sums of many rounds, analysed for one coalition after another."""

    def __init__(self, scope: Scope, worst_case: WorstCase, *, checked: bool = True) -> None:
        """Makes the server's choices for all rounds. Raises ConfigError if the first rounds, run in full, choose
        differently.

        The first rounds are run for protocols that are not shipped, and if there are few parties. `checked=False` skips
        this.
        """
        # All entries of a sum are alike, so one entry stands for all.
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
                raise ConfigError(f"{scope.protocol.name} chose other parties in the executed round than in its trace")

    def agrees(self, members: Sequence[Party]) -> bool:
        """Says whether members learnt no more than the rehearsal says in the first rounds, as far as these were run in
        full."""
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
        """Returns the number of members that are asked in each round."""
        inside = set(members)
        return [sum(party in inside for party in each.asked) for each in self.sets]

    def least(self, members: Sequence[Party]) -> int | None:
        """Returns how many members must meet in a round for it to show more than its sum; None if no round does."""
        most = max(self.meeting(members), default=0)
        # With one other party left, the sum already exposes everything, which says nothing about what else a round
        # shows. So at least two others are left here, and any round with fewer counts as exposing every vector.
        tried = min(most, max((len(each.asked) for each in self.sets), default=0) - 2)
        key = SERVER in members, most
        if key not in self._least:
            found = None if tried >= most or SERVER not in members else tried + 1
            if tried >= 0 and not self.shows_a_sum(key[0], tried):
                found = bisect_left(range(tried + 1), True, key=lambda count: not self.shows_a_sum(key[0], count))
            self._least[key] = found
        return self._least[key]

    def shows_a_sum(self, server: bool, count: int) -> bool:
        """Says whether `count` members, with the server or without, learn exactly the sum from the smallest round.

        Users are interchangeable, so the first ones stand for any.
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
        """A round without dropouts."""
        return SymbolicRun(replace(self.scope, rounds=1, faults=()))

    def matrix(self, members: Sequence[Party]) -> tuple[NDArray[np.int64], list[int]]:
        """Returns the sets of others whose vectors were shown together, one row per set, and the round of each row.

        If too many members meet in a round, it shows each delivered vector in a row of its own.
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
            # Sums are exact in the ring, so vectors that follow from sums alone are known exactly, unless they carry
            # noise.
            exact = {party: self.spread.most for party in found.exposed if not self.spread.noise}
            known = dict(zip(self.names, bits.tolist(), strict=True)) | exact
            found.bits = {party: each for party, each in known.items() if party not in members}
            if found.nearly and near is not None:
                found.safe_rounds = min(found.safe_rounds, near - 1)
        elif self.scope.tied:
            # Models that drift little expose as much as static ones. Only the bits say how much that is. Where bits
            # cannot be computed, the static case decides, which is the worst case: a party that is safe there is safe.
            still = self._standing(members, rows, rounds)
            found.unsure = tuple(party for party in still.exposed if party not in found.exposed)
            found.safe_rounds, found.rows = min(found.safe_rounds, still.safe_rounds), still.rows
        return found

    @property
    def averages(self) -> int:
        """Number of rounds that end with an average."""
        return sum(bool(each.summed) for each in self.sets)

    def _standing(self, members: Sequence[Party], rows: NDArray[np.int64], rounds: Sequence[int]) -> Sums:
        """Returns what a coalition learns if every party contributes the same vector in each round."""
        echelon, safe = Echelon(len(self.names)), self.rounds
        for number, row in zip(rounds, rows, strict=True):
            if echelon.take(row) and safe == self.rounds and echelon.list_determined():
                safe = number - 1
        together = self._together(members, rows, rounds)
        recipes: dict[Party, SumRecipe] = {}
        exposed = [column for column in sorted(echelon.list_determined()) if self.names[column] not in together]
        if exposed:
            # All columns are solved at once, because the decomposition of the matrix takes most of the time.
            whole = {rounds.index(number) for number in set(rounds)}  # The sum of a round is the first of its rows.
            # Restricted to the leading columns, the rows are an invertible square matrix.
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
        """Returns what a coalition learns if every party contributes a new vector in each round: sums are then
        independent."""
        sizes = rows.sum(axis=1)
        recipes: dict[Party, SumRecipe] = {}
        together = self._together(members, rows, rounds)
        alone = np.flatnonzero(sizes == 1)
        for place in alone:
            victim = self.names[int(rows[place].argmax())]
            if victim not in together:
                recipes.setdefault(victim, self._recipe(victim, members, {rounds[int(place)]: 1.0}))
        safe = rounds[int(alone[0])] - 1 if len(alone) else self.rounds
        # With one column per round and party, the classes are the sets of summed parties. Only their sizes matter.
        smallest = int(sizes[sizes > 0].min()) if sizes.any() else 0
        ones = np.ones((1, smallest), dtype=np.int64)
        return Sums(recipes, safe, ones, together)

    def _together(
        self, members: Sequence[Party], rows: NDArray[np.int64], rounds: Sequence[int]
    ) -> dict[Party, Together]:
        """Returns the parties whose vectors are exposed one by one, with the first round for each."""
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
        """Returns the number of rounds on which recipes are replayed; 0 if there are no recipes, or it would take too
        long."""
        last = max((round_ for recipe in recipes.values() for round_ in recipe.factors), default=0)
        return last if last * len(self.names) <= MOST_REPLAYED else 0

    def errors(self, recipes: dict[Party, SumRecipe]) -> dict[Party, float]:
        """Returns the error of each recipe when replayed without noise; empty if that would take too long."""
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
                found[victim] = math.inf  # The real run made other choices.
        return found

    def proof_inputs(self, number: int) -> dict[Party, NDArray[np.float64]]:
        """Returns the vectors of a round on which recipes are proved."""
        return proof_vectors(self.names, 1 if self.scope.static else number, PROOF_ENTRIES, self.scope.proof_size)

    def _replay_rounds(self, rounds: int) -> list[Transcript]:
        """Returns transcripts of the first rounds on numbers. They are the same for all coalitions, and are made
        once."""
        while len(self._real) < rounds:
            self._real.append([*transcripts(self._simulation, [self.proof_inputs(len(self._real) + 1)])])
        return [transcript for each in self._real[:rounds] for transcript in each]

    @cached_property
    def _simulation(self) -> Simulation:
        return self.scope.real(PROOF_ENTRIES)

    @cached_property
    def noisy(self) -> NoisyReplay:
        """The same rounds, with the noise of the settings."""
        return NoisyReplay(self.scope, PROOF_ENTRIES, self.proof_inputs)

    def _announced_sum(self, listener: Party, rounds: int, number: int) -> Vector:
        """Returns the sum that a party received in one of the first rounds. Its message is decrypted once."""
        if (listener, number) not in self._heard:
            self._heard[listener, number] = announced_sum(self._replay_rounds(rounds)[number - 1], listener)
        return self._heard[listener, number]


def _in_sum(unknown: Unknown, chosen: Sequence[Party]) -> bool:
    """Says whether a vector is in the sum of the round that was run."""
    _, owner, entry = unknown
    return entry == 0 and (owner[0] if isinstance(owner, tuple) else owner) in chosen
