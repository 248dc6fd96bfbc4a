"""Gossip: neighbour averaging, full and sparsified."""

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.core.protocol import State
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.protocols.gossip import GOSSIP
from tacit.protocols.shapes.neighbourhood import GraphState
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors import index_sets
from tacit.vectors.sparsify import topk_mask

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


def test_whoever_is_silent_has_no_part_in_the_average():
    """It has one of its own, in which it has a part, and was once counted for that."""
    outcome = tacit.aggregate(VECTORS, "gossip", faults=[tacit.Fault(action="silence", party="p3")])
    assert outcome.contributors == tuple(party for party in PARTIES if party != "p3")
    assert (outcome.missing, outcome.dropped) == ({"p3": "silent"}, {}), "it has an average"
    alone = [tacit.Fault(action="silence", party=party) for party in PARTIES]
    outcome = tacit.aggregate(VECTORS, "gossip", faults=alone)
    assert outcome.contributors == (), "nobody's vector is in an average with others"
    assert all(ending.contributors == (party,) for party, ending in outcome.endings.items())
    assert outcome.missing == dict.fromkeys(PARTIES, "silent")


@pytest.mark.sampled(3)
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


def test_change_is_since_the_last_average():
    """Without an earlier average, in the first round, magnitudes decide; later, the change since that average does."""
    federation = Simulation.of(
        "gossip", PARTIES, D, graph="ring", seed=0, record=True, share=0.25, sparsifier="topk", score="change"
    )
    assert federation.agreement.terms.period == 2
    models, since = {party: vector.astype(np.float32) for party, vector in VECTORS.items()}, None
    rng = np.random.default_rng(0)
    for number in range(1, 5):
        outcome = federation.average({party: Update(model) for party, model in models.items()})
        for party in PARTIES:
            scores = models[party] if since is None else models[party] - since[party]
            chosen = topk_mask(np.abs(scores), 0.25)
            told = {
                message.selection
                for address, message in outcome.transcript.open_messages(party)
                if address.sender == party
            }
            assert told == {index_sets.encode_mask(chosen)}
            if number > 1:
                assert not np.array_equal(chosen, topk_mask(np.abs(models[party]), 0.25))
        since = {party: average.astype(np.float32) for party, average in outcome.average.items()}
        # Most entries do not change at all, and are never taken for those that do.
        steps = rng.normal(0, 0.001, (N, D)) * (rng.random((N, D)) < 0.4)
        models = {party: since[party] + step.astype(np.float32) for party, step in zip(PARTIES, steps, strict=True)}


def test_a_node_that_missed_a_round_goes_by_the_average_that_it_had_last():
    faults = [Fault(action="crash", party="p2", step=0, round=2)]
    options = {"graph": "ring", "share": 0.25, "sparsifier": "topk", "score": "change"}
    federation = Simulation.of("gossip", PARTIES, D, seed=0, faults=faults, **options)
    first = federation.average({party: Update(vector) for party, vector in VECTORS.items()}).average
    states = federation.states
    federation.average({party: Update(vector) for party, vector in first.items()})
    assert federation.states["p2"] == states["p2"]
    assert federation.states["p3"] != states["p3"]
    kept = np.frombuffer(states["p2"].since, dtype="<f4")
    np.testing.assert_array_equal(kept, first["p2"].astype(np.float32))


def test_a_node_keeps_no_model_unless_it_ranks_changes():
    for options in (
        {},
        {"share": 0.5},
        {"share": 0.5, "sparsifier": "topk"},
        {"score": "change", "sparsifier": "topk"},
    ):
        federation = Simulation.of("gossip", PARTIES, D, seed=0, **options)
        federation.average({party: Update(vector) for party, vector in VECTORS.items()})
        assert set(federation.states.values()) == {GraphState()}
        assert GOSSIP.encode_state(GraphState()) == GOSSIP.encode_state(State()), "as in releases before"


def test_a_state_of_another_length_is_refused():
    options = {"share": 0.5, "sparsifier": "topk", "score": "change"}
    federation = Simulation.of("gossip", PARTIES, D, seed=0, **options)
    federation.participants["p1"]._state = GraphState(memoryview(bytes(4 * D + 4)))
    with pytest.raises(tacit.JournalError, match=f"a model takes {4 * D} bytes, not {4 * D + 4}"):
        federation.average({party: Update(vector) for party, vector in VECTORS.items()})


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
        ({"share": 0.5, "score": "change"}, "use sparsifier="),
        ({"share": 0.5, "sparsifier": "topk", "score": "size"}, "score must be"),
    ],
)
def test_bad_settings(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        tacit.aggregate(VECTORS, "gossip", **options)
