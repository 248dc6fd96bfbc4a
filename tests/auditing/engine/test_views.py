"""Onlookers, single entries, and what is not linear."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit import protocols
from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import PatternBasis, Verdict
from tacit.auditing.scope import Scope
from tacit.core.average import Average
from tacit.core.suite import Update
from tacit.designs import graphs
from tacit.protocols.gossip import GOSSIP, SharedEntries
from tacit.runtime.simulation.simulator import Simulation

# --- onlookers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", protocols.REGISTRY)
def test_an_onlooker_of_sealed_links_learns_who_when_and_how_much(protocol):
    report = tacit.audit(protocol, parties=6, coalition=["onlooker"], rounds=2)
    assert report.exposed == {}
    assert report.smallest_group == 6, "it can single out no sum at all"
    assert report.heard
    assert all(count >= 1 and size > 0 for count, size in report.heard.values())


def test_the_eavesdropper_has_an_older_name():
    question = {"parties": 4, "graph": "ring", "sealed": False}
    old, new = (tacit.audit("gossip", coalition=[name], **question) for name in ("onlooker", "eavesdropper"))
    assert new.coalition == old.coalition
    assert new.exposed.keys() == old.exposed.keys() != set()
    parties = ["eavesdropper", "a", "b", "c"]
    named = tacit.audit("gossip", parties=parties, coalition=["eavesdropper"], graph="ring")
    assert named.coalition == ("eavesdropper",), "a party may have that name"


def test_open_links_show_what_sealed_ones_hide():
    question = {"parties": 5, "graph": "ring", "coalition": ["onlooker"], "sealed": False}
    everywhere = tacit.audit("gossip", **question)
    assert len(everywhere.exposed) == 5
    assert max(everywhere.errors.values()) < 1e-9
    one = tacit.audit("gossip", links=[("p0", "p1")], **question)
    assert sorted(one.exposed) == ["p0", "p1"]
    assert set(one.heard) == {("p0", "p1"), ("p1", "p0")}


def test_masks_hide_vectors_from_an_onlooker_of_open_links():
    assert tacit.audit("secagg", parties=5, coalition=["onlooker"], sealed=False).exposed == {}


def test_an_onlooker_may_work_for_a_party():
    """Two receivers with nested views expose the difference; so do one receiver and a tap on the other's links.

    The tap also shows what p5 sends to p2, who hears only p4 besides, and p4 knows the mask that they share.
    """
    edges = [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (5, 3), (3, 0), (3, 1)]
    question = {"parties": 6, "graph": edges, "coalition": ["p4", "onlooker"]}
    taps = [("p5", f"p{i}") for i in range(4)]
    assert tacit.audit("cesar", links=taps, **question).exposed == {}
    heard = tacit.audit("cesar", links=taps, sealed=False, **question)
    assert sorted(heard.exposed) == ["p3", "p5"]
    assert max(heard.errors.values()) < 1e-9


def test_links_of_strangers_are_refused():
    with pytest.raises(tacit.ConfigError, match="p9"):
        tacit.audit("gossip", parties=4, coalition=["onlooker"], links=[("p0", "p9")])


# --- single entries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparsifier", ["random", pytest.param("topk", marks=pytest.mark.slow)])
def test_sparsification_exposes_some_entries_and_the_recipe_recovers_exactly_those(sparsifier):
    """On this graph nobody is exposed if all entries are shared, but selections of some make views nested."""
    graph = graphs.regular(10, 3, 5)
    question = {"parties": 10, "graph": graph, "length": 1000, "sparsifier": sparsifier}
    reports = tacit.audit("cesar", coalition_size=2, share=0.6, **question)
    leaking = [report for report in reports if report.exposed]
    assert leaking
    for report in leaking:
        assert all(0 < fraction < 1 for fraction in report.fractions.values())
        assert max(report.errors.values()) < 1e-9
        for place, recipe in enumerate(report.exposed.values()):
            assert place in recipe.pieces  # each was run at the pattern that exposes it most often
    whole = tacit.audit("cesar", coalition_size=2, share=1.0, **question)
    assert not any(report.exposed for report in whole)


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("pushsum", {"rounds": 2}), ("admm", {"parties": 9, "iterations": 5}), ("fedavg", {"coalition": ["server"]})],
)
def test_many_entries_of_a_whole_vector_fare_alike(protocol, options):
    question = {"parties": 5, "coalition": ["p0"], **options}
    one, many = tacit.audit(protocol, **question), _of_four_entries(protocol, **question)
    assert one.exposed.keys() == many.exposed.keys() != set()
    assert set(many.fractions.values()) == {1.0}
    assert max(many.errors.values()) < 1e-8
    long = _of_four_entries("secagg", parties=4, coalition=["server"], rounds=40)
    assert (long.smallest_group, long.entries) == (4, 1)


def _of_four_entries(protocol, *, parties, coalition, rounds=1, **options):
    """Returns a report on vectors of four entries, which are run on symbols all four."""
    names = tuple(f"p{i}" for i in range(parties))
    return Auditor(Scope.of(protocol, names, options, rounds=rounds, entries=4)).report(tuple(coalition))


def test_gossip_shows_the_share_that_is_sent():
    report = tacit.audit("gossip", parties=5, coalition=["p0"], share=0.25, sparsifier="topk")
    assert list(report.fractions.values()) == pytest.approx([0.25] * 4)
    assert max(report.errors.values()) < 1e-9


def test_the_entries_that_topk_selects_are_those_of_the_vectors_given():
    vectors = [np.eye(8)[i] * 5 + 0.01 for i in range(5)]
    report = tacit.audit("gossip", parties=5, coalition=["p0"], share=1 / 8, sparsifier="topk", vectors=vectors)
    assert report.sparse.basis is PatternBasis.VECTORS
    assert (report.sparse.length, report.sparse.exposed_entries) == (8, 4)
    assert report.sparse.by_victim == {f"p{i}": 1 for i in range(1, 5)}


def test_a_recipe_for_some_entries_wants_vectors_of_the_same_length():
    report = tacit.audit("gossip", parties=3, coalition=["p0"], share=0.5)
    names = ("p0", "p1", "p2")
    real = Simulation.of("gossip", names, 9, share=0.5, record=True, seed=0)
    transcript = real.average({name: Update(np.zeros(9)) for name in names}).transcript
    with pytest.raises(tacit.ConfigError, match="2 entries"):
        report.exposed["p1"].recover(transcript)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"entries": 0}, "entries"),
        ({"vectors": [[1.0], [2.0]]}, "vectors"),
        ({"vectors": [[1.0], [2.0], [3.0, 4.0]]}, "vectors"),
    ],
)
def test_bad_entries(question, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        tacit.audit("gossip", parties=3, coalition=["p0"], **question)


# --- what is not linear --------------------------------------------------------------------------------------------


def crooked(change):
    """Returns gossip in which nodes send something of their vector that is not linear in it."""

    async def node(link, update, _config, suite, _state):
        ring = suite.ring
        for party in link.parties:
            if party != link.me:
                await link.send(party, SharedEntries(b"", memoryview(ring.pack(ring.values(change(update.vector))))))
        await link.gather(SharedEntries, [party for party in link.parties if party != link.me], at_least=0)
        return Average(update.vector, link.parties)

    return replace(GOSSIP, name="crooked", party=node)


@pytest.mark.parametrize(
    "change",
    [
        lambda vector: vector * vector,
        lambda vector: vector**2,
        lambda vector: 1.0 / vector,
        lambda vector: abs(vector),
        np.sign,
        np.exp,
        lambda vector: vector.astype(float),
        lambda vector: vector if vector[0] > 0 else -vector,
        lambda vector: np.sort(vector),
        lambda vector: vector % 1,
    ],
)
def test_what_is_not_linear_is_said_and_not_guessed(monkeypatch, change):
    monkeypatch.setitem(protocols.REGISTRY, "crooked", crooked(change))
    with pytest.raises(tacit.TacitError, match="not linear") as caught:
        tacit.audit("crooked", parties=3, coalition=["p0"])
    assert caught.value.code == "not-linear"


def test_a_linear_change_is_audited_all_the_same(monkeypatch):
    monkeypatch.setitem(protocols.REGISTRY, "crooked", crooked(lambda vector: vector - vector * 2.0))
    assert sorted(tacit.audit("crooked", parties=3, coalition=["p0"]).exposed) == ["p1", "p2"]
    monkeypatch.setitem(protocols.REGISTRY, "crooked", crooked(lambda vector: vector * 3.0 - vector))
    with pytest.raises(tacit.NotAuditable, match="wraps around"):
        tacit.audit("crooked", parties=3, coalition=["p0"])


def test_private_draws_of_pushsum_count_as_known():
    """A push is p x and p y: a receiver has x but for one factor, and all of it once it knows one entry."""
    private, plain = (tacit.audit("pushsum", parties=5, coalition=["p0"], private=each) for each in (True, False))
    assert list(private.exposed) == list(plain.exposed) == ["p1", "p2", "p3", "p4"]
    assert max(private.errors.values()) < 1e-8
    assert (private.known_draws, plain.known_draws) == (("y0", "p_ii"), ())
    # Under masks nobody is exposed even to those who know them, with the seeds that were tried.
    masked = tacit.audit("pushsum", parties=5, coalition=["p0"], private=True, masked=True, rounds=2)
    assert (masked.exposed, masked.verdict, masked.seeds_tried) == ({}, Verdict.NOTHING_FOUND, 8)


def test_dividing_by_unknowns_is_not_linear():
    with pytest.raises(tacit.TacitError, match="not linear"):
        tacit.audit("pushsum", parties=5, coalition=["p0"], weighted=True, masked=True, rounds=3)


# --- rounds that end without an average ----------------------------------------------------------------------------


def test_an_aborted_round_has_been_seen_all_the_same():
    lost = [{"action": "drop", "party": f"p{i}", "message": "MaskedInput", "round": 1} for i in (1, 2)]
    report = tacit.audit("secagg", parties=4, coalition=["server"], rounds=3, faults=lost)
    assert report.exposed == {}
    assert report.smallest_group == 4
    with pytest.raises(tacit.ConfigError, match="2 of 4 parties delivered MaskedInput, 3 needed"):
        tacit.audit("secagg", parties=4, coalition=["server"], faults=lost)
