"""Runs and parties of a federation, read from a folder that is not trusted: no name or link in it leads out of it."""

import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import Any, TypeAlias

import msgspec

from tacit.app.ui.graph_view import describe_graph
from tacit.app.ui.regular_files import decode_name, read_file, read_stamp, read_whole_file
from tacit.auditing.findings import Verdict
from tacit.auditing.render.verdicts import HEADLINES
from tacit.core.config_file import ConfigSource
from tacit.core.errors import ConfigError, TacitError
from tacit.learn.scenario import ALONE, TOGETHER, Scenario
from tacit.learn.scenario_check import MOST_BOUND, parse_scenario
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.run_folder import AUDIT, METRICS, MODEL, PARTIES, SCENARIO
from tacit.net.observability.status import STATUS, Status
from tacit.protocols import REGISTRY, find
from tacit.runtime.agreement import terms_for
from tacit.runtime.atomic_files import replace_file

RUNS = "runs"
"""Folder below the working directory that `tacit train` writes to."""
FRESH = 10.0
"""Seconds without a write after which a party counts as not running."""
QUIET = 60.0
"""Seconds without a write after which an unfinished run counts as interrupted."""
MOST_BYTES, MOST_ROUNDS = 16 * 2**20, 10_000
"""Limits on what is read of a run's metrics; the page says when a run has more."""
MOST_FOLDERS = 1000
"""Folders that are listed, the first by name."""
MOST_DRAWN = 400
"""Parties up to which the graph of a run is drawn."""
MOST_NAMED = 2000
"""Parties up to which the page gets their names."""
MOST_LETTERS = 200
"""Characters of a title, or of an error, in the list."""
MOST_POINTS = 200
"""Points of the small curve in the list."""
REPORT, TAGS = "report.html", "tags.json"
"""Files in a run's folder: its report, and the tags that the page writes."""
MOST_TAGS, LONGEST_TAG = 8, 30
"""Tags of a run, and characters of a tag."""

Stamp: TypeAlias = tuple[tuple[int, int, bool], ...]
"""Modification time, size and freshness of the files of a folder that are shown."""
Description: TypeAlias = dict[str, Any]
RunCache: TypeAlias = dict[str, tuple[Stamp, Description | None]]
"""Summaries of runs by name, each with the stamp it was read at: an unchanged run is not read again."""


def list_folders(root: Path) -> dict[str, Path]:
    """Returns the folders that may be runs or parties, by name: those in `root`, and in `runs` below it.

    Only listed folders are ever opened, so no requested name leads anywhere else.
    """
    return {name: path for name, path in _scan_folders(root) if path is not None}


def describe_unlisted(root: Path) -> str:
    """Returns a note on folders beyond the limit, or nothing if all are listed."""
    more = sum(path is None for _, path in _scan_folders(root))
    return f"{more} more folders are here; only the first {MOST_FOLDERS} by name are listed" if more else ""


def _scan_folders(root: Path) -> Iterator[tuple[str, Path | None]]:
    for prefix, above in (("", root), (f"{RUNS}/", root / RUNS)):
        if prefix and above.is_symlink():
            continue
        try:
            with os.scandir(above) as entries:
                names = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for number, name in enumerate(names):
            yield prefix + decode_name(name), above / name if number < MOST_FOLDERS else None


def read_scenario(path: Path) -> Scenario | None:
    """Returns the scenario of a run's folder; None if there is none. Raises ConfigError if it cannot be read."""
    data = read_whole_file(path / SCENARIO)
    return None if data is None else Scenario.parse(data.decode(errors="replace"), SCENARIO)


