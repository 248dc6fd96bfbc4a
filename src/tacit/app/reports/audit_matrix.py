"""Matrix of a report on an audit: who can recover whose vector, with any seed that was tried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.auditing.render.coalitions import name_coalition

MOST_COLUMNS = 24
"""Parties up to which the matrix is a table; of more, it is a figure."""
MATRIX_ROWS = 60
"""Coalitions that have a row in the matrix."""


def seeds_by_victim(report: Mapping[str, Any]) -> dict[str, list[int]]:
    """Returns the parties that a coalition recovers, each with the seeds with which it does, of all that were tried."""
    found: dict[str, list[int]] = {victim: [report["seed"]] for victim in (*report["exposed"], *report["nearly"])}
    for other in report.get("unlucky", ()):
        for victim in other["victims"]:
            found.setdefault(victim, []).append(other["seed"])
    return found


def list_late_victims(report: Mapping[str, Any]) -> list[str]:
    """Returns the parties that a coalition recovers only with the fewest contributors, and with no seed tried.

    `at_worst` of an audit has the parties that are exposed anyway, too.
    """
    found = seeds_by_victim(report)
    return [victim for victim in report["at_worst"] or () if victim not in found]


@dataclass(frozen=True)
class Mark:
    """A cell of the matrix: its sign, and what it means."""

    kind: str
    sign: str
    meaning: str


MARKS = {
    mark.kind: mark
    for mark in (
        Mark("exposed", "●", "recovered"),
        Mark("worst", "◐", "recovered only with the fewest contributors, or with other random patterns"),
        Mark("part", "◔", "recovered in part, or almost exactly"),
        Mark("unsure", "?", "undecided"),
        Mark("none", "–", "not recovered"),
        Mark("member", "M", "member of the coalition"),
    )
}
"""Signs of the matrix. Each differs in shape, so that it can be printed without colours."""


@dataclass(frozen=True)
class Matrix:
    """Who can recover whose vector: a row for each coalition, a column for each party."""

    parties: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Mark]]]
    legend: Sequence[Mark]
    further: int
    """Coalitions without a row."""

    @property
    def wide(self) -> bool:
        """Whether names stand upright, so that the columns fit a page."""
        return any(len(name) > 5 for name in self.parties) or len(self.parties) > 12


def build_matrix(reports: Sequence[Mapping[str, Any]], parties: Sequence[str]) -> Matrix | None:
    """Returns the matrix of an audit; None if there are too many parties for a table."""
    if not 0 < len(parties) <= MOST_COLUMNS:
        return None
    rows = [
        (name_coalition(report["coalition"]), [_mark(report, party) for party in parties])
        for report in reports[:MATRIX_ROWS]
    ]
    used = {mark.kind for _, marks in rows for mark in marks}
    legend = [mark for mark in MARKS.values() if mark.kind in used]
    return Matrix(parties, rows, legend, max(0, len(reports) - MATRIX_ROWS))


def _mark(report: Mapping[str, Any], party: str) -> Mark:
    if party in report["coalition"]:
        return MARKS["member"]
    if party in report["exposed"] and report["exposed"][party]["fraction"] == 1.0:
        return MARKS["exposed"]
    if party in report["exposed"] or party in report["nearly"]:
        return MARKS["part"]
    if party in seeds_by_victim(report) or party in (report["at_worst"] or ()):
        return MARKS["worst"]
    return MARKS["unsure" if party in report["unsure"] else "none"]
