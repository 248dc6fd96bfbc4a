"""Privacy loss of all rounds by the matrix accountant, for one coalition after another."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tacit.auditing.engine.multi_round import RehearsedRun
from tacit.auditing.engine.noisy_rows import NoisyRows, NotAccountable
from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.findings import Accounting, AccountingGap, AccountingMethod
from tacit.auditing.report import Report
from tacit.auditing.scope import Scope
from tacit.core.errors import ConfigError, NotLinear
from tacit.core.suite import Party
from tacit.privacy.epsilon_bounds import BoundKind, EpsilonBound
from tacit.privacy.matrix.accountant import PartyShare, account, noise_of_vector
from tacit.privacy.matrix.releases import NoisyVector, Releases, Row
from tacit.protocols import is_shipped

MOST_WORK = 30_000
"""The largest number of messages, shares and masks of all rounds of a run that is repeated with noise."""


class RunAccounting:
    """The matrix accountant's figures on one scope."""

    def __init__(self, scope: Scope, rehearsed: RehearsedRun | None) -> None:
        """Takes a scope with noise, and its rounds as sums if they were analysed by their sums."""
        self.scope, self._rehearsed = scope, rehearsed

    def apply(self, report: Report, by_sums: EpsilonBound, *, only_sums: bool) -> None:
        """Sets the ε of a report to the smaller of two bounds, and says how it was computed (see `compare`)."""
        report.accounting = found = self.compare(report.coalition, by_sums, only_sums=only_sums)
        if found.method is AccountingMethod.MATRIX:
            report.epsilon_bound = found.by_matrix

    def compare(self, coalition: tuple[Party, ...], by_sums: EpsilonBound, *, only_sums: bool) -> Accounting:
        """Returns the smaller of two bounds on ε, and how it was computed.

        The bound by sums relies on the noise of every vector, and on the protocol's own word for how often a vector is
        encoded. So it does not count if a vector has no noise, or if the protocol is not shipped.

        Args:
            coalition: The colluding parties.
            by_sums: The bound by the fewest parties in any sum.
            only_sums: Whether rounds were analysed by their sums alone.
        """
        shipped = is_shipped(self.scope.protocol)
        try:
            releases = (self._of_sums if only_sums else self._rows.releases)(coalition)
            shares = self._account(releases)
            found, victim, leverage = self._worst(shares)
            view_only = self._view_only(releases) if self.scope.view_only else None
        except NotAccountable as error:
            return _without_figure(by_sums, error.gap, shipped=shipped)
        except NotLinear:
            return _without_figure(by_sums, AccountingGap.NOT_LINEAR, shipped=shipped)
        counts = found.epsilon < by_sums.epsilon or found.kind is BoundKind.UNBOUNDED or not shipped
        method = AccountingMethod.MATRIX if counts else AccountingMethod.SMALLEST_SUM
        return Accounting(method, by_sums, found, None, victim, leverage, view_only, shares)

    def _view_only(self, releases: Releases) -> EpsilonBound:
        """Returns the bound if contributions were fixed in advance, so that nobody reacts to what they receive."""
        return self._worst(self._account(replace(releases, trained={})))[0]

    def _account(self, releases: Releases) -> tuple[PartyShare, ...]:
        linear = self._rehearsed is not None or self._rows.linear
        return tuple(account(releases, linear=linear).values())

    def _worst(self, shares: Sequence[PartyShare]) -> tuple[EpsilonBound, Party | None, float]:
        scope = self.scope
        try:
            noise = noise_of_vector(scope.terms, scope.length, sensitivity=scope.sensitivity, delta=scope.delta)
        except ConfigError:
            raise NotAccountable(AccountingGap.ROUNDING) from None
        worst, victim, leverage = EpsilonBound(0.0, BoundKind.NOTHING_SEEN), None, 0.0
        for share in shares:
            bound = share.bound(noise, scope.delta)
            if bound.epsilon > worst.epsilon:
                worst, victim, leverage = bound, share.party, share.leverage
        return worst, victim, leverage

    @cached_property
    def _rows(self) -> NoisyRows:
        scope = self.scope
        if scope.stand_ins:
            raise NotAccountable(AccountingGap.STAND_INS)
        if scope.terms.selective:
            raise NotAccountable(AccountingGap.ENTRIES_DIFFER)
        if scope.terms.work * scope.rounds > MOST_WORK:
            raise NotAccountable(AccountingGap.TOO_LARGE)
        rows = NoisyRows(SymbolicRun(scope, noisy=True))
        if not rows.linear and is_shipped(scope.protocol):
            raise NotAccountable(AccountingGap.ROUNDED)  # The account would count own noise alone, as is known already.
        return rows

    def _of_sums(self, coalition: tuple[Party, ...]) -> Releases:
        """Returns the sums that a coalition sees, and those that everybody trains on."""
        if self._rehearsed is None or not is_shipped(self.scope.protocol):
            raise NotAccountable(AccountingGap.TOO_LARGE)
        rehearsed = self._rehearsed
        rows, rounds = rehearsed.matrix(coalition)
        seen = [
            Row({NoisyVector(rehearsed.names[place], number): 1 for place in row.nonzero()[0].tolist()})
            for row, number in zip(rows, rounds, strict=True)
        ]
        trained: dict[tuple[Party, int], list[Row]] = {}
        for number, each in enumerate(rehearsed.sets, start=1):
            total = [Row.sum_of(each.summed, number)]
            trained |= dict.fromkeys(((party, number) for party in self.scope.parties), total)
        return Releases(frozenset(coalition), seen, trained)


def _without_figure(by_sums: EpsilonBound, gap: AccountingGap, *, shipped: bool) -> Accounting:
    """Returns the bound by sums for a shipped protocol, and no bound for any other."""
    if shipped:
        return Accounting(AccountingMethod.SMALLEST_SUM, by_sums, gap=gap)
    return Accounting(AccountingMethod.MATRIX, by_sums, EpsilonBound(math.inf, BoundKind.UNBOUNDED), gap)
