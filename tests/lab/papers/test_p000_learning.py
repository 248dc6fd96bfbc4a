"""Paper 000's trainings run again, at sizes that take seconds; whole small runs are slow."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.lab.papers import find
from tacit.lab.papers.p000 import fig5, table2
from tacit.lab.papers.p000.fig5 import IteratedTraining, list_schedules
from tacit.lab.papers.p000.peers import (
    FEDAVG,
    LOCAL_ONLY,
    AccuracyCurve,
    PeerTask,
    admm,
    deal_to_peers,
    mean_accuracy,
    train_peers,
)
from tacit.lab.papers.p000.table2 import FALLING, FOUR, METHODS, TABLE, MethodComparison, leak_row, rows_of
from tacit.learn.data import datasets
from tacit.learn.training.local_work import LocalTraining

pytestmark = pytest.mark.long

TINY = PeerTask(
    "digits", {"name": "softmax"}, LocalTraining(rate=0.5, batch=16), samples=360, tested=300, rounds=4, test_every=2
)


def owned(users, each=5):
    """Returns digits of so many users, with a few samples each."""
    data = datasets.load("digits")
    return replace(data, x=data.x[: users * each], y=data.y[: users * each], owner=np.repeat(np.arange(users), each))


def test_peers_are_given_as_many_users_each_and_all_that_is_theirs():
    before = owned(31)
    after = deal_to_peers(before, 9)
    users = [set(before.owner[after.owner == peer].tolist()) for peer in range(9)]
    assert {len(each) for each in users} == {3, 4}
    assert set().union(*users) == set(range(31))
    assert sum(map(len, users)) == 31, "nobody's samples are at two peers"
    assert (after.owner != deal_to_peers(before, 9, seed=1).owner).any()
    assert users[0] != set(range(len(users[0]))), "chance decides"


def test_samples_that_are_nobodys_are_given_out_evenly():
    owner = deal_to_peers(datasets.load("digits"), 7).owner
    assert np.ptp(np.bincount(owner)) <= 1


def test_scenarios_are_the_papers():
    for task in table2.TASKS["small"]:
        scenario = task.scenario(15, METHODS[FOUR])
        local = scenario.local
        assert (local.rate, local.batch, local.epochs) == (0.001, 32, 1)
        assert local.optimizer == {"femnist": "rmsprop", "shakespeare": "adam"}[task.data]
        assert (scenario.data.parties, scenario.data.split.kind, scenario.weights) == (15, "owner", "equal")
        assert scenario.protocol["iterations"] == 4
    assert admm((3.0, 9e-4))["rho"] == [3.0, 9e-4]


def test_accuracy_is_the_mean_over_peers():
    data = TINY.gather_data(5)
    _, alone = train_peers(TINY, data, 5, METHODS[LOCAL_ONLY], ignore_progress)
    x, y = data.inputs(data.x_test), data.y_test
    each = [score.accuracy for score in alone.training.cohort.evaluate(range(5), x, y)]
    assert len(set(each)) > 1
    assert mean_accuracy(alone.training, x, y) == pytest.approx(np.mean(each))
    alone.training.cohort.matrix[:] = alone.training.cohort.matrix[3]
    assert mean_accuracy(alone.training, x, y) == each[3]


def test_methods_differ_only_by_how_they_average():
    data = TINY.gather_data(9)
    found = {name: train_peers(TINY, data, 9, protocol, ignore_progress)[0] for name, protocol in METHODS.items()}
    assert found[FEDAVG].rounds == (1, 2, 3, 4)
    assert found[LOCAL_ONLY].rounds == (2, 4), "tested after every second round"
    for name in (FOUR, FALLING):
        assert found[name].accuracy == pytest.approx(found[FEDAVG].accuracy, abs=0.01)
    assert found[LOCAL_ONLY].best < found[FEDAVG].best - 3


def test_what_goes_wrong_on_the_way_is_told():
    data = TINY.gather_data(3)
    x = data.x.astype(np.float32)
    x[data.owner == 1] = np.nan
    curve, _ = train_peers(TINY, replace(data, x=x), 3, METHODS[LOCAL_ONLY], ignore_progress)
    assert "no longer a number in round 1" in curve.wrong
    assert train_peers(TINY, data, 3, METHODS[LOCAL_ONLY], ignore_progress)[0].wrong == ""


def compared(fedavg, alone, four, falling, wrong=""):
    """Returns a table of which only the best accuracies, in per cent, matter."""
    best = {LOCAL_ONLY: alone, FEDAVG: fedavg, FOUR: four, FALLING: falling}
    curves = {name: AccuracyCurve((1, 2), (0.1, percent / 100)) for name, percent in best.items()}
    curves[FOUR] = replace(curves[FOUR], wrong=wrong)
    return MethodComparison("femnist", 15, 3000, 12, curves)


def test_rows_say_whether_differences_are_those_of_the_paper():
    assert [row.agrees for row in rows_of(compared(96.0, 92.9, 95.6, 96.4))] == [None, True, True, True]
    assert [row.agrees for row in rows_of(compared(96.0, 93.1, 95.4, 96.6))] == [None, False, False, False]
    assert [row.agrees for row in rows_of(compared(96.0, 92.9, 96, 96, "lost"))] == [None, True, False, True]
    row = rows_of(compared(96.0, 92.9, 95.6, 96.4))[1]
    assert (row.paper, row.ours) == ("-0.64 points", "-3.10 points (92.90 %)")


def test_the_table_is_the_papers():
    """What the paper concludes from its table holds of what was copied."""
    assert all(abs(secure - fedavg) < 0.6 and alone < fedavg - 0.4 for alone, fedavg, secure in TABLE.values())
    assert TABLE["cifar10", 9][1] - TABLE["cifar10", 9][2] == pytest.approx(0.0046 * 77.69, abs=0.01)
    assert TABLE["cifar10", 15][1] - TABLE["cifar10", 15][2] == pytest.approx(0.0073 * 76.64, abs=0.01)


@pytest.mark.parametrize("name", [FOUR, FALLING])
def test_neither_way_shows_a_peer_a_model(name):
    assert leak_row(name, METHODS[name], 9).agrees


def test_more_iterations_than_the_pattern_protects_do():
    row = leak_row("more", admm(0.1, 8), 9)
    assert not row.agrees
    assert row.ours.startswith("8,")


def test_with_a_constant_rho_two_iterations_ruin_a_model_and_four_do_not():
    # Of a linear model it would not matter that all entries are too large by about as much.
    exact, found = fig5.train_all(replace(TINY, model={"name": "mlp", "hidden": [32]}, rounds=8), ignore_progress)
    rows = {each.rho: fig5.row_of(each, exact) for each in found}
    best = {each.rho: each.curve.best for each in found}
    assert [*best] == list_schedules()
    assert best[0.1, 0.1, 0.1, 0.1] == pytest.approx(exact.best, abs=1)
    assert best[3.0, 9e-4] == pytest.approx(exact.best, abs=1)
    assert max(best[(0.1,)], best[0.1, 0.1], best[(3.0,)]) < exact.best - 10
    assert rows[(0.1,)].agrees
    assert not rows[0.1, 0.1].agrees


@pytest.mark.parametrize(
    ("iterations", "best", "agrees"), [(1, 80.0, True), (1, 95.9, False), (2, 95.6, True), (2, 95.4, False)]
)
def test_one_iteration_must_do_harm_and_two_must_not(iterations, best, agrees):
    found = IteratedTraining((0.1,) * iterations, AccuracyCurve((1,), (best / 100,)), (0.1, 0.1))
    assert fig5.row_of(found, AccuracyCurve((1,), (0.96,))).agrees is agrees


@pytest.mark.slow
@pytest.mark.parametrize("name", ["000-table2", "000-fig5"])
def test_small_runs_show_what_they_must(name):
    pytest.importorskip("torch", reason="the networks are torch's")
    result = find(name).run("small", ignore_progress)
    disagreeing = [row.what for row in result.rows if row.agrees is False]
    if name == "000-table2":
        assert disagreeing == []
    else:
        assert any("2 iterations, ρ = 0.1" in what for what in disagreeing)
        assert not any("ρ = 3 then" in what or "4 iterations" in what for what in disagreeing)
