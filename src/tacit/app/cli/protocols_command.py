"""The command `tacit protocols`."""

import typer

from tacit.app.cli.command_table import OVERVIEW
from tacit.app.cli.options import AsJson, Debug, as_text, examples
from tacit.app.terminal import tables
from tacit.protocols import REGISTRY

app = typer.Typer()


@app.command(epilog=examples("tacit protocols", "tacit protocols --json"), rich_help_panel=OVERVIEW)
def protocols(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the protocols, what each of them gives away, and their settings."""
    del debug
    descriptions = [tables.described(protocol) for protocol in REGISTRY.values()]
    if as_json:
        typer.echo(as_text(descriptions))
    else:
        tables.show(tables.protocols(descriptions))
