"""Audits and plans say ε beside who is exposed: by whose noise, of what, and at worst."""

import json
import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr
from typer.testing import CliRunner

import tacit
from tacit.app.cli.main import app
from tacit.app.terminal.audit_tables import make_question
from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import AccountingMethod, NoteCode, Verdict
from tacit.auditing.render.epsilon import describe_epsilon
from tacit.auditing.render.json_report import describe_report
from tacit.auditing.scope import Scope
from tacit.core.suite import Parties
from tacit.designs.graphs import column_stochastic, metropolis_weight
from tacit.privacy import BoundKind, shared_noise
from tacit.protocols import REGISTRY

pytestmark = pytest.mark.long

NOISED = {"noise": 1.0, "norm": 1.0, "prior": 1.0}


def worth(protocol, parties, honest, rounds=1, sensitivity=None, **options):
    """Returns the least proved ε of the noise of so many honest ones, from the settings alone."""
    settings = REGISTRY[protocol].settings_from({"noise": 1.0, "norm": 1.0, "allow_leaks": True, **options})
    terms = settings.bind(Parties(f"p{i}" for i in range(parties)))
    return shared_noise(terms, 100_000, honest=honest, sensitivity=sensitivity).best_epsilon(1e-5, rounds).epsilon


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("protocol", "coalition", "options", "honest"),
    [
        ("fedavg", ["server"], {}, 1),
        ("fedavg", ["p0"], {}, 6),
        ("secagg", ["server"], {}, 7),
        ("secagg", ["server", "p0", "p1"], {}, 5),
        ("secagg", ["p0", "p1", "p2"], {}, 4),
        ("gossip", ["p0"], {"graph": "ring"}, 1),
        ("cesar", ["p0"], {}, 6),
        ("cesar", ["p0", "p1"], {}, 5),
        ("pushsum", ["p0"], {}, 1),
        ("pushsum", ["p0"], {"masked": True}, 6),
        ("admm", ["p0"], {"masked": True, "group_size": None}, 6),
    ],
)
@pytest.mark.parametrize("rounds", [1, 2])
def test_what_counts_is_the_noise_of_those_behind_whatever_is_seen(protocol, coalition, options, honest, rounds):
    report = tacit.audit(protocol, parties=7, coalition=coalition, rounds=rounds, **NOISED, **options)
    company = honest if rounds == 1 or REGISTRY[protocol].common_result else 1
    by_sums, by_matrix = report.accounting.by_sums, report.accounting.by_matrix
    assert by_sums.epsilon == pytest.approx(worth(protocol, 7, company, rounds, **options))
    figures = [by_sums.epsilon] if by_matrix is None else [by_sums.epsilon, by_matrix.epsilon]
    assert report.epsilon == min(figures)
    assert (report.company, report.delta) == (company, 1e-5)
    smaller = report.epsilon < by_sums.epsilon
    assert report.accounting.method is (AccountingMethod.MATRIX if smaller else AccountingMethod.SMALLEST_SUM)
    warned = any(note.code is NoteCode.NOISE_OF_ONE for note in report.notes)
    assert warned == (company < honest and not smaller)


def test_what_was_drawn_besides_masks_and_noise_does_not_count():
    """Behind λ⁰, which is uniform, vectors of a group are hidden from algebra; for ε it is as if λ⁰ were known."""
    report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, iterations=2, **NOISED)
    assert report.exposed == {}
    assert report.smallest_group > 1
    assert report.epsilon == pytest.approx(worth("admm", 9, 1, group_size=3, iterations=2))


def test_of_many_rounds_too():
    report = tacit.audit("secagg", parties=7, coalition=["server"], rounds=40, **NOISED)
    assert report.epsilon == pytest.approx(worth("secagg", 7, 7, 40))


def test_at_worst_as_many_drop_out_as_may():
    report = tacit.audit("secagg", parties=9, coalition=["server", "p0"], threshold=6, **NOISED)
    assert report.epsilon == pytest.approx(worth("secagg", 9, 8))
    assert report.fewest == 6
    assert report.epsilon_at_worst == pytest.approx(worth("secagg", 9, 5))
    assert report.epsilon_at_worst > report.epsilon


def test_whoever_sees_nothing_has_no_epsilon_to_speak_of():
    report = tacit.audit("secagg", parties=5, coalition=["onlooker"], **NOISED)
    assert report.epsilon == 0.0


def test_without_noise_or_a_bound_nothing_is_said():
    assert tacit.audit("secagg", parties=5, coalition=["server"]).epsilon is None
    assert tacit.audit("secagg", parties=5, coalition=["server"], noise=1.0).epsilon is None
    assert tacit.audit("secagg", parties=5, coalition=["server"], norm=1.0).epsilon is None


