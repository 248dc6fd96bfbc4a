"""The audit: who can learn whose vector, computed from the code that runs, and proved on a real transcript."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.linear import smallest_class, smallest_support
from tacit.auditing.engine.multi_round import RehearsedRun, Together
from tacit.auditing.engine.recipes import Recipe, SumRecipe
from tacit.auditing.engine.soundness import guarded
from tacit.auditing.engine.symbolic_run import Knowledge, SymbolicRun
from tacit.auditing.findings import Coverage, NoteCode, Remark, Verdict
from tacit.auditing.scope import Scope
from tacit.auditing.search.seeds import Drawing, Luck
from tacit.auditing.search.worst_case import Smallest
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.average import list_names
from tacit.core.errors import ConfigError, NotLinear
from tacit.core.progress import report_step
from tacit.core.suite import ONLOOKER, Party
from tacit.privacy.distributed_noise import shared_noise
from tacit.protocols import is_shipped

EXACT_ROUNDS = 16
"""Rounds up to which every one is run; of more, only the sums are looked at, if that is all a round shows."""
HEARD_ROUNDS = 2
"""Rounds of as many more that an onlooker is shown, who hears more than sums."""
MOST_GUARDED = 500
"""Messages, shares and masks of a round of a shipped protocol up to which it is guarded."""
PROVED = 1e-3
"""How far a recipe may be off when it is replayed, for the entries that are replayed are up to 1."""


@dataclass
class Report:
    """What one coalition can learn."""

    protocol: str
    parties: tuple[Party, ...]
    coalition: tuple[Party, ...]
    rounds: int
    drift: Drift | float
    exposed: dict[Party, Recipe | SumRecipe | Together]
    """Whose vectors it can work out, and how."""
    safe_rounds: int
    """After how many rounds nobody is exposed yet."""
    smallest_group: int
    """T: how many parties weigh alike, at least, in all that it can compute, so that only their sum shows; the number
    of all if it can compute nothing. 1 is somebody who weighs like nobody else, exposed or not."""
    bits: dict[Party, float] = field(default_factory=dict)
    """How many bits of an entry of each of the others it knows, at best; empty if there are too many to say."""
    most_bits: float = 0.0
    """How many bits an entry has."""
    epsilon: float | None = None
    """ε of all rounds, of any of the others' data, by the noise of as many as `company` says; None unless there is
    noise, and a bound on how far data can move a vector."""
    company: int | None = None
    """By the noise of how many that is: of the fewest behind any sum it saw. Over several rounds of a protocol in which
    others pass on what it did not see, one; None if it saw nothing."""
    epsilon_at_worst: float | None = None
    """The same if in every round as many drop out as the settings allow; None if not looked at."""
    delta: float = 0.0
    """With what chance that may fail."""
    nearly: tuple[Party, ...] = ()
    """Of whom it cannot work out an entry exactly, but so closely that it makes no difference."""
    unsure: tuple[Party, ...] = ()
    """Who would be exposed if models stood still, and may be: there are too many parties to say what is known of ones
    that change, or have noise."""
    drowned: tuple[Party, ...] = ()
    """Who could be worked out if the ring had more digits, and cannot."""
    at_worst: tuple[Party, ...] | None = None
    """Who is exposed in a single round if as many others drop out as the settings allow; None if not looked at."""
    fewest: int | None = None
    """How many are summed then."""
    dropout: float = 0.0
    """With what chance each party was lost to each round, for the rest of this report."""
    watched: int = 0
    """How many of the rounds were looked at,"""
    averages: int = 0
    """and how many of those ended with an average."""
    seed: int = 0
    """By which it was drawn who takes part, if chance decides that."""
    drawings: int = 0
    """How many drawings of that were looked at, this one and those of the next seeds; 0 if nothing is drawn."""
    unlucky: tuple[Drawing, ...] = ()
    """The other ones in which anybody is exposed. All else here is of this one."""
    first_seed: int | None = None
    """By which the first of them was drawn, if this one is the worst of them; None if nobody asked for the worst."""
    fractions: dict[Party, float] = field(default_factory=dict)
    """Which part of each victim's entries is exposed, of the positions that were looked at."""
    entries: int = 1
    """How many positions were looked at. One stands for all, if all fare alike."""
    errors: dict[Party, float] = field(default_factory=dict)
    """How far the recipes were off, when replayed on a real transcript, in a ring of 64 bits. With fewer bits it may be
    further, as far as `bits` says."""
    heard: dict[tuple[Party, Party], tuple[int, int]] = field(default_factory=dict)
    """What an onlooker learns even from sealed links: how many messages from whom to whom, and how many bytes."""
    notes: tuple[Remark, ...] = ()
    """Notes that the reader should know."""
    faults: int = 0
    """Number of faults that were injected besides dropouts."""
    rows: NDArray[np.int64] | None = field(default=None, repr=False)
    """A basis of what it knows of the others' vectors alone, modulo a small prime."""

    def __repr__(self) -> str:
        found = [
            f"{name}: {list_names(victims)}"
            for name, victims in (
                ("exposed", list(self.exposed)),
                ("nearly", self.nearly),
                ("at_worst", () if self.victims else self.at_worst),
                ("unsure", self.unsure),
            )
            if victims
        ]
        if (worst := self.unluckiest) is not None:
            found.append(f"seed {worst.seed}: {list_names(worst.victims)}")
        who = f"{len(self.parties)} parties, coalition of {list_names(self.coalition)}"
        return f"<Report: {self.protocol}, {who}: {'; '.join([self.verdict.value, *found, str(self.coverage)])}>"

    @property
    def verdict(self) -> Verdict:
        """Verdict on this coalition, for what was analysed."""
        if self.exposed:
            return Verdict.EXPOSED
        if self.nearly:
            return Verdict.NEARLY_EXPOSED
        if self.at_worst or self.unluckiest is not None:
            return Verdict.EXPOSED_IN_WORST_CASE
        if self.unsure:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if self.coverage.exhaustive else Verdict.NOTHING_FOUND

    @property
    def coverage(self) -> Coverage:
        """Part of the question that was analysed."""
        return Coverage(
            rounds=self.rounds,
            rounds_analysed=self.watched,
            rounds_with_average=self.averages,
            drift=self.drift,
            dropout=self.dropout,
            faults=self.faults,
            seeds=self.drawings,
            worst_seed=self.first_seed is not None,
            entries=self.entries,
            fewest=self.fewest,
            worst_case=self.at_worst is not None,
        )

    @property
    def victims(self) -> list[Party]:
        """Parties whose vectors the coalition recovers, exactly or nearly."""
        return [party for party in self.parties if party in self.exposed or party in self.nearly]

    @cached_property
    def smallest_support(self) -> int | None:
        """The relaxed T of paper 002: of how many vectors, at least, anything speaks that it knows.

        None if there are too many sets of parties to try them all, or if positions fare differently.
        """
        return None if self.entries > 1 or self.rows is None else smallest_support(self.rows)

    @property
    def unluckiest(self) -> Drawing | None:
        """The other drawing in which most are exposed, if it is worse than this one."""
        found = max(self.unlucky, key=lambda each: (len(each.victims), -each.safe_rounds), default=None)
        here = len(self.exposed) + len(self.nearly) + len(self.unsure)
        return found if found is not None and len(found.victims) > here else None

    @property
    def worst(self) -> Drawing:
        """The drawing in which most are exposed: this one, unless another is worse."""
        return self.unluckiest or self.drawing

    @property
    def drawing(self) -> Drawing:
        """This drawing."""
        return Drawing(self.seed, tuple(self.victims), self.safe_rounds)


