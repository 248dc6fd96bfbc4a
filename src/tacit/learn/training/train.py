"""Training of a scenario, written to a folder round by round.

`assemble.assemble_run` loads and audits, `loop.Training` runs the rounds, and `run_audit.audit_run` reports on them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from tacit.auditing.render.names import name_parties
from tacit.core.average import format_count
from tacit.core.errors import ConfigError, TacitError
from tacit.core.progress import Progress, ignore_progress
from tacit.core.values import normalize_value
from tacit.learn.data.datasets import Dataset
from tacit.learn.models.registry import Model
from tacit.learn.privacy.data_ledger import LedgerPlace, choose_ledger, describe_total, place_beside_data
from tacit.learn.scenario import Scenario
from tacit.learn.scenario_check import find_problems
from tacit.learn.training.assemble import AssembledRun, assemble_run
from tacit.learn.training.checkpoint import Checkpoint
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.run_audit import audit_run
from tacit.learn.training.run_folder import (
    AUDIT,
    CHECKPOINT,
    KEY,
    METRICS,
    MODEL,
    PARTIES,
    SCENARIO,
    encode_line,
    is_over,
    load_noise_key,
    open_folder,
    read_metrics,
    sanitize_name,
)
from tacit.privacy import People, read_ledger
from tacit.privacy.ledger_file import decode_ledger
from tacit.runtime.atomic_files import open_private, replace_file

RoundCallback: TypeAlias = Callable[[Metrics], None]
"""Callable that receives the metrics of every round when it ends."""


@dataclass
class Run:
    """Finished training run: its metrics, its final model, and the notes of the audit. `tacit.train` returns it."""

    scenario: Scenario
    history: list[Metrics]
    folder: Path | None
    parameters: NDArray[np.float32]
    """Final model as one vector: the shared one, or the mean of all."""
    model: Model
    sizes: tuple[int, ...]
    """Number of samples of each party."""
    labels: NDArray[np.int64] | None = None
    """Number of samples by label, one row per party; None without labels."""
    notes: tuple[str, ...] = ()
    """Notes of the audit and of the choice of the ring, from before the first round."""
    names: tuple[str, ...] = ()
    """Real names of the parties, which its rounds know as p0, p1, …; empty unless each party owns samples."""

    def __repr__(self) -> str:
        found = "" if self.accuracy is None else f", accuracy {self.accuracy:.1%}"
        where = "" if self.folder is None else f", in {self.folder}"
        rounds = format_count(len(self.history), "round")
        return f"<Run: {self.name}, {rounds}{found}, {self.bytes:,} bytes{where}>"

    @property
    def name(self) -> str:
        """Data and protocol of the run."""
        return f"{self.scenario.data.display_name} by {self.scenario.protocol['name']}"

    @property
    def accuracy(self) -> float | None:
        """Last measured accuracy; None for regression."""
        return next((each.accuracy for each in reversed(self.history) if each.accuracy is not None), None)

    @property
    def bytes(self) -> int:
        """Bytes sent in all rounds."""
        return sum(each.bytes for each in self.history)

    @property
    def exposed(self) -> str:
        """Whose model the worst coalition of the scenario's `adversary` recovers, and under which condition, in words.

        This is what `audit.json` says, with the real names of the parties; empty without an audit.
        """
        path = None if self.folder is None else self.folder / AUDIT
        if path is None or not path.exists():
            return ""
        return name_parties(str(msgspec.json.decode(path.read_bytes())["says"]), self.names)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Final model as arrays by name."""
        restored: dict[str, NDArray[Any]] = self.model.layout.restore(self.parameters)
        return restored

    def write_model(self) -> None:
        """Writes the final model to the folder, as safetensors."""
        if self.folder is not None:
            replace_file(self.folder / MODEL, save(self.arrays))


def train(
    scenario: Scenario,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    data: Dataset | None = None,
    model: Any = None,
    on_round: RoundCallback | None = None,
    progress: Progress = ignore_progress,
    address: str | None = None,
    ledger: str | Path | None = None,
    people: People | None = None,
) -> Run:
    """Trains a scenario and writes metrics, checkpoints, audit and model to a folder, round by round.

    Args:
        scenario: The scenario to train.
        folder: Folder for the results. Default: a new folder in `runs`.
        resume: Whether to continue an interrupted run: the one in `folder`, or the last of this scenario in `runs`.
        data: Samples instead of those that the scenario names. They stay with their owners, unless it has a split.
        model: Model instead of the one that the scenario names, such as a PyTorch module.
        on_round: Called with the metrics of every round when it ends.
        progress: Receives the progress of downloads.
        address: Ray cluster whose actors run the parties, instead of local processes. It does not change the results.
        ledger: Ledger file of the data. Default: in the folder of the data; for public data, in that of the run.
        people: If the data changed, whether they are of the "same" people, or of "new" people only.

    Raises:
        ConfigError: With all problems of the scenario.
        LeakRefused: If the settings would expose a model to a coalition of the scenario's `adversary` parties.
        BudgetSpent: If the planned rounds would exceed the budget of the data.

    >>> import tempfile
    >>> import tacit
    >>> scenario = tacit.Scenario.of({"rounds": 1, "data": {"parties": 3, "train": 60, "test": 30}})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tacit.train(scenario, folder=f"{folder}/run").sizes
    (20, 20, 20)
    """
    scenario = _check_arguments(scenario, data, model)
    with open_folder(scenario, folder, resume) as place:
        return _run_in_folder(scenario, place, resume, data, model, on_round, progress, address, ledger, people)


