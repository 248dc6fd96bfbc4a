"""Ways in which an audit was fooled, or could be asked for nonsense. None of them works."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit import protocols
from tacit.auditing.proofs import argument_for
from tacit.core.average import Average
from tacit.core.errors import NotAuditable
from tacit.core.protocol_facts import ReasonCode
from tacit.designs import Batches, Random
from tacit.protocols.gossip import GOSSIP, SharedEntries
from tacit.runtime.agreement import terms_for
from tacit.runtime.simulation.faults import Fault

pytestmark = pytest.mark.long


def test_no_party_is_called_as_whoever_listens():
    vectors = {"onlooker": [1.0], "a": [2.0], "b": [3.0], "c": [4.0]}
    for ask in (
        lambda: tacit.aggregate(vectors, "pushsum"),
        lambda: tacit.audit("gossip", parties=list(vectors), coalition=["a"]),
    ):
        with pytest.raises(tacit.ConfigError, match="whoever listens"):
            ask()


@pytest.mark.slow
def test_luck_is_not_taken_for_a_guarantee():
    """Who drops out is drawn once. Another seed is other luck, and a plan says nothing holds but by an argument."""
    question = {"parties": 5, "coalition": ["server"], "rounds": 3, "dropout": 0.05}
    exposed = {tuple(sorted(tacit.audit("secagg", seed=seed, **question).exposed)) for seed in range(12)}
    assert len(exposed) > 1
    for proposal in tacit.plan(5, rounds=3, dropout=0.05).proposals:
        assert not proposal.holds or proposal.needs_drift or proposal.argument or not proposal.coverage.dropout
        assert proposal.reason.code is not ReasonCode.EVERYBODY or (proposal.holds and proposal.needs_drift)


def whisper(change):
    """Returns gossip in which everybody sends everybody something of its vector."""

    async def node(link, update, _terms, suite, _state):
        others = [party for party in link.parties if party != link.me]
        for party in others:
            await link.send(party, SharedEntries(b"", memoryview(suite.ring.pack(change(suite, update.vector)))))
        await link.gather(SharedEntries, others, at_least=0)
        return Average(update.vector, link.parties)

    return replace(GOSSIP, name="whisper", party=node, leaks_by_design=False)


def test_a_protocol_that_treats_one_place_otherwise_is_not_judged_by_another(monkeypatch):
    """Its terms, which it has from gossip, say that all are alike in a complete graph. Its code tells the last one."""

    async def node(link, update, _terms, suite, _state):
        if link.place == 0:
            message = SharedEntries(b"", memoryview(suite.ring.pack(suite.ring.values(update.vector))))
            await link.send(link.parties[-1], message)
        if link.place == len(link.parties) - 1:
            await link.gather(SharedEntries, [link.parties[0]], at_least=0)
        return Average(update.vector, link.parties)

    monkeypatch.setitem(protocols.REGISTRY, "last", replace(GOSSIP, name="last", party=node, leaks_by_design=False))
    with pytest.raises(tacit.LeakRefused, match="p5 the vector of p0"):
        tacit.aggregate([[1.0]] * 6, "last")


def test_no_argument_is_made_for_a_protocol_by_the_terms_of_another():
    secagg = protocols.REGISTRY["secagg"]
    terms = terms_for(secagg, tuple(f"p{i}" for i in range(9)), {})
    assert argument_for(secagg, terms, 1)
    assert argument_for(replace(secagg, name="other"), terms, 1) is None


def test_settings_are_remembered_by_protocol_and_not_by_name(monkeypatch):
    def masked(suite, vector):
        encoded = suite.ring.values(vector)
        suite.mask(encoded, plus=[suite.seed()])
        return encoded

    monkeypatch.setitem(protocols.REGISTRY, "whisper", whisper(masked))
    tacit.aggregate([[1.0]] * 3, "whisper")
    monkeypatch.setitem(protocols.REGISTRY, "whisper", whisper(lambda suite, vector: suite.ring.values(vector)))
    with pytest.raises(tacit.LeakRefused):
        tacit.aggregate([[1.0]] * 3, "whisper")


def test_a_number_that_can_only_be_one_hides_nothing(monkeypatch):
    def constant(suite, vector):
        return suite.ring.values(vector + suite.entropy.secret_number("noise", lambda _: 0.25))

    monkeypatch.setitem(protocols.REGISTRY, "whisper", whisper(constant))
    assert set(tacit.audit("whisper", parties=3, coalition=["p0"]).exposed) == {"p1", "p2"}

    def narrow(suite, vector):
        return suite.ring.values(vector + suite.entropy.secret_number("noise", lambda entropy: entropy.unit() * 1e-6))

    monkeypatch.setitem(protocols.REGISTRY, "whisper", whisper(narrow))
    assert set(tacit.audit("whisper", parties=3, coalition=["p0"]).nearly) == {"p1", "p2"}


def test_noise_that_wraps_around_the_ring_is_refused(monkeypatch):
    def wrapped(suite, vector):
        ring = suite.ring
        return ring.values(vector) + ring.values(suite.entropy.secret_vector("noise", len(vector))) * 2**14

    monkeypatch.setitem(protocols.REGISTRY, "whisper", whisper(wrapped))
    with pytest.raises(NotAuditable, match="larger than the ring"):
        tacit.audit("whisper", parties=3, coalition=["p0"])


def test_every_graph_that_rounds_take_is_looked_at():
    quiet = nx.DiGraph()
    quiet.add_nodes_from(range(4))
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.Federation("pushsum", ["p0", "p1", "p2", "p3"], graph=[quiet, nx.complete_graph(4)])
    assert caught.value.report.rounds == 2


def test_a_protocol_that_shows_more_when_all_are_there_is_not_judged_by_the_day_they_are_not(monkeypatch):
    """As `secagg`, but if everybody is in the sum, everybody sends its vector as well."""
    from tacit.protocols.secagg import SECAGG
    from tacit.protocols.secagg.messages import MaskedInput

    async def client(link, update, terms, suite, state):
        average = await SECAGG.party(link, update, terms, suite, state)
        if len(average.contributors) == len(link.parties):
            await link.send("server", SharedEntries(b"", memoryview(suite.ring.pack(suite.ring.encode(update)))))
        return average

    async def server(link, terms, suite, state):
        average = await SECAGG.server(link, terms, suite, state)
        await link.gather(SharedEntries, link.parties, at_least=0)
        return average

    assert MaskedInput in SECAGG.messages
    chatty = replace(SECAGG, name="chatty", party=client, server=server, messages=(*SECAGG.messages, SharedEntries))
    monkeypatch.setitem(protocols.REGISTRY, "chatty", chatty)
    assert len(tacit.audit("chatty", parties=5, coalition=["server"]).exposed) == 5
    long = tacit.audit("chatty", parties=5, coalition=["server"], rounds=30)
    assert len(long.exposed) == 5
    with pytest.raises(tacit.LeakRefused):
        tacit.aggregate([[1.0]] * 5, "chatty")


@pytest.mark.parametrize("drift", [1e-4, pytest.param("static", marks=pytest.mark.slow)])
def test_watching_longer_shows_no_less(drift):
    question = {"parties": 12, "coalition": ["server"], "dropout": 0.02, "prior": 0.1, "drift": drift}
    short, long = (tacit.audit("secagg", rounds=rounds, **question) for rounds in (16, 17))
    known = {*short.exposed, *short.nearly}
    assert known
    assert known <= {*long.exposed, *long.nearly}
    assert short.safe_rounds == long.safe_rounds < 16
    for party in known:
        assert long.bits[party] >= short.bits[party] - 0.3
    with_onlooker = tacit.audit("secagg", rounds=40, **{**question, "coalition": ["server", "onlooker"]})
    without = tacit.audit("secagg", rounds=40, **question)
    assert {*with_onlooker.exposed, *with_onlooker.nearly} >= {*without.exposed, *without.nearly}


def test_rounds_that_were_aborted_show_no_sum():
    lost = [{"action": "drop", "party": "p0", "message": "MaskedInput"}]
    few = {"parties": 3, "participation": Random(2), "threshold": 2, "faults": lost, "coalition": ["p0"]}
    assert (
        tacit.audit("secagg", rounds=16, **few).exposed.keys() == tacit.audit("secagg", rounds=17, **few).exposed.keys()
    )
    more = {"parties": 6, "participation": Random(3), "threshold": 3, "faults": lost, "coalition": ["p0", "p1"]}
    short, long = (tacit.audit("secagg", rounds=rounds, **more).exposed.keys() for rounds in (16, 17))
    assert short <= long


def test_what_follows_from_vectors_seen_one_by_one_has_no_recipe_of_sums():
    question = {"parties": 8, "participation": Batches(4, 2, partial=True), "threshold": 2, "seed": 419}
    members = ["server", "p2", "p6", "p7"]
    short, long = (tacit.audit("secagg", coalition=members, rounds=rounds, **question) for rounds in (16, 17))
    assert short.exposed.keys() == long.exposed.keys()
    assert short.safe_rounds == long.safe_rounds
    assert all(error < 1e-6 for error in long.errors.values())


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"coalition": 1}, "list of names"),
        ({"coalition": ["p0", "p0"]}, "twice"),
        ({"coalition": ["p9"]}, "nobody here"),
        ({"coalition": []}, "an empty coalition"),
        ({"coalition": ["p0", "p1", "p2", "p3"]}, "leaves no victim"),
        ({"parties": "four"}, "list of names"),
        ({"parties": 0}, "at least 2"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"rounds": 1.5}, "rounds"),
        ({"length": 0}, "length"),
        ({"prior": 0}, "prior"),
        ({"prior": 1e300}, "prior"),
        ({"noise": -1.0}, "noise"),
        ({"noise": 1e300}, "noise"),
        ({"drift": float("nan")}, "drift"),
        ({"drift": "sometimes"}, "drift"),
        ({"seed": "x"}, "seed"),
        ({"sealed": "no"}, "sealed"),
        ({"links": 5}, "links"),
        ({"links": [("p0", "p1", "p2")]}, "links"),
        ({"stand_ins": [1]}, "stand_ins"),
        ({"stand_ins": {"p9": print}}, "p9"),
        ({"stand_ins": {"p0": 5}}, "stand_ins"),
        ({"vectors": 3}, "vectors"),
        ({"vectors": ["a", "b", "c", "d"]}, "vectors"),
        ({"vectors": [[], [], [], []]}, "vectors"),
        ({"coalition_size": 9, "coalition": None}, "coalition_size"),
        ({"coalition_size": True, "coalition": None}, "coalition_size"),
    ],
)
def test_nonsense_is_refused_with_what_to_do(question, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        tacit.audit("gossip", **{"parties": 4, "coalition": ["p0"], **question})


def test_federations_of_nonsense():
    with pytest.raises(tacit.ConfigError, match="list of names"):
        tacit.Federation("secagg", "abc")
    with pytest.raises(tacit.ConfigError, match="adversary"):
        tacit.aggregate([np.zeros(1)] * 4, "secagg", adversary=True)
    with pytest.raises(tacit.ConfigError, match=r"faults\[0\]"):
        tacit.audit("secagg", parties=4, coalition=["p0"], faults=[{"paty": "p0", "action": "drop"}])
    assert Fault(action="drop").chance == 1.0
