"""Push-sum: exact mass, crashes and losses that cost none, and the papers' two algorithms."""

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.drivers.faults import Fault
from tacit.drivers.simulator import Simulation

N, D = 7, 20
PARTIES = tuple(f"p{i}" for i in range(N))
RNG = np.random.default_rng(2)
VECTORS = {party: RNG.normal(size=D) for party in PARTIES}
MEAN = np.mean(list(VECTORS.values()), axis=0)
DIRECTED = nx.DiGraph([(i, (i + hop) % N) for i in range(N) for hop in (1, 3)] + [(0, 2), (4, 6)])


def federation(graph=DIRECTED, vectors=VECTORS, **options):
    return Simulation.of("pushsum", tuple(vectors), D, graph=graph, seed=0, **options)


def rounds(federation, count, vectors=VECTORS):
    """Runs rounds in which nobody changes its model in between."""
    outcome = federation.average({party: Update(vector) for party, vector in vectors.items()})
    for _ in range(count - 1):
        outcome = federation.average(models(federation, vectors))
    return outcome


def models(federation, vectors=VECTORS):
    """Returns what clients bring that have not changed their models since the last round."""
    ring = federation.agreement.ring()
    return {
        party: Update(vectors[party] if state.x is None else ring.ratio(ring.unpack(state.x, D + 1)))
        for party, state in federation.states.items()
    }


def mass(federation):
    """Returns all mass there is: what clients hold, and what is under way between them."""
    ring = federation.agreement.ring()
    masked = federation.agreement.settings.masked
    total = ring.zeros(D + 1)
    for party, state in federation.states.items():
        if state.x is None:
            continue
        total += ring.unpack(state.x, D + 1)
        for receiver, sent in state.sent.items():
            total += ring.unpack(sent, D + 1)
            taken = federation.states[receiver].taken
            if not masked and party in taken:
                total -= ring.unpack(taken[party], D + 1)
        if masked and "*" in state.taken:
            total -= ring.unpack(state.taken["*"], D + 1)
    return total


def started(vectors=VECTORS, bits=32):
    fresh = Simulation.of("pushsum", tuple(vectors), D, bits=bits, seed=0)
    ring = fresh.agreement.ring()
    total = ring.zeros(D + 1)
    for vector in vectors.values():
        total += ring.values(np.append(vector, 1.0))
    return total


@pytest.mark.parametrize("graph", [DIRECTED, graphs.exponential(N), "complete", "ring"], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_converges_to_the_average(graph, masked):
    outcome = rounds(federation(graph, masked=masked, bits=64), 80)
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], MEAN, atol=1e-8)


def test_one_round_is_that_of_algorithm_3():
    outcome = federation(bits=64).average({party: Update(vector) for party, vector in VECTORS.items()})
    p = graphs.column_stochastic(DIRECTED)
    for i, party in enumerate(PARTIES):
        heard = [i, *DIRECTED.predecessors(i)]
        z = sum(p[i, j] * VECTORS[PARTIES[j]] for j in heard)
        y = sum(p[i, j] for j in heard)
        np.testing.assert_allclose(outcome.average[party], z / y, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("private", [False, True])
def test_mass_is_conserved_to_the_last_unit(masked, private):
    running = federation(masked=masked, private=private)
    rounds(running, 1)
    before = mass(running)
    if not private:
        np.testing.assert_array_equal(before, started())
    for _ in range(5):
        running.average(models(running))
    np.testing.assert_array_equal(mass(running), before)


@pytest.mark.parametrize("masked", [False, True])
def test_losses_and_crashes_lose_no_mass(masked):
    faults = [
        Fault(action="drop", party="p1", round=1),
        Fault(action="drop", to="p2", round=2),
        Fault(action="crash", party="p3", round=2, step=0),
        Fault(action="crash", party="p4", round=3, step=2),
        Fault(action="delay", party="p5", round=4),
        Fault(action="corrupt", party="p6", round=5),
    ]
    running = federation(masked=masked, bits=64, faults=faults)
    outcome = rounds(running, 120)
    np.testing.assert_array_equal(mass(running), started(bits=64))
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], MEAN, atol=1e-8)


