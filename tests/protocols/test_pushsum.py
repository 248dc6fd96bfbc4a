"""Push-sum: exact conservation of mass under crashes and losses, and the papers' two algorithms."""

import contextlib

import msgspec
import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.core.average import Average
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.protocols import pushsum
from tacit.runtime.outcome import merge_endings
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

N, D = 7, 20
PARTIES = tuple(f"p{i}" for i in range(N))
RNG = np.random.default_rng(2)
VECTORS = {party: RNG.normal(size=D) for party in PARTIES}
MEAN = np.mean(list(VECTORS.values()), axis=0)
DIRECTED = nx.DiGraph([(i, (i + hop) % N) for i in range(N) for hop in (1, 3)] + [(0, 2), (4, 6)])


def federation(graph=DIRECTED, vectors=VECTORS, **options):
    return Simulation.of("pushsum", tuple(vectors), D, graph=graph, seed=0, **options)


def rounds(federation, count, vectors=VECTORS):
    """Runs rounds in which no client changes its model in between."""
    outcome = federation.average({party: Update(vector) for party, vector in vectors.items()})
    for _ in range(count - 1):
        outcome = federation.average(models(federation, vectors))
    return outcome


def models(federation, vectors=VECTORS):
    """Returns the updates of clients that have not changed their models since the last round."""
    ring = federation.agreement.ring()
    return {
        party: Update(vectors[party] if state.x is None else ring.ratio(ring.unpack(state.x, D + 1)))
        for party, state in federation.states.items()
    }


def mass(federation):
    """Returns the total mass: what clients hold, and what is in transit between them."""
    ring = federation.agreement.ring()
    masked = federation.agreement.settings.masked
    total = ring.zeros(D + 1)
    for party, state in federation.states.items():
        if state.x is None:
            continue
        total += ring.unpack(state.x, D + 1)
        for receiver in state.receivers:
            total += ring.unpack(state.sent_to(receiver), D + 1)
            taken = federation.states[receiver].taken
            if not masked and party in taken:
                total -= ring.unpack(taken[party], D + 1)
        if masked and "*" in state.taken:
            total -= ring.unpack(state.taken["*"], D + 1)
    return total


def started(vectors=VECTORS, **options):
    fresh = Simulation.of("pushsum", tuple(vectors), D, seed=0, **options)
    ring = fresh.agreement.ring()
    total = ring.zeros(D + 1)
    for vector in vectors.values():
        total += ring.values(np.append(vector, 1.0))
    return total


@pytest.mark.sampled(3)
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("action", ["drop", "corrupt", "delay", "silence", "crash"])
def test_whatever_goes_wrong_in_the_first_round_the_others_go_on(action, masked):
    running = federation(masked=masked, bits=64, faults=[Fault(action=action, party="p1", round=1, step=1)])
    outcome = rounds(running, 120)
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], MEAN, atol=1e-8)


async def poisonous(link, update, terms, suite, state):
    """Pushes, in round 1, a y that cancels that of all others, and correct masses after that."""
    if link.round > 1:
        return await pushsum.client(link, update, terms, suite, state)
    i, graph = link.place, terms.graphs[0]
    for party in link.parties.names_at(sorted(graph.successors(i))):
        mass = suite.ring.values(np.append(np.zeros(D), -3.0))
        if terms.settings.masked:
            mass = pushsum.mask_push(link, suite, graph, party, mass)
        await link.send(party, pushsum.Mass(memoryview(suite.ring.pack(mass))))
    return Average(update.vector, ())


@pytest.mark.parametrize("masked", [False, True])
def test_a_mass_that_leaves_nothing_is_not_taken_and_forgotten_when_it_comes_right(masked):
    running = federation(masked=masked, bits=64, stand_ins={"p1": poisonous})
    first = running.average({party: Update(vector) for party, vector in VECTORS.items()})
    hurt = [party for party in PARTIES if party not in first.average]
    assert hurt == [PARTIES[i] for i in sorted(DIRECTED.successors(1))]
    for _ in range(120):
        outcome = running.average(models(running))
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], MEAN, atol=1e-8)


