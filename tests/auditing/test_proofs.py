"""The arguments of docs/claims.md, each tried by the audit on few parties before it is believed of many.

Wherever an argument is given, the audit must find what it says; and where one more member would break it, it must not
be given.
"""

import math
import re
from contextlib import suppress
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from support.paths import ROOT
from tacit.auditing.auditor import Auditor
from tacit.auditing.proofs import argument_for, arguments_for
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import list_coalitions
from tacit.core.errors import TacitError
from tacit.core.protocol_facts import ArgumentCode
from tacit.core.suite import SERVER
from tacit.designs import Batches, Partition, Random, graphs
from tacit.designs.circle import secure_degree
from tacit.runtime.simulation.faults import Fault

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "claims.md"
NAMES = (
    "one sum",
    "circle",
    "whole batches",
    "fresh sums",
    "private neighbours",
    "few neighbours",
    "disjoint groups",
    "plain",
)


def scope_of(protocol, n, rounds=1, drift="static", faults=(), seed=0, entries=None, **options):
    names = [f"p{i}" for i in range(n)]
    others = {"rounds": rounds, "drift": drift, "faults": faults, "seed": seed, "entries": entries}
    return Scope.of(protocol, names, options, **others)


def argued(scope, size, name=None):
    """Returns the best argument there is, or the one of a name."""
    asked = scope.protocol, scope.terms, size, scope.rounds, scope.drift
    return argument_for(*asked) if name is None else {each.name: each for each in arguments_for(*asked)}.get(name)


def leaking(scope, size, most=None):
    """Returns the coalitions of a size to which somebody is exposed, of the first so many."""
    auditor = Auditor(scope)
    every = list(list_coalitions(scope.protocol, scope.parties, size))
    if most is not None and len(every) > most:
        every = [every[place] for place in np.random.default_rng(size).choice(len(every), most, replace=False)]
    return [members for members in every if auditor.assess(members).victims]


def lost(*what):
    """Returns faults in which messages of a kind, from a party and in a round, are lost."""
    return [Fault(action="drop", message=kind, party=party, round=round_) for kind, party, round_ in what]


# --- one sum -------------------------------------------------------------------------------------------------------

ONE_SUM = [
    ("secagg", {}),
    ("secagg", {"rounds": 3, "drift": "free"}),
    ("secagg", {"rounds": 20}),
    ("secagg", {"participation": Batches(6, 2), "rounds": 2, "threshold": 6}),
    ("cesar", {"rounds": 2}),
    ("cesar", {"rounds": 2, "drift": "free"}),
    ("pushsum", {"masked": True, "rounds": 3}),
    ("admm", {"masked": True, "group_size": None, "iterations": 3}),
    ("admm", {"masked": True, "group_size": None, "iterations": 2, "rounds": 2, "rho": 2.0}),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("protocol", "options"), ONE_SUM)
def test_one_sum_is_all_that_anybody_learns(protocol, options):
    n = 6
    scope = scope_of(protocol, n, **options)
    auditor = Auditor(scope)
    for size in range(1, n - 1):
        argument = argued(scope, size, "one sum")
        assert (argument is not None) == (size <= getattr(scope.terms, "threshold", n))
        if argument is not None:
            for members in list_coalitions(scope.protocol, scope.parties, size):
                verdict = auditor.assess(members)
                assert verdict.victims == []
                assert verdict.smallest_group == n - len(set(members) - {SERVER})
    assert argued(scope, n - 1, "one sum") is None
    assert leaking(scope, n - 1)


def test_one_sum_takes_a_threshold_that_members_do_not_reach():
    scope = scope_of("secagg", 6, threshold=4)
    assert [argued(scope, size) is not None for size in (1, 2, 3, 4)] == [True] * 4
    loose = scope_of("secagg", 6, threshold=2)
    assert argued(loose, 2) is not None
    assert argued(loose, 3) is None
    assert {SERVER in members for members in leaking(loose, 3)} == {True}


