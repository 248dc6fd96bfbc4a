"""Properties of fixed-point encoding, for random settings and numbers."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Update
from tacit.crypto import masks
from tacit.vectors.fixedpoint import FixedPoint
from tacit.vectors.ring_limits import BITS, ring_problems

SLACK = 2.0**-50  # relative: a float64 product and quotient or two

repeatable = settings(derandomize=True, deadline=None)

bits = st.sampled_from(BITS)
clips = st.one_of(st.floats(1e-3, 1e3), st.floats(1e-100, 1e100))
relative = st.floats(2.0**-20, 1.0)


@st.composite
def rounds(draw):
    """A ring, and the vector (within the clip) and weight of each party."""
    n, entries, clip = draw(st.integers(1, 12)), draw(st.integers(1, 5)), draw(clips)
    ring = FixedPoint(draw(bits), clip, n, entries, draw(st.sampled_from([1.0, 0.3, 5000.0])))
    numbers = st.floats(-1.0, 1.0).map(lambda x: x * clip)
    vectors = [np.array(draw(st.lists(numbers, min_size=entries, max_size=entries))) for _ in range(n)]
    weights = [ring.max_weight * draw(relative) for _ in range(n)]
    return ring, [Update(*pair) for pair in zip(vectors, weights, strict=True)]


def total_of(ring, updates):
    total = ring.zeros()
    for update in updates:
        total += ring.encode(update)
    return total


@given(rounds())
@repeatable
def test_the_mean_is_within_half_a_step_for_each_party(drawn):
    ring, updates = drawn
    plain = [Update(update.vector, ring.max_weight) for update in updates]
    error = np.abs(ring.mean(total_of(ring, plain)) - np.mean([update.vector for update in plain], axis=0))
    assert (error <= ring.resolution / 2 + SLACK * ring.clip).all()
    assert ring.clipped == 0


def steps_of(ring, weight):
    """The whole number that a weight is rounded to."""
    return max(1, round(weight / ring.max_weight * ring.heaviest))


@given(rounds())
@repeatable
def test_the_weighted_mean_is_within_half_a_step_for_each_party(drawn):
    ring, updates = drawn
    total = total_of(ring, updates)
    steps = np.array([steps_of(ring, update.weight) for update in updates])
    expected = steps @ np.array([update.vector for update in updates]) / steps.sum()
    rounding = len(updates) * ring.resolution / 2 * ring.heaviest / steps.sum()
    assert (np.abs(ring.mean(total) - expected) <= rounding + len(updates) * SLACK * ring.clip).all()
    assert total[ring.entries :].tolist() == [steps.sum(), 0]
    assert abs(ring.weight_of(total) / ring.max_weight - steps.sum() / ring.heaviest) <= SLACK * len(updates)


@given(rounds())
@repeatable
def test_weights_are_off_by_half_a_step_or_are_the_first_one(drawn):
    ring, updates = drawn
    total_of(ring, updates)
    relative = []
    for update in updates:
        exact = Fraction(update.weight) / Fraction(ring.max_weight) * ring.heaviest
        steps = steps_of(ring, update.weight)
        assert abs(steps - exact) <= Fraction(1, 2) + exact * Fraction(SLACK) or (steps == 1 and exact < 1)
        relative.append(float(abs(steps - exact) / exact))
    np.testing.assert_allclose(ring.rounded, max(relative), rtol=1e-6, atol=4 * SLACK)


@given(bits, st.integers(2, 40), st.data())
@repeatable
def test_weights_with_the_same_sum_leave_the_same_elements(bits, parties, data):
    """However it is made up: a step from one to the other changes both vectors, and nothing of the sum."""
    ring = FixedPoint(bits, 1.0, parties, entries=1)
    some = data.draw(st.lists(st.integers(1, ring.heaviest), min_size=2, max_size=parties))
    most, least = some.index(max(some)), some.index(min(some))
    moved = data.draw(st.integers(0, min(some[most] - 1, ring.heaviest - some[least])))
    others = list(some)
    others[most] -= moved
    others[least] += moved
    one, other = (total_of(ring, [Update(np.zeros(1), w / ring.heaviest) for w in each]) for each in (some, others))
    assert one.tolist() == other.tolist() == [0, sum(some), 0]


@given(rounds())
@repeatable
def test_each_entry_is_the_nearest_integer(drawn):
    ring, updates = drawn
    for vector, weight, *_ in updates:
        stood_for = Fraction(steps_of(ring, weight), ring.heaviest)
        signed = ring.encode(Update(vector, weight)).view(f"i{ring.bits // 8}")
        for x, integer in zip(vector.tolist(), signed.tolist(), strict=False):
            exact = Fraction(x) * stood_for * ring.limit / Fraction(ring.clip)
            assert abs(integer - exact) <= Fraction(1, 2) + abs(exact) * Fraction(SLACK)


# From 1024 to 4096 parties, 64 bits leave a limit that is no power of two and near 2^53, where a product that is
# rounded up in its last digit is already too large.
@given(bits, clips, st.integers(1, 2**63) | st.integers(1024, 4096), st.booleans())
@example(64, 3.7, 1027, False)
@settings(repeatable, max_examples=300)
def test_nothing_wraps_when_everybody_is_at_the_clip(bits, clip, parties, negative):
    parties = min(parties, 2 ** (bits - 1) - 1)
    ring = FixedPoint(bits, clip, parties, entries=1)
    vector = ring.encode(Update(np.array([-clip if negative else clip])))
    entry, weight, zero = vector.tolist()
    signed = entry - 2**bits if entry >= 2 ** (bits - 1) else entry
    assert abs(signed) in (ring.limit, ring.limit - 1)  # at 2^53 the scale itself may be rounded down
    assert abs(signed) * parties <= 2 ** (bits - 1) - 1
    assert (weight, zero) == (ring.heaviest, 0)
    assert 0 < weight * parties < 2**bits
    # As many equal vectors as there are parties: multiplying wraps exactly where adding would.
    total = vector * ring.dtype.type(parties)
    np.testing.assert_allclose(ring.mean(total), [-clip if negative else clip], rtol=1e-12)


@given(bits, clips, st.integers(1, 40), st.data())
@repeatable
def test_sums_of_many_at_the_clip_are_exact(bits, clip, n, data):
    ring = FixedPoint(bits, clip, n, entries=2)
    signs = data.draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=n, max_size=n))
    total = total_of(ring, [Update(np.array([clip, sign * clip * 2])) for sign in signs])
    np.testing.assert_allclose(ring.mean(total), [clip, clip * sum(signs) / n], rtol=1e-12, atol=1e-12 * clip)
    assert (ring.clipped, ring.largest) == (n, 2 * clip)


@given(rounds(), st.randoms(use_true_random=False))
@repeatable
def test_any_order_of_adding_gives_the_same_bits(drawn, random):
    ring, updates = drawn
    forward = total_of(ring, updates)
    parts = [ring.encode(update) for update in updates]
    while len(parts) > 1:  # any tree of additions
        random.shuffle(parts)
        parts.append(parts.pop() + parts.pop())
    assert parts[0].tobytes() == forward.tobytes()
    assert ring.mean(parts[0]).tobytes() == ring.mean(forward).tobytes()


@given(rounds(), st.integers(0, 2**32))
@repeatable
def test_masks_that_cancel_leave_no_trace(drawn, seed):
    ring, updates = drawn
    size = ring.length * ring.dtype.itemsize
    mask = np.frombuffer(np.random.default_rng(seed).bytes(size), ring.dtype)
    plain, masked = total_of(ring, updates), ring.encode(updates[0])
    masked += mask
    for update in updates[1:]:
        masked += ring.unpack(ring.pack(ring.encode(update)))
    masked -= mask
    assert ring.mean(masked).tobytes() == ring.mean(plain).tobytes()


@given(st.sampled_from(["f4", "f8"]), st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=50), bits)
@settings(repeatable, max_examples=200)
def test_clipped_entries_are_counted_exactly(dtype, numbers, bits):
    ring = FixedPoint(bits, 1.0, 3, entries=len(numbers))
    ring.encode(Update(np.array(numbers, dtype)))
    beyond = [abs(x) for x in numbers if abs(x) > 1.0]
    assert (ring.clipped, ring.largest) == (len(beyond), max(beyond, default=0.0))


@given(rounds())
@repeatable
def test_bytes_come_back_as_they_went(drawn):
    ring, updates = drawn
    for update in updates:
        vector = ring.encode(update)
        data = bytes(ring.pack(vector))
        assert len(data) == ring.length * ring.bits // 8
        assert ring.unpack(data).tobytes() == vector.tobytes()


# --- rounding by chance, and noise ---------------------------------------------------------------------------------


def drawing(ring, seed):
    entropy = SeededEntropy(seed)
    ring.draws_from(lambda count: masks.stream(entropy.bytes(32), count, 8).view(np.uint64))
    return ring


def signed(ring, encoded):
    return [int(each) for each in encoded.view(ring._signed)]


@given(bits, clips, st.integers(1, 12), st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=6), st.integers(0, 9))
@repeatable
def test_rounded_by_chance_a_number_is_next_to_itself_and_sums_are_exact(bits, clip, n, numbers, seed):
    vector = np.array(numbers) * clip
    ring = drawing(FixedPoint(bits, clip, n, len(vector), stochastic=True), seed)
    total, exact = ring.zeros(), [0] * len(vector)
    for _ in range(n):
        encoded = ring.encode(Update(vector))[: len(vector)]
        for whole, number in zip(signed(ring, encoded), np.clip(vector, -clip, clip), strict=True):
            assert whole in (math.floor(number * ring.scale), math.ceil(number * ring.scale))
            assert abs(whole) <= ring.limit
        exact = [before + whole for before, whole in zip(exact, signed(ring, encoded), strict=True)]
        total[: len(vector)] += encoded
    assert signed(ring, total[: len(vector)]) == exact
    error = np.abs(ring.floats(total[: len(vector)]) / n - np.clip(vector, -clip, clip))
    assert (error <= ring.resolution * (1 + SLACK) + SLACK * clip).all()


@given(
    bits,
    st.floats(1e-3, 1e3),
    st.integers(1, 12),
    st.floats(1e-3, 100.0),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)
@repeatable
def test_whatever_the_noise_sums_do_not_overflow(bits, clip, n, noise, stochastic, alone, seed):
    given_noise = noise * clip
    if ring_problems(bits, clip, n, noise=given_noise, alone=alone):
        return  # less than a step
    more = {"norm": clip, "stochastic": stochastic, "alone": alone}
    ring = drawing(FixedPoint(bits, clip, n, 8, noise=given_noise, **more), seed)
    vector = np.linspace(-3 * clip, 3 * clip, 8)
    total, exact = ring.zeros(), [0] * 8
    for _ in range(n):
        encoded = ring.encode(Update(vector))
        assert not alone or max(map(abs, signed(ring, encoded[:8]))) <= ring.limit
        exact = [before + whole for before, whole in zip(exact, signed(ring, encoded[:8]), strict=True)]
        total += encoded
    assert signed(ring, total[:8]) == exact
    assert np.abs(ring.mean(total)).max() <= ring.span * (1 + SLACK)
