"""The commands that learn: `tacit run`, `tacit compare`, `tacit reproduce`."""

from typing import Annotated, Any

import msgspec
import typer
from rich.progress import MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn

from tacit import papers
from tacit.api.prepare import Metrics
from tacit.api.train import train
from tacit.app import comparison, pages, pictures, tables
from tacit.app.nodes import LogJson, MetricsAt, open_many
from tacit.app.options import AsJson, Choice, Debug, Picture, as_text, progress_bar
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.papers.reproduction import Scale

app = typer.Typer()

Folder = Annotated[str | None, Choice(help="Where to write; a new folder in runs unless set.")]


@app.command(epilog="Example: tacit run scenario.toml --folder runs/first")
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario, in TOML or JSON.")],
    folder: Folder = None,
    resume: Annotated[
        bool, Choice("--resume", help="Go on with a run that was cut off, as if it had not been.")
    ] = False,
    address: Annotated[
        str | None,
        Choice(
            help="A Ray cluster whose actors play parties, as many as the scenario has workers; local starts one here. "
            "Processes of this machine unless set."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Learn together as a scenario says, and write accuracy, bytes, privacy spent and the audit to a folder."""
    del debug
    wanted = Scenario.load(scenario)
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        job = bar.add_task("starting", total=wanted.rounds)
        done = train(
            wanted,
            folder=folder,
            resume=resume,
            address=address,
            **_following(bar, job),
        )
    if done.folder is not None:
        pages.write(done)
    if as_json:
        typer.echo(as_text({"folder": str(done.folder), "notes": done.notes, "history": done.history}))
    else:
        tables.show(tables.run(done))


def _following(bar: Progress, job: TaskID) -> dict[str, Any]:
    """Returns what shows on a bar how far a run is."""
    return {
        "progress": lambda metrics: bar.update(job, completed=metrics.round, description=doing(metrics)),
        "downloading": lambda name, done, of: bar.update(
            job, description=f"downloading {name}, {done / max(of, 1):.0%}"
        ),
    }


def doing(metrics: Metrics) -> str:
    """Returns what there is to say of a round while the next one is on."""
    score = metrics.accuracy if metrics.accuracy is not None else metrics.rmse
    how = "" if score is None else f", {tables.score(metrics.accuracy, metrics.rmse)}"
    return f"round {metrics.round}{how}, {tables.size(metrics.bytes)} a round"


@app.command(epilog="Example: tacit node scenario.toml --me hospital-a")
def node(
    scenario: Annotated[str, typer.Argument(help="What all learn, in TOML or JSON.")],
    me: Annotated[str, Choice(help="Which party this is.")],
    federation: Annotated[str, Choice(help="The roster; federation.toml unless set.")] = "federation.toml",
    identity: Annotated[
        str | None, Choice(help="The file of its keys; NAME.identity beside the roster unless set.")
    ] = None,
    folder: Annotated[str | None, Choice(help="Where to write; NAME.run beside the roster unless set.")] = None,
    metrics: MetricsAt = None,
    log_json: LogJson = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Learn with the others of a federation, as one of them, from samples that stay here. Start it again to go on."""
    del debug
    from tacit.api.party import take_part
    from tacit.drivers.network.telemetry import log_lines

    open_many()
    log_lines(as_json=log_json)
    wanted = Scenario.load(scenario)
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        job = bar.add_task("waiting for the others", total=wanted.rounds)
        done = take_part(
            wanted,
            federation,
            me,
            identity=identity,
            folder=folder,
            metrics=metrics,
            **_following(bar, job),
        )
    if as_json:
        typer.echo(as_text({"folder": str(done.folder), "notes": done.notes, "history": done.history}))
    else:
        tables.show(tables.run(done))


@app.command(epilog="Example: tacit compare scenario.toml --protocol fedavg --protocol 'cesar share=0.3'")
def compare(
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario, in TOML or JSON; the digits of tacit demo unless set.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        Choice(
            help="A protocol and its options, such as 'cesar share=0.3'; may be given several times. All unless set."
        ),
    ] = None,
    rounds: Annotated[int | None, Choice(help="How often they average; as the scenario says unless set.")] = None,
    picture: Picture = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Learn the same with several protocols: how well, at what cost, and who could learn whose model."""
    del debug
    pictures.check(picture)
    base = comparison.STANDARD if scenario is None else Scenario.load(scenario)
    if rounds is not None:
        base = msgspec.structs.replace(base, rounds=rounds)
        if base.problems():
            raise ConfigError(base.problems())
    asked = [comparison.variant(each) for each in protocol] if protocol else None
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        job = bar.add_task("starting", total=len(asked or comparison.variants(base)) * base.rounds)
        found = comparison.compare(base, asked, lambda doing: bar.update(job, advance=1, description=doing))
    if picture is not None:
        pictures.compared(found, picture)
    if as_json:
        typer.echo(as_text([each.plain() for each in found]))
    else:
        tables.show(tables.compared(base, found))


@app.command(epilog="Example: tacit reproduce 000-fig4 --scale small")
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure of a paper, as --list has them.")] = None,
    scale: Annotated[
        str, Choice(help="small takes minutes, paper does what the paper did as far as an hour goes. small unless set.")
    ] = "small",
    every: Annotated[bool, Choice("--list", help="List all that can be reproduced.")] = False,
    picture: Picture = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a table or figure of a paper again, with the paper's figures beside ours."""
    del debug
    pictures.check(picture)
    if every or name is None:
        listed = [papers.find(each) for each in papers.names()]
        plain = [{"name": each.name, "title": each.title, "unstated": each.unstated} for each in listed]
        typer.echo(as_text(plain)) if as_json else tables.show(tables.reproductions(listed))
        return
    if scale not in Scale.__args__:  # type: ignore[attr-defined]
        raise ConfigError(f"--scale {scale}: use small or paper")
    chosen: Any = papers.find(name)
    with progress_bar() as bar:
        job = bar.add_task(name, total=1.0)
        found = chosen.run(scale, lambda doing, done: bar.update(job, description=doing, completed=done))
    if picture is not None:
        pictures.charts(found.charts, picture)
    if as_json:
        typer.echo(as_text({"name": name, "scale": scale, "rows": found.rows}))
    else:
        tables.show(tables.reproduced(chosen, found))
