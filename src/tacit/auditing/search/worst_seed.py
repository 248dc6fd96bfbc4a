"""Reports on the worst drawing of who takes part, for people: what they read first should not be a matter of luck."""

from tacit.auditing.report import Auditor, Report
from tacit.auditing.scope import Scope
from tacit.core.suite import Party


class AtWorst:
    """Reports on one coalition after another, each in the drawing in which most are exposed to it."""

    def __init__(self, scope: Scope, *, guard: bool = False) -> None:
        self._first, self._redrawn = Auditor(scope, guard=guard), dict[int, Auditor]()

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn, and proves it."""
        first = self._first.report(coalition)
        first.first_seed, worst = first.seed, first.unluckiest
        if worst is None:
            return first
        report = self._by(worst.seed).report(coalition)
        report.unlucky = tuple(
            each for each in (first.drawing, *first.unlucky) if each.victims and each.seed != worst.seed
        )
        report.first_seed = first.seed
        return report

    def _by(self, seed: int) -> Auditor:
        """Returns who reports on another drawing, which is looked at once for all coalitions."""
        if seed not in self._redrawn:
            before = self._first
            scope = before.scope.redrawn(seed - before.scope.seed)
            self._redrawn[seed] = Auditor(scope, small=before.small, luck=before.luck)
        return self._redrawn[seed]