def read_history(path: Path) -> tuple[list[Metrics], bool]:
    """Returns the metrics of a run's rounds, up to the first incomplete line, and whether the file has more.

    Raises ConfigError if the file cannot be read.
    """
    rounds: list[Metrics] = []
    data, truncated = read_file(path / METRICS, MOST_BYTES) or (b"", False)
    lines = data.split(b"\n", MOST_ROUNDS)
    for line in lines[:MOST_ROUNDS]:
        try:
            rounds.append(msgspec.json.decode(line, type=Metrics))
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
    return rounds, truncated or bool(lines[MOST_ROUNDS:] and lines[MOST_ROUNDS])


def list_runs(root: Path, cache: RunCache | None = None) -> list[Description]:
    """Returns a summary of every run below `root`, the latest changed first."""
    cache = {} if cache is None else cache
    found, present = [], list_folders(root)
    for name, path in present.items():
        stamp = read_folder_stamp(path)
        (begun, *_), *_ = stamp
        if begun:
            if cache.get(name, (None, None))[0] != stamp:
                cache[name] = stamp, summarize_run(name, path)
            found.append((max(when for when, *_ in stamp), name))
    for name in cache.keys() - present.keys():
        cache.pop(name, None)
    summaries = (cache.get(name, (None, None))[1] for _, name in sorted(found, reverse=True))
    return [summary for summary in summaries if summary is not None]


def summarize_run(name: str, path: Path) -> Description | None:
    """Returns the entry of a run in the list, or the reason why it cannot be read; None if it is gone."""
    return _describe_safely(name, lambda: _summarize(name, path))


def _describe_safely(name: str, describe: Callable[[], Description | None]) -> Description | None:
    """Returns the description of a run, or one with the error: a broken run must not break the list."""
    try:
        description = describe()
        msgspec.json.encode(description)  # fails here, and not when all runs are encoded together
    except Exception as error:
        return {"id": name, "title": name, "state": "unreadable", "why": explain_error(error)}
    return description


def explain_error(error: Exception) -> str:
    """Returns one short line that says why a file or folder cannot be read."""
    if isinstance(error, TacitError):
        return str(error)[:MOST_LETTERS]
    if isinstance(error, RecursionError):
        return "what is in it is nested too deep"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"{type(error).__name__}: {error}"[:MOST_LETTERS]


