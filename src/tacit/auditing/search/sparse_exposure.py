"""Exposure of sparse vectors at full length: which selections of an entry expose it, and how often these occur.

The deployed code is run once on symbols, with one selection pattern at each position. From this run the structure of
every party's view is read (`engine.patterns.view_structure`). With it, every pattern that matters to a coalition is
solved. A pattern is weighted by its probability, or by the number of entries of given vectors at which it occurs. A
pattern that exposes a party is then itself run on symbols and on numbers. Without such a structure, entries are
sampled.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np

from tacit.auditing.engine.patterns.entry_patterns import bound_probability, spread_patterns
from tacit.auditing.engine.patterns.pattern_solver import Pattern, SolvedPatterns, Views, solve_patterns
from tacit.auditing.engine.patterns.view_structure import Bools, PartyView, agrees, read_views
from tacit.auditing.engine.symbolic_run import Knowledge, SymbolicRun
from tacit.auditing.findings import CONFIDENCE, LEAST_PROBABILITY, EntryExposure, PatternBasis
from tacit.auditing.scope import Scope
from tacit.core.progress import report_step
from tacit.core.protocol_facts import EntrySelection
from tacit.core.suite import Party
from tacit.protocols import is_shipped

PATTERNS_RUN = 32
"""The least number of patterns that are run on symbols."""
SAMPLED_ENTRIES = 64
"""Number of entries that are sampled if views have no structure."""
ROUNDS_RUN = 2
"""The largest number of rounds that are run if one round represents all others."""
Coalition: TypeAlias = tuple[Party, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class ExposingPatterns:
    """Exposure of sparse vectors to one coalition, with patterns that show it."""

    exposure: EntryExposure
    patterns: Mapping[Party, Pattern]
    """For each victim, the most frequent pattern that exposes it: by round and party."""
    group: int | None = None
    """Fewest parties that the coalition cannot tell apart; None if it learns nothing."""
    nearly: tuple[Party, ...] = ()
    """Parties whose sampled entries the coalition recovers not exactly, but so closely that it makes no difference."""

    @property
    def victims(self) -> list[Party]:
        """Parties whose entries the coalition recovers, exactly or nearly."""
        return [*(self.exposure.by_victim if self.exposure.exposes else ()), *self.nearly]


class SparseExposure:
    """Exposure of sparse vectors, computed for one coalition after another from one run on symbols."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self._places = scope, {party: place for place, party in enumerate(scope.parties)}
        self._views: dict[Party, tuple[PartyView, ...] | None] = {}
        self._readable: dict[Coalition, bool] = {}
        self._found: dict[tuple[Coalition, int], ExposingPatterns] = {}
        self._alike = not scope.faults and not scope.stand_ins
        """Whether all rounds are equivalent except for the selections."""
        self._rule = scope.terms.selection

    # --- the run on symbols -----------------------------------------------------------------------------------------

    @cached_property
    def _patterns(self) -> Bools:
        """Patterns at the positions of the run, a row for each party."""
        scope, places = self.scope, self._places
        heard = np.zeros((len(places), len(places)), dtype=np.bool_)
        for party, place in places.items():
            heard[place, [places[peer] for peer in scope.terms.peers(party) if peer in places and peer != party]] = True
        return spread_patterns(heard, PATTERNS_RUN, scope.seed)

    @cached_property
    def _schedule(self) -> list[Bools]:
        """Patterns at the positions of each round. If entries are the same in two rounds, the second has other
        patterns."""
        patterns = self._patterns
        return [patterns, np.roll(patterns, 1, axis=1)] if self.scope.static and self.scope.rounds > 1 else [patterns]

    @cached_property
    def prescribed(self) -> bool:
        """Whether the protocol can be given a selection. Malicious parties select what they like."""
        told = self._rule is not None and not self.scope.stand_ins
        return told and self.scope.terms.prescribe([self._patterns]) is not None

    @cached_property
    def run(self) -> SymbolicRun:
        """The rounds on symbols with a pattern at each position; only a few rounds if these represent all others."""
        if not self.prescribed:
            return self._sampled_run
        rounds = min(self.scope.rounds, ROUNDS_RUN) if self._alike else self.scope.rounds
        return self._run_patterns(self._schedule, replace(self.scope, rounds=rounds))

    @cached_property
    def _sampled_run(self) -> SymbolicRun:
        """The rounds on symbols with entries that parties select themselves."""
        return SymbolicRun(replace(self.scope, entries=SAMPLED_ENTRIES))

    def _run_patterns(self, rounds: Sequence[Bools], scope: Scope) -> SymbolicRun:
        """Returns a run with given patterns at its positions."""
        terms = scope.terms.prescribe(rounds)
        if terms is None:
            raise ValueError("these terms prescribe nothing")
        return SymbolicRun(replace(scope, terms=terms, entries=rounds[0].shape[1], vectors=None))

    @cached_property
    def _source(self) -> SymbolicRun:
        """The run from which views are read. Its entries are new in each round, unless rounds are equivalent."""
        if self._alike or not self.scope.static or self.scope.rounds == 1:
            return self.run
        return self._run_patterns([self._patterns], replace(self.scope, drift="free"))

    # --- views ------------------------------------------------------------------------------------------------------

    def _view(self, party: Party) -> tuple[PartyView, ...] | None:
        """Returns the views of a party, one per round, or one that represents all rounds."""
        if party not in self._views:
            rounds = 1 if self._alike else self.scope.rounds
            self._views[party] = read_views(self._source, party, [self._patterns], rounds)
        return self._views[party]

    def _views_of(self, coalition: Coalition, rounds: Sequence[int]) -> Views | None:
        """Returns the views of the members in some rounds; None if they have no structure."""
        found = []
        for party in coalition:
            if party in self._places:
                views = self._view(party)
                if views is None:
                    return None
                found.append([views[(number - 1) % len(views)] for number in rounds])
        return found

    def _has_structure(self, coalition: Coalition) -> bool:
        """Says whether the members' views determine what a coalition learns, at every pattern that was run."""
        if coalition not in self._readable:
            views = (
                {party: self._view(party) for party in coalition if party in self._places} if self.prescribed else {}
            )
            readable = self.prescribed and None not in views.values()
            # For a single member in a single round, this was checked when its view was read.
            if readable and (len(coalition) > 1 or len(views) != 1 or self.run.scope.rounds > 1):
                known = {party: view for party, view in views.items() if view is not None}
                readable = agrees(self.run, known, coalition, self._schedule)
            self._readable[coalition] = readable
        return self._readable[coalition]

    # --- exposure ---------------------------------------------------------------------------------------------------

    def search(self, coalition: Coalition, rounds: int | None = None) -> ExposingPatterns:
        """Returns what a coalition recovers in the rounds of the scope or in fewer, with patterns that show it."""
        rounds = self.scope.rounds if rounds is None else rounds
        if (coalition, rounds) not in self._found:
            report_step(f"counting the entries that a coalition of {len(coalition)} can recover")
            if self._rule is None or not self._has_structure(coalition):
                found = self._sample_entries(coalition, rounds)
            else:
                found = self._solve_rounds(coalition, rounds, self._rule)
            self._found[coalition, rounds] = found
        return self._found[coalition, rounds]

    def screen(self, coalitions: Iterable[Coalition]) -> Coalition | None:
        """Returns the coalition that recovers most entries of a round by its members' views; None if no coalition
        recovers any.

        A coalition learns at least what its members learn. So a found exposure is real, but a coalition without one
        need not be harmless.
        """
        worst, most = None, 0.0
        for coalition in coalitions:
            views = self._views_of(coalition, (1,)) if self.prescribed else None
            if views is None or self._rule is None:
                continue
            chance = self._solve(coalition, views, self._rule).exposed
            if chance > most and _at_least_one([chance], self.scope.length) >= LEAST_PROBABILITY:
                worst, most = coalition, chance
        return worst

    def prove(self, coalition: Coalition) -> Knowledge:
        """Returns what a coalition learns in a run of the exposing patterns, for recipes."""
        found = self.search(coalition)
        if not found.patterns:
            return self._sampled_run.knowledge(coalition, self.scope.rounds)
        return self._prove(coalition, found)

    def _prove(self, coalition: Coalition, found: ExposingPatterns) -> Knowledge:
        every = np.stack(list(found.patterns.values()))  # By victim, round and party.
        rounds = [np.ascontiguousarray(every[:, number].T) for number in range(every.shape[1])]
        run = self._run_patterns(rounds, replace(self.scope, rounds=len(rounds)))
        return run.knowledge(coalition, len(rounds))

    def _solve_rounds(self, coalition: Coalition, rounds: int, rule: EntrySelection) -> ExposingPatterns:
        """Returns what a coalition recovers over some rounds, by its members' views."""
        if rule.select is not None and self.scope.vectors is not None:
            return self._count_entries(coalition, rounds, rule)
        if not (self.scope.tied and rounds > 1):
            return self._weigh(coalition, rounds, rule, static=self.scope.static)
        # Models that drift little may reveal as much over several rounds as static ones.
        fresh = self._weigh(coalition, rounds, rule, static=False)
        still = fresh if fresh.exposure.exposes else self._weigh(coalition, rounds, rule, static=True)
        if fresh.exposure.exposes or not still.exposure.exposes or not self._prove(coalition, still).victims:
            return fresh
        return replace(still, exposure=replace(still.exposure, if_static=True, exact=False))

    def _count_entries(self, coalition: Coalition, rounds: int, rule: EntrySelection) -> ExposingPatterns:
        """Returns what a coalition recovers of given vectors: in the first round, or in all rounds while they are
        static."""
        scope = self.scope
        solved = self._solve(coalition, self._views_of(coalition, (1,)) or (), rule)
        # Static vectors select the same entries again. The later selections of other vectors are unknown.
        counted = rounds if scope.static and self._alike and scope.terms.period == 1 else 1
        exposure = EntryExposure(
            PatternBasis.VECTORS,
            scope.length,
            counted,
            solved.exposed,
            float(solved.exposed > 0),
            self._name(solved.by_victim),
            solved.count,
            exact=is_shipped(scope.protocol),
            safe_rounds=0 if solved.exposed else counted,
        )
        return ExposingPatterns(exposure, self._name(solved.patterns), solved.group)

    def _weigh(self, coalition: Coalition, rounds: int, rule: EntrySelection, *, static: bool) -> ExposingPatterns:
        """Returns what a coalition is expected to recover, from the probabilities of selections."""
        length, every = self.scope.length, range(1, rounds + 1)
        # Entries that are new in each round are exposed within one round or not at all.
        groups = [tuple(every)] if static else [(1,)] if self._alike else [(number,) for number in every]
        times = length * (rounds if self._alike and not static else 1)
        parts = [self._solve(coalition, self._views_of(coalition, group) or (), rule) for group in groups]
        sampled = [part for part in parts if part.hits is not None]
        basis = PatternBasis.PROBABILITY if rule.select is None else PatternBasis.ASSUMED
        by_victim: dict[int, float] = {}
        patterns: dict[int, Pattern] = {}
        for part, group in zip(parts, groups, strict=True):
            for victim, chance in part.by_victim.items():
                by_victim[victim] = by_victim.get(victim, 0.0) + chance * times
                if victim not in patterns:
                    patterns[victim] = np.zeros((max(groups[-1]), len(self._places)), dtype=np.bool_)
                    patterns[victim][np.array(group) - 1] = part.patterns[victim]
        exposure = EntryExposure(
            PatternBasis.SAMPLED if sampled else basis,
            length,
            rounds,
            sum(part.exposed for part in parts) * times,
            _at_least_one([part.exposed for part in parts], times),
            self._name(by_victim),
            sum(part.count for part in parts),
            vectors=1 if static else rounds,
            most_entries=_bound_entries(parts, times) if sampled else None,
            exact=not sampled and rule.select is None and is_shipped(self.scope.protocol),
            safe_rounds=rounds,
        )
        if exposure.exposes:
            # Knowledge only grows, so a binary search finds the first round that exposes somebody.
            fewer = bisect_left(
                range(1, rounds), True, key=lambda many: self._probability(coalition, many, rule, static, parts)
            )
            exposure = replace(exposure, safe_rounds=fewer)
        smallest = min((part.group for part in parts if part.group is not None), default=None)
        return ExposingPatterns(exposure, self._name(patterns), smallest)

    def _probability(
        self, coalition: Coalition, rounds: int, rule: EntrySelection, static: bool, parts: Sequence[SolvedPatterns]
    ) -> bool:
        """Says whether fewer rounds already expose some party, given the solution for all rounds."""
        if static:
            views = self._views_of(coalition, range(1, rounds + 1)) or ()
            return _at_least_one([self._solve(coalition, views, rule).exposed], self.scope.length) >= LEAST_PROBABILITY
        times = self.scope.length * (rounds if self._alike else 1)
        return _at_least_one([part.exposed for part in parts[:rounds]], times) >= LEAST_PROBABILITY

    def _solve(self, coalition: Coalition, views: Views, rule: EntrySelection) -> SolvedPatterns:
        scope = self.scope
        inside = np.array([party in coalition for party in scope.parties])
        least = LEAST_PROBABILITY / scope.length
        if rule.select is None or scope.vectors is None:
            return solve_patterns(views, inside, probability=rule.probability, seed=scope.seed, least=least)
        return solve_patterns(views, inside, selected=self._selected)

    @cached_property
    def _selected(self) -> Bools:
        """The entries that each of the given vectors selects."""
        vectors, select = self.scope.vectors, None if self._rule is None else self._rule.select
        if vectors is None or select is None:
            raise ValueError("no vectors select entries here")
        return np.stack([select(np.asarray(vectors[party], dtype=np.float64)) for party in self.scope.parties])

    def _name(self, of: Mapping[int, T]) -> dict[Party, T]:
        """Returns a mapping by the names of the parties instead of their places."""
        return {self.scope.parties[place]: of[place] for place in sorted(of)}

    # --- sampled entries
    # -----------------------------------------------------------------------------------------------

    def _sample_entries(self, coalition: Coalition, rounds: int) -> ExposingPatterns:
        """Returns what a coalition recovers of sampled entries, and an estimate for all others."""
        scope, run = self.scope, self._sampled_run
        known = run.knowledge(coalition, rounds)
        alone = np.count_nonzero(known.rows, axis=1) == 1
        exposed = known.at[known.rows[alone].argmax(axis=1)] if alone.any() else known.at[:0]
        hits, by_victim = len({entry for _, _, entry in exposed.tolist()}), dict[int, float]()
        for place, _, _ in exposed.tolist():
            by_victim[place] = by_victim.get(place, 0.0) + scope.length / run.entries
        exposure = EntryExposure(
            PatternBasis.SAMPLED,
            scope.length,
            rounds,
            scope.length * hits / run.entries,
            _at_least_one([hits / run.entries], scope.length),
            self._name(by_victim),
            run.entries,
            vectors=1 if scope.static else rounds,
            most_entries=scope.length * bound_probability(hits, run.entries, CONFIDENCE),
            safe_rounds=run.safe_rounds(coalition) if hits else rounds,
        )
        nearly = tuple(party for party in known.victims if party not in exposure.by_victim)
        return ExposingPatterns(exposure, {}, known.group, nearly)


def _bound_entries(parts: Sequence[SolvedPatterns], times: int) -> float:
    """Returns the upper bound on the expected number of exposed entries, where patterns were sampled."""
    return times * sum(
        part.exposed if part.hits is None else bound_probability(part.hits, part.count, CONFIDENCE) for part in parts
    )


def _at_least_one(chances: Sequence[float], times: int) -> float:
    """Returns the probability that at least one of some independent events happens, each of them repeated `times`
    times."""
    if any(chance >= 1.0 for chance in chances):
        return 1.0
    return float(-math.expm1(times * sum(math.log1p(-chance) for chance in chances)))
