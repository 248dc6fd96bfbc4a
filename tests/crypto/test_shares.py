import json
import runpy
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.paths import TESTS
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import WireError
from tacit.crypto import shares
from tacit.crypto.shares import MAX_HOLDER, PRIME, SHARE_BYTES, combine, split

FOLDER = TESTS / "crypto" / "vectors"
VECTORS = json.loads((FOLDER / "shamir.json").read_text())
SECRET = bytes(range(200, 232))


def cases(kind):
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def parsed(case):
    return {int(x): bytes.fromhex(share) for x, share in case["shares"].items()}


def draw(seed=0):
    return SeededEntropy("shares", seed).bytes


def split_case(case):
    secret, random = bytes.fromhex(case["secret"]), bytes.fromhex(case["random"])
    return split(secret, case["threshold"], case["holders"], lambda _: random)


def test_prime_is_the_one_the_vectors_found():
    assert int(VECTORS["prime"]) == PRIME


def test_vectors_are_what_their_script_writes():
    assert runpy.run_path(str(FOLDER / "write_shamir.py"))["vectors"]() == VECTORS


@cases("split")
def test_split_gives_the_shares_of_the_vectors(case):
    assert split_case(case) == parsed(case)


@cases("split")
def test_combine_gives_the_secret_of_the_vectors(case):
    everything = parsed(case)
    secret, threshold = bytes.fromhex(case["secret"]), case["threshold"]
    assert combine(everything, threshold) == secret
    assert combine(dict(sorted(everything.items())[-threshold:]), threshold) == secret


@cases("bad_split")
def test_bad_settings_are_refused(case):
    with pytest.raises(ValueError, match=r"secret has|threshold must|holders are|random bytes"):
        split_case(case)


@cases("bad_combine")
def test_bad_shares_are_refused(case):
    with pytest.raises(WireError):
        combine(parsed(case), case["threshold"])


@pytest.mark.parametrize(("kind", "least"), [("split", 10), ("bad_split", 11), ("bad_combine", 11)])
def test_every_case_has_a_name_of_its_own(kind, least):
    names = {case["name"] for case in VECTORS[kind]}
    assert len(names) == len(VECTORS[kind]) >= least


def test_every_threshold_of_holders_recovers():
    shared = split(SECRET, 3, [1, 2, 5, 8, MAX_HOLDER], draw())
    for size in (3, 4, 5):
        for some in combinations(shared, size):
            assert combine({x: shared[x] for x in some}, 3) == SECRET


@given(st.data())
@settings(derandomize=True, deadline=None)
def test_any_enough_holders_recover_any_secret(data):
    holders = data.draw(st.lists(st.integers(1, MAX_HOLDER), min_size=1, max_size=40, unique=True))
    threshold = data.draw(st.integers(1, len(holders)))
    secret = data.draw(st.binary(min_size=32, max_size=32))
    shared = split(secret, threshold, holders, draw(data.draw(st.integers(0, 99))))
    assert list(shared) == holders
    assert all(len(share) == SHARE_BYTES for share in shared.values())
    some = data.draw(st.permutations(holders))[: data.draw(st.integers(threshold, len(holders)))]
    assert combine({x: shared[x] for x in some}, threshold) == secret


def through_zero(secret, points):
    """The coefficients c1, c2 of the parabola secret + c1 x + c2 x² through two points, by Cramer's rule."""
    (x1, y1), (x2, y2) = points
    a, b = y1 - secret, y2 - secret
    determinant = pow(x1 * x2 * x2 - x2 * x1 * x1, -1, PRIME)
    return (a * x2 * x2 - b * x1 * x1) * determinant % PRIME, (x1 * b - x2 * a) * determinant % PRIME


@pytest.mark.parametrize("known", list(combinations([1, 2, 3, 4], 2)))
@pytest.mark.parametrize(
    "candidate", [bytes(32), b"\xff" * 32, SECRET, bytes(31) + b"\x01", b"another secret".ljust(32)]
)
def test_one_share_short_every_secret_is_as_likely(known, candidate):
    # For each candidate there is exactly one polynomial (the equations have one solution) that agrees with the shares
    # in hand. We let `split` itself draw that polynomial, and it deals the very same shares.
    shared = split(SECRET, 3, [1, 2, 3, 4], draw())
    points = [(x, int.from_bytes(shared[x])) for x in known]
    c1, c2 = through_zero(int.from_bytes(candidate), points)
    elsewhere = split(candidate, 3, [1, 2, 3, 4], lambda _: c2.to_bytes(48) + c1.to_bytes(48))
    assert all(elsewhere[x] == shared[x] for x in known)
    assert (elsewhere == shared) == (candidate == SECRET)
    missing = next(x for x in shared if x not in known)
    assert combine({**{x: shared[x] for x in known}, missing: elsewhere[missing]}, 3) == candidate


def test_coefficients_fill_the_field():
    tops = [int.from_bytes(split(bytes(32), 2, [1, 2], draw(seed))[1]) * 16 // PRIME for seed in range(800)]
    counts = [tops.count(part) for part in range(16)]  # 50 expected in each sixteenth of the field
    assert min(counts) > 20
    assert max(counts) < 85


def test_the_draws_set_the_shares():
    assert split(SECRET, 2, [1, 2], draw(1)) == split(SECRET, 2, [1, 2], draw(1))
    assert split(SECRET, 2, [1, 2], draw(1)) != split(SECRET, 2, [1, 2], draw(2))


def test_only_the_lowest_shares_are_read():
    shared = split(SECRET, 2, [1, 2, 3], draw())
    assert combine({**shared, 3: b"broken"}, 2) == SECRET
    with pytest.raises(WireError, match="holder 2 has 6 bytes"):
        combine({**shared, 2: b"broken"}, 2)


def test_the_order_in_which_shares_arrive_does_not_matter():
    shared = split(SECRET, 3, [4, 1, 3, 2], draw())
    assert combine(dict(reversed(shared.items())), 3) == combine(shared, 3) == SECRET


@pytest.mark.parametrize("threshold", [0, -1])
def test_a_threshold_below_one_is_our_own_mistake(threshold):
    with pytest.raises(ValueError, match="at least 1"):
        combine({1: bytes(33)}, threshold)


def test_a_changed_or_swapped_share_changes_the_secret():
    shared = split(SECRET, 3, [1, 2, 3], draw())
    changed = {**shared, 2: (int.from_bytes(shared[2]) ^ 1).to_bytes(33)}
    swapped = {**shared, 1: shared[2], 2: shared[1]}
    assert combine(changed, 3) != SECRET
    assert combine(swapped, 3) != SECRET


def test_coefficients_at_zero_are_kept_for_the_next_secret():
    shares._at_zero.cache_clear()
    for seed in range(5):
        combine(split(SECRET, 3, [1, 2, 3, 4], draw(seed)), 3)
    assert (shares._at_zero.cache_info().misses, shares._at_zero.cache_info().hits) == (1, 4)
    assert shares._at_zero.cache_info().maxsize is not None
