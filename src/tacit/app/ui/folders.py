"""Runs and parties that are in a folder, as they stand. Whatever is in it is data: nothing in it leads out of it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import Any, TypeAlias

import msgspec

from tacit.app.ui.files import changed, read, shown, whole_file
from tacit.app.ui.graph_view import drawn
from tacit.core.config_file import Source
from tacit.core.errors import ConfigError, TacitError
from tacit.learn.scenario import ALONE, TOGETHER, Scenario
from tacit.learn.training.assemble import Metrics
from tacit.learn.training.train import AUDIT, METRICS, MODEL, SCENARIO, folder_name
from tacit.net.observability.status import STATUS, Status
from tacit.protocols import REGISTRY, find
from tacit.runtime.agreement import terms_for

RUNS = "runs"
"""Where `tacit train` writes, in the folder that it is called in."""
FRESH = 10.0
"""Seconds after which a party that writes nothing is not running,"""
QUIET = 60.0
"""and after which a run that is not over counts as cut off."""
MOST_BYTES, MOST_ROUNDS = 16 * 2**20, 10_000
"""Of what was written of a run's rounds; more is not read, and that is said."""
MOST_FOLDERS = 1000
MOST_DRAWN = 400
"""Parties of whom a picture still says something."""
MOST_NAMED = 2000
"""Parties whose names are told."""
MOST_PARTIES = 1000
"""Parties of a scenario that is checked for somebody who waits for it."""
MOST_LETTERS, MOST_POINTS = 200, 200
"""Of a title, and of a small curve, in the list."""

Stamp: TypeAlias = tuple[tuple[int, int, bool], ...]
Told: TypeAlias = dict[str, Any]
Known: TypeAlias = dict[str, tuple[Stamp, Told | None]]
"""What was said of runs, each with the stamp that it had: what did not change is not read again."""


def folders(place: Path) -> dict[str, Path]:
    """Returns the folders that may be runs or parties, by name: those in a place, and in `runs` there.

    Only what was found is ever opened, so that no name that somebody asks for leads anywhere else.
    """
    return {name: path for name, path in _found(place) if path is not None}


def crowded(place: Path) -> str:
    """Says that there are more folders than are looked at, if there are."""
    more = sum(path is None for _, path in _found(place))
    return f"{more} more folders are here; only the first {MOST_FOLDERS} by name are looked at" if more else ""


def _found(place: Path) -> Iterator[tuple[str, Path | None]]:
    for prefix, above in (("", place), (f"{RUNS}/", place / RUNS)):
        if prefix and above.is_symlink():
            continue
        try:
            with os.scandir(above) as entries:
                names = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for number, name in enumerate(names):
            yield prefix + shown(name), above / name if number < MOST_FOLDERS else None


def scenario_of(path: Path) -> Scenario | None:
    """Returns the scenario of a run's folder; None if there is none. Raises ConfigError if it cannot be read."""
    data = whole_file(path / SCENARIO)
    return None if data is None else Scenario.parse(data.decode(errors="replace"), SCENARIO)


def history_of(path: Path) -> tuple[list[Metrics], bool]:
    """Returns what was written of a run's rounds, up to a line that is cut short, and whether there is more.

    Raises ConfigError if it cannot be read.
    """
    rounds: list[Metrics] = []
    data, cut = read(path / METRICS, MOST_BYTES) or (b"", False)
    lines = data.split(b"\n", MOST_ROUNDS)
    for line in lines[:MOST_ROUNDS]:
        try:
            rounds.append(msgspec.json.decode(line, type=Metrics))
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
    return rounds, cut or bool(lines[MOST_ROUNDS:] and lines[MOST_ROUNDS])


def runs(place: Path, known: Known | None = None) -> list[Told]:
    """Returns what there is to say of every run in a place, the ones that changed last first."""
    known = {} if known is None else known
    found, there = [], folders(place)
    for name, path in there.items():
        at = stamp(path)
        (begun, *_), *_ = at
        if begun:
            if known.get(name, (None, None))[0] != at:
                known[name] = at, summary(name, path)
            found.append((max(when for when, *_ in at), name))
    for name in known.keys() - there.keys():
        known.pop(name, None)
    return [told for _, name in sorted(found, reverse=True) if (told := known.get(name, (None, None))[1]) is not None]


def summary(name: str, path: Path) -> Told | None:
    """Returns what a list says of a run, or that it cannot be read and why; None if it is gone."""
    return _said(name, lambda: _summary(name, path))


def _said(name: str, tell: Callable[[], Told | None]) -> Told | None:
    """Returns what there is to tell of a run. Whatever is wrong with it is its own affair, and told of it alone."""
    try:
        told = tell()
        msgspec.json.encode(told)  # what cannot be said is found here, and not when all runs are told of together
    except Exception as error:
        return {"id": name, "title": name, "state": "unreadable", "why": why(error)}
    return told


def why(error: Exception) -> str:
    """Returns what is wrong with something in a folder, in words."""
    if isinstance(error, TacitError):
        return str(error)[:MOST_LETTERS]
    if isinstance(error, RecursionError):
        return "what is in it is nested too deep"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"{type(error).__name__}: {error}"[:MOST_LETTERS]


