"""The matrix accountant: closed forms, counterexamples to shortcuts, exact enumerations, and refusals."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.core.suite import Parties
from tacit.privacy import SharedNoise, shared_noise
from tacit.privacy.epsilon_bounds import SPARED, BoundKind, gaussian_epsilon, renyi_epsilon
from tacit.privacy.matrix.accountant import account, noise_of_vector
from tacit.privacy.matrix.releases import BareVector, NoisyVector, Releases, Row
from tacit.protocols import REGISTRY

FINE = SharedNoise(sigma=6.0, step=1e-9, sensitivity=2.0, entries=1000)
"""Noise in steps so fine that discrete noise is as good as Gaussian noise."""
DELTA = 1e-5


def row(*vectors, bare=()):
    return Row({NoisyVector(*vector): 1 for vector in vectors}, frozenset(BareVector(*each) for each in bare))


def leverage(releases, party="v"):
    return account(releases)[party].leverage


def grouped(partitions, coalition):
    """Returns the releases of rounds in which each group adopts its sum, and trains on it."""
    seen, trained = [], {}
    for number, groups in enumerate(partitions, start=1):
        for group in groups:
            total = Row.sum_of(group, number)
            if set(group) & set(coalition):
                seen.append(total)
            trained |= {(party, number): [total] for party in group}
    return Releases(frozenset(coalition), seen, trained)


# --- the two counterexamples -----------------------------------------------------------------------------------------


def test_the_view_alone_is_not_enough_if_a_party_reacts_to_what_others_do_not_see():
    """The coalition sees v + h and later v's next vector, but v trained on its own noisy model, so h's noise is no
    help."""
    first, own, second = row(("v", 1), ("h", 1)), row(("v", 1)), row(("v", 2))
    view_only = Releases(frozenset("c"), [first, second])
    assert leverage(view_only) == pytest.approx(1.5)
    assert leverage(Releases(frozenset("c"), [first, second], {("v", 1): [own]})) == pytest.approx(2)


def test_receptions_without_the_victim_count_too():
    """A row without v tells of the noise of h, behind which v hides: 2/3 and not 1/2."""
    first, other = row(("v", 1), ("h", 1)), row(("h", 1), ("k", 1))
    later = row(("k", 2))
    assert leverage(Releases(frozenset("c"), [first])) == 0.5
    assert leverage(Releases(frozenset("c"), [first, later], {("k", 1): [other]})) == pytest.approx(2 / 3)


def test_what_nobody_passes_on_does_not_count():
    """The same row counts only once a vector that depends on it reaches the coalition."""
    first, other = row(("v", 1), ("h", 1)), row(("h", 1), ("k", 1))
    trained = {("k", 1): [other]}
    assert leverage(Releases(frozenset("c"), [first, row(("k", 1), ("w", 1))], trained)) == 0.5
    through_m = {**trained, ("m", 2): [row(("k", 2), ("w", 2))]}
    assert leverage(Releases(frozenset("c"), [first], through_m)) == 0.5
    assert leverage(Releases(frozenset("c"), [first, row(("m", 3))], through_m)) == pytest.approx(2 / 3)


# --- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 10, 50])
@pytest.mark.parametrize(("size", "colluders"), [(7, 1), (48, 0), (2, 1)])
def test_sums_of_everybody_are_as_private_as_the_noise_of_all_honest_parties(size, colluders, rounds):
    parties = [f"p{place}" for place in range(size)]
    coalition = {"server", *parties[:colluders]}
    sums = [Row.sum_of(parties, number) for number in range(1, rounds + 1)]
    share = account(Releases(frozenset(coalition), sums))[parties[-1]]
    honest = size - colluders
    known = SharedNoise(6.0, 1e-9, 2.0, honest, 1000)
    assert share.leverage == pytest.approx(rounds / honest)
    assert share.rho(FINE) == pytest.approx(rounds * known.rho, rel=1e-9)
    assert share.bound(FINE, DELTA).epsilon == pytest.approx(known.best_epsilon(DELTA, rounds).epsilon, rel=1e-9)
    assert share.bound(FINE, DELTA).kind is BoundKind.GAUSSIAN


@pytest.mark.parametrize("leverage_of", [1.0, 1 / 47, 50.0, 50 / 47])
def test_agrees_with_dp_accounting(leverage_of):
    """Local, central, one round and fifty, to six digits. A thousandth of δ is set apart for discrete noise."""
    dp = pytest.importorskip("dp_accounting")
    size = 1 if leverage_of in (1.0, 50.0) else 47
    rounds = round(leverage_of * size)
    sums = [Row.sum_of([f"p{place}" for place in range(size)], number + 1) for number in range(rounds)]
    found = account(Releases(frozenset("c"), sums))["p0"].bound(FINE, DELTA)
    mu = FINE.sensitivity / FINE.sigma * math.sqrt(leverage_of)
    assert found.epsilon == pytest.approx(dp.get_epsilon_gaussian(1 / mu, DELTA * (1 - SPARED), 1e-12), rel=1e-6)
    assert found.epsilon == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-3)
    rdp = dp.rdp.RdpAccountant()
    rdp.compose(dp.GaussianDpEvent(1 / mu))
    assert renyi_epsilon(mu**2 / 2, DELTA) <= rdp.get_epsilon(DELTA) * (1 + 1e-9)


@pytest.mark.parametrize(("size", "group", "members", "most"), [(16, 4, 1, 6.2), (48, 6, 2, 4.7), (48, 8, 2, 4.0)])
def test_rotating_groups_need_far_less_than_own_noise(size, group, members, most):
    """Own noise gives 12.26, a sum of all 48 gives 1.30: figures of rotating groups lie between."""
    rng = np.random.default_rng(0)
    parties, partitions = [f"p{place}" for place in range(size)], []
    for _ in range(50):
        order = rng.permutation(parties).tolist()
        partitions.append([order[start : start + group] for start in range(0, size, group)])
    coalition = parties[:members]
    worst = max(share.bound(FINE, DELTA).epsilon for share in account(grouped(partitions, coalition)).values())
    assert gaussian_epsilon(FINE.sensitivity / FINE.sigma * math.sqrt(50 / group), DELTA) < worst < most


def test_whole_rings_of_neighbours_show_everything():
    """Each party trains on the sum of its neighbours. All sums together determine all vectors of an odd ring."""
    ring = [f"p{place}" for place in range(7)]
    sums = {(ring[place], 1): [row((ring[place - 1], 1), (ring[(place + 1) % 7], 1))] for place in range(7)}
    later = [row((party, 2)) for party in ring[1:]]
    assert account(Releases(frozenset([ring[0]]), [*sums[ring[0], 1], *later], sums))["p1"].leverage == 2


# --- against the theorem for Gaussian noise and exact enumerations ---------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_is_never_below_the_quadratic_form_of_the_theorem(seed):
    """For Gaussian noise the loss is Σ G δ δ with G the projection onto all rows; the account bounds it for every δ."""
    rng = np.random.default_rng(seed)
    vectors = [NoisyVector(party, number) for number in (1, 2) for party in "vhkl"]
    matrix = rng.integers(-1, 2, (int(rng.integers(1, 7)), len(vectors)))
    rows = [Row({v: int(x) for v, x in zip(vectors, each, strict=True) if x}) for each in matrix if each.any()]
    shares = account(Releases(frozenset("c"), rows))
    basis = np.linalg.svd(matrix)[2][: np.linalg.matrix_rank(matrix)]
    projection = basis.T @ basis
    for party, share in shares.items():
        places = [place for place, vector in enumerate(vectors) if vector.party == party]
        changes = np.array(list(product((-1, 0, 1), repeat=len(places))))
        worst = np.einsum("ki,ij,kj->k", changes, projection[np.ix_(places, places)], changes).max()
        assert share.leverage >= worst - 1e-9


@pytest.mark.parametrize("sigma", [1.0, 2.0])
@pytest.mark.parametrize(
    "rows", [[(1, 1)], [(3, 5)], [(1, 1, 0), (0, 1, 1)], [(1, 1, 1)], [(1, 2, 0), (1, 0, 1)], [(2, 3, 7)]]
)
def test_the_divergence_of_whole_numbers_is_never_above_the_bound(rows, sigma):
    """Every view of up to three parties' discrete noise, counted one by one, for several orders and changes."""
    vectors = [NoisyVector(party, 1) for party in "vhk"[: len(rows[0])]]
    given = [Row({v: x for v, x in zip(vectors, each, strict=True) if x}) for each in rows]
    share = account(Releases(frozenset("c"), given))["v"]
    most = math.ceil(12 * sigma)
    one = np.exp(-(np.arange(-most, most + 1) ** 2) / (2 * sigma**2))
    one /= one.sum()
    noise = np.array(list(product(range(-most, most + 1), repeat=len(vectors))))
    chance = np.prod(one[noise + most], axis=1)
    inner = np.abs(noise).max(axis=1) <= most - 4 * sigma  # Views beyond are not counted, where laws are cut off.
    views = noise @ np.array(rows).T
    for change in (1, 2):
        moved = views + change * np.array(rows)[:, 0]
        names, place = np.unique(np.concatenate((views[inner], moved)), axis=0, return_inverse=True)
        place = place.ravel()
        law = np.bincount(place[: inner.sum()], chance[inner], len(names))
        other = np.bincount(place[inner.sum() :], chance, len(names))
        # The change is a whole number of steps already, so rounding adds nothing to it.
        rho = (change**2 * share.leverage + share.rounds[0].covering) / (2 * sigma**2)
        for order in (1.5, 2.0, 4.0):
            ratios = law[law > 0] ** order * other[law > 0] ** (1 - order)
            assert math.log(ratios.sum()) / (order - 1) <= order * rho + 1e-6


