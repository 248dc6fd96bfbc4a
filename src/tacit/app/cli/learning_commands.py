"""Commands that train: `tacit train`, `tacit node`, `tacit compare`, `tacit reproduce`."""

import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import msgspec
import typer

from tacit.api.option_text import check_name
from tacit.app.cli.command_table import COMMANDS, LEARNING, MACHINES
from tacit.app.cli.node_commands import Identity, LogJson, MetricsAt, ProxyAt, open_many
from tacit.app.cli.options import (
    AsJson,
    Choice,
    Picture,
    Verbose,
    check_at_least,
    examples,
    protocol_names,
    reproduction_names,
)
from tacit.app.reports import html_reports, pictures
from tacit.app.terminal import tables
from tacit.app.terminal.progress import ProgressDisplay, show_progress
from tacit.core.errors import ConfigError, MissingExtra, TacitError
from tacit.lab import comparison, papers
from tacit.lab.papers.minutes import MINUTES
from tacit.lab.papers.reproduction import Scale
from tacit.learn.scenario import Scenario, locate_problems
from tacit.learn.scenario_check import load_scenario
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.stop_request import StopAsked, StopRequest
from tacit.learn.training.train import Run
from tacit.learn.training.train import train as train_scenario
from tacit.privacy import People

SEEDS = 3
"""Seeds of a comparison: the fewest that show how much results depend on them."""

app, machines = typer.Typer(), typer.Typer()


class Stopped(TacitError):
    """The user pressed Ctrl-C. The message says how to continue."""

    code = "stopped"


