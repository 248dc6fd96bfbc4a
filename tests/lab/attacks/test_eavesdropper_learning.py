"""The eavesdropper of paper 001: what it hears is what deployed protocols send, and what it makes of it."""

import re
import sys
from collections import defaultdict
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

pytest.importorskip("torch", reason="the eavesdropper's classifier is a torch network")

import torch

from tacit.core.errors import MissingExtra
from tacit.core.progress import ignore_progress
from tacit.core.suite import SERVER, Update
from tacit.designs import graphs
from tacit.lab.attacks import eavesdropper_learning, inception, traffic_series
from tacit.lab.attacks.inception import Classifier, ClassifierSettings, principal_plane
from tacit.lab.attacks.traffic_series import LINKS, Algorithm, Losses
from tacit.learn.training.loop import run_rounds
from tacit.protocols import pushsum
from tacit.protocols.fedavg import Plain
from tacit.protocols.shapes.star import Sum
from tacit.runtime.simulation.simulator import Simulation

pytestmark = pytest.mark.long

N, D, ROUNDS = 5, 2, 6
PARTIES = [f"p{i}" for i in range(N)]
RNG = np.random.default_rng(5)
SQUARES = RNG.normal(size=(N, 4, D))
LOSSES = Losses(np.einsum("nki,nkj->nij", SQUARES, SQUARES), RNG.normal(size=(N, D)))
STARTS = RNG.normal(size=(N, D))
TINY = eavesdropper_learning.LearningScale(
    rounds=10,
    training=ClassifierSettings(epochs=8, batch=50, width=4, modules=2),
    runs=400,
    training_3=ClassifierSettings(epochs=12, batch=50, width=4, modules=2),
    variations=(1.0,),
    lengths=(3,),
)


# --- the paper's setting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "best", "least"),
    [(0, 2, 5), (1, 2.06, 5.28), (2, 2.12, 5.528), (3, 2.18, 5.74), (4, 2.24, 5.91), (5, 2.3, 6.05), (6, 2.05, 5)],
)
def test_the_cases_have_the_optima_that_tables_1_and_2_print(case, best, least):
    a, b, c = np.array([*traffic_series.BASELINE[:4], traffic_series.CASES[case]]).sum(axis=0)
    assert -b / (2 * a) == pytest.approx(best)
    assert c - b * b / (4 * a) == pytest.approx(least, abs=0.005)
    losses = Losses.of_case(case)
    assert losses.gradient(np.full((1, N, 1), best)).sum() == pytest.approx(0, abs=1e-12)


def test_the_graph_fits_what_is_said_of_fig_2():
    assert len(set(LINKS)) == 8
    assert sum(0 in link for link in LINKS) == 3
    assert nx.is_strongly_connected(nx.DiGraph(LINKS))


@pytest.mark.parametrize(("row", "variance"), [(2, 0.083), (3, 0.163), (4, 0.27), (5, 1.0), (6, 6.39)])
def test_the_starts_have_the_means_and_variances_of_table_3(row, variance):
    name, *parameters = list(eavesdropper_learning.TABLE_3.values())[row].start
    if name == "lognormal":  # its tail is too heavy for the variance of a sample to be near its own
        mean, deviation = parameters
        assert np.exp(mean + deviation**2 / 2) == pytest.approx(1.0)
        assert np.expm1(deviation**2) * np.exp(2 * mean + deviation**2) == pytest.approx(variance, rel=0.01)
        return
    drawn = getattr(np.random.default_rng(0), name)(*parameters, size=100_000)
    assert drawn.mean() == pytest.approx(1.0, abs=0.02)
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_series_have_the_sizes_of_the_paper():
    rng = np.random.default_rng(0)
    table = eavesdropper_learning.tables_1_and_2(eavesdropper_learning.FULL)
    psgd = next(trial for trial in table if trial.target == "PSGD")
    series, labels = psgd.listen(psgd.training_runs, rng)
    assert series.reshape(200, -1).shape == (200, 1600)
    assert labels.tolist() == [0] * 100 + [1] * 100
    series, _ = eavesdropper_learning.table_3(eavesdropper_learning.FULL)[0].listen(
        eavesdropper_learning.table_3(eavesdropper_learning.FULL)[0].training_runs, rng
    )
    assert series.reshape(len(series), -1).shape == (20_000, 18)


@pytest.mark.parametrize("setting", [eavesdropper_learning.PSGD, eavesdropper_learning.PPSGD], ids=["PSGD", "PPSGD"])
def test_the_error_is_gone_after_20_rounds_as_in_fig_3(setting):
    heard = setting.sample_traffic(Losses.of_case(), LINKS, 50, 21, np.random.default_rng(0))
    x, y = heard[:, :, 0, -1], heard[:, :, 1, -1]
    errors = 5 * ((x / y).mean(axis=1) - 2) ** 2
    assert np.median(errors) < 0.05
    x, y = heard[:, :, 0, 0], heard[:, :, 1, 0]
    assert np.median(5 * ((x / y).mean(axis=1) - 2) ** 2) > 5


