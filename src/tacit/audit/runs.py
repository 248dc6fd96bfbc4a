"""A run of the deployed code on unknowns, looked at by one coalition after another."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.audit.linear import RowSpace, SmallRowSpace, rational
from tacit.audit.recipes import Part, Recipe, Source
from tacit.audit.symbolic.entropy import SymbolicEntropy
from tacit.audit.symbolic.forms import ONE, Form, Unknown
from tacit.audit.symbolic.simulation import Drift, SymbolicSimulation
from tacit.audit.views import Number, View
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, NotLinear, TacitError
from tacit.core.messages import Envelope
from tacit.core.protocol import Protocol, Role, Terms
from tacit.core.suite import SERVER, Party, Update
from tacit.drivers.agreement import terms_for
from tacit.drivers.faults import Fault, faults_from
from tacit.drivers.recording import Transcript
from tacit.drivers.simulator import Simulation
from tacit.protocols import find

ONLOOKER: Party = "onlooker"
"""The member of a coalition that takes no part, and hears links."""
PROOF_ENTRIES = 16
"""Length of the vectors on which recipes are proved, and the number of positions looked at if they fare differently."""
PROOF_BITS = 64
"""Of the ring in which recipes are proved, so that rounding is out of the way of those with large factors."""


@dataclass(frozen=True)
class Scope:
    """What an audit looks at: a protocol on its terms, for how long, and what there is to be seen."""

    protocol: Protocol
    terms: Terms
    rounds: int = 1
    drift: Drift = "static"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    entries: int | None = None
    """How many positions to look at, if they fare differently."""
    vectors: Mapping[Party, NDArray[np.float64]] | None = None
    """By whose size entries are selected."""
    links: Collection[tuple[Party, Party]] | None = None
    """What an onlooker hears; None for all."""
    sealed: bool = True
    stand_ins: Mapping[Party, Role] | None = None
    """Coroutines in the place of some parties'."""

    @classmethod
    def of(
        cls,
        protocol: str,
        parties: Sequence[Party],
        options: Mapping[str, Any],
        *,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        **others: Any,
    ) -> "Scope":
        """Returns a scope for the settings that some options stand for, whether they leak or not."""
        entry = find(protocol)
        kinds = [kind.__name__ for kind in entry.messages]
        planned, problems = faults_from(faults, entry.everyone(tuple(parties)), kinds)
        terms = terms_for(entry, parties, {**options, "allow_leaks": True}, problems)
        scope = cls(entry, terms, faults=planned, **others)
        if problems := scope.problems():
            raise ConfigError(problems)
        return scope

    @property
    def parties(self) -> tuple[Party, ...]:
        """Those who bring vectors."""
        return self.terms.parties

    def problems(self) -> list[str]:
        """Returns everything that is wrong with it."""
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

    def hears(self, envelope: Envelope) -> bool:
        """Says whether an onlooker hears the link of an envelope."""
        ends = {envelope.address.sender, envelope.address.to}
        return self.links is None or any(ends == set(link) for link in self.links)

    def real(self, entries: int) -> Simulation:
        """Returns a recorded simulation of the same rounds on numbers, with real cryptography."""
        return Simulation.on(
            self.protocol,
            self.terms,
            entries,
            self.seed,
            self.faults,
            record=True,
            stand_ins=self.stand_ins,
            bits_played=PROOF_BITS,
            twin=True,
        )


@dataclass
class Knowledge:
    """What a coalition knows after some rounds."""

    victims: list[Party]
    """Of whom it knows some entry of some round, as far as small numbers tell."""
    recipes: Callable[[], dict[Party, Recipe]]
    """How it works them out. That takes longer to say than whom."""
    others: list[Unknown]
    """The others' vectors, entry by entry."""
    rows: NDArray[np.int64]
    """A basis of what it knows of these alone, a column for each, modulo a small prime."""
    divided: bool
    """Whether it saw what a protocol divided by an unknown, which is not linear."""


