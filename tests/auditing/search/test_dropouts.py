"""Parties that are missing: the smallest sum that settings allow, chance over many rounds, and who meets in a round."""

import numpy as np
import pytest

import tacit
from tacit.app.terminal.audit_tables import make_question
from tacit.auditing.findings import Verdict
from tacit.auditing.questions import Question
from tacit.auditing.render.plan import describe_lost_rounds, describe_proposal, name_verdict
from tacit.auditing.render.verdicts import describe_coverage, render_summary
from tacit.auditing.scope import Scope
from tacit.auditing.summary import summarize_reports
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.errors import TacitError
from tacit.core.protocol_facts import ReasonCode
from tacit.core.suite import Update
from tacit.designs import Batches, Random, Sampled
from tacit.runtime.simulation.participation_trace import trace_participation

pytestmark = pytest.mark.long
WORST = ("p0", "p7", "p20")


def vectors(count):
    return [np.full(3, float(i)) for i in range(count)]


# --- the smallest sum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "protocol", "options", "cure"),
    [
        (3, "secagg", {"threshold": 2}, "threshold"),
        (4, "secagg", {"adversary": 2}, "threshold"),
        (6, "secagg", {"adversary": 3, "threshold": 4}, "threshold"),
        (9, "secagg", {"adversary": 2, "participation": Batches(6, 3)}, "threshold"),
        (9, "cesar", {"adversary": 2}, "masking"),
    ],
)
def test_what_a_dropout_would_expose_is_refused(count, protocol, options, cure):
    with pytest.raises(tacit.LeakRefused, match=rf"drops? out.*use a larger {cure}") as caught:
        tacit.aggregate(vectors(count), protocol, **options)
    report = caught.value.report
    assert report.exposed
    assert max(report.errors.values()) < 1e-6, "it is proved on a round in which they are missing"


@pytest.mark.parametrize(
    ("count", "protocol", "options"),
    [
        (3, "secagg", {}),
        (4, "secagg", {"adversary": 2, "threshold": 4}),
        (6, "secagg", {"adversary": 3, "threshold": 5}),
        (9, "secagg", {"adversary": 1, "participation": Batches(6, 3)}),
        (9, "cesar", {"adversary": 2, "masking": 2}),
    ],
)
def test_what_none_would_is_not(count, protocol, options):
    assert tacit.aggregate(vectors(count), protocol, **options).average


def test_a_report_says_what_happens_at_worst():
    alone = tacit.audit("secagg", parties=3, coalition=["p0"], threshold=2)
    assert (alone.exposed, alone.at_worst, alone.fewest) == ({}, ("p1",), 2)
    two = tacit.audit("secagg", parties=4, coalition=["p1", "p2"])
    assert (two.exposed, len(two.at_worst), two.fewest) == ({}, 1, 3)
    safe = tacit.audit("secagg", parties=9, coalition=["server"])
    assert (safe.at_worst, safe.fewest) == ((), 7)
    assert "with only 7 contributors" in describe_coverage(safe.coverage)
    peers = tacit.audit("cesar", parties=8, coalition=["p0", "p1"])
    assert (peers.exposed, peers.at_worst, peers.fewest) == ({}, ("p2",), 3), "who is silent is in nobody's sum"
    none = tacit.audit("admm", parties=9, coalition=["p0"])
    assert (none.at_worst, none.fewest) == ((), None), "nobody may be missing"


# --- the worst sample ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"sampled": 3}, {"sampled": 3, "oversampled": 12, "threshold": 12}])
@pytest.mark.parametrize("server", [[], ["server"]])
def test_the_worst_sample_is_analysed_and_not_only_those_of_some_seeds(options, server):
    members = [*server, "p20", "p7"]
    report = tacit.audit("secagg", parties=30, coalition=members, **options)
    assert (report.exposed, report.exposing_seeds) == ({}, ()), "none of eight seeds samples both"
    assert (report.verdict, report.at_worst) == (Verdict.EXPOSED_IN_WORST_CASE, ("p0",))
    assert (report.worst_contributors, report.worst_samples, report.fewest) == (WORST, (WORST,), 3)
    text = render_summary(summarize_reports([report], Question("secagg", 30, options)))
    assert "If the server samples p0, p7 and p20, " in text.verdict


