"""Comparison of packed vectors with their symbolic forms, element by element, in runs on different vectors."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.soundness.concrete_run import Twin
from tacit.auditing.engine.soundness.guard_vectors import edge_of
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.forms import INPUT, ONE, PLAIN, Form, Unknown
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.suite import Party, Vector
from tacit.crypto.masks import stream
from tacit.protocols import is_shipped

TOLERANCE, UNITS = 1e-12, 16
"""Tolerances for values that a protocol divided and rounded. The error may be `TOLERANCE` times (1 + the sum of all
magnitudes), plus `UNITS` of the smallest steps of the ring. Whole multiples of vectors must be exact."""
NEAR_HALF = 2.0**-5
"""Distance to half a step, as a part of a step, within which one run may round up and another may round down."""
OPERATIONS = 4
"""Number of rounding float operations that may compute a number before the ring rounds it."""


class ElementComparison:
    """Packed vectors of several runs on numbers: the first vectors, other vectors, and the first vectors with other
    keys."""

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
            scope: The scope of all runs.
            simulation: The run on symbols.
            real: The runs on numbers. The last one has other keys.
            rounded: The unknowns that were sent in fractions, which are rounded.
            key_of: Returns the key that a token stands for in the first run.
        """
        self.world, self.key_of, self.rounded = simulation.world, key_of, rounded
        agreement = simulation.agreement
        self.entries, self.ring = agreement.entries, agreement.ring(PROOF_BITS)
        # Terms of a protocol that is not shipped are not trusted: they could allow any difference.
        self.shipped = is_shipped(scope.protocol)
        self.units = UNITS * (scope.terms.amplifies if self.shipped else 1.0)
        self.room = 2.0 ** (agreement.ring().bits - 1) / agreement.ring().scale
        self.most = max(1.0, self.room / edge_of(agreement, self.ring))
        """The largest multiple of a vector that does not wrap around in the deployed ring."""
        clips = {agreement.settings.clip, self.ring.clip}
        self.runs = [list(real[:-1]), *([_cut_off(run, clip) for run in real[:-1]] for clip in clips)]
        """The runs, once as they are, and once as if entries were clipped at the limit of the settings or of the
        ring."""
        self.masks: dict[bytes, Vector] = {}
        self.encoded: dict[tuple[int, Party, int, str], Vector] = {}
        """The contributed vectors as ring elements, by run, party, round, and with or without the weight."""

    def find_problem(self, vector: Vector, packed: Sequence[bytes]) -> str | None:
        """Returns why a packed vector differs from its forms in some run; None if it agrees in all runs."""
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
        """Says whether elements without masks agree with a form in all runs, up to rounding."""
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
        """Says whether elements are whole multiples of vectors, plus a rest that is about equal in all runs."""
        left, lost, either = [], [], []
        for element, run in seen:
            steps = {unknown: self._steps(unknown, run, as_entries) for unknown in brought}
            left.append(element - sum(int(factor) * steps[unknown][0] for unknown, factor in brought.items()))
            # A multiple of a number between two steps can differ from the multiple of the rounded number.
            lost.append(sum(abs(factor) * steps[unknown][1] for unknown, factor in brought.items() if abs(factor) > 1))
            either.append(self._is_near_half(rest, self._total(brought, run), run))
        # A part that contains no vector must be equal in all runs, and zero if nothing else was added.
        # With a rest, two runs may differ by one step for each step that was begun.
        begun = math.ceil if rest else round
        room = [
            max(either[0], near, begun(lost[0] + each - NEAR_HALF)) for near, each in zip(either, lost, strict=True)
        ]
        apart = [self._to_signed(each - left[0]) for each in left]
        if any(abs(each) > steps for each, steps in zip(apart, room, strict=True)):
            return False
        if not rest:
            return all(abs(self._to_signed(each)) <= round(most) for each, most in zip(left, lost, strict=True))
        return all(self._is_about(each, rest, run) for each, (_, run) in zip(left, seen, strict=True))

    def _is_about(self, element: int, terms: Mapping[Unknown, Any], run: Twin) -> bool:
        """Says whether an element equals the sum of some terms, up to rounding."""
        try:
            numbers = [float(factor) * self._worth(unknown, run) for unknown, factor in terms.items()]
        except OverflowError:
            return False
        slack, signed = TOLERANCE * (1 + sum(map(abs, numbers))), self._to_signed(element)
        if abs(signed / self.ring.scale - sum(numbers)) <= slack + self.units * self.ring.resolution:
            return True
        # The weight, which follows the entries, has a scale of its own.
        weight = signed / self.ring.heaviest * self.ring.max_weight
        return all(unknown[2:] == (self.entries,) for unknown in terms) and abs(weight - sum(numbers)) <= slack

    def _is_cut_off(self, element: int, terms: Mapping[Unknown, Any], run: Twin) -> bool:
        """Says whether an element was clipped by the ring, because the sum of its terms exceeds the clip."""
        if all(unknown[0] not in (INPUT, PLAIN) for unknown in terms):
            return False
        signed, most = self._to_signed(element), round(self.ring.clip * self.ring.scale)
        return abs(signed) == most and signed * self._total(terms, run) >= most * self.ring.clip

    def _total(self, terms: Mapping[Unknown, Any], run: Twin) -> float:
        return sum(float(factor) * self._worth(unknown, run) for unknown, factor in terms.items())

    def _to_signed(self, element: int) -> int:
        """Returns a ring element as a signed number, from minus half of the modulus to half of it."""
        half = 1 << (self.ring.bits - 1)
        return (element + half) % (2 * half) - half

    def _is_near_half(self, rest: Mapping[Unknown, Any], brought: float, run: Twin) -> bool:
        """Says whether secret numbers are so close to half a step that their sums may be rounded up or down.

        A floating-point number that is added to a large vector is rounded once before the ring rounds it.
        """
        if all(unknown == ONE for unknown in rest):
            return False
        drawn = self._total(rest, run)
        lost = OPERATIONS * float(np.spacing(abs(brought) + abs(drawn))) / 2 * self.ring.scale
        return abs(drawn * self.ring.scale % 1 - 0.5) < max(NEAR_HALF, lost)

    def _steps(self, unknown: Unknown, run: Twin, as_entry: bool) -> tuple[int, float]:
        """Returns the ring element of a contributed unknown, and the part of a step that was rounded off."""
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
        """Returns why something in a vector fails to hide what it is added to in the deployed ring; None if nothing
        does."""
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
        """Returns the sum of the masks in a vector, and which entries have a mask."""
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
        """Returns the value of an unknown in a run."""
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
    """Returns a run as if its vectors had been clipped before they were contributed."""
    updates = [
        {party: update._replace(vector=np.clip(update.vector, -clip, clip)) for party, update in brought.items()}
        for brought in run.updates
    ]
    return replace(run, updates=updates)
