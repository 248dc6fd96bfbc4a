"""The commands of a federation that is under way: `tacit serve`, `tacit status`."""

import asyncio
import signal
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from tacit.app import tables
from tacit.app.options import AsJson, Choice, Debug, as_text
from tacit.core.outcome import Ending
from tacit.core.suite import SERVER
from tacit.drivers.network.book import Glance, peek
from tacit.drivers.network.status import STATUS, Status

if TYPE_CHECKING:
    from tacit.api.join import Seated

app = typer.Typer()

FRESH = 10.0
"""Seconds after which a party that writes nothing is not running."""

File = Annotated[str, typer.Argument(help="The roster, such as federation.toml.")]
Identity = Annotated[str | None, Choice(help="The file of its keys; NAME.identity beside the roster unless set.")]
Folder = Annotated[
    str | None, Choice(help="Where it keeps what must outlive it; NAME.rounds beside the roster unless set.")
]


@app.command(epilog="Example: tacit serve federation.toml")
def serve(
    federation: File,
    identity: Identity = None,
    folder: Folder = None,
    rounds: Annotated[int | None, Choice(help="End after that round; never unless set.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run the server of a federation: it sums what parties send, and sees nobody's model where they are masked."""
    del debug
    from tacit.api.join import Seated

    seated = Seated.of(federation, SERVER, identity, folder)
    asyncio.run(_serve(seated, rounds, as_json))


async def _serve(seated: "Seated", rounds: int | None, as_json: bool) -> None:
    node = seated.node()
    told = _as_json if as_json else _as_line
    try:
        await node.start()
        typer.echo(f"listening at {seated.roster.address_of(SERVER)}", err=True)
        work = asyncio.create_task(node.serve(told, rounds))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            typer.echo("stopped; start it again to go on", err=True)
        else:
            await node.flushed(seated.roster.deadlines.phase)
    finally:
        await node.close()


def _as_line(ending: Ending) -> None:
    missing = ", ".join(f"{party} {reason}" for party, reason in ending.dropped.items())
    what = str(ending.error) if ending.error is not None else f"{len(ending.contributors)} averaged"
    typer.echo(f"round {ending.round}: {what}{f' (without {missing})' if missing else ''}")


def _as_json(ending: Ending) -> None:
    typer.echo(msgspec.json.encode(told(ending)).decode())


def told(ending: Ending) -> dict[str, Any]:
    """Returns how a round ended, without any vector."""
    return {
        "round": ending.round,
        "contributors": list(ending.contributors),
        "dropped": {party: str(reason) for party, reason in ending.dropped.items()},
        "error": None if ending.error is None else {"code": ending.error.code, "text": str(ending.error)},
        "sent": dict(ending.sent),
        "received": dict(ending.received),
        "seconds": round(sum(phase.seconds for phase in ending.phases), 3),
    }


@app.command(epilog="Example: tacit status hospital-a.rounds")
def status(
    folder: Annotated[str, typer.Argument(help="The folder in which a party keeps its rounds.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show how far a party is, who is missing and for how long, and how its last round ended."""
    del debug
    kept, now = peek(folder), time()
    path = Path(folder) / STATUS
    live = msgspec.json.decode(path.read_bytes(), type=Status) if path.is_file() else None
    if as_json:
        ended = None if kept.ending is None else told(kept.ending)
        typer.echo(as_text({"party": kept.party, "federation": kept.federation, "last": ended, "status": live}))
        return
    typer.echo(f"{kept.party} in {kept.federation}: round {kept.number}, {_doing(kept)}")
    if kept.ending is not None:
        _as_line(kept.ending)
    if live is not None and now - live.at < FRESH:
        tables.show(_peers(live))
    elif live is not None:
        typer.echo(f"it is not running: it was last seen {now - live.at:.0f} s ago")


def _doing(kept: Glance) -> str:
    return f"under way for {time() - kept.begun:.0f} s" if kept.under_way else "which is over"


def _peers(live: Status) -> Table:
    table = Table("peer", "round", "heard", "missing for", "not arrived", "trouble", box=None)
    for each in live.peers:
        heard = "never" if each.heard is None else f"{each.heard:.0f} s ago"
        missing = "" if each.missing is None else f"{each.missing:.0f} s"
        table.add_row(Text(each.party), str(each.begun), heard, missing, str(each.waiting), Text(each.trouble))
    return table