def test_one_sum_holds_whoever_drops_out_if_every_sum_needs_everybody():
    lose = lost(("MaskedInput", "p1", 1), ("ShareKeys", "p3", 2), ("Unmask", "p0", 4))
    for options in ({"threshold": 6}, {"threshold": 4, "fewest": 6}):
        troubled = scope_of("secagg", 6, rounds=4, faults=lose, **options)
        for size in (1, 2, 3, 4):
            argument = argued(troubled, size, "one sum")
            assert (argument is not None) == (size <= troubled.terms.threshold)
            if argument is not None:
                assert argument.dropouts
                assert leaking(troubled, size) == []
    assert not argued(scope_of("secagg", 6, threshold=5), 1, "one sum").dropouts
    assert leaking(scope_of("secagg", 6, rounds=4, threshold=4, faults=lose), 1)


@pytest.mark.slow
def test_one_sum_of_the_entries_that_are_shared():
    for masking, size in ((2, 2), (3, 3), (2, 3), (1, 2)):
        scope = scope_of("cesar", 7, share=0.5, masking=masking, rounds=2, drift="free", entries=12)
        argument = argued(scope, size)
        assert (argument is not None) == (masking >= size)
        assert bool(leaking(scope, size)) == (argument is None)
    assert argued(scope_of("cesar", 7, share=0.5, masking=3, rounds=2), 2) is None  # other sets in every round


# --- circle --------------------------------------------------------------------------------------------------------


def test_circle_holds_as_long_as_too_few_collude_to_cut_it_in_two():
    for n, degree, threshold, seed in ((8, 4, 3, 0), (8, 4, 4, 1), (9, 6, 5, 2), (9, 4, 4, 4)):
        scope = scope_of("secagg", n, neighbours=degree, threshold=threshold, seed=seed, rounds=2)
        for size in range(1, 6):
            argument = argued(scope, size, "circle")
            assert (argument is not None) == (size <= threshold), (n, degree, size)
            if argument is not None:
                assert leaking(scope, size, 40) == []
        assert leaking(scope, threshold + 1, 40)


def test_circle_holds_for_sums_of_those_who_are_left_if_users_see_to_it():
    """With t − degree/2 − 1 chosen users in every run, and one more, it takes twice as many to cut it in two."""
    lose = lost(("MaskedInput", "p1", 1), ("ShareKeys", "p3", 2))
    ended = 0
    for degree, threshold, size in ((4, 3, 2), (4, 4, 3), (6, 4, 2), (6, 5, 3), (6, 5, 4)):
        options = {"neighbours": degree, "threshold": threshold, "rounds": 2, "drift": "free"}
        argument = argued(scope_of("secagg", 10, **options), size, "fresh sums")
        assert argument is not None
        assert argument.dropouts == (size - 1 < 2 * threshold - degree)
        for seed in range(3):
            with suppress(TacitError):  # of a circle that is too thin users end the round, and nothing is shown
                assert leaking(scope_of("secagg", 10, faults=lose, seed=seed, **options), size, 40) == []
                ended += 1
    assert ended > 5


def test_circle_is_met_by_the_degrees_that_plans_propose():
    for n in (65, 100, 1000):
        for size in (1, 2, 3, 5):
            degree, threshold = secure_degree(n, size / n, 0.1)
            scope = scope_of("secagg", n, neighbours=degree, threshold=threshold)
            assert argued(scope, size, "circle") is not None
            assert argued(scope, size, "fresh sums").dropouts


# --- whole batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["all", 6])
def test_whole_batches_hold_whoever_drops_out(neighbours):
    lose = lost(("MaskedInput", "p1", 1), ("AdvertiseKeys", "p4", 2), ("MaskedInput", "p9", 3), ("Unmask", "p0", 3))
    for policy, size in ((Batches(8, 4), 1), (Batches(8, 4), 2), (Batches(12, 4), 2), (Partition(6), 3)):
        options = {"participation": policy, "rounds": 4, "neighbours": neighbours}
        threshold = {"threshold": 6} if neighbours == 6 else {}
        calm, troubled = (scope_of("secagg", 12, faults=faults, **options, **threshold) for faults in ((), lose))
        argument = argued(calm, size)
        assert argument is not None
        assert argument.name == "whole batches"
        assert leaking(calm, size, 30) == []
        if argument.dropouts:
            assert leaking(troubled, size, 30) == []


