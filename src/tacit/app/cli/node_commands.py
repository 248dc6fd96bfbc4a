"""Commands of a running federation: `tacit serve`, `tacit relay`, `tacit status`."""

import asyncio
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tacit.app.cli.command_table import COMMANDS, MACHINES
from tacit.app.cli.options import AsJson, Choice, Verbose, examples, to_json
from tacit.app.terminal import tables
from tacit.app.terminal.narrow_table import AdaptiveTable
from tacit.core.average import Ending
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER
from tacit.net.observability.status import STATUS, PeerStatus, RoundSummary, Status
from tacit.net.observability.telemetry import log_lines
from tacit.net.store.index import StoreSummary, summarize_store

if TYPE_CHECKING:
    from tacit.api.membership import Membership
    from tacit.net.relay_node import RelayNode

app = typer.Typer()

FRESH = 10.0
"""Seconds without a new status after which a party counts as not running."""

File = Annotated[str, typer.Argument(help="The roster, such as federation.toml.", envvar="TACIT_FEDERATION")]
Identity = Annotated[
    str | None,
    Choice(help="The file with the secret keys (default: NAME.identity beside the roster).", envvar="TACIT_IDENTITY"),
]
Folder = Annotated[
    str | None,
    Choice(
        help="The folder with the party's journal and state (default: NAME.rounds beside the roster).",
        envvar="TACIT_FOLDER",
    ),
]


def open_many() -> None:
    """Raises the limit of open files as far as the system allows, because incoming connections are files too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


LogJson = Annotated[
    bool,
    typer.Option("--log-json", help="Log every event as JSON, one object a line.", envvar="TACIT_LOG_JSON"),
]
MetricsAt = Annotated[
    str | None,
    Choice(
        "--metrics",
        help="Address for metrics, /healthz and /readyz, such as localhost:9464.",
        envvar="TACIT_METRICS",
    ),
]

ProxyAt = Annotated[
    str | None,
    Choice(
        "--proxy",
        envvar="TACIT_PROXY",
        help="The HTTP proxy to dial the others through, such as http://proxy.hospital-a.example:3128.",
    ),
]


@app.command(
    help=COMMANDS["serve"].summary,
    epilog=examples("tacit serve federation.toml --metrics localhost:9464"),
    rich_help_panel=MACHINES,
)
def serve(
    federation: File,
    identity: Identity = None,
    folder: Folder = None,
    rounds: Annotated[int | None, Choice(help="The last round to run (default: never).")] = None,
    metrics: MetricsAt = None,
    log_json: LogJson = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run the server of a federation. It sums vectors, and sees no single one if they are masked.

    Args:
        federation: the roster.
        identity: the file with the server's keys.
        folder: where the server keeps its rounds.
        rounds: the last round to serve.
        metrics: host:port to serve metrics at.
        log_json: logs as JSON.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    from tacit.api.membership import Membership

    open_many()
    log_lines(as_json=log_json)
    seated = Membership.of(federation, SERVER, identity, folder)
    asyncio.run(_serve(seated, rounds, metrics, as_json))


async def _serve(seated: "Membership", rounds: int | None, metrics: str | None, as_json: bool) -> None:
    node = seated.watched_node()
    told = _as_json if as_json else _as_line
    try:
        await node.start(metrics=metrics)
        where = f", metrics are at {node.node.metrics.url}" if metrics is not None else ""
        work = asyncio.create_task(node.serve(told, rounds))

        def stop_softly() -> None:
            """Finishes the round that is under way; a second signal stops at once."""
            node.drain()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)

        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, work.cancel)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_softly)
        _echo(f"listening at {seated.roster.address_of(SERVER)}{where}", err=True)
        try:
            await work
        except asyncio.CancelledError:
            _echo("stopped; start it again to go on", err=True)
        else:
            await node.flush(seated.roster.deadlines.phase)
    finally:
        await node.close()


@app.command(
    help=COMMANDS["relay"].summary,
    epilog=examples("tacit relay federation.toml --identity relay.identity"),
    rich_help_panel=MACHINES,
)
def relay(
    federation: File,
    me: Annotated[str | None, Choice(help="Which relay this is (default: the only one on the roster).")] = None,
    identity: Identity = None,
    megabytes: Annotated[int, Choice(help="Longest message to pass on, in megabytes (default: 1024).", min=1)] = 1024,
    log_json: LogJson = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Pass sealed messages between parties of a federation that cannot dial each other. It can read none of them.

    Args:
        federation: the roster.
        me: the relay.
        identity: the file with the relay's keys.
        megabytes: the longest message to pass on.
        log_json: logs as JSON.
        as_json: prints the address as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    from tacit.net.membership.identity import Credentials, file_stem
    from tacit.net.membership.roster import RosterFile
    from tacit.net.relay_node import RelayNode

    open_many()
    log_lines(as_json=log_json)
    roster = RosterFile.load(federation)
    names = [card.name for card in roster.relays]
    if me is None and len(names) != 1:
        which = f"there are several relays; try: --me with one of {', '.join(names)}"
        none = "there is no relay on this roster; try: tacit roster add FILE CARD --relay"
        raise ConfigError(f"{federation}: {which if names else none}")
    name = me or names[0]
    path = Path(federation).with_name(f"{file_stem(name)}.identity") if identity is None else identity
    mine = Credentials.load(path)
    if mine.name != name:
        raise ConfigError(f"this is the identity of {mine.name}, not of {name}; try: give the file of {name}")
    asyncio.run(_relay(RelayNode(roster, mine, megabytes * 1_000_000), as_json))


async def _relay(node: "RelayNode", as_json: bool) -> None:
    ended, address = asyncio.Event(), node.roster.address_of(node.me)
    try:
        await node.start()
        if as_json:
            _echo(msgspec.json.encode({"relay": node.me, "address": address}).decode())
        _echo(f"relaying at {address}", err=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
        _echo("stopped; start it again to go on", err=True)
    finally:
        await node.close()


def _echo(line: str, *, err: bool = False) -> None:
    # Rounds continue even if the disk is full or nobody reads the output.
    with suppress(OSError):
        typer.echo(line, err=err)


def _as_line(ending: Ending) -> None:
    _echo(str(RoundSummary.of(ending)))


def _as_json(ending: Ending) -> None:
    _echo(msgspec.json.encode(RoundSummary.of(ending)).decode())


# --- status --------------------------------------------------------------------------------------------------------


@app.command(epilog=examples("tacit status hospital-a.rounds"), rich_help_panel=MACHINES)
def status(
    folder: Annotated[str, typer.Argument(help="The folder in which a party keeps its rounds.")],
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show whether a party is running, who is missing, and how its last round ended."""
    del verbose
    path = Path(folder)
    if as_json:
        seen = _read_party(path)
        who = {"party": seen.kept.party, "federation": seen.kept.federation, "round": seen.kept.number}
        typer.echo(to_json({**who, "running": seen.live is not None, "last": seen.last, "status": seen.said}))
    elif watch:
        with Live(_render_party(path), console=Console(highlight=False)) as shown, suppress(KeyboardInterrupt):
            while not Event().wait(1.0):
                shown.update(_render_party(path))
    else:
        tables.print_result(_render_party(path))


