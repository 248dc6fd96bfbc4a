"""Replay of recipes on rounds with the noise of the settings, in the deployed ring.

A recipe is proved without noise, so that only the algebra can be wrong. In a real run it recovers the vector with its
noise, so its error is measured against that. Members of a coalition know the noise that they drew themselves, and
subtract it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.recipes import Recipe, SumRecipe, announced_sum
from tacit.auditing.engine.symbolic_run import transcripts
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.simulation import in_session
from tacit.core.entropy import RecordingEntropy
from tacit.core.errors import TacitError
from tacit.core.suite import Party, Update, Vector
from tacit.crypto.suite import RealSuite
from tacit.runtime.agreement import Agreement
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Holdings, Transcript
from tacit.vectors.fixedpoint import FixedPoint

Vectors = Mapping[Party, NDArray[np.float64]]


class NotingRing(FixedPoint):
    """The ring of an agreement, which logs the noise that it draws."""

    def __init__(self, agreement: Agreement) -> None:
        settings, terms = agreement.settings, agreement.terms
        super().__init__(
            settings.bits,
            terms.span,
            terms.summands,
            agreement.entries,
            settings.max_weight,
            noise=settings.noise,
            norm=settings.norm,
            stochastic=settings.stochastic,
            alone=terms.alone,
        )
        self.noted: list[NDArray[np.float64]] = []
        """The noise of each encoded vector, in units of an entry, rounding error included."""

    def _encode_noisy(self, encoded: Vector, vector: Any, part_of: float) -> None:
        quiet, noise = np.empty_like(encoded), self.noise
        self.noise = 0.0
        super()._encode_noisy(quiet, vector, part_of)
        self.noise = noise
        super()._encode_noisy(encoded, vector, part_of)
        self.noted.append(self.floats(encoded - quiet) / part_of)


class NotingParticipant(KeyedParticipant):
    """A party whose rings log the noise that they draw."""

    ring: NotingRing | None = None
    """The ring of the last round."""

    def rebuild(self) -> "NotingParticipant":
        """Returns the participant as it is after a restart."""
        more: dict[str, Any] = {"number": self.number, "state": self.state, "unfinished": self.unfinished}
        return NotingParticipant(self.agreement, self.identity, role=self.role, record=True, **more)

    def suite(self, number: int, seed: bytes) -> RealSuite:
        """Returns the cryptographic suite of a round."""
        del number
        self.ring = NotingRing(self.agreement)
        return RealSuite(self.keys, RecordingEntropy(seed), self.ring)


class NoisyReplay:
    """Rounds with noise, simulated once for all coalitions."""

    def __init__(
        self, scope: Scope, entries: int, bring: Callable[[int], Vectors], session: bytes | None = None
    ) -> None:
        """Prepares the rounds.

        Args:
            scope: The scope of the audit.
            entries: Length of the vectors.
            bring: Returns the vectors that parties contribute to a round, by its number.
            session: Session of the symbolic run, if the recipes are from one.
        """
        real = scope.real(entries)
        participants = {
            name: NotingParticipant(real.agreement, each.identity, role=each.role, record=True)
            for name, each in real.participants.items()
            if isinstance(each, KeyedParticipant)
        }
        self._simulation = Simulation(real.agreement, participants, scope.seed, scope.faults, record=True, twin=True)
        if session is not None:
            self._simulation.join(in_session(real.agreement, session))
        self._bring, self._ring = bring, real.agreement.ring()
        self._played: list[list[Transcript]] = []
        self._truth: list[Vectors] = []
        self._heard: dict[tuple[Party, int], Vector] = {}

    def errors(self, recipes: Mapping[Party, Recipe | SumRecipe], rounds: int) -> dict[Party, float]:
        """Returns for each recipe its largest distance from the victim's vector in the first rounds."""
        return {victim: self._error(recipe, victim, rounds) for victim, recipe in recipes.items()}

    def _error(self, recipe: Recipe | SumRecipe, victim: Party, rounds: int) -> float:
        played = self._play(rounds)
        try:
            if isinstance(recipe, SumRecipe):
                recovered = recipe.combine(played, lambda number: self._announced_sum(played, recipe.listener, number))
            else:
                recovered = recipe.recover(played)
        except (TacitError, LookupError):
            return math.inf  # The real run made other choices.
        found = ~np.isnan(recovered)
        return float(min(np.abs(recovered - vectors[victim])[found].max() for vectors in self._truth[:rounds]))

    def _play(self, rounds: int) -> list[Transcript]:
        """Returns transcripts of the first rounds. In them every party's vector is the one with its noise."""
        while len(self._played) < rounds:
            brought = self._bring(len(self._played) + 1)
            self._truth.append({party: self._bound(vector) for party, vector in brought.items()})
            self._played.append([self._with_noise(each) for each in transcripts(self._simulation, [brought])])
        return [transcript for each in self._played[:rounds] for transcript in each]

    def _bound(self, vector: Any) -> NDArray[np.float64]:
        """Returns a vector as it is averaged: scaled to the norm, and clipped."""
        return np.asarray(self._ring.clip_vector(np.asarray(vector, np.float64), self._ring.clip))

    def _with_noise(self, transcript: Transcript) -> Transcript:
        held: Iterable[tuple[Party, Holdings]] = transcript.holdings.items()
        return replace(transcript, holdings={party: self._add_noise(party, each) for party, each in held})

    def _add_noise(self, party: Party, held: Holdings) -> Holdings:
        """Returns a party's record with the noise added to its vector, if all entries have the noise of one
        encoding."""
        participant, update = self._simulation.participants[party], held.update
        if update is None or not isinstance(participant, NotingParticipant) or participant.ring is None:
            return held
        vector = self._bound(update.vector)
        drawn = next((each for each in participant.ring.noted if len(each) == len(vector)), 0.0)
        return replace(held, update=Update(vector + drawn, update.weight))

    def _announced_sum(self, played: list[Transcript], listener: Party, number: int) -> Vector:
        if (listener, number) not in self._heard:
            self._heard[listener, number] = announced_sum(played[number - 1], listener)
        return self._heard[listener, number]
