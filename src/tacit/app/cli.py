"""The command line: `tacit demo`, `tacit protocols`, `tacit audit`, `tacit attack`, `tacit plan`, learning and rosters.

Results go to standard output, progress and errors to standard error. Errors are one line each and say what to do; a
traceback is shown only with --debug. Exit code 0: done; 1: refused for a leak, or failed; 2: bad input.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import click
import typer
from rich.progress import MofNCompleteColumn
from typer.core import TyperGroup

from tacit import __version__
from tacit.app import demo as demonstration
from tacit.app import learning, network, nodes, pictures, tables
from tacit.app.options import AsJson, Choice, Debug, Picture, as_text, progress_bar, settings_from
from tacit.audit.coalitions import coalitions, of_parties
from tacit.audit.described import described
from tacit.audit.flower import FlowerAudit, audit_app
from tacit.audit.plan import plan as make_plan
from tacit.audit.report import Auditor
from tacit.audit.scope import Scope
from tacit.core.errors import ConfigError, TacitError
from tacit.protocols import REGISTRY, find

DONE, FAILED, BAD_INPUT = 0, 1, 2
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
    settings = demonstration.DemoSettings(parties, rounds, seed, tuple(crash or ()))
    settings.crashing()  # complains before a progress bar is drawn
    with progress_bar(MofNCompleteColumn()) as bar:
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
    protocol: Annotated[str | None, typer.Argument(help="The protocol, as listed by tacit protocols.")] = None,
    flower: Annotated[str | None, Choice(help="Audit the Flower app in a folder instead, whose code is read.")] = None,
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
        str,
        Choice(
            help="static: the same vectors every round, the worst case; free: new ones; or by how much an entry "
            "changes a round. static unless set."
        ),
    ] = "static",
    dropout: Annotated[float, Choice(help="The chance with which a party is lost to a round; 0 unless set.")] = 0.0,
    noise: Annotated[
        float, Choice(help="The standard deviation of the noise that everybody adds to an entry; 0 unless set.")
    ] = 0.0,
    prior: Annotated[
        float | None, Choice(help="The standard deviation of an entry; that of any number up to the clip unless set.")
    ] = None,
    entries: Annotated[
        int | None, Choice(help="How many positions to look at, if they fare differently; 16 then unless set.")
    ] = None,
    open_links: Annotated[
        bool, Choice("--open-links", help="Ask what the onlooker would learn if links were not sealed.")
    ] = False,
    options: Annotated[
        list[str] | None, Choice("--set", help="A setting of the protocol, such as masked=true.")
    ] = None,
    picture: Picture = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compute whose vectors a coalition can learn, from the code that runs, and prove it on a real transcript."""
    del debug
    pictures.check(picture)
    if flower is not None:
        _show(audit_app(flower, parties=parties, rounds=rounds, dropout=dropout), as_json)
        return
    if protocol is None:
        raise ConfigError("say which protocol to audit (tacit protocols lists them), or give --flower and a folder")
    names = tuple(f"p{place}" for place in range(parties))
    if coalition_size is not None:
        every = of_parties(names, coalition_size, coalition)
    else:
        every = [tuple(coalition)] if coalition is not None else list(coalitions(find(protocol), names, 1))
    settings = settings_from(options or [])
    scope = Scope.of(
        protocol,
        names,
        settings,
        rounds=rounds,
        drift=float(drift) if drift.replace(".", "", 1).isdigit() else drift,
        dropout=dropout,
        noise=noise,
        prior=prior,
        entries=entries,
        sealed=not open_links,
    )
    with progress_bar(MofNCompleteColumn()) as bar:
        job = bar.add_task("running on unknowns", total=len(every))
        auditor = Auditor(scope, guard=True)
        reports = []
        for members in every:
            bar.update(job, description=", ".join(members))
            reports.append(auditor.report(members))
            bar.advance(job)
    if picture is not None:
        pictures.exposure(reports, picture)
    if as_json:
        typer.echo(as_text([described(report) for report in reports]))
    else:
        tables.show(tables.audit(reports))


def _show(found: FlowerAudit, as_json: bool) -> None:
    if as_json:
        typer.echo(as_text({**found.described(), "reports": [described(report) for report in found.reports]}))
    else:
        tables.show(tables.flower(found))


@app.command(epilog="Example: tacit attack decode --full")
def attack(
    name: Annotated[str | None, typer.Argument(help="The attack; all are listed unless set.")] = None,
    full: Annotated[bool, Choice("--full", help="The whole experiment, which takes minutes, not seconds.")] = False,
    seed: Annotated[int, Choice(help="Same seed, same result; 0 unless set.")] = 0,
    picture: Picture = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Attack protocols, beside targets on which the attack must win, and ones on which it must not."""
    del debug
    from tacit.audit.attacks.registry import ATTACKS, find_attack

    pictures.check(picture)
    if name is None:
        listed = [{"name": each.name, "summary": each.summary, "paper": each.paper} for each in ATTACKS.values()]
        typer.echo(as_text(listed)) if as_json else tables.show(tables.attacks(listed))
        return
    chosen = find_attack(name)
    with progress_bar() as bar:
        job = bar.add_task(name, total=1.0)
        found = chosen.run(full, seed, lambda doing, done: bar.update(job, description=doing, completed=done))
    if picture is not None:
        pictures.intervals(found, picture)
    if as_json:
        typer.echo(as_text([tables.found(finding) for finding in found]))
    else:
        tables.show(tables.findings(found))


@app.command(epilog="Example: tacit plan 12 --coalition-size 2 --rounds 50 --entries 1000000")
def plan(
    parties: Annotated[int, typer.Argument(help="How many want to average.")],
    coalition_size: Annotated[int, Choice(help="How many of them, or with the server, may collude; 1 unless set.")] = 1,
    rounds: Annotated[int, Choice(help="How often they average; 10 unless set.")] = 10,
    dropout: Annotated[float, Choice(help="The chance with which a party is lost to a round; 0.05 unless set.")] = 0.05,
    entries: Annotated[int, Choice(help="How long their vectors are; 100000 unless set.")] = 100_000,
    epsilon: Annotated[float, Choice(help="ε of differential privacy, if noise is to be added; 1 unless set.")] = 1.0,
    delta: Annotated[float, Choice(help="and δ; 0.00001 unless set.")] = 1e-5,
    picture: Picture = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Propose protocols and settings, with what they cost and what the audit says of each."""
    del debug
    pictures.check(picture)
    with progress_bar() as bar:
        job = bar.add_task("starting", total=1.0)
        found = make_plan(
            parties,
            coalition_size=coalition_size,
            rounds=rounds,
            dropout=dropout,
            entries=entries,
            epsilon=epsilon,
            delta=delta,
            progress=lambda doing, done: bar.update(job, description=doing, completed=done),
        )
    if picture is not None:
        pictures.costs(found, picture)
    if as_json:
        typer.echo(as_text(tables.planned(found)))
    else:
        tables.show(tables.plan(found))


app.add_typer(learning.app)
app.add_typer(nodes.app)
app.add_typer(network.app)
app.add_typer(network.roster, name="roster", cls=Commands)


def main() -> None:
    """Runs the command line."""
    app()