# --- repeated, dropped and recovered noise, and parties that come back -----------------------------------------------


def test_noise_that_is_sent_again_hides_nothing_new_and_costs_nothing_new():
    again = [row(("v", 1), ("h", 1)), row(("v", 1), ("h", 1))]
    assert leverage(Releases(frozenset("c"), again)) == 0.5
    with_fresh = [row(("v", 1), ("h", 1)), row(("v", 1), ("h", 2))]
    assert leverage(Releases(frozenset("c"), with_fresh)) == 1, "the noise of v in round 1 is seen twice"


def test_a_sum_repeated_without_one_party_shows_that_party():
    """After a dropout the rest is summed again with the same vectors: the difference is the one that dropped out."""
    everybody, rest = row(("v", 1), ("h", 1), ("k", 1)), row(("h", 1), ("k", 1))
    assert leverage(Releases(frozenset("c"), [everybody, rest])) == 1
    fresh = row(("h", 1, 2), ("k", 1, 2))
    shares = account(Releases(frozenset("c"), [everybody, fresh]))
    assert (shares["v"].leverage, shares["h"].leverage) == (pytest.approx(1 / 3), pytest.approx(1 / 3 + 1 / 2))


def test_noise_that_a_member_recovers_is_no_cover():
    """A member that learns the noisy vector of h, even rounds later, can subtract it."""
    assert leverage(Releases(frozenset("c"), [row(("v", 1), ("h", 1)), row(("h", 1), ("h", 9))])) == pytest.approx(1)
    assert leverage(Releases(frozenset("ch"), [row(("v", 1), ("h", 1))])) == 1


