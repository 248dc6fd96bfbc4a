import hashlib
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from tacit.auditing.symbolic.entropy import SymbolicEntropy
from tacit.auditing.symbolic.forms import Form
from tacit.core.entropy import Entropy, SeededEntropy, SystemEntropy


class Scripted(Entropy):
    """Draws the bytes that it was given."""

    def __init__(self, data):
        self.data = data

    def bytes(self, count):
        drawn, self.data = self.data[:count], self.data[count:]
        return drawn


def test_a_seed_gives_the_same_stream_every_time():
    one, two = SeededEntropy(7, "party p0"), SeededEntropy(7, "party p0")
    assert [one.bytes(count) for count in (0, 1, 31, 5, 100)] == [two.bytes(count) for count in (0, 1, 31, 5, 100)]
    assert len(one.bytes(5000)) == 5000
    assert one.bytes(10) != one.bytes(10)


def test_the_stream_is_shake_256_of_the_hashed_path_block_by_block():
    """Written out by hand, so that runs recorded by seed can be repeated by a later version."""
    path = hashlib.sha256(b"0").digest() + hashlib.sha256(b"'session'").digest()
    blocks = [hashlib.shake_256(path + number.to_bytes(8)).digest(1024) for number in range(2)]
    entropy = SeededEntropy(0, "session")
    assert b"".join(entropy.bytes(100) for _ in range(20)) == b"".join(blocks)[:2000]


def test_paths_are_independent_streams():
    paths = [
        (),
        ("1",),
        (0,),
        (1,),
        ("",),
        ("", ""),
        (0, "a"),
        ("a", 0),
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        ("a", "b", "c"),
        (b"\x00",),
        ("\x00",) * 2,
        (0, "party p0"),
        (0, "party p1"),
        (0, "identity p0"),
    ]
    streams = [SeededEntropy(*path).bytes(2048) for path in paths]
    assert len(set(streams)) == len(paths)
    # Not only different: the words of one are nowhere in another.
    words = Counter(stream[place : place + 8] for stream in streams for place in range(0, 2048, 8))
    assert max(words.values()) == 1


def test_streams_look_uniform():
    counts = np.bincount(np.frombuffer(SeededEntropy("uniform").bytes(256 * 400), dtype=np.uint8), minlength=256)
    assert counts.min() > 300
    assert counts.max() < 500


def test_the_system_never_repeats_itself():
    entropy = SystemEntropy()
    assert len({entropy.bytes(16) for _ in range(100)}) == 100
    assert entropy.bytes(0) == b""


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 255, 256, 257, 1000, 65536, 2**64, 2**64 + 1])
def test_draws_are_below_their_bound(bound):
    entropy = SeededEntropy("below", bound)
    draws = [entropy.below(bound) for _ in range(300)]
    assert all(0 <= draw < bound for draw in draws)
    if bound > 1:
        assert len(set(draws)) > 1
        assert max(draws) >= bound // 2


@pytest.mark.parametrize("bound", [2, 3, 5, 6, 200])
def test_draws_are_as_often_one_as_the_other(bound):
    """With a plain remainder of a byte, the numbers up to 55 would come twice as often as those up to 199."""
    entropy = SeededEntropy("frequencies", bound)
    counts = Counter(entropy.below(bound) for _ in range(200 * bound))
    assert len(counts) == bound
    # Five standard deviations of a binomial with mean 200.
    assert all(abs(count - 200) < 5 * 200**0.5 for count in counts.values())


def test_what_would_bias_a_draw_is_drawn_again():
    assert Scripted(b"\xff\xfe\xfd\x07").below(10) == 7, "the first three would favour low numbers"
    assert Scripted(b"\xf9").below(10) == 9
    assert Scripted(b"\xfa\x03").below(10) == 3, "250 to 255 are thrown away"
    assert Scripted(b"\xc8\x05").below(200) == 5


