"""A run of the deployed code on unknowns, looked at by one coalition after another."""

import gc
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.failures import refusal
from tacit.auditing.engine.linear import SmallRowSpace, smallest_class, solve_forms
from tacit.auditing.engine.precision import DROWNED, NEAR, Spread, estimate_bits
from tacit.auditing.engine.recipes import Part, Recipe, RecipePiece, Source
from tacit.auditing.engine.rows import Columns, Rows, Written
from tacit.auditing.engine.views import KnownVector, Number, View
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.entropy import SymbolicEntropy
from tacit.auditing.symbolic.forms import INPUT, ONE, Form, Unknown
from tacit.auditing.symbolic.simulation import SymbolicSimulation, in_session
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import NotLinear, StepError, TacitError
from tacit.core.messages import Envelope
from tacit.core.progress import report_step
from tacit.core.suite import ONLOOKER, Party, Update, Vector
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

PROOF_ENTRIES = 16
"""Length of the vectors on which recipes are proved, and the number of positions looked at if they fare differently."""


KINDS = (INPUT, "mask", "ratio")
"""Kinds of unknowns that are told apart from numbers that somebody drew."""


class Knowledge:
    """What a coalition knows after some rounds."""

    def __init__(self, run: "SymbolicRun", coalition: Collection[Party], rounds: int) -> None:
        self.run, self._members = run, set(coalition)
        self.view = run.view(self._members, rounds)
        self._seen = [form for known in self.view.vectors if not known.is_mask for form in run.write_forms(known)]
        columns = run.columns
        rows = Rows.from_forms(columns, self._seen)
        left = rows.only(run.hidden(self._members, [known.token for known in self.view.vectors if known.is_mask]))
        kinds = np.unique(columns.evaluate(_kind)[left.column]).tolist()
        self.divided = KINDS.index("ratio") in kinds
        """Whether it saw what a protocol divided by an unknown, which is not linear."""
        self._draws = bool({*kinds} - {KINDS.index(INPUT), KINDS.index("mask")})
        """Whether it saw anything behind a number that somebody drew, which may hide little."""
        honest = np.array([party not in self._members for party in run.names])
        self.at = run.places_in_all[honest[run.places_in_all[:, 0]]]
        """Party, round and entry of each of the others' unknowns: places from 0, and round 0 if all have the same."""
        self.others = list(compress(run.brought_in_all, honest[run.places_in_all[:, 0]].tolist()))
        """The others' vectors, entry by entry."""
        small = SmallRowSpace(left, self.others)
        self.rows = small.rows
        """A basis of what it knows of these alone, a column for each, modulo a small prime."""
        self._alone, self._left = small.list_determined(), left

    @cached_property
    def group(self) -> int | None:
        """How many others there are, at least, in any class that is alike in all it saw; None if it saw nothing.

        What was drawn besides masks, such as λ⁰ of ADMM, hides something, but does not count here.
        """
        if not self._draws:
            return smallest_class(self.rows)
        kinds = self.run.columns.evaluate(_kind)
        bare = self._left.only((kinds == KINDS.index(INPUT)) | (kinds == KINDS.index("mask")))
        return smallest_class(SmallRowSpace(bare, self.others).rows)

    @cached_property
    def exact(self) -> list[Party]:
        """Of whom it can work out some entry of some round, if numbers had any number of digits."""
        return sorted({owner_of(unknown) for unknown in self._alone}, key=self.run.names.index)

    @cached_property
    def bits(self) -> dict[Party, float]:
        """How many bits of an entry of each of the others it knows: of the entry that is known best."""
        return self._best(self.run.spread)

    @cached_property
    def _rounding(self) -> dict[Party, float]:
        """The same of what is brought, noise and all."""
        spread = self.run.spread
        return self._best(replace(spread, noise=0.0, drift=None)) if spread.noise else self.bits

    def _best(self, spread: Spread) -> dict[Party, float]:
        found: dict[Party, float] = {}
        for unknown, bits in estimate_bits(self._left, self._rounded, self.others, spread).items():
            found[owner_of(unknown)] = max(found.get(owner_of(unknown), 0.0), bits)
        # Sums are exact in the ring, so what is worked out from them alone is, unless there is noise in it.
        exact = dict.fromkeys(self.exact if self._whole and not spread.noise else (), spread.most)
        return {party: (found | exact)[party] for party in self.run.names if party in found}

    @cached_property
    def victims(self) -> list[Party]:
        """Of whom it knows some entry, exactly or nearly, given how the ring rounds."""
        if self.only_sums and not self.exact:
            return []
        return [party for party in self.run.names if self._is_exposed(party)]

    @cached_property
    def only_sums(self) -> bool:
        """Whether algebra says all: it saw sums alone, of vectors that tell nothing about each other."""
        return self._whole and not self.run.spread.tied and not self._draws

    @cached_property
    def _whole(self) -> bool:
        """Whether all it saw are sums, with no fraction anywhere: then nobody can be nearly exposed."""
        return not any(self._rounded)

    @cached_property
    def _rounded(self) -> list[bool]:
        """Which of the forms that it saw have fractions in them."""
        return [form.rounded for form in self._seen]

    def _is_exposed(self, party: Party) -> bool:
        bits = self._rounding.get(party, 0.0)
        return bits >= DROWNED if party in self.exact else max(bits, self.bits.get(party, 0.0)) >= NEAR

    @property
    def drowned(self) -> list[Party]:
        """Who would be exposed if the ring had more digits."""
        return [party for party in self.exact if not self._is_exposed(party)]

    def recipes(self) -> dict[Party, Recipe]:
        """Returns how to recover each victim's vector: that of the first round in which most of it is exposed.

        That takes longer to say than whom. Raises NotLinear if no fractions are found for it.
        """
        if not self.exact:
            return {}
        wanted = set(self.others)
        forms, sources = self._collect_forms()
        found = solve_forms(forms, self.run.brought_in_all)
        exposed = sorted((unknown for unknown in found if unknown in wanted), key=lambda each: _round(each[1]))
        count = Counter(unknown[1] for unknown in exposed)
        whose: dict[Party, Any] = {}
        for unknown in exposed:
            victim = owner_of(unknown)
            whose[victim] = max(whose.get(victim, unknown[1]), unknown[1], key=count.__getitem__)
        pieces: dict[Party, dict[int, tuple[RecipePiece, ...]]] = {}
        for unknown in exposed:
            _, owner, entry = unknown
            if whose[victim := owner_of(unknown)] == owner:
                pieces.setdefault(victim, {})[entry] = tuple(
                    RecipePiece(factor, tuple(Part(times, *sources[index]) for index, times in combination.items()))
                    for factor, combination in found[unknown]
                )
        if missing := [victim for victim in self.exact if victim not in pieces]:
            raise NotLinear(
                f"{', '.join(missing)} would be exposed, but by fractions with more digits than the audit follows"
            )
        victims = sorted(pieces, key=self.run.names.index)
        return {victim: Recipe(victim, self.view, pieces[victim], self.run.entries) for victim in victims}

    def _collect_forms(self) -> tuple[list[Form], list[tuple[Source, int]]]:
        """Returns every form that it knows, and where it is from: messages, masks, what members brought or drew."""
        forms: list[Form] = []
        sources: list[tuple[Source, int]] = []
        for known in self.view.vectors:
            for place, form in enumerate(known.vector[: 1 if self.run.entries == 1 else None]):
                forms.append(form)
                sources.append((known, place))
        met = self.run.columns.unknowns_at(Rows.from_forms(self.run.columns, self._seen).column_order())
        spoken = {unknown for unknown in (*met, *self.run.brought_in_all) if unknown[0] != "mask" and unknown != ONE}
        own = {unknown for unknown in spoken if owner_of(unknown) in self._members}
        for unknown in sorted(own, key=repr):
            forms.append(Form({unknown: 1}))
            sources.append((unknown, unknown[2]))
        return [*forms, Form({ONE: 1})], [*sources, (ONE, 0)]


