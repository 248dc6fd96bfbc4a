"""Gossip: neighbour averaging, full and sparsified."""

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.drivers.faults import Fault
from tacit.drivers.simulator import Simulation

N, D = 8, 60
PARTIES = tuple(f"p{i}" for i in range(N))
RNG = np.random.default_rng(3)
VECTORS = {party: RNG.normal(size=D) for party in PARTIES}
MEAN = np.mean(list(VECTORS.values()), axis=0)


def test_one_round_mixes_by_metropolis_weights():
    graph = nx.lollipop_graph(5, 3)
    outcome = tacit.aggregate(VECTORS, "gossip", graph=graph, bits=64)
    p = graphs.metropolis(graph)
    for i, party in enumerate(PARTIES):
        expected = VECTORS[party] + sum(p[i, k] * (VECTORS[PARTIES[k]] - VECTORS[party]) for k in graph[i])
        np.testing.assert_allclose(outcome.average[party], expected, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"share": 0.5}, {"share": 0.5, "sparsifier": "topk"}])
def test_rounds_agree(options):
    federation = Simulation.of("gossip", PARTIES, D, graph="ring", bits=64, seed=0, **options)
    vectors = dict(VECTORS)
    for _ in range(200):
        vectors = federation.average({party: Update(vector) for party, vector in vectors.items()}).average
    if "sparsifier" not in options:  # with TopK, entries that are never large are never shared
        assert np.ptp(list(vectors.values()), axis=0).max() < 1e-4
    if not options:
        np.testing.assert_allclose(vectors["p0"], MEAN, atol=1e-6)


def test_names_and_edge_lists():
    edges = [(PARTIES[i], PARTIES[(i + 1) % N]) for i in range(N)]
    by_name = tacit.aggregate(VECTORS, "gossip", graph=edges)
    by_place = tacit.aggregate(VECTORS, "gossip", graph="ring")
    np.testing.assert_array_equal(by_name.average["p3"], by_place.average["p3"])


def test_a_missing_neighbours_weight_stays_at_home():
    out = tacit.aggregate(VECTORS, "gossip", graph="ring", bits=64, faults=[Fault(action="crash", party="p0")])
    expected = VECTORS["p1"] + (VECTORS["p2"] - VECTORS["p1"]) / 3
    np.testing.assert_allclose(out.average["p1"], expected, atol=1e-12)
    assert "p0" not in out.average
    assert "p0" not in out.contributors


def test_sparsified_bytes():
    out = tacit.aggregate({p: np.zeros(10_000) for p in PARTIES}, "gossip", graph="ring", share=0.3)
    classes = out.traffic.by_class()
    assert classes["parameters"] == pytest.approx(0.3 * 4 * 10_000 * 2 * N, rel=0.05)
    assert classes["metadata"] == 32 * 2 * N


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"graph": [(0, 1), (2, 3)]}, "not connected"),
        ({"graph": "hypercube"}, "kinds are"),
        ({"graph": 5}, "a graph is"),
        ({"share": -1}, "share must be"),
    ],
)
def test_bad_settings(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        tacit.aggregate(VECTORS, "gossip", **options)
