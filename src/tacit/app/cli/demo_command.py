"""The command `tacit demo`."""

from typing import Annotated

import typer

from tacit.app.cli import demo as demonstration
from tacit.app.cli.command_table import LEARNING
from tacit.app.cli.options import AsJson, Choice, Debug, examples
from tacit.app.terminal import tables
from tacit.app.terminal.progress import show_progress

STANDARD = demonstration.DemoSettings()
app = typer.Typer()


@app.command(
    epilog=examples("tacit demo", "tacit demo --parties 12 --crash p3 --crash p7"),
    rich_help_panel=LEARNING,
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
    settings.crashing()  # Raises before a progress bar is shown.
    with show_progress(counted=True) as told:
        report = demonstration.run_demo(settings, told)
    tables.show_result(as_json, report, tables.render_demo(report))
