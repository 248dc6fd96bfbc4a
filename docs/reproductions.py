"""Writes docs/reproductions.md: the tables and figures of the papers, run again, with verdicts.

`python docs/reproductions.py --run 000-fig4 001-fig3` runs some at small scale and keeps the results in
reproductions.json (all of them without a name); `--scale paper` runs them at the paper's size. `--within 60` gives up a
run that would take more CPU minutes than that, and keeps how far it came. `--into FILE` keeps results in another file,
and `--merge FILE` takes them over. Without `--run` it writes the page and its pictures from what is kept. With
`--check` it writes nothing: exit code 1 says that the page is out of date or a picture is missing.
"""

import argparse
import hashlib
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.core.progress import Progress
from tacit.lab import papers
from tacit.lab.papers.reproduction import Chart, Reproduction, Scale
from tacit.lab.papers.rules import RowVerdict

HERE = Path(__file__).parent
PAGE, KEPT = HERE / "reproductions.md", HERE / "reproductions.json"
PAPERS = {
    "000": "SecureD-FL",
    "001": "PPSGD",
    "002": "Multi-RoundSecAgg",
    "003": "DP-ERM under secure aggregation",
    "004": "CESAR",
}
PICTURES = HERE / "reproductions"
HEAD = """\
# Tables and figures of the papers, run again

*Reference.* `python docs/reproductions.py` writes this page from runs of `tacit reproduce NAME`. Each row has the
paper's number, ours as mean ± standard deviation over seeds, and a verdict. The rule of a verdict is in the code before
the run (`src/tacit/lab/papers`), with the reason for its constant, and accepts the paper's own number: a test checks
that. *Not comparable* is a row whose experiment was changed too much, whose spread over seeds is too wide to tell, or
for which the paper has no number. Intervals are Student's t at 95 %. Minutes are CPU minutes of one core.
"""
VERDICTS = {
    RowVerdict.AGREES: "agrees",
    RowVerdict.DIFFERS: "**differs**",
    RowVerdict.NOT_COMPARABLE: "not comparable",
}
DIGITS = 5
"""Significant digits of a chart's numbers that are kept."""
LOOKED = 0.1
"""Fraction of the allowed time after which the rest of a run is estimated."""


class TooLong(Exception):
    """A run that would take longer than is allowed."""


def kept(path: Path = KEPT) -> dict[str, Any]:
    """Returns the results so far, by name and scale."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep(results: dict[str, Any], path: Path = KEPT) -> None:
    """Adds results to those that are kept."""
    found = kept(path) | results
    text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False, default=_plain)
    path.write_text(text + "\n", encoding="utf-8")


def run(names: list[str], scale: Scale, within: float, path: Path) -> None:
    """Runs some, and keeps the results, or how far those came that take more minutes than allowed."""
    for name in names or papers.names():
        before, reached = _cpu(), [0.0]
        try:
            result = papers.find(name).run(scale, _telling(name, before, within, reached))
            came: dict[str, Any] = {
                "rows": [asdict(row) for row in result.rows],
                "charts": [_shorten(asdict(chart)) for chart in result.charts],
            }
        except TooLong:
            came = {"rows": [], "done": round(reached[0], 3)}
        keep({f"{name} {scale}": came | {"minutes": round((_cpu() - before) / 60, 1)}}, path)


def _plain(value: Any) -> Any:
    """Returns a NumPy number or bool as Python's own."""
    return value.item()