def test_whole_batches_need_two_others_and_to_stay_whole():
    tight = scope_of("secagg", 8, participation=Batches(2, 2), rounds=3)
    assert argued(tight, 1) is None
    assert leaking(tight, 1)
    lose = lost(("MaskedInput", "p1", 1))
    partial = scope_of("secagg", 8, participation=Batches(8, 4, partial=True), rounds=3, faults=lose)
    assert argued(scope_of("secagg", 8, participation=Batches(4, 4, partial=True), rounds=3), 1) is None
    assert leaking(partial, 1)


# --- fresh sums ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{"sampled": 5}, {"participation": Random(6)}, {}, {"neighbours": 4}])
def test_fresh_sums_hold_whoever_is_chosen_and_drops_out(options):
    n = 8
    lose = lost(("MaskedInput", "p1", 1), ("AdvertiseKeys", "p4", 2), ("ShareKeys", "p5", 2))
    free = scope_of("secagg", n, rounds=3, drift="free", **options)
    troubled = scope_of("secagg", n, rounds=3, drift="free", faults=lose, **options)
    for size in (1, 2, 3):
        argument = argued(free, size)
        if argument is None:
            continue
        assert leaking(free, size, 40) == []
        if argument.dropouts:
            assert argument.name == "fresh sums"
            assert free.terms.smallest_sum - size >= 2
            assert leaking(troubled, size, 40) == []
    assert argued(free, 1).dropouts


def test_fresh_sums_are_not_of_models_that_stand_still():
    still = scope_of("secagg", 6, participation=Random(5), rounds=12)
    assert argued(still, 1) is None
    assert leaking(still, 1)
    assert argued(scope_of("secagg", 6, participation=Random(5)), 1).name == "fresh sums"  # one round is as good


# --- private neighbours, few neighbours ----------------------------------------------------------------------------


def drawn_graphs():
    """Yields graphs of all sorts: with short cycles and without, regular and not, on few nodes."""
    yield from (nx.petersen_graph(), nx.heawood_graph(), nx.cycle_graph(7), nx.circulant_graph(11, [1, 3]))
    yield from (nx.convert_node_labels_to_integers(nx.cubical_graph()), nx.complete_bipartite_graph(3, 4))
    yield from (nx.moebius_kantor_graph(), nx.pappus_graph())
    rng = np.random.default_rng(5)
    while True:
        n = int(rng.integers(5, 10))
        graph = nx.gnp_random_graph(n, float(rng.uniform(0.3, 0.8)), seed=int(rng.integers(10**6)))
        if nx.is_connected(graph) and min(dict(graph.degree).values()) >= 2:
            yield graph