def _kind(unknown: Unknown) -> int:
    """Returns the place of an unknown's kind among `KINDS`; one more for all others."""
    return KINDS.index(unknown[0]) if unknown[0] in KINDS else len(KINDS)


class SymbolicRun:
    """Some rounds on unknowns and, for proofs, the same rounds on numbers."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.names = scope, scope.parties
        entries = scope.entries or (PROOF_ENTRIES if scope.terms.selective else 1)
        if scope.vectors is not None:
            entries = min(entries, len(next(iter(scope.vectors.values()))))
        # Of several entries that fare alike one is looked at; that they do shows only if there are two.
        self.entries = max(entries, 2)
        self.brought = [self._bring(number) for number in range(1, scope.rounds + 1)]
        self.simulation = SymbolicSimulation(
            scope.protocol, scope.terms, self.entries, scope.seed, scope.faults, self._value, scope.stand_ins
        )
        self.envelopes: dict[Number, Envelope] = {}
        self._taken: dict[Party, list[Number]] = defaultdict(list)
        """The envelopes that each party sent, and those that reached it."""
        self.contributors: list[tuple[Party, ...]] = []
        """Whose vectors were summed, round by round; nobody's if it was aborted."""
        self.error_of: TacitError | None = None
        """Why the last round that was aborted was."""
        self._factors: Counter[Party] = Counter()
        self._alone: dict[tuple[Party, int], View] = {}
        self.columns = Columns()
        """The numbers of all unknowns that anybody saw."""
        self._written: dict[bytes, tuple[Vector, list[Written]]] = {}
        self._owners: dict[Any, int] = {}
        self._real: list[Transcript] | None = None
        self._run()
        if entries == 1 and self.simulation.aligned:
            self.entries = 1
            self.brought = [self._bring(number) for number in range(1, scope.rounds + 1)]
        agreement = self.simulation.agreement
        self.spread = scope.spread(agreement.ring().resolution)

    def _bring(self, number: int) -> dict[Party, NDArray[np.float64]]:
        """Returns the vectors on which recipes are proved, and by whose size entries are selected."""
        scope, count = self.scope, PROOF_ENTRIES if self.entries == 1 else self.entries
        if scope.vectors is not None:
            length = len(next(iter(scope.vectors.values())))
            places = SeededEntropy("positions", scope.seed).sample(range(length), min(count, length))
            return {party: np.asarray(scope.vectors[party], dtype=np.float64)[places] for party in self.names}
        return proof_vectors(self.names, 1 if scope.static else number, count, scope.proof_size)

    def _value(self, unknown: Unknown) -> float:
        """Returns what an entry of an input stands for."""
        _, owner, entry = unknown
        party, number = owner if isinstance(owner, tuple) else (owner, 1)
        return float(self.brought[number - 1][party][entry]) if entry < self.entries else 1.0

    def _run(self) -> None:
        with paused_collection():
            self._run_rounds()

    def _run_rounds(self) -> None:
        for number in range(1, self.scope.rounds + 1):
            report_step(f"running round {number} of {self.scope.rounds} on unknowns")
            try:
                self.contributors.append(self.simulation.average_unknowns(self.scope.changing).contributors)
            except StepError:
                raise  # No round of this protocol can end.
            except TacitError as error:
                self.error_of = error  # a round that ends without an average has been seen all the same
                self.contributors.append(())
            except Exception as error:
                raise refusal(self.scope.protocol.name, error) from error
            played = self.simulation.last
            if played is None or played.transcript is None:
                continue
            for place, passed in enumerate(played.transcript):
                self.envelopes[number, place] = passed.envelope
                self._taken[passed.envelope.address.sender].append((number, place))
                if passed.delivered:
                    self._taken[passed.envelope.address.to].append((number, place))
            for party, round_ in played.rounds.items():
                if isinstance(round_.suite.entropy, SymbolicEntropy):
                    self._factors[party] += round_.suite.entropy.factors

    @property
    def aborted(self) -> TacitError | None:
        """Why there is nothing to audit: no round ended with an average. A party that lies may want none."""
        return None if any(self.contributors) or self.scope.stand_ins else self.error_of

    @property
    def averages(self) -> int:
        """How many rounds ended with an average."""
        return sum(map(bool, self.contributors))

    def multiplies(self, coalition: Collection[Party]) -> bool:
        """Says whether others multiplied vectors by numbers that they keep secret, which is not linear."""
        return any(count for party, count in self._factors.items() if party not in coalition)

    def seen_envelopes(self, coalition: Collection[Party], rounds: int) -> tuple[dict[Number, Envelope], set[Number]]:
        """Returns the envelopes that a coalition saw, and those of them that its eavesdropper heard on the way.

        What was lost on the way has been seen by its sender and by whoever heard the link, but by no receiver.
        """
        heard = {number for number, each in self.envelopes.items() if ONLOOKER in coalition and self.scope.hears(each)}
        numbers = {number for party in coalition for number in self._taken.get(party, ())} | heard
        return {number: self.envelopes[number] for number in sorted(numbers) if number[0] <= rounds}, heard

    def view(self, coalition: Collection[Party], rounds: int) -> View:
        """Returns what a coalition saw and can open in some rounds."""
        with paused_collection():
            return self._view(coalition, rounds)

    def _view(self, coalition: Collection[Party], rounds: int) -> View:
        world, session = self.simulation.world, self.simulation.agreement.session
        members = sorted(set(coalition) - {ONLOOKER})
        if ONLOOKER in coalition:
            seen, heard = self.seen_envelopes(coalition, rounds)
            return View(world, session, members, seen, () if self.scope.sealed else heard)
        # Members are in many coalitions, so what each knows alone is kept.
        for party in members:
            if (party, rounds) not in self._alone:
                self._alone[party, rounds] = View(world, session, [party], self.seen_envelopes([party], rounds)[0])
        alone = [self._alone[party, rounds] for party in members]
        return View(world, session, (), {}, views=alone) if len(alone) > 1 else alone[0]

    def write_forms(self, known: KnownVector) -> list[Written]:
        """Returns the forms of a vector that count, written down: once, as long as it is read in the same way."""
        vector, forms = self._written.get(known.token, (None, []))
        if vector is not known.vector:
            # If one entry stands for all, what lies behind it is a weight.
            forms = [Written(form, self.columns) for form in known.vector[: 1 if self.entries == 1 else None]]
            self._written[known.token] = known.vector, forms
        return forms

    def hidden(self, members: Collection[Party], seeds: Collection[bytes]) -> NDArray[np.bool_]:
        """Returns which unknowns are neither of the members nor masks that some seeds are expanded to, by numbers."""
        owner = self.columns.evaluate(self._owner)
        known = np.zeros(len(self._owners), dtype=np.bool_)
        known[[self._owners[each] for each in (ONE, *members, *seeds) if each in self._owners]] = True
        return ~known[owner]

    def _owner(self, unknown: Unknown) -> int:
        """Returns a number for whose an unknown is: a party's, or a seed's if it is a mask; all know the constant."""
        owner = unknown[1] if unknown[0] == "mask" else unknown if unknown == ONE else owner_of(unknown)
        return self._owners.setdefault(owner, len(self._owners))

    def knowledge(self, coalition: Collection[Party], rounds: int) -> Knowledge:
        """Returns what a coalition knows after some rounds."""
        return Knowledge(self, coalition, rounds)

    def inputs(self, party: Party) -> Iterator[Unknown]:
        """Yields the entries of all that a party brings."""
        owners: list[Any] = [party]
        if not self.scope.static:
            owners = [(party, number) for number in range(1, self.scope.rounds + 1)]
        return (("input", owner, entry) for owner in owners for entry in range(self.entries))

    @cached_property
    def brought_in_all(self) -> list[Unknown]:
        """The entries of all that anybody brings, in the order of their names."""
        return sorted((unknown for party in self.names for unknown in self.inputs(party)), key=repr)

    @cached_property
    def places_in_all(self) -> NDArray[np.int64]:
        """Party, round and entry of each of them, as numbers."""
        place = {party: number for number, party in enumerate(self.names)}
        return np.array([(place[owner_of(each)], _round(each[1]), each[2]) for each in self.brought_in_all])

    def safe_rounds(self, coalition: Collection[Party]) -> int:
        """Returns after how many rounds nobody is exposed yet, given that somebody is in the end."""
        # Knowledge only grows, so the first round that exposes anybody can be searched for by halves.
        rounds = range(1, self.scope.rounds)
        return bisect_left(rounds, True, key=lambda rounds: bool(self.knowledge(coalition, rounds).victims))

    def real(self) -> list[Transcript]:
        """Returns the transcripts of the same rounds on numbers, with real cryptography."""
        if self._real is None:
            entries = len(next(iter(self.brought[0].values())))
            simulation = self.scope.real(entries)
            simulation.join(in_session(simulation.agreement, self.simulation.agreement.session))
            self._real = list(transcripts(simulation, self.brought))
        return self._real

    def error(self, recipe: Any, victim: Party) -> float:
        """Returns how far a recipe is off at most, where it recovers anything, when replayed on real transcripts.

        Infinitely, if the real run went another way. Sums that are equal by chance, or because nothing changed, can do
        that: to symbols two sums are always two.
        """
        try:
            recovered = recipe.recover(self.real())
        except (TacitError, LookupError):
            return math.inf
        found, most = ~np.isnan(recovered), self.scope.terms.settings.clip
        truth = [np.clip(brought[victim], -most, most) for brought in self.brought]
        return float(min(np.abs(recovered - vector)[found].max() for vector in truth))


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pauses the search for cyclic garbage: a run keeps all that it makes, and would be searched again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def transcripts(simulation: Simulation, brought: Iterable[Mapping[Party, NDArray[np.float64]]]) -> Iterator[Transcript]:
    """Yields the transcripts of some rounds on numbers, whether they end with an average or not."""
    heaviest = simulation.agreement.settings.max_weight
    for vectors in brought:
        report_step(f"proving it on numbers, round {simulation.number + 1}")
        with suppress(TacitError):
            simulation.average({party: Update(vector, heaviest) for party, vector in vectors.items()})
        if simulation.last is not None and simulation.last.transcript is not None:
            yield simulation.last.transcript


def proof_vectors(
    parties: Sequence[Party], number: int, entries: int, size: float = 1.0
) -> dict[Party, NDArray[np.float64]]:
    """Returns vectors for a round on which recipes are proved: random up to a size, and the same each time."""
    return {
        party: (SeededEntropy("proof", party, number).secret_vector("proof", entries) * 2 - 1) * size
        for party in parties
    }


def owner_of(unknown: Unknown) -> Party:
    """Returns whose an unknown is; nobody's, if it is the constant that all know."""
    owner = unknown[1] if unknown != ONE else ""
    return str(owner[0] if isinstance(owner, tuple) else owner)


def _round(owner: Any) -> int:
    return int(owner[1]) if isinstance(owner, tuple) else 0