def _summary(name: str, path: Path) -> Told | None:
    scenario = scenario_of(path)
    if scenario is None:
        return None
    history, cut = history_of(path)
    last = history[-1] if history else None
    curve = [(each.round, each.accuracy) for each in history if each.accuracy is not None]
    return {
        "id": name,
        "title": scenario.title[:MOST_LETTERS] or name,
        "data": (scenario.data.folder or scenario.data.name)[:MOST_LETTERS],
        "protocol": scenario.protocol["name"][:MOST_LETTERS],
        "parties": scenario.data.parties,
        "rounds": scenario.rounds,
        "done": last.round if last else 0,
        "state": state(path, scenario, history),
        "accuracy": next((each.accuracy for each in reversed(history) if each.accuracy is not None), None),
        "rmse": next((each.rmse for each in reversed(history) if each.rmse is not None), None),
        "bytes": sum(each.bytes for each in history),
        "epsilon": last.epsilon if last else None,
        "curve": [*curve[: -1 : len(curve) // MOST_POINTS + 1], *curve[-1:]],
        "cut": f"only the first {len(history)} rounds are read" if cut else "",
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


class _Audit(msgspec.Struct):
    """What is shown of the audit before a run."""

    says: str = ""


def whole(name: str, path: Path) -> Told | None:
    """Returns all there is to show of a run, or that it cannot be read and why; None if it is gone."""
    return _said(name, lambda: _whole(name, path))


def _whole(name: str, path: Path) -> Told | None:
    scenario, said = scenario_of(path), _summary(name, path)
    if scenario is None or said is None:
        return None
    parties = scenario.data.parties
    names = [f"p{place}" for place in range(parties)] if parties <= MOST_NAMED else []
    found = {**said, "history": history_of(path)[0], "picture": None, "names": names, "says": ""}
    found |= {"scenario": scenario.encoded().decode(), **_picture(scenario, names)}
    try:
        found["says"] = msgspec.json.decode(whole_file(path / AUDIT) or b"{}", type=_Audit).says
    except Exception as error:
        found["says"] = f"cannot be read ({why(error)})"
    return found


def _picture(scenario: Scenario, names: list[str]) -> Told:
    """Returns what to draw of a scenario's settings, if they can be bound here."""
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    name = scenario.protocol["name"]
    if name in (ALONE, TOGETHER) or name not in REGISTRY or not 0 < len(names) <= MOST_DRAWN:
        return {}
    try:
        protocol = find(name)
        terms = terms_for(protocol, names, {**options, "allow_leaks": True})
    except TacitError:
        return {}
    return {"picture": drawn(protocol, terms), "server": protocol.server is not None, "options": options}


# --- parties -------------------------------------------------------------------------------------------------------


def parties(place: Path) -> list[Told]:
    """Returns how it stands with every party that keeps its rounds in a place, by what it last said of itself."""
    return [told for name, path in folders(place).items() if (told := _party(name, path)) is not None]


def _party(name: str, path: Path) -> Told | None:
    try:
        data = whole_file(path / STATUS)
        if data is None:
            return None
        said = msgspec.json.decode(data, type=Status)
    except Exception as error:
        trouble = f"its status cannot be read: {why(error)}"
        return {"id": name, "party": name, "running": False, "trouble": trouble, "peers": []}
    # By this machine's clock on both ends, whatever the party takes the time to be.
    ago = max(time() - changed(path / STATUS)[0] / 1e9, 0.0)
    return {"id": name, **asdict(said), "ago": round(ago), "running": ago < FRESH}


def stamp(path: Path) -> Stamp:
    """Returns what differs whenever anything in a folder did that is shown, or has not for so long that it counts."""
    return tuple(
        (when, size, time() - when / 1e9 < long)
        for file, long in ((SCENARIO, QUIET), (METRICS, QUIET), (MODEL, QUIET), (STATUS, FRESH))
        for when, size in (changed(path / file),)
    )


def stamps(place: Path) -> list[tuple[str, Stamp]]:
    """Returns the stamps of all folders in a place."""
    return [(name, stamp(path)) for name, path in folders(place).items()]


def checked(text: str) -> Scenario:
    """Returns the scenario of a text in TOML; raises ConfigError with every problem, each with its line."""
    try:
        scenario = _checked(text)
        msgspec.json.encode(scenario)
    except (RecursionError, ValueError) as error:  # of which are folders with a name that no file can have
        raise ConfigError(f"scenario.toml: {why(error)}") from None
    return scenario


def _checked(text: str) -> Scenario:
    scenario = Scenario.parse(text, "scenario.toml")
    name, source = scenario.protocol["name"], Source.parse(text, "scenario.toml")
    if scenario.data.parties > MOST_PARTIES:
        many = f"data.parties={scenario.data.parties} is more than the page takes ({MOST_PARTIES}); use tacit train"
        raise source.error([(("data", "parties"), many)])
    try:
        folder_name(scenario)
    except ConfigError as error:
        raise source.error([(tuple(each.split("=")[0].split(".")), each) for each in error.problems]) from None
    if name in (ALONE, TOGETHER):
        return scenario
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    try:
        terms_for(find(name), [f"p{place}" for place in range(scenario.data.parties)], options)
    except ConfigError as error:
        places = [("protocol", *(option for option in options if option in each)) for each in error.problems]
        raise source.error([(place[:2], each) for place, each in zip(places, error.problems, strict=True)]) from None
    return scenario