class Assessment(NamedTuple):
    """Result of an audit of one coalition, without recipes and their proof."""

    victims: list[Party]
    safe_rounds: int
    smallest_group: int


class Auditor:
    """Reports on one coalition after another, from one symbolic run."""

    def __init__(
        self,
        scope: Scope,
        *,
        rehearse: bool = False,
        small: Smallest | None = None,
        guard: bool = False,
        luck: Luck | None = None,
    ) -> None:
        """Takes a scope; raises NotLinear, or NotAuditable, if symbols do not stand for all that parties show.

        Few rounds are run whole, unless they shall be rehearsed where that is possible. Protocols of others are always
        guarded, those that are shipped if asked to and if it takes little: tests do that for all of them.
        """
        if not is_shipped(scope.protocol) or (guard and scope.terms.work <= MOST_GUARDED):
            with _in_numbers():
                guarded(scope)
        self.scope = scope
        self.small = small or Smallest(scope)
        self.luck = luck or Luck(scope, self.small)
        self.rehearsed: RehearsedRun | None = None
        many, alike = scope.rounds > EXACT_ROUNDS, scope.terms.rounds_alike and not scope.stand_ins
        if scope.protocol.choice is not None and (many or (rehearse and alike and is_shipped(scope.protocol))):
            if not alike:
                raise ConfigError(
                    f"under these settings no round of {scope.protocol.name} stands for another, as in a sparse graph; "
                    f"audit at most {EXACT_ROUNDS} rounds, or other settings"
                )
            self.rehearsed = RehearsedRun(scope, self.small)

    @cached_property
    def run(self) -> SymbolicRun:
        """All rounds on unknowns, or the first ones if only their sums are looked at otherwise."""
        rounds = self.scope.rounds if self.rehearsed is None else HEARD_ROUNDS
        return SymbolicRun(replace(self.scope, rounds=rounds))

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn, and proves it.

        Raises ConfigError if no round ends with an average, or if numbers are too large or too small to compute with.
        """
        self.scope.check(coalition)
        report_step(f"looking at what {list_names(coalition)} sees")
        with _in_numbers():
            report = self._report(coalition)
            report.drawings, report.unlucky = self.luck.drawings(coalition), self.luck.exposing(coalition)
            return report

    def _report(self, coalition: tuple[Party, ...]) -> Report:
        rehearsed = self._by_sums(coalition, whole=True)
        report = self._of_everything(coalition) if rehearsed is None else self._of_sums(rehearsed, coalition)
        members = tuple(member for member in coalition if member != ONLOOKER)
        if members and members != coalition and self.rehearsed is not None:
            self._add(report, self._report(members))
        unproved = [victim for victim, error in report.errors.items() if not error <= PROVED]
        if unproved:
            report.notes += (Remark.of(NoteCode.REPLAY_FAILED, parties=tuple(unproved)),)
        if ONLOOKER not in coalition and self.small.in_time(coalition):
            known = self.small.knowledge(coalition)
            report.at_worst = () if known is None else self.small.victims(coalition, known)
            report.fewest = None if known is None else len(known.run.contributors[0])
            group = report.company if known is None else known.group
            worst = self._epsilon(self.company(coalition, group, at_worst=True))
            report.epsilon_at_worst = None if worst is None else max(worst, report.epsilon or 0.0)
        if report.epsilon and report.smallest_group > 1 and self._passed_on(coalition):
            report.notes += (Remark.of(NoteCode.NOISE_OF_ONE),)
        return report

    def company(self, coalition: tuple[Party, ...], group: int | None, *, at_worst: bool = False) -> int | None:
        """Returns by the noise of how many all rounds are private, given the smallest class in what a coalition saw.

        That is the worst that the settings allow if asked for, and always where entries fare differently, of which only
        some were looked at.
        """
        terms = self.scope.terms
        if group is None:
            return None
        if self._passed_on(coalition):
            return 1
        if self.scope.rounds > 1:
            # A sum that it missed is in what others bring next, so it counts as seen.
            sums = self.run.contributors if self.rehearsed is None else [each.summed for each in self.rehearsed.sets]
            group = min([group, *(honest for each in sums if (honest := len(set(each) - set(coalition))))])
        if at_worst or terms.selective:
            fewest = terms.fewest_contributors(coalition) if is_shipped(self.scope.protocol) else None
            unknown = 1 if terms.selective else group
            group = min(group, unknown if fewest is None else fewest)
        return group

    def _passed_on(self, coalition: tuple[Party, ...]) -> bool:
        """Says whether there are rounds to which others bring what a coalition saw nothing of in those before.

        Where all end a round with the same average and nothing else, what they send next has the noise of earlier
        rounds only as it was seen. Elsewhere that noise is also in what others received and keep, and whoever compares
        rounds can take some of it off again; nobody can take off a party's own.
        """
        scope = self.scope
        common = scope.protocol.common_result and is_shipped(scope.protocol)
        outside = scope.links is not None and set(coalition) == {ONLOOKER}  # it may have missed any sum
        return scope.rounds > 1 and (outside or not common)

    def _epsilon(self, company: int | None) -> float | None:
        """Returns the ε of all rounds, by the noise of so many; None if there is nothing to say it by."""
        scope = self.scope
        if not scope.noise or (scope.sensitivity is None and scope.terms.settings.norm is None):
            return None
        if company is None:
            return 0.0  # it saw nothing
        noise = shared_noise(scope.terms, scope.length, sensitivity=scope.sensitivity, honest=company)
        return noise.epsilon(scope.delta, scope.rounds)

    @staticmethod
    def _add(report: Report, more: Report) -> None:
        """Adds what members learn without the onlooker, who was shown fewer rounds."""
        report.safe_rounds = min(each.safe_rounds for each in (report, more) if each.exposed or each is more)
        report.exposed = {**more.exposed, **report.exposed}
        report.errors, report.fractions = more.errors | report.errors, more.fractions | report.fractions
        report.bits = {party: max(bits, report.bits.get(party, 0.0)) for party, bits in more.bits.items()}
        report.nearly = tuple(party for party in {*report.nearly, *more.nearly} if party not in report.exposed)
        report.unsure = tuple(party for party in more.unsure if party not in {*report.exposed, *report.nearly})
        report.smallest_group = min(report.smallest_group, more.smallest_group)
        if report.epsilon is not None and more.epsilon is not None:
            report.epsilon = max(report.epsilon, more.epsilon)
        report.company = min((each.company for each in (report, more) if each.company is not None), default=None)

    def assess(self, coalition: tuple[Party, ...]) -> Assessment:
        """Returns whom a coalition exposes, its safe rounds and smallest group, as in a report but without proof."""
        with _in_numbers():
            return self._assess(coalition)

    def _assess(self, coalition: tuple[Party, ...]) -> Assessment:
        if (rehearsed := self._by_sums(coalition)) is not None:
            sums = rehearsed.sums(coalition)
            return Assessment(sums.victims, sums.safe_rounds, _group(sums.rows, len(sums.victims), self.scope))
        known = self._knowledge(coalition)
        victims = known.victims
        safe = self.run.safe_rounds(coalition) if victims else self.run.scope.rounds
        return Assessment(victims, safe, _group(known.rows, len(victims), self.scope))

    def _by_sums(self, coalition: tuple[Party, ...], whole: bool = False) -> RehearsedRun | None:
        """Returns the rehearsal, if there is one and sums are all that the coalition learns from a round.

        Of shipped protocols that is looked at in the smallest round alone, and for reports in the first ones too.
        """
        rehearsed = self.rehearsed
        if rehearsed is None or ONLOOKER in coalition:
            return None
        foreign = not is_shipped(self.scope.protocol)
        return rehearsed if not (whole or foreign) or rehearsed.agrees(coalition) else None

    def _knowledge(self, coalition: tuple[Party, ...]) -> Knowledge:
        known = self.run.knowledge(coalition, self.run.scope.rounds)
        if self.run.aborted is not None and not known.victims:
            raise _no_average(self.run.scope.rounds, f" ({self.run.aborted})") from self.run.aborted
        # Secret factors are taken as known, which is the worst case: only what nobody learns even so is certain.
        if known.divided or (known.victims and self.run.multiplies(coalition)):
            raise NotLinear(
                f"under these settings {self.scope.protocol.name} multiplies or divides by numbers that are secret, so "
                f"what {', '.join(coalition)} sees is not linear and the audit does not guess; try: tacit attack decode"
            )
        return known

    def _of_everything(self, coalition: tuple[Party, ...]) -> Report:
        run, scope, known = self.run, self.scope, self._knowledge(coalition)
        notes = []
        if run.scope.rounds < scope.rounds:
            notes.append(Remark.of(NoteCode.ROUNDS_NOT_ANALYSED, analysed=run.scope.rounds, members=coalition))
        if run.aborted is not None:
            notes.append(Remark.of(NoteCode.NO_AVERAGE, error=str(run.aborted)))
        if known.drowned:
            bits = scope.terms.settings.bits
            notes.append(Remark.of(NoteCode.LOST_IN_ROUNDING, parties=tuple(known.drowned), bits=bits))
        victims, company = known.victims, self.company(coalition, known.group)
        found = {victim: recipe for victim, recipe in known.recipes().items() if victim in victims} if victims else {}
        return Report(
            *self._asked(coalition),
            exposed=dict(found),
            safe_rounds=run.safe_rounds(coalition) if victims else run.scope.rounds,
            smallest_group=_group(known.rows, len(victims), scope),
            bits=known.bits,
            most_bits=run.spread.most,
            epsilon=self._epsilon(company),
            company=company,
            delta=scope.delta,
            nearly=tuple(victim for victim in victims if victim not in found),
            drowned=tuple(known.drowned),
            dropout=scope.dropout,
            watched=run.scope.rounds,
            averages=run.averages,
            seed=scope.seed,
            fractions={victim: len(recipe.pieces) / run.entries for victim, recipe in found.items()},
            entries=run.entries,
            errors={victim: run.error(recipe, victim) for victim, recipe in found.items()},
            heard=self._heard(coalition),
            notes=tuple(notes),
            faults=scope.injected_faults,
            rows=known.rows,
        )

    def _of_sums(self, rehearsed: RehearsedRun, coalition: tuple[Party, ...]) -> Report:
        scope, sums = self.scope, rehearsed.sums(coalition)
        if not rehearsed.averages:
            raise _no_average(scope.rounds)
        errors, company = rehearsed.errors(sums.recipes), self.company(coalition, smallest_class(sums.rows))
        notes = [Remark.of(NoteCode.ONLY_SUMS)]
        if sums.recipes and not errors:
            notes.append(Remark.of(NoteCode.NOT_REPLAYED))
        if sums.together:
            notes.append(Remark.of(NoteCode.UNMASKED_WITHOUT_RECIPE))
        exposed: dict[Party, Recipe | SumRecipe | Together] = dict(sums.exposed)
        return Report(
            *self._asked(coalition),
            exposed=exposed,
            safe_rounds=sums.safe_rounds,
            smallest_group=_group(sums.rows, len(sums.victims), scope),
            bits=sums.bits,
            most_bits=rehearsed.spread.most,
            epsilon=self._epsilon(company),
            company=company,
            delta=scope.delta,
            nearly=tuple(sums.nearly),
            unsure=sums.unsure,
            dropout=scope.dropout,
            watched=scope.rounds,
            averages=rehearsed.averages,
            seed=scope.seed,
            fractions=dict.fromkeys(exposed, 1.0),
            errors=errors,
            notes=tuple(notes),
            faults=scope.injected_faults,
            rows=sums.rows,
        )

    def _asked(
        self, coalition: tuple[Party, ...]
    ) -> tuple[str, tuple[Party, ...], tuple[Party, ...], int, Drift | float]:
        scope = self.scope
        return scope.protocol.name, scope.parties, coalition, scope.rounds, scope.drift

    def _heard(self, coalition: tuple[Party, ...]) -> dict[tuple[Party, Party], tuple[int, int]]:
        if ONLOOKER not in coalition:
            return {}
        _, heard = self.run.seen([ONLOOKER], self.run.scope.rounds)
        messages: Counter[tuple[Party, Party]] = Counter()
        volume: Counter[tuple[Party, Party]] = Counter()
        for number in heard:
            envelope = self.run.envelopes[number]
            link = envelope.address.sender, envelope.address.to
            messages[link] += 1
            volume[link] += len(envelope.sealed)
        return {link: (count, volume[link]) for link, count in sorted(messages.items())}


def _group(rows: NDArray[np.int64], victims: int, scope: Scope) -> int:
    """Returns T of what a coalition knows. Who is known nearly, in spite of what changes, stands out as well."""
    return 1 if victims else smallest_class(rows) or len(scope.parties)


def _no_average(rounds: int, why: str = "") -> ConfigError:
    """Returns the complaint that there is no average to say anything about."""
    none = "the round did not end" if rounds == 1 else f"none of {rounds} rounds ended"
    return ConfigError(
        f"{none} with an average, so there is nothing to look at; use a smaller dropout, fewer faults, or settings "
        f"with which a round goes on without more parties{why}"
    )


@contextmanager
def _in_numbers() -> Iterator[None]:
    """Turns numbers that cannot be computed with into a complaint."""
    try:
        yield
    except (np.linalg.LinAlgError, ArithmeticError) as error:
        raise ConfigError(
            f"floats cannot follow the numbers of this question ({type(error).__name__}: {error}); use settings, "
            f"drift, noise and prior that are closer to each other in size, or fewer rounds"
        ) from error
