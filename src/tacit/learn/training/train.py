"""Runs scenarios, and writes what comes of them to a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.core.progress import Progress, ignore_progress
from tacit.core.values import normalize_value
from tacit.learn.data.datasets import Dataset
from tacit.learn.models.registry import Model
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
    LEDGER,
    METRICS,
    MODEL,
    SCENARIO,
    encode_line,
    is_over,
    load_noise_key,
    make_folder,
    read_metrics,
    sanitize_name,
)
from tacit.runtime.atomic_files import replace_file

RoundCallback: TypeAlias = Callable[[Metrics], None]
"""Callable that receives the metrics of every round when it ends."""


@dataclass
class Run:
    """What came of a scenario."""

    scenario: Scenario
    history: list[Metrics]
    folder: Path | None
    parameters: NDArray[np.float32]
    """The model at the end, as one vector: the one that is shared, or the mean of all."""
    model: Model
    sizes: tuple[int, ...]
    """How many samples each party has."""
    labels: NDArray[np.int64] | None = None
    """How many of them have which label, a row for each party, if they have labels."""
    notes: tuple[str, ...] = ()
    """What the audit, and the choice of the ring, had to say before the start."""

    def __repr__(self) -> str:
        found = "" if self.accuracy is None else f", accuracy {self.accuracy:.1%}"
        where = "" if self.folder is None else f", in {self.folder}"
        rounds = format_count(len(self.history), "round")
        return f"<Run: {self.name}, {rounds}{found}, {self.bytes:,} bytes{where}>"

    @property
    def name(self) -> str:
        """What was learnt, and how it was averaged."""
        return f"{self.scenario.data.display_name} by {self.scenario.protocol['name']}"

    @property
    def accuracy(self) -> float | None:
        """The last accuracy that was measured."""
        return next((each.accuracy for each in reversed(self.history) if each.accuracy is not None), None)

    @property
    def bytes(self) -> int:
        """All that was sent."""
        return sum(each.bytes for each in self.history)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The model at the end, by the names of its arrays."""
        restored: dict[str, NDArray[Any]] = self.model.layout.restore(self.parameters)
        return restored

    def write_model(self) -> None:
        """Writes the model to the folder, as other programs read it."""
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
) -> Run:
    """Runs a scenario and returns what came of it.

    It is written to the folder, or to a new one in `runs`, round by round. With `resume` a run that was cut off goes on
    from there as if it had not been: the one in the folder, or the last one of this scenario in `runs`. `data` and
    `model`, such as a module of PyTorch, may be given in place of those that the scenario names. Samples that have
    owners stay with them, unless the scenario says how to split them. With an address, parties are spread over as many
    actors of the Ray cluster there as the scenario has workers, and otherwise over as many processes; no result depends
    on it. Raises ConfigError with what cannot be, and LeakRefused if settings would show somebody's model to as many
    parties as the scenario's `adversary` says.
    """
    scenario = _check_arguments(scenario, data, model)
    place = make_folder(scenario, folder, resume)
    over = resume and scenario.privacy is not None and is_over(place)
    secret = load_noise_key(place) if scenario.privacy is not None and not over else b""
    found = assemble_run(scenario, data, model, None if over else place / LEDGER, progress, secret, address)
    digest = f"{scenario.digest} {found.data.fingerprint}"
    history = _restore_run(place, found, digest, over) if resume else []
    replace_file(place / SCENARIO, scenario.encode())
    if found.checked is not None and not (place / AUDIT).exists():
        replace_file(place / AUDIT, audit_run(found.checked, scenario))
    replace_file(place / METRICS, b"".join(map(encode_line, history)))
    with (place / METRICS).open("ab") as file:
        for metrics in found.rounds() if not over else ():
            history.append(metrics)
            file.write(encode_line(metrics))
            file.flush()
            # Metrics first: of what was written after the checkpoint, a run that is resumed forgets it all.
            spent = b"" if found.ledger is None else found.ledger.encode()
            Checkpoint.of(found.training, digest, spent).write(place / CHECKPOINT)
            if on_round is not None:
                on_round(metrics)
    found.close()
    run = Run(
        scenario,
        history,
        place,
        found.training.consensus(),
        found.training.cohort.model,
        tuple(len(part) for part in found.parts),
        found.labels,
        (*found.notes, *([found.stopped] if found.stopped else [])),
    )
    run.write_model()
    (place / KEY).unlink(missing_ok=True)
    return run


def _check_arguments(scenario: Any, data: Any, model: Any) -> Scenario:
    """Returns a scenario, and raises ConfigError with what is wrong with it: one made in Python is not checked yet."""
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


def _restore_run(place: Path, found: AssembledRun, digest: str, over: bool) -> list[Metrics]:
    """Puts a run where it was when it was cut off, and returns what is known of its rounds. It may have had none."""
    if not (place / CHECKPOINT).exists():
        return []
    checkpoint = Checkpoint.read(place / CHECKPOINT, digest)
    if over and checkpoint.ledger != (place / LEDGER).read_bytes():
        raise ConfigError(f"{place / CHECKPOINT} is not the last one of this run, which is over; begin anew elsewhere")
    if over and checkpoint.round < found.scenario.rounds:
        found.stopped = f"the budget was spent after {format_count(checkpoint.round, 'round')}"
    if found.ledger is not None and not over:
        found.ledger.covers(checkpoint.ledger)
    checkpoint.restore(found.training)
    return read_metrics(place / METRICS, checkpoint.round)
