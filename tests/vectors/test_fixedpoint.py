import sys
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from tacit.auditing.symbolic.forms import unknowns
from tacit.auditing.symbolic.ring import FormTable, SymbolicRing
from tacit.auditing.symbolic.simulation import make_unknowns
from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import Ring, Update
from tacit.vectors.fixedpoint import CHUNK, FixedPoint
from tacit.vectors.ring_limits import BITS, ring_problems

NAN, INF = float("nan"), float("inf")


def encoded(ring, *updates):
    total = ring.zeros()
    for vector, weight, *_ in updates:
        total += ring.encode(Update(np.array(vector), weight))
    return total


# --- single floats -------------------------------------------------------------------------------------------------


def test_a_clip_that_no_single_float_is_cuts_off_once():
    """0.1 as a single float is a little more than 0.1."""
    ring = FixedPoint(32, clip=0.1, parties=2, entries=3)
    single = np.array([0.1, 0.2, -0.05], np.float32)
    for vector in (single, single.astype(np.float64)):
        ring.clipped, ring.largest = 0, 0.0
        limited = ring.clip_vector(vector, 0.1)
        assert limited.tolist() == [0.1, 0.1, float(np.float32(-0.05))]
        ring.values(limited)
        assert ring.clipped == 2
    within = np.array([0.05, -0.05], np.float32)
    assert ring.clip_vector(within, 0.1) is within


def test_a_weight_is_not_rounded_to_a_single_float():
    ring = FixedPoint(32, clip=4.0, parties=2, entries=3)
    single = np.array([1.0, 3.0, 0.1], np.float32)
    np.testing.assert_array_equal(ring.apply_weight(single, 0.1), single.astype(np.float64) * 0.1)


def test_what_was_kept_is_compared_in_single_precision():
    ring = FixedPoint(32, clip=4.0, parties=2, entries=4)
    before = np.array([1.0, -2.0, 1e300, 0.1])
    kept = ring.dump_vector(before)
    assert kept.nbytes == len(before) * ring.dumped_bytes
    assert kept.readonly
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            now = np.array([1.0, -2.5, 1e300, 0.1]).astype(dtype)
        now[2] = np.finfo(np.float32).max  # which stands for all that are larger
        assert ring.magnitudes(now, kept).tolist() == [0.0, 0.5, 0.0, 0.0]
    assert ring.magnitudes(before).tolist() == [1.0, 2.0, 1e300, 0.1]
    assert np.isnan(ring.magnitudes(np.array([NAN, 0.0, 0.0, 0.0]), kept)[0])


# --- averages ------------------------------------------------------------------------------------------------------


def test_two_vectors_average_to_their_mean():
    ring = FixedPoint(32, clip=4.0, parties=2, entries=3)
    total = encoded(ring, ([1.0, -2.0, 4.0], 1.0), ([3.0, -4.0, -4.0], 1.0))
    np.testing.assert_allclose(ring.mean(total), [2.0, -3.0, 0.0], atol=ring.resolution / 2)
    assert ring.mean(total).dtype == np.float64


def test_the_encoding_is_what_the_docstring_says():
    """Written out by hand: limit 32767 // 5 = 6553, and the weight 65535 // 5 = 13107, or half of it, rounded."""
    ring = FixedPoint(16, clip=1.0, parties=5, entries=4)
    assert (ring.limit, ring.heaviest, ring.length) == (6553, 13107, 6)
    vector = ring.encode(Update(np.array([1.0, -1.0, 0.5, 0.0])))
    assert vector.dtype == np.uint16
    assert vector.tolist() == [6553, 65536 - 6553, 3276, 0, 13107, 0]
    # 6553 · 6554 / 13107 = 3276.75, for it is the rounded weight that counts.
    vector = ring.encode(Update(np.array([1.0, -1.0, 0.5, 0.0]), 0.5))
    assert vector.tolist() == [3277, 65536 - 3277, 1638, 0, 6554, 0]