def some_graphs(count):
    return [graph for graph, _ in zip(drawn_graphs(), range(count), strict=False)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("graph", some_graphs(20), ids=str)
def test_private_neighbours_keep_colluding_receivers_apart(graph):
    n, least = len(graph), min(dict(graph.degree).values())
    scope = scope_of("cesar", n, graph=graph, rounds=2)
    for size in (1, 2, 3):
        if size > n - 2:
            continue
        argument, leaks = argued(scope, size), leaking(scope, size, 120)
        if argument is not None:
            assert bool(leaks) == argument.exposes
        if least <= size:
            assert argument.name == "few neighbours"
        if nx.girth(graph) >= 5:
            assert (argument.name == "private neighbours") == (least >= size + 1)
        if size == 1:
            assert argument.name in ("one sum", "private neighbours")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sparsifier", ["random", "topk"])
@pytest.mark.parametrize(
    "graph",
    [nx.petersen_graph(), pytest.param(graphs.regular(20, 4, 5), marks=pytest.mark.slow), nx.heawood_graph()],
    ids=len,
)
def test_private_neighbours_hold_for_any_selection_if_s_is_the_number_of_members(graph, sparsifier):
    options = {"graph": graph, "share": 0.6, "sparsifier": sparsifier, "entries": 10}
    for masking in range(1, min(dict(graph.degree).values())):
        for seed in (0, 1):
            scope = scope_of("cesar", len(graph), masking=masking, seed=seed, **options)
            for size in (1, 2, 3):
                argument = argued(scope, size)
                assert (argument is not None) == (size <= masking)
                if argument is not None:
                    assert (argument.name, argument.dropouts) == ("private neighbours", True)
                    assert leaking(scope, size, 25) == []


def test_private_neighbours_hold_whoever_drops_out():
    graph = graphs.regular(20, 4, 5)
    for size, lose in ((1, lost(("Masked", "p3", None))), (3, lost(("Selection", "p3", None), ("Masked", "p8", None)))):
        options = {"graph": graph, "masking": size}
        argument = argued(scope_of("cesar", 20, **options), size)
        assert (argument.name, argument.dropouts) == ("private neighbours", True)
        assert leaking(scope_of("cesar", 20, faults=lose, **options), size, 60) == []
    # With everybody as a neighbour, one that some have heard and others have not is told apart.
    lose = [Fault(action="drop", message="Masked", party="p3", to="p0")]
    assert not argued(scope_of("cesar", 7), 2).dropouts
    assert ("p0", "p1") in leaking(scope_of("cesar", 7, faults=lose), 2)


def directed_graphs():
    yield from (graphs.exponential(n) for n in (5, 8, 9))
    yield nx.circulant_graph(11, [1, 3]).to_directed()
    drawn = (graphs.random_directed(9, degree, seed) for degree in (3, 4) for seed in range(9))
    yield from (graph for graph in drawn if min(dict(graph.in_degree).values()) >= 2)
    for n, hops in ((7, (1, 2, 4)), (13, (1, 3, 9)), (13, (0, 1, 3, 9)), (11, (1, 3, 4, 5, 9))):
        graph = nx.DiGraph()
        graph.add_edges_from((i, (i + hop) % n) for i in range(n) for hop in hops if hop)
        yield graph


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "graph",
    [pytest.param(graph, marks=[pytest.mark.slow] if len(graph) > 11 else []) for graph in directed_graphs()],
    ids=str,
)
def test_private_neighbours_keep_masked_pushes_apart(graph):
    for rounds in (1, 3):
        scope = scope_of("pushsum", len(graph), graph=graph, masked=True, rounds=rounds)
        for size in (1, 2, 3):
            argument = argued(scope, size)
            if argument is not None:
                assert argument.name in ("private neighbours", "few neighbours")
                assert bool(leaking(scope, size, 120)) == argument.exposes
            elif rounds == 1:
                assert size > 1


def test_private_neighbours_bound_what_is_learnt_of_an_entry():
    """How far every unit vector is from what is learnt, worked out for all members, is no less than the bound says."""
    tried = 0
    for graph in [*some_graphs(60), graphs.regular(40, 5, 5), graphs.regular(60, 6, 5)]:
        scope = scope_of("cesar", len(graph), graph=graph)
        terms = scope.terms
        weights = graphs.adjacency(graph) / (1.0 + np.maximum.outer(terms.degrees, terms.degrees))
        for size in (1, 2, 3):
            argument = argument_for(scope.protocol, terms, size)
            if argument is None or argument.name != "private neighbours":
                continue
            every = list(combinations(range(len(graph)), size))
            for members in every[:: max(1, len(every) // 60)]:
                learnt = np.delete(weights[list(members)], members, axis=1)
                basis = np.linalg.svd(learnt, full_matrices=False)[2]
                left = 1 - (basis**2).sum(axis=0)
                assert math.log2(left.min()) / -2 <= argument.bits + 1e-9
                tried += 1
    assert tried > 500


def test_few_neighbours_give_the_last_of_them_away():
    ring = scope_of("cesar", 8, graph="ring")
    assert argued(ring, 1).name == "private neighbours"
    argument = argued(ring, 2)
    assert (argument.name, argument.exposes) == ("few neighbours", True)
    assert ("p0", "p1") in leaking(ring, 2)
    pushes = scope_of("pushsum", 8, graph="ring", masked=True, rounds=2)
    assert argued(pushes, 2).exposes
    assert leaking(pushes, 2)


# --- plain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("gossip", {"graph": "ring", "rounds": 2}),
        ("gossip", {"graph": "ring", "share": 0.5, "entries": 12}),
        ("pushsum", {"graph": "exponential"}),
        ("pushsum", {"graph": "exponential", "private": True}),
        ("fedavg", {"rounds": 2}),
    ],
)
def test_plain_messages_show_vectors_to_whom_they_are_sent(protocol, options):
    scope = scope_of(protocol, 6, **options)
    auditor = Auditor(scope)
    for size in (1, 2, 3):
        argument = argued(scope, size)
        assert (argument.name, argument.exposes) == ("plain", True)
        for members in list_coalitions(scope.protocol, scope.parties, size):
            assert bool(auditor.assess(members).victims) == (scope.protocol.server is None or SERVER in members)


