"""Writes docs/reproductions.md, the summary, and docs/reproductions/NUMBER.md, the full tables of a paper.

`python docs/reproductions.py --run 000-fig4 001-fig3` runs some at small scale and keeps the results in
reproductions.json (all of them without a name); `--scale paper` runs them at the paper's size. `--within 60` gives up a
run that would take more CPU minutes than that, and keeps how far it came. `--into FILE` keeps results in another file,
and `--merge FILE` takes them over. Without `--run` it writes the pages and their pictures from what is kept. With
`--check` it writes nothing: exit code 1 says that a page is out of date or a picture is missing.
"""

import argparse
import hashlib
import json
import re
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.app.terminal.tables import format_minutes, list_quickest
from tacit.core.progress import Progress
from tacit.lab import papers
from tacit.lab.papers.minutes import MINUTES
from tacit.lab.papers.reproduction import Chart, Reproduction, Row, Scale
from tacit.lab.papers.rules import Estimate, RowVerdict

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
MODULE = Path(papers.__file__).with_name("minutes.py")
HEAD = """\
# Reproductions: the papers' tables and figures, run again

*Explanation.* Does Tacit reproduce the numbers of the five papers? Each row compares one number. Of {rows} rows,
**{agree} agree** with the paper and **{differ} differ**. Another {other} cannot be compared; {missing} were not run.

"""
FIGURES = """
## In pictures

Dashed lines are the paper's numbers or bounds. The caption of each picture names its run.
"""
HIGHLIGHTS_HEAD = """
## Results that matter most

| measured | paper | ours | verdict | all rows |
| --- | --- | --- | --- | --- |"""
TAIL = """
[Claims and attacks](claims.md) lists what each result means for the paper's claim.

## How to read the tables

| term | meaning |
| --- | --- |
| agrees, differs | the verdict of the row's rule; each rule and its threshold were fixed before the run \
(`src/tacit/lab/papers`) |
| not comparable | the paper has no number, the experiment was changed too much, or the 95 % interval of our mean \
includes the threshold. Then the row states the interval |
| ours | mean ± standard deviation over seeds; a share of runs has no ±. Intervals are Student's t at 95 % |
| read off the figure | the paper draws the number and does not print it |
| small, paper | the scale of the run: small takes the minutes in the list; paper has the paper's size, as \
far as feasible |
| minutes | CPU minutes of one core |

A row that was run at both scales counts once, with the result at the paper's scale; so do rows that differ only in the
size of the scale, such as the number of rounds. `python docs/reproductions.py` writes this page and the full tables."""
NAMES_HEAD = """
## Run one yourself

`tacit reproduce NAME` runs a table or figure again, at `--scale small` unless you choose `--scale paper`. The
quickest are {quickest}.
The list is in the order of the papers:

| name | minutes at scale small | needs | table or figure |
| --- | ---: | --- | --- |"""
LETTERS = {
    "000": "ρ is ADMM's step parameter. MSE is the mean squared error of the average.",
    "001": "L(w) is the loss of the model w; it is smallest at w*. In 001-fig3 and 001-steps, w* is 2 and L(w*) is 5. "
    "η_t is the step size in round t. y_i(0) is the random number with which client i hides its model, and y(0) stands "
    "for all of them. p_ii is the fraction that client i keeps of its own values. U is a uniform distribution.",
    "002": "N users exist, and K of them are asked in a round. p is the probability that a user is absent. T is the "
    "anonymity set: the fewest users in a sum that the server can single out. E is the number of local steps. L* is "
    "the smallest loss.",
    "003": "ε is the privacy budget, and σ the standard deviation of the noise. K is the number of local steps between "
    "averages. E of m users are summed. θ is the model, θ⁰ the first one and θ̄ the mean of all. L, λ and G are "
    "constants of the loss J.",
    "004": "α is the fraction of entries that a node selects, and β the fraction that it sends. s is the masking "
    "requirement: the fewest other nodes with masks on an entry.",
}
"""Letters of each paper that its rows use."""
PAPER_HEAD = """\
# Paper {number}, {title}: all rows

*Reference.* Every row of paper {number} that was run again, with the paper's number, ours, and the verdict. The
[summary](../reproductions.md#how-to-read-the-tables) explains the columns. [Papers](../papers.md) has the citation.

**Letters.** {letters}"""
MINUTES_HEAD = '''\
"""CPU minutes of each reproduction at small scale, as measured; docs/reproductions.py writes this file."""

MINUTES: dict[str, float] = {'''
SHOWN = {
    "000-fig4": "error of ADMM's average by iteration",
    "001-fig3": "convergence of PPSGD",
    "002-cardinality": "users per round, and fairness",
    "003-epsilon": "excess risk by ε",
    "004-fig6": "risk from colluding nodes",
    "001-table3": "accuracy of an eavesdropper",
}
"""Pictures of the summary, with their captions."""
HIGHLIGHTS = (
    (
        "000-fig4",
        "MSE after 4 iterations, ρ = 0.001, 64 bits",
        "error (MSE) after 4 ADMM iterations, ρ = 0.001, 64 bits",
    ),
    (
        "000-fig4",
        "iterations after which a curious peer still recovers nobody's model (Theorem III.2)",
        "ADMM iterations after which one curious peer of 9 still recovers no model",
    ),
    ("001-fig3", "L − 5 after 50 rounds, mean over clients", "distance of PPSGD from the optimal loss after 50 rounds"),
    (
        "001-table3",
        "decoded from 5 rounds, PPSGD, y(0) ~ U(0.5, 1.5)",
        "share of PPSGD runs that an eavesdropper decodes from 5 rounds",
    ),
    ("002-cardinality", "T by the audit, Batches of 6", "anonymity set of batches of 6"),
    (
        "002-accuracy",
        "Batches, T = 6, minus Random, after 20 rounds, N = 120, K = 12, i.i.d.",
        "accuracy with batches of 6, minus accuracy with random participation, after 20 rounds",
    ),
    (
        "003-epsilon",
        "power of ε with which the excess falls, calibrated σ",
        "power of ε with which the excess risk falls",
    ),
    (
        "003-epsilon",
        "least ε of the noise, Theorem 1's σ, ε = 1",
        "ε of the noise of Theorem 1, where 1 is claimed",
    ),
    ("004-table2", "α for β = 30% at degree 3", "entries to select at degree 3 so that 30 % are sent"),
    (
        "004-fig6",
        "the same if two of them compare sums, s = 9",
        "risk from 15 colluding nodes at s = 9, if two compare their sums",
    ),
)
"""Rows of the summary, each with a title: of each paper one that agrees and one that differs."""
VERDICTS = {
    RowVerdict.AGREES: "agrees",
    RowVerdict.DIFFERS: "**differs**",
    RowVerdict.NOT_COMPARABLE: "not comparable",
}
SHORT = {RowVerdict.AGREES: "agree:", RowVerdict.DIFFERS: "differ:", RowVerdict.NOT_COMPARABLE: "not comparable:"}
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