def test_a_sample_that_exposes_somebody_is_refused_by_name():
    with pytest.raises(tacit.LeakRefused, match="if the server samples p0, p1 and p2; try: use a larger sampled"):
        tacit.aggregate(vectors(30), "secagg", adversary=2, sampled=3)
    assert tacit.aggregate(vectors(30), "secagg", adversary=2, sampled=4).average


def test_a_sample_of_more_members_than_it_has_places_leaves_one_for_a_victim():
    report = tacit.audit("secagg", parties=12, coalition=["p0", "p1", "p2", "p3"], sampled=3, threshold=9)
    assert (report.at_worst, report.fewest) == (("p4",), 3)
    alone = tacit.audit("secagg", parties=12, coalition=["p0"], sampled=3)
    assert (alone.at_worst, alone.worst_contributors) == ((), ("p0", "p1", "p2"))


def run_samples(monkeypatch, policy, samples, models):
    """Returns the sums of rounds in which the server samples given users, with the others asked as far as allowed."""
    sums = []
    for sample in samples:
        places = [int(party[1:]) for party in sample]
        spare = [place for place in range(len(models)) if place not in places]
        asked = sorted([*places, *spare][: policy.most(len(models))])
        monkeypatch.setattr(type(policy), "ask", lambda *_, asked=asked: asked)
        monkeypatch.setattr(type(policy), "choose", lambda *_, places=places: places)
        out = tacit.aggregate(models, "secagg", participation=policy, threshold=6, allow_leaks=True)
        assert out.contributors == sample
        sums.append(len(sample) * out.average["p0"])
    return np.array(sums)


@pytest.mark.parametrize(("members", "rounds"), [(["server", "p3"], 2), (["p3"], 2), (["server"], 7)])
@pytest.mark.parametrize("policy", [Sampled(6), Sampled(6, of=8), Random(6)])
def test_a_server_that_chooses_samples_singles_out_static_models(monkeypatch, members, rounds, policy):
    """It needs two rounds with a colluding user, and seven alone. The audit names the samples, which users accept."""
    question = {"parties": 12, "coalition": members, "participation": policy, "threshold": 6}
    report = tacit.audit("secagg", rounds=rounds, **question)
    assert (report.victims, report.verdict) == ([], Verdict.EXPOSED_IN_WORST_CASE)
    assert report.at_worst == (("p6",) if rounds == 2 else ("p0", "p1", "p2", "p3", "p4", "p5", "p6"))
    assert len(report.worst_samples) == rounds
    assert tacit.audit("secagg", rounds=rounds - 1, **question).at_worst == ()
    assert tacit.audit("secagg", rounds=rounds, drift="free", **question).at_worst == ()

    models = np.random.default_rng(1).normal(size=(12, 20))
    sums = run_samples(monkeypatch, policy, report.worst_samples, models)
    matrix = np.array([[party in sample for party in report.parties] for sample in report.worst_samples], dtype=float)
    known = np.array([party in members for party in report.parties])
    for victim in report.at_worst:
        unit = np.array([party == victim for party in report.parties], dtype=float)
        factors = np.linalg.lstsq(matrix[:, ~known].T, unit[~known])[0]
        found = factors @ (sums - matrix[:, known] @ models[known])
        assert np.abs(found - models[int(victim[1:])]).max() < 1e-5


def test_no_more_batches_are_lost_than_the_threshold_allows():
    """Of five batches of two, with threshold 7 of 10, three can be lost."""
    report = tacit.audit("secagg", parties=10, coalition=["p0"], participation=Batches(10, 2), norm=1.0, noise=1.0)
    assert (report.at_worst, report.fewest) == ((), 4)
    assert report.epsilon_at_worst > report.epsilon, "the noise of four counts, and not that of ten"


