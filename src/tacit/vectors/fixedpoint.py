"""Real vectors as integers modulo 2^b, so that sums are exact and masks cancel completely.

An entry x of a party with relative weight r (0 < r ≤ 1) becomes the integer nearest to x·r·scale. The scale is the
largest with which the agreed number of parties cannot overflow the ring. Two elements follow the entries: the weight,
and a zero. All are masked alike, so no weight is sent in clear, and a sum reveals only the sum of the weights. If the
zeros do not add up to zero, masks are left in the sum.

Noise is a whole number of the ring's steps, sampled from a discrete Gaussian and added to the entries only. The scale
leaves headroom for `FARTHEST` standard deviations of the sum of all parties' noise, which is √parties times that of one
party. With probability less than 2 e⁻⁵⁰ per entry the noise exceeds the headroom; that entry of the average is then
wrong, though no less private. Where each vector has to fit its own share of the ring (`alone`), the headroom covers
every possible sample.
"""

import struct
from collections.abc import Iterator, Mapping
from copy import copy
from fractions import Fraction
from math import isfinite, log, nextafter, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, WireError
from tacit.core.protocol import FARTHEST, UNPROTECTED
from tacit.core.suite import WHOLE, Buffer, Ring, Update, Vector, Words
from tacit.vectors.buffers import BufferPool
from tacit.vectors.gaussian import discrete_gaussian
from tacit.vectors.ring_limits import limit, ring_problems, span, weight_problems

CHUNK = 1 << 16  # entries encoded at a time: 512 KiB of scratch memory stay in cache through all passes

FINEST = (1 << 32) - 1
"""Most distinct weights. A ring of 16 bits, or a very large number of parties, allows fewer."""

UNLIKELY = 1e-3
"""Probability that stochastic rounding makes a vector longer than `longest`, so that it is rounded again."""
_UNITS = struct.Struct(">BdQQ")
SHORT = 1 - 1e-12
"""Extra factor when a vector is scaled down to the norm, because the product is rounded too."""