def pages() -> dict[Path, str]:
    """Returns the summary and the pages of full tables, by path."""
    found = kept()
    full = {PICTURES / f"{number}.md": _paper_page(number, title, found) for number, title in PAPERS.items()}
    return {MODULE: minutes_module(found), PAGE: _summary_page(found), **full}


def _summary_page(found: dict[str, Any]) -> str:
    total = _totals(found)
    counts = [total[each] for each in RowVerdict]
    head = HEAD.format(
        rows=sum(total.values()), agree=counts[0], differ=counts[1], other=counts[2], missing=total["not run"]
    )
    lines = [
        head + "\n".join(_summary(found)),
        HIGHLIGHTS_HEAD,
        *_highlights(found),
        FIGURES,
        *_figures(found),
        *_names(),
        TAIL,
    ]
    return "\n".join(lines) + "\n"


def _paper_page(number: str, title: str, found: dict[str, Any]) -> str:
    lines = [PAPER_HEAD.format(number=number, title=title, letters=LETTERS[number])]
    for name in papers.names():
        if not name.startswith(number):
            continue
        what = papers.find(name)
        lines.append(f"\n## {name}: {what.title}")
        for scale in ("small", "paper"):
            if (result := found.get(f"{name} {scale}")) is not None:
                lines += _results(name, scale, result)
        lines += _not_run(what, found)
        for heading, texts in (("Not stated in the paper", what.unstated), ("Changed here", what.changed)):
            if texts:
                lines += [f"\n**{heading}:**\n", *(f"- {each}" for each in texts)]
    return "\n".join(lines) + "\n"


def _names() -> Iterator[str]:
    """Yields the list of all reproductions with their minutes."""
    yield NAMES_HEAD.format(quickest=", ".join(f"`{name}`" for name in list_quickest()))
    for name in papers.names():
        what = papers.find(name)
        needs = ", ".join([*what.extras, *what.data])
        yield f"| {_link(name)} | {format_minutes(MINUTES.get(name))} | {needs} | {_cell(what.title)} |"


def minutes_module(found: dict[str, Any]) -> str:
    """Returns the source of the module with the minutes at small scale."""
    lines = [
        f'    "{key.removesuffix(" small")}": {each["minutes"]},'
        for key, each in found.items()
        if key.endswith(" small")
    ]
    return "\n".join([MINUTES_HEAD, *lines, "}"]) + "\n"


def _highlights(found: dict[str, Any]) -> Iterator[str]:
    for name, what, title in HIGHLIGHTS:
        results = [found[key] for scale in ("small", "paper") if (key := f"{name} {scale}") in found]
        row = [row for result in results for row in result["rows"] if row["what"] == what][-1]
        numbers = _cell(row["paper"]), _cell(row["ours"])
        cells = [title, *numbers, VERDICTS[row["verdict"]], _link(name)]
        yield f"| {' | '.join(cells)} |"


