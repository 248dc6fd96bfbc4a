"""Runs scenarios, and writes what comes of them to a folder."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from tacit.core.average import format_count
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.progress import Progress, ignore_progress
from tacit.core.values import normalize_value
from tacit.learn.data.datasets import Dataset
from tacit.learn.models.registry import Model
from tacit.learn.scenario import Scenario
from tacit.learn.training.assemble import SECRET_BYTES, AssembledRun, Metrics, assemble_run
from tacit.learn.training.checkpoint import Checkpoint
from tacit.learn.training.run_audit import audit_run
from tacit.runtime.atomic_files import create_private, replace_file

SCENARIO, AUDIT, METRICS, CHECKPOINT = "scenario.json", "audit.json", "metrics.jsonl", "checkpoint"
MODEL, LEDGER, KEY = "model.safetensors", "ledger.json", "noise.key"
"""What is in the folder of a run. What noise follows from is there as long as the run goes on, and no longer."""

_PLAIN = re.compile(r"\w[\w.-]{0,79}")
"""Names that are one part of a path, and not a hidden one."""

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
    scenario = _check_arguments(scenario, data)
    place = _make_folder(scenario, folder, resume)
    over = resume and scenario.privacy is not None and _is_over(place)
    secret = _load_noise_key(place) if scenario.privacy is not None and not over else b""
    found = assemble_run(scenario, data, model, None if over else place / LEDGER, progress, secret, address)
    digest = f"{scenario.digest} {found.data.fingerprint}"
    history = _restore_run(place, found, digest, over) if resume else []
    replace_file(place / SCENARIO, scenario.encode())
    if found.checked is not None and not (place / AUDIT).exists():
        replace_file(place / AUDIT, audit_run(found.checked, scenario))
    replace_file(place / METRICS, b"".join(map(_encode_line, history)))
    with (place / METRICS).open("ab") as file:
        for metrics in found.rounds() if not over else ():
            history.append(metrics)
            file.write(_encode_line(metrics))
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


def _check_arguments(scenario: Any, data: Any) -> Scenario:
    """Returns a scenario, and raises ConfigError with what is wrong with it: one made in Python is not checked yet."""
    if isinstance(scenario, str | Path):
        raise ConfigError(f"train takes a scenario; to read that of a file: tacit.Scenario.load({str(scenario)!r})")
    if not isinstance(scenario, Scenario):
        cure = "; to make one of tables: tacit.Scenario.of" if isinstance(scenario, dict) else ""
        raise ConfigError(f"train takes a scenario, not one of type {type(scenario).__name__}{cure}")
    if data is not None and not isinstance(data, Dataset):
        raise ConfigError(f"data must be a tacit.learn.data.datasets.Dataset, not of type {type(data).__name__}")
    if data is not None:
        brought = scenario.data.with_own_samples(_sanitize_name(data.name), owned=data.owner is not None)
        scenario = msgspec.structs.replace(scenario, data=brought)
    return Scenario.of(normalize_value(scenario))


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
    return _read_metrics(place / METRICS, checkpoint.round)


def _is_over(place: Path) -> bool:
    """Says whether a run with noise has come to its end: then no round of it is run any more."""
    return not (place / KEY).exists() and all((place / each).exists() for each in (MODEL, CHECKPOINT, LEDGER))


def _load_noise_key(place: Path) -> bytes:
    """Returns what the noise of a run follows from: drawn once, and gone when the run is over.

    Whoever has it can take the noise off. Rounds that were paid for are had again with the same noise, or not at all.
    """
    if not (place / KEY).exists():
        if (place / CHECKPOINT).exists() or (place / LEDGER).exists():
            raise ConfigError(f"{place / KEY} is gone, from which the noise of this run follows; begin anew elsewhere")
        create_private(place / KEY, SystemEntropy().bytes(SECRET_BYTES))
    try:
        found = (place / KEY).read_bytes()
    except OSError as error:
        raise ConfigError(f"{place / KEY} cannot be read: {error.strerror}; begin anew elsewhere") from None
    if len(found) != SECRET_BYTES:
        raise ConfigError(f"{place / KEY} was changed or cut short; begin anew elsewhere")
    return found


# --- folders -------------------------------------------------------------------------------------------------------


def _encode_line(metrics: Metrics) -> bytes:
    return msgspec.json.encode(metrics) + b"\n"


def _read_metrics(path: Path, rounds: int) -> list[Metrics]:
    """Returns what was written of the first rounds. Behind them, a line may be cut short."""
    lines = path.read_bytes().splitlines()[:rounds] if path.is_file() else []
    if len(lines) < rounds:
        raise ConfigError(f"{path} has fewer rounds than the checkpoint; begin anew in another folder")
    try:
        return [msgspec.json.decode(line, type=Metrics) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(f"{path} is not as it was written; begin anew in another folder") from None


def folder_name(scenario: Scenario) -> str:
    """Returns the name of a run's folder, unless it is given one.

    Names in a scenario are free: raises ConfigError for those that would lead out of the folder that runs are in.
    """
    data = scenario.data.name if scenario.data.folder is None else _sanitize_name(scenario.data.display_name)
    wrong = [
        f"{key}={name!r} cannot be part of a folder's name; use letters, digits, and - _ . between them"
        for key, name in (("data.name", data), ("protocol.name", scenario.protocol["name"]))
        if _PLAIN.fullmatch(name) is None
    ]
    if wrong:
        raise ConfigError(wrong)
    return f"{data}-{scenario.protocol['name']}-{scenario.digest[:8]}"


def _sanitize_name(name: str) -> str:
    """Returns what somebody calls data of their own, such that it can be part of a path."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "yours"


def _make_folder(scenario: Scenario, folder: Any, resume: bool) -> Path:
    """Returns where to write, and makes sure that it is there."""
    try:
        place = _choose_folder(scenario, None if folder is None else Path(folder), resume)
    except TypeError:
        raise ConfigError(f"folder must be the path of one, not {folder!r}") from None
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{place} cannot be made: {error.strerror}; give another folder") from None
    return place


def _choose_folder(scenario: Scenario, given: Path | None, resume: bool) -> Path:
    """Returns where to write: a folder that is new, or that of a run that goes on."""
    if given is not None:
        if (given / SCENARIO).exists():
            if not resume:
                raise ConfigError(
                    f"{given} has a run already; go on with it by --resume (resume=True), or give another folder"
                )
            if Scenario.load(given / SCENARIO).digest != scenario.digest:
                raise ConfigError(f"{given} has a run of another scenario; give another folder, or go on with that one")
        return given
    name = folder_name(scenario)
    if resume:
        return _find_last_run(scenario, name)
    numbered = (Path("runs") / f"{name}-{number}" for number in count(2))
    return next(place for place in chain([Path("runs") / name], numbered) if not place.exists())


def _find_last_run(scenario: Scenario, name: str) -> Path:
    """Returns the folder of the last run of a scenario, whatever somebody called it; raises ConfigError if none is."""
    found = []
    for place in Path("runs").glob("*"):
        try:
            same = Scenario.load(place / SCENARIO).digest == scenario.digest
        except ConfigError:
            # One that was cut off before it wrote anything goes by its name.
            same = place.is_dir() and re.fullmatch(re.escape(name) + r"(-\d+)?", place.name) is not None
        if same:
            found.append(place)
    if not found:
        raise ConfigError(
            "there is no run of this scenario in the folder runs to go on with; give the folder that it was written to "
            "(--folder), or begin one without --resume"
        )
    return max(found, key=lambda place: (place.stat().st_mtime_ns, place.name))