def test_a_party_that_comes_back_is_charged_for_its_rounds_only():
    sums = [row(("v", 1), ("h", 1)), row(("h", 2), ("k", 2)), row(("v", 3), ("h", 3))]
    shares = account(Releases(frozenset("c"), sums))
    assert (shares["v"].leverage, shares["h"].leverage) == (1, 1.5)
    assert [each.round for each in shares["v"].rounds] == [1, 3]


def test_several_vectors_of_one_party_in_one_sum_move_it_by_as_much_more():
    twice = row(("v", 1, 1), ("v", 1, 2), ("h", 1))
    share = account(Releases(frozenset("c"), [twice]))["v"]
    assert share.leverage == pytest.approx(4 / 3)
    assert share.rounds[0].sums is None


def test_vectors_of_different_fractions_do_not_hide_each_other_equally():
    half, third = NoisyVector("v", 1, 1, 1 / 2), NoisyVector("h", 1, 1, 1 / 3)
    shares = account(Releases(frozenset("c"), [Row({half: 1, third: 1})]))
    assert shares["v"].leverage == pytest.approx((1 / 4) / (1 / 4 + 1 / 9))
    assert shares["h"].leverage == pytest.approx((1 / 9) / (1 / 4 + 1 / 9))


# --- never an ε that is not proved -----------------------------------------------------------------------------------


