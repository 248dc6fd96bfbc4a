"""Symbolic counterpart of `FixedPoint`: vectors of linear forms instead of numbers."""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tacit.auditing.symbolic.forms import (
    INPUT,
    NOISE,
    ONE,
    PLAIN,
    Form,
    NonlinearUse,
    Unknown,
    rename_entries,
    same_terms,
    unknowns,
)
from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import WHOLE, Ring, Update, Vector

SIZE = 8  # Bytes of an entry.


class NoisyEncoding(NamedTuple):
    """A vector that a party encoded with noise, before its noise was added."""

    vector: Vector
    part: Fraction
    """The fraction that the vector and its noise were multiplied by."""


class FormTable:
    """Meaning of the bytes of packed symbolic vectors. All parties of an audit share one table, which the auditor
    reads."""

    def __init__(self, *, noisy: bool = False) -> None:
        """With `noisy`, every vector that is encoded with noise gets an unknown for the noise of each entry."""
        self.noisy = noisy
        self.encodings: dict[tuple[Any, int], NoisyEncoding] = {}
        """The vectors that were encoded with noise, by the party and round and the number of the call."""
        self.rounded = False
        """Whether noisy values were rounded again. Then they are no whole-number combinations of what was encoded."""
        self._vectors: dict[bytes, Vector] = {}
        self._packed: dict[Hashable, bytes] = {}
        self._next = 1  # Zero is not used, so that zero bytes never have a meaning.
        self._weighted: dict[Any, int] = {}
        self._mixed = False
        self.sized = False
        """Whether a party requested the magnitudes of entries."""
        self.compared = False
        """Whether a party requested the change of entries since an earlier vector."""
        self._shown: dict[bytes, Vector] = {}

    def intern(self, vector: Vector, which: Hashable) -> bytes:
        """Returns bytes that stand for the current value of a vector.

        `which` identifies the vector by its owner, round and number. A round that is repeated after a restart packs the
        same vectors, and gets the same bytes for them.
        """
        if which in self._packed:
            data = self._packed[which]
            if not all(same_terms(kept, form) for kept, form in zip(self._vectors[data], vector, strict=True)):
                raise ConfigError(f"a repeated round sent other messages: {which}")
            return data
        numbers = range(self._next, self._next + len(vector))
        self._next = numbers.stop
        data = b"".join(number.to_bytes(SIZE) for number in numbers)
        kept = vector.copy()  # The sender may continue to add to its own array.
        kept.flags.writeable = False
        self._vectors[data], self._packed[which] = kept, data
        return data

    def is_aligned(self, entries: int) -> bool:
        """Says whether all entries of packed vectors are treated alike, so that one entry represents all.

        Each place must depend only on the entries at the same place, and in the same way as the first place does.
        """
        return all(_is_aligned(vector, entries) for vector in self._vectors.values())

    def meaning(self, data: bytes | memoryview) -> Vector | None:
        """Returns the vector that the bytes stand for, read-only; None if they stand for none."""
        return self._vectors.get(bytes(data))

    def weigh(self, owner: Any, entries: int) -> None:
        """Records that a vector was multiplied by its weight."""
        if owner not in self._weighted:
            self._weighted[owner] = entries
            self._shown.clear()

    def weights(self) -> Mapping[Any, int]:
        """Returns the owners of vectors that were multiplied by their weights, with the number of entries.

        Empty if none of these vectors was also sent without its weight.
        """
        return self._weighted if self._mixed else {}

    def read_vector(self, data: bytes | memoryview) -> Vector | None:
        """Returns the vector that the bytes stand for, in the way in which an observer reads it.

        A vector that was never multiplied by its weight is read as the input itself. If it was, the weighted and the
        unweighted vector are different unknowns, and are returned as they are.
        """
        key = bytes(data)
        vector = self._vectors.get(key)
        if vector is None:
            return None
        if key not in self._shown:
            brought = {unknown[1] for form in vector for unknown in form.numbers if unknown[0] == PLAIN}
            alone = brought - self._weighted.keys()
            self._mixed |= alone != brought
            self._shown[key] = vector
            if alone:
                self._shown[key] = np.array([rename_entries(form, alone) for form in vector], dtype=object)
                self._shown[key].flags.writeable = False
        return self._shown[key]


