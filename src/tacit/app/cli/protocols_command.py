"""The command `tacit protocols`."""

import warnings

import typer

from tacit.app.cli.command_table import OVERVIEW
from tacit.app.cli.options import AsJson, Verbose, examples, to_json
from tacit.app.terminal import tables
from tacit.protocols import REGISTRY, PluginWarning
from tacit.protocols.registry import SHIPPED_AT

app = typer.Typer()
PROTOCOLS_THERE_ARE = f"{', '.join(SHIPPED_AT)}, or one that an installed package adds (tacit protocols)"
"""The protocols that a command accepts, for its help text. Installed packages are not searched for it."""


@app.command(epilog=examples("tacit protocols", "tacit protocols --json"), rich_help_panel=OVERVIEW)
def protocols(as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List the protocols, what each exposes, and its settings."""
    del verbose
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # They are listed below.
        descriptions = [tables.describe_protocol(protocol) for protocol in REGISTRY.usable()]
    unusable = REGISTRY.problems
    if as_json:
        broken = [{"name": each.name, "package": each.package, "problem": each.reason} for each in unusable]
        typer.echo(to_json([*descriptions, *broken]))
        return
    tables.print_result(tables.render_protocols(descriptions))
    for problem in unusable:
        typer.echo(str(problem))
