"""Symbolic run: the deployed code on unknowns, analysed for one coalition after another."""

import gc
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import SmallRowSpace, smallest_class, solve_forms
from tacit.auditing.engine.algebra.precision import DROWNED, NEAR, Spread, estimate_bits
from tacit.auditing.engine.algebra.rows import Columns, Rows, Written
from tacit.auditing.engine.failures import refusal
from tacit.auditing.engine.recipes import Part, Recipe, RecipePiece, Source
from tacit.auditing.engine.views import KnownVector, Number, View
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.entropy import SymbolicEntropy
from tacit.auditing.symbolic.forms import INPUT, ONE, Form, Unknown
from tacit.auditing.symbolic.simulation import SymbolicSimulation, in_session
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import NotLinear, ProtocolMistake, TacitError
from tacit.core.messages import Envelope
from tacit.core.progress import report_step
from tacit.core.suite import ONLOOKER, Party, Update, Vector
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

PROOF_ENTRIES = 16
"""Length of the vectors on which recipes are proved, and the number of analysed positions if entries are treated
differently."""


KINDS = (INPUT, "mask", "ratio")
"""Kinds of unknowns that are distinguished from secret numbers."""


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
        """Whether the coalition saw a quotient of unknowns, which is not linear."""
        self._draws = bool({*kinds} - {KINDS.index(INPUT), KINDS.index("mask")})
        """Whether the coalition saw a secret number added to something. Such numbers may be small and hide little."""
        honest = np.array([party not in self._members for party in run.names])
        self.at = run.places_in_all[honest[run.places_in_all[:, 0]]]
        """Party, round and entry of each of the others' unknowns, as numbers from 0; round 0 if all rounds have the
        same."""
        self.others = list(compress(run.brought_in_all, honest[run.places_in_all[:, 0]].tolist()))
        """The entries of the others' vectors."""
        small = SmallRowSpace(left, self.others)
        self.rows = small.rows
        """Basis of what the coalition knows of these entries alone, one column each, modulo a small prime."""
        self._alone, self._left = small.list_determined(), left

    @cached_property
    def group(self) -> int | None:
        """The fewest other parties in any class that the coalition cannot tell apart; None if it saw nothing.

        Secret numbers other than masks, such as λ⁰ of ADMM, hide something but do not count here.
        """
        if not self._draws:
            return smallest_class(self.rows)
        kinds = self.run.columns.evaluate(_kind)
        bare = self._left.only((kinds == KINDS.index(INPUT)) | (kinds == KINDS.index("mask")))
        return smallest_class(SmallRowSpace(bare, self.others).rows)

    @cached_property
    def exact(self) -> list[Party]:
        """Parties some entry of which is determined by algebra, for numbers of unlimited precision."""
        return sorted({owner_of(unknown) for unknown in self._alone}, key=self.run.names.index)

    @cached_property
    def bits(self) -> dict[Party, float]:
        """Bits that the coalition knows of each other party's best-known entry."""
        return self._best(self.run.spread)

    @cached_property
    def _rounding(self) -> dict[Party, float]:
        """Bits that the coalition knows of the entries with their noise."""
        spread = self.run.spread
        return self._best(replace(spread, noise=0.0, drift=None)) if spread.noise else self.bits

    def _best(self, spread: Spread) -> dict[Party, float]:
        found: dict[Party, float] = {}
        for unknown, bits in estimate_bits(self._left, self._rounded, self.others, spread).items():
            found[owner_of(unknown)] = max(found.get(owner_of(unknown), 0.0), bits)
        # Sums are exact in the ring, so vectors that follow from sums alone are known exactly, unless they carry noise.
        exact = dict.fromkeys(self.exact if self._whole and not spread.noise else (), spread.most)
        return {party: (found | exact)[party] for party in self.run.names if party in found}

    @cached_property
    def victims(self) -> list[Party]:
        """Parties some entry of which is known, exactly or nearly, given the rounding of the ring."""
        if self.only_sums and not self.exact:
            return []
        return [party for party in self.run.names if self._is_exposed(party)]

    @cached_property
    def only_sums(self) -> bool:
        """Whether algebra decides everything: only sums were seen, of vectors that are not correlated over rounds."""
        return self._whole and not self.run.spread.tied and not self._draws

    @cached_property
    def _whole(self) -> bool:
        """Whether the coalition saw only sums without fractions, so that nobody can be nearly exposed."""
        return not any(self._rounded)

    @cached_property
    def _rounded(self) -> list[bool]:
        """For each form that the coalition saw, whether it has fractions."""
        return [form.rounded for form in self._seen]

    def _is_exposed(self, party: Party) -> bool:
        bits = self._rounding.get(party, 0.0)
        return bits >= DROWNED if party in self.exact else max(bits, self.bits.get(party, 0.0)) >= NEAR

    @property
    def drowned(self) -> list[Party]:
        """Parties that would be exposed if the ring had more digits."""
        return [party for party in self.exact if not self._is_exposed(party)]

    def recipes(self) -> dict[Party, Recipe]:
        """Returns a recipe for each victim, for the first round in which most of its entries are exposed.

        This takes longer than finding the victims. Raises NotLinear if no fractions are found.
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
                f"{', '.join(missing)} would be exposed, but the recipe needs fractions with more digits than "
                "the audit computes"
            )
        victims = sorted(pieces, key=self.run.names.index)
        return {victim: Recipe(victim, self.view, pieces[victim], self.run.entries) for victim in victims}

    def _collect_forms(self) -> tuple[list[Form], list[tuple[Source, int]]]:
        """Returns all forms that the coalition knows with their sources: messages, masks, and members' own vectors and
        numbers."""
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
    """Returns the place of an unknown's kind in `KINDS`, or the length of `KINDS` for any other kind."""
    return KINDS.index(unknown[0]) if unknown[0] in KINDS else len(KINDS)


