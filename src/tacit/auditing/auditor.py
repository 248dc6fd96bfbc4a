"""The auditor: computes from one symbolic run what any coalition learns, and proves it on a real transcript."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import smallest_class
from tacit.auditing.engine.algebra.precision import largest_group
from tacit.auditing.engine.mask_rank import check_masks
from tacit.auditing.engine.multi_round import RehearsedRun, Together
from tacit.auditing.engine.noisy_replay import NoisyReplay
from tacit.auditing.engine.recipes import Recipe, SumRecipe
from tacit.auditing.engine.run_accounting import RunAccounting
from tacit.auditing.engine.soundness.checks import check_soundness
from tacit.auditing.engine.symbolic_run import Knowledge, SymbolicRun
from tacit.auditing.findings import NoteCode, Remark
from tacit.auditing.report import Report
from tacit.auditing.scope import Scope
from tacit.auditing.search.seeds import SeedSearch
from tacit.auditing.search.sparse_exposure import ExposingPatterns, SparseExposure
from tacit.auditing.search.worst_case import WorstCase
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.average import list_names
from tacit.core.errors import ConfigError, NotLinear
from tacit.core.progress import report_step
from tacit.core.suite import ONLOOKER, Party
from tacit.privacy.distributed_noise import shared_noise
from tacit.privacy.epsilon_bounds import BoundKind, EpsilonBound
from tacit.protocols import is_shipped

EXACT_ROUNDS = 16
"""The largest number of rounds that are all run. Longer series are analysed by their sums, if a round shows only its
sum."""
HEARD_ROUNDS = 2
"""Number of rounds that are run for an eavesdropper, who sees more than sums, if there are more than `EXACT_ROUNDS`."""
MOST_GUARDED = 500
"""The largest number of messages, shares and masks per round at which a shipped protocol is checked for soundness."""
PROVED = 1e-3
"""The largest error of a replayed recipe that counts as a proof, relative to the largest replayed entry."""


class Assessment(NamedTuple):
    """Result of an audit of one coalition, without recipes and their proof."""

    victims: list[Party]
    safe_rounds: int
    smallest_group: int


class Auditor:
    """Reports on one coalition after another, all from one symbolic run."""

    def __init__(
        self,
        scope: Scope,
        *,
        rehearse: bool = False,
        worst_case: WorstCase | None = None,
        guard: bool = False,
        seeds: SeedSearch | None = None,
        once: bool = False,
    ) -> None:
        """Takes a scope. Raises NotLinear or NotAuditable if symbols cannot represent all that the parties send.

        Soundness checks always run for protocols that are not shipped. For shipped ones they run only with `guard`, and
        only if they are fast; tests run them for all shipped protocols.

        Args:
            scope: The protocol, its terms and the rounds to analyse.
            rehearse: Whether to analyse the sums alone where that is possible, also if there are few rounds.
            worst_case: The worst case of dropouts, if the caller already has it.
            guard: Whether to check the soundness of a shipped protocol too.
            seeds: The search over other seeds, if there is one.
            once: Whether one report is all that is asked for. The symbolic run is then freed before the worst case is
                run.
        """
        self._once = once
        if not is_shipped(scope.protocol) or (guard and scope.terms.work <= MOST_GUARDED):
            with _in_numbers():
                unlike = check_soundness(scope)
            if unlike is not None and scope.entries is None:
                scope = replace(scope, entries=unlike)
        self.scope = scope
        self.worst_case = worst_case or WorstCase(scope)
        self.seeds = seeds or SeedSearch(scope, self.worst_case)
        self.rehearsed: RehearsedRun | None = None
        many, alike = scope.rounds > EXACT_ROUNDS, scope.terms.rounds_alike and not scope.stand_ins
        if scope.protocol.choice is not None and (many or (rehearse and alike and is_shipped(scope.protocol))):
            if not alike:
                raise ConfigError(
                    f"under these settings no round of {scope.protocol.name} stands for another, as in a sparse graph; "
                    f"try: audit at most {EXACT_ROUNDS} rounds, or other settings"
                )
            self.rehearsed = RehearsedRun(scope, self.worst_case)
        self.accounting = RunAccounting(scope, self.rehearsed)

    @cached_property
    def sparse(self) -> SparseExposure | None:
        """The search over entry selections; None if parties do not select the entries that they share."""
        return SparseExposure(self.scope) if self.scope.terms.selective and self.rehearsed is None else None

    @cached_property
    def run(self) -> SymbolicRun:
        """The symbolic run: all rounds, or only the first ones if later rounds are analysed by their sums or are
        equivalent."""
        if self.sparse is not None:
            return self.sparse.run
        rounds = self.scope.rounds if self.rehearsed is None else HEARD_ROUNDS
        return SymbolicRun(replace(self.scope, rounds=rounds))

    def _replay_noisily(self, run: SymbolicRun) -> NoisyReplay:
        """Returns a replay of the rounds of a run, with the noise of the settings."""
        if run is self.run:
            return self._noisy_run
        return self._add_noise(run)

    @cached_property
    def _noisy_run(self) -> NoisyReplay:
        return self._add_noise(self.run)

    @staticmethod
    def _add_noise(run: SymbolicRun) -> NoisyReplay:
        entries, session = len(next(iter(run.brought[0].values()))), run.simulation.agreement.session
        return NoisyReplay(run.scope, entries, lambda number: run.brought[number - 1], session)

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn, with recipes that were replayed as proof.

        Raises ConfigError if no round ends with an average, or if numbers are too large or too small to compute with.
        """
        self.scope.check(coalition)
        report_step(f"analysing the view of {list_names(coalition)}")
        with _in_numbers():
            report = self._report(coalition)
            report.seeds_tried, report.exposing_seeds = (
                self.seeds.seeds_tried(coalition),
                self.seeds.exposing_seeds(coalition),
            )
            return report

    def _check_masks(self, coalition: tuple[Party, ...]) -> None:
        """Raises NotAuditable if the masks of a protocol that is not shipped hide less modulo 2^k than over the
        fractions."""
        if not is_shipped(self.scope.protocol):  # Tests show this for the shipped protocols.
            check_masks(self.scope.protocol, coalition, self.run.view(coalition, self.run.scope.rounds))

    def _report(self, coalition: tuple[Party, ...]) -> Report:
        self._check_masks(coalition)
        rehearsed = self._by_sums(coalition, whole=True)
        report = self._of_everything(coalition) if rehearsed is None else self._of_sums(rehearsed, coalition)
        if self._once and self._summed:
            self.__dict__.pop("run", None)  # It takes about as much memory as the worst case does.
        members = tuple(member for member in coalition if member != ONLOOKER)
        if members and members != coalition and self.rehearsed is not None:
            self._add(report, self._report(members))
        most = PROVED * self.scope.proof_size
        unproved = [victim for victim, error in report.proof_errors.items() if not error <= most]
        if unproved:
            report.notes += (Remark.of(NoteCode.REPLAY_FAILED, parties=tuple(unproved)),)
        if report.epsilon_bound is not None:
            self.accounting.apply(report, report.epsilon_bound, only_sums=rehearsed is not None)
        if ONLOOKER not in coalition and self.worst_case.is_covered(coalition):
            known = self.worst_case.knowledge(coalition)
            found = () if known is None else self.worst_case.victims(coalition, known)
            report.worst_contributors = None if known is None else self.worst_case.contributors(coalition, known)
            if known is not None and report.worst_contributors and self.worst_case.is_sample(known):
                report.worst_samples = (report.worst_contributors,)
            if not found and self.scope.static and self.scope.rounds > 1:
                found, samples = self.worst_case.samples_over_rounds(coalition, self.scope.rounds)
                report.worst_samples = samples or report.worst_samples
            report.at_worst = tuple(each for each in report.parties if each in {*found, *report.victims})
            report.argument, report.uncompared = self.worst_case.compare_rounds(self.scope, coalition)
            group = report.company if known is None else known.group
            worst = self._epsilon(self.company(coalition, group, at_worst=True))
            report.epsilon_bound_at_worst = _larger(worst, report.epsilon_bound)
        if report.epsilon and not report.by_matrix and report.smallest_group > 1 and self._passed_on(coalition):
            report.notes += (Remark.of(NoteCode.NOISE_OF_ONE),)
        return report

    def company(self, coalition: tuple[Party, ...], group: int | None, *, at_worst: bool = False) -> int | None:
        """Returns the number of parties whose noise counts for ε over all rounds.

        Args:
            coalition: The colluding parties.
            group: The size of the smallest anonymity set in the coalition's view; None if it saw nothing.
            at_worst: Whether to take the fewest contributors that the settings allow. This is always done where parties
                select entries, because only some entries were analysed.
        """
        terms = self.scope.terms
        if group is None:
            return None
        if self._passed_on(coalition):
            return 1
        if self.scope.rounds > 1:
            # A sum that the coalition missed is contained in the models that others send next, so it counts as seen.
            group = min([group, *(honest for each in self._summed if (honest := len(set(each) - set(coalition))))])
        if at_worst or terms.selective:
            fewest = terms.fewest_contributors(coalition) if is_shipped(self.scope.protocol) else None
            unknown = 1 if terms.selective else group
            group = min(group, unknown if fewest is None else fewest)
        return group

    @cached_property
    def _summed(self) -> list[tuple[Party, ...]]:
        """The parties whose vectors were summed, by round."""
        return self.run.contributors if self.rehearsed is None else [each.summed for each in self.rehearsed.sets]

    def _passed_on(self, coalition: tuple[Party, ...]) -> bool:
        """Says whether later rounds may contain values from earlier rounds that the coalition did not see.

        If all parties end a round with the same average and nothing else, later messages contain earlier noise only in
        the form that the coalition saw. Otherwise parties also keep what they received, and an adversary that compares
        rounds can subtract some of the earlier noise. It can never subtract a party's own noise.
        """
        scope = self.scope
        common = scope.protocol.common_result and is_shipped(scope.protocol)
        outside = scope.links is not None and set(coalition) == {ONLOOKER}  # The eavesdropper may have missed any sum.
        return scope.rounds > 1 and (outside or not common)

    def _epsilon(self, company: int | None) -> EpsilonBound | None:
        """Returns the ε of all rounds, if `company` parties' noise counts; None without noise or without a
        sensitivity."""
        scope = self.scope
        if not scope.noise or (scope.sensitivity is None and scope.terms.settings.norm is None):
            return None
        if company is None:
            return EpsilonBound(0.0, BoundKind.NOTHING_SEEN)
        noise = shared_noise(scope.terms, scope.length, sensitivity=scope.sensitivity, honest=company)
        return noise.best_epsilon(scope.delta, scope.rounds)

    @staticmethod
    def _add(report: Report, more: Report) -> None:
        """Adds to an eavesdropper's report what the other members learn, for whom more rounds were analysed."""
        report.safe_rounds = min(each.safe_rounds for each in (report, more) if each.exposed or each is more)
        report.exposed = {**more.exposed, **report.exposed}
        report.errors, report.fractions = more.errors | report.errors, more.fractions | report.fractions
        report.proof_errors = more.proof_errors | report.proof_errors
        report.bits = {party: max(bits, report.bits.get(party, 0.0)) for party, bits in more.bits.items()}
        report.nearly = tuple(party for party in {*report.nearly, *more.nearly} if party not in report.exposed)
        report.unsure = tuple(party for party in more.unsure if party not in {*report.exposed, *report.nearly})
        report.smallest_group = min(report.smallest_group, more.smallest_group)
        report.epsilon_bound = _larger(report.epsilon_bound, more.epsilon_bound)
        report.company = min((each.company for each in (report, more) if each.company is not None), default=None)

    def assess(self, coalition: tuple[Party, ...]) -> Assessment:
        """Returns the victims, safe rounds and anonymity set of a coalition, as in a report but without proof."""
        with _in_numbers():
            return self._assess(coalition)

    def _assess(self, coalition: tuple[Party, ...]) -> Assessment:
        self._check_masks(coalition)
        if (rehearsed := self._by_sums(coalition)) is not None:
            sums = rehearsed.sums(coalition)
            group = _group(sums.rows, len(sums.victims), sums.bits, self.scope)
            return Assessment(sums.victims, sums.safe_rounds, group)
        if self.sparse is not None:
            found = self._search(self.sparse, coalition)
            group = 1 if found.victims else found.group or len(self.scope.parties)
            return Assessment(found.victims, found.exposure.safe_rounds, group)
        known = self._knowledge(coalition)
        victims = known.victims
        safe = self.run.safe_rounds(coalition) if victims else self.run.scope.rounds
        bits = {} if known.only_sums else known.bits
        return Assessment(victims, safe, _group(known.rows, len(victims), bits, self.scope))

    def _by_sums(self, coalition: tuple[Party, ...], whole: bool = False) -> RehearsedRun | None:
        """Returns the rehearsed rounds if the coalition learns nothing from a round but its sum; otherwise None.

        For shipped protocols this was checked in the smallest allowed round; with `whole`, the first rounds are checked
        too.
        """
        rehearsed = self.rehearsed
        if rehearsed is None or ONLOOKER in coalition:
            return None
        foreign = not is_shipped(self.scope.protocol)
        return rehearsed if not (whole or foreign) or rehearsed.agrees(coalition) else None

    def recipes(self, coalition: tuple[Party, ...]) -> dict[Party, Recipe]:
        """Returns how a coalition recovers each victim's vector, or some entries of it. Rehearsed rounds have other
        recipes."""
        if self.sparse is None:
            known = self._knowledge(coalition)
        elif self._search(self.sparse, coalition).victims:
            known = self.sparse.prove(coalition)
        else:
            return {}
        return {victim: recipe for victim, recipe in known.recipes().items() if victim in known.victims}

    def _search(self, sparse: SparseExposure, coalition: tuple[Party, ...]) -> ExposingPatterns:
        found = sparse.search(coalition)
        if sparse.run.aborted is not None and not found.victims:
            raise _no_average(self.scope.rounds, f" ({sparse.run.aborted.message})") from sparse.run.aborted
        return found

    def _knowledge(self, coalition: tuple[Party, ...]) -> Knowledge:
        known = self.run.knowledge(coalition, self.run.scope.rounds)
        if self.run.aborted is not None and self.sparse is None and not known.victims:
            raise _no_average(self.run.scope.rounds, f" ({self.run.aborted.message})") from self.run.aborted
        # Secret factors are taken as known, which is the worst case: only what nobody learns even so is certain.
        if known.divided or (known.victims and self.run.multiplies(coalition)):
            raise NotLinear(
                f"under these settings {self.scope.protocol.name} multiplies or divides by numbers that are secret, so "
                f"what {', '.join(coalition)} sees is not linear and the audit does not guess; try: tacit attack decode"
            )
        return known

    def _of_everything(self, coalition: tuple[Party, ...]) -> Report:
        if self.sparse is not None:
            return self._of_entries(self.sparse, coalition)
        run, known = self.run, self._knowledge(coalition)
        victims = known.victims
        report = self._of_knowledge(coalition, known)
        report.safe_rounds = run.safe_rounds(coalition) if victims else run.scope.rounds
        if run.scope.rounds < self.scope.rounds:
            note = Remark.of(NoteCode.ROUNDS_NOT_ANALYSED, analysed=run.scope.rounds, members=coalition)
            report.notes = (note, *report.notes)
        for victim, recipe in report.exposed.items():
            report.fractions[victim] = len(recipe.pieces) / run.entries if isinstance(recipe, Recipe) else 1.0
        return report

    def _of_entries(self, sparse: SparseExposure, coalition: tuple[Party, ...]) -> Report:
        """Returns the report on sparse vectors: the number of entries exposed at full length, and recipes for some of
        them."""
        found, general = self._search(sparse, coalition), self._knowledge(coalition)
        known = sparse.prove(coalition) if found.victims else None
        report = self._of_knowledge(coalition, general if known is None else known)
        exposure = found.exposure
        if known is None:
            # The patterns that were run expose somebody, but are too rare to count.
            report.exposed, report.nearly, report.errors, report.proof_errors = {}, (), {}, {}
            report.bits = {party: bits for party, bits in general.bits.items() if party not in general.exact}
        else:
            report.bits = {party: max(bits, report.bits.get(party, 0.0)) for party, bits in general.bits.items()}
            if missing := tuple(party for party in exposure.by_victim if party not in {*known.exact, *known.victims}):
                report.notes += (Remark.of(NoteCode.REPLAY_FAILED, parties=missing),)
        company = self.company(coalition, general.group)
        report.epsilon_bound, report.company = self._epsilon(company), company
        report.smallest_group = 1 if report.victims else found.group or len(self.scope.parties)
        report.safe_rounds = exposure.safe_rounds if report.victims else exposure.rounds
        report.fractions = {victim: exposure.fractions.get(victim, 1.0) for victim in report.exposed}
        report.sparse, report.watched = exposure, exposure.rounds
        report.averages = exposure.rounds if sparse.run.averages == sparse.run.scope.rounds else sparse.run.averages
        return report

    def _of_knowledge(self, coalition: tuple[Party, ...], known: Knowledge) -> Report:
        """Returns the report on what a coalition knows, with the proof of its recipes."""
        run, scope, notes = known.run, self.scope, []
        if run.aborted is not None:
            notes.append(Remark.of(NoteCode.NO_AVERAGE, error=str(run.aborted)))
        if known.drowned:
            bits = scope.terms.settings.bits
            notes.append(Remark.of(NoteCode.LOST_IN_ROUNDING, parties=tuple(known.drowned), bits=bits))
        victims, company = known.victims, self.company(coalition, known.group)
        found = {victim: recipe for victim, recipe in known.recipes().items() if victim in victims} if victims else {}
        proof, noise = {victim: run.error(found[victim], victim) for victim in found}, scope.terms.settings.noise
        return Report(
            *self._identify(coalition),
            exposed=dict(found),
            safe_rounds=run.scope.rounds,
            smallest_group=_group(known.rows, len(victims), known.bits, scope),
            bits=known.bits,
            most_bits=run.spread.most,
            epsilon_bound=self._epsilon(company),
            company=company,
            delta=scope.delta,
            nearly=tuple(victim for victim in victims if victim not in found),
            drowned=tuple(known.drowned),
            dropout=scope.dropout,
            watched=run.scope.rounds,
            averages=run.averages,
            seed=scope.seed,
            entries=run.entries,
            errors=self._replay_noisily(run).errors(found, run.scope.rounds) if found and noise else proof,
            proof_errors=proof,
            noise=noise,
            heard=self._collect_metadata(coalition),
            notes=tuple(notes),
            faults=scope.injected_faults,
            known_draws=tuple(scope.terms.known_draws),
            rows=known.rows,
        )

    def _of_sums(self, rehearsed: RehearsedRun, coalition: tuple[Party, ...]) -> Report:
        scope, sums = self.scope, rehearsed.sums(coalition)
        if not rehearsed.averages:
            raise _no_average(scope.rounds)
        proof, company = rehearsed.errors(sums.recipes), self.company(coalition, smallest_class(sums.rows))
        replayed, noise = rehearsed.rounds_to_replay(sums.recipes), scope.terms.settings.noise
        notes = [Remark.of(NoteCode.ONLY_SUMS)]
        if sums.recipes and not proof:
            notes.append(Remark.of(NoteCode.NOT_REPLAYED))
        if sums.together:
            notes.append(Remark.of(NoteCode.UNMASKED_WITHOUT_RECIPE))
        exposed: dict[Party, Recipe | SumRecipe | Together] = dict(sums.exposed)
        return Report(
            *self._identify(coalition),
            exposed=exposed,
            safe_rounds=sums.safe_rounds,
            smallest_group=_group(sums.rows, len(sums.victims), sums.bits, scope),
            bits=sums.bits,
            most_bits=rehearsed.spread.most,
            epsilon_bound=self._epsilon(company),
            company=company,
            delta=scope.delta,
            nearly=tuple(sums.nearly),
            unsure=sums.unsure,
            dropout=scope.dropout,
            watched=scope.rounds,
            averages=rehearsed.averages,
            seed=scope.seed,
            fractions=dict.fromkeys(exposed, 1.0),
            errors=rehearsed.noisy.errors(sums.recipes, replayed) if replayed and noise else proof,
            proof_errors=proof,
            noise=noise,
            notes=tuple(notes),
            faults=scope.injected_faults,
            known_draws=tuple(scope.terms.known_draws),
            rows=sums.rows,
        )

    def _identify(
        self, coalition: tuple[Party, ...]
    ) -> tuple[str, tuple[Party, ...], tuple[Party, ...], int, Drift | float]:
        scope = self.scope
        return scope.protocol.name, scope.parties, coalition, scope.rounds, scope.drift

    def _collect_metadata(self, coalition: tuple[Party, ...]) -> dict[tuple[Party, Party], tuple[int, int]]:
        if ONLOOKER not in coalition:
            return {}
        _, heard = self.run.seen_envelopes([ONLOOKER], self.run.scope.rounds)
        messages: Counter[tuple[Party, Party]] = Counter()
        volume: Counter[tuple[Party, Party]] = Counter()
        for number in heard:
            envelope = self.run.envelopes[number]
            link = envelope.address.sender, envelope.address.to
            messages[link] += 1
            volume[link] += len(envelope.sealed)
        return {link: (count, volume[link]) for link, count in sorted(messages.items())}


