"""Coalitions that are alike: that all of them are counted, and that they, and nothing else, are alike to the audit."""

from itertools import combinations, pairwise, permutations

import networkx as nx
import numpy as np
import pytest

from tacit.auditing.auditor import Auditor
from tacit.auditing.scope import Scope
from tacit.auditing.search import coalitions as coalition_search
from tacit.auditing.search.coalitions import count_coalitions, find_symmetry, group_coalitions, list_coalitions
from tacit.core.protocol import Terms
from tacit.core.suite import SERVER
from tacit.designs import Batches, Random, graphs
from tacit.designs.symmetry import Symmetry, all_alike, keeps, symmetry_of
from tacit.protocols import REGISTRY
from tacit.protocols.shapes.neighbourhood import GraphTerms
from tacit.protocols.shapes.star import StarTerms
from tacit.runtime.simulation.faults import Fault

pytestmark = pytest.mark.long


def scope_of(protocol, n, rounds=1, drift="static", faults=(), **options):
    return Scope.of(protocol, [f"p{i}" for i in range(n)], options, rounds=rounds, drift=drift, faults=faults)


def drop(**what):
    return [Fault(action="drop", **what)]


CUBE = nx.convert_node_labels_to_integers(nx.cubical_graph())
LONG = nx.circulant_graph(9, [1, 3])

SETTINGS = [
    (1, "fedavg", 5, {}),
    (1, "secagg", 6, {}),
    (1, "secagg", 6, {"threshold": 2, "rounds": 2}),
    (1, "secagg", 6, {"neighbours": 5}),
    (None, "secagg", 7, {"neighbours": 4, "rounds": 2}),
    (1, "secagg", 5, {"participation": Random(5), "rounds": 2}),
    (1, "secagg", 5, {"sampled": 5, "drift": "free", "rounds": 2}),
    (None, "secagg", 5, {"sampled": 4, "rounds": 2}),
    (None, "secagg", 5, {"participation": Random(4), "rounds": 2}),
    (4, "secagg", 8, {"participation": Batches(4, 2), "rounds": 4}),
    (4, "secagg", 8, {"participation": Batches(6, 2), "rounds": 20}),
    (1, "secagg", 6, {"participation": Batches(6, 3), "rounds": 2}),
    (2, "secagg", 6, {"rounds": 2, "faults": drop(party="p2", message="MaskedInput", round=2)}),
    (3, "secagg", 6, {"rounds": 2, "participation": Batches(6, 2), "faults": drop(party="p0", message="MaskedInput")}),
    (None, "secagg", 6, {"rounds": 2, "faults": drop(message="MaskedInput", chance=0.2)}),
    (1, "gossip", 7, {"graph": "ring", "rounds": 2}),
    (1, "gossip", 5, {}),
    (2, "gossip", 6, {"graph": nx.star_graph(5)}),
    (2, "gossip", 7, {"graph": nx.complete_bipartite_graph(3, 4)}),
    (3, "gossip", 6, {"graph": nx.path_graph(6)}),
    (4, "gossip", 7, {"graph": "ring", "faults": [Fault(action="silence", party="p0")]}),
    (None, "gossip", 6, {"graph": "ring", "share": 0.5}),
    (1, "cesar", 10, {"graph": nx.petersen_graph()}),
    (1, "cesar", 8, {"graph": CUBE, "rounds": 2}),
    (1, "cesar", 9, {"graph": LONG, "drift": "free", "rounds": 2}),
    (1, "cesar", 6, {"graph": nx.complete_multipartite_graph(2, 2, 2)}),
    (4, "cesar", 8, {"graph": CUBE, "faults": drop(party="p0", message="Masked")}),
    (None, "cesar", 6, {"share": 0.5, "masking": 2}),
    (1, "pushsum", 8, {"graph": "exponential", "masked": True, "rounds": 2}),
    (1, "pushsum", 6, {"graph": "ring", "rounds": 2}),
    (1, "pushsum", 7, {"graph": ["ring", "exponential"], "rounds": 3}),
    (2, "pushsum", 6, {"graph": ["ring", [(0, 3)]], "rounds": 2}),
    (1, "pushsum", 6, {"masked": True, "rounds": 2}),
    (None, "pushsum", 5, {"masked": True, "private": True}),
    (1, "admm", 6, {"masked": True, "group_size": None, "iterations": 3}),
    (1, "admm", 9, {"masked": True, "iterations": 4}),
    (1, "admm", 9, {"iterations": 3}),
    (1, "admm", 9, {"rho": (3.0, 0.0009)}),
    (3, "admm", 6, {"group_size": 2, "rho": (3.0, 0.1, 0.7)}),
    (1, "admm", 9, {"iterations": 6}),
    (3, "admm", 6, {"group_size": 2, "iterations": 3}),
    (4, "admm", 8, {"group_size": 2, "iterations": 3}),
    (2, "admm", 10, {"masked": True, "iterations": 2}),
]
"""How many kinds of single parties there are (None if all are different), and where."""