@pytest.mark.parametrize(
    ("parties", "rounds", "noise", "closed", "tight"), [(3, 20, 1.0, 38.1, 34.6), (8, 1, 2.0, 1.76, 1.36)]
)
def test_the_least_proved_bound_is_reported_with_its_proof(parties, rounds, noise, closed, tight):
    report = tacit.audit("secagg", parties=parties, coalition=["server"], rounds=rounds, noise=noise, norm=1.0)
    assert report.epsilon == pytest.approx(tight, rel=5e-3)
    assert report.epsilon < closed
    assert report.epsilon_bound.kind is BoundKind.GAUSSIAN
    told = describe_report(report)
    assert (told["epsilon_bound"], told["epsilon"]) == ("gaussian", report.epsilon)
    assert f"ε = {tight:g} at δ = 1e-05" in describe_epsilon([report])
    assert "Proof: the exact ε of Gaussian noise" in describe_epsilon([report])
    coarse = tacit.audit("secagg", parties=parties, coalition=["server"], noise=1.0, norm=1.0, bits=16)
    assert coarse.epsilon_bound.kind is BoundKind.RENYI
    assert "Rényi" in describe_epsilon([coarse])


def test_per_sample_it_is_by_the_sensitivity():
    report = tacit.audit("secagg", parties=5, coalition=["server"], noise=1.0, sensitivity=0.02)
    assert report.epsilon == pytest.approx(worth("secagg", 5, 5, sensitivity=0.02))
    assert report.epsilon < tacit.audit("secagg", parties=5, coalition=["server"], **NOISED).epsilon


def test_long_vectors_of_few_bits_are_rounded_by_more():
    question = {"parties": 5, "coalition": ["server"], "bits": 16, "clip": 16.0, **NOISED}
    short, long = (tacit.audit("secagg", length=length, **question).epsilon for length in (10, 1_000_000))
    assert long > 1.3 * short


def test_noise_is_a_setting_and_may_be_given_as_one():
    names = tuple(f"p{i}" for i in range(5))
    one, two = (
        Scope.of("secagg", names, {"norm": 1.0, **options}, noise=noise)
        for options, noise in (({"noise": 0.7}, 0.0), ({}, 0.7))
    )
    assert one.noise == two.noise == 0.7
    assert one.terms.settings == two.terms.settings
    assert Auditor(one).report(("server",)).epsilon == Auditor(two).report(("server",)).epsilon


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"sensitivity": math.nan}, "sensitivity"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"length": 0}, "length"),
    ],
)
def test_what_cannot_be_asked_is_named(wrong, named):
    with pytest.raises(tacit.ConfigError, match=named):
        tacit.audit("secagg", parties=5, coalition=["server"], **{**NOISED, **wrong})


def test_what_is_exposed_is_exposed_noise_and_all_and_its_recipe_is_proved():
    report = tacit.audit("fedavg", parties=4, coalition=["server"], **NOISED)
    assert set(report.exposed) == {"p0", "p1", "p2", "p3"}
    assert max(report.proof_errors.values()) < 1e-9
    assert min(report.errors.values()) > 1.0, "what it recovers has the noise in it"
    assert max(report.bits.values()) < 1.0


def test_the_command_says_so_too():
    asked = ["audit", "secagg", "--parties", "5", "--coalition", "server", "--set", "noise=1.0", "--set", "norm=1.0"]
    shown = CliRunner().invoke(app, asked)
    assert "ε = " in shown.output
    assert "if as many drop out as may" in " ".join(shown.output.split())
    (report,) = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["reports"]
    assert report["epsilon"] == pytest.approx(worth("secagg", 5, 5))
    assert report["epsilon_at_worst"] > report["epsilon"]
    silent = CliRunner().invoke(app, asked[:6])
    assert "ε = " not in silent.output


@pytest.mark.slow
def test_a_plan_says_how_much_noise_each_of_its_proposals_takes():
    proposed = tacit.plan(7, coalition_size=1, rounds=5, entries=100)
    alone = tacit.privacy.local_sigma(1.0, 1e-5, sensitivity=1.0, rounds=5)
    assert proposed.sigma == pytest.approx(alone / math.sqrt(6))
    for proposal in proposed.proposals:
        assert proposal.sigma == pytest.approx(alone / math.sqrt(proposal.company))
        if proposal.verdict is Verdict.LEAKS_BY_DESIGN:
            assert proposal.company == 1
    whole = next(
        each for each in proposed.proposals if each.protocol == "secagg" and "participation" not in each.options
    )
    # Of the 5 who must be there at least, one colludes.
    assert whole.company == whole.options["threshold"] - 1
    shown = CliRunner().invoke(app, ["plan", "7", "--rounds", "5", "--entries", "100"]).output
    assert f" {whole.noise:.3g} " in shown