# --- what is simulated is what is deployed -------------------------------------------------------------------------


def running(protocol, first, after, seed=0, **options):
    """Yields the transcripts of rounds of a deployed protocol, between which clients train."""
    simulation = Simulation.of(protocol, PARTIES, D, record=True, bits=64, seed=seed, **options)

    def bring(number, before):
        if before is None:
            models = first
        else:
            models = after(np.array([before.outcome.average[party] for party in PARTIES]), number - 1)
        return {party: Update(model) for party, model in zip(PARTIES, models, strict=True)}

    for step in run_rounds(simulation.average, bring, ROUNDS):
        yield step.number - 1, step.outcome.transcript


def descend(w, t):
    return w - LOSSES.step / t * LOSSES.gradient(w[np.newaxis])[0]


def test_the_deployed_clients_descend_as_these_do():
    brought = traffic_series.descend_locally(LOSSES, STARTS)(1, None)
    assert all(np.array_equal(brought[party].vector, start) for party, start in zip(PARTIES, STARTS, strict=True))


def test_fedavg_hears_what_the_deployed_server_hears_and_says():
    w_0 = STARTS[0]
    expected = traffic_series.fedavg(LOSSES, w_0[np.newaxis], ROUNDS)[0]
    first = traffic_series.client_update(LOSSES, np.tile(w_0, (1, N, 1)))[0]
    for t, transcript in running("fedavg", first, lambda w, _: traffic_series.client_update(LOSSES, w[np.newaxis])[0]):
        ring = transcript.ring()
        for address, message in transcript.open_messages(SERVER):
            if isinstance(message, Plain | Sum):
                channel = N if isinstance(message, Sum) else PARTIES.index(address.sender)
                np.testing.assert_allclose(ring.mean(ring.unpack(message.vector)), expected[channel, :, t], atol=1e-12)


def test_cbgd_hears_what_deployed_gossip_sends():
    expected = traffic_series.cbgd(LOSSES, LINKS, STARTS[np.newaxis], ROUNDS)[0]
    graph, heard = nx.Graph(LINKS), 0
    for t, transcript in running("gossip", STARTS, descend, graph=graph):
        ring = transcript.ring()
        for party in PARTIES:
            for address, message in transcript.open_messages(party):
                i, k = PARTIES.index(address.sender), PARTIES.index(address.to)
                weight = graphs.metropolis_weight(graph.degree(i), graph.degree(k))
                broadcast = ring.floats(ring.unpack(message.vector, D)) / float(weight)
                np.testing.assert_allclose(broadcast, expected[i, :, t], atol=1e-12)
                heard += 1
    assert heard == 2 * 2 * 8 * ROUNDS  # both ways, and opened by either end


@pytest.mark.parametrize("private", [False, True])
def test_push_sum_hears_what_deployed_push_sum_sends(private, monkeypatch):
    kept = []
    draw = pushsum.self_weight
    monkeypatch.setattr(pushsum, "self_weight", lambda *given: kept.append(draw(*given)) or kept[-1])
    carried, before, starts = np.zeros((8, D + 1, ROUNDS)), defaultdict(int), {}
    graph = nx.DiGraph(LINKS)
    for t, transcript in running("pushsum", STARTS, descend, seed=3, graph=graph, private=private, clip=256.0):
        ring = transcript.ring()
        for party in PARTIES:
            if t == 0:
                starts[party] = transcript.holdings[party].vectors[0][0] if private else 1.0
            for address, message in transcript.open_messages(party):
                if address.sender == party:
                    link = PARTIES.index(address.sender), PARTIES.index(address.to)
                    total = ring.floats(ring.unpack(message.vector, D + 1))  # of all rounds so far
                    carried[LINKS.index(link), :, t] = total - before[link]
                    before[link] = total
    y = np.array([starts[party] for party in PARTIES])
    assert len(set(y)) == (N if private else 1)
    p = np.array(kept, dtype=np.float64).reshape(ROUNDS, 1, N)
    expected = traffic_series.push_sum(LOSSES, LINKS, STARTS[np.newaxis], y[np.newaxis], p)[0]
    np.testing.assert_allclose(carried, expected, atol=1e-10)


