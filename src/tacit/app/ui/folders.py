"""Runs and parties that are in a folder, as they stand. Whatever is in it is data: nothing in it leads out of it."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import Any

import msgspec

from tacit.api.prepare import Metrics
from tacit.api.train import AUDIT, METRICS, MODEL, SCENARIO
from tacit.app.ui.drawn import drawn
from tacit.core.errors import ConfigError, TacitError
from tacit.core.sections import Source
from tacit.drivers.agreement import terms_for
from tacit.drivers.network.status import STATUS, Status
from tacit.learn.scenario import ALONE, TOGETHER, Scenario
from tacit.protocols import REGISTRY, find

RUNS = "runs"
"""Where `tacit run` writes, in the folder that it is called in."""
FRESH = 10.0
"""Seconds after which a party that writes nothing is not running,"""
QUIET = 60.0
"""and after which a run that is not over counts as cut off."""
MOST_BYTES = 32 * 2**20
"""Of a file, beyond which it is none of ours."""
MOST_FOLDERS = 1000
MOST_DRAWN = 400
"""Parties of whom a picture still says something."""


def folders(place: Path) -> dict[str, Path]:
    """Returns the folders that may be runs or parties, by name: those in a place, and in `runs` there.

    Only what was found is ever opened, so that no name that somebody asks for leads anywhere else.
    """
    found: dict[str, Path] = {}
    for prefix, above in (("", place), (f"{RUNS}/", place / RUNS)):
        if prefix and above.is_symlink():
            continue
        try:
            with os.scandir(above) as entries:
                names = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            continue
        found |= {prefix + name: above / name for name in names[:MOST_FOLDERS]}
    return found


def read(path: Path) -> bytes | None:
    """Returns what is in a file; None if there is none, or it is a link, or too long to be ours."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        return opened.read() if os.fstat(file).st_size <= MOST_BYTES else None


def changed(path: Path) -> tuple[int, int]:
    """Returns what differs whenever a file was written."""
    try:
        stat = path.lstat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def scenario_of(path: Path) -> Scenario | None:
    """Returns the scenario of a run's folder; None if there is none that can be read."""
    data = read(path / SCENARIO)
    try:
        return None if data is None else Scenario.parse(data.decode(errors="replace"), SCENARIO)
    except ConfigError:
        return None


def history_of(path: Path) -> list[Metrics]:
    """Returns what was written of a run's rounds, up to a line that is cut short."""
    rounds: list[Metrics] = []
    for line in (read(path / METRICS) or b"").splitlines():
        try:
            rounds.append(msgspec.json.decode(line, type=Metrics))
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
    return rounds


def runs(place: Path) -> list[dict[str, Any]]:
    """Returns what there is to say of every run in a place, the ones that changed last first."""
    found = []
    for name, path in folders(place).items():
        when = max(changed(path / each)[0] for each in (SCENARIO, METRICS, MODEL))
        if when and changed(path / SCENARIO)[1]:
            found.append((when, name, path))
    return [summary(name, path) for _, name, path in sorted(found, reverse=True)]


def summary(name: str, path: Path) -> dict[str, Any]:
    """Returns what a list says of a run."""
    scenario, history = scenario_of(path), history_of(path)
    if scenario is None:
        return {"id": name, "title": name, "state": "unreadable"}
    last = history[-1] if history else None
    return {
        "id": name,
        "title": scenario.title or name,
        "data": scenario.data.folder or scenario.data.name,
        "protocol": scenario.protocol["name"],
        "parties": scenario.data.parties,
        "rounds": scenario.rounds,
        "done": last.round if last else 0,
        "state": state(path, scenario, history),
        "accuracy": next((each.accuracy for each in reversed(history) if each.accuracy is not None), None),
        "rmse": next((each.rmse for each in reversed(history) if each.rmse is not None), None),
        "bytes": sum(each.bytes for each in history),
        "epsilon": last.epsilon if last else None,
        "curve": [(each.round, each.accuracy) for each in history if each.accuracy is not None],
    }


def state(path: Path, scenario: Scenario, history: list[Metrics]) -> str:
    """Returns how it stands with a run: "finished", "running" or "cut off"."""
    if changed(path / MODEL)[1] and (not history or history[-1].round >= scenario.rounds or _older(path)):
        return "finished"
    newest = max(changed(path / each)[0] for each in (SCENARIO, METRICS))
    return "running" if time() - newest / 1e9 < QUIET else "cut off"


def _older(path: Path) -> bool:
    """Says whether the last round was written before the model, as in a run that ended early."""
    return changed(path / METRICS)[0] <= changed(path / MODEL)[0]


def whole(name: str, path: Path) -> dict[str, Any]:
    """Returns all there is to show of a run."""
    scenario = scenario_of(path)
    found = {**summary(name, path), "history": history_of(path), "picture": None, "names": [], "says": ""}
    if scenario is None:
        return found
    names = [f"p{place}" for place in range(scenario.data.parties)]
    found |= {"names": names, "scenario": scenario.encoded().decode(), **_picture(scenario, names)}
    try:
        audit = msgspec.json.decode(read(path / AUDIT) or b"{}")
        found["says"] = str(audit.get("says", ""))
    except (msgspec.DecodeError, AttributeError):
        pass
    return found


def _picture(scenario: Scenario, names: list[str]) -> dict[str, Any]:
    """Returns what to draw of a scenario's settings, if they can be bound here."""
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    name = scenario.protocol["name"]
    if name in (ALONE, TOGETHER) or name not in REGISTRY or len(names) > MOST_DRAWN:
        return {}
    try:
        protocol = find(name)
        terms = terms_for(protocol, names, {**options, "allow_leaks": True})
    except TacitError:
        return {}
    return {"picture": drawn(protocol, terms), "server": protocol.server is not None, "options": options}


# --- parties -------------------------------------------------------------------------------------------------------


def parties(place: Path) -> list[dict[str, Any]]:
    """Returns how it stands with every party that keeps its rounds in a place, by what it last said of itself."""
    return [told for name, path in folders(place).items() if (told := _party(name, path)) is not None]


def _party(name: str, path: Path) -> dict[str, Any] | None:
    data = read(path / STATUS)
    if data is None:
        return None
    try:
        said = msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"id": name, "party": name, "running": False, "trouble": "its status cannot be read", "peers": []}
    # By this machine's clock on both ends, whatever the party takes the time to be.
    ago = max(time() - changed(path / STATUS)[0] / 1e9, 0.0)
    return {"id": name, **asdict(said), "ago": round(ago), "running": ago < FRESH}


def stamps(place: Path) -> Iterator[tuple[str, int, int, bool]]:
    """Yields what differs whenever anything in a place did that is shown, or has not for so long that it counts."""
    for name, path in folders(place).items():
        for file, long in ((SCENARIO, QUIET), (METRICS, QUIET), (MODEL, QUIET), (STATUS, FRESH)):
            when, size = changed(path / file)
            yield name, when, size, time() - when / 1e9 < long


def checked(text: str) -> Scenario:
    """Returns the scenario of a text in TOML; raises ConfigError with every problem, each with its line."""
    scenario = Scenario.parse(text, "scenario.toml")
    name = scenario.protocol["name"]
    if name in (ALONE, TOGETHER):
        return scenario
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    try:
        terms_for(find(name), [f"p{place}" for place in range(scenario.data.parties)], options)
    except ConfigError as error:
        source = Source.parse(text, "scenario.toml")
        places = [("protocol", *(option for option in options if option in each)) for each in error.problems]
        raise source.error([(place[:2], each) for place, each in zip(places, error.problems, strict=True)]) from None
    return scenario
