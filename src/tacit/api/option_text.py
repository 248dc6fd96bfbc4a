"""Options given as text: names to check, and name=value pairs to parse."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from tacit.auditing.questions import read_value
from tacit.core.errors import ConfigError


def check_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Returns a name if it exists; raises ConfigError otherwise, with the most similar name and a list of all."""
    there = list(names)
    if name in there:
        return name
    close = difflib.get_close_matches(name, there, n=1)
    every = f"there are {', '.join(there)}"
    raise ConfigError(f"there is no {kind} {name!r}; " + (f"did you mean {close[0]!r}? ({every})" if close else every))


def drift_from(given: str) -> Any:
    """Returns the drift of models: a number, or the given word."""
    try:
        return float(given)
    except ValueError:
        return given


def settings_from(given: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Returns the settings in a list of name=value texts, whose values are JSON, Python, TOML or plain text.

    Args:
        given: The texts.
        option: The command-line option that errors name.
    """
    settings: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} {each} is not name=value; try: {option} masked=True")
        try:
            settings[name] = read_value(value)
        except ConfigError as error:
            raise ConfigError([f"{option} {each}: {problem}" for problem in error.problems]) from None
    return settings