def test_a_vector_without_noise_leaves_its_party_without_a_bound():
    bare = row(("h", 1), bare=[("v", 1)])
    shares = account(Releases(frozenset("c"), [bare]))
    assert shares["v"].bound(FINE, DELTA) == (math.inf, BoundKind.UNBOUNDED)
    assert shares["v"].rho(FINE) == math.inf
    assert math.isfinite(shares["h"].bound(FINE, DELTA).epsilon)


def test_only_what_others_learn_without_noise_counts():
    """A node that keeps its own vector as it is learns nothing new. Its neighbour must not train on it."""
    kept, later = row(("h", 1), bare=[("v", 1)]), [row(("v", 2), ("h", 2)), row(("h", 3))]
    assert not account(Releases(frozenset("c"), later, {("v", 1): [kept]}))["v"].bare
    assert account(Releases(frozenset("c"), later, {("h", 1): [kept]}))["v"].bare
    unused = {("m", 1): [kept]}
    assert not account(Releases(frozenset("c"), later, unused))["v"].bare


def test_values_that_were_rounded_on_the_way_count_as_seen_alone():
    """Then rows are no whole-number combinations, and the noise of others is not proved to hide anything."""
    releases = Releases(frozenset("c"), [row(("v", 1), ("h", 1))])
    assert account(releases, linear=False)["v"].leverage == 1


def test_coarse_noise_has_no_bound():
    coarse = SharedNoise(sigma=0.4, step=1.0, sensitivity=2.0)
    assert account(Releases(frozenset("c"), [row(("v", 1), ("h", 1))]))["v"].bound(coarse, DELTA).epsilon == math.inf


def terms_of(**options):
    settings = REGISTRY["secagg"].settings_from({"noise": 1.0, "norm": 1.0, "allow_leaks": True, **options})
    return settings.bind(Parties("abcdefgh"))


@pytest.mark.parametrize(
    ("options", "given", "reason"),
    [
        ({"noise": 0.0}, {}, "no noise"),
        ({"norm": None}, {}, "not bounded"),
        ({}, {"delta": 0.0}, "delta"),
        ({}, {"delta": 1.0}, "delta"),
        ({"bits": 16}, {}, "rounding"),
    ],
)
def test_refuses_what_it_cannot_prove(options, given, reason):
    with pytest.raises(ConfigError, match=reason):
        noise_of_vector(terms_of(**options), 100_000, **given)


def test_the_noise_of_one_vector_is_that_of_the_settings():
    terms = terms_of()
    assert noise_of_vector(terms, 1000) == shared_noise(terms, 1000, honest=1)


def test_a_square_and_its_columns_show_what_can_be_counted_by_hand():
    """Two members of one row isolate its third in round 1. Those of one column isolate theirs in round 2, whose row
    of three was trained on before."""
    square = [[f"p{3 * i + j}" for j in range(3)] for i in range(3)]
    columns = [list(each) for each in zip(*square, strict=True)]
    for pair in combinations([party for line in square for party in line], 2):
        worst = max(each.leverage for each in account(grouped([square, columns], pair)).values())
        in_one_column = any(set(pair) <= set(column) for column in columns)
        assert worst == pytest.approx(4 / 3 if in_one_column else 1)
