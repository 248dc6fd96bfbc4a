"""Exposed entries of sparse vectors at full length: by probability, by count, on numbers, and where they are bounds."""

from itertools import combinations, product

import numpy as np
import pytest

import tacit
from support.numeric_auditor import Numbers
from support.sparse_attack import recover_entries
from tacit.auditing.auditor import Auditor
from tacit.auditing.engine.algebra.linear import RowSpace
from tacit.auditing.engine.symbolic_run import proof_vectors
from tacit.auditing.findings import LEAST_PROBABILITY, NoteCode, PatternBasis, Verdict
from tacit.auditing.preflight import preflight
from tacit.auditing.render.json_report import describe_report
from tacit.auditing.render.notes import render_note
from tacit.auditing.scope import Scope
from tacit.auditing.search.sparse_exposure import SparseExposure
from tacit.auditing.symbolic.forms import Form
from tacit.designs import graphs
from tacit.protocols import find
from tacit.runtime.agreement import terms_for

LENGTH = 89_834
SETTINGS = {"share": 0.3422, "masking": 2}
NESTED = [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (5, 3), (3, 0), (3, 1), (3, 2)]
"""View(4) = {0, 1, 2} and View(5) = {0, 1, 2, 3}."""


def names(n):
    return tuple(f"p{i}" for i in range(n))


def random_graph(seed):
    return {"kind": "regular", "degree": 6, "seed": seed}


def nested_pair(seed):
    """Returns two nodes that are no neighbours, and have three neighbours in common."""
    graph = graphs.regular(48, 6, seed=seed)
    pairs = ((k, m) for k, m in combinations(range(48), 2) if not graph.has_edge(k, m))
    return next([f"p{k}", f"p{m}"] for k, m in pairs if len(set(graph[k]) & set(graph[m])) == 3)


def exposure_of(coalition, options, n, **more):
    scope = Scope.of("cesar", names(n), options, **more)
    return SparseExposure(scope).search(tuple(coalition)).exposure


# --- random selections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_nested_pair_recovers_about_900_entries_of_a_round(seed):
    """Of 16 sampled positions, as many as there used to be, a hundredth is mostly none."""
    pair = nested_pair(seed)
    report = tacit.audit("cesar", parties=48, coalition=pair, graph=random_graph(seed), length=LENGTH, **SETTINGS)
    assert report.verdict is Verdict.EXPOSED
    assert report.sparse.basis is PatternBasis.PROBABILITY
    assert report.sparse.exact
    assert report.sparse.exposed_entries == pytest.approx(910.3, abs=0.1)
    assert report.sparse.probability == 1.0
    assert len(report.exposed) == len(report.sparse.by_victim) == 6
    assert max(report.errors.values()) < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_replay_recovers_as_many_entries_as_expected(seed):
    vectors = {party: vector * 0.1 for party, vector in proof_vectors(names(48), 1, LENGTH).items()}
    options = {"graph": random_graph(seed), **SETTINGS}
    outcome = tacit.aggregate(vectors, "cesar", allow_leaks=True, record=True, seed=seed, **options)
    sparse = SparseExposure(Scope.of("cesar", names(48), options, length=LENGTH))
    for pair in (nested_pair(seed), ["p0", "p1"]):
        found = recover_entries(outcome, pair)
        counts = {party: int(np.isfinite(entries).sum()) for party, entries in found.items()}
        expected = sparse.search(tuple(pair)).exposure
        assert abs(sum(counts.values()) - expected.exposed_entries) < 5 * np.sqrt(expected.exposed_entries) + 1e-9
        assert {party for party, count in counts.items() if count} <= set(expected.by_victim)
        for party, entries in found.items():
            assert np.nanmax(np.abs(entries - vectors[party]), initial=0.0) < 1e-5


def test_probabilities_are_those_of_all_selections_one_by_one():
    """Every selection of a small graph with unequal weights is solved by exact algebra."""
    options = {"graph": NESTED, "share": 0.3, "masking": 1}
    terms = Scope.of("cesar", names(6), options).terms
    for coalition in (("p4",), ("p4", "p5"), ("p0", "p5"), ("p1", "p2", "p4")):
        members = [int(party[1:]) for party in coalition]
        chance, by_victim = 0.0, dict.fromkeys(range(6), 0.0)
        for selected in product((False, True), repeat=6):
            forms = []
            for k in members:
                heard = [i for i in terms.view(k) if selected[i]]
                if len(heard) > 1:
                    forms.append(Form({("x", i, 0): terms.weight(i, k) for i in heard if i not in members}))
            honest = [("x", i, 0) for i in range(6) if i not in members]
            exposed = RowSpace([form for form in forms if form.terms], honest).list_determined()
            weight = 0.3 ** sum(selected) * 0.7 ** (6 - sum(selected))
            chance += weight * bool(exposed)
            for _, i, _ in exposed:
                by_victim[i] += weight
        found = exposure_of(coalition, options, 6, length=1000)
        assert found.exposed_entries == pytest.approx(1000 * chance, rel=1e-6)
        assert found.by_victim == pytest.approx(
            {f"p{i}": 1000 * each for i, each in by_victim.items() if each}, rel=1e-6
        )
        assert found.probability == pytest.approx(1 - (1 - chance) ** 1000, rel=1e-6)


