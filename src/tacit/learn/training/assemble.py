"""Assembly of a run: the scenario's data, models and parties, and settings that passed the audit.

`train` calls `assemble_run` first, then iterates over `AssembledRun.rounds`, whose rounds `loop.Training` runs.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.api.checked_run import CheckedRun
from tacit.api.given_models import weight_bound
from tacit.auditing.scope import dropouts
from tacit.core.entropy import SeededEntropy, SystemEntropy
from tacit.core.errors import BudgetSpent, ConfigError, JournalError
from tacit.core.progress import Progress, ignore_progress
from tacit.core.protocol import Terms
from tacit.core.suite import Party
from tacit.learn.data import datasets, splits
from tacit.learn.data.datasets import Dataset
from tacit.learn.models import registry
from tacit.learn.privacy.data_ledger import (
    LedgerPlace,
    check_planned_rounds,
    describe_mechanism,
    place_beside_data,
    record_without_noise,
    refuse_without_noise,
)
from tacit.learn.privacy.dp_plan import NoisePlan, plan_noise
from tacit.learn.privacy.gradient_noise import NOISE_KEY_BYTES
from tacit.learn.random_streams import generator
from tacit.learn.scenario import ALONE, TOGETHER, Data, Privacy, Scenario
from tacit.learn.training.cohort import Cohort
from tacit.learn.training.loop import Training, TrainingStep, weigh_by_samples
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.run_folder import SECRET_BYTES
from tacit.privacy import Ledger, noisy_on_grid
from tacit.protocols import find
from tacit.runtime.shards.sharded_simulation import ShardedSimulation
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.fixedpoint import FixedPoint

RELEASE_BYTES = 16
"""Length of the digest by which a ledger identifies a release."""
SPREAD_FROM = 200
"""The fewest parties for which distributing rounds over processes pays, because messages then pass between
processes."""
CLIP_HEADROOM = 4.0
"""If the clip is chosen from the first round, it is this many times the largest entry, rounded up to a power of two."""
GROWTH, FINE = 64.0, 0.02
"""Limits for the clip where models, and not changes, are averaged, because models grow. The clip is at most `GROWTH`
times the largest entry, and rounding adds at most the fraction `FINE` of a round's change."""
COARSE = 0.5
"""A ring is refused if its rounding error exceeds this fraction of a round's change."""