def _value_in(brought: Sequence[Mapping[Party, NDArray[np.float64]]], entries: int, unknown: Unknown) -> float:
    """Returns the value of an input's entry, given the vectors of each round."""
    _, owner, entry = unknown
    party, number = owner if isinstance(owner, tuple) else (owner, 1)
    return float(brought[number - 1][party][entry]) if entry < entries else 1.0


def _number_owner(numbers: dict[Any, int], unknown: Unknown) -> int:
    """Returns a number for the owner of an unknown: a party, or a seed for masks. Everybody knows the constant."""
    owner = unknown[1] if unknown[0] == "mask" else unknown if unknown == ONE else owner_of(unknown)
    return numbers.setdefault(owner, len(numbers))


class SymbolicRun:
    """Some rounds on unknowns and, to prove recipes, the same rounds on numbers."""

    def __init__(self, scope: Scope, *, noisy: bool = False) -> None:
        """Runs the rounds of a scope. With `noisy`, noise is represented by unknowns, and results are kept."""
        self.scope, self.names = scope, scope.parties
        entries = scope.entries or (PROOF_ENTRIES if scope.terms.selective else 1)
        if scope.vectors is not None:
            entries = min(entries, len(next(iter(scope.vectors.values()))))
        # If all entries are treated alike, one is analysed. At least two are run, because that cannot be checked on
        # one.
        self.entries = max(entries, 2)
        self.brought = [self._bring(number) for number in range(1, scope.rounds + 1)]
        # Nothing that a run holds refers back to it, so its memory is free as soon as it is no longer needed.
        value = partial(_value_in, self.brought, self.entries)
        self.simulation = SymbolicSimulation(
            scope.protocol, scope.terms, self.entries, scope.seed, scope.faults, value, scope.stand_ins, noisy=noisy
        )
        self.results: list[Mapping[Party, Vector]] = []
        """The average of each party that finished, by round, in a run with noise."""
        self.envelopes: dict[Number, Envelope] = {}
        self._taken: dict[Party, list[Number]] = defaultdict(list)
        """The envelopes that each party sent or received."""
        self.contributors: list[tuple[Party, ...]] = []
        """The parties whose vectors were summed, by round; none if the round was aborted."""
        self.error_of: TacitError | None = None
        """The error of the last round that was aborted."""
        self._factors: Counter[Party] = Counter()
        self._alone: dict[tuple[Party, int], View] = {}
        self.columns = Columns()
        """The numbers of all unknowns that any party saw."""
        self._written: dict[bytes, tuple[Vector, list[Written]]] = {}
        self._owners: dict[Any, int] = {}
        self._number_owner = partial(_number_owner, self._owners)
        self._real: list[Transcript] | None = None
        self._run()
        if entries == 1 and self.simulation.is_aligned:
            self.entries = 1
            self.brought = [self._bring(number) for number in range(1, scope.rounds + 1)]
        agreement = self.simulation.agreement
        self.spread = scope.spread(agreement.ring().resolution)

    def _bring(self, number: int) -> dict[Party, NDArray[np.float64]]:
        """Returns the vectors on which recipes are proved. Where entries are selected by size, these vectors decide."""
        scope, count = self.scope, PROOF_ENTRIES if self.entries == 1 else self.entries
        if scope.vectors is not None:
            length = len(next(iter(scope.vectors.values())))
            places = SeededEntropy("positions", scope.seed).sample(range(length), min(count, length))
            return {party: np.asarray(scope.vectors[party], dtype=np.float64)[places] for party in self.names}
        return proof_vectors(self.names, 1 if scope.static else number, count, scope.proof_size)

    def _run(self) -> None:
        with paused_collection():
            self._run_rounds()

    def _run_rounds(self) -> None:
        for number in range(1, self.scope.rounds + 1):
            report_step(f"running round {number} of {self.scope.rounds} on unknowns")
            try:
                outcome = self.simulation.average_unknowns(self.scope.changing)
            except ProtocolMistake:
                raise  # No round of this protocol can end.
            except TacitError as error:
                self.error_of = error  # A round that ends without an average was still recorded.
                self.contributors.append(())
                self.results.append({})
            except Exception as error:
                raise refusal(self.scope.protocol.name, error) from error
            else:
                self.contributors.append(outcome.contributors)
                self.results.append(outcome.average if self.simulation.table.noisy else {})
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
        self.simulation.last = None  # It refers back to the simulation.

    @property
    def aborted(self) -> TacitError | None:
        """The error if no round ended with an average, so that there is nothing to audit. A malicious party may cause
        that."""
        return None if any(self.contributors) or self.scope.stand_ins else self.error_of

    @property
    def averages(self) -> int:
        """Number of rounds that ended with an average."""
        return sum(map(bool, self.contributors))

    def multiplies(self, coalition: Collection[Party]) -> bool:
        """Says whether other parties multiplied vectors by secret numbers, which is not linear."""
        return any(count for party, count in self._factors.items() if party not in coalition)

    def seen_envelopes(self, coalition: Collection[Party], rounds: int) -> tuple[dict[Number, Envelope], set[Number]]:
        """Returns the envelopes that a coalition saw, and those among them that its eavesdropper recorded on a link.

        A lost envelope was seen by its sender and by an eavesdropper on its link, but by no receiver.
        """
        heard = {number for number, each in self.envelopes.items() if ONLOOKER in coalition and self.scope.hears(each)}
        numbers = {number for party in coalition for number in self._taken.get(party, ())} | heard
        return {number: self.envelopes[number] for number in sorted(numbers) if number[0] <= rounds}, heard

    def view(self, coalition: Collection[Party], rounds: int) -> View:
        """Returns what a coalition saw and can decrypt in some rounds."""
        with paused_collection():
            return self._view(coalition, rounds)

    def _view(self, coalition: Collection[Party], rounds: int) -> View:
        world, session = self.simulation.world, self.simulation.agreement.session
        members = sorted(set(coalition) - {ONLOOKER})
        if ONLOOKER in coalition:
            seen, heard = self.seen_envelopes(coalition, rounds)
            return View(world, session, members, seen, () if self.scope.sealed else heard)
        # Members belong to many coalitions, so the view of each member alone is cached.
        for party in members:
            if (party, rounds) not in self._alone:
                self._alone[party, rounds] = View(world, session, [party], self.seen_envelopes([party], rounds)[0])
        alone = [self._alone[party, rounds] for party in members]
        return View(world, session, (), {}, views=alone) if len(alone) > 1 else alone[0]

    def write_forms(self, known: KnownVector) -> list[Written]:
        """Returns the forms of a vector that count, converted once for each way of reading the vector."""
        vector, forms = self._written.get(known.token, (None, []))
        if vector is not known.vector:
            # If one entry stands for all, the next one is the weight.
            forms = [Written(form, self.columns) for form in known.vector[: 1 if self.entries == 1 else None]]
            self._written[known.token] = known.vector, forms
        return forms

    def hidden(self, members: Collection[Party], seeds: Collection[bytes]) -> NDArray[np.bool_]:
        """Returns for each unknown whether it belongs to no member and is no mask from one of the given seeds."""
        owner = self.columns.evaluate(self._number_owner)
        known = np.zeros(len(self._owners), dtype=np.bool_)
        known[[self._owners[each] for each in (ONE, *members, *seeds) if each in self._owners]] = True
        return ~known[owner]

    def knowledge(self, coalition: Collection[Party], rounds: int) -> Knowledge:
        """Returns what a coalition knows after some rounds."""
        return Knowledge(self, coalition, rounds)

    def inputs(self, party: Party) -> Iterator[Unknown]:
        """Yields the entries of all vectors that a party contributes."""
        owners: list[Any] = [party]
        if not self.scope.static:
            owners = [(party, number) for number in range(1, self.scope.rounds + 1)]
        return (("input", owner, entry) for owner in owners for entry in range(self.entries))

    @cached_property
    def brought_in_all(self) -> list[Unknown]:
        """The entries of all contributed vectors, sorted by name."""
        return sorted((unknown for party in self.names for unknown in self.inputs(party)), key=repr)

    @cached_property
    def places_in_all(self) -> NDArray[np.int64]:
        """Party, round and entry of each contributed entry, as numbers."""
        place = {party: number for number, party in enumerate(self.names)}
        return np.array([(place[owner_of(each)], _round(each[1]), each[2]) for each in self.brought_in_all])

    def safe_rounds(self, coalition: Collection[Party]) -> int:
        """Returns the number of rounds after which nobody is exposed yet, for a coalition that exposes somebody in the
        end."""
        # Knowledge only grows, so a binary search finds the first round that exposes somebody.
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
        """Returns the largest error of a recipe on real transcripts, over the entries that it recovers.

        The error is infinite if the real run made other choices. This can happen if two sums are equal by chance or
        because nothing changed: on symbols two sums are always different.
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
    """Pauses the cyclic garbage collector: a run keeps everything, and each collection would search all of it again."""
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
    """Returns the vectors of a round on which recipes are proved: random up to a size, and the same each time."""
    return {
        party: (SeededEntropy("proof", party, number).secret_vector("proof", entries) * 2 - 1) * size
        for party in parties
    }


def owner_of(unknown: Unknown) -> Party:
    """Returns the owner of an unknown; the empty name for the constant, which everybody knows."""
    owner = unknown[1] if unknown != ONE else ""
    return str(owner[0] if isinstance(owner, tuple) else owner)


def _round(owner: Any) -> int:
    return int(owner[1]) if isinstance(owner, tuple) else 0