def test_static_models_are_exposed_by_selections_of_several_rounds():
    """One receiver of four sees other sets in every round; their differences are single entries."""
    options = {"graph": "complete", "share": 0.5, "masking": 1}
    fresh = exposure_of(["p0"], options, 5, length=1000, rounds=2, drift="free")
    assert (fresh.exposed_entries, fresh.probability) == (0, 0)
    still = exposure_of(["p0"], options, 5, length=1000, rounds=2)
    # Entries are alike: 2 of the 4 select it in the one round, and these and one more in the other, or the like.
    subsets = [frozenset(np.flatnonzero(each)) for each in product((0, 1), repeat=4)]
    sent = [each if len(each) > 1 else frozenset() for each in subsets]
    hits = sum(bool(a and b and len(a ^ b) == 1) for a in sent for b in sent)
    assert still.exposed_entries == pytest.approx(1000 * hits / 256, rel=1e-6)
    assert still.safe_rounds == 1
    assert (still.vectors, fresh.vectors) == (1, 2)


def test_more_entries_make_an_exposure_likely_that_is_rare_in_each():
    options = {"graph": NESTED, "share": 0.01, "masking": 2}
    short, long = (exposure_of(("p4", "p5"), options, 6, length=length) for length in (10, 100_000))
    assert 0 < short.probability < LEAST_PROBABILITY <= long.probability
    rare = tacit.audit("cesar", parties=6, coalition=["p4", "p5"], length=10, **options)
    assert (rare.verdict, rare.exposed) == (Verdict.NOTHING_FOUND, {})
    assert tacit.audit("cesar", parties=6, coalition=["p4", "p5"], **options).exposed


def test_what_no_selection_exposes_holds():
    report = tacit.audit("cesar", parties=5, coalition=["p0"], share=0.5, masking=2)
    assert report.sparse.exposed_entries == 0
    assert report.verdict is Verdict.HOLDS


# --- the same on numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3))])
def test_counts_are_those_of_an_independent_auditor_on_numbers(seed):
    """Given vectors decide which entries are selected: the audit counts them, and numbers are solved entry by entry."""
    chance = np.random.default_rng(seed)
    n, entries = int(chance.integers(4, 8)), 12
    graph = {"kind": "regular", "degree": 3 if n % 2 == 0 else 4, "seed": seed} if n > 4 else "complete"
    vectors = {party: chance.normal(size=entries).round(3).tolist() for party in names(n)}
    options = {"graph": graph, "share": float(chance.choice([0.4, 0.6])), "sparsifier": "topk", "masking": 1}
    numbers = Numbers("cesar", n, entries=entries, vectors=vectors, **options)
    sparse = SparseExposure(Scope.of("cesar", names(n), options, vectors=vectors))
    exposing = 0
    for coalition in (*combinations(names(n), 2), *((party,) for party in names(n))):
        found = sparse.search(coalition).exposure
        assert found.basis is PatternBasis.VECTORS
        counted = {party: round(parts[0] * entries) for party, parts in numbers.exposed(coalition).items()}
        assert found.by_victim == counted
        exposing += bool(counted)
    assert exposing


def test_given_vectors_are_counted_entry_by_entry_in_a_replay():
    vectors = {party: vector * 0.1 for party, vector in proof_vectors(names(12), 1, 3000).items()}
    options = {"graph": {"kind": "regular", "degree": 4}, "share": 0.4, "sparsifier": "topk", "masking": 2}
    outcome = tacit.aggregate(vectors, "cesar", allow_leaks=True, record=True, **options)
    sparse = SparseExposure(Scope.of("cesar", names(12), options, vectors=vectors))
    worst = max(combinations(names(12), 2), key=lambda pair: sparse.search(pair).exposure.exposed_entries)
    found = {party: int(np.isfinite(each).sum()) for party, each in recover_entries(outcome, worst).items()}
    assert sparse.search(worst).exposure.by_victim == {party: count for party, count in found.items() if count} != {}


# --- preflight -----------------------------------------------------------------------------------------------------


def test_settings_that_expose_a_hundredth_of_the_entries_are_refused():
    with pytest.raises(tacit.LeakRefused, match="of 89,834 entries") as caught:
        tacit.aggregate([np.zeros(LENGTH, np.float32)] * 48, "cesar", adversary=2, graph=random_graph(0), **SETTINGS)
    assert caught.value.report.sparse.exposed_entries > 900
    assert max(caught.value.report.errors.values()) < 1e-9