@pytest.mark.parametrize("count", range(6))
def test_samples_are_in_order_and_without_replacement(count):
    items = ["e", "a", "d", "b", "c"]
    entropy = SeededEntropy("sample", count)
    for _ in range(50):
        drawn = entropy.sample(items, count)
        assert len(drawn) == len(set(drawn)) == count
        assert [items.index(item) for item in drawn] == sorted(items.index(item) for item in drawn)
    assert items == ["e", "a", "d", "b", "c"], "what is sampled from is left alone"


def test_every_subset_is_as_likely():
    entropy = SeededEntropy("subsets")
    counts = Counter(tuple(entropy.sample(range(5), 2)) for _ in range(2000))
    assert set(counts) == set(combinations(range(5), 2))
    assert all(abs(count - 200) < 5 * 200**0.5 for count in counts.values())


def test_equal_items_are_different_places():
    assert SeededEntropy("equal").sample(["x"] * 4, 3) == ["x"] * 3


def test_uniform_vectors_lie_in_the_unit_interval():
    vector = SeededEntropy("vector").secret_vector("noise", 4000)
    assert vector.shape == (4000,)
    assert vector.dtype == np.float64
    assert vector.min() >= 0
    assert vector.max() < 1
    assert abs(vector.mean() - 0.5) < 0.03
    assert len(np.unique(vector)) == 4000
    np.testing.assert_array_equal(vector, SeededEntropy("vector").secret_vector("another name", 4000))


def test_numbers_never_reach_one():
    assert Scripted(b"\xff" * 8).unit() == 1 - 2.0**-53
    assert Scripted(bytes(8)).unit() == 0


def test_symbolic_entropy_keeps_public_choices_concrete():
    symbolic, seeded = SymbolicEntropy("p0", 1, b"seed"), SeededEntropy(b"seed")
    assert symbolic.bytes(20) == seeded.bytes(20)
    assert symbolic.below(1000) == seeded.below(1000)
    assert symbolic.sample(range(20), 7) == seeded.sample(range(20), 7)


def test_symbolic_entropy_makes_fresh_unknowns_of_secret_vectors():
    entropy = SymbolicEntropy("p0", 1, b"seed")
    one, two = entropy.secret_vector("noise", 3), entropy.secret_vector("noise", 3)
    unknowns = [unknown for form in (*one, *two) for unknown in form.terms]
    assert len(set(unknowns)) == 6, "no two draws are the same unknown"
    assert all(isinstance(form, Form) and list(form.terms.values()) == [1] for form in one)
    assert all("noise" in unknown for unknown in unknowns)
    for other in (SymbolicEntropy("p1", 1, b"seed"), SymbolicEntropy("p0", 2, b"seed")):
        assert not set(unknowns) & {unknown for form in other.secret_vector("noise", 3) for unknown in form.terms}
    again = SymbolicEntropy("p0", 1, b"seed").secret_vector("noise", 3)
    assert [form.terms for form in again] == [form.terms for form in one], "a round that is said again draws the same"


@pytest.mark.parametrize("name", ["input", "plain", "mask", "ratio"])
def test_what_is_drawn_is_never_taken_for_what_is_brought_or_for_a_mask(name):
    for form in SymbolicEntropy("p0", 1, b"seed").secret_vector(name, 2):
        assert [unknown[0] for unknown in form.terms] == [f"drawn {name}"]


def test_symbolic_draws_leave_the_stream_where_real_ones_of_any_length_do():
    symbolic, real = SymbolicEntropy("p0", 1, b"seed"), SeededEntropy(b"seed")
    symbolic.secret_vector("noise", 1)
    real.secret_vector("noise", 100)
    assert symbolic.bytes(8) == real.bytes(8)
    symbolic.secret_number("y0", lambda entropy: entropy.unit() + entropy.unit())
    real.secret_number("y0", lambda entropy: entropy.unit() + entropy.unit())
    assert symbolic.bytes(8) == real.bytes(8)


def test_a_stream_apart_is_another_and_leaves_this_one_as_it_is():
    one, two = SeededEntropy(3, "p0"), SeededEntropy(3, "p0")
    secrets = one.substream("secrets")
    assert secrets.bytes(8) == two.substream("secrets").bytes(8)
    assert secrets.bytes(8) != one.substream("other").bytes(8)
    assert one.bytes(8) == two.bytes(8)