def test_plain_gossip_shows_neighbours_and_nobody_else():
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))
    scope = scope_of("gossip", 9, graph=graph, rounds=3)
    auditor = Auditor(scope)
    for members in list_coalitions(scope.protocol, scope.parties, 2):
        places = {int(party[1:]) for party in members}
        near = {f"p{i}" for place in places for i in graph[place]} - set(members)
        assert set(auditor.assess(members).victims) == near


@pytest.mark.parametrize(
    ("protocol", "options", "size"),
    [
        ("secagg", {"rounds": 2}, 2),
        ("secagg", {"participation": Batches(4, 4), "rounds": 2}, 2),
        ("cesar", {"graph": nx.convert_node_labels_to_integers(nx.cubical_graph())}, 1),
        ("cesar", {"rounds": 2}, 3),
        ("pushsum", {"masked": True, "graph": "exponential", "rounds": 2}, 1),
        ("admm", {"masked": True, "group_size": None, "iterations": 2}, 5),
    ],
)
def test_no_argument_says_fewer_bits_than_the_audit(protocol, options, size):
    scope = scope_of(protocol, 8, **options)
    auditor = Auditor(scope)
    argument = argued(scope, size)
    for members in list(list_coalitions(scope.protocol, scope.parties, size))[::7]:
        assert max(auditor.report(members).bits.values()) <= argument.bits + 1e-6


# --- of all coalitions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("secagg", {"threshold": 3, "rounds": 2}),
        ("secagg", {"participation": Random(5), "rounds": 3}),
        ("gossip", {"graph": "ring"}),
        ("cesar", {"graph": nx.complete_multipartite_graph(2, 2, 2)}),
        ("cesar", {"share": 0.6, "masking": 2, "rounds": 2, "entries": 8}),
        ("pushsum", {"graph": "exponential", "masked": True, "rounds": 2}),
        ("admm", {"group_size": 3, "iterations": 3}),
    ],
)
def test_fewer_members_learn_nothing_that_more_would_not(protocol, options):
    scope = scope_of(protocol, 6, **options)
    auditor = Auditor(scope)
    everyone = scope.protocol.everyone(scope.parties)
    exposed = {
        members: set(auditor.assess(members).victims) for size in (1, 2, 3) for members in combinations(everyone, size)
    }
    for members, victims in exposed.items():
        for fewer in combinations(members, len(members) - 1):
            if fewer:
                assert exposed[fewer] - set(members) <= victims


# --- disjoint groups -----------------------------------------------------------------------------------------------

DISJOINT = [
    (9, {"rounds": 6, "drift": "free"}),
    (10, {"rounds": 4, "drift": "free", "stages": 2}),
    (12, {"group_size": 4, "minimum": 4}),
    (16, {"minimum": 4, "rounds": 6, "drift": "free"}),
    (12, {"group_size": 5, "minimum": 4, "stages": 2}),
]


