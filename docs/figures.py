"""Rewrites the parts of pages that come from commands: the demo's output, and the measured figures.

`python docs/figures.py` replaces what is between `<!-- demo -->` and `<!-- /demo -->` in README.md by the output of
`tacit demo`, what is between `<!-- figures -->` and `<!-- /figures -->` by the headlines of
benchmarks/results/latest.json, and docs/figures.md by a table of everything in benchmarks/results, which
`python -m benchmarks` writes. With `--check` nothing is written; exit code 1 then says that figures are out of date.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "figures.md"
RESULTS = ROOT / "benchmarks" / "results"
LATEST = RESULTS / "latest.json"

HEADLINES = (
    "a client's quantize and mask, 32 bits, N = 100 complete, d = 1,000,000",
    "the server's sum and unmask, 32 bits, N = 100 complete, d = 1,000,000",
    "16 masks, d = 1,000,000, against raw AES and add",
    "share a private key, N = 100, t = 67",
    "peak memory of quantize and mask",
    "memory of a whole round, N = 10,000, degree 32, d = 1,000",
    "bytes a node sends against gossip, random, β = 30%, 48 nodes, degree 6, d = 89,834",
    "CPU time of a cesar exchange against a recorded figure, random, β = 30%, 48 nodes, degree 6, d = 89,834",
)
"""What README.md shows, misses among it; the rest is on the page of figures."""

SECTIONS = {
    "latest": "Masks, shares, seals, rounds, sets and cesar",
    "wire": "Rounds between processes, over mutual TLS",
    "flower": "On Flower",
    "simulation": "Parties that train",
    "many": "Many parties in one process",
    "memory": "Memory of a round on rows of a matrix",
    "ring16": "Learning in 16 bits",
    "groups": "Groups that do not meet again",
    "audit": "Audits",
    "faults": "Processes that are killed, frozen and cut off",
}
"""The files of results, in the order of the page, and what their tables are called."""
HEAD = ["| what | Tacit | peer | ratio | target |", "| --- | ---: | ---: | ---: | --- |"]


def headlines(latest: Path) -> str:
    """Returns the few figures of README.md, or where to get them if there are none."""
    if not latest.is_file():
        return "There are no figures here yet; `make bench` measures them."
    found = json.loads(latest.read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in found["rows"]}
    if gone := [name for name in HEADLINES if name not in rows]:
        raise SystemExit(
            f"{latest.name} has no row called {gone[0]!r}; put another one in HEADLINES of docs/figures.py"
        )
    return "\n".join([*HEAD, *(_row(rows[name]) for name in HEADLINES), "", _origin(found)])


def page(results: Path) -> str:
    """Returns docs/figures.md: everything that was measured, file by file."""
    parts = [
        "# Figures",
        "",
        "Everything that was measured last, misses included, written by `python docs/figures.py` from what",
        "`python -m benchmarks` left in `benchmarks/results`. [Benchmarks](../benchmarks/README.md) says who the peers",
        "are and how the measuring is done. The ratio is the peer's cost over ours. Figures belong to the machine that",
        "is named with them: compare them within one table.",
    ]
    for name, title in SECTIONS.items():
        path = results / f"{name}.json"
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            parts += ["", f"## {title}", "", *HEAD, *map(_row, found["rows"]), "", _origin(found)]
    return "\n".join([*parts, *_intruders(results / "intruders.json")]) + "\n"


def _intruders(path: Path) -> Iterator[str]:
    """Yields what came of breaking in, which has a table of another kind."""
    if not path.is_file():
        return
    rows: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    yield from ("", "## Intruders", "", "| where | tried | held |", "| --- | ---: | ---: |")
    for where in dict.fromkeys(row["where"] for row in rows):
        held = [bool(row["held"]) for row in rows if row["where"] == where]
        yield f"| {where} | {len(held)} | {sum(held)} |"
    yield from ("", "Written by `python -m benchmarks intruders`. Each try, and what it was answered, is in the JSON.")


def _row(row: Mapping[str, Any]) -> str:
    target = row["target"] or ""
    if row["met"] is not None:
        target += ", met" if row["met"] else ", **missed**"
    ratio = f"{_number(row['ratio'])}×" if row["ratio"] is not None else ""
    cells = (row["name"], _figure(row["ours"], row["unit"]), _figure(row["theirs"], row["unit"]), ratio, target)
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{_number(value)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _origin(found: Mapping[str, Any]) -> str:
    machine = found.get("machine", {})
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items() if version)
    where = f"{machine.get('processor', 'an unnamed processor')}, {machine.get('cores', '?')} cores"
    small = " Sizes are small ones, to try the benchmarks out." if found.get("quick") else ""
    # Where somebody had the results written, and which interpreters peers had, is nobody else's business.
    command = re.sub(r" --(json|python) \S+", "", found.get("command", "python -m benchmarks"))
    return (
        f"Written by `{command}` on {found.get('date', 'an unknown day')[:10]} "
        f"({where}, Python {machine.get('python', '?')}, {versions}).{small}"
    )


def demo() -> str:
    """Returns what `tacit demo` prints, as a block of text."""
    command = [sys.executable, "-c", "from tacit.app.cli.main import main; main()", "demo"]
    wide = {**os.environ, "COLUMNS": "80"}  # whoever runs it, in whatever window
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=wide)  # noqa: S603 (our own command)
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "\n".join(["```text", *lines, "```"])


def replaced(text: str, name: str, part: str) -> str:
    """Returns the text with another part between two markers; raises SystemExit if it has no such markers."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no part between <!-- {name} --> and <!-- /{name} -->; put the markers back")
    return pattern.sub(lambda found: f"{found[1]}{part}\n{found[2]}", text)


def main() -> int:
    """Rewrites README.md and docs/figures.md, or checks them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if the figures are out of date"
    )
    options = parser.parse_args()
    readme = README.read_text(encoding="utf-8")
    after = {README: replaced(readme, "figures", headlines(LATEST)), PAGE: page(RESULTS)}
    if options.check:
        stale = [path for path, text in after.items() if path.read_text(encoding="utf-8") != text]
        for path in stale:
            sys.stderr.write(f"{path.name} is out of date; run: python docs/figures.py\n")
        return int(bool(stale))
    after[README] = replaced(after[README], "demo", demo())
    for path, text in after.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
