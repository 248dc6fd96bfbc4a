"""Agreements: parties with the same one can communicate; two that differ learn the difference at the first message."""

import json
import pickle
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, Drop, TacitError
from tacit.core.suite import SERVER, Update
from tacit.crypto.keys import Identity, Roster
from tacit.protocols import REGISTRY
from tacit.runtime.agreement import VERSION, Agreement, agree, first_difference, terms_for
from tacit.runtime.inbox import Discard
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import GreetingPost, Post
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

NAMES = tuple(f"p{i}" for i in range(6))
BASE = {
    "fedavg": {},
    "secagg": {},
    "gossip": {},
    "admm": {"masked": True, "group_size": "all"},
    "pushsum": {"masked": True},
    "cesar": {},
    "rotating": {},
}
OTHER = {
    "bits": 64,
    "clip": 33.0,
    "max_weight": 2.0,
    "weighted": True,
    "allow_leaks": True,
    "noise": 0.1,
    "norm": 100.0,
    "rounding": "stochastic",
    "participation": {"kind": "random", "per_round": 5},
    "sampled": 5,
    "threshold": 4,
    "fewest": 4,
    "neighbours": 4,
    "graph": {"kind": "regular", "degree": 4},
    "share": 0.5,
    "sparsifier": "topk",
    "iterations": 3,
    "rho": 0.2,
    "group_size": 6,
    "masked": False,  # which admm refuses of so few, unless they allow it
    "lambda0": [0.0, 0.5],
    "private": True,
    "y0": "exp",
    "self_weight": [0.1, 0.3],
    "masking": 2,
    "stages": 2,
    "include": ["w"],
    "exclude": ["head.*"],
}
TOGETHER = {
    "minimum": {"group_size": 6, "minimum": 4},
    "oversampled": {"sampled": 4, "oversampled": 5},
    "score": {"share": 0.5, "sparsifier": "topk", "score": "change"},
}


def identities(names=NAMES):
    return {name: Identity.generate(name, SeededEntropy("identity", name)) for name in (*names, SERVER)}


def agreement(protocol, options, entries=3, nonce=b"n" * 16, members=None):
    entry = REGISTRY[protocol]
    roster = Roster((members or identities())[name].member() for name in entry.everyone(NAMES))
    return agree(entry, terms_for(entry, NAMES, {**options}), roster, entries, nonce)


def mixed(protocol, ours, theirs, who="p1", faults=()):
    """Runs a round in which one party holds something else to be agreed; returns it as it was played."""
    people = identities()
    seats = {
        name: KeyedParticipant(theirs if name == who else ours, people[name])
        for name in REGISTRY[protocol].everyone(NAMES)
    }
    # A run of its own would give all of them one session, and nothing to disagree on.
    simulation = Simulation(ours, seats, 0, faults, record=True, twin=True)
    try:
        simulation.average({name: Update(np.ones(3)) for name in NAMES})
    except TacitError as error:
        return simulation.last, error
    return simulation.last, None


DIFFERENT = [
    pytest.param(protocol, name, id=f"{protocol}-{name}")
    for protocol, entry in REGISTRY.items()
    for name in entry.settings.__struct_fields__
    if not (name == "weighted" and not entry.weighted)
]


@pytest.mark.parametrize(("protocol", "name"), DIFFERENT)
def test_two_parties_with_one_setting_different_name_it_at_their_first_message(protocol, name):
    more = TOGETHER.get(name, {name: OTHER.get(name)})
    if name == "masked":
        more = {**more, "allow_leaks": True}
    ours = agreement(protocol, {**BASE[protocol], **{key: value for key, value in more.items() if key != name}})
    theirs = agreement(protocol, {**BASE[protocol], **more})
    assert ours.session != theirs.session
    played, _ = mixed(protocol, ours, theirs)
    stranger, peers = played.rounds["p1"], ours.terms.peers("p1")
    told = [party for party in peers if party != "p1" and "p1" in played.rounds[party].inbox.why]
    assert told, "somebody was told"
    for party in told:
        assert played.rounds[party].inbox.gone["p1"] == Drop.DISAGREES
        assert played.rounds[party].inbox.why["p1"].startswith(name)
        assert "at p1 and" in played.rounds[party].inbox.why["p1"]
        if party in theirs.terms.peers("p1"):  # others answer it too, but it has no need to wait for them
            assert stranger.inbox.gone[party] == Drop.DISAGREES
            assert stranger.inbox.why[party].startswith(name)
        # Neither of them could read a message of the other.
        assert not any(place.sender == "p1" for place in played.rounds[party].inbox._seen)
        assert not any(place.sender == party for place in stranger.inbox._seen)
    assert stranger.error is None or name in str(stranger.error)