def test_the_noise_of_a_plan_gives_its_epsilon_in_an_audit():
    proposed = tacit.plan(5, rounds=20, dropout=0.05, entries=100)
    for proposal in proposed.proposals:
        if proposal.protocol != "secagg":
            continue
        question = replace(make_question(proposed, proposal), noise=proposal.noise, length=100)
        question = replace(question, options={**question.options, "norm": 1.0})
        worst = max(report.epsilon_at_worst for report in question.answers())
        assert 0.7 * proposed.epsilon <= worst <= proposed.epsilon


# --- over several rounds: what others pass on -----------------------------------------------------------------------


def exact(information, noise):
    """Returns the ε of Gaussian noise, if vectors of length 1 change their signs in so much information."""
    mu = 2 / noise * math.sqrt(information)

    def failing(epsilon):
        return math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))

    return brentq(lambda epsilon: failing(epsilon) - 1e-5, 0.0, 1000.0)


def information(signal, noise):
    """Returns uᵀ Bᵀ (A Aᵀ)⁺ B u, of B u among A times noise, for the best signs u that were found."""
    found = signal.T @ np.linalg.pinv(noise @ noise.T, rcond=1e-10) @ signal
    best = 0.0
    for start in (np.ones(len(found)), (-1.0) ** np.arange(len(found))):
        signs = start.copy()
        for _ in range(10):
            for t, row in enumerate(found):
                signs[t] = 1.0 if row @ signs - row[t] * signs[t] >= 0 else -1.0
        best = max(best, signs @ found @ signs)
    return best


def of_pushsum(graph, rounds):
    """Returns what the sums that client 0 hears of masked push-sum tell of another's steps, as it knows its own."""
    n, moved = len(graph), np.zeros((len(graph), len(graph)))
    for (j, i), part in column_stochastic(graph).items():
        moved[j, i] = part
    x, heard = np.zeros((n, n * rounds)), []
    for t in range(rounds):
        x[:, t * n : (t + 1) * n] += np.eye(n)
        heard.append(moved[0, 1:] @ x[1:])
        x = moved @ x
    seen = np.array(heard)
    seen[:, ::n] = 0.0
    return max(information(seen[:, i::n], seen) for i in range(1, n))


def of_cesar(graph, rounds, victim):
    """Returns what the sums that node 0 hears of cesar tell of a victim's models, if others bring what they heard."""
    n = len(graph)
    weights = np.zeros((n, n))
    for i, k in graph.edges:
        weights[i, k] = weights[k, i] = metropolis_weight(graph.degree[i], graph.degree[k])
    kept = np.diag(1 - weights.sum(axis=1))
    models, noise = np.zeros((n, rounds)), np.zeros((n, n * rounds))
    seen, heard = [], []
    for t in range(rounds):
        models[[0, victim]], noise[[0, victim]] = 0.0, 0.0  # these two bring what they like
        models[victim, t] = 1.0
        sent = noise.copy()
        sent[1:, t * n + 1 : (t + 1) * n] += np.eye(n - 1)
        seen.append(weights[0] @ models)
        heard.append(weights[0] @ sent)
        models, noise = kept @ models + weights @ models, kept @ noise + weights @ sent
    return information(np.array(seen), np.array(heard))


HOPS = nx.DiGraph([(p, (p + hop) % 6) for p in range(6) for hop in (1, 3, 4)])


@pytest.mark.parametrize(("rounds", "noise"), [(4, 1.0), (16, 6.0), (16, 1.0)])
def test_masked_clients_pass_on_noise_that_rounds_compared_take_off(rounds, noise):
    report = tacit.audit(
        "pushsum", parties=6, coalition=["p0"], graph=HOPS, masked=True, rounds=rounds, noise=noise, norm=1.0
    )
    real = exact(of_pushsum(HOPS, rounds), noise)
    assert report.smallest_group == 3
    assert report.epsilon >= real
    if rounds == 16:
        assert worth("pushsum", 6, 3, rounds, graph=HOPS, masked=True, noise=noise) < real, "three do not hide it"


def test_nodes_pass_on_what_their_neighbours_did_not_hear():
    graph = nx.complete_graph(9)
    told = of_cesar(graph, 8, 1)
    assert told > 1.19 * 8 / 8, "more than if each round had the noise of eight"
    report = tacit.audit("cesar", parties=9, coalition=["p0"], rounds=8, noise=6.0, norm=1.0)
    assert report.epsilon >= exact(told, 6.0)
    assert report.company == 1
    many = exact(of_cesar(graph, 32, 1), 1.0)
    assert worth("cesar", 9, 8, 32) < many <= worth("cesar", 9, 1, 32)