class FixedPoint(Ring):
    """Vectors over Z_2^bits, for sums of up to `parties` contributions with entries in [-clip, clip].

    >>> ring = FixedPoint(32, 1.0, parties=2, entries=3)
    >>> total = ring.encode(Update([0.5, 0.0, 1.0])) + ring.encode(Update([0.25, 0.5, 7.0]))
    >>> ring.mean(total).round(3).tolist(), ring.clipped, ring.largest
    ([0.375, 0.25, 1.0], 1, 7.0)

    A ring with noise or stochastic rounding needs a source of randomness (`draws_from`) before it encodes.

    Args:
        bits: Bits of a ring element: 16, 32 or 64.
        clip: Largest magnitude of an entry. Larger ones are clipped.
        parties: Most vectors in one sum.
        entries: Number of entries of a vector.
        max_weight: Largest weight of a party.
        noise: Standard deviation of each party's noise, in the units of an entry.
        norm: Largest length (L2 norm) of a vector; None if it is not bounded.
        stochastic: Whether entries are rounded at random, with the exact mean.
        alone: Whether each vector has to fit its own share of the ring, and not only the sum the whole.

    Attributes:
        clipped: Number of entries clipped since the ring was made.
        largest: Largest magnitude of a clipped entry. A clip of this size would have clipped none.
        rounded: Largest relative rounding error of a weight.
    """

    def __init__(
        self,
        bits: int,
        clip: float,
        parties: int,
        entries: int,
        max_weight: float = 1.0,
        *,
        noise: float = 0.0,
        norm: float | None = None,
        stochastic: bool = False,
        alone: bool = False,
    ) -> None:
        wrong = ring_problems(bits, clip, parties, max_weight, noise=noise, norm=norm, alone=alone)
        if entries < 1:
            wrong.append(f"a vector needs at least one entry, not {entries}")
        if wrong:
            raise ConfigError(wrong)
        self.bits, self.clip, self.parties = int(bits), float(clip), int(parties)
        self.entries, self.max_weight = entries, float(max_weight)
        self.noise, self.norm, self.stochastic = float(noise), norm, stochastic
        self.clipped, self.largest, self.rounded = 0, 0.0, 0.0
        self._words: Words = _no_randomness

        self.limit = limit(self.bits, self.parties)
        self.span = span(self.clip, self.noise, self.parties, alone)
        """Largest magnitude of a party's entry with its noise that fits the ring."""
        # The division may round up. Floating-point products are monotonic: if span·scale is within the limit, so is
        # the product for every smaller entry and weight. So no integer has to be clamped afterwards.
        self.scale = self.limit / self.span
        while self.span * self.scale > self.limit:
            self.scale = nextafter(self.scale, 0)

        self.heaviest = min(((1 << self.bits) - 1) // self.parties, FINEST)
        """The integer that represents `max_weight`. A sum of one per party cannot overflow either."""
        if self.max_weight.is_integer() and self.max_weight <= self.heaviest:
            # Integer weights are then exact. If they were rounded, the last digit of their sum would reveal which set
            # of weights was summed, among several sets with the same sum.
            self.heaviest -= self.heaviest % int(self.max_weight)
        self.length = self.entries + 2

        self.element_bytes = self.bits // 8
        self.dtype = np.dtype(f"u{self.bits // 8}")
        self._signed = np.dtype(f"i{self.bits // 8}")
        self._wire = self.dtype.newbyteorder("<")
        self.narrow = False
        """Whether averages have single precision, which halves their memory."""
        self.pool: BufferPool | None = None
        """Pool that provides memory for vectors; None for memory from the system."""

    def fresh(self) -> "FixedPoint":
        """Returns a ring with the same settings, with all counters at zero."""
        ring = copy(self)
        ring.clipped, ring.largest, ring.rounded = 0, 0.0, 0.0
        ring.draws_from(_no_randomness)
        return ring

    def draws_from(self, words: Words) -> None:
        """Sets the source of noise and of stochastic rounding."""
        self._words = words

    @property
    def draws(self) -> bool:
        """Whether there is noise or stochastic rounding."""
        return bool(self.noise) or self.stochastic

    @property
    def resolution(self) -> float:
        """The step between neighbouring values. Rounding moves an entry of full weight by at most half a step."""
        return self.span / self.limit

    def encode(self, update: Update) -> Vector:
        """Returns the weighted vector, with noise, followed by its weight and a zero.

        A weight is rounded to one of `heaviest` steps up to `max_weight`, and never to zero. Entries are scaled by the
        rounded weight, so that the average agrees with the summed weights. Weights get no noise, so with noise all
        parties must have the same weight.
        """
        vector = np.asarray(update.vector)
        wrong = weight_problems("the weight", update.weight, self.max_weight)
        if self.noise and not wrong and update.weight != self.max_weight:
            wrong.append(f"the weight is {update.weight:g}, and with noise all weigh max_weight: {UNPROTECTED}")
        if vector.shape != (self.entries,) or vector.dtype.kind not in "fiu":
            expected = f"a vector of {self.entries} real numbers"
            wrong.append(f"expected {expected}, not one of shape {vector.shape} and type {vector.dtype}")
        if wrong:
            raise ConfigError(wrong)
        exact = float(update.weight) / self.max_weight * self.heaviest
        weight = max(1, round(exact))
        self.rounded = max(self.rounded, abs(weight - exact) / exact)
        encoded = self._allocate(self.length, self.dtype)
        self._encode_noisy(encoded[: self.entries], vector, weight / self.heaviest)
        encoded[self.entries :] = weight, 0
        return encoded

    def clip_vector(self, vector: Vector, clip: float) -> Vector:
        """Returns a vector scaled down to the norm and clipped. Counts the clipped entries.

        Callers use it when they encode the vector several times.
        """
        vector = self._shorten(vector)
        # Compared in double precision: a clip of 0.1 in single precision is slightly larger, and would clip again.
        if float(vector.max(initial=0.0)) <= clip and float(vector.min(initial=0.0)) >= -clip:
            return vector
        magnitudes = np.abs(vector)
        beyond = int(np.count_nonzero(magnitudes > np.float64(clip)))
        self.clipped, self.largest = self.clipped + beyond, max(self.largest, float(magnitudes.max()))
        return np.asarray(np.clip(vector, -clip, clip, dtype=np.float64))

    def apply_weight(self, vector: Vector, weight: Any) -> Vector:
        """Returns a vector times its weight, in double precision."""
        return np.asarray(np.multiply(vector, weight, dtype=np.float64))

    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Encodes a fraction (above 0, up to 1) of a vector of any length as ring elements, without a weight."""
        encoded = np.empty(len(vector), self.dtype)
        self._fill(encoded, vector, float(part))
        return encoded

    def encode_with_noise(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Encodes a fraction of a vector of any length as ring elements, with that fraction of its noise."""
        encoded = np.empty(len(vector), self.dtype)
        self._encode_noisy(encoded, vector, float(part))
        return encoded

    def add_noise(self, vector: Vector) -> Vector:
        """Returns a vector plus its noise as a plain vector; the vector itself if there is no noise."""
        return self.floats(self.encode_with_noise(vector)) if self.noise else vector

    def floats(self, total: Vector) -> NDArray[np.float64]:
        """Decodes a sum of `values` to numbers."""
        numbers: NDArray[np.float64] = np.divide(total.view(self._signed), self.scale, dtype=np.float64)
        return numbers

    def _encode_noisy(self, encoded: Vector, vector: Any, part_of: float) -> None:
        """Encodes a fraction of a party's input, with noise, into `encoded`."""
        vector = self._shorten(vector)
        before = self.clipped
        self._fill(encoded, vector, part_of)
        if not self.noise:
            return
        signed = encoded.view(self._signed)
        if self.norm is not None and self.stochastic:
            most = longest(self.norm * part_of * self.scale, len(encoded), stochastic=True)
            while _length(signed) > most:
                self.clipped = before
                self._fill(encoded, vector, part_of)
        gaussian = discrete_gaussian(self.noise * part_of * self.scale)
        for part in _chunks(len(signed)):
            signed[part] += gaussian.draw(part.stop - part.start, self._words).astype(self._signed)

    def _shorten(self, vector: Any) -> Any:
        """Returns a vector scaled down to the norm; a vector that is not finite is returned unchanged."""
        if self.norm is None:
            return vector
        numbers = np.asarray(vector, dtype=np.float64)
        largest = float(np.abs(numbers).max(initial=0.0))
        if not isfinite(largest) or largest == 0.0:
            return vector
        # Divided by the largest entry, so that no square overflows.
        length = float(np.linalg.norm(numbers / largest))
        most = self.norm * SHORT
        return vector if length * largest <= most else numbers / largest * (most / length)

    def _fill(self, encoded: Vector, vector: Any, part_of: float) -> None:
        factor = self.scale * part_of
        signed = encoded.view(self._signed)
        scratch = np.empty(min(CHUNK, len(vector)))
        clipped, largest = 0, self.largest
        for part in _chunks(len(vector)):
            values = scratch[: part.stop - part.start]
            np.copyto(values, vector[part], casting="same_kind")
            # Minimum and maximum show whether an entry must be clipped. A single NaN makes both of them NaN.
            low, high = float(values.min()), float(values.max())
            if not (isfinite(low) and isfinite(high)):
                raise ConfigError(_not_finite(vector))
            if low < -self.clip or high > self.clip:
                clipped += int(np.count_nonzero(values > self.clip) + np.count_nonzero(values < -self.clip))
                largest = max(largest, -low, high)
                np.clip(values, -self.clip, self.clip, out=values)
            np.multiply(values, factor, out=values)
            if self.stochastic:
                _round_stochastically(values, self._words)
            else:
                np.rint(values, out=values)
            np.copyto(signed[part], values, casting="unsafe")
        self.clipped, self.largest = self.clipped + clipped, largest

    def zeros(self, length: int | None = None) -> Vector:
        """Returns zeros to sum into: the length of an encoded vector, or the given length."""
        return np.zeros(self.length if length is None else length, self.dtype)

    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns a fraction of each ring element, rounded towards zero. Subtracting it leaves the exact rest."""
        # For y > 0, k parts of (1 − p)/k take k·⌊y (1 − p)/k⌋ ≤ y (1 − p) < y, so the remainder is positive.
        portion = np.empty(len(vector), self.dtype)
        signed, parts = vector.view(self._signed), portion.view(self._signed)
        for chunk in _chunks(len(vector)):
            np.copyto(parts[chunk], np.trunc(signed[chunk] * float(part)), casting="unsafe")
        return portion

    def units(self) -> bytes:
        """Returns bits, scale, the integer of `max_weight`, and the number of summands, as bytes."""
        return _UNITS.pack(self.bits, self.scale, self.heaviest, self.parties)

    def convert_sum(self, data: Buffer, units: bytes) -> Vector:
        """Converts a sum in the units of another ring to this ring. Its average is rounded and clipped again."""
        bits, scale, heaviest, _ = _UNITS.unpack(units)
        total = np.frombuffer(data, f"<i{bits // 8}")
        weight = int(total[self.entries : self.entries + 1].view(f"<u{bits // 8}")[0]) / heaviest
        encoded = self.zeros()
        self._fill(encoded[: self.entries], total[: self.entries] / (scale * weight), 1.0)
        encoded[self.entries] = self.heaviest
        return encoded

    def check_sum(self, total: Vector, contributors: int) -> None:
        """Raises WireError if that many contributors cannot have produced this sum of encoded vectors.

        Each contributor weighs from 1 to `heaviest` units. An entry of the sum is at most the clip times the weight,
        plus noise, plus one step of rounding per contributor.
        """
        weight = self._weight(total)
        if not contributors <= weight <= contributors * self.heaviest:
            raise WireError(f"the total weight of {weight} units is impossible for {contributors} contributors")
        noise = FARTHEST * self.noise * sqrt(contributors)
        most = (self.clip * weight / self.heaviest + noise) * self.scale + contributors
        signed = total[: self.entries].view(self._signed)
        largest = max(int(signed.max()), -int(signed.min()))
        if largest > most:
            raise WireError(f"an entry of {largest} steps is impossible for {contributors} contributors")

    def mean(self, total: Vector, *, spent: bool = False) -> Vector:
        """Returns the weighted average of a sum of encoded vectors; raises WireError if the bytes are no such sum.

        It overwrites a `spent` sum if that is writable and has the same size.
        """
        weight = self._weight(total) / self.heaviest
        signed, width = total[: self.entries].view(self._signed), np.dtype(np.float32 if self.narrow else np.float64)
        fits = spent and total.flags.writeable and width.itemsize == self.element_bytes
        average = signed.view(width) if fits else self._allocate(self.entries, width)
        scratch = np.empty(min(CHUNK, self.entries))
        for part in _chunks(self.entries):
            values = scratch[: part.stop - part.start]
            np.divide(signed[part], self.scale * weight, out=values)
            np.copyto(average[part], values, casting="same_kind")
        return average

    def _allocate(self, length: int, dtype: np.dtype[Any]) -> Vector:
        return np.empty(length, dtype) if self.pool is None else self.pool.empty(length, dtype)

    def weight_of(self, total: Vector) -> float:
        """Returns the total weight in a sum of encoded vectors, in the units of `max_weight`."""
        return self._weight(total) / self.heaviest * self.max_weight

    def _weight(self, total: Vector) -> int:
        if total.shape != (self.length,) or total.dtype != self.dtype:
            raise WireError(f"expected {self.length} entries of {self.dtype}, not {total.shape} of {total.dtype}")
        weight, zero = total[self.entries :].tolist()
        # The cause is data from other parties, hence WireError and not ConfigError.
        if zero:
            raise WireError("this is not a sum of encoded vectors: it still contains masks")
        if not 1 <= weight <= self.parties * self.heaviest:
            found = "zero" if weight == 0 else "more than all parties together"
            raise WireError(f"this is not a sum of encoded vectors: its total weight is {found}")
        return int(weight)

    def within(self, vector: Vector) -> Vector:
        """Returns the vector; raises ConfigError if a sum of one such vector per party could overflow."""
        signed = vector.view(self._signed)
        largest = max(int(signed.max()), -int(signed.min())) if len(signed) else 0
        if largest > self.limit:
            raise ConfigError(
                f"a value of {largest / self.scale:.4g} is beyond ±{self.clip:g}, where sums could overflow; try: "
                f"pass a larger clip"
            )
        return vector

    def ratio(self, total: Vector) -> NDArray[np.float64]:
        """Returns all entries but the last, divided by the last, which must be positive."""
        signed = self._divisible(total)
        ratio: NDArray[np.float64] = np.divide(signed[:-1], signed[-1], dtype=np.float64)
        return ratio

    def _divisible(self, total: Vector) -> Vector:
        """Returns ring elements as signed integers; raises WireError unless the last one is above 0."""
        signed = total.view(self._signed)
        if signed[-1] <= 0:
            raise WireError("the masses received do not add up to anything positive")
        return signed

    def step(self, total: Vector, vector: Vector, weight: float) -> Vector:
        """Returns `weight` times the difference between a vector and `ratio(total)`, encoded with noise, and a zero."""
        step = self.zeros(len(total))
        self._encode_noisy(step[:-1], _Step(self._divisible(total), vector, weight), 1.0)
        return step

    def mix(self, own: Vector, total: Vector, times: Mapping[Fraction, Vector]) -> NDArray[np.float64]:
        """Returns own · (1 − Σ weight · times), plus the decoded sum `total` of `values`."""
        mixed = np.empty(len(own))
        for chunk in _chunks(len(own)):
            counts = {weight: each[chunk] for weight, each in times.items()}
            mixed[chunk] = super().mix(own[chunk], total[chunk], counts)
        return mixed

    dumped_bytes = 4

    def dump_vector(self, vector: Vector) -> memoryview:
        """Returns a vector in single precision, like most models, so that unchanged entries differ by exactly zero."""
        return _single(vector).view(np.uint8).data.toreadonly()

    def magnitudes(self, vector: Vector, since: memoryview | None = None) -> Vector:
        """Returns the absolute value of each entry, or of its change since `since` in single precision."""
        if since is None:
            return np.abs(vector)
        change: Vector = _single(vector) - np.frombuffer(since, dtype="<f4")
        return np.abs(change)

    def pack(self, vector: Vector) -> memoryview:
        """Returns an encoded vector's bytes, little-endian, without a copy. Do not change it until they are sent."""
        wire = vector.astype(self._wire, casting="equiv", copy=False)
        return np.ascontiguousarray(wire).view(np.uint8).data.toreadonly()

    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns received ring elements as a view of the bytes, which is read-only if they are."""
        size, expected = memoryview(data).nbytes, (self.length if length is None else length) * self.dtype.itemsize
        if size != expected:
            raise WireError(f"an encoded vector takes {expected} bytes, not {size}")
        # The view gives the array the machine's native type even if byte orders coincide: NumPy is slow on other types.
        return np.frombuffer(data, dtype=self._wire).astype(self.dtype, copy=False).view(self.dtype)


class _Step:
    """Lazy vector of a step, computed chunk by chunk."""

    def __init__(self, signed: Vector, vector: Vector, weight: float) -> None:
        self._signed, self._vector, self._weight = signed, vector, weight

    def __len__(self) -> int:
        return len(self._vector)

    def __getitem__(self, part: slice) -> Vector:
        signed = self._signed
        w = np.divide(signed[:-1][part], signed[-1], dtype=np.float64)
        return np.asarray((self._vector[part] - w) * self._weight)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vector:
        del dtype, copy
        return self[:]


def _chunks(length: int) -> Iterator[slice]:
    """Yields slices that cover a vector in chunks."""
    for start in range(0, length, CHUNK):
        yield slice(start, min(start + CHUNK, length))


def longest(length: float, entries: int, *, stochastic: bool) -> float:
    """Returns a bound on the length (L2) of a vector after its entries are rounded to integers.

    Rounding to the nearest integer moves an entry by at most one half, and to at most twice its value. Stochastic
    rounding moves an entry by at most 1. It rarely makes the vector longer than the second bound (Kairouz et al. 2021,
    on conditional randomized rounding); if it does, the vector is rounded again.
    """
    if not stochastic:
        return min(length + sqrt(entries) / 2, 2 * length)
    likely = length**2 + entries / 4 + sqrt(2 * log(1 / UNLIKELY)) * (length + sqrt(entries) / 2)
    return min(length + sqrt(entries), sqrt(likely))


def _length(whole: Vector) -> float:
    return sqrt(sum(float(np.square(whole[chunk], dtype=np.float64).sum()) for chunk in _chunks(len(whole))))


def _round_stochastically(values: Vector, words: Words) -> None:
    """Rounds numbers in place: up with the probability of their fractional part, else down.

    Integers stay unchanged. Probabilities have 32 bits, so the mean is exact up to 2⁻³³.
    """
    count = len(values)
    below = np.floor(values)
    values -= below
    drawn = words((count + 1) // 2).view(np.uint32)[:count].astype(np.float64)
    drawn += 0.5
    drawn *= 2.0**-32
    np.less(drawn, values, out=values, casting="unsafe")
    values += below


def _no_randomness(count: int) -> NDArray[np.uint64]:
    del count
    raise ConfigError("this ring needs a source of randomness for its noise or rounding; try: call draws_from first")


def _single(vector: Vector) -> NDArray[np.float32]:
    """Returns a vector in single precision, clipped to the range of that type."""
    most = np.finfo(np.float32).max
    within = vector if vector.dtype == np.float32 else np.clip(vector, -most, most)
    return np.ascontiguousarray(within, dtype="<f4")


def _not_finite(vector: Any) -> str:
    nans, infinite = np.count_nonzero(np.isnan(vector)), np.count_nonzero(np.isinf(vector))
    return f"the vector has {nans} NaN and {infinite} infinite entries; an average of them would mean nothing"
