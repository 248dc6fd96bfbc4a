"""Random regular graphs: simple, regular, and as likely as any other."""

import networkx as nx
import numpy as np
import pytest
from scipy.stats import chisquare, hypergeom

from tacit.core.errors import ConfigError
from tacit.lab.attacks.regular_graphs import _Multigraphs, regular_graphs

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def graphs():
    """Graphs of the size of paper 004."""
    return regular_graphs(100, 25, 1024, np.random.default_rng(0))


def error(a, b):
    """Returns the standard error of the difference of two means."""
    return np.hypot(a.std() / np.sqrt(len(a)), b.std() / np.sqrt(len(b)))


@pytest.mark.parametrize(("nodes", "degree"), [(5, 2), (6, 4), (8, 3), (9, 6), (20, 7), (100, 25), (300, 4)])
def test_graphs_are_simple_and_regular(nodes, degree):
    drawn = regular_graphs(nodes, degree, 100, np.random.default_rng(1))
    assert drawn.shape == (100, nodes, nodes)
    assert drawn.dtype == bool
    assert (drawn == drawn.transpose(0, 2, 1)).all()
    assert not drawn[:, range(nodes), range(nodes)].any()
    assert (drawn.sum(axis=2) == degree).all()


@pytest.mark.parametrize(("nodes", "degree"), [(6, 5), (6, 6), (7, 3), (4, 1)])
def test_graphs_that_cannot_be_drawn_are_refused(nodes, degree):
    with pytest.raises(ConfigError, match=f"{degree}-regular graphs on {nodes} nodes"):
        regular_graphs(nodes, degree, 1, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("nodes", "degree", "existing", "count"),
    [
        (6, 3, 70, 20_000),  # 10 of them bipartite
        (6, 2, 70, 20_000),  # 10 of them two triangles
        (7, 2, 465, 40_000),
        pytest.param(8, 3, 19_355, 400_000, marks=pytest.mark.slow),
    ],
)
def test_every_graph_is_as_likely_as_any_other(nodes, degree, existing, count):
    """In graphs this small nearly all pairings have bad edges, so a bias of the repair would show most."""
    drawn = regular_graphs(nodes, degree, count, np.random.default_rng(2))
    upper = drawn[:, *np.triu_indices(nodes, 1)]
    _, times = np.unique(upper @ (1 << np.arange(upper.shape[1])), return_counts=True)
    assert len(times) == existing
    assert chisquare(times).pvalue > 0.001


def test_neighbourhoods_overlap_as_in_uniform_graphs(graphs):
    """Two nodes share δ (δ − 1) / (n − 1) neighbours on average in any regular graph; how much it varies, is chance."""

    def overlaps(drawn):
        shared = drawn.astype(np.float32) @ drawn.astype(np.float32)
        return shared[:, *np.triu_indices(100, 1)]

    ours = overlaps(graphs[:256])
    assert ours.mean() == pytest.approx(25 * 24 / 99)
    # Those of networkx are drawn in another way (Steger and Wormald).
    theirs = overlaps(
        np.array(
            [nx.to_numpy_array(nx.random_regular_graph(25, 100, seed=i), range(100), dtype=bool) for i in range(20)]
        )
    )
    a, b = ours.var(axis=1), theirs.var(axis=1)
    assert abs(a.mean() - b.mean()) < 4 * error(a, b) < 0.02 * a.mean()


def test_more_switches_do_not_change_triangles(graphs):
    def triangles(drawn):
        a = drawn.astype(np.float32)
        return ((a @ a) * a).sum(axis=(1, 2)) / 6

    longer = _Multigraphs(100, 25, 256, np.random.default_rng(3))
    for _ in range(3):
        longer.settle()
    longer.copies[:, range(100), range(100)] = 0
    joined = longer.copies.astype(bool)
    a, b = triangles(graphs), triangles(joined | joined.transpose(0, 2, 1))
    assert abs(a.mean() - b.mean()) < 4 * error(a, b) < 0.005 * a.mean()


def test_the_first_nodes_are_as_good_as_random_ones(graphs):
    """How many of the first 15 are next to the first is hypergeometric, as if these were placed at random."""
    next_to_it = graphs[:, 0, 1:15].sum(axis=1)
    expected = hypergeom(99, 14, 25).pmf(range(8)) * len(graphs)
    times = np.bincount(next_to_it, minlength=15)
    last = len(graphs) - expected[:7].sum()
    assert chisquare([*times[:7], times[7:].sum()], [*expected[:7], last]).pvalue > 0.001


def test_same_seed_same_graphs():
    first, again, other = (regular_graphs(20, 5, 10, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
