"""The command line: one command for each task.

Results go to standard output, progress and errors to standard error. An error is one line and, where there is a remedy,
one `try:` line. --verbose adds details and a traceback. Exit code 0: done; 1: refused for a leak, or failed; 2: bad
input; 130: stopped by Ctrl-C.
"""

import errno
import sys
import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tacit import __version__
from tacit.app.cli.command_table import COMMANDS, CommandEntry
from tacit.app.cli.options import Verbose, examples
from tacit.core.errors import ConfigError, TacitError

if TYPE_CHECKING:
    import click

DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130
DEBUG, VERBOSE = "--debug", "--verbose"
"""The former name of the option, which still works, and its name."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without space."""
SERVING = ("ui", "serve")
"""Commands that run until they are stopped."""
RENAMED = {"run": "train"}
"""Former names of commands, which still work in this release but are not listed."""
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Click's error for a wrong call, from the copy of Click that Typer uses, because newer releases of Typer have their
own."""


class Commands(TyperGroup):
    """Group of commands that turns every error into an exit code and one line each."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.suggest_commands = False  # `resolve_command` suggests commands itself.

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs a command and ends the process with its exit code."""
        del standalone_mode
        given = sys.argv[1:] if args is None else list(args)
        verbose = VERBOSE in given or DEBUG in given
        try:
            # This returns the code of an early exit, such as that of --help, or None.
            code = (
                super().main(
                    [each for each in given if each not in (DEBUG, VERBOSE)],
                    prog_name,
                    complete_var,
                    False,
                    windows_expand_args,
                    **extra,
                )
                or DONE
            )
            lines = explain_failure(KeyboardInterrupt(), given)[1] if code == STOPPED else []
        except (Exception, KeyboardInterrupt) as error:
            if verbose:
                traceback.print_exc()
            code, lines = explain_failure(error, given)
            if verbose and isinstance(error, TacitError) and error.detail:
                lines += [f"detail: {line}" for line in error.detail.splitlines()]
        for line in lines:
            typer.echo(line, err=True)
        sys.exit(code)

    def resolve_command(
        self, ctx: "click.Context", args: list[str]
    ) -> "tuple[str | None, click.Command | None, list[str]]":
        """Returns the requested command, also by its former name; suggests a name if there is no such command."""
        if args and (name := RENAMED.get(args[0])) is not None:
            typer.echo(
                f"note: tacit {args[0]} is now called tacit {name}; the old name goes away in the next release",
                err=True,
            )
            args = [name, *args[1:]]
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            close = get_close_matches(args[0], self.commands) if args and not hasattr(error, "possibilities") else []
            if close:
                error.message += f" Did you mean {' or '.join(map(repr, close))}?"  # type: ignore[attr-defined]
            raise


class CommandLoader(MutableMapping[str, "click.Command"]):
    """The commands of the table by name, each imported when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}
        self._names = dict.fromkeys(COMMANDS)

    def __getitem__(self, name: str) -> "click.Command":
        if name not in self._loaded:
            self._loaded[name] = load_command(name, COMMANDS[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: "click.Command") -> None:
        self._names[name] = None
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load_command(name: str, entry: CommandEntry) -> "click.Command":
    """Imports the module of a command and returns the command."""
    parent, defined = (
        typer.Typer(rich_markup_mode="rich"),
        getattr(import_module(f"tacit.app.{entry.module}"), entry.attribute),
    )
    if entry.group:
        parent.add_typer(defined, name=name, cls=Commands, rich_help_panel=entry.panel)
    else:
        parent.add_typer(defined)
    return get_group(parent).commands[name]


class LazyCommands(Commands):
    """The commands of the table. Listing them, as --help and completion do, imports none of their modules."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = CommandLoader()

    def list_commands(self, ctx: "click.Context") -> list[str]:
        """Returns the names in the order of the table, without looking up each command as Typer would."""
        del ctx
        return list(self.commands)

    def get_command(self, ctx: "click.Context", cmd_name: str) -> "click.Command | None":
        """Returns a stub of a command, with its summary and without its options. `commands` has the complete
        commands."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        return entry and TyperCommand(cmd_name, help=entry.summary, rich_help_panel=entry.panel)

    def resolve_command(
        self, ctx: "click.Context", args: list[str]
    ) -> "tuple[str | None, click.Command | None, list[str]]":
        """Returns the complete requested command."""
        name, outline, rest = super().resolve_command(ctx, args)
        return name, self.commands[name] if name and outline else None, rest


def explain_failure(error: BaseException, given: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Returns the exit code for an error of a call with these arguments, and the lines that explain it."""
    if isinstance(error, ConfigError):
        return BAD_INPUT, explain_error(error)
    if isinstance(error, TacitError) and error.code == "stopped":  # of learning_commands, which need not be loaded
        return STOPPED, [f"stopped: {error}"]
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        serving = next((each for each in given if not each.startswith("-")), "") in SERVING
        return STOPPED, ["stopped" if serving else "stopped: nothing was kept; start it again to begin anew"]
    if isinstance(error, TacitError):
        return FAILED, explain_error(error)
    if isinstance(error, UsageError):
        usage: Any = error
        command = usage.ctx.command_path if usage.ctx else "tacit"
        message = usage.format_message()
        return BAD_INPUT, [f"error[usage]: {message.removesuffix('.')}", f"try: {command} --help"]
    if isinstance(error, OSError) and error.errno in FULL:
        where = f"{error.filename} cannot be written" if error.filename else "a file cannot be written"
        return FAILED, [f"error[disk]: {where}: {error.strerror}", "try: free disk space, then run the command again"]
    text = " ".join(str(error).split())
    return FAILED, [f"error[internal]: {type(error).__name__}: {text}", "try: run it again with --verbose to see where"]


def explain_error(error: TacitError) -> list[str]:
    """Returns the lines for an error: one for each problem, each followed by its remedy if there is one."""
    lines: list[str] = []
    for message, remedy in error.texts:
        lines.append(f"error[{error.code}]: {message}")
        lines += [f"try: {remedy}"] * bool(remedy)
    return lines


app = typer.Typer(
    cls=LazyCommands,
    name="tacit",
    help="Average models with people you don't fully trust, and know exactly what still leaks.",
    epilog=examples("tacit demo", "tacit audit secagg --rounds 10", "tacit plan 12"),
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def tacit(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Verbose = False,
) -> None:
    """Average models with people you don't fully trust, and know exactly what still leaks."""
    del verbose
    if version:
        typer.echo(f"tacit {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        return
    raise typer.Exit(DONE)


def main() -> None:
    """Runs the command line."""
    app(prog_name="tacit")
