"""Sections of a report on an audit: matrix, findings by coalition, recipes and settings, from the audit's plain data.

One seed policy holds for all of them: every seed that was tried counts, as in the verdict. Figures of a single seed,
such as the anonymity set, name their seed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tacit.app.reports.audit_matrix import build_matrix, list_late_victims, seeds_by_victim
from tacit.auditing.findings import Verdict
from tacit.auditing.render.coalitions import name_coalition
from tacit.auditing.render.epsilon import PROOFS
from tacit.auditing.render.verdicts import ANONYMITY_SET, BITS, HEADLINES, explain_terms
from tacit.core.average import format_count
from tacit.privacy.epsilon_bounds import BoundKind

MOST_RECIPES = 4
"""Recipes that a report writes out; it only counts the rest."""
MOST_ROWS = 200
"""Coalitions that have a row in a report."""
AuditData = Mapping[str, Any]
"""Findings of an audit as plain data, as `--json` prints them."""


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


def build_sections(audit: AuditData, command: str) -> dict[str, Any]:
    """Returns the parts of an audit that the templates show.

    Args:
        audit: The audit as plain data.
        command: The command line that runs the same audit again.
    """
    reports = audit["reports"]
    further = len(reports) - MOST_ROWS
    claims = (f"Paper {each['paper']}, {each['section']}: {each['statement']}." for each in audit.get("claims", ()))
    return {
        "heading": find_heading(audit),
        "exposed": audit["exposed"],
        "verdict": str(audit["verdict"]).removeprefix(f"{find_heading(audit)}. "),  # which stands above it
        "static": audit.get("still"),
        "says": audit.get("says", ()) if "app" in audit else (),
        "assumed": audit["assumed"],
        "not_covered": audit["not_covered"],
        "trusted": audit.get("trusted", ()),
        "counts": count_exposing(reports),
        "matrix": build_matrix(reports, find_parties(audit)),
        "coalitions": _list_coalitions(reports[:MOST_ROWS]),
        "further_coalitions": format_count(further, "more coalition") if further > 0 else "",
        "terms": [f"{name}: {meaning}." for name, meaning in _explain_terms(reports).items()],
        "seeds": _describe_seeds(reports),
        "epsilon": _describe_proofs(reports),
        "coverage": _list_coverage(reports),
        "recipes": list(_list_recipes(reports)),
        "notes": [f"{each}." for each in dict.fromkeys(note for each in reports for note in each["notes"])],
        "settings": _list_settings(audit) if "settings" in audit else None,
        "read": audit.get("read", ()),
        "claims": list(claims),
        "command": command,
        "next": [f"{each['why']}: {each['command']}" for each in audit["next"]],
    }


def find_heading(audit: AuditData) -> str:
    """Returns the heading of an audit. Files of Tacit 0.2 have none, but the parts of one."""
    if "heading" in audit:
        return str(audit["heading"])
    verdict = HEADLINES[Verdict.EXPOSED if audit["exposed"] else Verdict.NOTHING_FOUND]
    part = f" in {audit['part']}" if "part" in audit else ""
    return f"{verdict}{part}" + (f", {audit['as_long_as']}" if "as_long_as" in audit else "")


def find_parties(audit: AuditData) -> tuple[str, ...]:
    """Returns the parties of an audit; of an app's, those that its reports name."""
    if "parties" in audit and not isinstance(audit["parties"], int):
        return tuple(audit["parties"])
    named = [name for report in audit["reports"] for name in (*report["coalition"], *report["bits"])]
    return tuple(name for name in dict.fromkeys(named) if name not in ("server", "onlooker"))


