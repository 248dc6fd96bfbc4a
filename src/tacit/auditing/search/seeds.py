"""Other luck: what a coalition learns if chance decides otherwise who takes part.

Where a policy draws who is asked, or parties drop out by chance, an audit looks at one drawing, and who is exposed in
it says little of the next. So some more are looked at, by the seeds that follow, as long as that takes little.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from tacit.auditing.engine.multi_round import RehearsedRun
from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.scope import Scope
from tacit.auditing.search.worst_case import Smallest
from tacit.core.errors import TacitError
from tacit.core.progress import report_step
from tacit.core.suite import ONLOOKER, Party
from tacit.protocols import is_shipped

DRAWINGS = 8
"""Drawings that are looked at, the one that was asked about among them."""
MOST_REHEARSED = 2_000_000
"""Rounds times the square of parties up to which there is time for several drawings, if only sums have to be chosen,"""
MOST_RUN = 1_000
"""and messages, shares and masks of all rounds together, if they have to be run."""


class Drawing(NamedTuple):
    """Who is exposed if chance decides by another seed."""

    seed: int
    victims: tuple[Party, ...]
    safe_rounds: int


class Luck:
    """Other drawings of who takes part, looked at by one coalition after another."""

    def __init__(self, scope: Scope, small: Smallest) -> None:
        self._scope, self._small = scope, small

    def drawings(self, coalition: Sequence[Party]) -> int:
        """Returns how many drawings are looked at, the one that was asked about among them; 0 if nothing is drawn."""
        if not self._scope.drawn:
            return 0
        return 1 if ONLOOKER in coalition else 1 + len(self._others)

    def exposing(self, coalition: Sequence[Party]) -> tuple[Drawing, ...]:
        """Returns the other drawings in which a coalition can work out anybody's vector."""
        if self.drawings(coalition) < 2:
            return ()
        found = (self._looked(run, coalition) for run in self._others)
        return tuple(each for each in found if each.victims)

    @cached_property
    def _others(self) -> list[RehearsedRun | SymbolicRun]:
        """The other drawings; none if they would take too long, or cannot be made."""
        scope, terms = self._scope, self._scope.terms
        if not scope.drawn or not is_shipped(scope.protocol) or scope.stand_ins:
            return []
        others = [scope.redrawn(number) for number in range(1, DRAWINGS)]
        try:
            if scope.protocol.choice is not None and terms.rounds_alike:
                work = scope.rounds * len(scope.parties) ** 2
                in_time = work * (len(scope.parties) if scope.tied else 1) <= MOST_REHEARSED
                return [RehearsedRun(each, self._small, checked=False) for each in others if in_time]
            in_time = scope.rounds * terms.work <= MOST_RUN
            return [SymbolicRun(each) for each in others if in_time]
        except TacitError:
            return []  # what goes wrong cannot be rehearsed, or not on unknowns

    def _looked(self, run: RehearsedRun | SymbolicRun, coalition: Sequence[Party]) -> Drawing:
        rounds = self._scope.rounds
        report_step(f"if chance decides otherwise, drawing {run.scope.seed - self._scope.seed + 1} of {DRAWINGS}")
        if isinstance(run, RehearsedRun):
            sums = run.sums(coalition)
            return Drawing(run.scope.seed, tuple(sums.victims), sums.safe_rounds)
        victims = run.knowledge(coalition, rounds).victims
        return Drawing(run.scope.seed, tuple(victims), run.safe_rounds(coalition) if victims else rounds)
