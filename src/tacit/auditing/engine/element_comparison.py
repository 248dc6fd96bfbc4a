"""Comparison of packed vectors with their forms, in runs on different vectors, element by element."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.concrete_run import Twin
from tacit.auditing.engine.guard_vectors import edge_of
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.forms import INPUT, ONE, PLAIN, Form, Unknown
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.suite import Party, Vector
from tacit.crypto.masks import stream
from tacit.protocols import is_shipped

TOLERANCE, UNITS = 1e-12, 16
"""How far a number may be from what its form says where parties divide, and round: by that part of all that is added up
in it, and of 1, and by so many of the smallest steps of the ring. Whole numbers of vectors must be exact."""
NEAR_HALF = 2.0**-5
"""How close to a half a step may be that is rounded up in one run and down in another."""
OPERATIONS = 4
"""Operations on floats, each of which rounds, by which a number is computed that the ring rounds then."""


class ElementComparison:
    """Packed vectors of runs on numbers: some, others of several kinds, and the first with other keys."""

    def __init__(
        self,
        scope: Scope,
        simulation: SymbolicSimulation,
        real: Sequence[Twin],
        rounded: Collection[Unknown],
        key_of: Callable[[bytes], bytes],
    ) -> None:
        """Takes the runs.

        Args:
            scope: the scope that they are of.
            simulation: the run on symbols.
            real: the runs on numbers, that with other keys last.
            rounded: the unknowns of which parts were sent, which are rounded.
            key_of: returns the key that a token stands for in the first run.
        """
        self.world, self.key_of, self.rounded = simulation.world, key_of, rounded
        agreement = simulation.agreement
        self.entries, self.ring = agreement.entries, agreement.ring(PROOF_BITS)
        # Of protocols of others nothing is believed by their terms: one could leave itself any room to differ.
        self.shipped = is_shipped(scope.protocol)
        self.units = UNITS * (scope.terms.amplifies if self.shipped else 1.0)
        self.room = 2.0 ** (agreement.ring().bits - 1) / agreement.ring().scale
        self.most = max(1.0, self.room / edge_of(agreement, self.ring))
        """How often a vector may be taken before it wraps around in the deployed ring."""
        clips = {agreement.settings.clip, self.ring.clip}
        self.runs = [list(real[:-1]), *([_cut_off(run, clip) for run in real[:-1]] for clip in clips)]
        """The runs: as they are, and as if entries were cut off at the clip of the settings, or of the ring."""
        self.masks: dict[bytes, Vector] = {}
        self.encoded: dict[tuple[int, Party, int, str], Vector] = {}
        """What parties brought as ring elements, by run, party, round, and with or without the weight."""

    def find_problem(self, vector: Vector, packed: Sequence[bytes]) -> str | None:
        """Returns why a packed vector is not what its forms say in all runs; None if it is."""
        if any(len(each) != len(vector) * self.ring.element_bytes for each in packed):
            return "it is not as long as its symbol says"
        here, *others, rekeyed = (np.frombuffer(each, dtype=self.ring.dtype) for each in packed)
        if problem := self._find_wrapping(vector):
            return problem
        mask, masked = self._masks(vector)
        shown = [each - mask for each in (here, *others)]
        for place, form in enumerate(vector):
            divided = any(unknown[0] == "ratio" for unknown in form.terms)
            if not divided and not self._fits([int(each[place]) for each in shown], form):
                return f"entry {place} is not what its symbol says"
            if (here[place] != rekeyed[place]) != masked[place] and not (divided and not masked[place]):
                return f"entry {place} has other masks than its symbol says"
        return None

    def _fits(self, elements: Sequence[int], form: Form) -> bool:
        """Says whether elements without masks are what a form says in all runs, but for what was rounded."""
        terms = {unknown: factor for unknown, factor in form.terms.items() if unknown[0] != "mask"}
        whole = [
            place
            for place, (each, run) in enumerate(zip(elements, self.runs[0], strict=True))
            if not self._is_cut_off(each, terms, run)
        ]
        return any(self._fits_in([(elements[place], runs[place]) for place in whole], terms) for runs in self.runs)

    def _fits_in(self, seen: Sequence[tuple[int, Twin]], terms: Mapping[Unknown, Any]) -> bool:
        brought = {unknown: factor for unknown, factor in terms.items() if unknown[0] in (INPUT, PLAIN)}
        if any(factor.denominator != 1 or unknown in self.rounded for unknown, factor in brought.items()):
            return all(self._is_about(each, terms, run) for each, run in seen)
        rest = {unknown: factor for unknown, factor in terms.items() if unknown not in brought}
        # A weight is counted in steps of its own, or as one more entry.
        weights = bool(brought) and all(unknown[2] == self.entries for unknown in brought)
        return any(self._fits_exactly(seen, brought, rest, entry) for entry in ((False, True) if weights else (True,)))

    def _fits_exactly(
        self,
        seen: Sequence[tuple[int, Twin]],
        brought: Mapping[Unknown, Any],
        rest: Mapping[Unknown, Any],
        as_entries: bool,
    ) -> bool:
        """Says whether elements are whole multiples of what was brought, and a rest that is about the same in all."""
        left, lost, either = [], [], []
        for element, run in seen:
            steps = {unknown: self._steps(unknown, run, as_entries) for unknown in brought}
            left.append(element - sum(int(factor) * steps[unknown][0] for unknown, factor in brought.items()))
            # A multiple of a number that lies between two steps need not be that of the rounded number.
            lost.append(sum(abs(factor) * steps[unknown][1] for unknown, factor in brought.items() if abs(factor) > 1))
            either.append(self._is_near_half(rest, self._total(brought, run), run))
        # What no vector is a part of is the same whatever they are, and nothing if there is nothing else.
        # With a rest, the two may be rounded apart by a step for each that was begun.
        begun = math.ceil if rest else round
        room = [
            max(either[0], near, begun(lost[0] + each - NEAR_HALF)) for near, each in zip(either, lost, strict=True)
        ]
        apart = [self._signed(each - left[0]) for each in left]
        if any(abs(each) > steps for each, steps in zip(apart, room, strict=True)):
            return False
        if not rest:
            return all(abs(self._signed(each)) <= round(most) for each, most in zip(left, lost, strict=True))
        return all(self._is_about(each, rest, run) for each, (_, run) in zip(left, seen, strict=True))

    def _is_about(self, element: int, terms: Mapping[Unknown, Any], run: Twin) -> bool:
        """Says whether an element is some terms, but for what was rounded."""
        try:
            numbers = [float(factor) * self._worth(unknown, run) for unknown, factor in terms.items()]
        except OverflowError:
            return False
        slack, signed = TOLERANCE * (1 + sum(map(abs, numbers))), self._signed(element)
        if abs(signed / self.ring.scale - sum(numbers)) <= slack + self.units * self.ring.resolution:
            return True
        # The weight behind the entries is counted in units of its own.
        weight = signed / self.ring.heaviest * self.ring.max_weight
        return all(unknown[2:] == (self.entries,) for unknown in terms) and abs(weight - sum(numbers)) <= slack

    def _is_cut_off(self, element: int, terms: Mapping[Unknown, Any], run: Twin) -> bool:
        """Says whether an element is the clip of the ring, because what its terms say in a run is beyond it."""
        if all(unknown[0] not in (INPUT, PLAIN) for unknown in terms):
            return False
        signed, most = self._signed(element), round(self.ring.clip * self.ring.scale)
        return abs(signed) == most and signed * self._total(terms, run) >= most * self.ring.clip

    def _total(self, terms: Mapping[Unknown, Any], run: Twin) -> float:
        return sum(float(factor) * self._worth(unknown, run) for unknown, factor in terms.items())

    def _signed(self, element: int) -> int:
        """Returns a number modulo the ring, from minus one half of it to the other."""
        half = 1 << (self.ring.bits - 1)
        return (element + half) % (2 * half) - half

    def _is_near_half(self, rest: Mapping[Unknown, Any], brought: float, run: Twin) -> bool:
        """Says whether drawn numbers are so close to half a step that sums with them may be rounded either way.

        A number of the computer that is added to a large vector is rounded before the ring rounds it.
        """
        if all(unknown == ONE for unknown in rest):
            return False
        drawn = self._total(rest, run)
        lost = OPERATIONS * float(np.spacing(abs(brought) + abs(drawn))) / 2 * self.ring.scale
        return abs(drawn * self.ring.scale % 1 - 0.5) < max(NEAR_HALF, lost)

    def _steps(self, unknown: Unknown, run: Twin, as_entry: bool) -> tuple[int, float]:
        """Returns what an unknown that somebody brought is as an element of the ring, and what is rounded off."""
        kind, (party, number), entry = unknown
        scale = self.ring.scale if as_entry else self.ring.heaviest / self.ring.max_weight
        steps = self._worth(unknown, run) * scale
        if as_entry and entry == self.entries:
            return round(steps), abs(steps - round(steps))
        key = id(run), party, number, kind
        if key not in self.encoded:
            update = run.updates[number - 1][party]
            self.encoded[key] = self.ring.encode(update) if kind == INPUT else self.ring.values(update.vector)
        return int(self.encoded[key][entry]), abs(steps - round(steps))

    def _find_wrapping(self, vector: Vector) -> str | None:
        """Returns why something in a vector does not hide what it is added to in the deployed ring; None if it does."""
        for form in vector:
            for unknown, factor in form.terms.items():
                if unknown[0] == "mask":
                    if factor.denominator != 1 or factor.numerator % 2 == 0:
                        return "a mask that is taken an even number of times, or a part of one, does not hide"
                elif unknown[0] in (INPUT, PLAIN):
                    if not self.shipped and abs(factor) > self.most:
                        return "a vector that is taken more often than the ring has room for wraps around"
                elif unknown != ONE and abs(factor) > self.room:
                    return "a drawn number that is larger than the ring wraps around, and does not hide"
        return None

    def _masks(self, vector: Vector) -> tuple[Vector, NDArray[np.bool_]]:
        """Returns the masks in a vector, added up, and which entries have any."""
        total, masked, top = [0] * len(vector), np.zeros(len(vector), dtype=bool), 1 << self.ring.bits
        for place, form in enumerate(vector):
            for unknown, factor in form.terms.items():
                if unknown[0] == "mask":
                    total[place] += int(factor) * int(self._stream(unknown[1])[unknown[2]])
                    masked[place] = True
        return np.array([each % top for each in total], dtype=self.ring.dtype), masked

    def _stream(self, token: bytes) -> Vector:
        if token not in self.masks:
            self.masks[token] = stream(self.key_of(token), self.world.masked[token], self.ring.element_bytes)
        return self.masks[token]

    def _worth(self, unknown: Unknown, run: Twin) -> float:
        """Returns what an unknown stands for in a run."""
        if unknown == ONE:
            return 1.0
        kind, owner, entry = unknown
        if kind not in (INPUT, PLAIN):
            party, number, count, _ = owner
            transcript = run.rounds[number - 1].transcript
            drawn = () if transcript is None else transcript.holdings[party].vectors
            return float(drawn[count - 1][entry])
        party, number = owner
        update = run.updates[number - 1][party]
        if entry == self.entries:
            return float(update.weight)
        return float(update.vector[entry]) * (update.weight / self.ring.max_weight if kind == INPUT else 1.0)


def _cut_off(run: Twin, clip: float) -> Twin:
    """Returns a run as if its vectors were cut off at a clip before they were brought."""
    updates = [
        {party: update._replace(vector=np.clip(update.vector, -clip, clip)) for party, update in brought.items()}
        for brought in run.updates
    ]
    return replace(run, updates=updates)
