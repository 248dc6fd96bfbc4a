import math
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.designs import Circle, secure_degree
from tacit.designs.circle import SAMPLE, two_thirds

pytestmark = pytest.mark.long


def graph(circle: Circle, members: list[int]) -> nx.Graph:
    return nx.Graph((i, j) for i in members for j in circle.neighbours(i))


def around(circle: Circle, members: list[int], start: int) -> list[int]:
    """The members in circle order, found again from the neighbourhoods alone (degree 2)."""
    order = [start, circle.neighbours(start)[0]]
    while len(order) < len(members):
        order.append(next(i for i in circle.neighbours(order[-1]) if i != order[-2]))
    return order


def test_the_order_is_pinned() -> None:
    # Every client must compute the same circle, whatever its NumPy: these literals must never change.
    circle = Circle([3, 5, 8, 13, 21, 34], 2, b"tacit")
    assert around(circle, [3, 5, 8, 13, 21, 34], 3) == [3, 5, 21, 34, 8, 13]


def test_the_order_depends_on_the_set_of_members_and_the_seed_only() -> None:
    members = list(range(0, 60, 2))
    first = Circle(members, 6, b"seed")
    again = Circle(members[::-1], 6, b"seed")
    other = Circle(members, 6, b"tree")
    assert [first.neighbours(i) for i in members] == [again.neighbours(i) for i in members]
    assert [first.neighbours(i) for i in members] != [other.neighbours(i) for i in members]


@pytest.mark.parametrize(("n", "degree"), [(5, 2), (10, 4), (11, 9), (12, 10), (100, 7), (1000, 60)])
def test_the_graph_is_regular_symmetric_and_connected(n: int, degree: int) -> None:
    members = [3 * i + 1 for i in range(n)]
    circle = Circle(members, degree, b"x")
    joined = graph(circle, members)
    assert circle.degree == degree + degree % 2
    assert not circle.complete or circle.degree == n - 1
    assert set(joined) == set(members)
    assert {d for _, d in joined.degree} == {circle.degree}
    assert all(i in circle.neighbours(j) for i in members for j in circle.neighbours(i))
    assert nx.is_connected(joined)


def test_holders_are_the_closed_neighbourhood() -> None:
    circle = Circle(range(50), 8, b"x")
    for i in range(50):
        assert circle.holders(i) == sorted([*circle.neighbours(i), i])
        assert i not in circle.neighbours(i)
    with pytest.raises(KeyError):
        circle.neighbours(50)


@pytest.mark.parametrize("degree", [None, 9, 10, 99])
def test_a_large_degree_means_the_complete_graph(degree: int | None) -> None:
    circle = Circle(range(10), degree, b"x")
    assert circle.complete
    assert circle.degree == 9
    assert circle.neighbours(4) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert circle.weakest([1, 2, 3]) == 3


def test_small_circles() -> None:
    assert Circle([], None, b"x").degree == 0
    assert Circle([7], None, b"x").neighbours(7) == []
    assert Circle([7, 9], 2, b"x").neighbours(7) == [9]


@pytest.mark.parametrize("degree", [0, -2])
def test_a_degree_that_joins_nobody_is_refused(degree: int) -> None:
    with pytest.raises(ConfigError, match="is not connected"):
        Circle(range(10), degree, b"x")