def quiet(running, vectors=VECTORS):
    """Runs a round in which no client changes its model; returns the clients that failed."""
    with contextlib.suppress(tacit.TacitError):
        running.average(models(running, vectors))
    return [party for party, ending in running.last.endings.items() if ending.error]


TEN = {f"p{i}": RNG.normal(size=D) for i in range(10)}
LONG = range(2, 10)


@pytest.mark.parametrize(
    ("masked", "faults"),
    [
        (True, [Fault(action="silence", party="p9", round=number) for number in LONG]),
        (False, [Fault(action="drop", to="p9", round=number) for number in LONG]),
    ],
)
def test_who_hears_nothing_for_many_rounds_is_back_when_it_hears_again(masked, faults):
    running = federation("complete", TEN, masked=masked, faults=faults)
    assert [quiet(running, TEN) for _ in range(40)] == [[]] * 40
    ring = running.agreement.ring()
    for model in models(running, TEN).values():
        np.testing.assert_allclose(model.vector, np.mean(list(TEN.values()), axis=0), atol=100 * ring.resolution)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("masked", [False, True])
def test_whatever_is_lost_for_however_long_nobody_is_dead(masked, bits, seed):
    rng = np.random.default_rng(seed)
    faults = [
        Fault(action=action, **{side: f"p{rng.integers(N)}"}, round=number)
        for _ in range(4)
        for begin, length in [(rng.integers(1, 12), rng.integers(1, 11))]
        for action, side in [[("drop", "to"), ("drop", "party"), ("silence", "party")][rng.integers(3)]]
        for number in range(int(begin), int(begin + length))
    ]
    options = {"bits": bits, "clip": 8.0, "rounding": "nearest"}  # so that it can be said what they started with
    running = federation(masked=masked, faults=faults, **options)
    for _ in range(22):
        assert quiet(running) == []
    assert [quiet(running) for _ in range(60)] == [[]] * 60
    np.testing.assert_array_equal(mass(running), started(**options))
    ring = running.agreement.ring()
    for model in models(running).values():
        np.testing.assert_allclose(model.vector, MEAN, atol=20 * ring.resolution)


def test_with_masks_nobody_contributes_to_a_round_in_which_somebody_is_missing():
    present = {party: Update(vector) for party, vector in VECTORS.items() if party != "p1"}
    running = federation("complete", masked=True, bits=64)
    outcome = running.average(present, absent=["p1"])
    for party, update in present.items():
        assert outcome.endings[party].contributors == (party,)
        np.testing.assert_allclose(outcome.average[party], update.vector, atol=1e-6)
    assert outcome.contributors == ()
    assert list(outcome.missing) == ["p1"]
    assert "nothing exchanged" in repr(outcome)
    assert running.average(models(running)).contributors == PARTIES


def test_with_masks_only_those_whose_in_neighbours_are_all_there_have_an_average_of_others():
    """In this graph p1 pushes to p2 and p4, which wait for the next round. The others go on."""
    outcome = federation(masked=True, faults=[Fault(action="silence", party="p1")]).average(
        {party: Update(vector) for party, vector in VECTORS.items()}
    )
    heard = {party: {PARTIES[j] for j in DIRECTED.predecessors(i)} for i, party in enumerate(PARTIES)}
    whole = [party for party in PARTIES if "p1" not in heard[party]]
    for party, ending in outcome.endings.items():
        assert set(ending.contributors) == {party} | (heard[party] if party in whole else set())
    assert set(outcome.contributors) == {*whole, *(peer for party in whole for peer in heard[party])} - {"p1"}