def _summarize(name: str, path: Path) -> Description | None:
    scenario = read_scenario(path)
    if scenario is None:
        return None
    history, truncated = read_history(path)
    last = history[-1] if history else None
    curve = [(each.round, each.accuracy) for each in history if each.accuracy is not None]
    audit = read_audit(path)
    return {
        "id": name,
        "title": scenario.title[:MOST_LETTERS] or name,
        "data": (scenario.data.folder or scenario.data.name)[:MOST_LETTERS],
        "protocol": scenario.protocol["name"][:MOST_LETTERS],
        "parties": scenario.data.parties,
        "rounds": scenario.rounds,
        "done": last.round if last else 0,
        "state": find_state(path, scenario, history),
        "accuracy": next((each.accuracy for each in reversed(history) if each.accuracy is not None), None),
        "rmse": next((each.rmse for each in reversed(history) if each.rmse is not None), None),
        "bytes": sum(each.bytes for each in history),
        "epsilon": last.epsilon if last else None,
        "curve": [*curve[: -1 : len(curve) // MOST_POINTS + 1], *curve[-1:]],
        "truncated": f"only the first {len(history)} rounds are read" if truncated else "",
        "tags": read_tags(path),
        "report": read_stamp(path / REPORT)[1] > 0,
        "verdict": {"code": audit.verdict_code, "heading": audit.title, "exposed": audit.exposed},
        "changed": max(read_stamp(path / each)[0] for each in (SCENARIO, METRICS, MODEL)) // 10**9,
    }


def find_state(path: Path, scenario: Scenario, history: list[Metrics]) -> str:
    """Returns the state of a run: "finished", "running" or "interrupted"."""
    if read_stamp(path / MODEL)[1] and (not history or history[-1].round >= scenario.rounds or _ended_early(path)):
        return "finished"
    newest = max(read_stamp(path / each)[0] for each in (SCENARIO, METRICS))
    return "running" if time() - newest / 1e9 < QUIET else "interrupted"


def _ended_early(path: Path) -> bool:
    """Returns whether the model was written after the last round, as in a run that ended early."""
    return read_stamp(path / METRICS)[0] <= read_stamp(path / MODEL)[0]


class StaticAudit(msgspec.Struct):
    """Verdict of a run if its models were static."""

    verdict: str = ""


class RunAudit(msgspec.Struct):
    """Parts of `audit.json` that the page shows."""

    says: str = ""
    """Who is exposed, in a few words."""
    heading: str = ""
    verdict: str = ""
    verdict_code: str = ""
    exposed: bool = False
    assumed: list[str] = []
    not_covered: list[str] = []
    still: StaticAudit | None = None
    parties: list[str] = []

    @property
    def title(self) -> str:
        """The verdict in a few words; empty without an audit."""
        if self.heading or not self.verdict_code:
            return self.heading[:MOST_LETTERS]
        return next((HEADLINES[each] for each in Verdict if each.value == self.verdict_code), "")


def read_audit(path: Path) -> RunAudit:
    """Returns the audit of a run; an empty one if there is none, or one that says why it cannot be read."""
    try:
        return msgspec.json.decode(read_whole_file(path / AUDIT) or b"{}", type=RunAudit)
    except Exception as error:
        return RunAudit(says=f"cannot be read ({explain_error(error)})")


def read_report(path: Path) -> bytes | None:
    """Returns the report of a run; None if there is none, or one that is no plain file or too long."""
    try:
        found = read_file(path / REPORT, MOST_BYTES)
    except TacitError:
        return None
    return None if found is None or found.truncated else found.data


# --- tags ------------------------------------------------------------------------------------------------------------


def read_tags(path: Path) -> list[str]:
    """Returns the tags of a run; none if its file is not one that `write_tags` writes."""
    try:
        found = msgspec.json.decode(read_whole_file(path / TAGS) or b"[]", type=list[str])
        return check_tags(found)
    except (msgspec.DecodeError, TacitError):
        return []


def check_tags(tags: list[str]) -> list[str]:
    """Returns tags without blanks around them and without repetitions; raises ConfigError for what is no tag."""
    found = list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    problems = [
        f"the tag {tag[:LONGEST_TAG]!r} must have at most {LONGEST_TAG} characters, all of them printable, and no comma"
        for tag in found
        if len(tag) > LONGEST_TAG or not tag.isprintable() or "," in tag
    ]
    if len(found) > MOST_TAGS:
        problems.append(f"a run can have at most {MOST_TAGS} tags, not {len(found)}")
    if problems:
        raise ConfigError(problems)
    return found


def write_tags(path: Path, tags: list[str]) -> None:
    """Writes the tags of a run into its folder; raises ConfigError if they are not valid or cannot be written."""
    found = check_tags(tags)
    if read_scenario(path) is None:
        raise ConfigError(f"{decode_name(path.name)} is no run")
    try:
        replace_file(path / TAGS, msgspec.json.encode(found))
    except OSError as error:
        raise ConfigError(f"{TAGS} cannot be written: {error.strerror}") from None


# --- one run ---------------------------------------------------------------------------------------------------------


def describe_run(name: str, path: Path) -> Description | None:
    """Returns everything the page shows of a run, or the reason why it cannot be read; None if it is gone."""
    return _describe_safely(name, lambda: _describe(name, path))


def _describe(name: str, path: Path) -> Description | None:
    scenario, summary = read_scenario(path), _summarize(name, path)
    if scenario is None or summary is None:
        return None
    history, audit, names = read_history(path)[0], read_audit(path), _list_names(scenario)
    found = {**summary, "history": history, "picture": None, "names": names, "says": audit.says}
    found |= {"audit": audit, "labels": _read_labels(path, names)}
    return {**found, "scenario": scenario.encode().decode(), **_describe_graph(scenario, names)}


def _list_names(scenario: Scenario) -> list[str]:
    """Returns the names by which the rounds of a run know its parties; none if there are too many to show."""
    parties = scenario.data.parties
    return [f"p{place}" for place in range(parties)] if parties <= MOST_NAMED else []


def _read_labels(path: Path, names: list[str]) -> dict[str, str]:
    """Returns the real name of each party, if the run's folder has them; none if it has not one for each."""
    try:
        found = msgspec.json.decode(read_whole_file(path / PARTIES) or b"[]", type=list[str])
    except (msgspec.DecodeError, TacitError):
        return {}
    return dict(zip(names, found, strict=True)) if len(found) == len(names) else {}


def _describe_graph(scenario: Scenario, names: list[str]) -> Description:
    """Returns the graph of a scenario for the page; nothing if its settings cannot be bound here."""
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    name = scenario.protocol["name"]
    if name in (ALONE, TOGETHER) or name not in REGISTRY or not 0 < len(names) <= MOST_DRAWN:
        return {}
    try:
        protocol = find(name)
        terms = terms_for(protocol, names, {**options, "allow_leaks": True})
    except TacitError:
        return {}
    return {"picture": describe_graph(protocol, terms), "server": protocol.server is not None, "options": options}


# --- parties -------------------------------------------------------------------------------------------------------


def list_parties(root: Path) -> list[Description]:
    """Returns the last status of every party that keeps its rounds below `root`."""
    found = (_describe_party(name, path) for name, path in list_folders(root).items())
    return [party for party in found if party is not None]


def _describe_party(name: str, path: Path) -> Description | None:
    try:
        data = read_whole_file(path / STATUS)
        if data is None:
            return None
        status = msgspec.json.decode(data, type=Status)
    except Exception as error:
        trouble = f"its status cannot be read: {explain_error(error)}"
        return {"id": name, "party": name, "running": False, "trouble": trouble, "peers": []}
    # Both times are by this machine's clock, whatever time the party takes it to be.
    ago = max(time() - read_stamp(path / STATUS)[0] / 1e9, 0.0)
    return {"id": name, **asdict(status), "ago": round(ago), "running": ago < FRESH}


def read_folder_stamp(path: Path) -> Stamp:
    """Returns a value that changes whenever a shown file does, or becomes so old that its state changes."""
    return tuple(
        (when, size, time() - when / 1e9 < limit)
        for file, limit in (
            *((SCENARIO, QUIET), (METRICS, QUIET), (MODEL, QUIET), (STATUS, FRESH)),
            *((each, 0.0) for each in (AUDIT, REPORT, TAGS)),
        )
        for when, size in (read_stamp(path / file),)
    )


def read_stamps(root: Path) -> list[tuple[str, Stamp]]:
    """Returns the stamps of all folders below `root`."""
    return [(name, read_folder_stamp(path)) for name, path in list_folders(root).items()]


def check_text(text: str) -> Scenario:
    """Returns the scenario of a text in TOML; raises ConfigError with every problem, each with its line."""
    scenario = parse_scenario(text, "scenario.toml")
    if scenario.data.parties > MOST_BOUND:
        many = f"data.parties={scenario.data.parties} is more than the page takes ({MOST_BOUND}); use tacit train"
        raise ConfigSource.parse(text, "scenario.toml").error([(("data", "parties"), many)])
    return scenario


def parse_toml(text: str) -> Description:
    """Returns the plain values of a text in TOML by their keys; none if it is no TOML."""
    try:
        return _keep_plain(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _keep_plain(table: Description) -> Description:
    """Returns a table without dates and lists, which no control of the form has."""
    plain = {key: _keep_plain(value) if isinstance(value, dict) else value for key, value in table.items()}
    return {key: value for key, value in plain.items() if isinstance(value, dict | str | int | float)}