@dataclass
class AssembledRun:
    """Assembled run: everything that a scenario needs, before the first round."""

    scenario: Scenario
    data: Dataset
    parts: list[splits.Indices]
    training: Training
    checked: CheckedRun | None
    notes: tuple[str, ...]
    ledger: Ledger | None = None
    """Ledger of the privacy that parties spent; None without differential privacy."""
    stopped: str = ""
    """Reason why the run stopped before its last round; empty if it did not."""

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Number of samples of each label at each party; None without labels."""
        labelled = self.data.classes and self.data.y.ndim == 1
        return splits.label_table(self.data.y, self.parts, self.data.classes) if labelled else None

    def name_owners(self) -> tuple[str, ...] | None:
        """Returns the owner of each party's samples; None if the data names none, or a party has those of several."""
        data = self.data
        if self.scenario.data.split.kind != "owner" or data.owner is None or not data.owners:
            return None
        names = tuple(data.owners[place] for place in np.unique(data.owner))
        # Names that are numbers, as those of writers, say no more than the numbers of the parties.
        return names if len(names) == len(self.parts) and not all(name.isdigit() for name in names) else None

    def rounds(self, clock: Callable[[], float] = perf_counter) -> Iterator[Metrics]:
        """Runs the remaining rounds and yields the metrics of each."""
        began, scenario = clock(), self.scenario
        x, y = self.data.inputs(self.data.x_test), self.data.y_test
        for step in self._steps():
            tested = len(y) and (step.number % scenario.evaluate == 0 or step.number == scenario.rounds)
            yield msgspec.structs.replace(
                self._metrics(step), **(self._scores(x, y) if tested else {}), seconds=round(clock() - began, 3)
            )

    def _steps(self) -> Iterator[TrainingStep]:
        try:
            yield from self.training.steps(self.scenario.rounds)
        except BudgetSpent as spent:
            self.stopped = str(spent)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the worker processes of the simulation, if there are any."""
        if self.training.simulation is not None:
            self.training.simulation.close()

    def _metrics(self, step: TrainingStep) -> Metrics:
        outcome, training = step.outcome, self.training
        losses = [loss for loss in training.losses.values() if np.isfinite(loss)]
        left_out = {} if outcome is None else {party: str(reason) for party, reason in outcome.missing.items()}
        return Metrics(
            round=step.number,
            loss=float(np.mean(losses)) if losses else None,
            contributors=0 if outcome is None else len(outcome.contributors),
            bytes=0 if outcome is None else outcome.traffic.total,
            classes={} if outcome is None else outcome.traffic.by_class(),
            averaged=() if outcome is None else outcome.contributors,
            epsilon=max(map(self.ledger.epsilon, self.ledger.parties), default=0.0) if self.ledger else None,
            left_out={**left_out, **training.excluded},
            notes=(step.why,) if outcome is None else outcome.warnings,
        )

    def _scores(self, x: NDArray[Any], y: NDArray[Any]) -> dict[str, float | None]:
        scores = self.training.scores(x, y)
        found: dict[str, float | None] = {
            "accuracy": _mean([score.accuracy for score in scores]),
            "rmse": _mean([score.rmse for score in scores]),
            "test_loss": _mean([score.loss for score in scores]),
        }
        if len(scores) > 1:
            together = self.training.cohort.model.evaluate(self.training.consensus(), x, y)
            found["consensus"] = together.rmse if together.accuracy is None else together.accuracy
        return found


def assemble_run(
    scenario: Scenario,
    data: Dataset | None = None,
    model: Any = None,
    ledger: LedgerPlace | None = None,
    progress: Progress = ignore_progress,
    secret: bytes = b"",
    address: str | None = None,
) -> AssembledRun:
    """Loads data, builds the model, creates the parties and audits the settings of a scenario.

    Args:
        scenario: The scenario to run.
        data: Samples instead of those that the scenario names.
        model: Model instead of the one that the scenario names, such as a PyTorch module.
        ledger: Location of the privacy ledger. Default: in the folder of the data; for a named public set, in memory.
        progress: Receives the progress of downloads.
        secret: Secret from which noise is derived, besides the public scenario. Default: a fresh one.
        address: Ray cluster whose actors run the parties, instead of local processes.

    Raises:
        ConfigError: If the settings do not fit each other or the data.
        LeakRefused: If the settings would expose a party's model.
    """
    place = place_beside_data(scenario) if ledger is None else ledger
    if scenario.privacy is None:
        refuse_without_noise(place)
    elif not secret:
        secret = SystemEntropy().bytes(SECRET_BYTES)
    loaded = data or load_data(scenario.data, scenario.seed, progress)
    name = scenario.protocol["name"]
    parts = [np.arange(len(loaded.y))] if name == TOGETHER else split_samples(loaded, scenario)
    parties = tuple(f"p{place}" for place in range(len(parts)))
    named = dict(scenario.model)
    built = registry.build(named.pop("name") if model is None else model, loaded, **named)
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    private = None
    if scenario.privacy is not None:
        sizes = [len(part) for part in parts]
        private = plan_noise(scenario, scenario.privacy, options, parties, built.parameters, sizes)
    local = scenario.local if private is None else private.local
    noise_key = SeededEntropy("noise", scenario.digest, secret).bytes(NOISE_KEY_BYTES) if secret else None
    cohort = Cohort(built, loaded, parts, local, scenario.seed, scenario.workers, noise_key=noise_key)
    cohort.start()
    training, checked = Training(cohort, parties), None
    notes: list[str] = []
    if name not in (ALONE, TOGETHER):
        weights = weigh_by_samples(parts, parties) if scenario.weights == "samples" else {}
        bound = options if private is None else dict(private.options)
        checked, notes = _audit_settings(scenario, bound, cohort, parties, weights)
        agreed = checked.protocol, checked.terms, built.parameters, _seed(scenario, secret), checked.faults
        if address is None and (scenario.workers == 1 or len(parties) < SPREAD_FROM):
            simulation = Simulation.on(*agreed, twin=True)
        else:
            simulation = ShardedSimulation.on(*agreed, workers=scenario.workers, address=address, twin=True)
        training = Training(cohort, parties, simulation, weights)
    found = AssembledRun(scenario, loaded, parts, training, checked, (*(checked.notes if checked else ()), *notes))
    if private is not None and scenario.privacy is not None:
        _protect_rounds(found, scenario.privacy, private, place, secret)
    else:
        record_without_noise(place, _name_run(found), loaded)
    return found


def _name_run(found: AssembledRun) -> str:
    """Returns the name of a run in a ledger: its scenario, its data, and its model with the initial weights."""
    cohort = found.training.cohort
    model = cohort.model.digest(cohort.matrix[0])
    return f"scenario {found.scenario.digest[:16]}, data {found.data.fingerprint[:16]}, model {model[:16]}"


def _protect_rounds(
    found: AssembledRun, privacy: Privacy, private: NoisePlan, place: LedgerPlace, secret: bytes
) -> None:
    """Makes each round pay from the ledger before it begins, and adds the noise of a trusted server."""
    scenario, training = found.scenario, found.training
    # A release that was paid for is repeated without payment, so everything that determines the run must be the same.
    noise = hashlib.sha256(secret).hexdigest()
    run = f"{_name_run(found)}, noise {noise[:32]}"
    ledger = place.open(run, privacy, found.data, describe_mechanism(scenario, private.sigma, private.honest))
    if ledger.lost:
        raise JournalError(
            f"{place.path} is missing, and rounds were charged to it; try: restore it, or begin a new run in "
            "another folder"
        )
    terms = None if found.checked is None else found.checked.terms
    entries = training.cohort.model.parameters
    spent = private.event(terms, entries) if terms is not None else private.spent
    if spent is None:
        raise ConfigError("privacy per user needs averages, and local training has none; try: another protocol")
    check_planned_rounds(ledger, spent, scenario.rounds)

    def pay(number: int, parties: Sequence[Party], release: bytes) -> None:
        ledger.spend(parties, spent, round=number, release=release[:RELEASE_BYTES].hex())

    def add_noise(number: int, release: bytes, average: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        entropy = SeededEntropy("central noise", scenario.digest, secret, number, release)
        return noisy_on_grid(average, private.central / count, entropy)

    training.begin, training.key = pay, hashlib.sha256(b"release" + secret).digest()
    training.noise = add_noise if private.central else None
    found.ledger, found.notes = ledger, (*found.notes, *private.notes)


def _seed(scenario: Scenario, secret: bytes) -> int:
    """Returns the seed of a run's keys, which depends on everything that determines the run."""
    return int.from_bytes(SeededEntropy("run", scenario.digest, *([secret] if secret else [])).bytes(16))