def described(setting):
    _, protocol, n, options = setting
    return f"{protocol} {n} {' '.join(f'{name}={value}' for name, value in options.items())}"[:90]


def is_trivial(symmetry):
    """Returns whether every place is in a class of its own, and nothing moves."""
    return not symmetry.moves and all(len(members) == 1 for members in symmetry.classes)


def generators(symmetry):
    """Yields permutations of which all others are made up."""
    yield from symmetry.moves
    n = sum(map(len, symmetry.classes))
    for members in symmetry.classes:
        for a, b in pairwise(members):
            swapped = list(range(n))
            swapped[a], swapped[b] = b, a
            yield tuple(swapped)


def moved(move, parties, coalition):
    """Returns who is where members of a coalition go, the server where it is."""
    places = {party: place for place, party in enumerate(parties)}
    return frozenset(party if party == SERVER else parties[move[places[party]]] for party in coalition)


def pieces(scope, alike, size):
    """Returns the orbits as they are by definition: coalitions joined to where every generator takes them."""
    left = set(map(frozenset, list_coalitions(scope.protocol, scope.parties, size)))
    while left:
        fresh = [left.pop()]
        found = set(fresh)
        while fresh:
            here = fresh.pop()
            for move in generators(alike):
                there = moved(move, scope.parties, here)
                if there not in found:
                    found.add(there)
                    fresh.append(there)
        left -= found
        yield found


@pytest.mark.parametrize("setting", SETTINGS, ids=described)
def test_every_coalition_is_counted_once_with_one_that_it_can_be_moved_to(setting):
    singles, protocol, n, options = setting
    scope = scope_of(protocol, n, **options)
    alike = find_symmetry(scope)
    assert (singles is None) == is_trivial(alike)
    for size in (1, 2, 3):
        found = group_coalitions(scope.protocol, scope.parties, alike, size)
        assert sum(kind.many for kind in found) == count_coalitions(scope.protocol, scope.parties, size)
        if size == 1 and singles is not None:
            assert len(found) == singles + (scope.protocol.server is not None)
        expected = list(pieces(scope, alike, size))
        assert len(expected) == len(found)
        for kind in found:
            (orbit,) = (each for each in expected if frozenset(kind.coalition) in each)
            assert len(orbit) == kind.many
        everyone = set(list_coalitions(scope.protocol, scope.parties, size))
        assert {kind.coalition for kind in found} <= everyone  # spelled as the audit spells them


def differences(scope, alike, sizes=(1, 2, 3)):
    """Yields every coalition of which the audit says something else once parties have changed places."""
    auditor = Auditor(scope)
    verdicts = {}
    for size in sizes:
        for coalition in list_coalitions(scope.protocol, scope.parties, size):
            verdict = auditor.assess(coalition)
            verdicts[frozenset(coalition)] = verdict.victims, verdict.safe_rounds, verdict.smallest_group
    for members, (victims, *rest) in verdicts.items():
        for move in generators(alike):
            other, *others = verdicts[moved(move, scope.parties, members)]
            if set(other) != moved(move, scope.parties, victims) or others != rest:
                yield members


