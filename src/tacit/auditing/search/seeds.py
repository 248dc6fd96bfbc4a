"""Search over seeds: what a coalition learns if participation is sampled with other seeds.

If a policy samples participants, or parties drop out at random, one seed says little about another. So the next seeds
are tried too, if that is quick.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from tacit.auditing.engine.multi_round import RehearsedRun
from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.scope import Scope
from tacit.auditing.search.sparse_exposure import SparseExposure
from tacit.auditing.search.worst_case import WorstCase
from tacit.core.errors import TacitError
from tacit.core.progress import report_step
from tacit.core.suite import ONLOOKER, Party
from tacit.protocols import is_shipped

SEEDS_TRIED = 8
"""Seeds that are tried, including the one in question."""
MOST_REHEARSED = 2_000_000
"""Product of rounds and the square of parties up to which several seeds are tried, if only sums are analysed."""
MOST_RUN = 1_000
"""Messages, shares and masks of all rounds up to which several seeds are tried, if rounds are run."""


class SeedResult(NamedTuple):
    """Victims with one seed."""

    seed: int
    victims: tuple[Party, ...]
    safe_rounds: int


class SeedSearch:
    """Runs with other seeds, analysed for one coalition after another."""

    def __init__(self, scope: Scope, worst_case: WorstCase) -> None:
        self._scope, self._worst_case = scope, worst_case

    def seeds_tried(self, coalition: Sequence[Party]) -> int:
        """Returns the number of seeds tried, including the one in question; 0 if nothing is sampled."""
        if not self._scope.sampled:
            return 0
        return 1 if ONLOOKER in coalition else 1 + len(self._others)

    def exposing_seeds(self, coalition: Sequence[Party]) -> tuple[SeedResult, ...]:
        """Returns the other seeds with which a coalition can recover somebody's vector."""
        if self.seeds_tried(coalition) < 2:
            return ()
        found = (self._try_seed(run, coalition) for run in self._others)
        return tuple(each for each in found if each.victims)

    @cached_property
    def _others(self) -> list[RehearsedRun | SymbolicRun | SparseExposure]:
        """Runs with the other seeds; none if they would take too long, or cannot be made."""
        scope, terms = self._scope, self._scope.terms
        if not scope.sampled or not is_shipped(scope.protocol) or scope.stand_ins:
            return []
        others = [scope.with_later_seed(number) for number in range(1, SEEDS_TRIED)]
        try:
            if scope.protocol.choice is not None and terms.rounds_alike:
                work = scope.rounds * len(scope.parties) ** 2
                in_time = work * (len(scope.parties) if scope.tied else 1) <= MOST_REHEARSED
                return [RehearsedRun(each, self._worst_case, checked=False) for each in others if in_time]
            in_time = scope.rounds * terms.work <= MOST_RUN
            if terms.selective:
                found = [SparseExposure(each) for each in others if in_time]
                return [each for each in found if each.run.averages]
            return [SymbolicRun(each) for each in others if in_time]
        except TacitError:
            return []  # Rounds that fail cannot be rehearsed, or not on symbols.

    def _try_seed(self, run: RehearsedRun | SymbolicRun | SparseExposure, coalition: Sequence[Party]) -> SeedResult:
        rounds = self._scope.rounds
        report_step(f"trying seed {run.scope.seed - self._scope.seed + 1} of {SEEDS_TRIED}")
        if isinstance(run, RehearsedRun):
            sums = run.sums(coalition)
            return SeedResult(run.scope.seed, tuple(sums.victims), sums.safe_rounds)
        if isinstance(run, SparseExposure):
            found = run.search(tuple(coalition))
            return SeedResult(run.scope.seed, tuple(found.victims), found.exposure.safe_rounds)
        victims = run.knowledge(coalition, rounds).victims
        return SeedResult(run.scope.seed, tuple(victims), run.safe_rounds(coalition) if victims else rounds)