def load_data(wanted: Data, seed: int, progress: Progress = ignore_progress, only: Party | None = None) -> Dataset:
    """Loads the samples that a scenario names; from a folder, with `only`, those of one party."""
    if wanted.folder is not None:
        found = datasets.of_folder(wanted.place, only, **wanted.options)
    else:
        options = {"by": "writer"} if wanted.name == "mnist" and wanted.split.kind == "owner" else {}
        found = datasets.load(wanted.name, progress=progress, **{**options, **wanted.options})
    return found.subsample(wanted.train, wanted.test, generator(seed, "samples"))


def split_samples(data: Dataset, scenario: Scenario) -> list[splits.Indices]:
    """Splits the samples over the parties, as the scenario says."""
    wanted, rng = scenario.data, generator(scenario.seed, "split")
    split, parties = wanted.split, wanted.parties
    if split.kind == "owner":
        if data.owner is None:
            raise ConfigError(
                f'{data.name} does not name the owners of its samples; try: use split = "iid", or another'
            )
        return splits.by_owner(data.owner, parties, rng)
    if split.kind == "iid":
        return splits.iid(len(data.y), parties, rng)
    if data.y.ndim != 1 or not data.classes:
        raise ConfigError(f'{data.name} has no labels to split by; try: use split = "iid" or "owner"')
    if split.kind == "shards":
        return splits.shards(data.y, parties, split.per_party, rng)
    return splits.dirichlet(data.y, parties, split.alpha, rng)