@pytest.mark.sampled(3)
@pytest.mark.parametrize("setting", [each for each in SETTINGS if each[0] is not None], ids=described)
def test_the_audit_says_the_same_of_all_of_a_kind(setting):
    _, protocol, n, options = setting
    scope = scope_of(protocol, n, **options)
    sizes = (1, 2) if protocol == "admm" and n > 8 else (1, 2, 3)  # its rounds have most to look at
    assert list(differences(scope, find_symmetry(scope), sizes)) == []


# --- what is not alike ---------------------------------------------------------------------------------------------


def test_what_is_no_symmetry_is_refused():
    ring = graphs.adjacency(graphs.ring(6))
    turned, swapped = (1, 2, 3, 4, 5, 0), (1, 0, 2, 3, 4, 5)
    assert keeps((ring,), turned)
    assert not keeps((ring,), swapped)
    assert not keeps((ring,), (0, 0, 2, 3, 4, 5))
    directed = graphs.adjacency(graphs.exponential(6))
    assert keeps((directed,), turned)
    assert not keeps((directed,), (0, 5, 4, 3, 2, 1))  # a ring can be turned over, this cannot


@pytest.mark.parametrize(
    ("protocol", "options", "terms"),
    [
        ("gossip", {"n": 6, "graph": "ring"}, GraphTerms),
        ("cesar", {"n": 6, "graph": nx.ladder_graph(3)}, GraphTerms),
        ("secagg", {"n": 6, "participation": Batches(4, 2), "rounds": 3}, StarTerms),
    ],
)
def test_the_audit_finds_out_terms_that_claim_too_much(protocol, options, terms, monkeypatch):
    monkeypatch.setattr(terms, "ties", lambda _: ())
    scope = scope_of(protocol, **options)
    assert find_symmetry(scope) == all_alike(6)
    assert list(differences(scope, find_symmetry(scope)))


def test_nothing_is_alike_in_an_audit_that_treats_parties_in_particular():
    scope = scope_of("gossip", 5, graph="ring")
    assert not is_trivial(find_symmetry(scope))
    vectors = {party: np.zeros(4) for party in scope.parties}
    lucky, late = Fault(action="drop", chance=0.5), Fault(action="delay", party="p0")
    for particular in (
        {"vectors": vectors},
        {"links": [("p0", "p1")]},
        {"stand_ins": {"p0": REGISTRY["gossip"].party}},
        {"faults": (lucky,)},
        {"faults": (late,)},
        {"faults": (Fault(action="drop", number=3),)},
    ):
        assert is_trivial(find_symmetry(Scope(scope.protocol, scope.terms, **particular)))
    assert Terms(scope.terms.settings, scope.terms.parties).ties() is None  # as of a protocol that says nothing


# --- how they are found --------------------------------------------------------------------------------------------


def random_ties(rng, n):
    """Returns tables with few different numbers in them, so that some have symmetries: a graph, and marks."""
    table = (rng.random((n, n)) < rng.choice([0.1, 0.3, 0.5])).astype(np.int64)
    both_ways = np.triu(table, 1) + np.triu(table, 1).T
    return [[table], [both_ways], [both_ways, np.diag(rng.integers(0, 2, n))]][rng.integers(3)]


