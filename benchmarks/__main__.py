"""Command line of the benchmarks: prints a table and writes the figures as JSON (`python -m benchmarks --help`)."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import (
    audit,
    cesar,
    flower,
    groups,
    indices,
    many,
    masks,
    memory,
    outbound,
    page,
    ring16,
    sealing,
    secagg,
    serverless,
    shamir,
    simulation,
    startup,
    wire,
)
from benchmarks.faults import run as faults
from benchmarks.measure import Row
from tacit.core.errors import TacitError

Results = dict[str, list[Row]]

SUITES: dict[str, Callable[..., Iterable[Row]]] = {
    "masks": masks.rows,
    "shamir": shamir.rows,
    "sealing": sealing.rows,
    "secagg": secagg.rows,
    "indices": indices.rows,
    "groups": groups.rows,
    "cesar": cesar.rows,
    "memory": memory.rows,
    "many": many.rows,
    "simulation": simulation.rows,
    "ring16": ring16.rows,
    "audit": audit.rows,
    "serverless": serverless.rows,
    "faults": faults.rows,
    "flower": flower.rows,
    "wire": wire.rows,
    "outbound": outbound.rows,
    "page": page.rows,
    "startup": startup.rows,
}
ASKED_FOR = ("faults", "flower", "wire", "outbound", "page", "serverless")
"""Suites that run only if they are named, because they take long; `faults` measures nothing."""
LATEST = Path(__file__).parent / "results" / "latest.json"
PACKAGES = ("numpy", "cryptography", "flwr")


class Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 if a target was missed or a measurement failed, 2 for bad arguments."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["intruders"]:  # This suite has no comparison, and a table of its own.
        return import_module("benchmarks.intruders.run").main(given[1:])
    parser = Parser(
        "python -m benchmarks",
        description="Measures Tacit against its peers. Example: python -m benchmarks masks --quick --json masks.json",
    )
    parser.add_argument(
        "suites", nargs="*", metavar="suite", help=f"{', '.join(SUITES)}; all but {', '.join(ASKED_FOR)} unless given"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and no targets, to see that it all works")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="PATH", help="where to write (%(default)s)")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"an interpreter that has another simulator ({', '.join(simulation.FASTER)}); once for each",
    )
    parser.add_argument("--seed", type=int, metavar="NUMBER", help="of faults; drawn, and told, unless given")
    options = parser.parse_args(given)
    pythons = dict(each.partition("=")[::2] for each in options.python)
    if wrong := [each for each, path in pythons.items() if each not in simulation.FASTER or not Path(path).is_file()]:
        parser.error(f"--python takes NAME=PATH of {', '.join(simulation.FASTER)}, not {wrong[0]!r}")
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}, only {', '.join(SUITES)}")
    try:
        _try_to_write(options.json)
    except OSError as error:
        parser.error(f"cannot write {options.json}: {error.strerror}")
    try:
        chosen = options.suites or [name for name in SUITES if name not in ASKED_FOR]
        results = measure_suites([name for name in SUITES if name in chosen], options.quick, pythons, options.seed)
    except (TacitError, OSError, AssertionError, ImportError) as error:
        return _report_failure(parser, str(error) or type(error).__name__, 1)
    except KeyboardInterrupt:
        return _report_failure(parser, "interrupted; nothing was written", 130)
    about = {"command": " ".join(["python -m benchmarks", *given]), "date": datetime.now(UTC).isoformat("T", "seconds")}
    options.json.write_text(report(results, about | {"quick": options.quick, "machine": machine()}))
    # A table in a file or a pipe may be wider than a terminal.
    Console(width=None if sys.stdout.isatty() else 160).print(
        table(results), f"\nAll of it, with notes: {options.json}"
    )
    return 1 if any(row.met is False for rows in results.values() for row in rows) else 0


def measure_suites(suites: Iterable[str], quick: bool, pythons: Mapping[str, str], seed: int | None = None) -> Results:
    """Returns the rows of each suite, and shows on a terminal what is being measured."""
    results: Results = {}
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        line = progress.add_task("")
        for name in suites:

            def say(what: str, name: str = name) -> None:
                progress.update(line, description=f"{name}: {what}")

            say("starting")
            told = {"say": say}
            given = {"simulation": {**told, "pythons": pythons}, "faults": {**told, "seed": seed}}
            options = {"secagg": told, "many": told, "ring16": told, **given}.get(name, {})
            rows: Callable[..., Iterable[Row]] = partial(SUITES[name], **options)
            results[name] = []
            for row in rows(quick):
                results[name].append(row)
                say(f"{len(results[name])} results, the last: {row.name}")
    return results


def table(results: Results) -> Table:
    """Returns the printed table."""
    missing = [name for name, version in versions().items() if version is None]
    caption = f"Not installed, so not compared with: {', '.join(missing)}" if missing else None
    found = Table("what", caption=caption)
    for name in ("ours", "theirs", "ratio", "target"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("met")
    for rows in results.values():
        for row in rows:
            met = "" if row.met is None else "[green]yes" if row.met else "[bold red]no"
            ours, theirs, ratio = _figure(row.ours, row.unit), _figure(row.theirs, row.unit), _figure(row.ratio, "x")
            found.add_row(row.name, ours, theirs, ratio, row.target, met)
        found.add_section()
    return found


def report(results: Results, about: dict[str, Any]) -> str:
    """Returns the JSON: the arguments, the machine, and the rows of each suite."""
    rows = [{"suite": suite, **asdict(row)} for suite, found in results.items() for row in found]
    # Rows may contain NumPy numbers and booleans, which JSON does not support.
    return json.dumps(about | {"rows": rows}, indent=2, allow_nan=False, default=lambda value: value.item()) + "\n"


def machine() -> dict[str, Any]:
    """Returns the properties of the machine that figures depend on."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def versions() -> dict[str, str | None]:
    """Returns the versions of the relevant packages; None for packages that are not installed."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _figure(value: float | None, unit: str) -> str:
    """Returns a number with four digits, or with all digits before the point, never as a power of ten."""
    if value is None:
        return ""
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.4g} {unit}"


def _try_to_write(path: Path) -> None:
    """Raises OSError if the results cannot be written, before the long work starts. Leaves no empty file behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = path.exists()
    path.open("a").close()
    if not there:
        path.unlink()


def _report_failure(parser: Parser, why: str, code: int) -> int:
    print(f"{parser.prog}: {why}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
