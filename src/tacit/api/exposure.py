"""Audit of the settings of a run: what single parties, the server and coalitions can recover."""

from dataclasses import dataclass

from tacit.api.checked_run import CheckedRun
from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import NoteCode, Remark, Verdict, worst_verdict
from tacit.auditing.preflight import too_long
from tacit.auditing.render.notes import render_note
from tacit.auditing.render.verdicts import summarize_exposure
from tacit.auditing.report import Report
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import choose_by_size
from tacit.core.errors import NotLinear


@dataclass(frozen=True)
class Exposure:
    """Reports on one coalition of each kind, over one round of drifting models; or the reason why there are none."""

    reports: tuple[Report, ...] = ()
    why: Remark | None = None
    """Reason why nothing was audited; None if there are reports."""

    @property
    def worst(self) -> Report | None:
        """The report with the most victims, over all seeds that were tried."""
        return max(self.reports, key=lambda report: len(report.worst.victims), default=None)

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of the reports."""
        return worst_verdict(report.verdict for report in self.reports)

    def __str__(self) -> str:
        """Returns in a few words which parties the worst coalition exposes."""
        if self.reports:
            return summarize_exposure(self.reports)
        return "" if self.why is None else render_note(self.why)


def exposure(checked: CheckedRun) -> Exposure:
    """Audits the settings of a run for single parties, the server, and the number of colluding parties it is meant to
    resist."""
    protocol, terms = checked.protocol, checked.terms
    if too_long(protocol, terms):
        return Exposure(why=Remark.of(NoteCode.TOO_LONG, argument=""))
    scope = Scope(protocol, terms, 1, "free", length=checked.length)
    reports: list[Report] = []
    try:
        auditor = Auditor(scope)
        for sample in choose_by_size(scope, checked.adversary):
            reports += [auditor.report(kind.coalition) for kind in sample.kinds]
    except NotLinear as error:
        return Exposure(why=Remark.of(NoteCode.NOT_LINEAR, error=str(error)))
    return Exposure(tuple(reports))
