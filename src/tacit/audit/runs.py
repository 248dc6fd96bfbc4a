"""A run of the deployed code on unknowns, looked at by one coalition after another."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.audit.linear import Glance, RowSpace, rational
from tacit.audit.recipes import Part, Recipe, Source
from tacit.audit.views import Number, View
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, NotLinear, TacitError
from tacit.core.forms import ONE, Form, Unknown
from tacit.core.messages import Envelope
from tacit.core.outcome import Transcript
from tacit.core.suite import SERVER, Party, Update
from tacit.drivers.federation import Federation

Drift = Literal["static", "free"]
ONLOOKER: Party = "onlooker"
"""The member of a coalition that takes no part, and hears links."""
PROOF_ENTRIES = 16
"""Length of the vectors on which recipes are proved, and the number of positions looked at if they fare differently."""


@dataclass(frozen=True)
class Question:
    """What an audit is asked: the settings, and what there is to be seen."""

    protocol: str
    parties: tuple[Party, ...]
    rounds: int
    drift: Drift
    seed: int
    options: Mapping[str, Any]
    entries: int | None = None
    vectors: Mapping[Party, NDArray[np.float64]] | None = None
    links: Collection[tuple[Party, Party]] | None = None
    sealed: bool = True

    def problems(self) -> list[str]:
        """Returns everything that is wrong with the question itself."""
        problems = [] if self.rounds >= 1 else [f"rounds must be at least 1, not {self.rounds}"]
        if self.drift not in ("static", "free"):
            problems.append(f'drift must be "static" or "free", not {self.drift!r}')
        if self.entries is not None and self.entries < 1:
            problems.append(f"entries must be at least 1, not {self.entries}")
        everyone = {*self.parties, SERVER}
        strangers = sorted({end for link in self.links or () for end in link} - everyone)
        if strangers:
            problems.append(f"links name {', '.join(strangers)}, who is nobody here")
        if self.vectors is not None and (
            set(self.vectors) != set(self.parties) or len({np.shape(each) for each in self.vectors.values()}) != 1
        ):
            problems.append("vectors must give every party one vector, all of one length")
        return problems

    def settings(self) -> dict[str, Any]:
        """Returns what a federation is set up with."""
        return {**self.options, "seed": self.seed, "record": True, "allow_leaks": True}

    def hears(self, envelope: Envelope) -> bool:
        """Says whether an onlooker hears the link of an envelope."""
        ends = {envelope.address.sender, envelope.address.to}
        return self.links is None or any(ends == set(link) for link in self.links)


@dataclass
class Learnt:
    """What a coalition has learnt after some rounds."""

    victims: list[Party]
    """Of whom it knows some entry of some round, at a glance."""
    recipes: Callable[[], dict[Party, Recipe]]
    """How it works them out. That takes longer than a glance."""
    others: list[Unknown]
    """The others' vectors, entry by entry."""
    rows: NDArray[np.int64]
    """A basis of what it knows of these alone, a column for each, modulo a small prime."""
    divided: bool
    """Whether it saw what a protocol divided by an unknown, which is not linear."""


