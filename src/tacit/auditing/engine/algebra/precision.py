"""Bits of an entry that a coalition learns, by the best linear estimate from its view.

Exact recovery is a question of algebra, which ignores the size of numbers: x + y/10¹⁷ shows every digit of x, and 10¹⁸
times a difference of two rounded numbers shows nothing. So each seen vector is modelled as its form plus the rounding
error of the ring. Entries are normally distributed with a known standard deviation, and masks are arbitrary. The
standard deviation after the view is compared with the one before; one bit halves it. A sum of n vectors shows log₂(n/(n
− 1))/2 bits of each.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.rows import Ints, Rows
from tacit.auditing.symbolic.entropy import UNIFORM
from tacit.auditing.symbolic.forms import ONE, Form, Unknown

NEAR = 8.0
"""Bits from which on an entry counts as nearly exposed: it is known to within 1/256 of its range."""
DROWNED = 1.0
"""Bits below which a vector that follows by algebra is hidden by rounding, and counts as not exposed."""
FINEST = 2.0**-26
"""The least ratio of standard deviations, after to before, that float64 can compute."""
DUST = 2.0**-44
"""The part of a variance that is attributed to rounding errors of this computation."""
MOST_SMOOTHED = 5e8
"""The largest product of rounds and the cube of parties for which later sums are used to estimate earlier entries."""
SLACK = 1e-6
"""Relative and absolute error of bits that is attributed to rounding errors of this computation."""
EXACT = 2.0**-13
"""A rounding error below this part of the largest one counts as zero."""


@dataclass(frozen=True)
class Spread:
    """The adversary's knowledge of an entry before it sees anything."""

    prior: float
    """Standard deviation of an entry."""
    resolution: float
    """Step between neighbouring numbers of the ring."""
    drift: float | None = 0.0
    """Standard deviation of an entry's change from one round to the next; None if each round has a new entry."""
    noise: float = 0.0
    """Standard deviation of the noise that the owner adds to an entry each time it sends the entry."""

    @property
    def most(self) -> float:
        """The number of bits of an entry that the ring represents."""
        return math.log2(self.prior / (self.resolution * UNIFORM))

    @property
    def tied(self) -> bool:
        """Whether a party's vectors in different rounds are correlated."""
        return self.drift is not None and (self.drift > 0 or self.noise > 0)

    def bits(self, left: float) -> float:
        """Returns the bits that are known of an entry whose standard deviation has shrunk to `left`."""
        return min(self.most, max(0.0, math.log2(self.prior / max(left, self.prior * FINEST))))

    def covariance(self, entries: Sequence[Unknown]) -> NDArray[np.float64]:
        """Returns the covariance of entries without noise. Only entries of one party at one place are correlated over
        rounds."""
        rounds = np.array([each[1][1] if isinstance(each[1], tuple) else 1 for each in entries])
        names = [(each[1][0] if isinstance(each[1], tuple) else each[1], each[2]) for each in entries]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        whose = np.array([numbers[name] for name in names])
        if self.drift is None:
            return np.eye(len(entries)) * self.prior**2
        since = np.minimum.outer(rounds, rounds) - 1
        together: NDArray[np.float64] = np.equal.outer(whose, whose) * (self.prior**2 + self.drift**2 * since)
        return together


def bits_of_sum(members: int) -> float:
    """Returns how many bits of each member's entry a sum shows, if nothing else is known."""
    return math.log2(members / (members - 1)) / 2 if members > 1 else math.inf


def largest_group(bits: float, most: int) -> int:
    """Returns the largest number of parties, up to `most`, whose sum shows at least that many bits of an entry."""
    return next((size for size in range(most, 1, -1) if bits <= bits_of_sum(size) * (1 + SLACK) + SLACK), 1)