# --- the ring ------------------------------------------------------------------------------------------------------


def _audit_settings(
    scenario: Scenario,
    options: dict[str, Any],
    cohort: Cohort,
    parties: tuple[Party, ...],
    weights: Mapping[Party, float],
) -> tuple[CheckedRun, list[str]]:
    """Audits the settings with a ring that fits the updates; returns them, with notes on what was chosen."""
    if weights:
        options.setdefault("weighted", True)
        options.setdefault("max_weight", weight_bound(weights))
    name, length = scenario.protocol["name"], cohort.matrix.shape[1]
    faults = (*scenario.faults, *dropouts(find(name), scenario.dropout, scenario.seed))
    if options.get("bits") != 16 or "clip" in options:
        return CheckedRun.of(name, parties, faults, scenario.adversary, options, length=length), []
    first = CheckedRun.of(name, parties, faults, scenario.adversary, options, length=length)
    models = first.protocol.server is None
    largest, changed = _probe_first_round(cohort, models)
    clip = float(2.0 ** np.ceil(np.log2(max(CLIP_HEADROOM * largest, 1e-9))))
    unit = _rounding_error(first.terms) / first.terms.settings.clip
    while models and 2 * clip <= GROWTH * largest and unit * 2 * clip <= FINE * changed:
        clip *= 2
    checked = CheckedRun.of(name, parties, faults, scenario.adversary, {**options, "clip": clip}, length=length)
    off = _rounding_error(checked.terms)
    if off > COARSE * changed:
        raise ConfigError(
            f"16 bits are too few for {len(parties)} parties here: averages would be off by {off:.1g}, and a round "
            f"changes them by about {changed:.1g}; try: use bits=32"
        )
    return checked, [
        f"clip={clip:g} was chosen from the first updates, and rounding adds {off / changed:.1%} of what a "
        f"round changes; between machines, agree on a clip beforehand"
    ]


def _rounding_error(terms: Terms) -> float:
    """Returns the standard deviation of the error that rounding to 16 bits adds to an entry of an average."""
    step = FixedPoint(16, terms.span, terms.summands, 1).resolution
    # Either parts of vectors are rounded and their sum is not divided, or whole vectors are rounded and their sum is
    # divided.
    return float(step * np.sqrt((1 / terms.part - 1 if terms.part < 1 else 1 / len(terms.parties)) / 6))


def _probe_first_round(cohort: Cohort, models: bool) -> tuple[float, float]:
    """Returns the largest entry of the first round's updates, and the root mean square change of a model's entry.

    Without a server updates are models, and each party's own model changes. With a server, the shared model changes by
    the mean.
    """
    start, everybody = cohort.matrix[0].copy(), list(range(len(cohort.matrix)))
    cohort.work(everybody, 1)
    largest = float(np.abs(cohort.matrix if models else cohort.matrix - start).max())
    changes = cohort.matrix - start if models else cohort.matrix.mean(axis=0) - start
    changed = float(np.sqrt(np.mean(np.square(changes))))
    cohort.start()
    return largest, changed


def _mean(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None
