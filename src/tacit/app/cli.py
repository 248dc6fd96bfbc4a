"""The command line: `tacit demo`, `tacit protocols`, `tacit audit`.

Results go to standard output, progress and errors to standard error. Errors are one line each and say what to do; a
traceback is shown only with --debug. Exit code 0: done; 1: refused for a leak, or failed; 2: bad input.
"""

import sys
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import click
import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from tacit import __version__
from tacit.app import demo as demonstration
from tacit.app import tables
from tacit.audit.report import audit as run_audit
from tacit.core.errors import ConfigError, TacitError
from tacit.core.suite import SERVER
from tacit.protocols import REGISTRY, find

DONE, FAILED, BAD_INPUT = 0, 1, 2
STANDARD = demonstration.Settings()


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
        except Exception as error:
            if "--debug" in given:
                traceback.print_exc()
            code, lines = verdict(error)
            for line in lines:
                click.echo(line, err=True)
        sys.exit(code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that was asked for; click suggests one if there is none, and Typer would do so again."""
        return click.Group.resolve_command(self, ctx, args)


def verdict(error: Exception) -> tuple[int, list[str]]:
    """Returns the exit code for an error, and the lines that tell of it."""
    if isinstance(error, ConfigError):
        return BAD_INPUT, [f"error[{error.code}]: {problem}" for problem in error.problems]
    if isinstance(error, TacitError):
        return FAILED, [f"error[{error.code}]: {error}"]
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "tacit"
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        return BAD_INPUT, [f"error[usage]: {message}{stop} See {command} --help"]
    if isinstance(error, click.Abort):
        return FAILED, ["error[stopped]: stopped before the end"]
    text = " ".join(str(error).split())
    return FAILED, [f"error[internal]: {type(error).__name__}: {text}; run it again with --debug to see where"]


app = typer.Typer(
    cls=Commands,
    name="tacit",
    help="Average models with people you don't fully trust, and know exactly what still leaks.",
    epilog="Example: tacit demo",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Typer puts a backslash before the defaults it shows where it is told not to use Rich, so the help texts say them.
Choice = partial(typer.Option, show_default=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
# Read in `Commands.main`, which sees the arguments even when they cannot be parsed.
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback if something goes wrong.")]


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


@app.command(epilog="Example: tacit demo --parties 12 --crash p3 --crash p7")
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
    """Learn to read digits together, with a server that sees everything and with one that sees only the sum."""
    del debug
    settings = demonstration.Settings(parties, rounds, seed, tuple(crash or ()))
    settings.crashing()  # complains before a progress bar is drawn
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        job = bar.add_task("starting", total=len(demonstration.PROTOCOLS) * rounds + parties)
        report = demonstration.run(settings, lambda doing: bar.update(job, advance=1, description=doing))
    if as_json:
        typer.echo(as_text(report))
    else:
        tables.show(tables.demo(report))


@app.command(epilog="Example: tacit protocols --json")
def protocols(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the protocols, what each of them gives away, and their options."""
    del debug
    descriptions = [tables.described(protocol) for protocol in REGISTRY.values()]
    if as_json:
        typer.echo(as_text(descriptions))
    else:
        tables.show(tables.protocols(descriptions))


@app.command(epilog="Example: tacit audit admm --parties 9 --coalition p0 --set group_size=3 --set iterations=5")
def audit(
    protocol: Annotated[str, typer.Argument(help="The protocol, as listed by tacit protocols.")],
    parties: Annotated[int, Choice(help="How many take part; 9 unless set.")] = 9,
    coalition: Annotated[
        list[str] | None,
        Choice(
            help="Who puts heads together; may be given several times. Each party alone, and the server, unless set."
        ),
    ] = None,
    coalition_size: Annotated[int | None, Choice(help="Audit every coalition of that many parties instead.")] = None,
    rounds: Annotated[int, Choice(help="How many rounds they watch; 1 unless set.")] = 1,
    drift: Annotated[
        str, Choice(help="static: the same vectors every round, the worst case; free: new ones. static unless set.")
    ] = "static",
    options: Annotated[
        list[str] | None, Choice("--set", help="A setting of the protocol, such as masked=true.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compute whose vectors a coalition can learn, from the code that runs, and prove it on a real transcript."""
    del debug
    question = {"parties": parties, "rounds": rounds, "drift": drift, **settings_from(options or [])}
    if coalition is not None or coalition_size is not None:
        found = run_audit(protocol, coalition=coalition, coalition_size=coalition_size, **question)
        reports = found if isinstance(found, list) else [found]
    else:
        reports = run_audit(protocol, coalition_size=1, **question)
        if find(protocol).server is not None:
            reports.append(run_audit(protocol, coalition=[SERVER], **question))
    if as_json:
        typer.echo(as_text([tables.audited(report) for report in reports]))
    else:
        tables.show(tables.audit(reports))


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


def main() -> None:
    """Runs the command line."""
    app()
