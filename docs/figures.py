"""Generator of the parts of pages that come from commands: the demo's output, and the measured figures.

`python docs/figures.py` rewrites what is between two markers, such as `<!-- demo -->` and `<!-- /demo -->`:

- in README.md, `demo`: the first two tables of `tacit demo`; `figures`: a few rows of benchmarks/results/latest.json;
- in docs/figures.md, `missed`: the targets that are missed; `tables`: everything in benchmarks/results.

It also crops docs/ui/adversary.png, which tests in a browser take, to the picture that README.md shows.

`python -m benchmarks` writes benchmarks/results. With `--check` nothing is written; exit code 1 then says that figures
are out of date.
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
PICTURE = ROOT / "docs" / "ui" / "adversary.png"
RESULTS = ROOT / "benchmarks" / "results"
LATEST = RESULTS / "latest.json"

HEADLINES = {
    "a client's quantize and mask, 32 bits, N = 100 complete, d = 1,000,000": "a client masks its vector",
    "the server's sum and unmask, 32 bits, N = 100 complete, d = 1,000,000": "the server sums and unmasks",
    "share a private key, N = 100, t = 67": "a client shares its private key",
    "bytes a parameter on the wire": "size of a masked vector, for each parameter",
    "peak memory of quantize and mask": "memory that masking takes, for each parameter",
}
"""The rows that README.md shows, and what they are called there. All rows are on the page of figures."""
DEMO_TABLES = 2
"""How many tables of the demo README.md shows."""

SECTIONS = {
    "latest": "Masks, shares, seals, rounds, sets and cesar",
    "wire": "Rounds between processes, over mutual TLS",
    "outbound": "Parties that only dial out",
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
SHORT_HEAD = [
    "| one round, 100 parties, 1,000,000 parameters | Tacit | Flower's SecAgg+ | ratio |",
    "| --- | ---: | ---: | ---: |",
]


def headlines(latest: Path) -> str:
    """Returns the few figures of README.md, or how to get them if there are none."""
    if not latest.is_file():
        return "There are no figures here yet; `make bench` measures them."
    found = json.loads(latest.read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in found["rows"]}
    if gone := [name for name in HEADLINES if name not in rows]:
        raise SystemExit(
            f"{latest.name} has no row called {gone[0]!r}; put another one in HEADLINES of docs/figures.py"
        )
    shown = (f"| {' | '.join([label, *_cells(rows[name])[1:4]])} |" for name, label in HEADLINES.items())
    return "\n".join([*SHORT_HEAD, *shown, "", _origin(found)])


def tables(results: Path) -> str:
    """Returns everything that was measured, file by file."""
    parts = []
    for name, title in SECTIONS.items():
        path = results / f"{name}.json"
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            parts += [f"### {title}", "", *HEAD, *map(_row, found["rows"]), "", _origin(found), ""]
    return "\n".join([*parts, *_intruders(results / "intruders.json")])


def missed(results: Path) -> str:
    """Returns the rows that miss their targets, each with the note that its benchmark wrote."""
    rows = [
        row
        for name in SECTIONS
        if (path := results / f"{name}.json").is_file()
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        if row["met"] is False
    ]
    if not rows:
        return "No target is missed."
    lines = [f"| {' | '.join([*_cells(row), row['note'].replace('|', '/')])} |" for row in rows]
    return "\n".join([HEAD[0] + " note |", HEAD[1] + " --- |", *lines])


def _intruders(path: Path) -> Iterator[str]:
    """Yields what came of breaking in, which has a table of another kind."""
    if not path.is_file():
        return
    rows: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    yield from ("### Intruders", "", "| where | tried | held |", "| --- | ---: | ---: |")
    for where in dict.fromkeys(row["where"] for row in rows):
        held = [bool(row["held"]) for row in rows if row["where"] == where]
        yield f"| {where} | {len(held)} | {sum(held)} |"
    yield from ("", "Written by `python -m benchmarks intruders`. The JSON has each attempt, and its answer.")


def _row(row: Mapping[str, Any]) -> str:
    return f"| {' | '.join(_cells(row))} |"


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the cells of a row: its name, ours, theirs, the ratio, the target."""
    target = row["target"] or ""
    if row["met"] is not None:
        target += ", met" if row["met"] else ", **missed**"
    ratio = f"{_number(row['ratio'])}×" if row["ratio"] is not None else ""
    cells = (row["name"], _figure(row["ours"], row["unit"]), _figure(row["theirs"], row["unit"]), ratio, target)
    return [str(cell).replace("|", "/") for cell in cells]


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
    """Returns the first tables that `tacit demo` prints, as a block of text."""
    command = [sys.executable, "-c", "from tacit.app.cli.main import main; main()", "demo"]
    wide = {**os.environ, "COLUMNS": "80"}  # whoever runs it, in whatever window
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=wide)  # noqa: S603 (our own command)
    return "\n".join(["```text", *first_tables(done.stdout, DEMO_TABLES), "```"])


def first_tables(printed: str, count: int) -> list[str]:
    """Returns the lines of an output up to the end of a number of tables; an empty line ends a table."""
    lines = [line.rstrip() for line in printed.splitlines()]
    rules = [place for place, line in enumerate(lines) if line and set(line) == {"─"}]
    if len(rules) < count:
        raise SystemExit(f"tacit demo prints {len(rules)} tables, not {count}; change DEMO_TABLES of docs/figures.py")
    end = next((place for place in range(rules[count - 1], len(lines)) if not lines[place]), len(lines))
    return lines[:end]


def replaced(text: str, name: str, part: str) -> str:
    """Returns the text with another part between two markers; raises SystemExit if it has no such markers."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"the page has no part between <!-- {name} --> and <!-- /{name} -->; put the markers back")
    return pattern.sub(lambda found: f"{found[1]}{part}\n{found[2]}", text)


def main() -> int:
    """Rewrites README.md and docs/figures.md, or checks them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if the figures are out of date"
    )
    options = parser.parse_args()
    readme = replaced(README.read_text(encoding="utf-8"), "figures", headlines(LATEST))
    after = {README: readme, PAGE: page(PAGE.read_text(encoding="utf-8"), RESULTS)}
    if options.check:
        stale = [path for path, text in after.items() if path.read_text(encoding="utf-8") != text]
        for path in stale:
            sys.stderr.write(f"{path.name} is out of date; run: python docs/figures.py\n")
        return int(bool(stale))
    after[README] = replaced(after[README], "demo", demo())
    for path, text in after.items():
        path.write_text(text, encoding="utf-8")
    crop_picture(PICTURE, PICTURE.with_name("first-screen.png"))
    return 0


def crop_picture(whole: Path, shown: Path) -> None:
    """Writes the upper part of a picture, which fits a screen."""
    from PIL import Image

    with Image.open(whole) as picture:
        picture.crop((0, 0, picture.width, min(picture.height, picture.width * 5 // 8))).save(shown, optimize=True)


def page(text: str, results: Path) -> str:
    """Returns the text of docs/figures.md with the measured parts of a folder of results."""
    return replaced(replaced(text, "missed", missed(results)), "tables", tables(results))


if __name__ == "__main__":
    sys.exit(main())