def test_whoever_disagrees_is_left_out_and_the_others_go_on():
    ours, theirs = agreement("secagg", {"threshold": 4}), agreement("secagg", {"threshold": 5})
    played, error = mixed("secagg", ours, theirs)
    assert error is None
    assert played.endings[SERVER].dropped == {"p1": Drop.DISAGREES}
    assert set(played.endings["p0"].contributors) == set(NAMES) - {"p1"}
    assert str(played.endings["p1"].error) == "server: disagrees (threshold is 4 at server and 5 here)"
    assert max(phase.seconds for phase in played.endings[SERVER].phases) < 10, "nobody waited for a deadline"


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("party", ["p0", "p1", SERVER])
def test_a_party_that_was_greeted_can_be_cut_off_like_any_other(party, step):
    ours, theirs = agreement("secagg", {"threshold": 4}), agreement("secagg", {"threshold": 5})
    cut = Fault(action="restart", party=party, step=step, seconds=1.0)
    played, error = mixed("secagg", ours, theirs, faults=[cut])
    assert error is None
    assert set(played.endings["p0"].contributors) == set(NAMES) - {"p1"}
    assert "threshold is 4 at server and 5 here" in str(played.endings["p1"].error)


def test_where_nobody_can_be_spared_the_error_names_the_setting():
    ours, theirs = (agreement("admm", {"masked": True, "group_size": "all", "rho": rho}) for rho in (0.1, 0.5))
    played, error = mixed("admm", ours, theirs)
    assert "with other settings: p1 (rho is 0.5 at p1 and 0.1 here)" in str(played.endings["p0"].error)
    assert "rho is 0.1 at p" in str(played.endings["p1"].error)
    assert "rho" in str(error)


ELSE = {
    "entries": lambda given: {**given, "entries": 4},
    "nonce": lambda given: {**given, "nonce": b"o" * 16},
}


@pytest.mark.parametrize("what", ELSE)
def test_models_and_sessions_are_agreed_on_too(what):
    ours, theirs = agreement("gossip", {}), agreement("gossip", **ELSE[what]({"options": {}}))
    played, _ = mixed("gossip", ours, theirs)
    words = {"entries": "entries is 4 at p1 and 3 here", "nonce": "p1 is in another session"}
    assert words[what] in played.rounds["p0"].inbox.why["p1"]


def test_another_protocol_and_another_order_of_parties():
    ours = agreement("gossip", {}).described
    assert first_difference(ours, agreement("cesar", {}).described, "p1") == "protocol is cesar at p1 and gossip here"
    swapped = {**ours, "parties": ["p1", "p0", *ours["parties"][2:]]}
    assert first_difference(ours, swapped, "p1") == "parties[0] is p1 at p1 and p0 here"
    shorter = {**ours, "parties": ours["parties"][:-1]}
    assert first_difference(ours, shorter, "p1") == "the number of parties is 5 at p1 and 6 here"
    assert first_difference(ours, dict(ours), "p1") is None
    older = {**ours, "version": 1}
    assert first_difference(ours, older, "p1") == f"version is 1 at p1 and {VERSION} here"
    longer = {**ours, "graph": {"kind": "edges", "edges": [[i, i + 1] for i in range(50)]}}
    assert len(first_difference(ours, longer, "p1")) < 160


def test_a_key_that_two_rosters_list_differently_is_named():
    people = identities()
    forged = {**people, "p4": Identity.generate("p4", SeededEntropy("another"))}
    ours, theirs = agreement("gossip", {}, members=people), agreement("gossip", {}, members=forged)
    assert "the key of p4 is " in first_difference(ours.described, theirs.described, "p1")


def test_greetings_are_signed_and_for_one_receiver():
    ours, theirs = agreement("gossip", {}), agreement("gossip", {"clip": 1.0})
    people = identities()
    honest, stranger = KeyedParticipant(ours, people["p0"]), KeyedParticipant(theirs, people["p1"])
    heard = next(post for post in honest.begin(Update(np.ones(3)), bytes(32)) if isinstance(post, Post)).address
    said = theirs.greeting(stranger.suite(1, bytes(32)), 1, heard)
    greeting, change = msgspec.msgpack.encode(said), msgspec.structs.replace
    lie = json.loads(said.agreed) | {"clip": 2.0}
    for changed in (
        change(said, agreed=json.dumps(lie).encode()),
        change(said, address=change(said.address, sender="p2")),
        change(said, address=change(said.address, session=bytes(32))),
        change(said, signature=bytes(64)),
    ):
        assert honest.deliver(msgspec.msgpack.encode(changed)) == []
        assert honest.round.inbox.gone == {}
    assert honest.deliver(msgspec.msgpack.encode(change(said, address=change(said.address, to="p2")))) == []
    assert honest.round.inbox.discarded == {Discard.NOT_AUTHENTIC: 4, Discard.MISDIRECTED: 1}
    heard, answer = honest.deliver(greeting)
    assert isinstance(answer, GreetingPost)
    assert answer.to == "p1"
    assert answer.size == len(answer.data)
    assert honest.deliver(greeting) == [], "it was told, and tells once"
    agreeing = ours.greeting(KeyedParticipant(ours, people["p2"]).suite(1, bytes(32)), 1, answer.address)
    assert honest.deliver(msgspec.msgpack.encode(agreeing)) == []
    assert honest.round.inbox.discarded[Discard.AGREES] == 1
    assert heard.data == greeting