@pytest.mark.parametrize("out", [1, 2, 9, 63])
def test_what_is_kept_of_a_positive_mass_is_positive(out):
    ring = federation(bits=16).agreement.ring()
    y = np.arange(1, 1 << 15).astype(ring.dtype)
    kept = y - ring.portion(y, (1 - 1 / (out + 1)) / out) * ring.dtype.type(out)
    assert kept.min() >= 1
    assert kept.max() < 1 << 15


def test_who_took_nothing_in_pushes_nothing_new_until_it_does():
    faults = [Fault(action="drop", to="p2", round=number) for number in (2, 3)]
    running = federation(faults=faults)
    sent = []
    for _ in range(5):
        quiet(running)
        state = running.states["p2"]
        sent.append({party: bytes(state.sent_to(party)) for party in state.receivers})
    assert sent[0] != sent[1] == sent[2] == sent[3] != sent[4]


@pytest.mark.parametrize("private", [False, True])
def test_who_pushes_nothing_new_is_no_contributor(private):
    """p2 receives nothing in rounds 2 and 3. Its messages of rounds 3 and 4 repeat the mass it pushed before."""
    faults = [Fault(action="drop", to="p2", round=number) for number in (2, 3)]
    running = federation(faults=faults, private=private)
    hears_p2 = [PARTIES[i] for i in DIRECTED.successors(2)]
    for number in range(1, 6):
        outcome = running.average(models(running))
        for party in hears_p2:
            assert ("p2" in outcome.endings[party].contributors) == (number not in (3, 4))
        assert ("p2" in outcome.contributors) == (number != 3)  # in round 4 it has an average of others itself


def test_a_party_between_machines_that_hears_nobody_names_no_contributor():
    """A client that is alone has only its own ending, and is the only contributor to its average."""
    running = federation(faults=[Fault(action="drop", to="p2", round=2)])
    for expected in (True, False):
        ending = running.average(models(running)).endings["p2"]
        own = merge_endings(running.agreement, {"p2": ending}, ended=["p2"])
        assert ("p2" in own.contributors) == expected
        assert own.contributors == (tuple(sorted(ending.contributors)) if expected else ())


def test_what_was_lost_counts_in_the_round_in_which_it_arrives():
    """p2 keeps its mass in round 3, but p3 did not receive what p2 pushed in round 2."""
    faults = [Fault(action="drop", to="p2", round=2), Fault(action="drop", party="p2", to="p3", round=2)]
    running = federation(faults=faults)
    named = [running.average(models(running)).endings for _ in range(3)]
    assert ["p2" in endings["p3"].contributors for endings in named] == [True, False, True]
    assert ["p2" in endings["p5"].contributors for endings in named] == [True, True, False]


def test_with_masks_it_goes_on_pushing_for_the_sums_of_others_would_show_one_of_them_alone():
    """p1 misses a message in round 2. Had it pushed nothing in round 3, p0 would see what p2 pushed."""
    three = {f"p{i}": VECTORS[f"p{i}"] for i in range(3)}
    faults = [Fault(action="drop", party="p2", to="p1", round=2)]
    running = federation("complete", three, masked=True, faults=faults)
    before: dict = {}
    for _ in range(3):
        before = dict(running.states)
        quiet(running, three)
    ring = running.agreement.ring()
    learnt = [ring.unpack(states["p0"].taken["*"], D + 1) for states in (before, running.states)]
    pushed = [ring.unpack(states["p2"].sent_to("p0"), D + 1) for states in (before, running.states)]
    assert not np.array_equal(learnt[1] - learnt[0], pushed[1] - pushed[0])


def test_who_has_nobody_to_hear_in_a_round_pushes_as_ever():
    """p0 receives messages in every second round only."""
    there, back = nx.DiGraph([(0, i) for i in range(1, N)]), nx.DiGraph([(i, 0) for i in range(1, N)])
    back.add_edges_from((i, i % (N - 1) + 1) for i in range(1, N))
    outcome = rounds(federation([there, back], bits=64), 200)
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], MEAN, atol=1e-8)


