"""Options, completion, checks and output that commands share."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperArgument

from tacit.core.errors import ConfigError


class HelpArgument(TyperArgument):
    """An argument that keeps its help text, which click 8.5 and later drops for the Typer release that Flower pins."""

    def __init__(self, *, help: str | None = None, **given: Any) -> None:  # noqa: A002 (as Typer calls it)
        super().__init__(help=help, **given)
        self.help = help


# Typer has no option for the class of its arguments.
typer.main.TyperArgument = HelpArgument  # type: ignore[attr-defined]

# Defaults are part of the help texts, which is easier to read than brackets.
Choice = partial(typer.Option, show_default=False)

Picture = Annotated[str | None, typer.Option("--picture", help="Also draw the result into a .png or .svg file.")]
ReportFile = Annotated[
    str | None,
    Choice("--report", metavar="FILE", help="Also write a report for an assessment into an .html file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON only.")]
# Read in `cli.Commands.main`, which sees the arguments even when they cannot be parsed.
Verbose = Annotated[bool, typer.Option("--verbose", help="Print the details of an error, and where it was raised.")]


def examples(*commands: str) -> str:
    """Returns the end of a help text: example commands, one per line."""
    return "\n\n".join(["Examples:", *commands])


# --- completion by the shell ---------------------------------------------------------------------------------------


def make_completer(names: Callable[[], Iterable[tuple[str, str]]]) -> Callable[[str], list[tuple[str, str]]]:
    """Returns a completion function for names with descriptions, which selects those that begin with the typed text."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, what) for name, what in names() if name.startswith(incomplete)]

    return complete


# Imports are inside the functions, because most commands, and --help, complete nothing.


@make_completer
def protocol_names() -> Iterator[tuple[str, str]]:
    """Yields the protocols."""
    from tacit.protocols import REGISTRY

    yield from ((each.name, each.summary) for each in REGISTRY.usable())


@make_completer
def attack_names() -> Iterator[tuple[str, str]]:
    """Yields the attacks."""
    from tacit.lab.attacks.registry import ATTACKS

    yield from ((each.name, each.summary) for each in ATTACKS.values())


@make_completer
def reproduction_names() -> Iterator[tuple[str, str]]:
    """Yields the tables and figures of the papers."""
    from tacit.lab import papers

    yield from ((name, papers.find(name).title) for name in papers.names())


def setting_names(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the settings of the protocol in a command line that match the typed text."""
    import msgspec

    from tacit.protocols import REGISTRY

    # Before an option without a value, the other arguments are not parsed yet.
    typed = (context.params.get("protocol"), *context.args)
    entry = next((found for each in typed if each and (found := REGISTRY.get(each)) is not None), None)
    fields = [] if entry is None else [field.name for field in msgspec.structs.fields(entry.settings)]
    return [f"{name}=" for name in fields if name.startswith(incomplete)]


Settings = Annotated[
    list[str] | None,
    Choice(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=setting_names,
        help="A setting of the protocol, such as masked=True. May be repeated. `tacit protocols` lists them.",
    ),
]


# --- checks of arguments -------------------------------------------------------------------------------------------


def check_at_least(least: int, **counts: int | None) -> None:
    """Raises ConfigError for every count below the minimum, with the name of its option."""
    problems = [
        f"--{name.replace('_', '-')} {count}: use a whole number of at least {least}"
        for name, count in counts.items()
        if count is not None and count < least
    ]
    if problems:
        raise ConfigError(problems)


def to_json(result: Any) -> str:
    """Returns a result as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
