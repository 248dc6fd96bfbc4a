"""Colluding receivers of CESAR: the graphs drawn, who is at risk in them, and that the deployed protocol agrees."""

from itertools import product

import networkx as nx
import numpy as np
import pytest
from scipy.stats import binomtest

import tacit
from tacit.auditing.engine.algebra.linear import RowSpace
from tacit.auditing.engine.patterns.entry_patterns import find_determined
from tacit.auditing.engine.views import View
from tacit.auditing.symbolic.forms import Form
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.errors import ConfigError
from tacit.core.suite import Update
from tacit.lab.attacks import collusion
from tacit.lab.attacks.collusion import find_exposed, one_receiver, two_receivers
from tacit.lab.attacks.regular_graphs import regular_graphs
from tacit.runtime.simulation.simulator import Simulation

pytestmark = pytest.mark.long

PAPER = 0.0145  # 15 adversaries, s = 9, in 250 000 graphs


@pytest.fixture(scope="module")
def graphs():
    """Graphs of the paper's size."""
    return regular_graphs(100, 25, 1024, np.random.default_rng(0))


def matrices(*graphs):
    """Returns networkx graphs on 0, 1, 2, … as they are drawn here."""
    return np.array([nx.to_numpy_array(graph, nodelist=range(len(graph)), dtype=bool) for graph in graphs])


# --- the paper's count ---------------------------------------------------------------------------------------------


def test_the_paper_counts_adversaries_next_to_one():
    """In the ring 0 1 2 3 4 5, with 0, 1 and 2 colluding, node 1 has two adversarial neighbours but no honest one."""
    ring = matrices(nx.cycle_graph(6))
    assert one_receiver(ring, 3).tolist() == [1]
    assert one_receiver(ring, 1).tolist() == [0]
    # In the complete graph on 6 nodes every adversary has the others next to it.
    assert one_receiver(matrices(nx.complete_graph(6)), 4).tolist() == [3]


def test_the_paper_counts_graphs_with_at_least_s():
    """1.45 % in 250 000 graphs agrees with what this count is at most, and with no other reading."""

    def agrees(risk):
        return binomtest(round(PAPER * 250_000), 250_000, risk).pvalue > 0.05

    assert agrees(collusion.paper_bound(100, 25, 15, 9))
    assert not agrees(collusion.paper_bound(100, 25, 15, 10)), "more than s"
    assert 250_000 * collusion.paper_bound(100, 25, 15, 13) < 0.05, "none at s = 13"


def test_the_bound_holds_and_is_close_where_it_is_small():
    at_risk = collusion.tally((one_receiver,), 40, 9, (8,), 6_000, seed=1)[0, 0]
    for s in range(1, 8):
        bound = collusion.paper_bound(40, 9, 8, s)
        assert binomtest(int(at_risk[s]), 6_000, min(bound, 1), alternative="greater").pvalue > 0.001
        if bound < 0.1:
            assert binomtest(int(at_risk[s]), 6_000, bound * 0.85, alternative="less").pvalue > 0.001
    assert 0 < at_risk[5] < 600, "or the above says nothing"


def test_the_paper_s_risk_in_a_few_graphs():
    finding = collusion.compute_figure6((15,), (8,), 1_024)[8][15]
    assert finding.low < collusion.paper_bound(100, 25, 15, 8) < finding.high
    assert finding.broken
    assert finding.samples == 1_024


@pytest.mark.slow
def test_figure_6_at_s_9_and_13():
    risk = collusion.compute_figure6((15,), (9, 13), graphs=60_000, seed=1)
    assert risk[9][15].low < PAPER < risk[9][15].high
    assert risk[9][15].high - risk[9][15].low < 0.002
    assert risk[13][15].value == 0


# --- two receivers -------------------------------------------------------------------------------------------------


def up_to(graph, adversaries, degree):
    """Returns up to which s any index set at all exposes an honest node, by trying all of them."""
    nodes = len(graph)
    sets = np.array(list(product([False, True], repeat=nodes)))
    same = np.broadcast_to(graph, (len(sets), nodes, nodes))
    return max((s for s in range(1, degree) if find_exposed(same, adversaries, s, sets).any()), default=0)


