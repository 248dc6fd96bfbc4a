"""Training loop: rounds of local work and averaging.

With a server all parties continue from one shared model, so their updates are changes to it. Changes are small numbers,
for which a ring of few bits is enough. Without a server there is no shared model, and updates are the models
themselves.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, NotEnough, PeerFault, TacitError
from tacit.core.link import frame_parts
from tacit.core.suite import SERVER, Party, Update
from tacit.learn.models.model import Score
from tacit.learn.training.cohort import Cohort
from tacit.runtime.journal import fingerprint_update
from tacit.runtime.outcome import Outcome, Traffic
from tacit.runtime.simulation.participation_trace import trace_participation
from tacit.runtime.simulation.simulator import Simulation

Averaging: TypeAlias = Callable[[Mapping[Party, Update]], Outcome]
"""Callable that averages the updates of a round, such as `Simulation.average`."""
Floats: TypeAlias = NDArray[np.float32]
ServerNoise: TypeAlias = Callable[[int, bytes, NDArray[np.float64], int], NDArray[np.float64]]
"""Callable that returns the average of a round with noise.

It takes the number of the round, the digest of its updates, the average, and the number of contributors.
"""


@dataclass(frozen=True)
class TrainingStep:
    """One round of training."""

    number: int
    updates: Mapping[Party, Update]
    outcome: Outcome | None
    """Outcome of the average; None if too few parties were left."""
    why: str = ""
    """Reason why there is no outcome; empty if there is one."""


LocalWork: TypeAlias = Callable[[int, TrainingStep | None], Mapping[Party, Update]]
"""Callable that takes the number of a round, from 1, and the step before it, and returns the parties' updates."""


def run_rounds(average: Averaging, train_locally: LocalWork, rounds: int, first: int = 1) -> Iterator[TrainingStep]:
    """Runs rounds of local work, by `train_locally`, and averaging; yields each."""
    step = None
    for number in range(first, rounds + 1):
        updates = train_locally(number, step)
        try:
            step = TrainingStep(number, updates, average(updates))
        except (NotEnough, PeerFault) as error:
            step = TrainingStep(number, updates, None, str(error))
        yield step


