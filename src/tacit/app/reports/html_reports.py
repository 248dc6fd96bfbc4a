"""Self-contained HTML reports of runs and audits, to be attached to an assessment.

Templates are in `templates/`, with autoescaping on: the name of a scenario, an app or a party is always text.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import gmtime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tacit import __version__
from tacit.app.reports import pictures
from tacit.app.terminal import tables
from tacit.auditing.findings import Verdict
from tacit.auditing.render.epsilon import PROOFS
from tacit.auditing.render.text import ANONYMITY_SET, BITS, HEADLINES, TERMS, name_coalition
from tacit.auditing.report import Report
from tacit.core.average import format_count
from tacit.core.errors import MissingExtra
from tacit.learn.training.run_folder import AUDIT
from tacit.learn.training.train import Run
from tacit.privacy.epsilon_bounds import BoundKind

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_RECIPES = 4
"""Recipes that a report writes out; it only counts the rest."""
MOST_ROWS = 200
"""Coalitions that have a row in a report."""
REPORT = "report.html"
"""File name of a report in the folder of a run."""


def check_path(path: str | None) -> None:
    """Raises ConfigError unless a report can be written to `path`, and MissingExtra without Jinja2."""
    if path is not None:
        pictures.check_file("--report", path, (".html", ".htm"))
        load_templates()


# --- templates -----------------------------------------------------------------------------------------------------


@cache
def load_templates() -> "Environment":
    """Returns the templates of this package; raises MissingExtra without Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    loader = PackageLoader("tacit.app.reports")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.globals["zip_columns"] = zip_columns
    return templates


def render_report(template: str, title: str, **values: Any) -> str:
    """Returns a report as HTML, with the time and the versions it was made with."""
    now = gmtime()
    made = {
        "version": __version__,
        "time": f"{now.tm_year}-{now.tm_mon:02}-{now.tm_mday:02} {now.tm_hour:02}:{now.tm_min:02} UTC",
        "environment": f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"cryptography {version('cryptography')}, {platform.system()} {platform.machine()}",
    }
    return load_templates().get_template(template).render(title=title, made=made, **values)


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: its heading, its cells, and whether these are numbers."""

    heading: str
    cells: Sequence[str]

    @property
    def numeric(self) -> bool:
        """Whether all cells begin with a digit."""
        return all(cell[:1].isnumeric() for cell in self.cells if cell)


def build_columns(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[TableColumn]:
    """Returns the columns of a table, without those that are empty."""
    return [TableColumn(name, cells) for name, *cells in zip(headings, *rows, strict=True) if any(cells)]


def zip_columns(columns: Sequence[TableColumn]) -> Iterator[list[tuple[TableColumn, str]]]:
    """Yields the rows of a table, each cell with its column."""
    for row in zip(*(column.cells for column in columns), strict=True):
        yield list(zip(columns, row, strict=True))


# --- audits --------------------------------------------------------------------------------------------------------


def write_audit_report(path: str, audit: Mapping[str, Any], command: str, reports: Sequence[Report]) -> None:
    """Writes the report of an audit.

    Args:
        path: the file to write.
        audit: the audit as plain data, as `--json` prints it.
        command: the command line that runs the same audit again.
        reports: one report for each coalition, for the figure.
    """
    figures, missing = draw_figures({"exposure.svg": lambda file: pictures.exposure(reports, file)})
    title = f"Audit of {audit['app'] if 'app' in audit else audit['protocol']}"
    values = {"audit": prepare_audit(audit, command), "images": embed_figures(figures), "missing_figures": missing}
    Path(path).write_text(render_report("audit.html", title, **values), encoding="utf-8")


def prepare_audit(audit: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Returns the parts of an audit that the templates show."""
    reports = audit["reports"]
    further = len(reports) - MOST_ROWS
    claims = (f"paper {each['paper']}, {each['section']}: {each['statement']}" for each in audit.get("claims", ()))
    return {
        "heading": _find_heading(audit),
        "exposed": audit["exposed"],
        "verdict": audit["verdict"],
        "static": audit.get("still"),
        "says": audit.get("says", ()) if "app" in audit else (),
        "assumed": audit["assumed"],
        "not_covered": audit["not_covered"],
        "trusted": audit.get("trusted", ()),
        "coalitions": _list_coalitions(reports[:MOST_ROWS]),
        "further_coalitions": format_count(further, "more coalition") if further > 0 else "",
        "terms": [f"{name}: {meaning}" for name, meaning in TERMS.items()],
        "coverage": list(dict.fromkeys(each["looked_at"] for each in reports)),
        "recipes": list(_list_recipes(reports)),
        "notes": list(dict.fromkeys(note for each in reports for note in each["notes"])),
        "settings": _list_settings(audit) if "settings" in audit else None,
        "read": audit.get("read", ()),
        "claims": list(claims),
        "command": command,
        "next": [f"{each['why']}: {each['command']}" for each in audit["next"]],
    }


