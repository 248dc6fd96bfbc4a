"""Self-contained HTML reports of runs and audits, to be attached to an assessment and signed.

A browser prints them as PDF. Templates are in `templates/`, with autoescaping on: the name of a scenario, an app or a
party is always text.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from getpass import getuser
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import gmtime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tacit import __version__
from tacit.app.reports import pictures
from tacit.app.reports.assessments import RunFacts, assess_impact, assess_privacy_claims
from tacit.app.reports.audit_sections import build_columns, build_sections, find_parties, zip_columns
from tacit.app.terminal import tables
from tacit.auditing.render.names import name_parties, name_parties_in
from tacit.auditing.report import Report
from tacit.core.average import format_count
from tacit.core.errors import MissingExtra
from tacit.learn.training.run_folder import AUDIT
from tacit.learn.training.train import Run

if TYPE_CHECKING:
    from jinja2 import Environment

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
    """Returns a report as HTML, with its date, its author and the versions it was made with."""
    now = gmtime()
    made = {
        "version": __version__,
        "by": _name_account(),
        "time": f"{now.tm_year}-{now.tm_mon:02}-{now.tm_mday:02} {now.tm_hour:02}:{now.tm_min:02} UTC",
        "environment": f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"cryptography {version('cryptography')}, {platform.system()} {platform.machine()}",
    }
    return load_templates().get_template(template).render(title=title, made=made, **values)


def _name_account() -> str:
    """Returns the name of the account that runs this process."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # an account without a name, as in some containers
        return "an account without a name"


# --- audits --------------------------------------------------------------------------------------------------------


def write_audit_report(path: str, audit: Mapping[str, Any], command: str, reports: Sequence[Report]) -> None:
    """Writes the report of an audit.

    Args:
        path: The file to write.
        audit: The audit as plain data, as `--json` prints it.
        command: The command line that runs the same audit again.
        reports: One report for each coalition, for the figure.
    """
    sections, figures, missing = prepare_audit(audit, command), dict[str, str](), ""
    if sections["matrix"] is None:
        figures, missing = draw_figures({"exposure.svg": lambda file: pictures.exposure(reports, file)})
    subject = f"the Flower app {audit['app']}" if "app" in audit else str(audit["protocol"])
    title = f"Privacy audit of {subject}, {format_count(len(find_parties(audit)), 'party', 'parties')}"
    values = {"audit": sections, "images": embed_figures(figures), "missing_figures": missing}
    Path(path).write_text(render_report("audit.html", title, **values), encoding="utf-8")


def prepare_audit(audit: Mapping[str, Any], command: str, run: RunFacts | None = None) -> dict[str, Any]:
    """Returns everything about an audit that the templates show."""
    assessments = {"impact": assess_impact(audit), "privacy_claims": assess_privacy_claims(audit, run)}
    return {**build_sections(audit, command), **assessments}


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
            "labels.svg": lambda file: (
                None if run.labels is None else pictures.labels(run.labels, file, list(run.names))
            ),
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
            audit = prepare_audit(name_parties_in(found, run.names), found["asked"], _gather_facts(run))
        else:
            audit_note = name_parties(found["says"], run.names)
    return render_report(
        "run.html",
        run.scenario.title or run.name,
        summary=build_columns(("", ""), [*tables.summarize_run(run), *_list_names(run)]),
        notes=name_parties_in(run.notes, run.names),
        images=embed_figures(figures),
        missing_figures=missing,
        audit=audit,
        audit_note=audit_note,
        rounds=build_columns(*tables.list_rounds(run)),
        scenario=run.scenario.encode().decode(),
    )


def _list_names(run: Run) -> list[tuple[str, str]]:
    """Returns a row that says how commands and the files of a run call its parties; none without names."""
    named = ", ".join(f"p{place} is {name}" for place, name in enumerate(run.names))
    return [("names in commands", named)] if named else []


def _gather_facts(run: Run) -> RunFacts:
    """Returns what the assessments need to know of a run besides its audit."""
    score = ""
    if run.accuracy is not None:
        score = f"The last test accuracy is {run.accuracy:.1%}"
    elif (rmse := next((each.rmse for each in reversed(run.history) if each.rmse is not None), None)) is not None:
        score = f"The last root mean square error in tests is {rmse:.3g}"
    epsilon = run.history[-1].epsilon if run.history else None
    return RunFacts(len(run.history), score, epsilon, run.scenario.privacy)


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