def _explain_terms(reports: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns explanations of the terms of a report."""
    most = max((report["most_bits"] for report in reports), default=0.0)
    return explain_terms(most, any(report["exposed"] for report in reports))


def _list_coverage(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what was analysed, and what was left out. Files of earlier releases lack the second part."""
    told = [each[key] for key in ("looked_at", "left_out") for each in reports if key in each]
    return [f"{each[:1].upper()}{each[1:]}." for each in dict.fromkeys(told)]


# --- exposure over all seeds -----------------------------------------------------------------------------------------


def count_exposing(reports: Sequence[Mapping[str, Any]]) -> list[TableColumn]:
    """Returns how many adversaries recover a vector: as in the verdict, with any seed that was tried."""
    exposing = [report for report in reports if seeds_by_victim(report)]
    nearly = sum(bool(report["nearly"]) and not report["exposed"] for report in exposing)
    late = sum(bool(report["at_worst"]) and not seeds_by_victim(report) for report in reports)
    unsure = sum(bool(report["unsure"]) and not seeds_by_victim(report) for report in reports)
    tried = max((report.get("drawings", 0) for report in reports), default=0)
    some = f", with at least one of {tried} random patterns" if tried > 1 else ""
    recovering = len(exposing) - nearly
    rows = [
        ("adversaries analysed", str(len(reports))),
        (f"recover a vector{some}", str(recovering) if recovering or not nearly else ""),
        (f"know a vector almost exactly{some}", str(nearly) if nearly else ""),
        ("recover a vector only with the fewest contributors", str(late) if late else ""),
        ("undecided", str(unsure) if unsure else ""),
    ]
    return build_columns(("", ""), [row for row in rows if row[1]])


# --- findings by coalition -------------------------------------------------------------------------------------------


def _list_coalitions(reports: Sequence[Mapping[str, Any]]) -> list[TableColumn]:
    rows = [
        (
            name_coalition(each["coalition"]),
            _name_recovered(each),
            _name_others_in_worst_case(each),
            str(each["smallest_group"]),
            f"{max(each['bits'].values()):.1f} of {each['most_bits']:.1f}" if each["bits"] else "",
            _format_epsilon(each),
            str(each["seed"]) if each.get("drawings", 0) > 1 else "",
        )
        for each in reports
    ]
    late = "additionally, with the fewest contributors"
    headings = ("adversary", "recovers the vectors of", late, ANONYMITY_SET, BITS, "ε", "shown pattern (seed)")
    return build_columns(headings, rows)


def _name_recovered(report: Mapping[str, Any]) -> str:
    """Returns whose vectors an adversary recovers and, if several seeds were tried, with how many of them."""
    found, tried = seeds_by_victim(report), report.get("drawings", 0)
    if not found:
        return "nobody"
    by_count: dict[tuple[int, bool], list[str]] = {}
    for victim, seeds in found.items():
        by_count.setdefault((len(seeds), victim in report["nearly"]), []).append(victim)
    return "; ".join(
        f"{', '.join(victims)}{' almost exactly' if nearly else ''}{f' ({count} of {tried})' if tried > 1 else ''}"
        for (count, nearly), victims in by_count.items()
    )


def _describe_seeds(reports: Sequence[Mapping[str, Any]]) -> str:
    """Returns which figures of the findings are for all seeds, and which for one round or one seed."""
    tried = max((report.get("drawings", 0) for report in reports), default=0)
    lines = []
    if tried > 1:
        lines.append(f"“3 of {tried}”: recovered with 3 of the {tried} random patterns that were tried.")
        lines.append(f"The {ANONYMITY_SET} and the {BITS} are for one pattern, the one that exposes most.")
    if any(report["fewest"] is not None for report in reports):
        lines.append(
            f"The {ANONYMITY_SET} and the {BITS} are for the rounds in question, and not for the round with the fewest "
            f"contributors."
        )
    return " ".join(lines)


def _format_epsilon(report: Mapping[str, Any]) -> str:
    """Returns ε, and what it is with the fewest contributors."""
    if report["epsilon"] is None:
        return ""
    worst = report.get("epsilon_at_worst")
    more = f"; {worst:.3g} with the fewest contributors" if worst is not None and worst > report["epsilon"] else ""
    return f"{report['epsilon']:.3g}{more}"


def _describe_proofs(reports: Sequence[Mapping[str, Any]]) -> str:
    """Returns what ε is and what proves it; nothing without ε. Files of earlier releases name no proof."""
    bounds = [report for report in reports if report["epsilon"] is not None]
    if not bounds:
        return ""
    proofs = dict.fromkeys(report["epsilon_bound"] for report in bounds if report.get("epsilon_bound"))
    proved = f" Proof: {'; '.join(PROOFS[BoundKind(proof)] for proof in proofs)}." if proofs else ""
    return f"ε is for all rounds, at δ = {bounds[0]['delta']:g}.{proved}"


def _name_others_in_worst_case(report: Mapping[str, Any]) -> str:
    """Returns who else is exposed with the fewest contributors; nothing if no round has fewer."""
    if report["at_worst"] is None:
        return "not analysed"
    return ", ".join(list_late_victims(report)) or ("" if report["fewest"] is None else "–")


def _list_recipes(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    recipes = [(each, recipe) for each in reports for recipe in each["exposed"].values()]
    for report, recipe in recipes[:MOST_RECIPES]:
        error, exact = recipe["error"], recipe.get("error_without_noise")
        off = "" if error is None else f" Tried on recorded messages, it was off by {error:.0e}"
        if exact is not None and exact != error:
            off += f", because the vector has its noise in it; without noise, by {exact:.0e}"
        seed = f" (pattern {report['seed']})" if report.get("drawings", 0) > 1 else ""
        yield f"{name_coalition(report['coalition'])}{seed}: {recipe['in_words']}.{f'{off}.' if off else ''}"
    if len(recipes) > MOST_RECIPES:
        yield f"{len(recipes) - MOST_RECIPES} more recipes are in the output of the command with --json."


def _list_settings(audit: AuditData) -> list[TableColumn]:
    rows = [("protocol", f"{audit['protocol']}: {audit['summary']}"), ("parties", ", ".join(audit["parties"]))]
    rows += [(name, _format_value(value)) for name, value in audit["settings"].items()]
    return build_columns(("setting", "value"), rows)


def _format_value(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