def test_a_sum_that_was_missed_counts_as_seen():
    """p0 hears nothing of the first round, and what was summed there is in what the others bring next."""
    lost = [{"action": "silence", "party": f"p{i}", "round": 1} for i in (0, 1, 2)]
    lost += [{"action": "drop", "party": "server", "to": "p0", "round": 1}]
    report = tacit.audit("secagg", parties=9, coalition=["p0"], threshold=6, rounds=2, faults=lost, **NOISED)
    assert report.company == 6
    assert report.accounting.by_sums.epsilon == pytest.approx(worth("secagg", 9, 6, 2, threshold=6))
    assert worth("secagg", 9, 8, 2, threshold=6) < report.epsilon < report.accounting.by_sums.epsilon


@pytest.mark.parametrize(("rounds", "epsilon"), [(10, 2.0), (50, 8.0)])
def test_the_noise_of_a_plan_is_enough_for_all_of_its_rounds(rounds, epsilon):
    proposals = tacit.plan(6, rounds=rounds, dropout=0.0, entries=100, epsilon=epsilon).proposals
    push = next(each for each in proposals if each.protocol == "pushsum")
    graph = nx.DiGraph([(p, (p + hop) % 6) for p in range(6) for hop in (1, 2, 4)])
    # A multiple of how far a vector can be moved, which is twice its length.
    assert exact(of_pushsum(graph, rounds), 2 * push.sigma) <= epsilon
    assert push.company == 1


# --- as few as settings allow ---------------------------------------------------------------------------------------


def test_at_worst_a_receiver_hears_as_few_as_masking_allows():
    names = [f"p{i}" for i in range(9)]
    report = tacit.audit("cesar", parties=9, coalition=["p0"], noise=6.0, norm=1.0)
    assert report.company == 8
    assert report.epsilon_at_worst == pytest.approx(worth("cesar", 9, 2, noise=6.0))
    federation = tacit.Federation("cesar", names, noise=6.0, norm=1.0, clip=1.0, seed=1)
    out = federation.average({name: np.zeros(10_000) for name in names}, absent=names[3:])
    assert (9 / 6.0 * np.std(out.average["p0"])) ** 2 == pytest.approx(2, rel=0.1), "it has the noise of two"
    more = tacit.audit("cesar", parties=9, coalition=["p0"], masking=3, noise=6.0, norm=1.0)
    assert more.epsilon_at_worst == pytest.approx(worth("cesar", 9, 4, noise=6.0))


def test_two_receivers_that_miss_different_ones_compare_their_sums():
    report = tacit.audit("cesar", parties=9, coalition=["p0", "p1"], masking=2, noise=6.0, norm=1.0)
    assert report.company == 7
    # With a colluder each, one hears a + b, and the other b + c.
    heard = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    real = exact(information(heard[:, 1:2], heard), 6.0)
    assert worth("cesar", 9, 2, noise=6.0) < worth("cesar", 9, 1, noise=6.0) == pytest.approx(report.epsilon_at_worst)
    assert real <= report.epsilon_at_worst


def test_those_who_weigh_differently_do_not_hide_each_other():
    """p0 hears two of weight 1/5 and two of weight 1/6, and at worst one of each."""
    graph = nx.Graph([(i, k) for i in (3, 4) for k in (0, 1, 2, 5, 6)] + [(0, 1), (0, 2)])
    report = tacit.audit("cesar", parties=7, coalition=["p0"], graph=graph, **NOISED)
    assert report.company == 2
    assert report.epsilon_at_worst == pytest.approx(worth("cesar", 7, 1, graph=graph))


@pytest.mark.parametrize("share", [0.7, 0.95])
def test_of_entries_that_are_selected_the_fewest_count_and_not_those_looked_at(share):
    for seed in range(3):
        report = tacit.audit("cesar", parties=9, coalition=["p0"], share=share, seed=seed, noise=6.0, norm=1.0)
        assert report.company == 2
        assert report.epsilon == report.epsilon_at_worst == pytest.approx(worth("cesar", 9, 2, share=share, noise=6.0))
        assert report.epsilon >= exact(1 / 2, 6.0)


@pytest.mark.slow
def test_a_plan_counts_on_as_few_as_its_settings_allow():
    for dropout, rounds, company in ((0.2, 1, 2), (0.0, 10, 1)):  # later others pass on what was not seen
        proposals = tacit.plan(12, dropout=dropout, rounds=rounds, entries=100).proposals
        cesar = next(each for each in proposals if each.protocol == "cesar")
        assert cesar.options["graph"]["degree"] == 3
        assert cesar.options["masking"] == 1
        assert cesar.company == company