@contextmanager
def going_on_by(command: str) -> Iterator[None]:
    """Turns Ctrl-C into a line that says how to continue. All finished rounds are on disk."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"finished rounds are kept; to resume, run: {command}") from None


Folder = Annotated[str | None, Choice(help="Where to write (default: a new folder in runs).")]
LedgerFile = Annotated[
    str | None,
    Choice(
        "--ledger",
        help="The file with the privacy budget of these data (default: ledger.json in their own folder or, for a "
        "named public data set, in the folder of the run).",
    ),
]
SamePeople = Annotated[
    bool, Choice("--same-people", help="The data changed, and some are still of the same people: their ledger goes on.")
]
NewPeople = Annotated[
    bool, Choice("--new-people", help="All data are of new people: begin a new ledger, and keep the old one beside it.")
]


def _read_people(same: bool, new: bool) -> People | None:
    if same and new:
        raise ConfigError("--same-people and --new-people exclude each other; try: give only one")
    return "same" if same else "new" if new else None


@app.command(
    help=COMMANDS["train"].summary,
    epilog=examples("tacit train scenario.toml --folder runs/first", "tacit train scenario.toml --resume"),
    rich_help_panel=LEARNING,
)
def train(
    scenario: Annotated[str, typer.Argument(help="A scenario, in TOML or JSON.")],
    folder: Folder = None,
    resume: Annotated[
        bool, Choice("--resume", help="Go on with a run that was cut off, as if it had not been.")
    ] = False,
    address: Annotated[
        str | None,
        Choice(
            help="A Ray cluster whose actors play parties, as many as the scenario has workers; local starts one here. "
            "(Default: processes of this machine.)"
        ),
    ] = None,
    ledger: LedgerFile = None,
    same_people: SamePeople = False,
    new_people: NewPeople = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train a scenario, and write accuracy, bytes, privacy spent and the audit to a folder.

    Args:
        scenario: the scenario.
        folder: where to write.
        resume: continues an interrupted run.
        address: address of a Ray cluster for the workers.
        ledger: the file with what the data have spent.
        same_people: says that changed data are of the same people.
        new_people: says that all data are of new people.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    wanted = load_scenario(scenario)
    people = _read_people(same_people, new_people)
    target = [f"--{name} {shlex.quote(value)}" for name, value in (("folder", folder), ("ledger", ledger)) if value]
    again = [f"tacit train {shlex.quote(scenario)}", *target, "--resume"]
    with going_on_by(" ".join(again)), show_progress(counted=True) as told:
        told("starting", 0, wanted.rounds)
        shown = _following(told, wanted.rounds, wanted.data.parties)
        try:
            shown |= {"ledger": ledger, "people": people}
            done = train_scenario(wanted, folder=folder, resume=resume, address=address, **shown)
        except ConfigError as error:
            raise locate_problems(error, scenario) from None
        if done.folder is not None:
            _write_report(done)
    tables.show_result(
        as_json, {"folder": str(done.folder), "notes": done.notes, "history": done.history}, tables.render_run(done)
    )


def _write_report(done: Run) -> None:
    try:
        html_reports.write_run_report(done)
    except MissingExtra as missing:
        typer.echo(f"note: no {html_reports.REPORT}: {missing}", err=True)


def _following(told: ProgressDisplay, rounds: int, parties: int) -> dict[str, Any]:
    """Returns the callbacks that show the progress of a run."""

    def over(metrics: Metrics) -> None:
        told.round(metrics, rounds, parties)

    return {"on_round": over, "progress": told}


def _write_node_command(scenario: str, me: str, given: Mapping[str, str | None]) -> str:
    """Returns the command that starts a party again, with the options that it was given."""
    options = [
        f"--{name} {shlex.quote(value)}" for name, value in given.items() if value and value != "federation.toml"
    ]
    return " ".join([f"tacit node {shlex.quote(scenario)} --me {shlex.quote(me)}", *options])


def _stop_on_signal() -> StopRequest:
    """Returns a request that SIGTERM makes. A second SIGTERM stops at once, in the middle of a round too."""
    stop = StopRequest()

    def take(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        stop.ask()

    with suppress(ValueError):  # only the main thread of a program gets signals
        signal.signal(signal.SIGTERM, take)
    return stop


Journal = Annotated[
    str | None,
    Choice(help="Where its rounds are kept (default: NAME.rounds beside the roster).", envvar="TACIT_JOURNAL"),
]


@machines.command(
    help=COMMANDS["node"].summary,
    epilog=examples("tacit node scenario.toml --me hospital-a"),
    rich_help_panel=MACHINES,
)
def node(
    scenario: Annotated[str, typer.Argument(help="The scenario that all parties train, in TOML or JSON.")],
    me: Annotated[str, Choice(help="The name of this party.", envvar="TACIT_PARTY")],
    federation: Annotated[
        str, Choice(help="The roster (default: federation.toml).", envvar="TACIT_FEDERATION")
    ] = "federation.toml",
    identity: Identity = None,
    folder: Annotated[
        str | None, Choice(help="Where to write (default: NAME.run beside the roster).", envvar="TACIT_FOLDER")
    ] = None,
    journal: Journal = None,
    metrics: MetricsAt = None,
    proxy: ProxyAt = None,
    ledger: LedgerFile = None,
    same_people: SamePeople = False,
    new_people: NewPeople = False,
    log_json: LogJson = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train as one party of a federation, on samples that stay on this machine. Resumes when started again.

    Args:
        scenario: the scenario that all train by.
        me: the party.
        federation: the roster.
        identity: the file with the party's keys.
        folder: where to write.
        journal: where its rounds are kept.
        metrics: host:port to serve metrics at.
        proxy: HTTP proxy to dial the others through.
        ledger: the file with what the party's data have spent.
        same_people: says that changed data are of the same people.
        new_people: says that all data are of new people.
        log_json: logs as JSON.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    from tacit.learn.training.node_training import take_part
    from tacit.net.observability.telemetry import log_lines

    open_many()
    log_lines(as_json=log_json)
    wanted = Scenario.load(scenario)
    people = _read_people(same_people, new_people)
    places = {"federation": federation, "identity": identity, "folder": folder, "journal": journal}
    given = places | {"metrics": metrics, "ledger": ledger}
    if "@" not in (proxy or ""):  # or it has a password
        given["proxy"] = proxy
    again = _write_node_command(scenario, me, given)
    with going_on_by(again), show_progress(counted=True, waits=True) as told:
        told("waiting for the others", 0, wanted.rounds)

        def over(ended: Metrics) -> None:
            told.round(ended, wanted.rounds, 1)

        try:
            done = take_part(
                wanted,
                federation,
                me,
                identity=identity,
                folder=folder,
                journal=journal,
                metrics=metrics,
                proxy=proxy,
                ledger=ledger,
                people=people,
                on_round=over,
                progress=told,
                stop=_stop_on_signal(),
            )
        except StopAsked as stopped:
            typer.echo(f"stopped after round {stopped}; to go on, run: {again}", err=True)
            return
    tables.show_result(
        as_json, {"folder": str(done.folder), "notes": done.notes, "history": done.history}, tables.render_run(done)
    )


@app.command(
    help=COMMANDS["compare"].summary,
    epilog=examples(
        "tacit compare --rounds 5 --picture compare.png",
        "tacit compare scenario.toml --protocol fedavg --protocol 'cesar share=0.3'",
    ),
    rich_help_panel=LEARNING,
)
def compare(
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario, in TOML or JSON (default: the digits of tacit demo).")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        Choice(
            help="A protocol and its settings, such as 'cesar share=0.3'. May be repeated; only the named ones are "
            "compared (default: all, with the scenario's own settings for its own protocol).",
            autocompletion=protocol_names,
        ),
    ] = None,
    rounds: Annotated[int | None, Choice(help="Number of rounds (default: as the scenario says).")] = None,
    seeds: Annotated[
        int | None,
        Choice(
            help="Number of seeds that each protocol runs with, from the scenario's seed on (default: 3; 1 where "
            "rounds cost a privacy budget)."
        ),
    ] = None,
    picture: Picture = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train one scenario with several protocols, and compare accuracy, cost and exposure.

    Args:
        scenario: the scenario; the digits of the demo by default.
        protocol: the protocols with their settings; all by default.
        rounds: rounds of each run.
        seeds: seeds that each protocol runs with.
        picture: file of a picture.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    pictures.check(picture)
    check_at_least(1, rounds=rounds, seeds=seeds)
    base = comparison.STANDARD if scenario is None else Scenario.load(scenario)
    if rounds is not None:
        base = msgspec.structs.replace(base, rounds=rounds)
        if base.problems():
            raise ConfigError(base.problems())
    asked = [comparison.parse_variant(each) for each in protocol] if protocol else None
    with show_progress(counted=True) as told:
        found = comparison.compare(base, asked, told, seeds or (1 if comparison.pays_for_rounds(base) else SEEDS))
    if picture is not None:
        pictures.draw_comparison(base, found, picture)
    tables.show_result(as_json, [each.plain() for each in found], tables.render_comparison(base, found), picture)


@app.command(
    epilog=examples("tacit reproduce", "tacit reproduce 001-fig3 --picture fig3.png", "tacit reproduce 000-fig4"),
    rich_help_panel=LEARNING,
)
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A table or figure of a paper, such as 001-steps, which takes seconds and needs no data. Without it, "
            "all are listed, with the minutes and the data that each needs.",
            autocompletion=reproduction_names,
        ),
    ] = None,
    scale: Annotated[
        str,
        Choice(
            help="small takes the minutes that the list states; paper runs the paper's sizes as far as feasible, and "
            "can take hours (default: small)."
        ),
    ] = "small",
    every: Annotated[bool, Choice("--list", help="List all that can be reproduced.")] = False,
    picture: Picture = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Reproduce a table or figure of a paper, with the paper's numbers beside ours."""
    del verbose
    pictures.check(picture)
    if every or name is None:
        listed = [papers.find(each) for each in papers.names()]
        plain = [
            {
                "name": each.name,
                "title": each.title,
                "minutes": MINUTES.get(each.name),
                "unstated": each.unstated,
                "changed": each.changed,
            }
            for each in listed
        ]
        tables.show_result(as_json, plain, tables.render_reproductions(listed))
        return
    check_name("scale", scale, Scale.__args__)  # type: ignore[attr-defined]
    chosen: Any = papers.find(check_name("reproduction", name, papers.names()))
    with show_progress() as told:
        found = chosen.run(scale, told)
    if picture is not None:
        pictures.charts(found.charts, picture, f"{chosen.name}: {chosen.title} (scale {scale})")
    rows = {"name": name, "scale": scale, "rows": found.rows}
    tables.show_result(as_json, rows, tables.render_reproduction(chosen, found, scale), picture)