def _shorten(value: Any) -> Any:
    """Returns plain data with floats of a few digits."""
    if isinstance(value, dict):
        return {key: _shorten(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shorten(each) for each in value]
    return value if isinstance(value, (str, bool, int)) or value is None else float(f"{float(value):.{DIGITS}g}")


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
    found = kept()
    lines = [HEAD, *_summary(found)]
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
            lines += _not_run(what, found)
            for heading, texts in (("Not stated in the paper", what.unstated), ("Changed here", what.changed)):
                if texts:
                    lines += [f"\n**{heading}:**\n", *(f"- {each}" for each in texts)]
    return "\n".join(lines) + "\n"


def _summary(found: dict[str, Any]) -> Iterator[str]:
    """Yields how many rows agree, differ, cannot be compared and were not run, by paper."""
    yield "| paper | rows | agree | differ | not comparable | not run |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    totals: Counter[str] = Counter()
    for number, title in PAPERS.items():
        counts: Counter[str] = Counter()
        for name in papers.names():
            if name.startswith(number):
                counts.update(_verdicts(name, found).values())
                counts["not run"] += len(_missing(papers.find(name), found))
        totals.update(counts)
        yield _summary_row(f"{number} {title}", counts)
    yield _summary_row("all", totals)
    yield "\nA row that was run at both scales counts once, by the paper's scale."


def _summary_row(name: str, counts: Counter[str]) -> str:
    numbers = [sum(counts.values()), *(counts[each] for each in RowVerdict), counts["not run"]]
    return f"| {name} | {' | '.join(map(str, numbers))} |"


def _verdicts(name: str, found: dict[str, Any]) -> dict[str, str]:
    """Returns the verdict of each row that was run; the paper's scale has the last word."""
    results = [found.get(f"{name} {scale}", {"rows": []}) for scale in ("small", "paper")]
    return {row["what"]: row["verdict"] for result in results for row in result["rows"]}


def _missing(what: Reproduction, found: dict[str, Any]) -> list[str]:
    """Returns the declared rows that were run at no scale."""
    ran = _verdicts(what.name, found)
    return [each.what for each in what.declared if each.what not in ran]


def _not_run(what: Reproduction, found: dict[str, Any]) -> list[str]:
    missing, lines = _missing(what, found), []
    if missing:
        command = f"`python docs/reproductions.py --run {what.name} --scale paper`"
        lines += [f"\nNot run, {len(missing)} rows; {command} runs them:\n", *(f"- {_cell(each)}" for each in missing)]
    elif f"{what.name} paper" not in found and what.declared:
        lines.append(f"\nNot run at the paper's scale: `tacit reproduce {what.name} --scale paper`.")
    return lines


def _results(name: str, scale: str, result: dict[str, Any]) -> list[str]:
    if "done" in result:
        hours = result["minutes"] / result["done"] / 60
        came = f"{result['done']:.1%} took {result['minutes']:g} minutes, so all of it takes about {hours:.1f} hours"
        return ["", f"`tacit reproduce {name} --scale {scale}` was not run to its end: {came}."]
    rules = list(dict.fromkeys(row["rule"] for row in result["rows"] if row.get("rule")))
    letters = {rule: _letter(place) for place, rule in enumerate(rules)}
    rows = [
        (row["what"], row["paper"], row["ours"], VERDICTS[row["verdict"]], letters.get(row.get("rule"), ""), row["why"])
        for row in result["rows"]
    ]
    counts = Counter(row["verdict"] for row in result["rows"])
    said = ", ".join(f"{counts[each]} {VERDICTS[each].strip('*')}" for each in RowVerdict)
    return [
        "",  # or else this would be a row of the table before
        f"`tacit reproduce {name} --scale {scale}`, {_minutes(result)}; {len(rows)} rows: {said}.\n",
        *(
            [f"![{_cell(name)}, scale {scale}](reproductions/{picture_name(name, scale, result)})\n"]
            if result.get("charts")
            else []
        ),
        "| what | paper | ours | verdict | rule | coverage, and the reason for a disagreement |",
        "| --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(_cell, row))} |" for row in rows),
        *(["\nRules:\n"] if rules else []),
        *(f"- {letter}: {_cell(rule)}" for rule, letter in letters.items()),
    ]


def _letter(place: int) -> str:
    """Returns A, B, … Z, A1, B1, …"""
    return f"{chr(65 + place % 26)}{place // 26 or ''}"


def picture_name(name: str, scale: str, result: dict[str, Any]) -> str:
    """Returns the file name of a result's charts; it has a digest of them, so that no old picture is taken for new."""
    digest = hashlib.sha256(json.dumps(result["charts"], sort_keys=True).encode()).hexdigest()
    return f"{name}-{scale}-{digest[:8]}.png"


def draw(found: dict[str, Any]) -> None:
    """Draws the charts that have no picture yet, and deletes pictures of charts that are gone."""
    from tacit.app.reports import pictures

    PICTURES.mkdir(exist_ok=True)
    wanted = set()
    for key, result in found.items():
        if not result.get("charts"):
            continue
        name, scale = key.split()
        path = PICTURES / picture_name(name, scale, result)
        wanted.add(path)
        if not path.exists():
            charts = [Chart(**chart | {"dashed": tuple(chart["dashed"])}) for chart in result["charts"]]
            pictures.charts(charts, str(path), f"{name}: {papers.find(name).title} (scale {scale})")
    for path in set(PICTURES.glob("*.png")) - wanted:
        path.unlink()


def is_current() -> bool:
    """Returns whether the page is that of what is kept, and all its pictures are there."""
    pictures = [PICTURES / picture_name(*key.split(), each) for key, each in kept().items() if each.get("charts")]
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return written == page() and all(path.exists() for path in pictures)


def _minutes(result: dict[str, Any]) -> str:
    """Returns how long it took, if all of it was measured in one run."""
    minutes = result["minutes"]
    return "combined from two runs, not timed as a whole" if minutes is None else f"{minutes:g} minutes"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Runs, and writes or checks the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", metavar="NAME")
    parser.add_argument("--scale", choices=("small", "paper"), default="small")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="MINUTES")
    parser.add_argument("--into", type=Path, default=KEPT, metavar="FILE")
    parser.add_argument("--merge", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        return int(not is_current())
    if given.run is not None:
        run(given.run, given.scale, given.within, given.into)
        if given.into != KEPT:
            return 0
    if given.merge is not None:
        keep(kept(given.merge))
    draw(kept())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
