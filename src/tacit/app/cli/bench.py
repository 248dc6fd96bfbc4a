"""The command `tacit bench`: speed of averaging on this machine, by every protocol, compared with plain averaging."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tacit import __version__
from tacit.api.option_text import check_name
from tacit.app.cli.command_table import OVERVIEW
from tacit.app.cli.options import AsJson, Choice, Verbose, check_at_least, examples, protocol_names
from tacit.app.terminal import tables
from tacit.app.terminal.narrow_table import make_table
from tacit.app.terminal.progress import show_progress
from tacit.core.average import format_count
from tacit.core.progress import Progress
from tacit.core.suite import Update
from tacit.lab.comparison import parse_variant, write_variant
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.simulator import Simulation

BASELINE = "fedavg"
"""Protocol that the others are compared with: the server sees everything, and nothing is masked."""
SEED = 0
FEWEST = 5
"""The fewest parties for a graph in which every party has four neighbours."""

app = typer.Typer()


@dataclass(frozen=True)
class Measurement:
    """Cost of one protocol on this machine."""

    protocol: str
    seconds: float
    """Seconds for a round of all parties in one process, the fastest of several."""
    ratio: float
    """Ratio of these seconds to those of plain averaging."""
    bytes_per_party: float
    """Bytes that a party sends and receives in a round."""


def measure_rounds(
    protocols: Sequence[Mapping[str, Any]],
    parties: int,
    entries: int,
    repeat: int,
    progress: Progress,
) -> list[Measurement]:
    """Returns the costs of rounds by some protocols, the baseline first. Nothing is recorded, and no party drops
    out."""
    names = [f"p{place}" for place in range(parties)]
    rows = np.linspace(-1.0, 1.0, parties * entries).reshape(parties, entries)
    brought = {name: Update(row) for name, row in zip(names, rows, strict=True)}
    found: list[Measurement] = []
    for place, each in enumerate(protocols):
        options = {key: value for key, value in each.items() if key != "name"}
        said = write_variant(each["name"], options)
        simulation = Simulation.of(each["name"], names, entries, seed=SEED, allow_leaks=True, **options)
        times = []
        for turn in range(repeat + 1):
            progress(said, place * (repeat + 1) + turn, len(protocols) * (repeat + 1))
            began = perf_counter()
            outcome = simulation.average(brought)
            times.append(perf_counter() - began)
        # The first round of a process fills caches that later rounds use.
        seconds = min(times[1:])
        sent = float(np.mean([outcome.traffic.of(party) for party in names]))
        found.append(Measurement(said, seconds, seconds / (found[0].seconds if found else seconds), sent))
    return found


@app.command(
    epilog=examples("tacit bench", "tacit bench --parties 20 --entries 1000000 --protocol 'secagg neighbours=10'"),
    rich_help_panel=OVERVIEW,
)
def bench(
    parties: Annotated[int, Choice(help="Number of parties (default: 8).")] = 8,
    entries: Annotated[int, Choice(help="Length of the vectors (default: 100000).")] = 100_000,
    repeat: Annotated[int, Choice(help="Number of measured rounds, of which the fastest counts (default: 3).")] = 3,
    protocol: Annotated[
        list[str] | None,
        Choice(
            help="A protocol and its settings, such as 'secagg bits=16'. May be repeated (default: all).",
            autocompletion=protocol_names,
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Measure how long a round of each protocol takes on this machine."""
    del verbose
    check_at_least(FEWEST, parties=parties)
    check_at_least(1, entries=entries, repeat=repeat)
    if protocol:
        asked = [parse_variant(each) for each in protocol]
        check_name(
            "protocol", next((each["name"] for each in asked if each["name"] not in REGISTRY), BASELINE), REGISTRY
        )
    else:
        asked = [{"name": each.name, **each.example_options} for each in REGISTRY.usable()]
    others = [each for each in asked if each != {"name": BASELINE}]
    with show_progress(counted=True) as told:
        found = measure_rounds([{"name": BASELINE}, *others], parties, entries, repeat, told)
    tables.show_result(
        as_json,
        {"version": __version__, "parties": parties, "entries": entries, "rows": found},
        _table(found, parties, entries, repeat),
    )


def _table(found: Sequence[Measurement], parties: int, entries: int, repeat: int) -> RenderableType:
    table = make_table()
    table.add_column("averaging", overflow="fold")
    for heading in ("a round", f"× {BASELINE}", "sent and received\na party a round"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            each.protocol, _time(each.seconds), f"{each.ratio:.1f}", tables.format_bytes(each.bytes_per_party)
        )
    best = f"the fastest of {repeat} rounds" if repeat > 1 else "one round"
    title = f"{parties} parties, {format_count(entries, 'entry', 'entries')}, all in one process; {best}\n"
    note = "\nWith real cryptography, and no network. On machines of their own parties share the work."
    return Group(Text(title), table, Text(note))


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