@dataclass
class Training:
    """Training of several parties: their models, and the simulation that averages them.

    Between rounds the rows of the cohort's matrix are the parties' models. There is no other copy.
    """

    cohort: Cohort
    parties: tuple[Party, ...]
    simulation: Simulation | None = None
    """Simulation of the protocol; None without averaging."""
    weights: Mapping[Party, float] = field(default_factory=dict)
    begin: Callable[[int, Sequence[Party], bytes], None] | None = None
    """Called before anything of a round is released, with its number, the parties that trained and the digest of their
    updates. May raise an error to end the training."""
    noise: ServerNoise | None = None
    """Noise of a trusted server on the average of a round."""
    key: bytes = b""
    """Secret from which digests of updates are derived; empty without noise."""
    number: int = 0
    """Number of finished rounds."""
    excluded: dict[Party, str] = field(default_factory=dict)
    """Excluded parties, each with the reason."""
    losses: dict[Party, float] = field(default_factory=dict)
    """Training loss of each party that trained in the last round."""
    shared: Floats | None = None
    """Shared model that all parties continue from; None without a server."""
    release: bytes = b""
    """Digest of the updates of the last round; empty without noise."""

    def __post_init__(self) -> None:
        if self.simulation is not None and self.simulation.agreement.protocol.server is not None:
            self.shared = self.cohort.matrix[0].copy() if self.shared is None else self.shared

    @property
    def models(self) -> Floats:
        """Current models: the shared one, or one per party."""
        return self.cohort.matrix if self.shared is None else self.shared[None, :]

    def steps(self, rounds: int) -> Iterator[TrainingStep]:
        """Runs the remaining of `rounds` rounds, and yields each after its averages are adopted."""
        for step in run_rounds(self._average, self._train_locally, rounds, self.number + 1):
            self._adopt(step)
            self.number = step.number
            yield step

    def scores(self, x: NDArray[np.generic], y: NDArray[np.generic]) -> list[Score]:
        """Scores each of the models."""
        if self.shared is not None:
            return [self.cohort.model.evaluate(self.shared, x, y)]
        return self.cohort.evaluate(self._active(), x, y)

    def consensus(self) -> Floats:
        """Returns the mean of the models of all parties that are not excluded."""
        if self.shared is not None:
            return self.shared
        return np.asarray(np.mean(self.cohort.matrix[self._active()], axis=0, dtype=np.float64), np.float32)

    # --- one round -------------------------------------------------------------------------------------------------

    def _active(self) -> list[int]:
        return [place for place, party in enumerate(self.parties) if party not in self.excluded]

    def _choose_workers(self) -> list[int]:
        """Returns the parties that have to train: those that the server will ask, if that is known; otherwise all."""
        left, simulation = self._active(), self.simulation
        if simulation is None or simulation.agreement.protocol.choice is None or self.excluded:
            return left
        try:
            asked = set(next(trace_participation(simulation, 1)).asked)
        except ConfigError:
            return left  # The faults of the round are not known beforehand.
        return [place for place in left if self.parties[place] in asked]

    def _train_locally(self, number: int, before: TrainingStep | None) -> Mapping[Party, Update]:
        del before
        working, matrix = self._choose_workers(), self.cohort.matrix
        # Without a server, models are restored if the round cannot be paid for.
        untrained = matrix[working] if self.begin is not None and self.shared is None else None
        if self.shared is not None:
            matrix[working] = self.shared
        losses = self.cohort.work(working, number)
        self.losses = {self.parties[place]: float(loss) for place, loss in zip(working, losses, strict=True)}
        for place in working:
            if not (np.isfinite(self.losses[self.parties[place]]) and np.isfinite(matrix[place]).all()):
                self.excluded[self.parties[place]] = f"its loss was no longer a number in round {number}"
        if not (left := self._active()):
            raise ConfigError(
                "no party's loss is finite any more; try: use a smaller rate, or look for samples with NaN "
                "or infinite values"
            )
        if self.shared is not None:
            for place in set(working) & set(left):
                matrix[place] -= self.shared
        lineage = self._find_lineage()
        updates = {
            self.parties[place]: Update(matrix[place], self.weights.get(self.parties[place], 1.0), lineage)
            for place in left
        }
        try:
            self._pay(number, [self.parties[place] for place in working], updates)
        except TacitError:
            if untrained is not None:
                matrix[working] = untrained
            raise
        return updates

    def _find_lineage(self) -> bytes:
        """Returns the lineage of the shared model, if updates are changes to it; otherwise empty, because parties know
        their own.

        Without it, a party that missed a change could never take part again, although it has the shared model here.
        """
        if self.simulation is None or self.shared is None or self.simulation.agreement.settings.norm is None:
            return b""
        return self.simulation.states[SERVER].continues_from()

    def _pay(self, number: int, working: Sequence[Party], updates: Mapping[Party, Update]) -> None:
        """Pays for a round before anything of it is released, and derives its noise from the updates."""
        if self.begin is None:
            return
        digest, trained = hashlib.sha256(frame_parts(b"tacit/v1/release", self.key, number.to_bytes(8))), set(working)
        for party, update in updates.items():
            if party in trained:
                digest.update(frame_parts(party.encode(), fingerprint_update(update._replace(lineage=b""))))
        self.release = digest.digest()
        self.begin(number, working, self.release)
        if self.simulation is not None:
            self.simulation.bind_seeds(self.release)

    def _average(self, updates: Mapping[Party, Update]) -> Outcome:
        if self.simulation is None:
            return Outcome({}, (), Traffic(), {}, {})
        out = None if self.shared is not None else self.cohort.matrix
        return self.simulation.average(updates, out=out, absent=tuple(self.excluded))

    def _adopt(self, step: TrainingStep) -> None:
        """Adopts the averages as models. A party without an average keeps its own model, or the shared one."""
        if self.shared is None or step.outcome is None:
            return
        average = next(iter(step.outcome.average.values()))
        if self.noise is not None:
            average = self.noise(step.number, self.release, np.asarray(average), len(step.outcome.contributors))
        np.add(self.shared, average, out=self.shared, casting="same_kind")


def weigh_by_samples(parts: Sequence[NDArray[np.int64]], parties: Sequence[Party]) -> dict[Party, float]:
    """Returns weights by number of samples."""
    return {party: float(len(part)) for party, part in zip(parties, parts, strict=True)}