def _figures(found: dict[str, Any]) -> Iterator[str]:
    """Yields a table of pictures, two in a row."""
    names = list(SHOWN)
    for place in range(0, len(names), 2):
        pair = names[place : place + 2]
        pictures = [f"![{SHOWN[each]}](reproductions/{_picture_of(each, found)})" for each in pair]
        captions = [f"{_link(each)}: {SHOWN[each]}" for each in pair]
        yield f"| {' | '.join(pictures)} |"
        if not place:
            yield "| --- | --- |"
        yield f"| {' | '.join(captions)} |"


def _picture_of(name: str, found: dict[str, Any]) -> str:
    return next(
        picture_name(name, scale, result)
        for scale in ("paper", "small")
        if (result := found.get(f"{name} {scale}", {})).get("charts")
    )


def _link(name: str) -> str:
    """Returns a link to the full table of a reproduction."""
    number = name.partition("-")[0]
    heading = f"{name}: {papers.find(name).title}"
    anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    return f"[{name}](reproductions/{number}.md#{anchor})"


def _totals(found: dict[str, Any], number: str = "") -> Counter[str]:
    """Returns how many rows have each verdict or were not run, of one paper or of all."""
    counts: Counter[str] = Counter()
    for name in papers.names():
        if name.startswith(number):
            counts.update(_verdicts(name, found).values())
            counts["not run"] += len(_missing(papers.find(name), found))
    return counts


def _summary(found: dict[str, Any]) -> Iterator[str]:
    """Yields how many rows agree, differ, cannot be compared and were not run, by paper."""
    yield "| paper | rows | agree | differ | not comparable | not run |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for number, title in PAPERS.items():
        yield _summary_row(f"{number} [{title}](reproductions/{number}.md)", _totals(found, number))
    yield _summary_row("all", _totals(found))


def _summary_row(name: str, counts: Counter[str]) -> str:
    numbers = [sum(counts.values()), *(counts[each] for each in RowVerdict), counts["not run"]]
    return f"| {name} | {' | '.join(map(str, numbers))} |"


def _verdicts(name: str, found: dict[str, Any]) -> dict[str, str]:
    """Returns the verdict of each row that was run, by its identity; the paper's scale has the last word."""
    identify = papers.find(name).identify
    results = [found.get(f"{name} {scale}", {"rows": []}) for scale in ("small", "paper")]
    return {identify(row["what"]): row["verdict"] for result in results for row in result["rows"]}


def _missing(what: Reproduction, found: dict[str, Any]) -> list[str]:
    """Returns the declared rows that were run at no scale."""
    ran = _verdicts(what.name, found)
    return [each.what for each in what.declared if what.identify(each.what) not in ran]


def _not_run(what: Reproduction, found: dict[str, Any]) -> list[str]:
    missing, lines = _missing(what, found), []
    if missing:
        command = f"`python docs/reproductions.py --run {what.name} --scale paper`"
        lines += [f"\nNot run, {len(missing)} rows; {command} runs them:\n", *(f"- {_cell(each)}." for each in missing)]
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
        (
            row["what"],
            row["paper"],
            row["ours"],
            VERDICTS[row["verdict"]],
            letters.get(row.get("rule"), ""),
            _why(name, row),
        )
        for row in result["rows"]
    ]
    counts = Counter(row["verdict"] for row in result["rows"])
    said = ", ".join(f"{SHORT[each]} {counts[each]}" for each in RowVerdict)
    return [
        "",  # or else this would be a row of the table before
        f"`tacit reproduce {name} --scale {scale}` ({_minutes(result)}), {len(rows)} rows: {said}.\n",
        *([f"![{_cell(name)}, scale {scale}]({picture_name(name, scale, result)})\n"] if result.get("charts") else []),
        "| measured | paper | ours | verdict | rule | coverage, and the reason for a disagreement |",
        "| --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(_cell, row))} |" for row in rows),
        *(["", "| rule | agrees if | reason |", "| --- | --- | --- |"] if rules else []),
        *(f"| {letter} | {' | '.join(_split_rule(rule))} |" for rule, letter in letters.items()),
    ]


def _why(name: str, row: dict[str, Any]) -> str:
    """Returns what a row covers and, if it is not comparable because of its spread, that reason first."""
    estimates = tuple(Estimate(**each) for each in row.get("estimates", ()))
    spread = papers.find(name).explain(Row(**row | {"estimates": estimates}))
    return "; ".join(text for text in (spread, row["why"]) if text)


def _split_rule(rule: str) -> tuple[str, str]:
    """Returns the condition and the reason of a rule."""
    condition, _, reason = _cell(rule).partition(": ")
    return condition, reason


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
    """Returns whether the pages are those of what is kept, and all their pictures exist."""
    pictures = [PICTURES / picture_name(*key.split(), each) for key, each in kept().items() if each.get("charts")]
    written = all(path.exists() and path.read_text(encoding="utf-8") == text for path, text in pages().items())
    return written and all(path.exists() for path in pictures)


def _minutes(result: dict[str, Any]) -> str:
    """Returns how long it took, if all of it was measured in one run."""
    minutes = result["minutes"]
    if minutes is None:
        return "combined from two runs, not timed as a whole"
    return f"{minutes:g} minutes" if minutes else "under 3 seconds"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Runs, and writes or checks the pages."""
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
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
