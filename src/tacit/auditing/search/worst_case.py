"""Worst case of dropouts and samples: what a coalition learns from the smallest sum that the settings allow.

A sum of many vectors hides each of them. A sum of few does not, because colluding members can subtract their own. So
settings are judged by the smallest sum that they allow, and not by a round without dropouts. If the server samples
contributors, the coalition is in the sample: any sample may occur, and a malicious server can choose it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tacit.auditing.engine.algebra.linear import Echelon
from tacit.auditing.engine.mask_rank import check_masks
from tacit.auditing.engine.symbolic_run import Knowledge, SymbolicRun
from tacit.auditing.proofs import arguments_for, name_covering_argument
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.errors import NotLinear
from tacit.core.progress import report_step
from tacit.core.protocol import Protocol, Terms
from tacit.core.suite import SERVER, Party
from tacit.protocols import is_shipped
from tacit.runtime.simulation.faults import Fault

MOST_RUNS = 32
"""The largest number of worst cases that are analysed. If parties are not interchangeable, each coalition has its
own."""


class WorstCase:
    """Rounds with the fewest contributors, analysed for one coalition after another."""

    def __init__(self, scope: Scope) -> None:
        # For protocols that are not shipped, a dropout is tried whatever their terms say, and so is the round after it.
        self._foreign = not is_shipped(scope.protocol)
        rounds, entries = (2, scope.entries) if self._foreign else (1, 1)
        if not self._foreign and scope.protocol.choice is None and not scope.terms.rounds_alike:
            rounds = min(scope.rounds, scope.terms.period)  # The worst round may be a later one of a public schedule.
        # Over two rounds with static models, the difference of two sums is the vector of a party that drops out of one.
        drift: Drift = "free" if rounds > 1 else "static"
        plain = replace(scope, vectors=None, noise=0.0, drift=drift)
        self._scope = replace(plain, rounds=rounds, faults=(), entries=entries)
        # At an entry that every remaining party selects, as few parties share it as the settings allow.
        everybody = np.ones((len(scope.parties), 2), dtype=np.bool_)
        terms = scope.terms.prescribe([everybody]) if scope.terms.selective and not scope.stand_ins else None
        if terms is not None:
            self._scope = replace(self._scope, terms=terms)
        self._runs: dict[tuple[Any, ...], SymbolicRun] = {}
        self._last: tuple[SymbolicRun, tuple[Party, ...], Knowledge] | None = None
        # If places do not matter, or only by sampling, the coalition of the first parties represents all, with one run.
        policy = scope.terms.participation
        same = policy is not None and policy.interchangeable
        self._alike = is_shipped(scope.protocol) and not scope.stand_ins and (same or scope.terms.ties() == ())

    def is_covered(self, coalition: Sequence[Party]) -> bool:
        """Says whether the worst case of this coalition is known: there was time to run it, or an argument covers it.

        In a sparse graph, users may refuse the dropouts that were tried, and accept others. A round that ends early is
        therefore no evidence.
        """
        case = self._case(coalition, 1)
        if case is None:
            return True
        if case[0] not in self._runs and len(self._runs) >= MOST_RUNS:
            return False
        run = self.run(coalition)
        if self._foreign or run is None or run.aborted is None:
            return True
        scope = self._scope
        return any(each.dropouts for each in arguments_for(scope.protocol, scope.terms, len(coalition), drift="free"))

    def compare_rounds(self, asked: Scope, coalition: Sequence[Party]) -> tuple[str, bool]:
        """Returns the argument that covers all rounds in question, if there is one, and whether some were not
        compared."""
        argument = name_covering_argument(asked, coalition)
        return argument, not argument and self.leaves_uncompared(asked, coalition)

    def leaves_uncompared(self, asked: Scope, coalition: Sequence[Party]) -> bool:
        """Says whether dropouts, which the rounds in question leave out, could make rounds with different contributors.

        This worst case is one round by itself. With models that are not new in every round, two sums of different
        contributors can be subtracted.
        """
        if asked.rounds == 1 or asked.dropout or asked.faults or asked.drift == "free":
            return False
        return (not self._foreign and self._case(coalition, 1) is not None) or self._tolerates

    @cached_property
    def _tolerates(self) -> bool:
        return tolerates(self._scope.protocol, self._scope.terms)

    def members(self, coalition: Sequence[Party]) -> tuple[Party, ...]:
        """Returns the coalition that represents this one."""
        if not self._alike:
            return tuple(coalition)
        count = sum(party in self._scope.terms.parties for party in coalition)
        return (*(party for party in coalition if party == SERVER), *self._scope.parties[:count])

    def victims(self, coalition: Sequence[Party], known: Knowledge) -> tuple[Party, ...]:
        """Returns the parties that a coalition exposes, derived from the victims of the coalition that represents
        it."""
        return self._rename(coalition, known.victims)

    def contributors(self, coalition: Sequence[Party], known: Knowledge) -> tuple[Party, ...]:
        """Returns the contributors to the sum of a worst case; without a sum, the parties that remain."""
        absent = {fault.party for fault in known.run.scope.faults}
        return self._rename(coalition, known.run.contributors[0] or [p for p in self._scope.parties if p not in absent])

    def samples_over_rounds(
        self, coalition: Sequence[Party], rounds: int
    ) -> tuple[tuple[Party, ...], tuple[tuple[Party, ...], ...]]:
        """Returns the parties that a coalition exposes with the worst samples of several rounds, and these samples.

        Models are static. A server may sample these sets, one in each round, and the coalition compares their sums.
        That a round shows its sum needs no run. Both results are empty if so many rounds single out nobody.
        """
        scope, policy = self._scope, self._scope.terms.participation
        parties = scope.parties
        if policy is None or self._foreign or policy.sums_everybody(len(parties)):
            return (), ()
        members = [place for place, party in enumerate(parties) if party in coalition]
        sets = policy.separating_sets(members, len(parties))
        echelon = Echelon(len(parties))
        for each in sets if len(sets) <= rounds else ():
            row = np.zeros(len(parties), dtype=np.int64)
            row[list(each)] = 1
            row[members] = 0
            echelon.take(row)
        found = tuple(parties[place] for place in sorted(echelon.list_determined()))
        return found, tuple(scope.terms.parties.names_at(sorted(each)) for each in sets) if found else ()

    def is_sample(self, known: Knowledge) -> bool:
        """Says whether a worst case is a sample of contributors, and not dropouts."""
        return known.run.scope.terms is not self._scope.terms

    def _rename(self, coalition: Sequence[Party], found: Iterable[Party]) -> tuple[Party, ...]:
        """Returns parties of this coalition's worst case, derived from those of the coalition that represents it."""
        parties = self._scope.parties

        def order_parties(members: Sequence[Party]) -> list[Party]:
            own = [party for party in members if party in parties]
            return [*own, *(party for party in parties if party not in own)]

        names = dict(zip(order_parties(self.members(coalition)), order_parties(coalition), strict=True))
        renamed = {names[party] for party in found}
        return tuple(party for party in parties if party in renamed)

    def run(self, coalition: Sequence[Party], others: int = 1) -> SymbolicRun | None:
        """Returns the run of a round with the fewest contributors besides a coalition; None if rounds do not get
        smaller."""
        case = self._case(coalition, others)
        if case is None:
            return None
        key, scope = case
        if key not in self._runs:
            self._runs[key] = SymbolicRun(scope)
        return self._runs[key]

    def _case(self, coalition: Sequence[Party], others: int) -> tuple[tuple[Any, ...], Scope] | None:
        """Returns the scope of a worst case and a key that identifies it; None if no sum is smaller than others."""
        users = tuple(party for party in self.members(coalition) if party in self._scope.parties)
        if (terms := self._scope.terms.prescribe_sample(users, others)) is not None:
            return (users, others), replace(self._scope, terms=terms)
        faults = self._faults(coalition, others)
        return None if faults is None else (faults, replace(self._scope, faults=faults))

    def _faults(self, coalition: Sequence[Party], others: int) -> tuple[Fault, ...] | None:
        """Returns the faults that leave only these contributors."""
        found = self._scope.terms.worst_dropouts(self.members(coalition), others)
        if found is None:
            missing = [party for party in self._scope.parties if party not in coalition][1:]
            return (Fault(action="silence", party=missing[-1], round=1),) if self._foreign and missing else None
        absent, late = found
        choice = self._scope.protocol.choice
        faults = [Fault(action="silence", party=party) for party in absent]
        if choice is not None:
            faults += [Fault(action="drop", message=choice.delivery.kind(), party=party) for party in late]
        return tuple(faults)

    def knowledge(self, coalition: Sequence[Party], others: int = 1) -> Knowledge | None:
        """Returns what a coalition, or the one that represents it, learns in its worst case; None if there is none."""
        members, run = self.members(coalition), self.run(coalition, others)
        if run is None or run.aborted:
            return None
        if self._last is None or self._last[0] is not run or self._last[1] != members:
            report_step("analysing the worst case of dropouts")
            known = run.knowledge(members, run.scope.rounds)
            check_masks(self._scope.protocol, members, known.view)
            self._last = run, members, known
        # If the terms name no dropouts, the single dropout that was tried is not the worst case, so a safe result says
        # little.
        terms = self._scope.terms
        named = (terms.prescribe_sample(members, others) or terms.worst_dropouts(members, others)) is not None
        return self._last[2] if named or self._last[2].victims else None


def tolerates(protocol: Protocol, terms: Terms) -> bool:
    """Says whether a round can finish without a party."""
    if protocol.needs_everybody:
        return False
    scope = Scope(protocol, terms, 1, "free", faults=(Fault(action="silence", party=terms.parties[-1]),))
    try:
        return SymbolicRun(scope).aborted is None
    except NotLinear:
        return True
