"""Writes docs/reproductions.md: the tables and figures of the papers, and what came of running them again.

`python docs/reproductions.py --run 000-fig4 001-fig3` runs some at small scale and keeps what came out in
reproductions.json (all of them without a name); `--scale paper` as the paper did. With `--within 60` a run that shows
to take more minutes than that is given up, and how far it came is kept. Without `--run` it writes the page from what is
kept, and with `--check` nothing at all: exit code 1 then says that the page is out of date.
"""

import argparse
import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.core.progress import Progress
from tacit.lab import papers
from tacit.lab.papers.reproduction import Scale

HERE = Path(__file__).parent
PAGE, KEPT = HERE / "reproductions.md", HERE / "reproductions.json"
PAPERS = {
    "000": "SecureD-FL",
    "001": "PPSGD",
    "002": "Multi-RoundSecAgg",
    "003": "DP-ERM under secure aggregation",
    "004": "CESAR",
}
HEAD = """\
# Tables and figures of the papers, run again

Written by `python docs/reproductions.py` from runs of `tacit reproduce NAME`. "Agrees" compares the paper's figure with
ours by a rule that is in the code of each reproduction (`src/tacit/lab/papers`); where it says no, the reason is beside
it. Minutes are CPU minutes of one core. Small scale has fewer parties, rounds or samples than the paper, as each says;
what a paper does not state is listed with what was done here instead.
"""
LOOKED = 0.1
"""The part of the time for a run after which it is asked whether that will do."""


class TooLong(Exception):
    """A run that shows to take longer than there is time for."""


def kept() -> dict[str, Any]:
    """Returns what came out so far, by name and scale."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def run(names: list[str], scale: Scale, within: float) -> None:
    """Runs some, and keeps what came out, or how far those came that take more minutes than that."""
    for name in names or papers.names():
        before, reached = _cpu(), [0.0]
        try:
            result = papers.find(name).run(scale, _telling(name, before, within, reached))
            came: dict[str, Any] = {"rows": [asdict(row) for row in result.rows]}
        except TooLong:
            came = {"rows": [], "done": round(reached[0], 3)}
        found = kept()
        found[f"{name} {scale}"] = came | {"minutes": round((_cpu() - before) / 60, 1)}
        # A verdict may be NumPy's own kind of bool.
        text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False, default=bool)
        KEPT.write_text(text + "\n", encoding="utf-8")


def _telling(name: str, before: float, within: float, reached: list[float]) -> Progress:
    def told(doing: str, done: float, total: float = 1.0) -> None:
        done /= total
        sys.stderr.write(f"{name} {done:4.0%} {doing}\n")
        reached[0], spent = done, (_cpu() - before) / 60
        if done and spent > LOOKED * within and spent / done > within:
            raise TooLong

    return told


def _cpu() -> float:
    """Returns the CPU seconds of this process and of those that it waited for."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def page() -> str:
    """Returns the page."""
    lines, found = [HEAD], kept()
    for number, title in PAPERS.items():
        lines.append(f"\n## {number}: {title}\n")
        for name in papers.names():
            if not name.startswith(number):
                continue
            what = papers.find(name)
            lines.append(f"\n### {name}: {what.title}")
            for scale in ("small", "paper"):
                if (result := found.get(f"{name} {scale}")) is not None:
                    lines += _results(name, scale, result)
            if what.unstated:
                lines.append("\nNot stated in the paper, and what is done here:\n")
                lines += [f"- {each}" for each in what.unstated]
    return "\n".join(lines) + "\n"


def _results(name: str, scale: str, result: dict[str, Any]) -> list[str]:
    if "done" in result:
        hours = result["minutes"] / result["done"] / 60
        came = (
            f"{result['done']:.1%} of it took {result['minutes']:g} minutes, so all of it takes about {hours:.1f} hours"
        )
        return ["", f"`tacit reproduce {name} --scale {scale}` was not run to its end: {came}."]
    agrees = {True: "yes", False: "**no**", None: ""}
    rows = [(row["what"], row["paper"], row["ours"], agrees[row["agrees"]], row["why"]) for row in result["rows"]]
    return [
        "",  # or else this would be a row of the table before
        f"`tacit reproduce {name} --scale {scale}`, {_minutes(result)}:\n",
        "| what | paper | ours | agrees | why, or how far it was looked at |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(_cell, row))} |" for row in rows),
    ]


def _minutes(result: dict[str, Any]) -> str:
    """Returns how long it took, if all of it was measured in one run."""
    minutes = result["minutes"]
    return "put together of two runs, not timed as a whole" if minutes is None else f"{minutes:g} minutes"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Runs, and writes or checks the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", metavar="NAME")
    parser.add_argument("--scale", choices=("small", "paper"), default="small")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="MINUTES")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.run is not None:
        run(given.run, given.scale, given.within)
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if given.check:
        return int(written != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