@pytest.mark.parametrize("masked", [False, True])
def test_who_weighs_next_to_nothing_and_hears_nothing_at_first_is_not_dead(masked):
    faults = [Fault(action="drop", to="p1", round=1)]
    running = federation(masked=masked, bits=16, weighted=True, max_weight=1e6, faults=faults)
    given = {party: Update(vector, 1.0 if party == "p1" else 1e6) for party, vector in VECTORS.items()}
    first = running.average(given)
    assert "p1" not in first.average
    for _ in range(10):
        outcome = running.average(given)
    assert set(outcome.average) == set(PARTIES)


def test_what_does_not_fit_in_all_at_once_is_taken_in_bit_by_bit():
    """When p9 receives messages again, half of the total mass is in transit to it: five times what a client holds."""
    vectors = {party: np.full(D, 10.0) for party in TEN}
    faults = [Fault(action="drop", to="p9", round=number) for number in LONG]
    running = federation("complete", vectors, clip=32.0, faults=faults)
    assert [quiet(running, vectors) for _ in range(40)] == [[]] * 40
    assert mass(running).tolist() == started(vectors).tolist()
    y = running.agreement.ring().floats(running.agreement.ring().unpack(running.states["p9"].x, D + 1))[-1]
    assert y == pytest.approx(1.0, rel=1e-3)


def _a_lot(message, to, link, suite):
    """Follows the protocol, except that in the second round it adds a large amount to its push to p2."""
    if link.round != 2 or to != "p2":
        return message
    lot = suite.ring.zeros(D + 1)
    lot[0] = 1 << 30
    return pushsum.Mass(memoryview(suite.ring.pack(suite.ring.unpack(message.vector, D + 1) + lot)))


@pytest.mark.parametrize("masked", [False, True])
def test_a_mass_that_is_too_large_is_not_taken_and_forgotten_when_it_comes_right(masked, bent):
    running = federation(masked=masked, bits=32, stand_ins={"p1": bent(pushsum.PUSHSUM, "p1", _a_lot)})
    failed = [quiet(running) for _ in range(60)]
    assert failed == [[], ["p2"] if masked else [], *[[]] * 58]
    np.testing.assert_array_equal(mass(running), started())
    ring = running.agreement.ring()
    for model in models(running).values():
        np.testing.assert_allclose(model.vector, MEAN, atol=20 * ring.resolution)


def test_a_state_of_before_goes_on():
    """States of a release that did not store `fed` are read as if something had been taken in."""
    kept = {"x": b"\0" * 8, "sent": {}, "taken": {}}
    data = msgspec.msgpack.encode((pushsum.PUSHSUM.name, 1, None, kept))
    assert pushsum.PUSHSUM.decode_state(data).fed


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


@pytest.mark.parametrize(
    "y0", ["uniform", *(pytest.param(y0, marks=pytest.mark.slow) for y0 in ("exp", "lognormal")), ("uniform", 0.1, 1.9)]
)
def test_private_weights_still_agree(y0):
    running = federation(private=True, y0=y0, bits=64, clip=1024.0)
    outcome = rounds(running, 150)
    for party in PARTIES:
        np.testing.assert_allclose(outcome.average[party], outcome.average["p0"], atol=1e-6)


def test_private_starts_have_the_means_and_variances_of_table_3():
    from tacit.core.entropy import SeededEntropy
    from tacit.protocols.pushsum.start_weights import ExponentialStart, LognormalStart, UniformStart

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
        ({"clip": 0.5}, "clip=0.5 must be at least 1"),
        ({"graph": nx.DiGraph([(i, (i + 1) % N) for i in range(N)]), "masked": True}, "hear only one client"),
        ({"graph": [graphs.exponential(N), DIRECTED], "masked": True}, "one graph"),
    ],
)
def test_bad_settings(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        federation(**options)