def test_draws_are_those_of_the_deployed_protocol():
    """PSGD keeps as much as it sends to each; PPSGD keeps from β to α, and Σ p_ji y_i + what is kept is y_i."""
    rng = np.random.default_rng(0)
    heard = eavesdropper_learning.PSGD.sample_traffic(LOSSES, LINKS, 3, 1, rng)
    degree = np.bincount([i for i, _ in LINKS])
    for link, (i, _) in enumerate(LINKS):
        np.testing.assert_allclose(heard[:, link, -1, 0], 1 / (degree[i] + 1))
    heard = Algorithm("PPSGD", ("uniform", 1.0, 1.0)).sample_traffic(LOSSES, LINKS, 2000, 1, rng)
    for link, (i, _) in enumerate(LINKS):
        kept = 1 - degree[i] * heard[:, link, -1, 0]
        assert kept.min() == pytest.approx(pushsum.PushSumSettings().self_weight[0], abs=0.01)
        assert kept.max() == pytest.approx(pushsum.PushSumSettings().self_weight[1], abs=0.01)


def test_noise_is_on_what_is_sent_and_is_taken_in():
    quiet = eavesdropper_learning.PSGD.sample_traffic(LOSSES, LINKS, 400, 2, np.random.default_rng(0))
    noisy = replace(eavesdropper_learning.PSGD, noise=0.5).sample_traffic(
        LOSSES, LINKS, 400, 2, np.random.default_rng(0)
    )
    difference = noisy - quiet
    assert difference[:, :, :D, 0].var() == pytest.approx(0.5, rel=0.1)
    assert not difference[:, :, D].any()  # y goes out as it is
    assert difference[:, :, :D, 1].var() > 0.55  # new noise, and what came of the old


def test_sealed_links_carry_the_same_for_every_loss_and_every_run():
    w = np.random.default_rng(1).normal(size=(2, N, 1))
    heard = [
        traffic_series.sealed_traffic(Losses.of_case(case), LINKS, start, 4, seed)
        for case, start, seed in ((0, w[0], 1), (6, w[0], 2), (6, w[1], 3))
    ]
    np.testing.assert_array_equal(heard[0], heard[1])
    np.testing.assert_array_equal(heard[0], heard[2])
    assert (heard[0][:, :, 1] > 0).all()


# --- the classifier ------------------------------------------------------------------------------------------------


def bumps(runs, rng, height=3.0):
    """Returns noise and, somewhere in every series of class 1, a bump."""
    series, labels = rng.normal(size=(runs, 2, 24)), rng.integers(0, 2, runs)
    for run, place in enumerate(rng.integers(2, 18, runs)):
        series[run, 0, place : place + 5] += height * labels[run]
    return series, labels


@pytest.mark.slow
def test_the_classifier_finds_a_shape_wherever_it_is_and_nothing_where_there_is_nothing():
    rng = np.random.default_rng(0)
    for height, low, high in ((3.0, 0.85, 1.0), (0.0, 0.35, 0.65)):
        classifier = Classifier(*bumps(300, rng, height), ClassifierSettings(epochs=12, width=4, modules=2), seed=0)
        series, labels = bumps(200, rng, height)
        guesses, features = classifier.look(series)
        assert low <= np.mean(guesses == labels) <= high
        assert features.shape == (200, 16)
        assert len(classifier.loss) == len(classifier.accuracy) == 12
    assert classifier.loss[-1] < classifier.loss[0]


@pytest.mark.slow
def test_the_classifier_is_repeatable_and_leaves_torch_as_it_was():
    series, labels = bumps(60, np.random.default_rng(1))
    torch.manual_seed(7)
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    first, second, other = (
        Classifier(series, labels, ClassifierSettings(epochs=2, width=4), seed) for seed in (1, 1, 2)
    )
    assert first.loss == second.loss != other.loss
    np.testing.assert_array_equal(first.look(series)[1], second.look(series)[1])
    assert torch.equal(before, torch.random.get_rng_state())
    assert threads == torch.get_num_threads()


def test_values_that_never_change_and_values_far_out_do_no_harm():
    rng = np.random.default_rng(2)
    series, labels = rng.normal(size=(200, 2, 3)), rng.integers(0, 2, 200)
    series[:, 0] += 3 * labels[:, np.newaxis]
    series[:, 1] = 1 / 3 + 1e-17 * rng.normal(size=(200, 3))
    series[::40] *= 1e12
    guesses, _ = Classifier(series, labels, ClassifierSettings(epochs=10, width=4, modules=2), 0).look(series)
    assert np.mean(guesses == labels) > 0.85


@pytest.mark.parametrize("rounds", [1, 3, 50])
def test_the_network_takes_series_of_any_length(rounds):
    network = inception.build_network(channels=3, rounds=rounds, classes=4, width=2, modules=3)
    assert network(torch.zeros(5, 3, rounds)).shape == (5, 4)
    longest = max(layer.kernel_size[0] for layer in network.modules() if isinstance(layer, torch.nn.Conv1d))
    assert longest == min(39, 2 * rounds - 1)


