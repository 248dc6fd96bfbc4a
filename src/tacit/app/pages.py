"""What is left of a run for people: figures, and one page with all of it that needs nothing else."""

import html
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from tacit.api.train import AUDIT, Run
from tacit.app import pictures, tables
from tacit.core.errors import MissingExtra

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top }
th { border-bottom: 1px solid #888 } td.n { text-align: right; font-variant-numeric: tabular-nums }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto } svg { max-width: 100%; height: auto }
"""


def write(run: Run) -> None:
    """Draws a run and writes its page into its folder. Without what draws, the page has tables only, and says so."""
    folder = run.folder
    if folder is None:
        return
    drawn = []
    try:
        for name, draw in (("progress.svg", pictures.progress), ("labels.svg", _labels)):
            if draw(run, str(folder / name)):
                drawn.append((folder / name).read_text(encoding="utf-8"))
        why = ""
    except MissingExtra as missing:
        why = str(missing)
    (folder / "report.html").write_text(page(run, drawn, why), encoding="utf-8")


def _labels(run: Run, path: str) -> bool:
    if run.labels is None:
        return False
    pictures.labels(run.labels, path)
    return True


def page(run: Run, figures: Sequence[str], why: str = "") -> str:
    """Returns the page of a run."""
    scenario = run.scenario
    title = scenario.title or f"{scenario.data.name} by {scenario.protocol['name']}"
    parts = [f"<h1>{_safe(title)}</h1>", _table(("", ""), tables.summary(run))]
    parts += [f"<p>Note: {_safe(note)}.</p>" for note in run.notes]
    # What is before the figure itself, such as a document type, has no place inside of a page.
    parts += [f"<figure>{figure[figure.index('<svg') :]}</figure>" for figure in figures]
    if why:
        parts.append(f"<p>There are no figures: {_safe(why)}.</p>")
    if run.folder is not None and (run.folder / AUDIT).exists():
        audit = msgspec.json.decode((run.folder / AUDIT).read_bytes())
        parts.append(f"<h2>Who could learn whose model</h2><p>Exposed in one round: {_safe(audit['says'])}.</p>")
        rows = [
            (
                ", ".join(each["coalition"]),
                ", ".join([*each["exposed"], *each["nearly"]]) or "nobody",
                each["looked_at"],
            )
            for each in audit["reports"]
        ]
        parts.append(_table(("coalition", "learns the models of", "what was looked at"), rows))
    parts.append("<h2>Rounds</h2>" + _table(*tables.rounds(run)))
    parts.append(f"<h2>Scenario</h2><pre>{_safe(scenario.encoded().decode())}</pre>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(title)}</title><style>{STYLE}</style>'
        + "\n".join(parts)
        + "</html>\n"
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_safe(heading)}</th>" for heading in headings) if any(headings) else ""
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _cell(text: str) -> str:
    number = bool(text) and np.char.isnumeric(text[:1]).item()
    return f'<td class="n">{_safe(text)}</td>' if number else f"<td>{_safe(text)}</td>"


def _safe(text: str) -> str:
    return html.escape(str(text))
