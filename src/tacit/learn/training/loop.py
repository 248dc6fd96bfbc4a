"""The one loop of local work and averaging.

With a server, everybody goes on from one model, so what parties bring is how far they have come from it: small numbers,
for which a ring of few bits can be fitted. Without one there is no such model, and they bring the models themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, NotEnough, PeerFault
from tacit.core.suite import Party, Update
from tacit.learn.models.model import Score
from tacit.learn.training.cohort import Cohort
from tacit.runtime.outcome import Outcome, Traffic
from tacit.runtime.participation_trace import trace_participation
from tacit.runtime.simulator import Simulation

Averaging: TypeAlias = Callable[[Mapping[Party, Update]], Outcome]
"""What averages the updates of a round, such as `Simulation.average`."""
Floats: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class TrainingStep:
    """One round of training."""

    number: int
    brought: Mapping[Party, Update]
    outcome: Outcome | None
    """None if too few were left for an average."""
    why: str = ""
    """Why there is none."""


LocalWork: TypeAlias = Callable[[int, TrainingStep | None], Mapping[Party, Update]]
"""Given the number of a round, from 1, and the step before it: what parties bring after their local work."""


def run_rounds(average: Averaging, bring: LocalWork, rounds: int, first: int = 1) -> Iterator[TrainingStep]:
    """Yields round after round of local work, by `bring`, and averaging."""
    step = None
    for number in range(first, rounds + 1):
        brought = bring(number, step)
        try:
            step = TrainingStep(number, brought, average(brought))
        except (NotEnough, PeerFault) as error:
            step = TrainingStep(number, brought, None, str(error))
        yield step


@dataclass
class Training:
    """Parties that learn together: their models, and what averages them.

    Between rounds, rows of the cohort's matrix are everybody's models. There is no other copy of them.
    """

    cohort: Cohort
    parties: tuple[Party, ...]
    simulation: Simulation | None = None
    """None if nobody averages."""
    weights: Mapping[Party, float] = field(default_factory=dict)
    begin: Callable[[int, Sequence[Party]], None] | None = None
    """Told of a round, and of who has to work in it, before anybody does; may raise to end it all."""
    noise: Callable[[int, int], NDArray[np.float64]] | None = None
    """What a server that is trusted adds to the average of a round, given its number and how many were averaged."""
    number: int = 0
    """Rounds that are over."""
    excluded: dict[Party, str] = field(default_factory=dict)
    """Who takes no further part, and why."""
    losses: dict[Party, float] = field(default_factory=dict)
    """What each party's local work ended with, if it did any in the last round."""
    shared: Floats | None = None
    """With a server, the model that everybody goes on from."""

    def __post_init__(self) -> None:
        if self.simulation is not None and self.simulation.agreement.protocol.server is not None:
            self.shared = self.cohort.matrix[0].copy() if self.shared is None else self.shared

    @property
    def models(self) -> Floats:
        """The models that there are now: one that all share, or one a party."""
        return self.cohort.matrix if self.shared is None else self.shared[None, :]

    def steps(self, rounds: int) -> Iterator[TrainingStep]:
        """Yields what is left of so many rounds, each once its averages are in place."""
        for step in run_rounds(self._average, self._train_locally, rounds, self.number + 1):
            self._adopt(step)
            self.number = step.number
            yield step

    def scores(self, x: NDArray[np.generic], y: NDArray[np.generic]) -> list[Score]:
        """Returns how good each of the models is."""
        if self.shared is not None:
            return [self.cohort.model.evaluate(self.shared, x, y)]
        return self.cohort.evaluate(self._active(), x, y)

    def consensus(self) -> Floats:
        """Returns the mean of all models that are still in it."""
        if self.shared is not None:
            return self.shared
        return np.asarray(np.mean(self.cohort.matrix[self._active()], axis=0, dtype=np.float64), np.float32)

    # --- one round -------------------------------------------------------------------------------------------------

    def _active(self) -> list[int]:
        return [place for place, party in enumerate(self.parties) if party not in self.excluded]

    def _choose_workers(self) -> list[int]:
        """Returns who has to work: those whom the server will ask, if that can be told beforehand, or all."""
        left, simulation = self._active(), self.simulation
        if simulation is None or simulation.agreement.protocol.choice is None or self.excluded:
            return left
        try:
            asked = set(next(trace_participation(simulation, 1)).asked)
        except ConfigError:
            return left  # what goes wrong in the round is more than can be told beforehand
        return [place for place in left if self.parties[place] in asked]

    def _train_locally(self, number: int, before: TrainingStep | None) -> Mapping[Party, Update]:
        del before
        working, matrix = self._choose_workers(), self.cohort.matrix
        if self.begin is not None:
            self.begin(number, [self.parties[place] for place in working])
        if self.shared is not None:
            matrix[working] = self.shared
        losses = self.cohort.work(working, number)
        self.losses = {self.parties[place]: float(loss) for place, loss in zip(working, losses, strict=True)}
        for place in working:
            if not (np.isfinite(self.losses[self.parties[place]]) and np.isfinite(matrix[place]).all()):
                self.excluded[self.parties[place]] = f"its loss was no longer a number in round {number}"
        if not (left := self._active()):
            raise ConfigError(
                "nobody's loss is a number any more; use a smaller rate, or look for samples that are not"
            )
        if self.shared is not None:
            for place in set(working) & set(left):
                matrix[place] -= self.shared
        return {
            self.parties[place]: Update(matrix[place], self.weights.get(self.parties[place], 1.0)) for place in left
        }

    def _average(self, brought: Mapping[Party, Update]) -> Outcome:
        if self.simulation is None:
            return Outcome({}, (), Traffic(), {}, {})
        out = None if self.shared is not None else self.cohort.matrix
        return self.simulation.average(brought, out=out, absent=tuple(self.excluded))

    def _adopt(self, step: TrainingStep) -> None:
        """Puts averages in the place of models. Whoever did not get one keeps its own, or the one that is shared."""
        if self.shared is None or step.outcome is None:
            return
        average = next(iter(step.outcome.average.values()))
        if self.noise is not None:
            average = average + self.noise(step.number, len(step.outcome.contributors))
        np.add(self.shared, average, out=self.shared, casting="same_kind")


def weigh_by_samples(parts: Sequence[NDArray[np.int64]], parties: Sequence[Party]) -> dict[Party, float]:
    """Returns weights by the number of samples."""
    return {party: float(len(part)) for party, part in zip(parties, parts, strict=True)}