def test_a_worst_case_in_which_the_round_ends_early_counts_only_with_an_argument():
    """In a sparse graph, users refuse the dropouts that are tried, and others may be accepted."""
    options = {"neighbours": 8, "norm": 1.0, "noise": 1.0}
    covered = tacit.audit("secagg", parties=30, coalition=["server", "p0"], **options)
    assert (covered.at_worst, covered.fewest, covered.coverage.worst_case) == ((), None, True)
    assert covered.epsilon_at_worst > covered.epsilon, "a sum may have 21 contributors"
    unknown = tacit.audit("secagg", parties=30, coalition=["server", *(f"p{i}" for i in range(7))], **options)
    assert (unknown.at_worst, unknown.coverage.worst_case) == (None, False)


def test_rounds_that_dropouts_could_make_differ_are_not_called_safe():
    """One round with the fewest contributors is safe by itself. Its difference from another round is a vector."""
    question = {"parties": 5, "coalition": ["server", "p0"], "rounds": 20}
    calm, lossy = tacit.audit("secagg", **question), tacit.audit("secagg", dropout=0.05, **question)
    assert (calm.verdict, calm.at_worst, calm.fewest) == (Verdict.NOTHING_FOUND, (), 4)
    assert (calm.uncompared, calm.coverage.exhaustive) == (True, False)
    assert lossy.verdict is Verdict.EXPOSED
    for dropout in (0.0, 0.05):
        whole = tacit.audit("secagg", threshold=5, dropout=dropout, **question)
        assert (whole.verdict, whole.argument, whole.uncompared) == (Verdict.HOLDS, "one sum", False)


def test_what_there_was_no_time_for_is_not_called_safe():
    reports = tacit.audit("cesar", parties=12, coalition_size=2)
    assert len(reports) == 66
    assert all(report.at_worst or report.at_worst is None for report in reports), "of two neighbours one is left alone"
    assert sum(report.at_worst is None for report in reports) > 0
    assert sum(bool(report.at_worst) for report in reports) >= 32
    assert not any(report.coverage.worst_case for report in reports if report.at_worst is None)


def test_an_outcome_warns_of_the_few_that_were_left():
    crash = [tacit.Fault(action="crash", party="p2")]
    out = tacit.aggregate(vectors(3), "secagg", threshold=2, faults=crash, allow_leaks=True)
    assert any("p0 and p1 alone" in warning for warning in out.warnings)
    crash = [tacit.Fault(action="crash", party="p3")]
    out = tacit.aggregate(vectors(4), "secagg", adversary=2, faults=crash, allow_leaks=True)
    assert any("any 2 of them can work out the rest" in warning for warning in out.warnings)
    assert tacit.aggregate(vectors(4), "secagg", faults=crash).warnings == ()


# --- chance over many rounds ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dropouts_over_rounds_expose_those_who_dropped_out():
    question = {"parties": 12, "coalition": ["server"], "rounds": 40}
    assert tacit.audit("secagg", **question).exposed == {}
    lost = tacit.audit("secagg", dropout=0.02, **question)
    assert len(lost.exposed) == 3
    assert max(lost.errors.values()) < 1e-9
    assert tacit.audit("secagg", dropout=0.02, drift="free", **question).exposed == {}
    few = tacit.audit("secagg", dropout=0.02, **{**question, "rounds": 11})
    assert few.exposed.keys() <= lost.exposed.keys(), "the same luck, seen for a shorter time"


def find_proposal(plan, reason):
    return next(each for each in plan.proposals if each.reason.code is reason)