def test_the_plane_is_that_of_largest_variance():
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    truth = rng.normal(size=(100, 6)) * [5, 3, 0.1, 0.1, 0.1, 0.1]
    plane = principal_plane(truth @ axes + 7.0)
    assert plane.shape == (100, 2)
    for axis in (0, 1):
        assert abs(np.corrcoef(plane[:, axis], truth[:, axis])[0, 1]) > 0.99


def test_without_torch_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"tacit\[torch\]"):
        eavesdropper_learning.run_trial(eavesdropper_learning.tables_1_and_2(TINY)[0], 0)


# --- the attack ----------------------------------------------------------------------------------------------------


def found(target, where, trials):
    trial = next(trial for trial in trials if trial.target == target and trial.where.startswith(where))
    return eavesdropper_learning.run_trial(trial, 0)


@pytest.mark.parametrize("target", ["FedAvg", "CBGD", "PSGD", "PPSGD"])
def test_open_links_are_read(target):
    row = found(target, "Table 2", eavesdropper_learning.tables_1_and_2(TINY))
    assert row.finding.broken
    assert row.accuracy > (0.6 if target == "PPSGD" else 0.9)
    assert row.plane.shape == (200, 2)


def test_the_weak_eavesdropper_reads_psgd_too():
    longer = replace(TINY, training=replace(TINY.training, epochs=20))
    row = found("PSGD", "Table 1", eavesdropper_learning.tables_1_and_2(longer))
    assert row.trial.paper == 0.74
    assert row.accuracy > 0.9


def test_what_is_read_is_not_just_the_common_optimum():
    trials = eavesdropper_learning.same_optimum(TINY)
    for trial in trials:
        (baseline, _, _), (changed, _, _) = trial.test_runs
        assert changed.b[traffic_series.CHANGING] != baseline.b[traffic_series.CHANGING]
        assert changed.b.sum() == pytest.approx(baseline.b.sum())
    assert found("PSGD", "case 6", trials).accuracy > 0.9
    assert found("PPSGD", "case 6", trials).finding.broken


def test_sealed_links_are_not_read():
    row = found("PPSGD, sealed links", "Table 2", eavesdropper_learning.tables_1_and_2(TINY))
    assert row.accuracy == 0.5
    assert row.finding.verdict == "not_broken_by_this"


def test_three_rounds_of_one_clients_links_are_enough():
    rows = {
        name: found(name, "Table 3, Fig. 6", eavesdropper_learning.table_3(TINY))
        for name in list(eavesdropper_learning.TABLE_3)[:3]
    }
    psgd, noise, ppsgd = rows.values()
    assert psgd.accuracy > 0.95
    assert psgd.accuracy > ppsgd.accuracy > noise.accuracy
    assert ppsgd.finding.broken


def test_what_is_not_heard_of_y_is_not_in_the_series():
    trials = [trial for trial in eavesdropper_learning.table_3(TINY) if trial.target == "PSGD"]
    with_y, without = (trial.listen(trial.test_runs, np.random.default_rng(0))[0] for trial in trials)
    np.testing.assert_array_equal(with_y[:, ::2], without)


def test_several_features():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    row = found("PSGD", "Fig. 7", eavesdropper_learning.figure_7(TINY, x, x @ [1.0, 2.0, 3.0], clients=6))
    assert row.accuracy > 0.8
    baseline, moved = (losses for losses, _, _ in row.trial.training_runs)
    best, other = (np.linalg.solve(losses.a[0], -losses.b[0]) for losses in (baseline, moved))
    np.testing.assert_allclose(other - best, 1.0)


def test_controls_come_first_and_every_trial_is_named_once():
    for full in (False, True):
        trials = eavesdropper_learning.list_trials(full)
        control = [trial.target in ("FedAvg", "CBGD", "PSGD") for trial in trials]
        assert control == sorted(control, reverse=True)
        assert len({(trial.target, trial.eavesdropper, trial.where) for trial in trials}) == len(trials)
        assert len({trial.said for trial in trials}) == len(trials)


def test_progress_is_told():
    told = []
    eavesdropper_learning.run_trials(
        eavesdropper_learning.tables_1_and_2(TINY)[4:6], 0, lambda doing, done: told.append((doing, done))
    )
    assert [done for _, done in told] == [0.0, 0.5]
    assert told[0][0] == "what an eavesdropper hears of pushsum, after learning from other changes"


@pytest.mark.slow
def test_the_quick_run_ends_as_expected():
    findings = {finding.target: finding for finding in eavesdropper_learning.ATTACK.run(False, 0, ignore_progress)}
    for target, finding in findings.items():
        if re.search("of (fedavg|gossip|pushsum),", target):
            assert finding.value > 0.9, target
        if "sealed" in target:
            assert not finding.broken
    strong = findings[
        "what an eavesdropper hears of pushsum with private weights, after learning from this very change"
    ]
    assert strong.broken
    assert strong.paper == "Table 2, Fig. 5"