@pytest.mark.slow
def test_all_symmetries_of_small_tables_are_found():
    rng = np.random.default_rng(0)
    several = 0
    for trial in range(150):
        n = int(rng.integers(3, 7))
        ties = random_ties(rng, n)
        found = symmetry_of(ties, n)
        everything = Symmetry(tuple((i,) for i in range(n)), tuple(p for p in permutations(range(n)) if keeps(ties, p)))
        assert all(keeps(ties, move) for move in generators(found)), trial
        for size in range(1, n):
            parties = tuple(map(str, range(n)))
            mine, all_of_them = (
                group_coalitions(REGISTRY["gossip"], parties, each, size) for each in (found, everything)
            )
            assert sorted(kind.many for kind in mine) == sorted(kind.many for kind in all_of_them), trial
        several += len(everything.moves) > 1
    assert several > 50


@pytest.mark.parametrize(
    ("graph", "order"),
    [
        (nx.petersen_graph(), 120),
        (nx.heawood_graph(), 336),
        (CUBE, 48),
        (nx.frucht_graph(), 1),
        (graphs.ring(12), 24),
        (graphs.exponential(12), 12),
        (nx.tutte_graph(), 3),
    ],
)
def test_groups_of_well_known_graphs(graph, order):
    n = len(graph)
    found = symmetry_of([graphs.adjacency(nx.convert_node_labels_to_integers(graph))], n)
    group = coalition_search._group(found.moves, n)
    assert len(group) == order


def test_both_ways_to_tell_kinds_apart_agree(monkeypatch):
    for protocol, n, options in (
        ("cesar", 14, {"graph": nx.heawood_graph()}),
        ("gossip", 12, {"graph": "ring"}),
        ("gossip", 12, {"graph": nx.complete_multipartite_graph(3, 3, 3, 3)}),
        ("secagg", 12, {"participation": Batches(12, 2)}),
    ):
        scope = scope_of(protocol, n, **options)
        listed = [set(coalition_search.representative_coalitions(scope, size)) for size in (1, 2, 3, 4)]
        with monkeypatch.context() as patched:
            patched.setattr(coalition_search, "MOST_MOVES", 1)
            assert [set(coalition_search.representative_coalitions(scope, size)) for size in (1, 2, 3, 4)] == listed


def test_all_coalitions_of_three_of_a_hundred():
    for protocol, options, expected in (
        ("secagg", {}, 2),
        ("secagg", {"participation": Batches(50, 5)}, 210 + 1540),
        ("secagg", {"participation": Batches(100, 5)}, 2 + 3),
        ("gossip", {"graph": "ring"}, 833),
        ("pushsum", {"graph": "exponential", "masked": True}, 1617),
        ("pushsum", {"graph": "complete", "masked": True}, 1),
    ):
        scope = scope_of(protocol, 100, **options)
        found = coalition_search.representative_coalitions(scope, 3)
        assert len(found) == expected
        assert sum(kind.many for kind in found) == count_coalitions(scope.protocol, scope.parties, 3)


def test_there_is_no_answer_if_there_are_too_many_kinds():
    scope = scope_of("cesar", 30, graph={"kind": "regular", "degree": 4, "girth": 5})
    assert is_trivial(find_symmetry(scope))
    assert coalition_search.representative_coalitions(scope, 2, most=434) is None
    assert len(coalition_search.representative_coalitions(scope, 2, most=435)) == 435
    assert coalition_search.representative_coalitions(scope, 14) is None
    assert coalition_search.representative_coalitions(scope_of("secagg", 30, sampled=20), 10) is None


def test_all_but_one_and_the_server_with_all_but_two():
    found = coalition_search.representative_coalitions(scope_of("secagg", 5), 4)
    assert [(len(kind.coalition), kind.many) for kind in found] == [(4, 10), (4, 5)]
    assert [kind.many for kind in coalition_search.representative_coalitions(scope_of("secagg", 5), 5)] == [
        5
    ]  # nobody is left without the server


def test_members_of_a_kind_are_parties_in_their_order():
    for coalition, _ in coalition_search.representative_coalitions(scope_of("gossip", 9, graph="ring"), 3):
        assert coalition in set(combinations(tuple(f"p{i}" for i in range(9)), 3))
