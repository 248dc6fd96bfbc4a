"""What neighbours can work out from the serverless protocols, computed from the coroutines that run."""

import networkx as nx
import pytest

import tacit
from tacit.auditing.engine.algebra.linear import RowSpace
from tacit.auditing.engine.views import View
from tacit.auditing.symbolic.forms import Form
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.designs import graphs
from tacit.runtime.simulation.faults import Fault

# The counterexample to Theorem 5 of paper 004: View(k) = {i, j, q}, View(l) = {i, j, q, m}.
I, J, Q, M, K, L = range(6)  # noqa: E741
NESTED = nx.Graph([(K, I), (K, J), (K, Q), (L, I), (L, J), (L, Q), (L, M), (M, I), (M, J)])


def exposed(protocol, parties, coalition, **options):
    """Returns whose vectors a coalition can work out."""
    report = tacit.audit(protocol, parties=parties, coalition=[f"p{i}" for i in coalition], **options)
    return sorted(int(victim[1:]) for victim in report.exposed)


@pytest.mark.parametrize("s", [1, 2])
def test_two_colluding_receivers_with_nested_views_expose_the_difference(s):
    """With s = 2 Theorem 5 promises protection against two colluders; the sums at l and k differ by v_m."""
    # Everybody needs three neighbours for s = 2; the views of k and l stay as they are.
    graph = NESTED if s == 1 else nx.Graph([*NESTED.edges, (M, Q), (I, J), (I, Q)])
    assert exposed("cesar", 6, [K, L], graph=graph, masking=s) == [M]


def test_one_receiver_alone_learns_nobody():
    for k in range(6):
        assert exposed("cesar", 6, [k], graph=NESTED) == []


@pytest.mark.slow
def test_girth_5_protects_against_two_receivers():
    petersen = graphs.regular(10, 3, 5)
    for k in range(10):
        for other in range(k):
            assert exposed("cesar", 10, [k, other], graph=petersen) == []


def test_a_late_model_does_not_single_its_sender_out():
    """p3's masked model reaches p0 after the round was redone without it. Both sums together would give p3 away."""
    graph = graphs.complete(5)
    late = Fault(action="delay", party="p3", to="p0", message="Masked", seconds=45)
    names = tuple(f"p{i}" for i in range(5))
    federation = SymbolicSimulation.of("cesar", names, 1, graph=graph, faults=[late], seed=0)
    outcome = federation.average_unknowns()
    seen = [p.envelope for p in outcome.transcript if "p0" in (p.envelope.address.to, p.envelope.address.sender)]
    kinds = [envelope.address.kind for envelope in seen if envelope.address.sender == "p3"]
    assert "Masked" in kinds, "the late model must be part of what p0 saw"
    assert federation.last.endings["p0"].contributors == ("p0", "p1", "p2", "p4")
    rows = [
        known.vector[0]
        for known in View(federation.world, federation.agreement.session, {"p0"}, dict(enumerate(seen))).vectors
    ]
    inputs = [("input", name, 0) for name in names]
    known = [*rows, Form({("input", "p0", 0): 1})]
    space = RowSpace(known, inputs)
    assert [unknown for unknown in space.list_determined() if unknown[0] == "input"] == [("input", "p0", 0)]
    total, single = Form({inputs[i]: 1 for i in (1, 2, 4)}), Form({inputs[1]: 1})
    assert len(RowSpace([*known, total], inputs).rows) == len(space.rows), "the sum says nothing new"
    assert len(RowSpace([*known, single], inputs).rows) > len(space.rows), "and one of them would"


def test_gossip_shows_neighbours_everything():
    assert exposed("gossip", 6, [0], graph="ring") == [1, 5]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("iterations", "count"), list(enumerate([0, 0, 0, 0, 2, 8, 8, 8], start=1)))
def test_admm_in_nine_peers_one_curious(iterations, count):
    """Theorem III.2 promises 7 safe iterations; the fifth exposes two peers, the sixth everybody."""
    assert len(exposed("admm", 9, [0], group_size=3, iterations=iterations)) == count


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("iterations", "count"), [(5, 0), (6, 14)])
def test_admm_in_fifteen_peers_one_curious(iterations, count):
    assert len(exposed("admm", 15, [0], group_size=3, iterations=iterations)) == count


def test_masked_admm_holds_up_to_the_gap():
    for coalition in ([0], [0, 1], [0, 4], [0, 1, 2], [0, 4, 8]):
        assert exposed("admm", 9, coalition, group_size=3, iterations=4, masked=True) == []


def test_masked_pushsum_shows_only_sums():
    graph = nx.DiGraph([(i, (i + hop) % 6) for i in range(6) for hop in (1, 2, 3)])
    assert exposed("pushsum", 6, [0], graph=graph) == [3, 4, 5]
    assert exposed("pushsum", 6, [0], graph=graph, masked=True) == []
