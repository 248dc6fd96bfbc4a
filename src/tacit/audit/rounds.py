"""Audits of thousands of rounds, which nobody can run one by one.

A round of secure aggregation leaves a coalition with one sum, and its masks are never seen again. So what many rounds
show is the row space of who was summed when (paper 002), and for that only the server's choices have to be made, by the
code that makes them in a real run and from the same entropy. That a round shows this sum and nothing else is not taken
on trust: the first rounds are run whole on unknowns, and compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.audit.linear import Echelon
from tacit.audit.recipes import SumRecipe
from tacit.audit.rehearsal import rehearsed
from tacit.audit.runs import PROOF_ENTRIES, SymbolicRun, proof_vectors, transcripts
from tacit.audit.symbolic.forms import Unknown
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER, Party

MOST_REPLAYED = 5_000
"""Parties times rounds that are replayed with real cryptography, at most, to prove recipes."""


@dataclass
class Sums:
    """What the sums of many rounds give away."""

    recipes: dict[Party, SumRecipe]
    safe_rounds: int
    rows: NDArray[np.int64]
    """A basis of what is known of the others' vectors."""


class RehearsedRun:
    """The sums of many rounds, looked at by one coalition after another."""

    def __init__(self, run: SymbolicRun, rounds: int) -> None:
        """Takes the first rounds as they were run, and chooses for all of them; raises ConfigError if that differs."""
        self.run, self.names, self.rounds = run, run.names, rounds
        self.sets = list(rehearsed(run.simulation, rounds))
        if self.sets[: len(run.contributors)] != run.contributors:
            raise ConfigError(f"{run.scope.protocol.name} chose other parties in a round that was run than rehearsed")

    def matrix(self, members: Sequence[Party]) -> NDArray[np.int64]:
        """Returns which of the others' vectors were summed, a row for each round."""
        rows = np.zeros((len(self.sets), len(self.names)), dtype=np.int64)
        column = {party: place for place, party in enumerate(self.names) if party not in members}
        for row, chosen in zip(rows, self.sets, strict=True):
            row[[column[party] for party in chosen if party in column]] = 1
        return rows

    def agrees(self, members: Sequence[Party]) -> bool:
        """Says whether, in the rounds that were run, a coalition learnt the sums and nothing else."""
        known = self.run.knowledge(members, len(self.run.contributors))
        taken, summed = (Echelon(len(known.others)) for _ in range(2))
        for row in known.rows:
            taken.take(row)
        for round_, chosen in enumerate(self.run.contributors, start=1):
            row = np.array([_in_sum(unknown, chosen, round_) for unknown in known.others], dtype=np.int64)
            summed.take(row)
            if taken.take(row):
                return False
        return len(taken.leads) == len(summed.leads)

    def sums(self, members: Sequence[Party]) -> Sums:
        """Returns what a coalition learns if everybody brings the same vector every time."""
        rows = self.matrix(members)
        echelon, safe = Echelon(len(self.names)), self.rounds
        for number, row in enumerate(rows):
            if echelon.take(row) and safe == self.rounds and echelon.exposed():
                safe = number
        recipes: dict[Party, SumRecipe] = {}
        exposed = sorted(echelon.exposed())
        if not exposed:
            return Sums(recipes, safe, echelon.matrix)
        # All at once: what takes long is to decompose the matrix, not to solve for one more column.
        used, units = rows[echelon.used].astype(np.float64), np.eye(len(self.names))[:, exposed]
        for column, factors in zip(exposed, np.linalg.lstsq(used.T, units, rcond=None)[0].T, strict=True):
            kept = {echelon.used[i] + 1: float(factor) for i, factor in enumerate(factors) if abs(factor) > 1e-12}
            recipes[self.names[column]] = self._recipe(self.names[column], members, kept)
        return Sums(recipes, safe, echelon.matrix)

    def fresh_sums(self, members: Sequence[Party]) -> Sums:
        """Returns what a coalition learns if everybody brings a new vector every time: each sum stands alone."""
        rows = self.matrix(members)
        sizes = rows.sum(axis=1)
        recipes: dict[Party, SumRecipe] = {}
        for number in np.flatnonzero(sizes == 1):
            victim = self.names[int(rows[number].argmax())]
            recipes.setdefault(victim, self._recipe(victim, members, {int(number) + 1: 1.0}))
        first = np.flatnonzero(sizes == 1)
        safe = int(first[0]) if len(first) else self.rounds
        # One column a round and party: the classes are then the sets themselves, of which only the sizes matter.
        smallest = int(sizes[sizes > 0].min()) if sizes.any() else 0
        return Sums(recipes, safe, np.ones((1, smallest), dtype=np.int64))

    def _recipe(self, victim: Party, members: Sequence[Party], factors: dict[int, float]) -> SumRecipe:
        own = {
            (member, round_): factor
            for round_, factor in factors.items()
            for member in members
            if member in self.sets[round_ - 1]
        }
        listener = SERVER if SERVER in members else members[0]
        return SumRecipe(victim, listener, factors, own)

    def errors(self, recipes: dict[Party, SumRecipe]) -> dict[Party, float]:
        """Returns how far recipes are off when replayed with real cryptography; of none if that would take too long."""
        last = max((round_ for recipe in recipes.values() for round_ in recipe.factors), default=0)
        if not 0 < last * len(self.names) <= MOST_REPLAYED:
            return {}
        scope = self.run.scope
        brought = [
            proof_vectors(self.names, number if scope.drift == "free" else 1, PROOF_ENTRIES)
            for number in range(1, last + 1)
        ]
        real = list(transcripts(scope.real(PROOF_ENTRIES), brought))
        found = {}
        for victim, recipe in recipes.items():
            truth = brought[max(recipe.factors) - 1][victim]
            found[victim] = float(np.abs(recipe.recover(real) - truth).max())
        return found


def _in_sum(unknown: Unknown, chosen: Sequence[Party], round_: int) -> bool:
    """Says whether a vector is in the sum of a round: one that stands for all rounds, or for this one."""
    _, owner, entry = unknown
    party, when = owner if isinstance(owner, tuple) else (owner, round_)
    return entry == 0 and party in chosen and when == round_