def _run_in_folder(
    scenario: Scenario,
    place: Path,
    resume: bool,
    data: Dataset | None,
    model: Any,
    on_round: RoundCallback | None,
    progress: Progress,
    address: str | None,
    ledger: str | Path | None,
    people: People | None,
) -> Run:
    """Trains a scenario in a folder that exists. Arguments are those of `train`."""
    over = resume and scenario.privacy is not None and is_over(place)
    noise = scenario.privacy is not None and not over
    kept = Checkpoint.read(place / CHECKPOINT, noise=noise) if resume and (place / CHECKPOINT).exists() else None
    paid_at = _place_ledger(scenario, place, ledger, people, own_data=data is not None)
    started = noise and not (place / KEY).exists()
    secret = load_noise_key(place) if noise else b""
    try:
        found = assemble_run(scenario, data, model, LedgerPlace() if over else paid_at, progress, secret, address)
    except TacitError:
        if started:  # Nothing was released, so nothing needs the key.
            (place / KEY).unlink(missing_ok=True)
        raise
    digest = f"{scenario.digest} {found.data.fingerprint}"
    history = [] if kept is None else _restore_run(place, found, kept, digest, paid_at if over else None)
    _write_description(place, found)
    replace_file(place / METRICS, b"".join(map(encode_line, history)))
    with open(open_private(place / METRICS), "ab") as file:
        for metrics in found.rounds() if not over else ():
            history.append(metrics)
            file.write(encode_line(metrics))
            file.flush()
            # Metrics come first: a resumed run drops metrics that are newer than its checkpoint.
            spent = b"" if found.ledger is None else found.ledger.encode()
            Checkpoint.of(found.training, digest, spent).write(place / CHECKPOINT)
            if on_round is not None:
                on_round(metrics)
    found.close()
    training, sizes = found.training, tuple(len(part) for part in found.parts)
    notes = (*found.notes, *describe_total(found.ledger, paid_at), *([found.stopped] if found.stopped else []))
    names = found.name_owners() or ()
    run = Run(scenario, history, place, training.consensus(), training.cohort.model, sizes, found.labels, notes, names)
    run.write_model()
    (place / KEY).unlink(missing_ok=True)
    return run


def _write_description(place: Path, found: AssembledRun) -> None:
    """Writes what is known of a run before its first round: its scenario, the names of its parties and its audit."""
    replace_file(place / SCENARIO, found.scenario.encode())
    if (owners := found.name_owners()) is not None:
        replace_file(place / PARTIES, msgspec.json.encode(owners))
    if found.checked is not None and not (place / AUDIT).exists():
        replace_file(place / AUDIT, audit_run(found.checked, found.scenario))


def _check_arguments(scenario: Any, data: Any, model: Any) -> Scenario:
    """Returns a checked scenario; raises ConfigError with all problems. A scenario made in Python was not checked
    before."""
    if isinstance(scenario, str | Path):
        raise ConfigError(f"train takes a scenario; to read that of a file: tacit.Scenario.load({str(scenario)!r})")
    if not isinstance(scenario, Scenario):
        cure = "; to make one of tables: tacit.Scenario.of" if isinstance(scenario, dict) else ""
        raise ConfigError(f"train takes a scenario, not one of type {type(scenario).__name__}{cure}")
    if data is not None and not isinstance(data, Dataset):
        raise ConfigError(f"data must be a tacit.learn.data.datasets.Dataset, not of type {type(data).__name__}")
    if data is not None:
        brought = scenario.data.with_own_samples(sanitize_name(data.name), owned=data.owner is not None)
        scenario = msgspec.structs.replace(scenario, data=brought)
    checked = Scenario.of(normalize_value(scenario))
    if problems := find_problems(checked, own_data=data is not None, own_model=model is not None):
        raise ConfigError([problem for _, problem in problems])
    return checked


def _place_ledger(
    scenario: Scenario, folder: Path, given: str | Path | None, people: People | None, *, own_data: bool
) -> LedgerPlace:
    """Returns the ledger of a run with noise; for a run without noise, the ledger that other runs on its data use."""
    if scenario.privacy is not None:
        return choose_ledger(scenario, folder, given, people, own_data=own_data)
    return place_beside_data(scenario, given, people)


def _restore_run(
    place: Path, found: AssembledRun, checkpoint: Checkpoint, digest: str, paid_at: LedgerPlace | None
) -> list[Metrics]:
    """Restores an interrupted run from its checkpoint, and returns the metrics of its rounds.

    If the run is finished, `paid_at` is the location of its ledger.
    """
    checkpoint.check(place / CHECKPOINT, digest)
    if paid_at is not None:
        record = decode_ledger(checkpoint.ledger).runs[0]
        if paid_at.path is None or read_ledger(paid_at.path).record_of(record.run) != record:
            raise ConfigError(
                f"{place / CHECKPOINT} is not the last checkpoint of this finished run; try: begin a new run "
                "in another folder"
            )
        if checkpoint.round < found.scenario.rounds:
            found.stopped = f"the budget was spent after {format_count(checkpoint.round, 'round')}"
    elif found.ledger is not None:
        found.ledger.covers(checkpoint.ledger)
    checkpoint.restore(found.training)
    return read_metrics(place / METRICS, checkpoint.round)
