"""The audit: who can learn whose vector, computed from the code that runs, and proved on a real transcript."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.audit.coalitions import of_parties
from tacit.audit.linear import smallest_class, smallest_support
from tacit.audit.recipes import Recipe, SumRecipe
from tacit.audit.rounds import RehearsedRun
from tacit.audit.runs import ONLOOKER, Knowledge, Scope, SymbolicRun
from tacit.audit.symbolic.simulation import Drift
from tacit.core.errors import ConfigError, NotLinear
from tacit.core.protocol import Role
from tacit.core.suite import Party
from tacit.drivers.faults import Fault

EXACT_ROUNDS = 16
"""Rounds up to which every one is run; of more, only the sums are looked at, if that is all a round shows."""
CHECKED_ROUNDS = 2
"""Rounds that are run whole all the same, to see that it is."""


@dataclass
class Report:
    """What one coalition can learn."""

    protocol: str
    parties: tuple[Party, ...]
    coalition: tuple[Party, ...]
    rounds: int
    drift: Drift
    exposed: dict[Party, Recipe | SumRecipe]
    """Whose vectors it can work out, and how."""
    safe_rounds: int
    """After how many rounds nobody is exposed yet."""
    smallest_group: int
    """T: how many parties there are, at least, behind any sum it can single out; the number of all if it can none."""
    fractions: dict[Party, float] = field(default_factory=dict)
    """Which part of each victim's entries is exposed, of the positions that were looked at."""
    entries: int = 1
    """How many positions were looked at. One stands for all, if all fare alike."""
    errors: dict[Party, float] = field(default_factory=dict)
    """How far the recipes were off, when replayed on a real transcript."""
    heard: dict[tuple[Party, Party], tuple[int, int]] = field(default_factory=dict)
    """What an onlooker learns even from sealed links: how many messages from whom to whom, and how many bytes."""
    notes: tuple[str, ...] = ()
    """What the reader should know of this report."""
    rows: NDArray[np.int64] | None = field(default=None, repr=False)
    """A basis of what it knows of the others' vectors alone, modulo a small prime."""

    @cached_property
    def smallest_support(self) -> int | None:
        """The relaxed T of paper 002: of how many vectors, at least, anything speaks that it knows.

        None if there are too many sets of parties to try them all, or if positions fare differently.
        """
        return None if self.entries > 1 or self.rows is None else smallest_support(self.rows)


def audit(
    protocol: str,
    *,
    parties: int | Sequence[Party],
    coalition: Sequence[Party] | None = None,
    coalition_size: int | None = None,
    rounds: int = 1,
    drift: Drift = "static",
    seed: int = 0,
    entries: int | None = None,
    vectors: Mapping[Party, Any] | Sequence[Any] | None = None,
    links: Collection[tuple[Party, Party]] | None = None,
    sealed: bool = True,
    faults: Sequence[Fault | Mapping[str, Any]] = (),
    stand_ins: Mapping[Party, Role] | None = None,
    **options: Any,
) -> Any:
    """Returns what a coalition can learn in some rounds of a protocol: a `Report`, or a list for `coalition_size`.

    `drift="static"` is the worst case, in which parties bring the same vector every round; "free" has new ones in each.
    The server may be in a coalition, and so may an "onlooker", who hears all `links`, or those given as pairs of names;
    `sealed=False` asks what it would learn if they were not sealed. If entries fare differently, as in sparsification,
    `entries` says how many positions are looked at, and `vectors` gives the ones by whose size entries are selected.
    Settings are those of the protocol, and are audited whether they leak or not. `faults` go wrong as in a simulation,
    and `stand_ins` puts other coroutines in the place of some parties', to see what one that lies would learn.
    """
    names = tuple(f"p{i}" for i in range(parties)) if isinstance(parties, int) else tuple(parties)
    brought = vectors if vectors is None or isinstance(vectors, Mapping) else dict(zip(names, vectors, strict=False))
    scope = Scope.of(
        protocol,
        names,
        options,
        faults=faults,
        rounds=rounds,
        drift=drift,
        seed=seed,
        entries=entries,
        vectors=brought,
        links=links,
        sealed=sealed,
        stand_ins=stand_ins,
    )
    every = None if coalition_size is None else of_parties(names, coalition_size, coalition)
    auditor = Auditor(scope)
    return auditor.report(tuple(coalition or ())) if every is None else [auditor.report(members) for members in every]


class Verdict(NamedTuple):
    """What a report would say, without proof."""

    victims: list[Party]
    safe_rounds: int
    smallest_group: int