def test_two_adversaries_can_do_just_what_two_receivers_can():
    found = set()
    for nodes, degree in [(8, 3), (8, 4), (9, 4), (8, 5)]:
        drawn = regular_graphs(nodes, degree, 8, np.random.default_rng(degree))
        # s = 0 means that entries go unmasked, and is none of this.
        most = np.minimum(two_receivers(drawn, 2), degree - 1).tolist()
        assert most == [up_to(graph, 2, degree) for graph in drawn]
        found.update(most)
    assert found >= {1, 2, 3}, "or there was nothing to tell apart"


def test_more_adversaries_can_do_no_less():
    drawn = regular_graphs(8, 4, 12, np.random.default_rng(4))
    best = np.array([up_to(graph, 3, 4) for graph in drawn])
    pairs = two_receivers(drawn, 3)
    assert (one_receiver(drawn, 3) <= pairs).all()
    assert (pairs <= best).all()
    assert (one_receiver(drawn, 3) < pairs).any()


def witness(graph, adversaries, masking):
    """Returns the victim and who selects an index, for two receivers to expose it; as their docstring has it."""
    honest = np.arange(len(graph)) >= adversaries
    for k, other in product(range(adversaries), repeat=2):
        selected = graph[k] & graph[other] | ~honest
        more = np.flatnonzero(graph[other] & ~graph[k] & honest)
        if more.size and (selected & graph[k]).sum() > masking and (selected & graph[other]).sum() >= masking:
            selected[more[0]] = True
            return int(more[0]), selected
    return None


def test_every_pair_found_exposes_a_node(graphs):
    """At s = 13 the paper finds no risk, and at s = 15 Theorem 5 says there is none."""
    for s, least in ((13, 60), (15, 3)):
        found = [witness(graph, 15, s) for graph in graphs[:200]]
        assert [each is not None for each in found] == (two_receivers(graphs[:200], 15) >= s).tolist()
        assert sum(each is not None for each in found) >= least
        for graph, each in zip(graphs[:200], found, strict=True):
            if each:
                victim, selected = each
                assert find_exposed(graph[None], 15, s, selected[None])[0, victim - 15]


# --- the linear view -----------------------------------------------------------------------------------------------


def test_elimination_agrees_with_the_audit_s():
    """The audit eliminates modulo a prime of 2203 bits."""
    rng = np.random.default_rng(5)
    exposures = 0
    for rows, unknowns, density in [(3, 4, 0.5), (6, 8, 0.4), (10, 9, 0.3), (12, 20, 0.15), (22, 22, 0.5)]:
        systems = rng.random((8, rows, unknowns)) < density
        for system, determined in zip(systems, find_determined(systems), strict=True):
            forms = [Form({("x", int(i), 0): 1 for i in np.flatnonzero(row)}) for row in system]
            space = RowSpace([form for form in forms if form.terms], [("x", i, 0) for i in range(unknowns)])
            assert np.flatnonzero(determined).tolist() == sorted(unknown[1] for unknown in space.list_determined())
            exposures += int(determined.sum())
    assert 50 < exposures < 400


