"""What the audit says of the settings of a run: whom single parties, the server and coalitions could learn from."""

from dataclasses import dataclass

from tacit.api.federation import Checked
from tacit.auditing.preflight import MOST_COALITIONS, POSITIONS, too_long
from tacit.auditing.report import Auditor, Report
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import chosen
from tacit.core.errors import NotLinear


@dataclass(frozen=True)
class Exposure:
    """Reports on one coalition of each kind, over one round of models that change; or why there are none."""

    reports: tuple[Report, ...] = ()
    why: str = ""

    @property
    def worst(self) -> Report | None:
        """The report with most victims."""
        return max(self.reports, key=lambda report: len(report.exposed) + len(report.nearly), default=None)

    def __str__(self) -> str:
        """Says in a few words what the worst of them learns."""
        worst = self.worst
        if worst is None:
            return self.why
        victims = len(worst.exposed) + len(worst.nearly)
        if not victims:
            late = next((report for report in self.reports if report.at_worst), None)
            return "nobody" if late is None else f"nobody, unless all but {late.fewest} drop out"
        others = len(worst.parties) - len(set(worst.coalition) & set(worst.parties))
        part = max(worst.fractions.values(), default=1.0)
        some = "" if part == 1.0 else f" in {part:.0%} of entries"
        return f"{victims} of {others} to {' and '.join(worst.coalition)}{some}"


def exposure(checked: Checked) -> Exposure:
    """Audits the settings of a run for single parties, the server, and as many colluding ones as it allows for."""
    protocol, terms = checked.protocol, checked.terms
    if too_long(protocol, terms):
        return Exposure(why="not audited, for that takes long; run: tacit audit")
    scope = Scope(protocol, terms, 1, "free", entries=POSITIONS if terms.selective else None)
    reports: list[Report] = []
    try:
        auditor = Auditor(scope)
        for size in sorted({1, checked.adversary}):
            most = len(terms.parties) + 1 if size == 1 else MOST_COALITIONS
            reports += [auditor.report(kind.coalition) for kind in chosen(scope, size, most)[0]]
    except NotLinear as error:
        return Exposure(why=f"not audited: {error}")
    return Exposure(tuple(reports))