class LinearEstimate:
    """Covariance of some unknowns given the observations so far (a Kalman filter)."""

    def __init__(self, covariance: NDArray[np.float64]) -> None:
        self.covariance, self._before = covariance, np.diag(covariance).copy()

    def sees(self, row: NDArray[np.float64], error: float) -> None:
        """Adds an observation: a linear combination of the unknowns with an error of the given standard deviation."""
        seen = self.covariance @ row
        news = float(row @ seen)
        # An observation that is already known, up to rounding errors, is skipped: dividing by its tiny variance is
        # unstable.
        if news > DUST * float(row**2 @ self._before):
            self.covariance -= np.outer(seen, seen) / (news + error**2)

    @property
    def left(self) -> NDArray[np.float64]:
        """The standard deviations of the unknowns, given the observations."""
        found: NDArray[np.float64] = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return found


def estimate_bits(
    seen: Sequence[Form] | Rows, rounded: Sequence[bool], others: Sequence[Unknown], spread: Spread
) -> dict[Unknown, float]:
    """Returns the bits that are known of each unknown of the other parties, from forms that may be rounded.

    Unknowns of kind "mask" are uniform in the ring. Unknowns that are neither masks nor the others' have a standard
    deviation of their own.
    """
    rows = Rows.of(seen)
    columns, wanted = rows.columns.numbers(others), rows.columns.among(others)
    kept = rows.useful(rows.columns.evaluate(_is_mask) == 0)
    errors = np.where(np.array(rounded, dtype=np.bool_)[kept], 1.0, EXACT)
    errors *= spread.resolution * UNIFORM
    forms, factors, found = rows.take(kept), rows.values(_floats), dict.fromkeys(others, 0.0)
    for numbers, group in forms.groups() if not spread.tied else [(np.arange(forms.count), forms)]:
        met = group.column_order()
        theirs = met[wanted[met]] if not spread.tied else columns
        if len(theirs):
            drawn = met[~wanted[met] & (rows.columns.evaluate(_is_drawn)[met] == 1)]
            found |= _estimate_group(group, factors, errors[numbers], theirs, drawn, spread)
    return found


def _estimate_group(
    rows: Rows, factors: NDArray[np.float64], errors: NDArray[np.float64], others: Ints, drawn: Ints, spread: Spread
) -> dict[Unknown, float]:
    """Returns the bits that are known of each unknown of the others, from rows that may contain secret drawn
    numbers."""
    theirs = rows.columns.unknowns_at(others)
    estimate = LinearEstimate(_joint(spread, theirs, rows.columns.unknowns_at(drawn)))
    width = len(estimate.covariance)
    for row in _cancelling(rows, factors, errors, np.concatenate((others, drawn))):
        estimate.sees(np.concatenate((np.zeros(width - len(row)), row)), 1.0)
    return {each: spread.bits(float(left)) for each, left in zip(theirs, estimate.left, strict=False)}


def _is_mask(unknown: Unknown) -> int:
    return int(unknown[0] == "mask")


def _is_drawn(unknown: Unknown) -> int:
    """Says whether an unknown is a secret number with a standard deviation of its own."""
    return int(unknown[0] != "mask" and unknown != ONE)


def _floats(numbers: Collection[int], below: int) -> NDArray[np.float64]:
    """Returns factors as floats. A factor that is too large for a float becomes infinite, an error only where it is
    used."""
    try:
        return np.array([number / below for number in numbers], dtype=np.float64)
    except OverflowError:
        return np.array([_divide(number, below) for number in numbers], dtype=np.float64)


def _divide(number: int, below: int) -> float:
    try:
        return number / below
    except OverflowError:
        return math.inf


def _spread(drawn: Unknown) -> float:
    """Returns the standard deviation of a secret number, or `UNIFORM` for a quotient, where it is unknown."""
    return float(drawn[1][3]) if isinstance(drawn[1], tuple) and len(drawn[1]) == 4 else UNIFORM


def _joint(spread: Spread, others: Sequence[Unknown], drawn: Sequence[Unknown]) -> NDArray[np.float64]:
    """Returns the covariance of contributed entries, noise included, followed by that of secret numbers."""
    entries = spread.covariance(others)
    if spread.noise:
        entries = np.block([[entries, entries], [entries, entries + spread.noise**2 * np.eye(len(entries))]])
    joint = np.diag([0.0] * len(entries) + [_spread(each) ** 2 for each in drawn])
    joint[: len(entries), : len(entries)] = entries
    return joint


