"""The twin of `FixedPoint`: vectors of linear forms instead of numbers."""

import hashlib
from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np

from tacit.audit.symbolic.forms import ONE, Form, Unknown, unknowns
from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import WHOLE, Ring, Update, Vector

SIZE = 8  # bytes an entry


class FormTable:
    """What the bytes of packed symbolic vectors mean. All parties of an audit share one, and the auditor reads it."""

    def __init__(self) -> None:
        self._vectors: dict[bytes, Vector] = {}
        self._packed: dict[Hashable, bytes] = {}
        self._next = 1  # so that bytes of zeros never mean anything

    def intern(self, vector: Vector, which: Hashable) -> bytes:
        """Returns bytes that stand for the vector as it is now.

        `which` says which vector it is: whose, of what round, and the how-manieth. A round that is said again packs the
        same ones, and gets the same bytes for them.
        """
        if which in self._packed:
            data = self._packed[which]
            if list(self._vectors[data]) != list(vector):
                raise ConfigError(f"a round said something else the second time: {which}")
            return data
        numbers = range(self._next, self._next + len(vector))
        self._next = numbers.stop
        data = b"".join(number.to_bytes(SIZE) for number in numbers)
        kept = vector.copy()  # the sender may go on adding to its own
        kept.flags.writeable = False
        self._vectors[data], self._packed[which] = kept, data
        return data

    def meaning(self, data: bytes | memoryview) -> Vector | None:
        """Returns the vector that the bytes stand for, read-only, or None if they stand for none."""
        return self._vectors.get(bytes(data))


class SymbolicRing(Ring):
    """Vectors of `Form`s, one an entry and one for the weight, of one party in one round."""

    def __init__(
        self, entries: int, table: FormTable, whose: Hashable, value: Callable[[Unknown], float] | None = None
    ) -> None:
        """Takes the number of entries and, for choices that depend on data, what the unknowns of inputs stand for."""
        self.entries, self._table, self._whose, self._value = entries, table, whose, value
        self.length, self.element_bytes = entries + 1, SIZE
        self._count = 0

    def _interned(self, vector: Vector) -> bytes:
        self._count += 1
        return self._table.intern(vector, (self._whose, self._count))

    def encode(self, update: Update) -> Vector:
        """Returns the symbolic vector and, behind it, its weight.

        The product of an unknown vector and an unknown weight is not linear, so the vector given stands for the
        weighted one. A weight that is a number is public: that many times the constant `ONE`.
        """
        if update.vector.shape != (self.entries,):
            raise ConfigError(f"expected {self.entries} symbolic entries, not {update.vector.shape}")
        weight: object = update.weight
        encoded = np.empty(self.length, dtype=object)
        encoded[:-1] = update.vector
        encoded[-1] = weight if isinstance(weight, Form) else Form({ONE: weight})
        return encoded

    def weighted(self, vector: Vector, weight: object) -> Vector:
        """Returns the vector itself if its weight is unknown too: it stands for the weighted one (see `encode`)."""
        return vector if isinstance(weight, Form) else super().weighted(vector, weight)

    def limited(self, vector: Vector, clip: float) -> Vector:
        """Returns the vector: unknowns have no size."""
        del clip
        return vector

    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns that part of a symbolic vector. Numbers in it are public: so many times the constant `ONE`."""
        forms = np.empty(len(vector), dtype=object)
        forms[:] = [entry if isinstance(entry, Form) else Form({ONE: 1}) * entry for entry in vector]
        return forms * part if part != WHOLE else forms

    def floats(self, total: Vector) -> Vector:
        """Returns the sum itself."""
        return total

    def zeros(self, length: int | None = None) -> Vector:
        """Returns a vector of empty forms, to sum into."""
        vector = np.empty(self.length if length is None else length, dtype=object)
        vector[:] = [Form() for _ in vector]
        return vector

    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns that part of each form."""
        return vector * part

    def mean(self, total: Vector) -> Vector:
        """Returns the sum itself: dividing by its weight is not linear, and whoever knows the weight can undo it."""
        return total[: self.entries]

    def within(self, vector: Vector) -> Vector:
        """Returns the vector: unknowns do not overflow."""
        return vector

    def ratio(self, total: Vector) -> Vector:
        """Returns the quotient if the divisor is public, and else fresh unknowns: a ratio of unknowns is not linear."""
        if total[-1].terms.keys() == {ONE}:
            return np.asarray(total[:-1] / total[-1].terms[ONE])
        return unknowns("ratio", self._interned(total), len(total) - 1)

    def magnitudes(self, vector: Vector) -> Vector:
        """Returns how large the entries are for the vectors at hand, so that the same ones are chosen as in a real run.

        Without any, numbers in an order that has nothing to do with the unknowns, but is the same in every run.
        """
        if self._value is not None:
            value = self._value
            sums = [sum(float(factor) * value(unknown) for unknown, factor in form.terms.items()) for form in vector]
            return np.abs(np.array(sums, dtype=np.float64))
        hashes = [hashlib.sha256(repr(entry).encode()).digest()[:8] for entry in vector]
        return np.array([int.from_bytes(each) for each in hashes], dtype=np.float64)

    def pack(self, vector: Vector) -> bytes:
        """Returns bytes that stand for the vector, 8 an entry."""
        return self._interned(vector)

    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns the vector that was packed, read-only."""
        size, expected = memoryview(data).nbytes, (self.length if length is None else length) * SIZE
        if size != expected:
            raise WireError(f"a symbolic vector takes {expected} bytes, not {size}")
        if (vector := self._table.meaning(data)) is None:
            raise WireError("these bytes were never packed")
        return vector