class SymbolicRun:
    """Some rounds on unknowns and, for proofs, the same rounds on numbers."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.names = scope, scope.parties
        self.entries = scope.entries or (PROOF_ENTRIES if scope.terms.selective else 1)
        if scope.vectors is not None:
            self.entries = min(self.entries, len(next(iter(scope.vectors.values()))))
        self.brought = [self._bring(number) for number in range(1, scope.rounds + 1)]
        self.simulation = SymbolicSimulation(
            scope.protocol, scope.terms, self.entries, scope.seed, scope.faults, self._value, scope.stand_ins
        )
        self.envelopes: dict[Number, Envelope] = {}
        self.contributors: list[tuple[Party, ...]] = []
        """Whose vectors were summed, round by round; nobody's if it was aborted."""
        self._factors: Counter[Party] = Counter()
        self._real: list[Transcript] | None = None
        self._run()

    def _bring(self, number: int) -> dict[Party, NDArray[np.float64]]:
        """Returns the vectors on which recipes are proved, and by whose size entries are selected."""
        scope, count = self.scope, PROOF_ENTRIES if self.entries == 1 else self.entries
        if scope.vectors is not None:
            length = len(next(iter(scope.vectors.values())))
            places = SeededEntropy("positions", scope.seed).sample(range(length), min(count, length))
            return {party: np.asarray(scope.vectors[party], dtype=np.float64)[places] for party in self.names}
        return proof_vectors(self.names, number if scope.drift == "free" else 1, count)

    def _value(self, unknown: Unknown) -> float:
        """Returns what an entry of an input stands for."""
        _, owner, entry = unknown
        party, number = owner if isinstance(owner, tuple) else (owner, 1)
        return float(self.brought[number - 1][party][entry]) if entry < self.entries else 1.0

    def _run(self) -> None:
        aborted: TacitError | None = None
        for number in range(1, self.scope.rounds + 1):
            try:
                self.contributors.append(self.simulation.average_unknowns(self.scope.drift).contributors)
            except TacitError as error:
                aborted = error  # a round that ends without an average has been seen all the same
                self.contributors.append(())
            except TypeError as error:
                name = self.scope.protocol.name
                raise NotLinear(
                    f"{name} does something with vectors that is not linear, and the audit does not guess what that "
                    f"shows: {error}"
                ) from error
            played = self.simulation.last
            if played is None or played.transcript is None:
                continue
            for place, passed in enumerate(played.transcript):
                self.envelopes[number, place] = passed.envelope
            for party, round_ in played.rounds.items():
                if isinstance(round_.suite.entropy, SymbolicEntropy):
                    self._factors[party] += round_.suite.entropy.factors
        # A party that lies may want no average. Otherwise there would be nothing to audit.
        if aborted is not None and not any(self.contributors) and not self.scope.stand_ins:
            raise aborted

    def multiplies(self, coalition: Collection[Party]) -> bool:
        """Says whether others multiplied vectors by numbers that they keep secret, which is not linear."""
        return any(count for party, count in self._factors.items() if party not in coalition)

    def check(self, coalition: Sequence[Party]) -> None:
        """Raises ConfigError unless this can be a coalition."""
        everyone = (*self.simulation.agreement.everyone, ONLOOKER)
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
            taps = ONLOOKER in members and self.scope.hears(envelope)
            if number[0] <= rounds and (taps or members & {envelope.address.sender, envelope.address.to}):
                seen[number] = envelope
                if taps:
                    heard.add(number)
        return seen, heard

    def knowledge(self, coalition: Collection[Party], rounds: int) -> Knowledge:
        """Returns what a coalition knows after some rounds."""
        members = set(coalition)
        seen, heard = self.seen(members, rounds)
        world, session = self.simulation.world, self.simulation.agreement.session
        view = View(world, session, sorted(members - {ONLOOKER}), seen, () if self.scope.sealed else heard)
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
        small = SmallRowSpace(forms, others)
        victims = sorted({owner_of(unknown) for unknown in small.exposed()}, key=self.names.index)

        def recipes() -> dict[Party, Recipe]:
            return self._recipes(RowSpace(forms, inputs), view, sources, set(others)) if victims else {}

        return Knowledge(victims, recipes, others, small.rows, divided)

    def _inputs(self, party: Party) -> Iterator[Unknown]:
        static = self.scope.drift == "static"
        owners: list[Any] = [party] if static else [(party, number) for number in range(1, self.scope.rounds + 1)]
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
        rounds = range(1, self.scope.rounds)
        return bisect_left(rounds, True, key=lambda rounds: bool(self.knowledge(coalition, rounds).victims))

    def real(self) -> list[Transcript]:
        """Returns the transcripts of the same rounds on numbers, with real cryptography."""
        if self._real is None:
            entries = len(next(iter(self.brought[0].values())))
            self._real = list(transcripts(self.scope.real(entries), self.brought))
        return self._real

    def error(self, recipe: Any, victim: Party) -> float:
        """Returns how far a recipe is off at most, where it recovers anything, when replayed on real transcripts."""
        recovered = recipe.recover(self.real())
        found = ~np.isnan(recovered)
        truth = [brought[victim] for brought in self.brought]
        return float(min(np.abs(recovered - vector)[found].max() for vector in truth))


def transcripts(simulation: Simulation, brought: Sequence[Mapping[Party, NDArray[np.float64]]]) -> Iterator[Transcript]:
    """Yields the transcripts of some rounds on numbers, whether they end with an average or not."""
    for vectors in brought:
        with suppress(TacitError):
            simulation.average({party: Update(vector) for party, vector in vectors.items()})
        if simulation.last is not None and simulation.last.transcript is not None:
            yield simulation.last.transcript


def proof_vectors(parties: Sequence[Party], number: int, entries: int) -> dict[Party, NDArray[np.float64]]:
    """Returns vectors for a round on which recipes are proved: random, and the same each time."""
    return {party: SeededEntropy("proof", party, number).secret_vector("proof", entries) * 2 - 1 for party in parties}


def owner_of(unknown: Unknown) -> Party:
    """Returns whose an unknown is; nobody's, if it is the constant that all know."""
    owner = unknown[1] if unknown != ONE else ""
    return str(owner[0] if isinstance(owner, tuple) else owner)


def _round(owner: Any) -> int:
    return int(owner[1]) if isinstance(owner, tuple) else 0
