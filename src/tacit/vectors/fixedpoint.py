"""Real vectors as integers modulo 2^b, so that sums are exact and masks cancel without a trace.

An entry x of a party with relative weight r (0 < r ≤ 1) becomes the integer nearest to x·r·scale, where the scale is
the largest for which the agreed number of parties cannot overflow the ring. Behind the entries travel the weight
itself, as one more element, and a zero. All are masked alike, so nobody sees a weight in clear, and of the weights in a
sum nothing shows but their sum. If the zeros do not add up to zero, masks were left in the sum.
"""

from collections.abc import Mapping
from copy import copy
from fractions import Fraction
from math import isfinite, nextafter
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import WHOLE, Party, Ring, Update, Vector

BITS = (16, 32, 64)
CHUNK = 1 << 16  # entries encoded at a time: their scratch of 512 KiB stays in cache through all passes over it

FINEST = (1 << 32) - 1
"""As many weights are told apart at most. A ring of 16 bits, or very many parties, allow fewer."""

# Far outside what any model holds, and far inside what a float64 can divide by without losing digits.
SMALLEST, LARGEST = 1e-100, 1e100


class FixedPoint(Ring):
    """Vectors over Z_2^bits for up to `parties` contributions with entries in [-clip, clip].

    Entries beyond the clip are cut off and counted in `clipped`, over the life of the ring; `largest` is the largest
    magnitude among them, so that one look tells what clip would have been enough. `rounded` is by how much of itself a
    weight was rounded at most.
    """

    def __init__(self, bits: int, clip: float, parties: int, entries: int, max_weight: float = 1.0) -> None:
        wrong = self.problems(bits, clip, parties, max_weight)
        if entries < 1:
            wrong.append(f"a vector needs at least one entry, not {entries}")
        if wrong:
            raise ConfigError(wrong)
        self.bits, self.clip, self.parties = int(bits), float(clip), int(parties)
        self.entries, self.max_weight = entries, float(max_weight)
        self.clipped, self.largest, self.rounded = 0, 0.0, 0.0

        # Beyond 2^53 a float64 no longer tells neighbouring integers apart, so a larger scale would add no precision.
        self.limit = min(_capacity(self.bits) // self.parties, 1 << 53)
        # The division may round up. Floating-point products are monotonic, so once clip·scale is within the limit,
        # every smaller entry and every smaller weight is too, and no integer has to be clamped after the fact.
        self.scale = self.limit / self.clip
        while self.clip * self.scale > self.limit:
            self.scale = nextafter(self.scale, 0)

        self.heaviest = min(((1 << self.bits) - 1) // self.parties, FINEST)
        """The integer that stands for `max_weight`: so many of it cannot overflow either."""
        if self.max_weight.is_integer() and self.max_weight <= self.heaviest:
            # Weights that are whole numbers are then exact. Rounded, the last digit of their sum would tell which of
            # several that add up to the same were summed.
            self.heaviest -= self.heaviest % int(self.max_weight)
        self.length = self.entries + 2

        self.element_bytes = self.bits // 8
        self.dtype = np.dtype(f"u{self.bits // 8}")
        self._signed = np.dtype(f"i{self.bits // 8}")
        self._wire = self.dtype.newbyteorder("<")

    def fresh(self) -> "FixedPoint":
        """Returns the same ring, with nothing cut off yet."""
        ring = copy(self)
        ring.clipped, ring.largest, ring.rounded = 0, 0.0, 0.0
        return ring

    @property
    def resolution(self) -> float:
        """The step between neighbouring values; an entry of full weight is off by at most half of it."""
        return self.clip / self.limit

    @staticmethod
    def problems(
        bits: Any, clip: Any, parties: Any, max_weight: Any = 1.0, weights: Mapping[Party, Any] | None = None
    ) -> list[str]:
        """Returns everything that is wrong with the settings, each as a sentence that says what would work."""
        wrong = []
        if bits not in BITS:
            wrong.append(f"bits must be 16, 32 or 64, not {bits!r}")
        if not _between(clip):
            wrong.append(f"clip must be a positive number between {SMALLEST:g} and {LARGEST:g}, not {clip!r}")
        if not isinstance(parties, int | np.integer) or parties < 1:
            wrong.append(f"parties must be a whole number of at least 1, not {parties!r}")
        elif bits in BITS and parties > (most := _capacity(bits)):
            remedy = f"use {2 * bits} bits" if bits < BITS[-1] else "use fewer parties"
            wrong.append(f"{bits} bits hold the sum of at most {most} parties, not {parties}; {remedy}")
        if not _between(max_weight):
            wrong.append(f"max_weight must be a positive number from {SMALLEST:g} to {LARGEST:g}, not {max_weight!r}")
        else:
            for party, weight in (weights or {}).items():
                wrong += _weight_problems(f"the weight of {party}", weight, max_weight)
        return wrong

    def encode(self, update: Update) -> Vector:
        """Returns the weighted vector and, behind it, its weight and a zero.

        A weight is rounded to one of `heaviest` steps up to `max_weight`, and never to zero. The entries are scaled by
        the rounded weight, so that the average is consistent with the weights that were summed.
        """
        vector = np.asarray(update.vector)
        wrong = _weight_problems("the weight", update.weight, self.max_weight)
        if vector.shape != (self.entries,) or vector.dtype.kind not in "fiu":
            expected = f"a vector of {self.entries} real numbers"
            wrong.append(f"expected {expected}, not one of shape {vector.shape} and type {vector.dtype}")
        if wrong:
            raise ConfigError(wrong)
        exact = float(update.weight) / self.max_weight * self.heaviest
        weight = max(1, round(exact))
        self.rounded = max(self.rounded, abs(weight - exact) / exact)
        encoded = np.empty(self.length, self.dtype)
        self._fill(encoded[: self.entries], vector, weight / self.heaviest)
        encoded[self.entries :] = weight, 0
        return encoded

    def limited(self, vector: Vector, clip: float) -> Vector:
        """Returns a vector cut off at the clip, and counts what was cut off; for those that encode it several times."""
        if vector.max(initial=0.0) <= clip and vector.min(initial=0.0) >= -clip:
            return vector
        magnitudes = np.abs(vector)
        beyond = int(np.count_nonzero(magnitudes > clip))
        self.clipped, self.largest = self.clipped + beyond, max(self.largest, float(magnitudes.max()))
        return np.clip(vector, -clip, clip)

    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns that part (above 0, up to 1) of a vector of any length as ring elements, without a weight."""
        encoded = np.empty(len(vector), self.dtype)
        self._fill(encoded, vector, float(part))
        return encoded

    def floats(self, total: Vector) -> NDArray[np.float64]:
        """Returns the numbers that a sum of `values` stands for."""
        numbers: NDArray[np.float64] = np.divide(total.view(self._signed), self.scale, dtype=np.float64)
        return numbers

    def _fill(self, encoded: Vector, vector: Vector, part_of: float) -> None:
        factor = self.scale * part_of
        signed = encoded.view(self._signed)
        scratch = np.empty(min(CHUNK, len(vector)))
        clipped, largest = 0, self.largest
        for start in range(0, len(vector), CHUNK):
            part = slice(start, min(start + CHUNK, len(vector)))
            values = scratch[: part.stop - start]
            np.copyto(values, vector[part], casting="same_kind")
            # The extremes tell whether there is anything to cut off, and one NaN among the values makes both NaN.
            low, high = float(values.min()), float(values.max())
            if not (isfinite(low) and isfinite(high)):
                raise ConfigError(_not_finite(vector))
            if low < -self.clip or high > self.clip:
                clipped += int(np.count_nonzero(values > self.clip) + np.count_nonzero(values < -self.clip))
                largest = max(largest, -low, high)
                np.clip(values, -self.clip, self.clip, out=values)
            np.multiply(values, factor, out=values)
            np.rint(values, out=values)
            np.copyto(signed[part], values, casting="unsafe")
        self.clipped, self.largest = self.clipped + clipped, largest

    def zeros(self, length: int | None = None) -> Vector:
        """Returns ring elements of zero, to sum into: as many as an encoded vector has, or as asked."""
        return np.zeros(self.length if length is None else length, self.dtype)

    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns that part of each ring element, rounded towards zero; the vector minus it is exactly what is left."""
        # Of y > 0, k parts of (1 − p)/k take k·⌊y (1 − p)/k⌋ ≤ y (1 − p) < y, so that something positive is left.
        return np.trunc(vector.view(self._signed) * float(part)).astype(self._signed).view(self.dtype)

    def mean(self, total: Vector) -> NDArray[np.float64]:
        """Returns the weighted average that a sum of encoded vectors stands for; WireError if it cannot be a sum."""
        weight = self._weight(total) / self.heaviest
        signed = total[: self.entries].view(self._signed)
        average: NDArray[np.float64] = np.divide(signed, self.scale * weight, dtype=np.float64)
        return average

    def weight_of(self, total: Vector) -> float:
        """Returns the sum of the weights in a sum of encoded vectors, in the units of the caller."""
        return self._weight(total) / self.heaviest * self.max_weight

    def _weight(self, total: Vector) -> int:
        if total.shape != (self.length,) or total.dtype != self.dtype:
            raise WireError(f"expected {self.length} entries of {self.dtype}, not {total.shape} of {total.dtype}")
        weight, zero = total[self.entries :].tolist()
        # It is what peers sent that does not add up, hence a WireError and not a ConfigError.
        if zero:
            raise WireError("this is not a sum of encoded vectors: masks were left in it")
        if not 1 <= weight <= self.parties * self.heaviest:
            found = "nothing" if weight == 0 else "more than all parties together"
            raise WireError(f"this is not a sum of encoded vectors: it weighs {found}")
        return int(weight)

    def within(self, vector: Vector) -> Vector:
        """Returns the vector; raises ConfigError if a sum of as many such as there are parties could overflow."""
        signed = vector.view(self._signed)
        largest = max(int(signed.max()), -int(signed.min())) if len(signed) else 0
        if largest > self.limit:
            raise ConfigError(
                f"a value of {largest / self.scale:.4g} is beyond ±{self.clip:g}, where sums could overflow; "
                f"pass a larger clip"
            )
        return vector

    def ratio(self, total: Vector) -> NDArray[np.float64]:
        """Returns the numbers of all entries but the last, divided by the last, which must be positive."""
        signed = total.view(self._signed)
        if signed[-1] <= 0:
            raise WireError("the masses received do not add up to anything positive")
        ratio: NDArray[np.float64] = np.divide(signed[:-1], signed[-1], dtype=np.float64)
        return ratio

    def magnitudes(self, vector: Vector) -> Vector:
        """Returns the absolute values."""
        return np.abs(vector)

    def pack(self, vector: Vector) -> memoryview:
        """Returns the little-endian bytes of an encoded vector: its own memory, so leave it alone until it was sent."""
        wire = vector.astype(self._wire, casting="equiv", copy=False)
        return np.ascontiguousarray(wire).view(np.uint8).data.toreadonly()

    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns the ring elements that were sent, read-only, over the bytes themselves."""
        size, expected = memoryview(data).nbytes, (self.length if length is None else length) * self.dtype.itemsize
        if size != expected:
            raise WireError(f"an encoded vector takes {expected} bytes, not {size}")
        # The view makes the type the machine's own also where it is by coincidence: NumPy is slow on others.
        vector = np.frombuffer(data, dtype=self._wire).astype(self.dtype, copy=False).view(self.dtype)
        vector.flags.writeable = False
        return vector


def _capacity(bits: int) -> int:
    return int((1 << int(bits) - 1) - 1)


def _between(value: Any) -> bool:
    return _is_number(value) and SMALLEST <= value <= LARGEST


def _is_number(value: Any) -> bool:
    # It is compared as it is, for a whole number may be too large to become a float at all.
    return isinstance(value, Real) and not isinstance(value, bool)


def _weight_problems(what: str, weight: Any, max_weight: float) -> list[str]:
    if _is_number(weight) and 0 < weight <= max_weight:
        return []
    return [f"{what} is {weight!r}; it must be above 0 and at most max_weight, which is {max_weight:g}"]


def _not_finite(vector: Vector) -> str:
    nans, infinite = np.count_nonzero(np.isnan(vector)), np.count_nonzero(np.isinf(vector))
    return f"the vector has {nans} NaN and {infinite} infinite entries; an average of them would mean nothing"