def _is_aligned(vector: Vector, entries: int) -> bool:
    if len(vector) not in (entries, entries + 1, entries + 2):
        return False
    first, below = {unknown[:-1]: number for unknown, number in vector[0].numbers.items()}, vector[0].below
    for place, form in enumerate(vector):
        # After the entries come the weight and a zero, which contain no entry.
        here = min(place, entries)
        if any(min(unknown[-1], entries) != here for unknown in form.numbers if unknown != ONE):
            return False
        if 0 < place < entries:
            if len(form.numbers) != len(first):
                return False
            same = form.below == below
            for unknown, number in form.numbers.items():
                other = first.get(unknown[:-1], 0)
                if number != other if same else number * below != other * form.below:
                    return False
    return True


def _as_forms(vector: Vector) -> Vector:
    """Returns a vector of forms, in which numbers are multiples of the constant `ONE`."""
    forms = np.empty(len(vector), dtype=object)
    forms[:] = [entry if isinstance(entry, Form) else Form({ONE: 1}) * entry for entry in vector]
    return forms


def _pair(whose: Hashable) -> tuple[Hashable, ...]:
    return whose if isinstance(whose, tuple) else (whose, 0)


class SymbolicRing(Ring):
    """Vectors of one party in one round: a `Form` for each entry, one for the weight and one for a zero."""

    def __init__(
        self, entries: int, table: FormTable, whose: Hashable, value: Callable[[Unknown], float] | None = None
    ) -> None:
        """Takes the number of entries, the table, the owner, and values of inputs for choices that depend on data."""
        self.entries, self._table, self._whose, self._value = entries, table, whose, value
        self.length, self.element_bytes, self.dumped_bytes = entries + 2, SIZE, SIZE
        self._count = self._encodings = 0

    def _intern_vector(self, vector: Vector) -> bytes:
        if vector.ndim != 1:
            raise NonlinearUse("a protocol may not pack anything but a vector of unknowns")
        self._count += 1
        return self._table.intern(_as_forms(vector), (self._whose, self._count))

    def _noised(self, forms: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns a part of forms with fresh noise, if noise is represented."""
        if self._table.noisy:
            self._encodings += 1
            self._table.encodings[self._whose, self._encodings] = NoisyEncoding(forms, part)
            forms = forms + unknowns(NOISE, (*_pair(self._whose), self._encodings), len(forms))
        return forms * part if part != WHOLE else forms

    def _note_rounding(self, vector: Vector) -> None:
        """Records that values are rounded, if they contain noise."""
        if self._table.noisy and not self._table.rounded:
            self._table.rounded = any(
                unknown[0] == NOISE for form in vector if isinstance(form, Form) for unknown in form.numbers
            )

    def encode(self, update: Update) -> Vector:
        """Returns the weighted vector, followed by its weight and a zero.

        The product of an unknown vector and an unknown weight is a separate unknown (see `weighted`). A numeric weight
        is public: that many times the constant `ONE`.
        """
        if update.vector.shape != (self.entries,):
            raise ConfigError(f"expected a vector of {self.entries} symbols, not one of shape {update.vector.shape}")
        weight: object = update.weight
        encoded = self.zeros()
        encoded[: self.entries] = self._noised(_as_forms(self.apply_weight(update.vector, weight)))
        encoded[self.entries] = weight if isinstance(weight, Form) else Form({ONE: 1}) * weight
        return encoded

    def apply_weight(self, vector: Vector, weight: object) -> Vector:
        """Returns a vector times its weight.

        If both are unknown, their product is not linear. So each entry of a party's input has a separate unknown for
        its product with the party's weight, in units of the largest possible weight. Products of anything else are
        errors.
        """
        if not isinstance(weight, Form):
            return super().apply_weight(vector, weight)
        owners = {unknown[1] for unknown in weight.terms if unknown[0] == INPUT and unknown[2] == self.entries}
        terms = {unknown for form in vector if isinstance(form, Form) for unknown in form.terms}
        if len(weight.terms) != 1 or {unknown[:2] for unknown in terms} - {(PLAIN, owner) for owner in owners}:
            raise NonlinearUse("a protocol may not multiply an unknown by another")
        for owner in owners:
            self._table.weigh(owner, self.entries)
        products = [rename_entries(form, owners) if isinstance(form, Form) else weight * form for form in vector]
        return np.array(products, dtype=object)

    def clip_vector(self, vector: Vector, clip: float) -> Vector:
        """Returns the vector unchanged, because unknowns have no size."""
        del clip
        return vector

    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns a part of a symbolic vector. Numbers in it are public: multiples of the constant `ONE`."""
        self._note_rounding(vector)
        forms = _as_forms(vector)
        return forms * part if part != WHOLE else forms

    def encode_with_noise(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns a part of a party's input and of its noise."""
        return self._noised(_as_forms(vector), part)

    def add_noise(self, vector: Vector) -> Vector:
        """Returns a party's input plus its noise."""
        return self._noised(_as_forms(vector)) if self._table.noisy else vector

    def floats(self, total: Vector) -> Vector:
        """Returns the sum itself."""
        return total

    def zeros(self, length: int | None = None) -> Vector:
        """Returns a vector of zero forms, as the start of a sum."""
        vector = np.empty(self.length if length is None else length, dtype=object)
        vector[:] = [Form() for _ in vector]
        return vector

    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns a part of each form."""
        self._note_rounding(vector)
        return np.asarray(vector * part)

    def mean(self, total: Vector, *, spent: bool = False) -> Vector:
        """Returns the quotient as `ratio` does: a linear form, or unknowns."""
        del spent
        return self.ratio(total[: self.entries + 1])

    def within(self, vector: Vector) -> Vector:
        """Returns the vector unchanged, because unknowns do not overflow."""
        return vector

    def is_zero(self, vector: Vector) -> bool:
        """Says whether all forms are zero."""
        return not any(form.terms for form in vector)

    def ratio(self, total: Vector) -> Vector:
        """Returns the quotient if the divisor is public; otherwise fresh unknowns, because a ratio of unknowns is not
        linear."""
        if total[-1].terms.keys() == {ONE}:
            return np.asarray(total[:-1] / total[-1].terms[ONE])
        return unknowns("ratio", self._intern_vector(total), len(total) - 1)

    def dump_vector(self, vector: Vector) -> memoryview:
        """Returns bytes that stand for the vector. Only its owner sees them."""
        return memoryview(self._intern_vector(vector))

    def magnitudes(self, vector: Vector, since: memoryview | None = None) -> Vector:
        """Returns the magnitudes of the given vectors, so that the same entries are selected as in a real run.

        Without given vectors, returns numbers in an order that does not depend on the unknowns and is the same in every
        run.
        """
        self._table.sized = True
        if since is not None:
            self._table.compared = True
            vector = vector - self.unpack(since, len(vector))
        if self._value is not None:
            value = self._value
            sums = [
                sum(float(factor) * value((INPUT, *unknown[1:])) for unknown, factor in form.terms.items())
                for form in vector
            ]
            return np.abs(np.array(sums, dtype=np.float64))
        hashes = [hashlib.sha256(repr(entry).encode()).digest()[:8] for entry in vector]
        return np.array([int.from_bytes(each) for each in hashes], dtype=np.float64)

    def pack(self, vector: Vector) -> bytes:
        """Returns bytes that stand for the vector, 8 per entry."""
        return self._intern_vector(vector)

    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns the vector that was packed, read-only."""
        size, expected = memoryview(data).nbytes, (self.length if length is None else length) * SIZE
        if size != expected:
            raise WireError(f"a symbolic vector takes {expected} bytes, not {size}")
        if (vector := self._table.meaning(data)) is None:
            raise WireError("these bytes were never packed")
        return vector
