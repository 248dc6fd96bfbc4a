"""The audit as people call it: who is exposed, from when on, and the proof on a real transcript."""

import json

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from tacit.app.cli.main import app
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation


def test_fedavg_shows_the_server_everybody_and_the_recipe_is_exact():
    report = tacit.audit("fedavg", parties=4, coalition=["server"])
    assert sorted(report.exposed) == ["p0", "p1", "p2", "p3"]
    assert max(report.errors.values()) < 1e-12
    assert (report.safe_rounds, report.smallest_group) == (0, 1)


def test_secagg_shows_the_server_nobody():
    report = tacit.audit("secagg", parties=5, coalition=["server"], rounds=3)
    assert report.exposed == {}
    assert (report.safe_rounds, report.smallest_group) == (3, 5)


def test_shares_of_a_threshold_of_clients_open_everything():
    """The recipe recovers both secrets of each victim from real Shamir shares and takes its real masks off."""
    report = tacit.audit("secagg", parties=4, coalition=["server", "p0", "p1"], threshold=2)
    assert sorted(report.exposed) == ["p2", "p3"]
    assert max(report.errors.values()) < 1e-12


def test_rounds_that_differ_in_one_user_expose_it_if_models_stand_still():
    dropped = [Fault(action="drop", party="p3", message="MaskedInput", round=2)]
    report = tacit.audit("secagg", parties=4, coalition=["server"], rounds=4, faults=dropped)
    assert list(report.exposed) == ["p3"]
    assert report.safe_rounds == 1
    assert report.errors["p3"] < 1e-12
    free = tacit.audit("secagg", parties=4, coalition=["server"], rounds=4, faults=dropped, drift="free")
    assert free.exposed == {}
    assert free.safe_rounds == 4


def test_batches_keep_rounds_from_being_subtracted():
    dropped = [
        Fault(action="drop", party=party, message="MaskedInput", round=round_)
        for round_, party in ((1, "p1"), (3, "p4"), (4, "p0"))
    ]
    options = {"parties": 6, "coalition": ["server"], "rounds": 5, "faults": dropped, "threshold": 3}
    whole = tacit.audit("secagg", participation=tacit.designs.Batches(6, 2), **options)
    assert whole.exposed == {}
    assert whole.smallest_group == 2
    loose = tacit.audit("secagg", **options)
    assert loose.smallest_group == 1
    assert loose.exposed


def test_a_recipe_works_on_somebody_elses_transcript():
    report = tacit.audit("gossip", parties=5, coalition=["p0"], graph="ring", seed=4)
    names = tuple(f"p{i}" for i in range(5))
    vectors = {name: Update(np.arange(7.0) + i) for i, name in enumerate(names)}
    real = Simulation.of("gossip", names, 7, graph="ring", seed=4, record=True)
    transcript = real.average(vectors).transcript
    np.testing.assert_allclose(report.exposed["p1"].recover(transcript), vectors["p1"].vector, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("drift", ["static", "free"])
@pytest.mark.parametrize(("protocol", "coalition"), [("gossip", ["p0"]), ("cesar", ["p0", "p1"])])
def test_entries_that_changed_most_are_those_of_the_run_on_numbers(protocol, coalition, drift):
    """Recipes for the later rounds are proved, so the same entries were chosen there, by what came of the first."""
    options = {"share": 0.5, "sparsifier": "topk", "rounds": 3, "drift": drift}
    reports = {
        score: tacit.audit(protocol, parties=6, coalition=coalition, score=score, **options)
        for score in ("magnitude", "change")
    }
    for report in reports.values():
        assert report.exposed
        assert max(report.errors.values()) < 1e-9
    if drift == "static" and protocol == "cesar":
        # The largest entries of models that stand still are always the same; what changed is not.
        assert len(reports["change"].exposed) > len(reports["magnitude"].exposed)


def test_admm_pairs_at_the_papers_own_setting():
    """Two colluding peers, two iterations, nine peers: somebody is exposed in half of all coalitions."""
    reports = tacit.audit("admm", parties=9, coalition_size=2, group_size=3, iterations=2)
    assert len(reports) == 36
    assert sum(1 for report in reports if report.exposed) == 18
    assert max(error for report in reports for error in report.errors.values()) < 1e-9


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rho", [(3.0, 0.0009), (0.1, 0.00005)])
def test_a_falling_penalty_shows_admm_pairs_what_a_constant_one_does(rho):
    reports = tacit.audit("admm", parties=9, coalition_size=2, rho=rho)
    assert sum(1 for report in reports if report.exposed) == 18
    assert max(error for report in reports for error in report.errors.values()) < 1e-6
    assert not any(report.exposed for report in tacit.audit("admm", parties=9, coalition_size=2, rho=rho, masked=True))


def test_the_larger_the_first_penalty_the_more_a_peer_knows_of_those_it_met():
    """λ⁰/ρ_1 is all that hides them: a spread of 0.1 for ρ_1 = 3, and of 2.9 for 0.1."""
    bits = {
        rho: max(tacit.audit("admm", parties=9, coalition=["p0"], rho=rho).bits.values())
        for rho in ((3.0, 0.0009), (0.1, 0.00005))
    }
    assert bits[3.0, 0.0009] == pytest.approx(bits[0.1, 0.00005] + np.log2(30), abs=0.1)
    alone = tacit.audit("admm", parties=9, coalition=["p0"], rho=(3.0, 0.0009), clip=64.0)
    assert alone.nearly, "of numbers up to 64, that is eight bits"


def test_admm_recipes_are_proved_to_the_last_victim():
    report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, iterations=6)
    assert len(report.exposed) == 8
    assert max(report.errors.values()) < 1e-9