def _group(rows: NDArray[np.int64], victims: int, bits: Mapping[Party, float], scope: Scope) -> int:
    """Returns T, the anonymity set, from the algebra, limited by the bits that the coalition knows.

    A party whose vector is nearly known stands out too, so T is then 1.
    """
    exact = 1 if victims else smallest_class(rows) or len(scope.parties)
    return min(exact, largest_group(max(bits.values(), default=0.0), exact))


def _larger(one: EpsilonBound | None, other: EpsilonBound | None) -> EpsilonBound | None:
    """Returns the larger of two bounds, or the first if they are equal; None if the first is None."""
    return one if one is None or other is None or one.epsilon >= other.epsilon else other


def _no_average(rounds: int, why: str = "") -> ConfigError:
    """Returns the error for rounds none of which ends with an average."""
    none = "the round did not end" if rounds == 1 else f"none of {rounds} rounds ended"
    return ConfigError(
        f"{none} with an average, so there is nothing to analyse{why}",
        remedy="use a smaller dropout, fewer faults, or settings that tolerate more dropouts",
    )


@contextmanager
def _in_numbers() -> Iterator[None]:
    """Turns numerical overflow and underflow into a ConfigError."""
    try:
        yield
    except (np.linalg.LinAlgError, ArithmeticError) as error:
        raise ConfigError(
            f"these numbers are too far apart for floating point ({type(error).__name__}: {error}); try: use settings, "
            f"drift, noise and prior that are closer to each other in size, or fewer rounds"
        ) from error