def test_weakest_counts_as_a_slow_loop_does() -> None:
    members = list(range(30))
    order = around(Circle(members, 2, b"x"), members, 0)
    generator = np.random.default_rng(1)
    for degree in (2, 4, 10, 28):
        circle = Circle(members, degree, b"x")
        for chance in (0.2, 0.5, 0.9, 1.0):
            chosen = {i for i in members if generator.random() < chance}
            runs = [{order[(i + j) % 30] for j in range(degree // 2)} for i in range(30)]
            assert circle.weakest(chosen) == min(len(run & chosen) for run in runs)


def test_a_missing_run_is_seen_wherever_it_lies() -> None:
    members = list(range(30))
    order = around(Circle(members, 2, b"x"), members, 0)
    circle = Circle(members, 10, b"x")
    for start in range(30):
        run = {order[(start + j) % 30] for j in range(5)}
        assert circle.weakest(set(members) - run) == 0
        assert circle.weakest(run) == 0
        assert circle.weakest(set(members) - run | {order[start]}) == 1


def test_strangers_do_not_make_a_run_look_stronger() -> None:
    circle = Circle(range(20), 4, b"x")
    assert circle.weakest([*range(20), 100, 101]) == 2
    assert circle.weakest([100, 101]) == 0


def test_a_weakest_above_the_corrupted_keeps_the_honest_together_and_less_does_not() -> None:
    members = list(range(60))
    circle = Circle(members, 12, b"x")
    generator = np.random.default_rng(2)
    joined = graph(circle, members)
    safe = 0
    for _ in range(600):
        chosen = {int(i) for i in members if generator.random() < 0.75}
        corrupted = set(generator.choice(60, size=8, replace=False).tolist())
        honest = chosen - corrupted
        most_corrupted = 6 - circle.weakest(set(members) - corrupted)
        if circle.weakest(chosen) > most_corrupted:
            safe += 1
            assert nx.is_connected(joined.subgraph(honest))
    # Two gaps of degree/2 places cut an arc off, and weakest sees it.
    order = around(Circle(members, 2, b"x"), members, 0)
    arcs = set(order[6:30]) | set(order[36:])
    assert safe > 20
    assert circle.weakest(arcs) == 0
    assert nx.number_connected_components(joined.subgraph(arcs)) == 2


def tail(above: int, n: int, marked: int, drawn: int) -> Fraction:
    """The chance to draw more than `above` marked ones, in whole numbers."""
    ways = sum(
        math.comb(marked, i) * math.comb(n - marked, drawn - i) for i in range(above + 1, min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(n, drawn))


def fooled(users: int, c: int) -> Fraction:
    """Probability that all 40 sampled consents, of those that a circle of users shows, are for the same set.

    It is the set that few users signed: of two sets, one has at most half of the honest users and all corrupted ones.
    """
    shown = math.floor(Fraction(2 * users, 3)) + 1
    signed, looked = min(math.floor(Fraction(users - c, 2)) + c, shown), min(40, shown)
    return Fraction(math.comb(signed, looked), math.comb(shown, looked))


def more_than(above: int, tries: int, chance: Fraction) -> Fraction:
    """Probability that more than `above` of some independent trials succeed."""
    yes, all_ = chance.numerator, chance.denominator
    ways = sum(math.comb(tries, i) * yes**i * (all_ - yes) ** (tries - i) for i in range(above + 1, tries + 1))
    return Fraction(ways, all_**tries)


def split(users: int, k: int, t: int, c: int) -> Fraction:
    """Probability that a place on a circle has too many corrupted users around it."""
    spare = 2 * t - (k + 1) - 1
    return tail(spare, users, c, k + 1) + tail(spare // 2, users, c, k // 2) if spare >= 0 else Fraction(1)


def deceived(users: int, k: int, t: int, c: int) -> Fraction:
    """The chance that as many holders are fooled as are missing at t, if 2t − (k+1) − 1 of them are corrupted."""
    return more_than(t - (2 * t - (k + 1) - 1) - 1, k + 1, fooled(users, c))


def stuck(n: int, k: int, t: int, d: int) -> Fraction:
    """The chance that one place has lost too many."""
    spare = 2 * t - (k + 1) - 1
    return tail(k + 1 - t, n, d, k + 1) + tail(k // 2 - spare // 2 - 1, n, d, k // 2)


def sizes(n: int) -> range:
    """Numbers of users that the server may admit: from more than two thirds of them to all."""
    return range(math.floor(Fraction(2 * n, 3)) + 1, n + 1)


def meets(n: int, k: int, t: int, c: int, d: int, security: int, failure: int) -> bool:
    """Whether a degree and a threshold do for every circle there may be; half of the risk is for each way to lose."""
    half, worst = Fraction(1, 2 * n * 2**security), max(sizes(n), key=lambda users: fooled(users, c))
    return (
        stuck(n, k, t, d) <= Fraction(1, n * 2**failure)
        and split(sizes(n)[0], k, t, c) <= half
        and deceived(worst, k, t, c) <= half
    )


@pytest.mark.parametrize(
    ("n", "c", "d", "security", "failure"),
    [
        (100, 10, 10, 40, 20),
        (60, 12, 6, 20, 10),
        (160, 8, 32, 30, 10),
        (80, 0, 8, 40, 20),
        (100, 5, 5, 80, 20),
        (150, 15, 7, 80, 20),
        (50, 15, 10, 20, 8),  # no sparse graph works
        (108, 13, 12, 10, 8),  # all users would make do with 40, and two thirds of them need 44
        (120, 12, 12, 20, 8),
        (119, 18, 2, 20, 5),  # 30 but for what users look at
        (200, 40, 20, 20, 10),  # 92 but for what users look at, of whom too many are fooled in any sparse graph
        (60, 0, 19, 10, 8),  # 41 are left to show what 41 must show,
        (60, 0, 20, 10, 8),  # and here 40 are
        (40, 27, 2, 10, 4),  # 27 may take part, and all of them are corrupted
    ],
)
def test_the_degree_is_the_smallest_that_exact_arithmetic_allows(
    n: int, c: int, d: int, security: int, failure: int
) -> None:
    fewest = sizes(n)[0]
    works = [
        (k, t)
        for k in range(2, fewest - 1, 2)
        for t in range(k // 2 + 1, k + 2)
        if fewest <= n - d and c < fewest and meets(n, k, t, c, d, security, failure)
    ]
    expected = works[0] if works else (n - 1, (n + c) // 2 + 1)
    assert secure_degree(n, c / n, d / n, security, failure) == expected


def test_a_lying_server_is_to_be_wrong_with_eighty_bits() -> None:
    assert secure_degree(500, 0.05, 0.05) == secure_degree(500, 0.05, 0.05, security_bits=80, failure_bits=20)


@pytest.mark.parametrize(("n", "c", "d"), [(100, 5, 0), (90, 18, 9), (150, 15, 7), (250, 25, 12), (400, 60, 20)])
def test_no_circle_that_the_server_may_ask_for_is_weaker_than_promised(n: int, c: int, d: int) -> None:
    """A few more than two thirds may be worse: less of their consents is looked at, and halves and thirds round."""
    k, t = secure_degree(n, c / n, d / n)
    if k < n - 1:  # in a complete graph everybody looks at everything
        risks = {users: users * (split(users, k, t, c) + deceived(users, k, t, c)) for users in sizes(n)}
        worst = max(risks, key=lambda users: risks[users])
        assert risks[worst] <= Fraction(1, 2**80), f"{worst} users: 2^{math.log2(risks[worst]):.1f}"


def test_more_users_dilute_the_corrupted_ones() -> None:
    """So of all circles the smallest has to be looked at for them, and no other."""
    for n, c, k, t in ((100, 10, 42, 25), (60, 6, 20, 13), (90, 20, 30, 21)):
        chances = [split(users, k, t, c) for users in sizes(n)]
        assert chances == sorted(chances, reverse=True)
        assert chances[0] > 2 * chances[-1] > 0


@pytest.mark.slow
def test_the_degree_grows_like_log_n() -> None:
    degrees = [secure_degree(10**e, 0.05, 0.05)[0] for e in (4, 5, 6, 7)]
    steps = np.diff(degrees)
    assert secure_degree(1000, 0.05, 0.05)[0] < degrees[0]
    assert all(0 < step <= 15 for step in steps)  # a factor of ten costs a constant, and no more each time
    assert all(later <= earlier for earlier, later in pairwise(steps))
    assert degrees[-1] <= 170


def test_more_to_fear_takes_more_neighbours() -> None:
    calm = secure_degree(1000, 0.05, 0.05)[0]
    assert secure_degree(1000, 0.15, 0.05)[0] > calm
    assert secure_degree(1000, 0.05, 0.15)[0] > calm
    assert secure_degree(1000, 0.05, 0.05, security_bits=120)[0] > calm
    assert secure_degree(1000, 0.05, 0.05, security_bits=40)[0] < calm
    assert secure_degree(1000, 0.05, 0.05, failure_bits=40)[0] > calm


@pytest.mark.parametrize(("users", "more"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (9, 7), (100, 67)])
def test_two_thirds_are_more_than_two_thirds(users: int, more: int) -> None:
    assert two_thirds(users) == more
    assert 3 * (more - 1) <= 2 * users < 3 * more


def test_without_a_sparse_graph_the_complete_one_is_returned() -> None:
    assert secure_degree(10, 1 / 3, 0.1) == (9, 7)  # 2·7 > 10 + 3, and 7 ≤ 10 − 1
    assert secure_degree(1000, 0.02, 0.4) == (999, 511)  # 600 are left, and 667 must be shown to agree
    assert secure_degree(2, 0, 0) == (1, 2)


@pytest.mark.parametrize(("n", "corrupted", "dropouts"), [(100, 0.5, 0.3), (100, 0.2, 0.4), (1, 0, 0), (10, -0.2, 0)])
def test_what_no_graph_can_bear_is_refused(n: int, corrupted: float, dropouts: float) -> None:
    with pytest.raises(ConfigError, match="must stay below"):
        secure_degree(n, corrupted, dropouts)


def test_fractions_that_round_down_lose_no_corrupted_user() -> None:
    assert math.floor(0.072 * 750) == 53
    assert secure_degree(750, 0.072, 0.05) == secure_degree(750, 54 / 750, 0.05) == secure_degree(750, 0.0721, 0.05)
    assert secure_degree(750, 0.072, 0.05) != secure_degree(750, 53 / 750, 0.05)


def test_on_random_circles_the_promises_hold() -> None:
    # With bounds as loose as these, failures would be seen if the tails were off by much: 1 in 16 a circle at most.
    n, c, d = 200, 20, 20
    k, t = secure_degree(n, c / n, d / n, security_bits=4, failure_bits=4)
    spare, exposed, stuck = 2 * t - (k + 1) - 1, 0, 0
    for trial in range(300):
        few, all_ = (Circle(range(users), k, b"circle %d" % trial) for users in (two_thirds(n), n))
        corrupted, alive = set(range(c)), set(range(d, n))  # the order is what is random
        most_in_run = k // 2 - few.weakest(set(range(c, two_thirds(n))))
        most_held = max(len(corrupted.intersection(few.holders(i))) for i in range(two_thirds(n)))
        exposed += most_held > spare or most_in_run > spare // 2
        stuck += min(len(alive.intersection(all_.holders(i))) for i in range(n)) < t
        stuck += all_.weakest(alive) <= spare // 2
    assert exposed <= 300 / 16
    assert stuck <= 300 / 16


def test_on_random_circles_few_are_fooled_by_the_consents_they_look_at() -> None:
    """Here every twentieth user is, and it takes nine next to each other where 24 of 33 may be corrupted."""
    n, c = 200, 36
    k, t = secure_degree(n, c / n, 0.05, security_bits=4, failure_bits=4)
    generator, users = np.random.default_rng(3), 136  # the worst number, by the exact arithmetic above
    shown, signed = two_thirds(users), (users + c) // 2
    assert users == max(sizes(n), key=lambda users: fooled(users, c))
    fooled_ones, lost = 0, 0
    for trial in range(300):
        circle = Circle(range(users), k, b"circle %d" % trial)
        seen = generator.hypergeometric(signed, shown - signed, SAMPLE, size=users)
        blind = set(np.flatnonzero(seen == SAMPLE).tolist())
        fooled_ones += len(blind)
        lost += max(len(blind.intersection(circle.holders(i))) for i in range(users)) > k + 1 - t
    assert fooled_ones / 300 / users == pytest.approx(float(fooled(users, c)), rel=0.1)
    assert lost <= 300 / 16
