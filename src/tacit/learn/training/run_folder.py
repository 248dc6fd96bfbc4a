"""Folder of a training run: its files, its name, and the search for an interrupted run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.training.metrics import Metrics
from tacit.runtime.atomic_files import create_private, make_private_folder, read_own_file

SECRET_BYTES = 32
"""Length of the secret from which noise is derived."""
SCENARIO, AUDIT, METRICS, CHECKPOINT = "scenario.json", "audit.json", "metrics.jsonl", "checkpoint"
MODEL, LEDGER, KEY = "model.safetensors", "ledger.json", "noise.key"
"""Files in the folder of a run. The key of the noise is deleted when the run ends."""
PARTIES = "parties.json"
"""File in the folder of a run with the names of its data's owners, if each party is one of them."""

_PLAIN = re.compile(r"\w[\w.-]{0,79}")
"""Names that are a single component of a path, and not hidden."""


def is_over(place: Path) -> bool:
    """Says whether a run with noise is finished, so that none of its rounds may run again."""
    return not (place / KEY).exists() and all((place / each).exists() for each in (MODEL, CHECKPOINT))


def load_noise_key(place: Path) -> bytes:
    """Returns the key of a run's noise. The key is drawn once and deleted when the run ends.

    The key makes it possible to remove the noise. A round that was paid for is repeated with the same noise or not at
    all.
    """
    if not (place / KEY).exists():
        if (place / CHECKPOINT).exists() or (place / LEDGER).exists():
            raise ConfigError(
                f"{place / KEY} is missing: the noise of this run is derived from it; try: begin a new run in "
                "another folder"
            )
        create_private(place / KEY, SystemEntropy().bytes(SECRET_BYTES))
    try:
        found = read_own_file(place / KEY)
    except OSError as error:
        raise ConfigError(
            f"{place / KEY} cannot be read: {error.strerror}; try: begin a new run in another folder"
        ) from None
    if len(found) != SECRET_BYTES:
        raise ConfigError(f"{place / KEY} was changed or truncated; try: begin a new run in another folder")
    return found


def encode_line(metrics: Metrics) -> bytes:
    """Returns the metrics of a round as one line of JSON."""
    return msgspec.json.encode(metrics) + b"\n"


def read_metrics(path: Path, rounds: int) -> list[Metrics]:
    """Reads the metrics of the first rounds. A later line may be truncated."""
    lines = read_own_file(path).splitlines()[:rounds] if path.is_file() else []
    if len(lines) < rounds:
        raise ConfigError(f"{path} has fewer rounds than the checkpoint; try: begin a new run in another folder")
    try:
        return [msgspec.json.decode(line, type=Metrics) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(f"{path} was changed; try: begin a new run in another folder") from None


def folder_name(scenario: Scenario) -> str:
    """Returns the default name of a run's folder.

    Raises ConfigError for names in a scenario that would lead out of the folder of runs.
    """
    data = scenario.data.name if scenario.data.folder is None else sanitize_name(scenario.data.display_name)
    wrong = [
        f"{key}={name!r} cannot be part of a folder's name; try: use letters, digits, and - _ . between them"
        for key, name in (("data.name", data), ("protocol.name", scenario.protocol["name"]))
        if _PLAIN.fullmatch(name) is None
    ]
    if wrong:
        raise ConfigError(wrong)
    return f"{data}-{scenario.protocol['name']}-{scenario.digest[:8]}"


def sanitize_name(name: str) -> str:
    """Returns a name of own data as one component of a path."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "yours"


def make_folder(scenario: Scenario, folder: Any, resume: bool) -> Path:
    """Chooses and creates the folder of a run."""
    try:
        place = _choose_folder(scenario, None if folder is None else Path(folder), resume)
    except TypeError:
        raise ConfigError(f"folder must be a path, not {folder!r}") from None
    try:
        make_private_folder(place)
    except OSError as error:
        raise ConfigError(f"{place} cannot be made: {error.strerror}; try: give another folder") from None
    return place


@contextmanager
def open_folder(scenario: Scenario, folder: Any, resume: bool) -> Iterator[Path]:
    """Makes the folder of a run, and removes it again if the run fails before it wrote anything there."""
    runs = Path("runs")
    ours = not (isinstance(folder, str | Path) and Path(folder).exists())
    first = not runs.exists()
    place = make_folder(scenario, folder, resume)
    try:
        yield place
    except BaseException:
        if ours:
            with suppress(OSError):  # of a folder that is not empty
                place.rmdir()
                if first and place.parent == runs:
                    runs.rmdir()
        raise


def _choose_folder(scenario: Scenario, given: Path | None, resume: bool) -> Path:
    """Returns the folder to write to: a new one, or that of the run to resume."""
    if given is not None:
        if (given / SCENARIO).exists():
            if not resume:
                raise ConfigError(
                    f"{given} already has a run; try: resume it with --resume (resume=True), or give another folder"
                )
            if Scenario.load(given / SCENARIO).digest != scenario.digest:
                raise ConfigError(f"{given} has a run of another scenario; try: another folder")
        return given
    name = folder_name(scenario)
    if resume:
        return _find_last_run(scenario, name)
    numbered = (Path("runs") / f"{name}-{number}" for number in count(2))
    return next(place for place in chain([Path("runs") / name], numbered) if not place.exists())


def _find_last_run(scenario: Scenario, name: str) -> Path:
    """Returns the folder of the last run of a scenario, whatever its name; raises ConfigError if there is none."""
    found = []
    for place in Path("runs").glob("*"):
        try:
            same = Scenario.load(place / SCENARIO).digest == scenario.digest
        except ConfigError:
            # A run that was interrupted before it wrote anything is recognised by its name.
            same = place.is_dir() and re.fullmatch(re.escape(name) + r"(-\d+)?", place.name) is not None
        if same:
            found.append(place)
    if not found:
        raise ConfigError(
            "there is no run of this scenario in the folder runs to go on with; try: "
            "give the folder that it was written to (--folder), or begin one without --resume"
        )
    return max(found, key=lambda place: (place.stat().st_mtime_ns, place.name))