def test_the_callers_change_is_the_gradient_step():
    """Gradient descent on a_i (w − w_i*)² between rounds, as in Algorithm 3, against the same written out in floats."""
    a, best, eta = np.linspace(0.5, 1.5, N), RNG.normal(size=(N, D)), 0.05
    running = federation(bits=64)
    p = graphs.column_stochastic(DIRECTED)
    x, y = np.array(list(VECTORS.values())), np.ones(N)
    w = x.copy()
    for _ in range(30):
        outcome = running.average({party: Update(w[i]) for i, party in enumerate(PARTIES)})
        z = np.array([sum(p[i, j] * x[j] for j in [i, *DIRECTED.predecessors(i)]) for i in range(N)])
        y = np.array([sum(p[i, j] * y[j] for j in [i, *DIRECTED.predecessors(i)]) for i in range(N)])
        for i, party in enumerate(PARTIES):
            np.testing.assert_allclose(outcome.average[party], z[i] / y[i], atol=1e-8)
        step = np.array([2 * a[i] * (z[i] / y[i] - best[i]) for i in range(N)]) * eta
        x, w = z - step, np.array([z[i] / y[i] - step[i] for i in range(N)])


@pytest.mark.parametrize("y0", ["uniform", "exp", "lognormal", ("uniform", 0.1, 1.9)])
def test_private_weights_still_agree(y0):
    running = federation(private=True, y0=y0, bits=64, clip=1024.0)
    outcome = rounds(running, 150)
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], outcome.average["p0"], atol=1e-6)


def test_private_starts_have_the_means_and_variances_of_table_3():
    from tacit.core.entropy import SeededEntropy
    from tacit.protocols.pushsum import ExponentialStart, LognormalStart, UniformStart

    entropy = SeededEntropy("table 3")
    for start, variance in ((UniformStart(), 0.083), (ExponentialStart(), 1.0)):
        drawn = [start.draw(entropy) for _ in range(20_000)]
        assert np.mean(drawn) == pytest.approx(1.0, abs=0.03)
        assert np.var(drawn) == pytest.approx(variance, rel=0.1)
    drawn = np.log([LognormalStart().draw(entropy) for _ in range(20_000)])
    assert np.mean(drawn) == pytest.approx(-1.0, abs=0.03)
    assert np.var(drawn) == pytest.approx(2.0, rel=0.05)


def test_time_varying_graphs():
    one = nx.DiGraph([(i, (i + 1) % N) for i in range(N)])
    other = nx.DiGraph([(i, (i + 3) % N) for i in range(N)])
    outcome = rounds(federation([one, other], bits=64), 200)
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], MEAN, atol=1e-8)


def test_weights():
    weights = dict(zip(PARTIES, [1, 2, 3, 4, 5, 6, 7], strict=True))
    outcome = tacit.aggregate(VECTORS, "pushsum", weights=weights, bits=64, masked=True)
    expected = np.average(list(VECTORS.values()), axis=0, weights=list(weights.values()))
    np.testing.assert_allclose(outcome.average["p0"], expected, atol=1e-9)


def drift(running, outcome):
    for _ in range(40):
        outcome = running.average({party: Update(outcome.average[party] + 0.9) for party in PARTIES})


def test_a_model_that_leaves_the_range_is_an_error_and_not_a_wrong_number():
    running = federation(clip=1.0)
    outcome = running.average(dict.fromkeys(PARTIES, Update(np.full(D, 0.99))))
    with pytest.raises(tacit.ConfigError, match="pass a larger clip"):
        drift(running, outcome)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"graph": nx.DiGraph([(0, 1), (1, 2)])}, "not strongly connected"),
        ({"self_weight": (0.4, 0.1)}, "self_weight"),
        ({"self_weight": (0.1, 0.6)}, "self_weight"),
        ({"y0": "cauchy"}, "y0="),
        ({"graph": nx.DiGraph([(i, (i + 1) % N) for i in range(N)]), "masked": True}, "hear only one client"),
        ({"graph": [graphs.exponential(N), DIRECTED], "masked": True}, "one graph"),
    ],
)
def test_bad_settings(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        federation(**options)