def test_what_is_not_refused_says_how_selections_were_counted():
    out = tacit.aggregate([np.zeros(50)] * 5, "cesar", share=0.5, masking=2)
    assert any("no selection exposes an entry" in warning or "at random" in warning for warning in out.warnings)


def test_longer_models_than_were_audited_are_audited_again():
    options = {"graph": NESTED, "share": 0.0012, "masking": 2, "adversary": 2}
    federation = tacit.Federation("cesar", names(6), **options)
    federation.average([np.zeros(1000)] * 6)
    with pytest.raises(tacit.LeakRefused, match="of 40,000,000 entries"):
        federation._checked.check_length(40_000_000)


def test_a_preflight_depends_on_the_length():
    protocol, terms = find("cesar"), terms_for(find("cesar"), names(6), {"graph": NESTED, "share": 0.01, "masking": 2})
    notes = preflight(protocol, terms, adversary=2, rounds=1, length=10)
    (note,) = (note for note in notes if note.code is NoteCode.SELECTIONS)
    assert note["probability"] > 0
    assert "at random" in render_note(note)
    with pytest.raises(tacit.LeakRefused):
        preflight(protocol, terms, adversary=2, rounds=1, length=100_000)


# --- bounds and assumptions ----------------------------------------------------------------------------------------


def test_topk_without_vectors_is_an_assumption_and_says_so():
    report = tacit.audit("cesar", parties=5, coalition=["p0"], share=0.5, masking=2, sparsifier="topk")
    assert report.sparse.basis is PatternBasis.ASSUMED
    assert report.verdict is Verdict.NOTHING_FOUND


def test_too_many_selections_are_sampled_with_a_bound(monkeypatch):
    options = {"graph": NESTED, "share": 0.5, "masking": 2}
    exact = exposure_of(("p4", "p5"), options, 6)
    monkeypatch.setattr("tacit.auditing.engine.patterns.pattern_solver.MOST_PATTERNS", 3)
    sampled = exposure_of(("p4", "p5"), options, 6)
    assert sampled.basis is PatternBasis.SAMPLED
    assert not sampled.exact
    assert exact.exposed_entries < sampled.most_entries
    assert sampled.exposed_entries == pytest.approx(exact.exposed_entries, rel=0.2)


def test_models_that_drift_little_are_nearly_exposed_where_static_ones_are():
    question = {"parties": 5, "coalition": ["p0"], "share": 0.5, "masking": 1, "rounds": 3, "prior": 1.0}
    little, much = (tacit.audit("cesar", drift=drift, **question) for drift in (1e-6, 0.5))
    assert little.verdict is Verdict.NEARLY_EXPOSED
    assert little.sparse.if_static
    assert much.verdict is not Verdict.NEARLY_EXPOSED
    assert not much.victims


def test_an_eavesdropper_on_sealed_links_adds_nothing():
    options = {"graph": NESTED, "share": 0.5, "masking": 2}
    alone, joined = (exposure_of(who, options, 6) for who in (("p4", "p5"), ("p4", "p5", "onlooker")))
    assert alone.by_victim == joined.by_victim != {}
    assert exposure_of(("onlooker",), options, 6).exposed_entries == 0


def test_the_report_has_the_numbers_as_data_and_in_words():
    report = tacit.audit("cesar", parties=6, coalition=["p4", "p5"], length=5000, graph=NESTED, share=0.5)
    told = describe_report(report)["sparse"]
    assert (told["basis"], told["length"], told["exposes"]) == ("probability", 5000, True)
    assert f"{report.sparse.exposed_entries:,.0f} of 5,000 entries" in told["in_words"]


# --- bad input -----------------------------------------------------------------------------------------------------


def test_vectors_of_another_length_than_the_model_are_refused():
    question = {"parties": 4, "coalition": ["p0"], "share": 0.5, "sparsifier": "topk", "masking": 1}
    vectors = [np.ones(8)] * 4
    with pytest.raises(tacit.ConfigError, match="8 entries, but models have length=9; try: give vectors"):
        tacit.audit("cesar", vectors=vectors, length=9, **question)
    assert tacit.audit("cesar", vectors=vectors, **question).sparse.length == 8
    assert tacit.audit("cesar", vectors=vectors, length=8, **question).sparse.length == 8
    for wrong in ([np.ones(8), np.ones(8), np.ones(8), np.ones(7)], [np.ones(8)] * 3, [np.full(8, np.nan)] * 4):
        with pytest.raises(tacit.ConfigError, match="one vector of finite numbers"):
            tacit.audit("cesar", vectors=wrong, **question)


def test_a_coalition_of_everybody_is_refused_with_the_largest_that_is_not():
    with pytest.raises(tacit.ConfigError, match="at most 3 of the 4 parties"):
        tacit.audit("cesar", parties=4, coalition=["p0", "p1", "p2", "p3"], share=0.5)
    with pytest.raises(tacit.ConfigError, match="at most 3 of the 4 parties"):
        Auditor(Scope.of("cesar", names(4), {"share": 0.5})).report(names(4))