@dataclass(frozen=True)
class _PartyView:
    """State of a party, read from its folder."""

    kept: StoreSummary
    """Rounds that it has on disk."""
    said: Status | None
    """Status that it wrote last."""
    ago: float
    """Seconds since it wrote its status."""

    @property
    def live(self) -> Status | None:
        """Its status, if it is running."""
        return self.said if self.ago < FRESH else None

    @property
    def last(self) -> RoundSummary | None:
        """Result of its last finished round."""
        if self.live is None and self.kept.ending is not None:
            return RoundSummary.of(self.kept.ending)
        return None if self.said is None else self.said.last


def _read_party(folder: Path) -> _PartyView:
    kept, path = summarize_store(folder), folder / STATUS
    try:
        said, at = msgspec.json.decode(path.read_bytes(), type=Status), path.stat().st_mtime
    except (OSError, msgspec.DecodeError):  # It was never started, or belongs to another release.
        return _PartyView(kept, None, FRESH)
    # Both times are from this machine's clock, whatever time the party writes.
    return _PartyView(kept, said, max(time() - at, 0.0))


def _render_party(folder: Path) -> RenderableType:
    seen = _read_party(folder)
    live, lines = seen.live, [f"{seen.kept.party} in {seen.kept.federation}"]
    if live is None:
        lines.append(_describe_stopped(seen))
        lines += [f"Last round: {seen.last}"] if seen.last is not None else []
        return Group(Text(_describe_state(seen), "bold"), Text("\n".join(lines)))
    lines += [f"Last round: {seen.last}"] if seen.last is not None else []
    if live.trouble:
        lines.append(f"It cannot go on: {live.trouble}")
    if missing := [each for each in live.peers if each.missing is not None]:
        lines.append(f"Missing: {', '.join(map(_missing, missing))}")
    return Group(Text(_describe_state(seen), "bold"), Text("\n".join(lines)), "", _peers(live))


def _describe_stopped(seen: _PartyView) -> str:
    """Returns since when a party is not running."""
    if seen.said is None:
        return "It was never started."
    return f"It was last seen {tables.format_duration(seen.ago)} ago."


def _describe_state(seen: _PartyView) -> str:
    """Returns in one sentence whether a party runs, and in which round it is. No other line says so."""
    kept, live = seen.kept, seen.live
    if live is None:
        if kept.under_way and not _has_ended(seen, kept.number):
            return f"Stopped in round {kept.number}, which it finishes when it is started again."
        return f"Stopped after round {kept.number}." if kept.number else "Stopped before its first round."
    if not live.over:
        return f"Running: in round {live.round}{f', waits for {live.waits_for}' if live.waits_for else ''}."
    # The folder is newer than the status, which is written once a second. One sentence uses one of the two.
    before = f"Running: round {live.round} is over" if live.round else "Running: no round was begun yet"
    return f"{before}, ready for round {live.ready}." if live.ready else f"{before}."


def _has_ended(seen: _PartyView, number: int) -> bool:
    """Returns whether a round that is still in the journal has ended: a party keeps it until the next one begins."""
    kept, said = seen.kept.ending, None if seen.said is None else seen.said.last
    return (kept is not None and kept.round == number) or (said is not None and said.round == number)


def _missing(peer: PeerStatus) -> str:
    heard = "never seen" if peer.heard is None else f"last seen {tables.format_duration(peer.heard)} ago"
    return f"{peer.party} for {tables.format_duration(peer.missing or 0.0)} ({heard})"


def _peers(live: Status) -> Table:
    table = AdaptiveTable(
        "peer", "round", "last seen", "missing for", "unacknowledged", "problem", box=None, pad_edge=False
    )
    for each in live.peers:
        heard = "never" if each.heard is None else f"{tables.format_duration(each.heard)} ago"
        missing = "" if each.missing is None else tables.format_duration(each.missing)
        table.add_row(Text(each.party), str(each.begun), heard, missing, str(each.waiting), Text(each.trouble))
    return table
