"""Cost of the matrix accountant: all pairs of 48 parties in rotating groups over 50 rounds."""

from itertools import combinations
from time import process_time

import numpy as np
import pytest

from tacit.privacy import SharedNoise
from tacit.privacy.matrix.accountant import account
from tacit.privacy.matrix.releases import Releases, Row

NOISE = SharedNoise(sigma=6.0, step=1e-9, sensitivity=2.0, entries=1000)


def rotating(parties, group, rounds):
    """Returns the sums of random partitions, round by round."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(1, rounds + 1):
        order = rng.permutation(parties).tolist()
        found.append([Row.sum_of(order[start : start + group], number) for start in range(0, len(order), group)])
    return found


def releases(partitions, coalition):
    trained = {
        (vector.party, number): [total]
        for number, sums in enumerate(partitions, start=1)
        for total in sums
        for vector in total.factors
    }
    members = {party for party, _ in trained if party in coalition}
    seen = [total for sums in partitions for total in sums if any(each.party in members for each in total.factors)]
    return Releases(frozenset(coalition), seen, trained)


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 32, 48])
def test_all_pairs_are_accounted_for_and_their_time_is_printed(size, capsys):
    parties = [f"p{place}" for place in range(size)]
    partitions = rotating(parties, 6 if size != 16 else 4, 50)
    before, worst = process_time(), 0.0
    for pair in combinations(parties, 2):
        shares = account(releases(partitions, pair)).values()
        worst = max(worst, max(shares, key=lambda share: share.leverage).bound(NOISE, 1e-5).epsilon)
    pairs = size * (size - 1) // 2
    with capsys.disabled():
        print(f"\n{pairs} pairs of {size} over 50 rounds: {process_time() - before:.1f} s, ε at most {worst:.2f}")  # noqa: T201
    assert 1.3 < worst < 12.26 / 2
