"""The command `tacit demo`."""

from typing import Annotated

import typer

from tacit.app.cli import demo as demonstration
from tacit.app.cli.command_table import LEARNING
from tacit.app.cli.options import AsJson, Choice, Verbose, examples
from tacit.app.terminal import tables
from tacit.app.terminal.progress import show_progress

STANDARD = demonstration.DemoSettings()
app = typer.Typer()


@app.command(
    epilog=examples("tacit demo", "tacit demo --parties 12 --crash p3 --crash p7"),
    rich_help_panel=LEARNING,
)
def demo(
    parties: Annotated[int, Choice(help=f"Number of parties (default: {STANDARD.parties}).")] = STANDARD.parties,
    rounds: Annotated[int, Choice(help=f"Number of rounds (default: {STANDARD.rounds}).")] = STANDARD.rounds,
    seed: Annotated[int, Choice(help=f"Seed of all random choices (default: {STANDARD.seed}).")] = STANDARD.seed,
    crash: Annotated[
        list[str] | None,
        Choice(help="A party that crashes halfway. May be repeated (default: one party)."),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train a digit classifier among nine parties, and show what a server and three protocols expose."""
    del verbose
    settings = demonstration.DemoSettings(parties, rounds, seed, tuple(crash or ()))
    settings.crashing()  # Raises before a progress bar is shown.
    with show_progress(counted=True) as told:
        report = demonstration.run_demo(settings, told)
    tables.show_result(as_json, report, tables.render_demo(report))
