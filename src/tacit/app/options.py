"""What commands have in common: options, progress, and results as text."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from tacit.core.errors import ConfigError

# Typer puts a backslash before the defaults it shows where it is told not to use Rich, so the help texts say them.
Choice = partial(typer.Option, show_default=False)

Picture = Annotated[
    str | None, typer.Option("--picture", help="Draw it too, into a file whose name ends in .png or .svg.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
# Read in `cli.Commands.main`, which sees the arguments even when they cannot be parsed.
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback if something goes wrong.")]


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Returns a bar on standard error, which is gone when all is done and not there if nobody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def settings_from(given: Sequence[str]) -> dict[str, Any]:
    """Returns the settings in a list of name=value, where a value is JSON or, failing that, text."""
    settings: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"--set {each}: write it as name=value, such as masked=true")
        try:
            settings[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            settings[name] = value
    return settings


def as_text(result: Any) -> str:
    """Returns a result as JSON that is also fit to be read."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