@pytest.mark.parametrize(("n", "options"), DISJOINT)
def test_disjoint_groups_leave_two_others_in_every_sum(n, options):
    scope = scope_of("rotating", n, **options)
    auditor = Auditor(scope)
    for size in range(1, 4):
        argument = argued(scope, size, "disjoint groups")
        assert (argument is not None) == (scope.terms.minimum - size >= 2)
        if argument is not None:
            assert argument.dropouts
            for members in list_coalitions(scope.protocol, scope.parties, size):
                verdict = auditor.assess(members)
                assert verdict.victims == []
                assert verdict.smallest_group >= argument.facts["others"]


@pytest.mark.parametrize(("n", "options"), DISJOINT)
@pytest.mark.parametrize("seed", range(4))
def test_disjoint_groups_hold_whoever_drops_out(n, options, seed):
    lose = [
        Fault(action=action, message=kind, chance=0.15, seed=seed + place)
        for place, (action, kind) in enumerate(
            [("silence", None), ("drop", "MemberPart"), ("drop", "MemberList"), ("delay", "MemberPart")]
        )
    ]
    scope = scope_of("rotating", n, faults=lose, **options)
    for size in (1, 2):
        if argued(scope, size) is not None:
            assert leaking(scope, size, 40) == []


def test_disjoint_groups_cover_static_vectors_of_one_member_within_the_gap():
    for n, gap in ((9, 4), (16, 5)):
        assert argued(scope_of("rotating", n, rounds=gap), 1).dropouts
        assert leaking(scope_of("rotating", n, rounds=gap), 1) == []
        lose = [Fault(action="silence", chance=0.1, seed=n)]
        assert leaking(scope_of("rotating", n, rounds=gap, faults=lose, minimum=3), 1) == []
        assert argued(scope_of("rotating", n, rounds=gap + 1), 1) is None
        assert argued(scope_of("rotating", n, rounds=gap, stages=2), 1) is None
    lose = [Fault(action="silence", party="p0", round=1)]
    assert leaking(scope_of("rotating", 9, rounds=2, faults=lose, stages=2, group_size=4), 1)


# --- the page ------------------------------------------------------------------------------------------------------


def test_the_page_has_every_argument_and_the_tests_that_try_it():
    page = PAGE.read_text(encoding="utf-8")
    headings = [heading.lower() for heading in re.findall(r"^### (.*)$", page, re.MULTILINE)]
    assert [name for name in NAMES if name not in headings] == []
    sources = [each.read_text(encoding="utf-8") for each in (ROOT / "src" / "tacit" / "protocols").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"\bPrivacyArgument\(\s*ArgumentCode\.(\w+)", source)}
    assert {ArgumentCode[name] for name in named} == set(ArgumentCode) == set(NAMES)
    rows = dict(re.findall(r"^\| \[([^\]]+)\]\([^)]*\) \|.*\| (`test_\w+`.*) \|$", page, re.MULTILINE))
    tests = {name for name in globals() if name.startswith("test_")}
    for name in NAMES:
        tried = set(re.findall(r"`(test_\w+)`", rows[name]))
        assert tried
        assert tried <= tests


def test_nothing_is_argued_of_what_is_not_covered():
    for protocol, options, size in (
        ("secagg", {"participation": Batches(4, 2), "rounds": 3}, 1),
        ("secagg", {"sampled": 5, "rounds": 3}, 1),
        ("pushsum", {"masked": True, "private": True}, 1),
        ("pushsum", {"masked": True, "weighted": True}, 1),
        ("admm", {"masked": True, "group_size": 3, "iterations": 2}, 1),
        ("admm", {"iterations": 2}, 1),
        ("cesar", {"share": 0.5, "masking": 2, "rounds": 2}, 1),
    ):
        assert argued(scope_of(protocol, 6, **options), size) is None
    scope = scope_of("secagg", 6)
    assert argument_for(scope.protocol, scope.terms, 0) is None
    assert argument_for(scope.protocol, scope.terms, 6) is None