@pytest.mark.slow
def test_a_plan_takes_them_into_account():
    with_dropouts = find_proposal(tacit.plan(12, rounds=50), ReasonCode.EVERYBODY)
    assert (with_dropouts.verdict, with_dropouts.needs_drift) == (Verdict.HOLDS, True)
    assert with_dropouts.safe_rounds < 50
    without = find_proposal(tacit.plan(12, rounds=50, dropout=0), ReasonCode.EVERYBODY)
    # Dropouts could still make sums of different users, which static models do not survive.
    assert (without.verdict, without.needs_drift, without.safe_rounds) == (Verdict.HOLDS, True, 50)
    everybody = find_proposal(tacit.plan(12, rounds=50, dropout=0), ReasonCode.ALL_OR_NOTHING)
    assert (everybody.verdict, everybody.needs_drift, everybody.argument) == (Verdict.HOLDS, False, "")
    assert "5% dropouts" in describe_proposal(with_dropouts)
    assert "no dropouts" in describe_proposal(without)


@pytest.mark.parametrize(
    ("parties", "colluding", "rounds", "dropout"), [(5, 2, 20, 0.05), (5, 2, 20, 0), (4, 1, 1, 0.6), (6, 1, 3, 0.1)]
)
def test_the_command_of_a_proposal_gives_the_verdict_of_the_plan(parties, colluding, rounds, dropout):
    plan = tacit.plan(parties, coalition_size=colluding, rounds=rounds, dropout=dropout)
    for proposal in (each for each in plan.proposals if each.fine):
        question = make_question(plan, proposal)
        found = summarize_reports(list(question.answers()), question)
        assert found.verdict is proposal.verdict, question.command
        assert question.drift == ("free" if proposal.needs_drift else "static")
        assert proposal.without_dropouts == (question.dropout < dropout)
        assert ("if" in name_verdict(proposal.verdict, proposal.needs_drift, proposal.without_dropouts)) == (
            proposal.needs_drift or proposal.without_dropouts
        )


def test_rounds_that_need_everybody_hold_whoever_drops_out():
    first = tacit.plan(5, coalition_size=2, rounds=20).proposals[0]
    assert (first.reason.code, first.verdict, first.argument) == (ReasonCode.ALL_OR_NOTHING, Verdict.HOLDS, "one sum")
    assert (first.coverage.dropout, first.unconditional, first.without_dropouts) == (0.05, True, False)


def test_a_plan_says_how_many_rounds_dropouts_cost():
    plan = tacit.plan(4, rounds=10, dropout=0.2)
    all_to_all = find_proposal(plan, ReasonCode.ALL_TO_ALL)
    # A round that anybody is missing from ends without an average.
    assert all_to_all.ending == pytest.approx(0.8**4)
    assert describe_lost_rounds(all_to_all) == "with these dropouts about 4 of 10 rounds would end with an average"
    assert {describe_lost_rounds(each) for each in plan.proposals if each.protocol in ("cesar", "pushsum")} == {""}
    assert {each.ending for each in tacit.plan(4, rounds=10, dropout=0).proposals} == {1.0}


@pytest.mark.parametrize("chance", [-0.1, 1.5, "0.1", True, float("nan")])
def test_chances_that_are_none(chance):
    for ask in (
        lambda: tacit.audit("secagg", parties=4, coalition=["p0"], dropout=chance),
        lambda: tacit.plan(4, dropout=chance),
    ):
        with pytest.raises(tacit.ConfigError, match="from 0 to 1"):
            ask()


# --- who meets in a round ------------------------------------------------------------------------------------------


def test_members_who_meet_in_a_later_round_are_not_missed():
    """Five hold the threshold of Random(7), and are not all asked in the first rounds."""
    members = ["server", *(f"p{i}" for i in range(5))]
    question = {"parties": 10, "participation": Random(7), "drift": "free"}
    report = tacit.audit("secagg", coalition=members, rounds=60, **question)
    met = {str(recipe) for recipe in report.exposed.values()}
    assert sorted(report.exposed) == ["p5", "p6", "p7", "p8", "p9"]
    assert all("5 members asked" in each for each in met)
    first = min(recipe.round for recipe in report.exposed.values())
    assert report.safe_rounds == first - 1 > 2, "not in the first two rounds"
    assert tacit.audit("secagg", coalition=members[:-1], rounds=60, **question).exposed == {}, "four are too few"
    # The round in which they meet, run whole, says the same.
    whole = tacit.audit("secagg", coalition=members, rounds=first, **question)
    here = {victim for victim, recipe in report.exposed.items() if recipe.round == first}
    assert here == whole.exposed.keys()
    assert max(whole.errors.values()) < 1e-9