def test_an_agreement_pickles_and_stays_the_same_session():
    for protocol, options in BASE.items():
        one = agreement(protocol, options)
        again = pickle.loads(pickle.dumps(one))  # noqa: S301
        assert isinstance(again, Agreement)
        assert again.settings == one.settings
        assert again.session == one.session
        assert again.described == one.described


def test_a_roster_must_have_exactly_those_who_take_part():
    entry, people = REGISTRY["secagg"], identities()
    terms = terms_for(entry, NAMES, {})
    for names in (NAMES, (*NAMES[:-1], SERVER), (SERVER, *NAMES)):
        with pytest.raises(ConfigError, match="the roster has"):
            agree(entry, terms, Roster(people[name].member() for name in names), 3, b"")


def test_the_session_follows_from_all_that_is_agreed_and_nothing_else():
    one = agreement("secagg", {})
    assert one.session == agreement("secagg", {"threshold": None}).session
    assert one.session == agreement("secagg", {"participation": "everyone"}).session
    others = [
        agreement("secagg", {"threshold": 4}),
        agreement("secagg", {"clip": 1.0}),
        agreement("secagg", {}, entries=4),
        agreement("secagg", {}, nonce=b""),
        agreement("fedavg", {}),
        agreement("secagg", {}, members=identities() | {"p0": Identity.generate("p0", SeededEntropy("x"))}),
    ]
    assert len({one.session, *(each.session for each in others)}) == len(others) + 1
    assert all(len(each.session) == 32 for each in others)


# --- recordings ----------------------------------------------------------------------------------------------------


def test_recordings_pickle_and_can_be_used_elsewhere():
    report = tacit.audit("admm", parties=9, coalition=["p0"], iterations=6, seed=3)
    vectors = [np.full(4, float(i)) for i in range(9)]
    options = {"iterations": 6, "allow_leaks": True, "bits": 64, "record": True}
    transcript = tacit.aggregate(vectors, "admm", **options).transcript
    again = pickle.loads(pickle.dumps(transcript))  # noqa: S301
    for victim, recipe in report.exposed.items():
        expected = vectors[int(victim[1:])]
        np.testing.assert_allclose(recipe.recover(transcript), expected, atol=1e-5)
        np.testing.assert_allclose(recipe.recover(again), expected, atol=1e-5)
    assert "0x" not in repr(again.holdings) or "memory at" not in repr(again.holdings)


def test_an_outcome_is_the_merger_of_endings():
    simulation = Simulation.of(
        "secagg", NAMES, 3, seed=0, threshold=4, faults=[{"action": "drop", "party": "p2", "message": "MaskedInput"}]
    )
    out = simulation.average({name: Update(np.full(3, 40.0 if name == "p1" else 1.0)) for name in NAMES})
    assert out.endings.keys() == {*NAMES, SERVER}
    for party, ending in out.endings.items():
        assert ending.round == 1
        assert dict(out.traffic.sent[party]) == dict(ending.sent)
        assert dict(out.traffic.received[party]) == dict(ending.received)
        if party != SERVER:
            assert out.average[party] is ending.average
            assert ending.contributors == out.contributors
    assert out.clipped == {"p1": 3} == {party: each.clipped for party, each in out.endings.items() if each.clipped}
    phases = [phase.kind for phase in out.endings[SERVER].phases]
    assert phases == ["AdvertiseKeys", "ShareKeys", "MaskedInput", "Consent", "Unmask"]
    masked = out.endings[SERVER].phases[2]
    assert (masked.awaited, dict(masked.missing), masked.seconds) == (6, {"p2": Drop.SILENT}, 10.0)
    assert sum(phase.seconds for phase in out.endings[SERVER].phases) == out.seconds - 1.0
    client = [phase.kind for phase in out.endings["p0"].phases]
    assert client[0] == "KeyList or Sum or LastSum"
    assert replace(out.endings["p0"], average=None).average is None