class Auditor:
    """Reports on one coalition after another, from one symbolic run."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.rehearsed: RehearsedRun | None = None
        if scope.rounds > EXACT_ROUNDS and scope.protocol.choice is not None:
            if not scope.terms.rounds_alike:
                raise ConfigError(
                    f"under these settings no round of {scope.protocol.name} stands for another, as in a sparse graph; "
                    f"audit at most {EXACT_ROUNDS} rounds, or other settings"
                )
            # Sums fare alike in all entries, so one of them stands for all.
            first = replace(scope, rounds=CHECKED_ROUNDS, entries=1, vectors=None)
            self.rehearsed = RehearsedRun(SymbolicRun(first), scope.rounds)
            self.run = self.rehearsed.run
        else:
            self.run = SymbolicRun(scope)

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn, and proves it."""
        self.run.check(coalition)
        if (rehearsed := self._by_sums(coalition)) is not None:
            return self._of_sums(rehearsed, coalition)
        return self._of_everything(coalition)

    def verdict(self, coalition: tuple[Party, ...]) -> Verdict:
        """Returns whom a coalition exposes, its safe rounds and smallest group, as in a report but without proof."""
        scope = self.scope
        if (rehearsed := self._by_sums(coalition)) is not None:
            sums = rehearsed.sums(coalition) if scope.drift == "static" else rehearsed.fresh_sums(coalition)
            return Verdict(list(sums.recipes), sums.safe_rounds, smallest_class(sums.rows) or len(scope.parties))
        known = self._knowledge(coalition)
        safe = self.run.safe_rounds(coalition) if known.victims else self.run.scope.rounds
        return Verdict(known.victims, safe, smallest_class(known.rows) or len(scope.parties))

    def _by_sums(self, coalition: tuple[Party, ...]) -> RehearsedRun | None:
        """Returns the rehearsal, if there is one and sums are all that the coalition learns from a round."""
        if self.rehearsed is None or ONLOOKER in coalition or not self.rehearsed.agrees(coalition):
            return None
        return self.rehearsed

    def _knowledge(self, coalition: tuple[Party, ...]) -> Knowledge:
        known = self.run.knowledge(coalition, self.run.scope.rounds)
        # Secret factors are taken as known, which is the worst case: only what nobody learns even so is certain.
        if known.divided or (known.victims and self.run.multiplies(coalition)):
            raise NotLinear(
                f"under these settings {self.scope.protocol.name} multiplies or divides by numbers that are secret, so "
                f"what {', '.join(coalition)} sees is not linear and the audit does not guess; try: tacit attack decode"
            )
        return known

    def _of_everything(self, coalition: tuple[Party, ...]) -> Report:
        run, scope, known = self.run, self.scope, self._knowledge(coalition)
        found = known.recipes()
        recipes: dict[Party, Recipe | SumRecipe] = dict(found)
        notes = []
        if run.scope.rounds < scope.rounds:
            who = ", ".join(coalition)
            notes.append(f"only {run.scope.rounds} rounds were looked at, for {who} does not learn just their sums")
        return Report(
            *self._asked(coalition),
            exposed=recipes,
            safe_rounds=run.safe_rounds(coalition) if recipes else run.scope.rounds,
            smallest_group=smallest_class(known.rows) or len(scope.parties),
            fractions={victim: len(recipe.parts) / run.entries for victim, recipe in found.items()},
            entries=run.entries,
            errors={victim: run.error(recipe, victim) for victim, recipe in recipes.items()},
            heard=self._heard(coalition),
            notes=tuple(notes),
            rows=known.rows,
        )

    def _of_sums(self, rehearsed: RehearsedRun, coalition: tuple[Party, ...]) -> Report:
        scope = self.scope
        sums = rehearsed.sums(coalition) if scope.drift == "static" else rehearsed.fresh_sums(coalition)
        errors = rehearsed.errors(sums.recipes)
        notes = [f"{self.run.scope.rounds} rounds were run whole, and of all {scope.rounds} the sums looked at"]
        if sums.recipes and not errors:
            notes.append("to replay the recipes with real cryptography would take too long, so they are not proved")
        return Report(
            *self._asked(coalition),
            exposed=dict(sums.recipes),
            safe_rounds=sums.safe_rounds,
            smallest_group=smallest_class(sums.rows) or len(scope.parties),
            fractions=dict.fromkeys(sums.recipes, 1.0),
            errors=errors,
            notes=tuple(notes),
            rows=sums.rows,
        )

    def _asked(self, coalition: tuple[Party, ...]) -> tuple[str, tuple[Party, ...], tuple[Party, ...], int, Drift]:
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