def test_elimination_finds_the_nested_sums_of_paper_004():
    """i, j, q at k and i, j, q, m at l (FINDINGS 004); and three sums of pairs, where halves are needed."""
    nested = [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    pairs = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]]
    nothing = [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    determined = find_determined(np.array([nested, pairs, nothing], dtype=bool))
    assert determined.tolist() == [[False, False, False, True], [True, True, True, False], [False] * 4]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("batch", range(3))
def test_the_linear_view_is_that_of_the_deployed_protocol(batch):
    """Full index sets, one round: `tacit.audit` runs the protocol on unknowns, and sees just whom we see."""
    rng = np.random.default_rng(batch)
    verdicts = []
    for _ in range(10):
        nodes, degree = [(6, 3), (8, 3), (8, 4), (9, 4), (10, 3)][rng.integers(5)]
        adversaries, masking = int(rng.integers(2, nodes // 2 + 2)), int(rng.integers(1, degree))
        while not nx.is_connected(nx.from_numpy_array(graph := regular_graphs(nodes, degree, 1, rng)[0])):
            pass
        order = rng.permutation(nodes)  # who is who on the roster
        coalition = [f"p{order[i]}" for i in range(adversaries)]
        edges = [(int(order[i]), int(order[j])) for i, j in zip(*np.nonzero(graph), strict=True) if i < j]
        report = tacit.audit("cesar", parties=nodes, coalition=coalition, graph=edges, masking=masking)
        found = np.flatnonzero(find_exposed(graph[None], adversaries, masking)[0]) + adversaries
        assert sorted(report.exposed) == sorted(f"p{order[i]}" for i in found)
        verdicts.append(bool(report.exposed))
    assert set(verdicts) == {False, True}


def deployed(graph, selected, masking, symbolic=False):
    """Returns the deployed protocol on two entries, of which those who select the index send the first.

    TopK sends the larger of the two, so that the index sets are ours to choose.
    """
    parties = tuple(f"p{i}" for i in range(len(graph)))
    edges = np.argwhere(np.triu(graph)).tolist()
    settings = {"graph": edges, "masking": masking, "sparsifier": "topk", "share": 0.5, "bits": 64}
    larger = {("input", party, 0 if selected[i] else 1) for i, party in enumerate(parties)}
    if symbolic:
        value = {"value": lambda unknown: 2.0 if unknown in larger else 1.0}
        return SymbolicSimulation.of("cesar", parties, 2, allow_leaks=True, **value, **settings)
    return Simulation.of("cesar", parties, 2, record=True, allow_leaks=True, seed=0, **settings)


def test_the_linear_view_is_that_of_the_deployed_protocol_for_given_index_sets():
    rng = np.random.default_rng(6)
    verdicts = []
    for nodes, degree, adversaries, masking in [(8, 4, 3, 1), (8, 4, 3, 2), (9, 4, 4, 2), (10, 5, 4, 1), (8, 4, 2, 1)]:
        for graph in regular_graphs(nodes, degree, 3, rng):
            selected = rng.random(nodes) < 0.6
            federation = deployed(graph, selected, masking, symbolic=True)
            members = set(federation.parties[:adversaries])
            passed = [each.envelope for each in federation.average_unknowns().transcript]
            seen = [each for each in passed if {each.address.sender, each.address.to} & members]
            inputs = [("input", party, entry) for party in federation.parties for entry in (0, 1)]
            own = [Form({unknown: 1}) for unknown in inputs if unknown[1] in members]
            space = RowSpace(
                [*View(federation.world, federation.agreement.session, members, dict(enumerate(seen))).forms(), *own],
                inputs,
            )
            ours = np.flatnonzero(find_exposed(graph[None], adversaries, masking, selected[None])[0]) + adversaries
            known = [unknown for unknown in space.list_determined() if unknown[0] == "input" and unknown[2] == 0]
            theirs = {party for _, party, _ in known} - members
            assert theirs == {f"p{i}" for i in ours}
            verdicts.append(bool(theirs))
    assert set(verdicts) == {False, True}


def test_two_receivers_recover_a_model_from_a_real_run():
    """The witness of a pair at work: k and l take their sums off each other and have v_m, at s as large as A."""
    adversaries = masking = 3
    drawn = regular_graphs(14, 7, 64, np.random.default_rng(7))
    graph = next(each for each in drawn if witness(each, adversaries, masking) and one_receiver(each[None], 3)[0] < 3)
    victim, selected = witness(graph, adversaries, masking)
    rng = np.random.default_rng(8)
    v = rng.uniform(0.1, 0.4, size=(14, 2))
    v[np.arange(14), np.where(selected, 0, 1)] += 0.5
    federation = deployed(graph, selected, masking)
    out = federation.average({party: Update(v[i]) for i, party in enumerate(federation.parties)})

    def heard(k):
        """Returns the sum over Sel(k, p), from the average that k gets, without the models of adversaries."""
        sel = graph[k] & selected
        total = 8 * out.average[f"p{k}"][0] - (8 - sel.sum()) * v[k, 0]
        return total - v[:adversaries, 0][sel[:adversaries]].sum()

    differences = [heard(k) - heard(other) for k, other in product(range(adversaries), repeat=2)]
    assert np.abs(np.array(differences) - v[victim, 0]).min() < 1e-9


# --- how often -----------------------------------------------------------------------------------------------------


def test_true_risk_knows_safe_from_broken():
    """Half of the nodes have as many sums as unknowns; a few nodes have few. What is sent is less likely at large s."""
    assert collusion.true_risk(40, 9, 20, 8, 64, 0).value > 0.9
    assert collusion.true_risk(40, 9, 3, 8, 64, 0).value == 0
    few, many = (collusion.true_risk(40, 9, 6, s, 512, 0, share=0.2) for s in (1, 4))
    assert few.low > many.high
    assert few.broken


def test_all_counts_see_the_same_graphs(monkeypatch):
    seen = []
    draw = collusion.regular_graphs
    monkeypatch.setattr(collusion, "regular_graphs", lambda *given: seen.append(draw(*given)) or seen[-1])
    for count in (one_receiver, two_receivers):
        collusion.compute_figure6((4,), (2,), 30, 9, count=count, nodes=20, degree=5)
    collusion.true_risk(20, 5, 4, 2, 30, 9, share=0.5)
    assert len(seen) == 3
    assert (seen[0] == seen[1]).all()
    assert (seen[0] == seen[2]).all()


def test_the_figure_is_the_single_risks_side_by_side():
    told = []
    figure = collusion.compute_figure6(
        (3, 8), range(1, 7), 1_500, 2, lambda *step: told.append(step), nodes=30, degree=7
    )
    assert list(figure) == [1, 2, 3, 4, 5, 6]
    assert all(list(row) == [3, 8] for row in figure.values())
    assert figure[3][8] == collusion.compute_figure6((8,), (3,), 1_500, 2, nodes=30, degree=7)[3][8]
    risk = np.array([[finding.value for finding in row.values()] for row in figure.values()])
    assert (np.diff(risk, axis=0) <= 0).all(), "less with more masks"
    assert (np.diff(risk, axis=1) >= 0).all(), "more with more adversaries"
    assert 0 < risk[3, 1] < risk[0, 1]
    done = [fraction for _, fraction in told]
    assert done == sorted(done)
    assert done[-1] == 1
    pairs = collusion.compute_figure6((8,), (5,), 1_500, 2, count=two_receivers, nodes=30, degree=7)[5][8]
    assert pairs.low > figure[5][8].high


@pytest.mark.parametrize(("adversaries", "masking"), [(0, 2), (20, 2), (3, 0), (3, 5)])
def test_settings_without_a_meaning_are_refused(adversaries, masking):
    for count in (one_receiver, two_receivers):
        with pytest.raises(ConfigError):
            collusion.compute_figure6((adversaries,), (masking,), 10, count=count, nodes=20, degree=5)
    with pytest.raises(ConfigError):
        collusion.true_risk(20, 5, adversaries, masking, 10, 0)


def test_the_attack_wins_where_it_must_and_the_paper_s_count_does_not_see_it():
    told = []
    findings = collusion.ATTACK.run(False, 0, lambda *step: told.append(step[1]))
    assert told == pytest.approx(sorted(told))
    assert told[-1] == pytest.approx(1)
    assert all(finding.broken for finding in findings[:3]), "positive controls first"

    def found(s, number, measure):
        others = f"{s} other{'s' * (s > 1)}"
        target = f"cesar, each entry masked with at least {others}, 100 nodes with 25 neighbours each, {number} collude"
        (finding,) = (each for each in findings if each.target == target and measure in each.measure)
        return finding

    assert found(9, 15, "one receiver").low < PAPER < found(9, 15, "one receiver").high
    assert found(9, 15, "two receivers").value == 1
    assert found(13, 15, "one receiver").value == 0
    assert found(13, 15, "two receivers").low > 0.3
    assert found(13, 15, "all select").value == 0
    for s, least in ((5, 0.99), (10, 0.95), (15, 0.01)):
        assert found(s, s, "one receiver").value == 0
        assert found(s, s, "two receivers").low > least, "Theorem 5"
    assert found(24, 50, "one receiver").value == found(24, 50, "two receivers").value == 0
    assert found(24, 50, "all select").value == 1
