"""The command `tacit doctor`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from tacit.app.cli.command_table import COMMANDS, MACHINES
from tacit.app.cli.node_commands import File, Folder, Identity, ProxyAt
from tacit.app.cli.options import AsJson, Choice, Verbose, examples
from tacit.app.doctor.findings import CheckResult, Level, examine
from tacit.app.terminal import tables
from tacit.app.terminal.narrow_table import make_table

app = typer.Typer()
FAILED = 1
"""Exit code if a check failed."""


@app.command(
    help=COMMANDS["doctor"].summary,
    epilog=examples("tacit doctor federation.toml --me hospital-a", "tacit doctor federation.toml --json"),
    rich_help_panel=MACHINES,
)
def doctor(
    federation: File,
    me: Annotated[
        str | None,
        Choice(help="The party of this machine (default: check the roster and peers only).", envvar="TACIT_PARTY"),
    ] = None,
    identity: Identity = None,
    folder: Folder = None,
    proxy: ProxyAt = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Check this machine and the paths to all peers before the first round. Exit code 1 if a check failed.

    Args:
        federation: the roster.
        me: the party of this machine.
        identity: the file with the party's keys.
        folder: where the party keeps its rounds.
        proxy: HTTP proxy to dial the others through.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    keys, place = (None if path is None else Path(path) for path in (identity, folder))
    found = examine(Path(federation), me, keys, place, proxy)
    failed = sum(each.level is Level.FAILED for each in found)
    tables.show_result(as_json, {"failed": failed, "findings": [asdict(each) for each in found]}, render(found))
    if failed:
        raise typer.Exit(FAILED)


def render(found: list[CheckResult]) -> Group:
    """Returns a table of all findings, and below it what to do about warnings and failures."""
    table = make_table("check", "", "party", "finding")
    for each in found:
        table.add_row(each.code, each.level.value, each.party, Text(each.text))
    lines = [Text(f"{each.code} {each.party}".rstrip() + f"\ntry: {each.remedy}") for each in found if each.remedy]
    failed = sum(each.level is Level.FAILED for each in found)
    summary = f"{failed} of {len(found)} checks failed." if failed else f"No failure in {len(found)} checks."
    return Group(table, Text(""), *lines, Text(summary))
