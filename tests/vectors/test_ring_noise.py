"""Noise, norms and stochastic rounding in the ring: what is added, what never happens, and what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.protocol import FARTHEST
from tacit.core.suite import Update
from tacit.crypto import masks
from tacit.vectors.fixedpoint import CHUNK, FixedPoint, longest
from tacit.vectors.ring_limits import ring_problems

ENTRIES = 20_000


def ring_of(bits=32, clip=4.0, parties=5, entries=ENTRIES, seed=0, **more):
    ring = FixedPoint(bits, clip, parties, entries, **more)
    entropy = SeededEntropy(seed)
    ring.draws_from(lambda count: masks.stream(entropy.bytes(32), count, 8).view(np.uint64))
    return ring


def extreme(sign):
    """Words of which the farthest noise of a sign comes, if noise is drawn from them."""

    def words(count):
        which, within, chance = np.full((3, count // 3), 2**64 - 1, dtype=np.uint64)
        return np.concatenate([which, within >> np.uint64(sign == 1), np.zeros_like(chance)])

    return words


# --- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_noise_has_the_deviation_it_should_and_no_mean(bits):
    ring = ring_of(bits, noise=0.25)
    found = ring.floats(ring.encode(Update(np.full(ENTRIES, 1.5)))[:ENTRIES]) - 1.5
    assert found.std() == pytest.approx(math.hypot(0.25, ring.resolution / math.sqrt(12)), rel=0.03)
    assert abs(found.mean()) < 4 * 0.25 / math.sqrt(ENTRIES) + ring.resolution / 2


def test_what_lies_behind_the_entries_has_none():
    ring = ring_of(noise=0.25)
    plain = ring_of()
    assert ring.encode(Update(np.zeros(ENTRIES)))[ENTRIES:].tolist() == [plain.heaviest, 0]


def test_noise_is_new_every_time_and_repeats_only_with_the_seed():
    one, again, other = (ring_of(noise=0.1, seed=seed) for seed in (1, 1, 2))
    update = Update(np.zeros(ENTRIES))
    first = one.encode(update)
    np.testing.assert_array_equal(first, again.encode(update))
    assert np.mean(first == one.encode(update)) < 0.01
    assert np.mean(first == other.encode(update)) < 0.01


def test_a_long_vector_has_new_noise_in_every_chunk():
    ring = ring_of(entries=2 * CHUNK, noise=0.1)
    noise = ring.encode(Update(np.zeros(2 * CHUNK)))
    assert np.mean(noise[:CHUNK] == noise[CHUNK : 2 * CHUNK]) < 0.01


def test_a_part_of_a_vector_has_that_part_of_its_noise():
    ring = ring_of(noise=0.5)
    found = ring.floats(ring.encode_with_noise(np.full(ENTRIES, 2.0), Fraction(1, 4)))
    assert found.mean() == pytest.approx(0.5, abs=0.005)
    assert found.std() == pytest.approx(0.125, rel=0.03)
    assert ring.add_noise(np.full(ENTRIES, 2.0)).std() == pytest.approx(0.5, rel=0.03)


def test_values_have_none():
    ring = ring_of(noise=0.5)
    np.testing.assert_allclose(ring.floats(ring.values(np.full(9, 2.0))), 2.0, atol=ring.resolution)


def test_without_noise_nothing_is_drawn_and_nothing_is_another():
    ring = FixedPoint(32, 4.0, 5, 100)  # without a source of randomness
    vector = np.linspace(-4, 4, 100)
    assert ring.add_noise(vector) is vector
    np.testing.assert_array_equal(ring.encode_with_noise(vector), ring.values(vector))
    np.testing.assert_array_equal(ring.encode(Update(vector))[:100], ring.values(vector))


def farthest(ring, parties, sign):
    """Returns a sum of the largest vectors with the farthest noise, and what it would be without a ring."""
    ring.draws_from(extreme(sign))
    total, exact = ring.zeros(), 0
    for _ in range(parties):
        encoded = ring.encode(Update(np.full(3, 100.0 * sign)))
        exact += int(encoded.view(ring._signed)[0])
        total += encoded
    return total, exact


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("noise", [0.05, 3.0])
def test_alone_the_farthest_noise_of_everybody_does_not_overflow(bits, sign, noise):
    ring = FixedPoint(bits, 2.0, 7, 3, noise=noise, alone=True)
    total, exact = farthest(ring, 7, sign)
    assert int(total.view(ring._signed)[0]) == exact
    assert abs(exact) <= 7 * ring.limit
    assert sign * ring.mean(total)[0] > 2.0 + 0.7 * FARTHEST * noise


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("parties", [4, 100])
def test_in_a_sum_there_is_room_for_ten_deviations_of_all_noise_together(bits, parties):
    """So many as make ten deviations of the sum may have the farthest noise there is, with all entries at the clip."""
    ring, several = FixedPoint(bits, 2.0, parties, 3, noise=0.5), int(math.sqrt(parties))
    total, exact = farthest(ring, several, 1)
    quiet = FixedPoint(bits, 2.0, parties, 3, noise=0.5)
    quiet.draws_from(lambda count: np.zeros(count, dtype=np.uint64))
    for _ in range(parties - several):
        encoded = quiet.encode(Update(np.full(3, 100.0)))
        exact += int(encoded.view(ring._signed)[0])
        total += encoded
    assert int(total.view(ring._signed)[0]) == exact
    assert exact > 0.9 * 2 ** (bits - 1)
    # If all noise is extreme, which practically never happens, the sum overflows, and is no less private.
    total, exact = farthest(FixedPoint(bits, 2.0, 100, 3, noise=0.5), 100, 1)
    assert int(total.view(ring._signed)[0]) != exact


def test_rings_without_noise_are_as_fine_as_ever():
    assert FixedPoint(32, 4.0, 5, 1).resolution == 4.0 / ((2**31 - 1) // 5)
    assert FixedPoint(32, 4.0, 5, 1, noise=0.4, alone=True).resolution == 8.0 / ((2**31 - 1) // 5)
    assert FixedPoint(32, 4.0, 4, 1, noise=0.4).resolution == 6.0 / ((2**31 - 1) // 4)


def test_a_ring_that_was_not_told_what_to_draw_from_encodes_nothing():
    for ring in (
        FixedPoint(32, 4.0, 5, 3, noise=0.5),
        FixedPoint(32, 4.0, 5, 3, stochastic=True),
        ring_of(noise=1.0).fresh(),
    ):
        with pytest.raises(ConfigError, match="needs a source of randomness"):
            ring.encode(Update(np.full(ring.entries, 0.3)))


def test_weights_do_not_go_with_noise():
    ring = ring_of(entries=2, max_weight=4.0, noise=0.5)
    assert ring.mean(ring.encode(Update(np.zeros(2), 4.0))).shape == (2,)
    with pytest.raises(
        ConfigError, match=r"the weight is 3, and with noise all weigh max_weight: .* leave weights out"
    ):
        ring.encode(Update(np.zeros(2), 3.0))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"noise": -1.0}, "noise must be"),
        ({"noise": math.nan}, "noise must be"),
        ({"noise": math.inf}, "noise must be"),
        ({"noise": "much"}, "noise must be"),
        ({"noise": True}, "noise must be"),
        (
            {"noise": 1e-9},
            r"noise=1e-09 is less than a step of the ring, which is 9.3e-09; try: "
            "use more of it, more bits",
        ),
        ({"norm": 0.0}, "norm must be"),
        ({"norm": -2.0}, "norm must be"),
        ({"norm": math.nan}, "norm must be"),
        ({"noise": 1e-7, "bits": 16}, "less than a step"),
    ],
)
def test_what_is_wrong_is_said(wrong, named):
    with pytest.raises(ConfigError, match=named):
        FixedPoint(**{"bits": 32, "clip": 4.0, "parties": 5, "entries": 3, **wrong})


def test_a_part_of_the_noise_may_be_too_little():
    assert ring_problems(32, 4.0, 5, noise=2e-8) == []
    (problem,) = ring_problems(32, 4.0, 5, noise=2e-8, part=0.25)
    assert "less than a step of the ring, which is 3.7e-08" in problem


# --- length ----------------------------------------------------------------------------------------------------------


def test_only_what_is_too_long_is_shortened_and_keeps_its_direction():
    ring = FixedPoint(64, 32.0, 2, 3, norm=1.0)
    np.testing.assert_allclose(ring.floats(ring.encode(Update(np.array([3.0, 0.0, 4.0])))[:3]), [0.6, 0.0, 0.8])
    np.testing.assert_allclose(ring.floats(ring.encode(Update(np.array([0.3, 0.0, 0.4])))[:3]), [0.3, 0.0, 0.4])
    np.testing.assert_allclose(ring.clip_vector(np.array([3.0, 0.0, 4.0]), 32.0), [0.6, 0.0, 0.8])
    np.testing.assert_array_equal(ring.encode(Update(np.zeros(3)))[:3], 0)
    assert ring.clipped == 0


@pytest.mark.parametrize("size", [1e-90, 1.0, 1e200, 1e308])
def test_vectors_of_any_size_can_be_shortened(size):
    ring = FixedPoint(64, 1.0, 2, 4, norm=0.5)
    found = ring.floats(ring.encode(Update(np.array([size, -size, 0.0, size])))[:4])
    assert np.linalg.norm(found) <= 0.5
    if size >= 1:
        np.testing.assert_allclose(found, np.array([1, -1, 0, 1]) * 0.5 / math.sqrt(3))


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_number_is_refused_as_ever(odd):
    with pytest.raises(ConfigError, match="NaN"):
        FixedPoint(32, 1.0, 2, 3, norm=0.5).encode(Update(np.array([0.1, odd, 0.2])))


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64])
def test_numbers_of_any_type_can_be_shortened(kind):
    ring = FixedPoint(32, 8.0, 2, 2, norm=2.5)
    np.testing.assert_allclose(ring.floats(ring.encode(Update(np.array([3, 4], dtype=kind)))[:2]), [1.5, 2], atol=1e-6)


# --- rounding by chance ----------------------------------------------------------------------------------------------


def test_the_mean_of_what_is_rounded_by_chance_is_right():
    """To the nearest, all of it would be 0; and of what is half a step, no more than the 33rd binary digit is off."""
    ring = ring_of(16, parties=100, stochastic=True)
    for part in (0.1, 0.5, 0.9):
        found = ring.floats(ring.encode(Update(np.full(ENTRIES, part * ring.resolution)))[:ENTRIES]) / ring.resolution
        assert set(np.rint(found)) == {0.0, 1.0}
        assert found.mean() == pytest.approx(part, abs=4 * math.sqrt(part * (1 - part) / ENTRIES))
    nearest = FixedPoint(16, 4.0, 100, ENTRIES)
    assert not nearest.encode(Update(np.full(ENTRIES, 0.4 * nearest.resolution)))[:ENTRIES].any()


def test_averages_of_16_bits_come_closer_with_the_number_of_parties():
    rng = np.random.default_rng(0)
    vector = rng.normal(size=ENTRIES) * 0.01
    errors = {}
    for stochastic in (False, True):
        ring = ring_of(16, parties=100, stochastic=stochastic)
        total = ring.zeros()
        for _ in range(100):
            total += ring.encode(Update(vector))
        errors[stochastic] = float(np.sqrt(np.mean((ring.mean(total) - vector) ** 2)))
    assert errors[True] < errors[False] / 5


def test_whole_numbers_of_steps_stay_and_the_clip_is_never_passed():
    for bits, clip, parties in ((16, 1.0, 3), (32, 0.3, 7), (64, 1.0, 1), (64, 1e-90, 5)):
        ring = ring_of(bits, clip, parties, entries=4, stochastic=True)
        found = ring.encode(Update(np.array([clip, -clip, 9 * clip, 0.0])))[:4].view(ring._signed).tolist()
        assert max(map(abs, found)) <= ring.limit
        assert found[3] == 0
        steps = np.array([5, -3, 0, 1]) / ring.scale
        assert ring.values(steps).view(ring._signed).tolist() == [5, -3, 0, 1]


def test_longer_than_it_may_get_by_rounding_no_vector_ever_is():
    ring = ring_of(16, clip=4.0, parties=400, entries=400, noise=6.0, stochastic=True)
    most = longest(10.0, 400, stochastic=True)
    vector = np.full(400, 0.5 / ring.scale)  # half a step each, so that the chance of rounding is greatest
    lengths = []
    for _ in range(300):
        encoded = np.empty(400, ring.dtype)
        ring._fill(encoded, vector, 1.0)
        lengths.append(float(np.linalg.norm(encoded.view(ring._signed).astype(float))))
    # By itself rounding hardly ever gets there, which is what makes it quick to do it again if it does.
    assert np.mean(np.array(lengths) > most) < 0.05
    assert max(lengths) > 0.7 * most


def test_what_was_rounded_to_too_much_is_rounded_again(monkeypatch):
    ring = ring_of(16, clip=4.0, parties=400, entries=100, noise=6.0, norm=0.5, stochastic=True)
    usual, given = ring._fill, []

    def fill(encoded, vector, part_of):
        usual(encoded, vector, part_of)
        given.append(vector)
        if len(given) < 3:
            encoded[:] = 50

    monkeypatch.setattr(ring, "_fill", fill)
    ring.encode_with_noise(np.full(100, 9.0))
    assert len(given) == 3
    assert ring.clipped == 0


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("length", [0.1, 3.0, 40.0, 1e6])
def test_no_vector_gets_longer_by_rounding_than_is_said(stochastic, length):
    entries = 256
    rng = np.random.default_rng(1)
    most = longest(length, entries, stochastic=stochastic)
    for spread in (1, 16, 256):
        vector = np.zeros(entries)
        vector[:spread] = rng.normal(size=spread)
        vector *= length / np.linalg.norm(vector)
        if not stochastic:
            assert np.linalg.norm(np.rint(vector)) <= most
        assert np.linalg.norm(np.sign(vector) * np.ceil(np.abs(vector))) <= length + math.sqrt(entries)
    assert longest(length, 4 * entries, stochastic=stochastic) >= most >= length