@pytest.mark.slow
def test_masked_admm_of_many_groups_leaks_through_its_group_sums():
    """Fifteen peers in fives of three: the broadcast sums alone complete the system, masks or not."""
    report = tacit.audit("admm", parties=15, coalition=["p0"], group_size=3, iterations=7, masked=True)
    assert len(report.exposed) == 14
    assert max(report.errors.values()) < 1e-2, "the factors are large, and so is what they make of rounding"
    assert tacit.audit("admm", parties=15, coalition=["p0"], group_size=3, masked=True).exposed == {}


def test_pushsum_with_public_weights_is_linear_over_rounds():
    """With y public the models are quotients by known numbers, so rounds of unchanged vectors can be solved."""
    graph = nx.DiGraph([(i, (i + hop) % 7) for i in range(7) for hop in (1, 2, 3)] + [(0, 4)])
    report = tacit.audit("pushsum", parties=7, coalition=["p0"], graph=graph, masked=True, rounds=8)
    assert report.safe_rounds >= 2
    assert len(report.exposed) == 6
    assert max(report.errors.values()) < 1e-4


@pytest.mark.slow
def test_masked_admm_protects_against_every_coalition_of_up_to_three():
    for size in (1, 2, 3):
        for report in tacit.audit("admm", parties=9, coalition_size=size, group_size=3, iterations=4, masked=True):
            assert report.exposed == {}


def test_cesar_counterexample_and_the_graph_that_holds():
    i, j, q, m, k, l = range(6)  # noqa: E741
    nested = nx.Graph([(k, i), (k, j), (k, q), (l, i), (l, j), (l, q), (l, m), (m, i), (m, j)])
    report = tacit.audit("cesar", parties=6, coalition=["p4", "p5"], graph=nested)
    assert list(report.exposed) == ["p3"]
    assert report.errors["p3"] < 1e-9
    petersen = graphs.regular(10, 3, 5)
    assert not any(each.exposed for each in tacit.audit("cesar", parties=10, coalition_size=2, graph=petersen))


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"coalition": ["p9"]}, "p9 is nobody here"),
        ({"coalition": []}, "an empty coalition"),
        ({"coalition": ["p0", "p1", "p2", "p3"]}, "everyone"),
        ({"coalition": ["p0"], "rounds": 0}, "rounds must be a whole number"),
        ({"coalition": ["p0"], "drift": "slow"}, "drift must be"),
        ({"coalition_size": 4}, "coalition_size"),
        ({"coalition_size": 1, "coalition": ["p0"]}, "coalition_size"),
        ({"coalition": ["server"], "thresholt": 3}, "did you mean 'threshold'"),
    ],
)
def test_bad_questions(question, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        tacit.audit("secagg", parties=4, **question)


def test_the_command_line_tells_the_same():
    result = CliRunner().invoke(app, ["audit", "fedavg", "--parties", "3", "--json"])
    found = {tuple(each["coalition"]): sorted(each["exposed"]) for each in json.loads(result.stdout)["reports"]}
    assert found == {("p0",): [], ("p1",): [], ("p2",): [], ("server",): ["p0", "p1", "p2"]}
    table = CliRunner().invoke(app, ["audit", "secagg", "--parties", "3", "--coalition", "server"])
    assert "nobody" in table.stdout
    wrong = CliRunner().invoke(app, ["audit", "secagg", "--set", "threshold"])
    assert wrong.exit_code == 2


@pytest.mark.parametrize("drift", ["static", "free"])
def test_what_is_shared_by_design_is_known_from_the_first_round_whatever_the_drift(drift):
    server = tacit.audit("fedavg", parties=4, coalition=["server"], rounds=2, drift=drift)
    assert (sorted(server.exposed), server.safe_rounds) == (["p0", "p1", "p2", "p3"], 0)
    node = tacit.audit("gossip", parties=5, coalition=["p0"], graph="ring", rounds=2, drift=drift)
    assert (sorted(node.exposed), node.safe_rounds) == (["p1", "p4"], 0)


@pytest.mark.parametrize(
    ("protocol", "options"), [("pushsum", {"masked": True}), ("admm", {"masked": True}), ("cesar", {})]
)
def test_sums_over_everybody_expose_nobody_in_three_rounds_of_static_models(protocol, options):
    """At the default graphs and groups. Other graphs give other sums, which can be subtracted."""
    report = tacit.audit(protocol, parties=9, coalition=["p0"], rounds=3, **options)
    assert report.exposed == {}
    assert report.safe_rounds == 3