class SymbolicRun:
    """Some rounds on unknowns and, for proofs, the same rounds on numbers."""

    def __init__(self, question: Question) -> None:
        if problems := question.problems():
            raise ConfigError(problems)
        self.question, self.names = question, question.parties
        selective = Federation(question.protocol, self.names, 1, symbolic=True, **question.settings()).config.selective
        self.entries = question.entries or (PROOF_ENTRIES if selective else 1)
        if question.vectors is not None:
            self.entries = min(self.entries, len(next(iter(question.vectors.values()))))
        self.brought = [self._bring(round_) for round_ in range(1, question.rounds + 1)]
        self.federation = Federation(
            question.protocol, self.names, self.entries, symbolic=self._value, **question.settings()
        )
        self.envelopes: dict[Number, Envelope] = {}
        self.contributors: list[tuple[Party, ...]] = []
        """Whose vectors were summed, round by round; nobody's if it was aborted."""
        self._real: list[Transcript] | None = None
        self._run()

    def _bring(self, round_: int) -> dict[Party, NDArray[np.float64]]:
        """Returns the vectors on which recipes are proved, and by whose size entries are selected."""
        question, count = self.question, PROOF_ENTRIES if self.entries == 1 else self.entries
        if question.vectors is not None:
            length = len(next(iter(question.vectors.values())))
            places = SeededEntropy("positions", question.seed).sample(range(length), min(count, length))
            return {party: np.asarray(question.vectors[party], dtype=np.float64)[places] for party in self.names}
        when = round_ if question.drift == "free" else 1
        return {party: SeededEntropy("proof", party, when).uniform("proof", count) * 2 - 1 for party in self.names}

    def _value(self, unknown: Unknown) -> float:
        """Returns what an entry of an input stands for."""
        _, owner, entry = unknown
        party, round_ = owner if isinstance(owner, tuple) else (owner, 1)
        return float(self.brought[round_ - 1][party][entry]) if entry < self.entries else 1.0

    def _run(self) -> None:
        aborted: TacitError | None = None
        for round_ in range(1, self.question.rounds + 1):
            try:
                self.contributors.append(self.federation.average_unknowns(self.question.drift).contributors)
            except TacitError as error:
                aborted = error  # a round that ends without an average has been seen all the same
                self.contributors.append(())
            except TypeError as error:
                raise NotLinear(
                    f"{self.question.protocol} does something with vectors that is not linear, and the audit does not "
                    f"guess what that shows: {error}"
                ) from error
            last = self.federation.last
            for number, passed in enumerate((last and last.transcript) or ()):
                self.envelopes[round_, number] = passed.envelope
        if aborted is not None and not any(self.contributors):
            raise aborted

    def multiplies(self, coalition: Collection[Party]) -> bool:
        """Says whether others multiplied vectors by numbers that they keep secret, which is not linear."""
        drawn = {party: getattr(suite.entropy, "factors", 0) for party, suite in self.federation.suites.items()}
        return any(count for party, count in drawn.items() if party not in coalition)

    def check(self, coalition: Sequence[Party]) -> None:
        """Raises ConfigError unless this can be a coalition."""
        everyone = (*self.federation.everyone, ONLOOKER)
        strangers = sorted(set(coalition) - set(everyone))
        if strangers or not coalition:
            who = f"{', '.join(strangers)} is nobody here" if strangers else "a coalition has at least one member"
            raise ConfigError(f"{who}; there are {', '.join(everyone)}")
        if set(coalition) >= set(self.names):
            raise ConfigError("a coalition of everyone has nobody left to learn from")

    def seen(self, coalition: Collection[Party], rounds: int) -> tuple[dict[Number, Envelope], set[Number]]:
        """Returns the envelopes that a coalition saw, and those of them that were open to its onlooker."""
        members, seen, heard = set(coalition), {}, set()
        for number, envelope in self.envelopes.items():
            taps = ONLOOKER in members and self.question.hears(envelope)
            if number[0] <= rounds and (taps or members & {envelope.address.sender, envelope.address.to}):
                seen[number] = envelope
                if taps:
                    heard.add(number)
        return seen, heard

    def learnt(self, coalition: Collection[Party], rounds: int) -> Learnt:
        """Returns what a coalition knows after some rounds."""
        world = self.federation.world
        if world is None:
            raise ConfigError("an audit needs a symbolic run")
        members = set(coalition)
        seen, heard = self.seen(members, rounds)
        view = View(world, sorted(members - {ONLOOKER}), seen, () if self.question.sealed else heard)
        forms: list[Form] = []
        sources: list[tuple[Source, int]] = []
        for known in view.vectors:
            # If one entry stands for all, what lies behind it is a weight, or another stretch of a mask.
            for place, form in enumerate(known.vector[: self.entries if self.entries == 1 else None]):
                forms.append(form)
                sources.append((known, place))
        inputs = {unknown for party in self.names for unknown in self._inputs(party)}
        owned = {unknown for form in forms for unknown in form.terms if owner_of(unknown) in members}
        owned |= {unknown for unknown in inputs if owner_of(unknown) in members}
        for unknown in sorted(owned, key=repr):
            forms.append(Form({unknown: 1}))
            sources.append((unknown, unknown[2]))
        if any(ONE in form.terms for form in forms):
            forms.append(Form({ONE: 1}))
            sources.append((ONE, 0))
        divided = any(unknown[0] == "ratio" for form in forms for unknown in form.terms)
        others = sorted((unknown for unknown in inputs if owner_of(unknown) not in members), key=repr)
        glance = Glance(forms, others)
        victims = sorted({owner_of(unknown) for unknown in glance.exposed()}, key=self.names.index)

        def recipes() -> dict[Party, Recipe]:
            return self._recipes(RowSpace(forms, inputs), view, sources, set(others)) if victims else {}

        return Learnt(victims, recipes, others, glance.rows, divided)

    def _inputs(self, party: Party) -> Iterator[Unknown]:
        static = self.question.drift == "static"
        owners: list[Any] = [party] if static else [(party, round_) for round_ in range(1, self.question.rounds + 1)]
        return (("input", owner, entry) for owner in owners for entry in range(self.entries))

    def _recipes(
        self, space: RowSpace, view: View, sources: Sequence[tuple[Source, int]], others: set[Unknown]
    ) -> dict[Party, Recipe]:
        """Returns how to recover each victim's vector: that of the first round in which it is exposed."""
        whose: dict[Party, Any] = {}
        parts: dict[Party, dict[int, tuple[Part, ...]]] = {}
        for unknown in sorted((each for each in space.exposed() if each in others), key=lambda each: _round(each[1])):
            _, owner, entry = unknown
            victim = owner_of(unknown)
            if whose.setdefault(victim, owner) == owner:
                recipe = space.recipes[unknown]
                parts.setdefault(victim, {})[entry] = tuple(
                    Part(rational(value), *sources[index]) for index, value in recipe.items()
                )
        victims = sorted(parts, key=self.names.index)
        return {victim: Recipe(victim, view, parts[victim], self.entries) for victim in victims}

    def safe_rounds(self, coalition: Collection[Party]) -> int:
        """Returns after how many rounds nobody is exposed yet, given that somebody is in the end."""
        # Knowledge only grows, so the first round that exposes anybody can be searched for by halves.
        rounds = range(1, self.question.rounds)
        return bisect_left(rounds, True, key=lambda rounds: bool(self.learnt(coalition, rounds).victims))

    def real(self) -> list[Transcript]:
        """Returns the transcripts of the same rounds on numbers, with real cryptography."""
        if self._real is None:
            # In 64 bits the ring's rounding is out of the way of recipes with large factors.
            entries = len(next(iter(self.brought[0].values())))
            settings = {**self.question.settings(), "bits": 64}
            self._real = list(
                recorded(Federation(self.question.protocol, self.names, entries, **settings), self.brought)
            )
        return self._real

    def error(self, recipe: Any, victim: Party) -> float:
        """Returns how far a recipe is off at most, where it recovers anything, when replayed on real transcripts."""
        recovered = recipe.recover(self.real())
        found = ~np.isnan(recovered)
        truth = [brought[victim] for brought in self.brought]
        return float(min(np.abs(recovered - vector)[found].max() for vector in truth))


def recorded(federation: Federation, brought: Sequence[Mapping[Party, NDArray[np.float64]]]) -> Iterator[Transcript]:
    """Yields the transcripts of some rounds on numbers, whether they end with an average or not."""
    for vectors in brought:
        with suppress(TacitError):
            federation.average({party: Update(vector) for party, vector in vectors.items()})
        if federation.last is not None and federation.last.transcript is not None:
            yield federation.last.transcript


def owner_of(unknown: Unknown) -> Party:
    """Returns whose an unknown is; nobody's, if it is the constant that all know."""
    owner = unknown[1] if unknown != ONE else ""
    return str(owner[0] if isinstance(owner, tuple) else owner)


def _round(owner: Any) -> int:
    return int(owner[1]) if isinstance(owner, tuple) else 0
