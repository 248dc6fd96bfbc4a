"""The audit: who can learn whose vector, computed from the code that runs, and proved on a real transcript."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal

import numpy as np

from tacit.audit.linear import PRIME, RowSpace
from tacit.audit.recipes import Ingredient, Recipe
from tacit.audit.views import Number, View
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.forms import Form, Unknown
from tacit.core.messages import Envelope
from tacit.core.outcome import Transcript
from tacit.core.suite import SERVER, Party, Update
from tacit.drivers.federation import Federation

Drift = Literal["static", "free"]
PROOF_ENTRIES = 16
"""Length of the vectors on which recipes are proved."""


@dataclass
class Report:
    """What one coalition can learn."""

    protocol: str
    parties: tuple[Party, ...]
    coalition: tuple[Party, ...]
    rounds: int
    drift: Drift
    exposed: dict[Party, Recipe]
    """Whose vectors it can work out, and how."""
    safe_rounds: int
    """After how many rounds nobody is exposed yet."""
    smallest_group: int
    """T: how many parties there are, at least, behind any sum it can single out; the number of all if it can none."""
    errors: dict[Party, float] = field(default_factory=dict)
    """How far the recipes were off, when replayed on a real transcript."""


def audit(
    protocol: str,
    *,
    parties: int | Sequence[Party],
    coalition: Sequence[Party] | None = None,
    coalition_size: int | None = None,
    rounds: int = 1,
    drift: Drift = "static",
    seed: int = 0,
    **options: Any,
) -> Any:
    """Returns what a coalition can learn in some rounds of a protocol: a `Report`, or a list for `coalition_size`.

    `drift="static"` is the worst case, in which parties bring the same vector every round; "free" has new ones in each.
    The server may be in a coalition. Settings are those of the protocol, and are audited whether they leak or not.
    """
    names = tuple(f"p{i}" for i in range(parties)) if isinstance(parties, int) else tuple(parties)
    run = _Run(protocol, names, rounds, drift, seed, options)
    if coalition_size is not None:
        if coalition is not None or not 1 <= coalition_size < len(names):
            raise ConfigError(f"coalition_size must be from 1 to {len(names) - 1}, and goes without coalition")
        return [run.report(members) for members in combinations(names, coalition_size)]
    return run.report(tuple(coalition or ()))


class _Run:
    """A symbolic run, looked at by one coalition after another."""

    def __init__(
        self, protocol: str, names: tuple[Party, ...], rounds: int, drift: Drift, seed: int, options: dict[str, Any]
    ) -> None:
        problems = [] if rounds >= 1 else [f"rounds must be at least 1, not {rounds}"]
        if drift not in ("static", "free"):
            problems.append(f'drift must be "static" or "free", not {drift!r}')
        if problems:
            raise ConfigError(problems)
        self.names, self.rounds, self.drift = names, rounds, drift
        self.settings = {**options, "seed": seed, "record": True, "allow_leaks": True}
        self.federation = Federation(protocol, names, 1, symbolic=True, **self.settings)
        self.envelopes: dict[Number, Envelope] = {}
        for round_ in range(1, rounds + 1):
            transcript = self.federation.average_unknowns(drift).transcript
            for number, passed in enumerate(transcript or ()):
                self.envelopes[round_, number] = passed.envelope

    def report(self, coalition: tuple[Party, ...]) -> Report:
        """Returns what a coalition can learn."""
        strangers = sorted(set(coalition) - set(self.federation.everyone))
        if strangers or not coalition:
            who = f"{', '.join(strangers)} is nobody here" if strangers else "a coalition has at least one member"
            raise ConfigError(f"{who}; there are {', '.join(self.federation.everyone)}")
        if set(coalition) >= set(self.names):
            raise ConfigError("a coalition of everyone has nobody left to learn from")
        recipes, group = self._exposed(coalition, self.rounds)
        safe = self.rounds
        if recipes:
            # Knowledge only grows, so the first round that exposes anybody can be searched for by halves.
            safe = bisect_left(
                range(1, self.rounds), True, key=lambda rounds: bool(self._exposed(coalition, rounds)[0])
            )
        report = Report(
            self.federation.protocol.name, self.names, coalition, self.rounds, self.drift, recipes, safe, group
        )
        self._prove(report)
        return report

    def _exposed(self, coalition: tuple[Party, ...], rounds: int) -> tuple[dict[Party, Recipe], int]:
        members = set(coalition)
        seen = {
            number: envelope
            for number, envelope in self.envelopes.items()
            if number[0] <= rounds and members & {envelope.address.sender, envelope.address.to}
        }
        world = self.federation.world
        if world is None:
            raise ConfigError("an audit needs a symbolic run")
        view = View(world, coalition, seen)
        forms: list[Form] = []
        sources: list[Ingredient] = []
        for known in view.vectors:
            if len(known.vector):  # a node may share no entry at all
                forms.append(known.vector[0])
                sources.append(known)
        owned = {unknown for form in forms for unknown in form.terms if _owner(unknown) in members}
        owned |= {
            ("input", self._owner(party, round_), 0) for party in members - {SERVER} for round_ in range(1, rounds + 1)
        }
        for unknown in sorted(owned, key=repr):
            forms.append(Form({unknown: 1}))
            sources.append(unknown)
        inputs = {
            ("input", self._owner(party, round_), 0) for party in self.names for round_ in range(1, self.rounds + 1)
        }
        space = RowSpace(forms, inputs)
        recipes = {}
        for unknown in space.exposed():
            victim = _owner(unknown)
            if unknown[0] == "input" and victim not in members and victim not in recipes:
                parts = tuple((rational(value), sources[index]) for index, value in space.recipes[unknown].items())
                recipes[victim] = Recipe(victim, view, parts)
        return recipes, self._smallest_group(space, members, inputs)

    def _owner(self, party: Party, round_: int) -> Any:
        return party if self.drift == "static" else (party, round_)

    def _smallest_group(self, space: RowSpace, members: set[Party], inputs: set[Unknown]) -> int:
        """Returns the size of the smallest class of others' vectors that every known sum weighs alike."""
        rows = [row for row in space.rows.values() if row.keys() <= inputs]
        columns: dict[Unknown, tuple[int, ...]] = {
            unknown: tuple(row.get(unknown, 0) for row in rows) for unknown in inputs if _owner(unknown) not in members
        }
        classes: dict[tuple[int, ...], int] = {}
        for column in columns.values():
            if any(column):
                classes[column] = classes.get(column, 0) + 1
        return min(classes.values(), default=len(self.names))

    def _prove(self, report: Report) -> None:
        """Replays every recipe on a real transcript and notes how far it is off."""
        if not report.exposed:
            return
        # In 64 bits the ring's rounding is out of the way of recipes with large factors.
        real = Federation(report.protocol, self.names, PROOF_ENTRIES, **{**self.settings, "bits": 64})
        transcripts: list[Transcript | None] = []
        updates: dict[Party, Update] = {}
        for round_ in range(1, self.rounds + 1):
            if self.drift == "free" or not updates:
                draw = {party: SeededEntropy("proof", party, round_) for party in self.names}
                updates = {party: Update(draw[party].uniform("proof", PROOF_ENTRIES) * 2 - 1) for party in self.names}
            transcripts.append(real.average(updates).transcript)
        for victim, recipe in report.exposed.items():
            recovered = recipe.recover([each for each in transcripts if each is not None])
            truth = [inputs[victim].vector for inputs in real.inputs]
            report.errors[victim] = float(min(np.abs(recovered - vector).max() for vector in truth))


def _owner(unknown: Unknown) -> Party:
    owner = unknown[1]
    return str(owner[0] if isinstance(owner, tuple) else owner)


def rational(residue: int) -> Fraction:
    """Returns the fraction with small numerator and denominator that a residue stands for."""
    (r0, r1), (t0, t1) = (PRIME, residue), (0, 1)
    while r1 * r1 * 2 > PRIME:
        quotient = r0 // r1
        r0, r1, t0, t1 = r1, r0 - quotient * r1, t1, t0 - quotient * t1
    return Fraction(r1, t1) if t1 else Fraction(0)
