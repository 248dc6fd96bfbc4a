"""Pages that need nothing else: of a run, and of an audit, as one attaches them to an assessment."""

import html
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import gmtime
from typing import Any

import msgspec
import numpy as np

from tacit import __version__
from tacit.app.reports import pictures
from tacit.app.terminal import tables
from tacit.auditing.findings import Verdict
from tacit.auditing.render.text import ANONYMITY_SET, BITS, HEADLINES, TERMS, name_coalition
from tacit.auditing.report import Report
from tacit.core.average import counted
from tacit.core.errors import ConfigError, MissingExtra
from tacit.learn.training.train import AUDIT, Run

MOST_RECIPES = 4
"""Recipes that are written out; of more, a few are enough to see how it goes."""
MOST_ROWS = 200
"""Coalitions that have a row."""
STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --paper: #fff; --soft: #eef1f5; --line: #c3cad5;
  --leak: #a3221f; --calm: #1f5fa8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --paper: #14181f; --soft: #1f2530; --line: #465063;
  --leak: #ff9a8f; --calm: #8fc1ff } figure { background: #fff; border-radius: 6px } }
body { font: 16px/1.55 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper) }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.verdict { border-left: 6px solid var(--calm); background: var(--soft); padding: .8rem 1.1rem; font-size: 1.1rem }
.verdict.exposed { border-color: var(--leak) } .verdict b { display: block; font-size: .85rem; letter-spacing: .03em }
.exposed b { color: var(--leak) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--soft) }
th { border-bottom: 1px solid var(--line); font-weight: 600 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere }
figure { margin: 1.2rem 0; padding: .4rem } svg { max-width: 100%; height: auto }
footer { margin-top: 3rem; border-top: 1px solid var(--line); font-size: .85rem }
@media print { @page { margin: 18mm }
  body { margin: 0; max-width: none; font-size: 10.5pt; color: #000; background: #fff }
  h2 { break-after: avoid } tr, figure, pre, .verdict { break-inside: avoid } thead { display: table-header-group } }
"""


def check(path: str | None) -> None:
    """Raises ConfigError unless a page can be written there."""
    if path is None:
        return
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--report {path}: the name must end in .html")
    if not Path(path).resolve().parent.is_dir():
        raise ConfigError(f"--report {path}: there is no folder {Path(path).resolve().parent}")


# --- of an audit ---------------------------------------------------------------------------------------------------


def write_audit(path: str, found: Mapping[str, Any], command: str, reports: Sequence[Report]) -> None:
    """Writes the page of an audit, given as plain data, with the command that asks it again."""
    title = f"Audit of {found['app'] if 'app' in found else found['protocol']}"
    figures, why = _drawn(("exposure.svg", lambda file: pictures.exposure(reports, file)))
    parts = [
        *_verdict(found),
        *map(_figure, figures.values()),
        *_missing(why),
        *_behind(found),
        *_asked(found, command),
    ]
    Path(path).write_text(_page(title, parts), encoding="utf-8")


def _verdict(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields what an audit came to, what that rests on, and what it does not say."""
    look = "verdict exposed" if found["exposed"] else "verdict"
    yield f'<p class="{look}"><b>{_safe(_heading(found))}</b>{_safe(found["verdict"])}</p>'
    if "still" in found:
        still = found["still"]
        yield f'<p class="verdict exposed"><b>If models were static</b>{_safe(still["verdict"])}</p>'
        yield f"<p>To ask this again: <code>{_safe(still['asked'])}</code></p>"
    yield _section("In the words of the app", found.get("says", ()) if "app" in found else ())
    yield _section("What was assumed", found["assumed"])
    yield _section("What this does not cover", found["not_covered"])
    yield _section("Who is trusted with what", found.get("trusted", ()))


def _heading(found: Mapping[str, Any]) -> str:
    """Returns the heading of an audit. Files of Tacit 0.2 have none, but the parts of one."""
    if "heading" in found:
        return str(found["heading"])
    verdict = HEADLINES[Verdict.EXPOSED if found["exposed"] else Verdict.NOTHING_FOUND]
    part = f" in {found['part']}" if "part" in found else ""
    return f"{verdict}{part}" + (f", {found['as_long_as']}" if "as_long_as" in found else "")


def _behind(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields who learns what, coalition by coalition, and how."""
    reports = found["reports"]
    rows = [
        (
            name_coalition(each["coalition"]),
            ", ".join([*each["exposed"], *each["nearly"]]) or "nobody",
            str(each["smallest_group"]),
            f"{max(each['bits'].values()):.1f} of {each['most_bits']:.1f}" if each["bits"] else "",
            _worst(each),
            "" if each["epsilon"] is None else f"{each['epsilon']:.3g}",
        )
        for each in reports[:MOST_ROWS]
    ]
    headings = ("coalition", "learns the vectors of", ANONYMITY_SET, BITS, "in the worst case", "ε")
    yield "<h2>Who could learn whose vector</h2>" + _table(headings, rows)
    if len(reports) > MOST_ROWS:
        yield f"<p>And {counted(len(reports) - MOST_ROWS, 'more coalition')}.</p>"
    yield _section("", [f"{name}: {meant}" for name, meant in TERMS.items()])
    yield _section("Coverage", dict.fromkeys(each["looked_at"] for each in reports))
    yield _section("Recipes", list(_recipes(reports)))
    yield _section("Notes", dict.fromkeys(note for each in reports for note in each["notes"]))


def _worst(report: Mapping[str, Any]) -> str:
    """Returns who is exposed in the worst case of dropouts."""
    if report["at_worst"] is None:
        return "not analysed"
    return "like any other" if report["fewest"] is None else ", ".join(report["at_worst"]) or "nobody"


def _recipes(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    every = [(each["coalition"], *item) for each in reports for item in each["exposed"].items()]
    for coalition, _, how in every[:MOST_RECIPES]:
        off = "" if how["error"] is None else f"; replayed on a real transcript it was off by {how['error']:.0e}"
        yield f"{name_coalition(coalition)}: {how['in_words']}{off}"
    if len(every) > MOST_RECIPES:
        yield f"and {len(every) - MOST_RECIPES} more"


def _asked(found: Mapping[str, Any], command: str) -> Iterator[str]:
    """Yields what was audited, and how to ask again."""
    if "settings" in found:
        rows = [("protocol", f"{found['protocol']}: {found['summary']}"), ("parties", ", ".join(found["parties"]))]
        rows += [(name, _value(value)) for name, value in found["settings"].items()]
        yield "<h2>Settings</h2>" + _table(("setting", "value"), rows)
    yield _section("Settings that were read from the app", found.get("read", ()))
    claims = [f"paper {each['paper']}, {each['section']}: {each['statement']}" for each in found.get("claims", ())]
    yield _section("What the papers claim, of which this audit is the test", claims)
    yield f"<h2>To ask again</h2><pre>{_safe(command)}</pre>"
    yield _section("To ask next", [f"{each['why']}: {each['command']}" for each in found["next"]])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- of a run ------------------------------------------------------------------------------------------------------


def write(run: Run) -> None:
    """Draws a run and writes its page into its folder. Without what draws, the page has tables only, and says so."""
    folder = run.folder
    if folder is None:
        return
    drawn, why = _drawn(
        ("progress.svg", lambda file: pictures.progress(run, file)), ("labels.svg", lambda file: _labels(run, file))
    )
    for name, figure in drawn.items():
        (folder / name).write_text(figure, encoding="utf-8")
    (folder / "report.html").write_text(page(run, list(drawn.values()), why), encoding="utf-8")


def _labels(run: Run, path: str) -> None:
    if run.labels is not None:
        pictures.labels(run.labels, path)


def page(run: Run, figures: Sequence[str], why: str = "") -> str:
    """Returns the page of a run."""
    scenario = run.scenario
    title = scenario.title or run.name
    parts = [_table(("", ""), tables.summary(run)), *(f"<p>Note: {_safe(note)}.</p>" for note in run.notes)]
    parts += [*map(_figure, figures), *_missing(why)]
    if run.folder is not None and (run.folder / AUDIT).exists():
        found = msgspec.json.decode((run.folder / AUDIT).read_bytes())
        if "verdict" in found:
            parts += [*_verdict(found), *_behind(found), *_asked(found, found["asked"])]
        else:
            parts.append(f"<h2>Who could learn whose vector</h2><p>{_safe(found['says'])}.</p>")
    parts.append("<h2>Rounds</h2>" + _table(*tables.rounds(run)))
    parts.append(f"<h2>Scenario</h2><pre>{_safe(scenario.encode().decode())}</pre>")
    return _page(title, parts)


# --- pieces --------------------------------------------------------------------------------------------------------


def _drawn(*figures: tuple[str, Any]) -> tuple[dict[str, str], str]:
    """Returns figures as SVG by their names, and why there are none."""
    drawn: dict[str, str] = {}
    with TemporaryDirectory() as made:
        try:
            for name, draw in figures:
                file = Path(made) / name
                draw(str(file))
                if file.exists():
                    drawn[name] = file.read_text(encoding="utf-8")
        except MissingExtra as missing:
            return {}, str(missing)
    return drawn, ""


def _figure(figure: str) -> str:
    # What is before the figure itself, such as a document type, has no place inside of a page.
    return f"<figure>{figure[figure.index('<svg') :]}</figure>"


def _missing(why: str) -> list[str]:
    return [f"<p>There are no figures: {_safe(why)}.</p>"] if why else []


def _page(title: str, parts: Iterable[str]) -> str:
    now = gmtime()
    made = f"{now.tm_year}-{now.tm_mon:02}-{now.tm_mday:02} {now.tm_hour:02}:{now.tm_min:02} UTC"
    with_ = f"Python {platform.python_version()}, NumPy {np.__version__}, cryptography {version('cryptography')}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{STYLE}</style></head><body><main><h1>{_safe(title)}</h1>"
        + "\n".join(part for part in parts if part)
        + f"</main><footer><p>Written by Tacit {__version__} on {made}; {with_}, {_safe(platform.system())} "
        f"{_safe(platform.machine())}.</p></footer></body></html>\n"
    )


def _section(heading: str, lines: Iterable[str]) -> str:
    """Returns a list under a heading; nothing if there is nothing in it."""
    items = "".join(f"<li>{_safe(line)}</li>" for line in lines)
    return f"{f'<h2>{_safe(heading)}</h2>' if heading else ''}<ul>{items}</ul>" if items else ""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    # A column of which there is nothing to say is left out.
    kept = list(rows)
    columns = [(name, cells) for name, *cells in zip(headings, *kept, strict=True) if any(cells)]
    looks = [' class="n"' if all(cell[:1].isnumeric() for cell in cells if cell) else "" for _, cells in columns]
    head = "".join(f"<th{look}>{_safe(name)}</th>" for look, (name, _) in zip(looks, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{look}>{_safe(cell)}</td>" for look, cell in zip(looks, row, strict=True)) + "</tr>"
        for row in zip(*(cells for _, cells in columns), strict=True)
    )
    above = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    return f'<div class="scroll"><table>{above}<tbody>{body}</tbody></table></div>'


def _safe(text: object) -> str:
    return html.escape(str(text))
