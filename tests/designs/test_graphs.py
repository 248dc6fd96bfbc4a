"""Graphs: families, girth, weights, and valid settings."""

import networkx as nx
import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.core.suite import Parties
from tacit.designs import graphs

NAMES = Parties(("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("n", "degree", "girth"), [(10, 3, 5), (48, 6, 3), (48, 3, 5), (30, 3, 7), (48, 4, 5), (13, 4, 3)]
)
def test_regular_graphs_have_their_degree_and_girth(n, degree, girth):
    graph = graphs.regular(n, degree, girth, seed=1)
    assert set(dict(graph.degree).values()) == {degree}
    assert nx.girth(graph) >= girth
    assert nx.is_connected(graph)


def test_regular_graphs_follow_from_their_seed():
    assert nx.utils.graphs_equal(graphs.regular(20, 4, seed=1), graphs.regular(20, 4, seed=1))
    assert not nx.utils.graphs_equal(graphs.regular(20, 4, seed=1), graphs.regular(20, 4, seed=2))


@pytest.mark.parametrize(("n", "degree", "girth"), [(5, 3, 3), (4, 4, 3), (9, 3, 5), (8, 3, 6), (10, 1, 3)])
def test_impossible_regular_graphs_say_what_would_work(n, degree, girth):
    with pytest.raises(ConfigError, match="it takes a degree of 2 or more and at least"):
        graphs.regular(n, degree, girth)


def test_petersen_is_the_smallest_of_its_kind():
    assert nx.is_isomorphic(graphs.regular(10, 3, 5), nx.petersen_graph())


def test_exponential_graph():
    graph = graphs.exponential(8)
    assert sorted(graph.successors(0)) == [1, 2, 4]
    assert nx.is_strongly_connected(graph)
    assert sorted(graphs.exponential(6).successors(4)) == [0, 2, 5]


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_directed_graphs_are_strongly_connected(degree):
    graph = graphs.random_directed(9, degree, seed=degree)
    assert nx.is_strongly_connected(graph)
    assert {graph.out_degree(i) for i in graph} == {degree}
    with pytest.raises(ConfigError, match="1 to 8 others"):
        graphs.random_directed(9, 9)


def test_metropolis_weights_are_doubly_stochastic():
    graph = nx.barbell_graph(4, 2)
    matrix = np.zeros((10, 10))
    for (i, j), weight in graphs.metropolis(graph).items():
        matrix[i, j] = weight
    np.testing.assert_array_equal(matrix, matrix.T)
    rest = 1 - matrix.sum(axis=1)
    assert (rest > 0).all()
    assert set(graphs.metropolis(nx.cycle_graph(5)).values()) == {1 / 3}


def test_column_stochastic_weights():
    graph = graphs.random_directed(6, 2)
    for kept in (None, [0.3] * 6):
        weights = graphs.column_stochastic(graph, kept)
        for i in range(6):
            assert sum(weight for (_, sender), weight in weights.items() if sender == i) == pytest.approx(1.0)
    assert weights[3, 3] == 0.3


@pytest.mark.parametrize(
    "setting",
    [
        "ring",
        {"kind": "ring"},
        nx.cycle_graph(4),
        [(0, 1), (1, 2), (2, 3), (3, 0)],
        [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
        nx.Graph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "a")]),
    ],
)
def test_settings_that_all_mean_the_ring(setting):
    graph = graphs.graph_from(setting).draw(NAMES)
    assert [sorted(graph[i]) for i in range(4)] == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert graphs.connection_problems(graph) == []


def test_disconnected_graphs_are_named():
    graph = graphs.graph_from([(0, 1), (2, 3)]).draw(NAMES)
    assert "falls into 2 parts, one of them [0, 1]" in graphs.connection_problems(graph)[0]
    assert "not strongly connected" in graphs.connection_problems(nx.DiGraph([(0, 1)]))[0]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("star", "kinds are complete, ring"),
        ({"kind": "regular"}, "no such graph"),
        ({"kind": "regular", "degree": 2, "colour": 1}, "no such graph"),
        ([(0, 7)], "not parties: 7"),
        ([("a", "x")], "not parties: x"),
        (7, "a graph is a networkx graph"),
        ([1, 2, 3], "a graph is a networkx graph"),
    ],
)
def test_settings_that_mean_nothing(setting, complaint):
    with pytest.raises(ConfigError, match=complaint):
        graphs.graph_from(setting).draw(NAMES)