@pytest.mark.parametrize(
    ("bits", "parties", "heaviest"),
    [
        (16, 1, 65535),
        (16, 32767, 2),
        (32, 1, 2**32 - 1),
        (32, 9, (2**32 - 1) // 9),
        (64, 9, 2**32 - 1),
        (64, 2**32, 2**32 - 1),
        (64, 2**33, 2**31 - 1),
    ],
)
def test_weights_are_one_element_however_many_add_up(bits, parties, heaviest):
    ring = FixedPoint(bits, 1.0, parties, entries=10)
    assert (ring.heaviest, ring.length) == (heaviest, 10 + 2)
    assert ring.encode(Update(np.zeros(10))).tolist() == [0] * 10 + [heaviest, 0]
    assert parties * heaviest < 2**bits, "no sum overflows"
    assert heaviest == 2**32 - 1 or parties * (heaviest + 1) >= 2**bits, "and no step is given away"


def in_limbs(weight, bits, parties):
    """Returns a weight of 32 bits as it was once sent: cut into limbs that cannot overflow when they are summed."""
    size = bits - (parties - 1).bit_length()
    return [weight >> place & (1 << size) - 1 for place in range(0, 32, size)]


@pytest.mark.parametrize(
    ("parties", "max_weight", "together", "told_apart"),
    [(40, 400, 441, [160, 200]), (5, 771, 1183, [80, 280])],
    ids=["40 parties", "5 parties"],
)
def test_of_weights_that_are_summed_nothing_shows_but_their_sum(parties, max_weight, together, told_apart):
    """Two weights are integers with a known sum. That leaves 360 pairs, many of which separate limbs ruled out."""
    pairs = [(a, together - a) for a in range(1, max_weight + 1) if 1 <= together - a <= max_weight]
    assert len(pairs) == 360
    high = Counter()
    for pair in pairs:
        limbs = [in_limbs(round(weight / max_weight * (2**32 - 1)), 32, parties) for weight in pair]
        assert [low + (top << 32 - (parties - 1).bit_length()) for low, top in limbs] == [
            round(weight / max_weight * (2**32 - 1)) for weight in pair
        ]
        high[sum(top for _, top in limbs)] += 1
    assert sorted(high.values()) == told_apart, "the high limbs alone told a carry from none"

    ring = FixedPoint(32, 1.0, parties, entries=1, max_weight=max_weight)
    seen = {}
    for pair in pairs:
        total = encoded(ring, *(([0.0], weight) for weight in pair))
        rounded = sum(round(weight / max_weight * ring.heaviest) for weight in pair)
        seen.setdefault(rounded, set()).add(total.tobytes())
    assert all(len(sums) == 1 for sums in seen.values()), "sums are the same to the last bit if the weights' are"
    assert len(seen) == 1, "and they are, because whole numbers are not rounded"


@pytest.mark.parametrize(("parties", "limit"), [(3, 2**53), (1023, 2**53), (1025, (2**63 - 1) // 1025)])
def test_the_limit_is_an_integer_that_floats_can_count_to(parties, limit):
    assert FixedPoint(64, clip=1.0, parties=parties, entries=1).limit == limit


def test_resolution_is_the_step_between_values():
    ring = FixedPoint(16, clip=2.0, parties=3, entries=1)
    one = np.zeros(ring.length, ring.dtype)
    one[0] = 1
    step = ring.mean(one + ring.encode(Update(np.zeros(1))))
    assert step[0] == pytest.approx(ring.resolution)
    assert ring.resolution == 2.0 / 10922


@pytest.mark.parametrize("bits", BITS)
def test_weighted_average_and_total_weight(bits):
    ring = FixedPoint(bits, clip=1.0, parties=3, entries=2, max_weight=1000)
    total = encoded(ring, ([0.5, -1.0], 1000), ([-0.5, 0.25], 250), ([1.0, 1.0], 750))
    assert ring.weight_of(total) == pytest.approx(2000, rel=1e-8)
    expected = [(500 - 125 + 750) / 2000, (-1000 + 62.5 + 750) / 2000]
    np.testing.assert_allclose(ring.mean(total), expected, atol=1.5 * ring.resolution / 2 + 1e-9)


@pytest.mark.parametrize(("bits", "narrow", "in_place"), [(32, True, True), (64, False, True), (32, False, False)])
def test_an_average_takes_the_place_of_a_sum_that_is_spent(bits, narrow, in_place):
    entries = CHUNK + 3
    ring = FixedPoint(bits, 1.0, 2, entries)
    ring.narrow = narrow
    vectors = np.random.default_rng(0).uniform(-1, 1, (2, entries)).astype(np.float32)
    total = ring.encode(Update(vectors[0])) + ring.encode(Update(vectors[1]))
    expected = ring.mean(total.copy())
    kept = total.copy()
    assert not np.shares_memory(ring.mean(total), total)
    np.testing.assert_array_equal(total, kept)
    total.flags.writeable = False
    assert not np.shares_memory(ring.mean(total, spent=True), total)
    total.flags.writeable = True
    average = ring.mean(total, spent=True)
    assert np.shares_memory(average, total) is in_place
    assert average.dtype == expected.dtype
    np.testing.assert_array_equal(average, expected)


def test_the_average_agrees_with_the_rounded_weights_not_the_given_ones():
    """A weight far below one step counts as one step; its vector must shrink no further than that."""
    ring = FixedPoint(64, clip=1.0, parties=1, entries=1)
    total = encoded(ring, ([0.75], 1e-15))
    assert ring.mean(total)[0] == pytest.approx(0.75, abs=1e-6)
    assert ring.weight_of(total) == pytest.approx(1 / (2**32 - 1))


def test_how_far_weights_were_rounded_is_told():
    """Of 13000 steps up to 1000, a whole number takes 13 times itself, and 1.5 takes 19.5 and gets 20."""
    ring = FixedPoint(16, clip=1.0, parties=5, entries=1, max_weight=1000)
    for whole in (1000, 1, 500):
        ring.encode(Update(np.zeros(1), whole))
        assert ring.rounded == 0.0
    ring.encode(Update(np.zeros(1), 1.5))
    assert ring.rounded == pytest.approx(0.5 / 19.5)
    ring.encode(Update(np.zeros(1), 10.01))
    assert ring.rounded == pytest.approx(0.5 / 19.5)
    assert ring.fresh().rounded == 0.0
    ring.encode(Update(np.zeros(1), 0.01))
    assert ring.rounded == pytest.approx((1 - 0.13) / 0.13)
    assert (ring.clipped, ring.largest) == (0, 0.0)


@pytest.mark.parametrize("entries", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_chunks_leave_no_seams(entries):
    ring = FixedPoint(32, clip=1.0, parties=2, entries=entries)
    vector = np.random.default_rng(entries).uniform(-1.2, 1.2, entries)
    whole = ring.encode(Update(vector))[:entries].view(np.int32)
    assert np.array_equal(whole, np.rint(np.clip(vector, -1, 1) * ring.scale).astype(np.int32))
    assert ring.clipped == np.count_nonzero(np.abs(vector) > 1)
    assert ring.largest == (np.abs(vector).max() if ring.clipped else 0.0)


def test_clipped_entries_are_counted_over_all_vectors():
    ring = FixedPoint(32, clip=1.0, parties=2, entries=4)
    ring.encode(Update(np.array([1.0, -1.0, 0.0, 0.5])))
    assert (ring.clipped, ring.largest) == (0, 0.0)
    ring.encode(Update(np.array([np.nextafter(1.0, 2.0), -3.0, -1.0, 1.0])))
    assert (ring.clipped, ring.largest) == (2, 3.0)
    ring.encode(Update(np.array([-2.0, 0.0, 0.0, 0.0])))
    assert (ring.clipped, ring.largest) == (3, 3.0)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i4", "u1"])
def test_any_real_type_encodes_as_its_float64(dtype):
    vector = np.array([0, 1, 2, 3, 100]).astype(dtype)
    ring = FixedPoint(32, clip=50.0, parties=3, entries=5)
    assert np.array_equal(ring.encode(Update(vector)), ring.encode(Update(vector.astype(np.float64))))
    assert ring.clipped == 2


def test_strided_vectors_encode_like_contiguous_ones_and_stay_as_they_were():
    base = np.linspace(-2, 2, 20)
    before, ring = base.copy(), FixedPoint(32, clip=1.0, parties=3, entries=10)
    assert np.array_equal(ring.encode(Update(base[::2])), ring.encode(Update(base[::2].copy())))
    assert np.array_equal(base, before)


def test_encoding_needs_a_few_chunks_beside_the_result():
    ring = FixedPoint(32, clip=1.0, parties=3, entries=2_000_000)
    vector = np.full(ring.entries, 2.0)  # all beyond the clip, which is the path that needs most
    tracemalloc.start()
    try:
        ring.encode(Update(vector))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - ring.length * 4 < 4 * CHUNK * 8


@pytest.mark.parametrize("bits", BITS)
def test_bytes_are_little_endian_and_come_back(bits):
    ring = FixedPoint(bits, clip=1.0, parties=3, entries=5)
    vector = ring.encode(Update(np.linspace(-1, 1, 5)))
    data = ring.pack(vector)
    assert bytes(data) == b"".join(int(x).to_bytes(bits // 8, "little") for x in vector)
    for sent in (data, bytes(data), bytearray(data)):
        received = ring.unpack(sent)
        assert np.array_equal(received, vector)
        assert received.dtype == ring.dtype
        assert received.flags.writeable == isinstance(sent, bytearray), "what nobody else has is the caller's"
        assert np.array_equal(ring.zeros() + received, vector)


@pytest.mark.skipif(sys.byteorder != "little", reason="elsewhere the bytes have to be swapped")
def test_packing_does_not_copy():
    ring = FixedPoint(32, clip=1.0, parties=3, entries=5)
    vector = ring.encode(Update(np.zeros(5)))
    data = ring.pack(vector)
    assert np.shares_memory(np.frombuffer(data, np.uint8), vector)
    assert data.readonly
    assert np.shares_memory(ring.unpack(data), vector)


def test_a_strided_vector_packs_as_its_entries():
    ring = FixedPoint(32, clip=1.0, parties=3, entries=2)
    wide = np.arange(2 * ring.length, dtype=np.uint32)
    assert np.array_equal(ring.unpack(ring.pack(wide[::2])), wide[::2])


def test_packing_real_numbers_is_a_mistake():
    ring = FixedPoint(32, clip=1.0, parties=3, entries=2)
    with pytest.raises(TypeError):
        ring.pack(np.zeros(ring.length))


@pytest.mark.parametrize("size", [0, 1, 27, 29, 32, 1000])
def test_bytes_of_another_length_are_refused(size):
    ring = FixedPoint(32, clip=1.0, parties=3, entries=5)
    assert ring.length * 4 == 28
    with pytest.raises(WireError, match=f"28 bytes, not {size}"):
        ring.unpack(bytes(size))
    with pytest.raises(WireError):
        ring.unpack(memoryview(np.zeros(28, np.uint32)))  # 28 items, but 112 bytes


@pytest.mark.parametrize("bits", BITS)
def test_a_sum_of_nothing_has_no_mean(bits):
    ring = FixedPoint(bits, clip=1.0, parties=3, entries=2)
    with pytest.raises(WireError, match="its total weight is zero"):
        ring.mean(ring.zeros())
    with pytest.raises(WireError, match="its total weight is zero"):
        ring.weight_of(ring.zeros())


@pytest.mark.parametrize(("bits", "parties"), [(16, 4), (16, 32767), (32, 4), (32, 1000), (64, 3)])
def test_more_weight_than_all_parties_have_is_noticed(bits, parties):
    ring = FixedPoint(bits, clip=1.0, parties=parties, entries=2)
    total = ring.zeros()
    total[2] = parties * ring.heaviest
    assert ring.mean(total).tolist() == [0.0, 0.0]
    assert ring.weight_of(total) == pytest.approx(parties)
    total[2] += 1
    assert total[2] == parties * ring.heaviest + 1, "the ring has room for more"
    for read in (ring.mean, ring.weight_of):
        with pytest.raises(WireError, match="more than all parties"):
            read(total)


@pytest.mark.parametrize("bits", BITS)
def test_a_mask_that_was_left_in_the_sum_is_noticed(bits):
    """Whatever it makes of the weight, which alone would tell in few rings: here all that it can be is in range."""
    ring = FixedPoint(bits, clip=1.0, parties=3, entries=2)
    honest = encoded(ring, ([0.5, 0.5], 1.0), ([0.5, -0.5], 0.5))
    assert ring.mean(honest).shape == (2,)
    masks = np.random.default_rng(bits).integers(0, 2**bits, size=(200, ring.length), dtype=ring.dtype)
    assert masks[:, -1].all()
    for mask in masks:
        for read in (ring.mean, ring.weight_of):
            with pytest.raises(WireError, match="it still contains masks"):
                read(honest + mask)
        assert ring.mean(honest + mask - mask).tolist() == ring.mean(honest).tolist()
    for zero in (1, 2 ** (bits - 1), 2**bits - 1):
        honest[-1] = zero
        with pytest.raises(WireError, match="it still contains masks"):
            ring.mean(honest)


@pytest.mark.parametrize("total", [np.zeros(3, np.uint32), np.zeros(7, np.float64), np.zeros(7, np.uint64)])
def test_a_sum_of_another_shape_or_type_is_refused(total):
    ring = FixedPoint(32, clip=1.0, parties=3, entries=5)
    with pytest.raises(WireError, match="expected 7 entries of uint32"):
        ring.mean(total)


@pytest.mark.parametrize("bad", [0, 8, 31, 128, "32", None])
def test_bad_bits(bad):
    assert ring_problems(bad, 1.0, 3) == [f"bits must be 16, 32 or 64, not {bad!r}"]


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, NAN, INF, -INF, 1e-320, 1e300, "1", None, True])
def test_bad_clip_and_max_weight(bad):
    (clip,) = ring_problems(32, bad, 3)
    assert clip.startswith("clip must be a positive number")
    (weight,) = ring_problems(32, 1.0, 3, bad, {"p0": 0.5})
    assert weight.startswith("max_weight must be a positive number")


@pytest.mark.parametrize("bad", [0, -3, 2.5, "3", None])
def test_bad_parties(bad):
    assert ring_problems(32, 1.0, bad) == [f"parties must be a whole number of at least 1, not {bad!r}"]


def test_too_many_parties_for_the_ring():
    assert ring_problems(16, 1.0, 32767) == []
    (problem,) = ring_problems(16, 1.0, 32768)
    assert problem == "16 bits hold the sum of at most 32767 parties, not 32768; try: use 32 bits"
    assert ring_problems(32, 1.0, 2**31 - 1) == []
    assert "use 64 bits" in ring_problems(32, 1.0, 2**31)[0]
    assert "use fewer parties" in ring_problems(64, 1.0, 2**63)[0]


@pytest.mark.parametrize("bad", [0, 0.0, -1, NAN, INF, 10.5, "1", None, True])
def test_bad_weights(bad):
    (problem,) = ring_problems(32, 1.0, 3, 10.0, {"p0": 10, "p1": bad, "p2": 0.1})
    assert problem == f"the weight of p1 is {bad!r}; it must be above 0 and at most max_weight, which is 10"
    ring = FixedPoint(32, 1.0, 3, entries=2, max_weight=10.0)
    with pytest.raises(ConfigError, match="the weight is"):
        ring.encode(Update(np.zeros(2), bad))


def test_every_problem_is_told_at_once():
    assert len(ring_problems(8, -1.0, 0, 2.0, {"p0": 3.0, "p1": NAN})) == 5
    with pytest.raises(ConfigError) as caught:
        FixedPoint(8, -1.0, 0, entries=0, max_weight=NAN)
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    "vector",
    [np.zeros(3), np.zeros((2, 1)), np.zeros(()), np.zeros(2, complex), np.zeros(2, bool), np.array(["1", "2"])],
)
def test_vectors_that_do_not_belong_are_refused(vector):
    with pytest.raises(ConfigError, match="expected a vector of 2 real numbers"):
        FixedPoint(32, 1.0, 3, entries=2).encode(Update(vector))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("bad", "found"),
    [((NAN, 0), "1 NaN and 0"), ((INF, 0), "0 NaN and 1"), ((-INF, INF), "0 NaN and 2"), ((NAN, INF), "1 NaN and 1")],
)
def test_nan_and_infinity_are_refused_and_counted(dtype, bad, found):
    ring = FixedPoint(32, 1.0, 3, entries=2 * CHUNK)
    vector = np.zeros(ring.entries, dtype)
    vector[[0, CHUNK, -1]] = [5.0, *bad]
    with pytest.raises(ConfigError, match=f"{found} infinite entries"):
        ring.encode(Update(vector))
    assert (ring.clipped, ring.largest) == (0, 0.0)  # nothing was encoded, so nothing was cut off


def test_symbolic_vectors_add_up_and_travel():
    table = FormTable()
    ring: Ring = SymbolicRing(2, table, "p0")
    ours = ring.encode(make_unknowns("p0", 2))
    theirs = ring.encode(Update(unknowns("plain", "p1", 2), 3.0))
    total = ring.zeros()
    total += ring.unpack(ring.pack(ours))
    total += ring.unpack(memoryview(ring.pack(theirs)))
    assert total[0].terms == {("input", "p0", 0): 1, ("plain", "p1", 0): 3}
    assert total[2].terms == {("input", "p0", 2): 1, ("one",): 3}
    assert total[3].terms == {}
    assert len(total) == ring.length == 4


def test_a_symbolic_mean_is_a_quotient_or_unknown():
    table = FormTable()
    ring = SymbolicRing(1, table, "p0")
    known = ring.encode(Update(unknowns("plain", "p0", 1), 2.0)) + ring.encode(Update(unknowns("plain", "p1", 1), 3.0))
    assert ring.mean(known)[0].terms == {("plain", "p0", 0): Fraction(2, 5), ("plain", "p1", 0): Fraction(3, 5)}
    (mean,) = ring.mean(known + ring.encode(make_unknowns("p2", 1)))
    (unknown,) = mean.terms
    assert unknown[0] == "ratio"


def test_symbolic_vectors_have_weights_of_their_own():
    table = FormTable()
    ring = SymbolicRing(2, table, "p0")
    ours, theirs = make_unknowns("p0", 2), make_unknowns("p1", 2)
    weighted = ring.apply_weight(ours.vector, ours.weight / 4)
    assert [form.terms for form in weighted] == [{("input", "p0", 0): 1}, {("input", "p0", 1): 1}]
    assert ring.apply_weight(np.array([2.0, 0.0]), ours.weight)[0].terms == {("input", "p0", 2): 2}
    for vector, weight in (
        (theirs.vector, ours.weight),
        (weighted, ours.weight),
        (ours.vector, ours.vector[0]),
        (ours.vector, ours.weight + theirs.weight),
        (unknowns("noise", "p0", 2), ours.weight),
    ):
        with pytest.raises(TypeError, match="multiply"):
            ring.apply_weight(vector, weight)


def test_vectors_that_were_never_weighted_are_shown_as_inputs():
    table = FormTable()
    ring = SymbolicRing(1, table, "p0")
    plain = ring.pack(make_unknowns("p0", 1).vector)
    assert table.read_vector(plain)[0].terms == {("input", "p0", 0): 1}
    assert table.meaning(plain)[0].terms == {("plain", "p0", 0): 1}
    weighted = ring.pack(ring.encode(make_unknowns("p0", 1)))
    assert table.read_vector(weighted)[0].terms == {("input", "p0", 0): 1}
    assert table.read_vector(plain)[0].terms == {("plain", "p0", 0): 1}, "it is no longer what it was taken for"
    assert table.read_vector(b"") is None


def test_symbolic_bytes_are_fresh_opaque_and_repeatable():
    ring, again = SymbolicRing(2, FormTable(), "p0"), SymbolicRing(2, FormTable(), "p0")
    first, second = ring.pack(ring.zeros()), ring.pack(ring.zeros())
    assert len(first) == len(second) == 32
    assert first != second
    assert [first, second] == [again.pack(again.zeros()), again.pack(again.zeros())]
    with pytest.raises(TypeError, match="pack"):
        ring.pack(np.array([ring.zeros(), ring.zeros()]))


def test_a_round_that_is_said_again_packs_the_same_bytes_or_is_found_out():
    table = FormTable()
    one, again, other = (SymbolicRing(2, table, ("p0", 1)) for _ in range(3))
    ours, theirs = (unknowns("input", party, 3) for party in ("p0", "p1"))
    assert one.pack(ours) == again.pack(ours)
    assert one.pack(theirs) == again.pack(theirs)
    with pytest.raises(ConfigError, match="a repeated round sent other messages"):
        other.pack(theirs)
    assert SymbolicRing(2, table, ("p0", 2)).pack(ours) != one.pack(ours)


def test_bytes_of_zeros_mean_nothing():
    table = FormTable()
    table.intern(unknowns("input", "p0", 1), "p0")
    assert table.meaning(bytes(8)) is None


def test_the_table_keeps_a_vector_as_it_was_when_packed():
    table = FormTable()
    ring = SymbolicRing(1, table, "p0")
    vector = ring.encode(make_unknowns("p0", 1))
    before, data = [form.terms for form in vector], ring.pack(vector)
    vector += vector
    meaning = table.meaning(memoryview(data))
    assert [form.terms for form in meaning] == before
    assert not meaning.flags.writeable
    assert table.meaning(b"something else") is None


def test_symbolic_bytes_that_were_never_packed_are_refused():
    table = FormTable()
    ring, longer = SymbolicRing(2, table, "p0"), SymbolicRing(3, table, "p1")
    with pytest.raises(WireError, match="never packed"):
        ring.unpack(bytes(32))
    with pytest.raises(WireError, match="32 bytes, not 40"):
        ring.unpack(longer.pack(longer.zeros()))
    with pytest.raises(ConfigError):
        ring.encode(make_unknowns("p0", 3))