def _find_heading(audit: Mapping[str, Any]) -> str:
    """Returns the heading of an audit. Files of Tacit 0.2 have none, but the parts of one."""
    if "heading" in audit:
        return str(audit["heading"])
    verdict = HEADLINES[Verdict.EXPOSED if audit["exposed"] else Verdict.NOTHING_FOUND]
    part = f" in {audit['part']}" if "part" in audit else ""
    return f"{verdict}{part}" + (f", {audit['as_long_as']}" if "as_long_as" in audit else "")


def _list_coalitions(reports: Sequence[Mapping[str, Any]]) -> list[TableColumn]:
    rows = [
        (
            name_coalition(each["coalition"]),
            ", ".join([*each["exposed"], *each["nearly"]]) or "nobody",
            str(each["smallest_group"]),
            f"{max(each['bits'].values()):.1f} of {each['most_bits']:.1f}" if each["bits"] else "",
            _name_exposed_in_worst_case(each),
            _format_epsilon(each),
        )
        for each in reports
    ]
    return build_columns(("coalition", "learns the vectors of", ANONYMITY_SET, BITS, "in the worst case", "ε"), rows)


def _format_epsilon(report: Mapping[str, Any]) -> str:
    """Returns ε and what proves it. Files of earlier releases name no proof."""
    if report["epsilon"] is None:
        return ""
    proof = report.get("epsilon_bound")
    return f"{report['epsilon']:.3g}" + (f" ({PROOFS[BoundKind(proof)]})" if proof else "")


def _name_exposed_in_worst_case(report: Mapping[str, Any]) -> str:
    """Returns who is exposed in the worst case of dropouts."""
    if report["at_worst"] is None:
        return "not analysed"
    return "like any other" if report["fewest"] is None else ", ".join(report["at_worst"]) or "nobody"


def _list_recipes(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    recipes = [(each["coalition"], recipe) for each in reports for recipe in each["exposed"].values()]
    for coalition, recipe in recipes[:MOST_RECIPES]:
        error, exact = recipe["error"], recipe.get("error_without_noise")
        off = "" if error is None else f"; replayed on a real transcript it was off by {error:.0e}"
        if exact is not None and exact != error:
            off += f", because the vector has its noise in it; without noise, by {exact:.0e}"
        yield f"{name_coalition(coalition)}: {recipe['in_words']}{off}"
    if len(recipes) > MOST_RECIPES:
        yield f"and {len(recipes) - MOST_RECIPES} more"


def _list_settings(audit: Mapping[str, Any]) -> list[TableColumn]:
    rows = [("protocol", f"{audit['protocol']}: {audit['summary']}"), ("parties", ", ".join(audit["parties"]))]
    rows += [(name, _format_value(value)) for name, value in audit["settings"].items()]
    return build_columns(("setting", "value"), rows)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- runs ----------------------------------------------------------------------------------------------------------


def write_run_report(run: Run) -> None:
    """Writes the figures and the report of a run into its folder; raises MissingExtra without Jinja2.

    Without matplotlib the report has no figures, and says so.
    """
    folder = run.folder
    if folder is None:
        return
    figures, missing = draw_figures(
        {
            "progress.svg": lambda file: pictures.progress(run, file),
            "labels.svg": lambda file: None if run.labels is None else pictures.labels(run.labels, file),
        }
    )
    for name, figure in figures.items():
        (folder / name).write_text(figure, encoding="utf-8")
    (folder / REPORT).write_text(render_run(run, figures, missing), encoding="utf-8")


def render_run(run: Run, figures: Mapping[str, str], missing: str = "") -> str:
    """Returns the report of a run as HTML, with figures as SVG by name, or the reason why there are none."""
    audit, audit_note = None, ""
    if run.folder is not None and (run.folder / AUDIT).exists():
        found = msgspec.json.decode((run.folder / AUDIT).read_bytes())
        if "verdict" in found:
            audit = prepare_audit(found, found["asked"])
        else:
            audit_note = found["says"]
    return render_report(
        "run.html",
        run.scenario.title or run.name,
        summary=build_columns(("", ""), tables.summarize_run(run)),
        notes=run.notes,
        images=embed_figures(figures),
        missing_figures=missing,
        audit=audit,
        audit_note=audit_note,
        rounds=build_columns(*tables.list_rounds(run)),
        scenario=run.scenario.encode().decode(),
    )


# --- figures -------------------------------------------------------------------------------------------------------


def draw_figures(figures: Mapping[str, Callable[[str], object]]) -> tuple[dict[str, str], str]:
    """Returns figures as SVG by file name, and the reason if there are none."""
    drawn: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        try:
            for name, draw in figures.items():
                file = Path(folder) / name
                draw(str(file))
                if file.exists():
                    drawn[name] = file.read_text(encoding="utf-8")
        except MissingExtra as missing:
            return {}, str(missing)
    return drawn, ""


def embed_figures(figures: Mapping[str, str]) -> list[Any]:
    """Returns figures as markup. A document type or comment before the figure has no place inside a report."""
    from markupsafe import Markup

    return [Markup(figure[figure.index("<svg") :]) for figure in figures.values()]  # noqa: S704 (drawn by us)
