"""Rewrites the parts of README.md that come from commands: the demo's output and the measured figures.

`python docs/figures.py` replaces what is between `<!-- demo -->` and `<!-- /demo -->` by the output of `tacit demo`,
and what is between `<!-- figures -->` and `<!-- /figures -->` by a table of benchmarks/results/latest.json, which
`make bench` writes. With `--check` nothing is written; exit code 1 then says that the figures are out of date.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
LATEST = ROOT / "benchmarks" / "results" / "latest.json"


def figures(latest: Path) -> str:
    """Returns the measured figures as Markdown, or where to get them if there are none."""
    if not latest.is_file():
        return "There are no figures here yet; `make bench` measures them."
    found = json.loads(latest.read_text(encoding="utf-8"))
    # Figures with neither a peer nor a target say little by themselves, and they are many.
    rows = [row for row in found["rows"] if row["theirs"] is not None or row["met"] is not None]
    table = ["| what | Tacit | peer | ratio | target |", "| --- | ---: | ---: | ---: | --- |", *map(_row, rows)]
    others = len(found["rows"]) - len(rows)
    rest = f" Figures of Tacit alone are in the JSON: {others} of them." if others else ""
    return "\n".join([*table, "", _origin(found) + rest])


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
    return (
        f"Written by `{found.get('command', 'python -m benchmarks')}` on {found.get('date', 'an unknown day')[:10]} "
        f"({where}, Python {machine.get('python', '?')}, {versions}). The ratio is the peer's cost over ours; "
        f"[benchmarks/](benchmarks/) says who the peers are and how the measuring is done.{small}"
    )


def demo() -> str:
    """Returns what `tacit demo` prints, as a block of text."""
    command = [sys.executable, "-c", "from tacit.app.cli import main; main()", "demo"]
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
    """Rewrites README.md, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if the figures are out of date"
    )
    options = parser.parse_args()
    before = README.read_text(encoding="utf-8")
    after = replaced(before, "figures", figures(LATEST))
    if options.check:
        if before != after:
            sys.stderr.write("README.md is out of date; run: python docs/figures.py\n")
        return int(before != after)
    README.write_text(replaced(after, "demo", demo()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
