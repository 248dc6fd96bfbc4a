"""The command line: one command for each thing that people do with Tacit.

Results go to standard output, progress and errors to standard error. Errors are one line each and say what to do; a
traceback is shown only with --debug. Exit code 0: done; 1: refused for a leak, or failed; 2: bad input; 130: stopped by
Ctrl-C.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from tacit import __version__
from tacit.app.cli import audit_commands, bench, learning_commands, node_commands, roster_commands
from tacit.app.cli import demo as demonstration
from tacit.app.cli.options import AsJson, Choice, Debug, as_text, examples
from tacit.app.terminal import tables
from tacit.app.terminal.progress import following
from tacit.app.ui import command as ui
from tacit.core.errors import ConfigError, TacitError
from tacit.protocols import REGISTRY

DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130
SERVING = ("ui", "serve")
"""Commands that go on until they are stopped, and have nothing to begin anew."""
RENAMED = {"run": "train"}
"""Former names of commands, which still work in this release but are not listed."""
STANDARD = demonstration.DemoSettings()


class Commands(TyperGroup):
    """The commands, with one way out for everything that goes wrong."""

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
        try:
            # What comes back is the code of an early exit, such as that of --help, or nothing.
            code = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra) or DONE
            lines = verdict(KeyboardInterrupt(), given)[1] if code == STOPPED else []
        except (Exception, KeyboardInterrupt) as error:
            if "--debug" in given:
                traceback.print_exc()
            code, lines = verdict(error, given)
        for line in lines:
            click.echo(line, err=True)
        sys.exit(code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the requested command, also by its former name.

        Click suggests a name if there is no such command, and Typer would suggest it a second time.
        """
        if args and (name := RENAMED.get(args[0])) is not None:
            click.echo(
                f"note: tacit {args[0]} is now called tacit {name}; the old name goes away in the next release",
                err=True,
            )
            args = [name, *args[1:]]
        return click.Group.resolve_command(self, ctx, args)


def verdict(error: BaseException, given: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Returns the exit code for an error, and the lines that tell of it, to whoever gave these arguments."""
    if isinstance(error, ConfigError):
        return BAD_INPUT, [f"error[{error.code}]: {problem}" for problem in error.problems]
    if isinstance(error, learning_commands.Stopped):
        return STOPPED, [f"stopped: {error}"]
    if isinstance(error, KeyboardInterrupt | click.Abort):
        serving = next((each for each in given if not each.startswith("-")), "") in SERVING
        return STOPPED, ["stopped" if serving else "stopped: nothing was kept; start it again to begin anew"]
    if isinstance(error, TacitError):
        return FAILED, [f"error[{error.code}]: {error}"]
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "tacit"
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        return BAD_INPUT, [f"error[usage]: {message}{stop} See {command} --help"]
    text = " ".join(str(error).split())
    return FAILED, [f"error[internal]: {type(error).__name__}: {text}; run it again with --debug to see where"]


around = typer.Typer()
app = typer.Typer(
    cls=Commands,
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
    debug: Debug = False,
) -> None:
    """Average models with people you don't fully trust, and know exactly what still leaks."""
    del debug
    if version:
        typer.echo(f"tacit {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        return
    raise typer.Exit(DONE)


@app.command(
    epilog=examples("tacit demo", "tacit demo --parties 12 --crash p3 --crash p7"),
    rich_help_panel=learning_commands.PANEL,
)
def demo(
    parties: Annotated[int, Choice(help=f"How many learn together; {STANDARD.parties} unless set.")] = STANDARD.parties,
    rounds: Annotated[int, Choice(help=f"How often they average; {STANDARD.rounds} unless set.")] = STANDARD.rounds,
    seed: Annotated[int, Choice(help=f"Same seed, same run; {STANDARD.seed} unless set.")] = STANDARD.seed,
    crash: Annotated[
        list[str] | None,
        Choice(help="Who crashes in the middle; may be given several times. One party unless set."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Learn to read digits together, and see what a server, and three protocols, give away."""
    del debug
    settings = demonstration.DemoSettings(parties, rounds, seed, tuple(crash or ()))
    settings.crashing()  # complains before a progress bar is drawn
    with following(counted=True) as told:
        steps = iter(range(settings.steps))
        report = demonstration.run(settings, lambda doing: told(doing, next(steps), settings.steps))
    if as_json:
        typer.echo(as_text(report))
    else:
        tables.show(tables.demo(report))


@around.command(epilog=examples("tacit protocols", "tacit protocols --json"), rich_help_panel=bench.PANEL)
def protocols(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the protocols, what each of them gives away, and their settings."""
    del debug
    descriptions = [tables.described(protocol) for protocol in REGISTRY.values()]
    if as_json:
        typer.echo(as_text(descriptions))
    else:
        tables.show(tables.protocols(descriptions))


# In the order in which --help lists them.
app.add_typer(learning_commands.app)
app.add_typer(audit_commands.app)
app.add_typer(roster_commands.app)
app.add_typer(roster_commands.roster, name="roster", cls=Commands, rich_help_panel=roster_commands.PANEL)
app.add_typer(learning_commands.machines)
app.add_typer(node_commands.app)
app.add_typer(ui.app)
app.add_typer(around)
app.add_typer(bench.app)


def main() -> None:
    """Runs the command line."""
    app(prog_name="tacit")