def test_rounds_that_were_lost_do_not_end_an_audit():
    lost = [{"action": "silence", "party": "server", "round": number} for number in (1, 2)]
    report = tacit.audit("secagg", parties=4, coalition=["server"], rounds=30, faults=lost)
    assert (report.exposed, report.smallest_group) == ({}, 4)


@pytest.mark.slow
def test_a_rehearsal_chooses_as_the_server_does():
    """Whatever goes wrong that can be rehearsed at all."""
    compared = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(4, 9))
        policies = [{}, {"participation": Random(n - 1)}, {"participation": Sampled(n // 2, n - 1)}]
        policies += [{"participation": Batches(2, 2)}] if n % 2 == 0 else []
        faults = []
        for _ in range(int(rng.integers(1, 4))):
            who = [None, "server", f"p{rng.integers(n)}"][int(rng.integers(3))]
            common = {
                "round": None if rng.random() < 0.5 else int(rng.integers(1, 5)),
                "chance": float(rng.choice([0.3, 1.0])),
            }
            kind = [None, "MaskedInput", "AdvertiseKeys"][int(rng.integers(3))]
            if kind is None:
                faults.append({"action": "silence", "party": who, **common})
            elif who != "server":
                faults.append({"action": "drop", "message": kind, "party": who, **common})
        policy = policies[int(rng.integers(len(policies)))]
        scope = Scope.of("secagg", tuple(f"p{i}" for i in range(n)), policy, faults=faults, rounds=5, seed=seed)
        chosen = list(trace_participation(SymbolicSimulation(scope.protocol, scope.terms, 1, seed, scope.faults), 5))
        simulation = scope.real(1)
        for each in chosen:
            try:
                found = simulation.average({party: Update(np.zeros(1)) for party in scope.parties}).contributors
            except TacitError:
                found = ()
            assert each.summed == found, (seed, policy, faults)
            compared += bool(found)
    assert compared > 50


# --- on the way ----------------------------------------------------------------------------------------------------


def test_what_was_lost_on_the_way_is_seen_on_the_wire_alone():
    question = {"parties": 4, "graph": "ring", "faults": [{"action": "drop", "party": "p1", "to": "p0"}]}
    assert sorted(tacit.audit("gossip", coalition=["p0"], **question).exposed) == ["p3"]
    tapped = tacit.audit("gossip", coalition=["p0", "onlooker"], links=[("p0", "p1")], **question)
    assert sorted(tapped.exposed) == ["p1", "p3"], "p0 has the key to what the onlooker heard"
    assert ("p1", "p0") in tapped.heard
    alone = tacit.audit("gossip", coalition=["onlooker"], links=[("p0", "p1")], sealed=False, **question)
    assert sorted(alone.exposed) == ["p0", "p1"]


@pytest.mark.parametrize("member", ["p0", "p1", "p2"])
def test_nobody_learns_its_own_vector_on_a_bad_day(member):
    """Coalitions that are alike share one smallest round, and what is learnt in it is told of the one that asked."""
    report = tacit.audit("secagg", parties=3, coalition=[member], threshold=2, allow_leaks=True)
    assert report.at_worst
    assert member not in report.at_worst


def test_others_who_learn_on_a_bad_day_are_not_called_nobody():
    reports = tacit.audit("fedavg", parties=3)
    text = render_summary(summarize_reports(reports, Question("fedavg", 3, {})))
    worst = (
        "In the worst case, a round with only 2 contributors, each of the 3 parties can recover another party's vector"
    )
    assert worst in text.verdict
