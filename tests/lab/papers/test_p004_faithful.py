"""CESAR with the messages and the six decimals of paper 004, beside `cesar`."""

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.core.errors import ConfigError
from tacit.designs import graphs
from tacit.lab.papers.p004.faithful import FAITHFUL, keep_six_decimals

NODES, DEGREE, ENTRIES = 10, 3, 200
GRAPH = graphs.regular(NODES, DEGREE, seed=1)
VECTORS = [np.random.default_rng(i).standard_normal(ENTRIES) for i in range(NODES)]
UNEQUAL = nx.Graph([(0, 1), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4)])
TOPK = {"share": 0.4, "sparsifier": "topk"}


def average(protocol, vectors, **options):
    # Whom the graph exposes to several nodes is not the question where averages and bytes are compared.
    return tacit.aggregate(vectors, protocol, graph=GRAPH, seed=3, allow_leaks=True, **options)


@pytest.mark.parametrize("options", [{}, TOPK])
def test_averages_are_those_of_cesar_within_six_decimals(options):
    ours, papers = average("cesar", VECTORS, **options), average(FAITHFUL, keep_six_decimals(VECTORS), **options)
    assert papers.contributors == ours.contributors
    off = [np.abs(ours.average[party] - papers.average[party]).max() for party in ours.average]
    assert 1e-8 < max(off) < 1e-6


def test_what_has_six_decimals_is_summed_exactly():
    vectors = keep_six_decimals(VECTORS)
    found = average(FAITHFUL, vectors)
    for i in range(NODES):
        millionths = sum(np.rint(1e6 * vectors[j]) for j in (i, *GRAPH[i]))
        assert np.array_equal(np.rint(4e6 * found.average[f"p{i}"]), millionths)


@pytest.mark.parametrize("options", [{}, TOPK])
def test_masked_entries_take_the_same_bytes_and_sets_take_more(options):
    ours, papers = (average(each, VECTORS, **options).traffic.by_class() for each in ("cesar", FAITHFUL))
    assert papers["parameters"] == ours["parameters"]
    assert papers["metadata"] > ours["metadata"]
    if not options:
        assert papers["parameters"] == NODES * DEGREE * ENTRIES * 4


def test_one_node_learns_no_vector_and_two_learn_more_than_from_cesar():
    alone = tacit.audit(FAITHFUL, parties=5, coalition_size=1, graph=UNEQUAL)
    assert not any(report.exposed for report in alone)
    # Views {p1, p3, p4} and {p1, p3} are nested, and all have the same weight; those of cesar differ here.
    pair = tacit.audit(FAITHFUL, parties=5, coalition=["p0", "p2"], graph=UNEQUAL)
    assert set(pair.exposed) == {"p4"}
    assert max(pair.errors.values()) < 1e-2
    assert not tacit.audit("cesar", parties=5, coalition=["p0", "p2"], graph=UNEQUAL).exposed


def test_settings_that_the_papers_messages_do_not_have_are_refused():
    with pytest.raises(ConfigError, match="32 bits"):
        tacit.aggregate(VECTORS, FAITHFUL, graph=GRAPH, bits=64)
    with pytest.raises(ConfigError, match="no noise"):
        tacit.aggregate(VECTORS, FAITHFUL, graph=GRAPH, noise=0.1)
