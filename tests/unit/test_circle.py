import math
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.designs import Circle, secure_degree


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
    with pytest.raises(ConfigError, match="joins nobody"):
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


def meets(n: int, k: int, t: int, c: int, d: int, security: int, failure: int) -> bool:
    spare = 2 * t - (k + 1) - 1
    exposed = n * (tail(spare, n, c, k + 1) + tail(spare // 2, n, c, k // 2)) if spare >= 0 else 1
    stuck = n * (tail(k + 1 - t, n, d, k + 1) + tail(k // 2 - spare // 2 - 1, n, d, k // 2))
    return exposed <= Fraction(1, 2**security) and stuck <= Fraction(1, 2**failure)


@pytest.mark.parametrize(
    ("n", "corrupted", "dropouts", "security", "failure"),
    [
        (100, 0.1, 0.1, 40, 20),
        (60, 0.2, 0.1, 20, 10),
        (160, 0.05, 0.2, 30, 10),
        (80, 0.0, 0.1, 40, 20),
        (50, 0.3, 0.2, 20, 8),
        (108, 13 / 108, 12 / 108, 10, 8),  # 36 works, 38 does not and 40 does
    ],
)
def test_the_degree_is_the_smallest_that_exact_arithmetic_allows(
    n: int, corrupted: float, dropouts: float, security: int, failure: int
) -> None:
    c, d = round(corrupted * n), round(dropouts * n)
    works = [
        (k, t) for k in range(2, n - 1, 2) for t in range(k // 2 + 1, k + 2) if meets(n, k, t, c, d, security, failure)
    ]
    expected = works[0] if works else (n - 1, (n + c) // 2 + 1)
    assert secure_degree(n, corrupted, dropouts, security, failure) == expected


def test_the_degree_grows_like_log_n() -> None:
    degrees = [secure_degree(10**e, 0.05, 0.05)[0] for e in (3, 4, 5, 6)]
    steps = np.diff(degrees)
    assert all(0 < step <= 20 for step in steps)  # a factor of ten costs a constant, and no more each time
    assert all(later <= earlier for earlier, later in pairwise(steps))
    assert degrees[-1] <= 110


def test_more_to_fear_takes_more_neighbours() -> None:
    calm = secure_degree(1000, 0.05, 0.05)[0]
    assert secure_degree(1000, 0.15, 0.05)[0] > calm
    assert secure_degree(1000, 0.05, 0.15)[0] > calm
    assert secure_degree(1000, 0.05, 0.05, security_bits=80)[0] > calm
    assert secure_degree(1000, 0.05, 0.05, failure_bits=40)[0] > calm


def test_without_a_sparse_graph_the_complete_one_is_returned() -> None:
    assert secure_degree(10, 1 / 3, 0.1) == (9, 7)  # 2·7 > 10 + 3, and 7 ≤ 10 − 1
    assert secure_degree(2, 0, 0) == (1, 2)


@pytest.mark.parametrize(("n", "corrupted", "dropouts"), [(100, 0.5, 0.3), (100, 0.2, 0.4), (1, 0, 0), (10, -0.2, 0)])
def test_what_no_graph_can_bear_is_refused(n: int, corrupted: float, dropouts: float) -> None:
    with pytest.raises(ConfigError, match="must stay below"):
        secure_degree(n, corrupted, dropouts)


def test_fractions_that_round_down_lose_no_corrupted_user() -> None:
    assert math.floor(0.29 * 100) == 28
    assert secure_degree(100, 0.29, 0.0) == secure_degree(100, 0.2901, 0.0)
    assert secure_degree(100, 0.29, 0.0) != secure_degree(100, 0.28, 0.0)


def test_on_random_circles_the_promises_hold() -> None:
    # With bounds as loose as these, failures would be seen if the tails were off by much: 1 in 16 a circle at most.
    n, c, d = 200, 20, 20
    k, t = secure_degree(n, c / n, d / n, security_bits=4, failure_bits=4)
    spare, exposed, stuck = 2 * t - (k + 1) - 1, 0, 0
    for trial in range(300):
        circle = Circle(range(n), k, b"circle %d" % trial)
        corrupted, alive = set(range(c)), set(range(d, n))  # the order is what is random
        holders = [set(circle.holders(i)) for i in range(n)]
        most_in_run = k // 2 - circle.weakest(set(range(n)) - corrupted)
        exposed += max(len(each & corrupted) for each in holders) > spare or most_in_run > spare // 2
        stuck += min(len(each & alive) for each in holders) < t or circle.weakest(alive) <= spare // 2
    assert exposed <= 300 / 16
    assert stuck <= 300 / 16