def _cancelling(
    rows: Rows, factors: NDArray[np.float64], errors: NDArray[np.float64], columns: Ints
) -> Iterator[NDArray[np.float64]]:
    """Yields combinations of rows, restricted to some columns, in which all masks cancel; each has an independent error
    of 1."""
    matrix, masked = _matrix(rows, columns, factors), rows.only(rows.columns.evaluate(_is_mask) == 1)
    for index in np.flatnonzero(~masked.nonempty()):
        yield matrix[index] / errors[index]
    # Forms that share no mask can be treated separately.
    for group, some in masked.groups():
        masks = _matrix(some, some.column_order(), factors)
        # Masks have the factors 1 and −1, so this matrix has small whole numbers and can be squared without loss.
        sizes, vectors = np.linalg.eigh(masks @ masks.T)
        basis = vectors[:, sizes < 1e-9 * sizes.max()]
        if basis.size:
            spreads, turns = np.linalg.eigh((basis.T * errors[group] ** 2) @ basis)
            spreads = np.maximum(spreads, errors[group].min() ** 2)
            yield from (turns / np.sqrt(spreads)).T @ basis.T @ matrix[group]


def _matrix(rows: Rows, columns: Ints, factors: NDArray[np.float64]) -> NDArray[np.float64]:
    matrix: NDArray[np.float64] = rows.matrix(columns, factors)
    if np.isinf(matrix).any():
        raise OverflowError("integer division result too large for a float")
    return matrix


def _inverse(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the inverse of a covariance on the subspace that is not known yet; the known subspace contributes
    nothing.

    If models hardly drift, the variance of a seen sum is zero up to rounding errors, so there is no full inverse.
    """
    sizes, vectors = np.linalg.eigh(covariance)
    left = sizes > DUST * sizes.max(initial=0.0)
    kept = vectors[:, left]
    found: NDArray[np.float64] = (kept / sizes[left]) @ kept.T
    return found


def of_sums(
    sums: Sequence[NDArray[np.integer]], rounds: Sequence[int], spread: Spread, parties: int
) -> tuple[NDArray[np.float64], int | None]:
    """Returns the most bits that are known of each party's entry in any round, and the first round that shows 8 of one.

    Each sum is a row that marks its parties; sums are in the order of their rounds. If models drift and the time
    allows, later sums also improve the estimates of earlier entries.
    """
    estimate, exact = LinearEstimate(np.eye(parties) * spread.prior**2), spread.resolution * UNIFORM * FINEST
    least, near, kept = estimate.left, None, []
    tied = bool(spread.drift) and len(sums) * parties**3 <= MOST_SMOOTHED
    for place, (row, number) in enumerate(zip(sums, rounds, strict=True)):
        if spread.drift is None:
            estimate = LinearEstimate(np.eye(parties) * spread.prior**2)
        elif place and number > rounds[place - 1]:
            if tied:
                kept.append(estimate.covariance.copy())
            estimate.covariance[np.diag_indices(parties)] += spread.drift**2 * (number - rounds[place - 1])
            if tied:
                kept.append(estimate.covariance.copy())
        if members := int(np.count_nonzero(row)):
            estimate.sees(row.astype(np.float64), math.hypot(spread.noise * math.sqrt(members), exact))
        least = np.minimum(least, estimate.left)
        if near is None and any(spread.bits(float(left)) >= NEAR for left in least):
            near = number
    # Smoothing: what the end reveals about earlier entries, round by round backwards (Rauch, Tung and Striebel).
    later = estimate.covariance
    while kept:
        ahead, here = kept.pop(), kept.pop()
        gain = here @ _inverse(ahead)
        later = here + gain @ (later - ahead) @ gain.T
        least = np.minimum(least, np.sqrt(np.maximum(np.diag(later), 0.0)))
    bits = np.array([spread.bits(float(left)) for left in least])
    return bits, rounds[-1] if near is None and (bits >= NEAR).any() else near