class WorstSeedAuditor:
    """Auditor that reports on each coalition with the worst of the seeds that were tried."""

    def __init__(self, scope: Scope, *, rehearse: bool = False, guard: bool = False) -> None:
        self._first, self._others = Auditor(scope, rehearse=rehearse, guard=guard), dict[int, Auditor]()
        self._rehearse = rehearse

    def victims(self, coalition: tuple[Party, ...]) -> list[Party]:
        """Returns the parties that a coalition exposes with the worst seed, without proof."""
        others = (list(each.victims) for each in self._first.seeds.exposing_seeds(coalition))
        return max((self._first.assess(coalition).victims, *others), key=len)

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn with the worst seed, with recipes that were replayed as proof."""
        first = self._first.report(coalition)
        first.first_seed, worst = first.seed, first.worst_other_seed
        if worst is None:
            return first
        report = self._auditor_for(worst.seed).report(coalition)
        report.exposing_seeds = tuple(
            each for each in (first.this_seed, *first.exposing_seeds) if each.victims and each.seed != worst.seed
        )
        report.first_seed = first.seed
        return report

    def _auditor_for(self, seed: int) -> Auditor:
        """Returns the auditor of another seed, which is built once and used for all coalitions."""
        if seed not in self._others:
            before = self._first
            scope = before.scope.with_later_seed(seed - before.scope.seed)
            self._others[seed] = Auditor(
                scope, rehearse=self._rehearse, worst_case=before.worst_case, seeds=before.seeds
            )
        return self._others[seed]
