"""Check of a scenario before anything is loaded or run: the one validator of Python, the command line and the page.

`Scenario` itself checks its own fields. This module adds checks that need the registries: names and options of data
sets and models, and a protocol's settings, bound to the scenario's parties.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.config_file import ConfigSource, Problem
from tacit.core.errors import ConfigError
from tacit.learn.data import datasets
from tacit.learn.models import registry
from tacit.learn.scenario import ALONE, TOGETHER, Scenario, find_place
from tacit.learn.training.run_folder import folder_name
from tacit.protocols import find
from tacit.runtime.agreement import terms_for

MOST_BOUND = 1000
"""The largest number of parties to which the check binds a protocol's settings. With more, only the run binds them."""


def find_problems(scenario: Scenario, *, own_data: bool = False, own_model: bool = False) -> list[Problem]:
    """Returns all problems that are visible without the data, each with its table.

    Args:
        scenario: The scenario.
        own_data: Whether samples are given instead of those that the scenario names.
        own_model: Whether a model is given instead of the one that the scenario names.
    """
    checks: list[tuple[str, Callable[[Scenario], Any]]] = [("data", folder_name)]
    if not own_data and scenario.data.folder is None:
        checks.append(("data", lambda given: datasets.check_name(given.data.name, given.data.options)))
    if not own_model:
        checks.append(("model", _check_model))
    if scenario.protocol["name"] not in (ALONE, TOGETHER) and scenario.data.parties <= MOST_BOUND:
        checks.append(("protocol", _bind_protocol))
    problems: list[Problem] = []
    for table, check in checks:
        try:
            check(scenario)
        except ConfigError as error:
            problems += [((table,), problem) for problem in error.problems]
            if check is folder_name:  # The same name would be reported twice.
                return problems
    return problems


def load_scenario(path: str | Path) -> Scenario:
    """Reads and checks the scenario of a TOML or JSON file; raises ConfigError with all problems and their lines."""
    return _check(lambda: Scenario.load(path), lambda: ConfigSource.load(path), str(path))


def parse_scenario(text: str, name: str) -> Scenario:
    """Reads and checks the scenario of a text in TOML, or in JSON if its name ends so; raises ConfigError likewise."""
    return _check(lambda: Scenario.parse(text, name), lambda: ConfigSource.parse(text, name), name)


def _check(read: Callable[[], Scenario], read_source: Callable[[], ConfigSource], name: str) -> Scenario:
    """Returns a scenario without problems; raises ConfigError with all problems and their lines."""
    try:
        scenario = read()
        msgspec.json.encode(scenario)
        problems = find_problems(scenario)
    except RecursionError:
        raise ConfigError(f"{name}: its tables are nested too deep") from None
    except ValueError as error:  # For example, a folder with a name that no file can have.
        raise ConfigError(f"{name}: {' '.join(str(error).split())}") from None
    if problems:
        source = read_source()
        raise source.error([(find_place(source, problem) or table, problem) for table, problem in problems])
    return scenario


def _check_model(scenario: Scenario) -> None:
    options = {key: value for key, value in scenario.model.items() if key != "name"}
    registry.check_name(scenario.model["name"], options)


def _bind_protocol(scenario: Scenario) -> None:
    options = {key: value for key, value in scenario.protocol.items() if key != "name"}
    parties = [f"p{place}" for place in range(scenario.data.parties)]
    terms_for(find(scenario.protocol["name"]), parties, {**options, "allow_leaks": True})
