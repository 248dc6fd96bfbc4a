"""The audit: who can learn whose vector, computed from the code that runs, and proved on a real transcript."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.audit.linear import smallest_class, smallest_support
from tacit.audit.recipes import Recipe, SumRecipe
from tacit.audit.rounds import RehearsedRun
from tacit.audit.runs import ONLOOKER, Drift, Learnt, Question, SymbolicRun
from tacit.core.errors import ConfigError, NotLinear
from tacit.core.suite import Party
from tacit.protocols import find

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
    **options: Any,
) -> Any:
    """Returns what a coalition can learn in some rounds of a protocol: a `Report`, or a list for `coalition_size`.

    `drift="static"` is the worst case, in which parties bring the same vector every round; "free" has new ones in each.
    The server may be in a coalition, and so may an "onlooker", who hears all `links`, or those given as pairs of names;
    `sealed=False` asks what it would learn if they were not sealed. If entries fare differently, as in sparsification,
    `entries` says how many positions are looked at, and `vectors` gives the ones by whose size entries are selected.
    Settings are those of the protocol, and are audited whether they leak or not.
    """
    names = tuple(f"p{i}" for i in range(parties)) if isinstance(parties, int) else tuple(parties)
    brought = vectors if vectors is None or isinstance(vectors, Mapping) else dict(zip(names, vectors, strict=False))
    question = Question(protocol, names, rounds, drift, seed, options, entries, brought, links, sealed)
    every = None if coalition_size is None else of_size(names, coalition_size, coalition)
    auditor = Auditor(question)
    return auditor.report(tuple(coalition or ())) if every is None else [auditor.report(members) for members in every]


def of_size(names: Sequence[Party], size: int, coalition: Sequence[Party] | None = None) -> list[tuple[Party, ...]]:
    """Returns every coalition of so many parties; raises ConfigError if there is none, or one was named besides."""
    if coalition is not None or not 1 <= size < len(names):
        raise ConfigError(f"coalition_size must be from 1 to {len(names) - 1}, and goes without coalition")
    return list(combinations(names, size))


class Auditor:
    """Reports on one coalition after another, from one symbolic run."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.rehearsed: RehearsedRun | None = None
        if question.rounds > EXACT_ROUNDS and find(question.protocol).rehearsal is not None:
            # Sums fare alike in all entries, so one of them stands for all.
            first = replace(question, rounds=CHECKED_ROUNDS, entries=1, vectors=None)
            self.rehearsed = RehearsedRun(SymbolicRun(first), question.rounds)
            self.run = self.rehearsed.run
        else:
            self.run = SymbolicRun(question)

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn, and proves it."""
        self.run.check(coalition)
        if (rehearsed := self._by_sums(coalition)) is not None:
            return self._of_sums(rehearsed, coalition)
        return self._of_everything(coalition)

    def glance(self, coalition: tuple[Party, ...]) -> tuple[list[Party], int, int]:
        """Returns whom a coalition exposes, its safe rounds and smallest group, as in a report but without proof."""
        question = self.question
        if (rehearsed := self._by_sums(coalition)) is not None:
            sums = rehearsed.sums(coalition) if question.drift == "static" else rehearsed.fresh_sums(coalition)
            return list(sums.recipes), sums.safe_rounds, smallest_class(sums.rows) or len(question.parties)
        learnt = self._learnt(coalition)
        safe = self.run.safe_rounds(coalition) if learnt.victims else self.run.question.rounds
        return learnt.victims, safe, smallest_class(learnt.rows) or len(question.parties)

    def _by_sums(self, coalition: tuple[Party, ...]) -> RehearsedRun | None:
        """Returns the rehearsal, if there is one and sums are all that the coalition learns from a round."""
        if self.rehearsed is None or ONLOOKER in coalition or not self.rehearsed.agrees(coalition):
            return None
        return self.rehearsed

    def _learnt(self, coalition: tuple[Party, ...]) -> Learnt:
        learnt = self.run.learnt(coalition, self.run.question.rounds)
        # Secret factors are taken as known, which is the worst case: only what nobody learns even so is certain.
        if learnt.divided or (learnt.victims and self.run.multiplies(coalition)):
            raise NotLinear(
                f"under these settings {self.question.protocol} multiplies or divides by numbers that are secret, so "
                f"what {', '.join(coalition)} sees is not linear and the audit does not guess; try: tacit attack decode"
            )
        return learnt

    def _of_everything(self, coalition: tuple[Party, ...]) -> Report:
        run, question, learnt = self.run, self.question, self._learnt(coalition)
        found = learnt.recipes()
        recipes: dict[Party, Recipe | SumRecipe] = dict(found)
        notes = []
        if run.question.rounds < question.rounds:
            who = ", ".join(coalition)
            notes.append(f"only {run.question.rounds} rounds were looked at, for {who} does not learn just their sums")
        return Report(
            *self._asked(coalition),
            exposed=recipes,
            safe_rounds=run.safe_rounds(coalition) if recipes else run.question.rounds,
            smallest_group=smallest_class(learnt.rows) or len(question.parties),
            fractions={victim: len(recipe.parts) / run.entries for victim, recipe in found.items()},
            entries=run.entries,
            errors={victim: run.error(recipe, victim) for victim, recipe in recipes.items()},
            heard=self._heard(coalition),
            notes=tuple(notes),
            rows=learnt.rows,
        )

    def _of_sums(self, rehearsed: RehearsedRun, coalition: tuple[Party, ...]) -> Report:
        question = self.question
        sums = rehearsed.sums(coalition) if question.drift == "static" else rehearsed.fresh_sums(coalition)
        errors = rehearsed.errors(sums.recipes)
        notes = [f"{self.run.question.rounds} rounds were run whole, and of all {question.rounds} the sums looked at"]
        if sums.recipes and not errors:
            notes.append("to replay the recipes with real cryptography would take too long, so they are not proved")
        return Report(
            *self._asked(coalition),
            exposed=dict(sums.recipes),
            safe_rounds=sums.safe_rounds,
            smallest_group=smallest_class(sums.rows) or len(question.parties),
            fractions=dict.fromkeys(sums.recipes, 1.0),
            errors=errors,
            notes=tuple(notes),
            rows=sums.rows,
        )

    def _asked(self, coalition: tuple[Party, ...]) -> tuple[str, tuple[Party, ...], tuple[Party, ...], int, Drift]:
        question = self.question
        return question.protocol, question.parties, coalition, question.rounds, question.drift

    def _heard(self, coalition: tuple[Party, ...]) -> dict[tuple[Party, Party], tuple[int, int]]:
        if ONLOOKER not in coalition:
            return {}
        _, heard = self.run.seen([ONLOOKER], self.run.question.rounds)
        messages: Counter[tuple[Party, Party]] = Counter()
        volume: Counter[tuple[Party, Party]] = Counter()
        for number in heard:
            envelope = self.run.envelopes[number]
            link = envelope.address.sender, envelope.address.to
            messages[link] += 1
            volume[link] += len(envelope.sealed)
        return {link: (count, volume[link]) for link, count in sorted(messages.items())}
