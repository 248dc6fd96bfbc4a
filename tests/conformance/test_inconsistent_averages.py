"""A server that tells different parties different averages: they do not mask together until they were told the same."""

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.errors import Drop
from tacit.core.suite import SERVER, Update
from tacit.protocols import secagg
from tacit.protocols.secagg import user
from tacit.protocols.shapes.star import Sum
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

PARTIES = ("p0", "p1", "p2", "p3", "p4")
VICTIM = "p2"
SECRETS = {party: np.random.default_rng(place).normal(size=4) for place, party in enumerate(PARTIES)}
DEAD = 20.0


def trained(party, average):
    """Returns what a party brings next. A model so far off has no gradient, and everybody knows what comes of it."""
    return np.zeros(4) if np.abs(average).max() > DEAD / 2 else SECRETS[party]


@pytest.fixture
def partial(bent):
    """Returns a server that announces to everybody but the victim a model without a gradient, in round 1."""

    def change(message, to, link, suite):
        if isinstance(message, Sum) and link.round == 1 and to != VICTIM:
            total = suite.ring.encode(Update(np.full(4, DEAD)))
            return msgspec.structs.replace(message, vector=memoryview(bytes(suite.ring.pack(total))))
        return message

    return bent(secagg.SECAGG, SERVER, change)


def rounds(server):
    """Plays two rounds of training under a server; returns the second one, if it had an end."""
    simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: server}, bits=64)
    first = simulation.average({party: Update(np.zeros(4)) for party in PARTIES})
    second = {party: Update(trained(party, first.average[party])) for party in PARTIES}
    return simulation, simulation.average(second)


def test_as_it_was_the_next_average_is_the_victims_update(partial, monkeypatch):
    """Pasquini et al.: where the others' updates are known, secure aggregation hides one update behind nothing."""
    monkeypatch.setattr(user, "digest_of", lambda _: bytes(32))
    _, outcome = rounds(partial)
    np.testing.assert_allclose(outcome.average["p0"] * len(PARTIES), SECRETS[VICTIM], atol=1e-9)


def test_whoever_was_told_something_else_is_not_summed_with_the_others(partial):
    simulation, outcome = rounds(partial)
    assert outcome.dropped == {VICTIM: Drop.BEHIND}
    assert VICTIM not in outcome.contributors
    np.testing.assert_array_equal(outcome.average["p0"], np.zeros(4))
    # It heard the sum, and was told no lie this time, so it is back.
    third = simulation.average({party: Update(SECRETS[party]) for party in PARTIES})
    assert third.dropped == {}
    assert third.contributors == PARTIES


def test_a_server_that_asks_them_all_the_same_is_refused_by_both_sides(partial, monkeypatch):
    """A server that leaves out its own check finds that users check what each other signed."""
    monkeypatch.setattr(secagg.aggregator, "select_usable_keys", _usable_whatever_they_were_told)
    simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: partial})
    simulation.average({party: Update(np.zeros(4)) for party in PARTIES})
    with pytest.raises(tacit.NotEnough):
        simulation.average({party: Update(SECRETS[party]) for party in PARTIES})
    complaints = {party: str(simulation.last.endings[party].error) for party in PARTIES}
    assert "was told another average than we were" in complaints[VICTIM]
    assert all("was told another average than we were" in text for text in complaints.values())
    assert all(text.startswith(VICTIM) for party, text in complaints.items() if party != VICTIM)


def _usable_whatever_they_were_told(_accord, advertised, _before):
    return {u: (keys.c, keys.s, keys.signature) for u, keys in advertised.items()}


@pytest.mark.parametrize("lost", [["p1"], ["p1", "p2", "p3"], ["p0", "p1", "p2", "p3"]])
def test_whoever_missed_the_sum_is_back_a_round_later(lost):
    """Where too few are left without them, the last sum is said again to everybody, and a round is lost."""
    faults = [Fault(action="drop", message="Sum", to=party, round=1) for party in lost]
    simulation = Simulation.of("secagg", PARTIES, 4, faults=faults)
    ended = []
    for _ in range(3):
        try:
            ended.append(simulation.average({party: Update(SECRETS[party]) for party in PARTIES}).contributors)
        except tacit.NotEnough as error:
            ended.append(str(error).partition("; of 5 users")[0])
    assert ended[0] == PARTIES
    heard = tuple(party for party in PARTIES if party not in lost)
    assert (
        ended[1]
        == {
            1: heard,
            3: "users who can mask together: 2 of at least 4; missing: p1 (behind), p2 (behind), p3 (behind)",
            4: tuple(lost),  # enough to go on with, as if there had been no first round
        }[len(lost)]
    )
    assert ended[2] == PARTIES


def test_a_sum_that_is_said_again_is_nobodys_average():
    """Those who had it already took it for the sum of the round, and whoever brings changes added one twice."""
    faults = [Fault(action="drop", message="Sum", to="p1", round=1)]
    simulation = Simulation.of("secagg", PARTIES[:3], 4, faults=faults, record=True)
    updates = {party: Update(SECRETS[party]) for party in PARTIES[:3]}
    simulation.average(updates)
    with pytest.raises(tacit.NotEnough):
        simulation.average(updates)
    said = {each.envelope.address.kind for each in simulation.last.transcript if each.envelope.address.round == 2}
    assert said >= {"LastSum"}
    endings = {party: simulation.participants[party].round.ending for party in PARTIES[:3]}
    assert all(ending.average is None for ending in endings.values())
    assert "users who had heard the last sum: 2 of at least 3; missing: p1 (behind)" in str(endings["p0"].error)
    told = {simulation.participants[party].state.last for party in PARTIES[:3]}
    assert told == {simulation.participants["server"].state.last}


def test_a_server_that_crashed_before_anybody_heard_it_is_heard_in_the_next_round():
    faults = [Fault(action="crash", party=SERVER, message="Sum", round=1)]
    simulation = Simulation.of("secagg", PARTIES, 4, faults=faults)
    updates = {party: Update(SECRETS[party]) for party in PARTIES}
    with pytest.raises(tacit.TacitError):
        simulation.average(updates)
    assert simulation.average(updates).contributors == PARTIES


def test_a_sum_that_nobody_can_take_is_not_kept_to_be_said_again(bent):
    """One client spoils a sum and is gone. The others had not all heard the one before, and must not wait for ever."""

    def spoil(message, _to, link, suite):
        if isinstance(message, secagg.MaskedInput) and link.round == 2:
            vector = suite.ring.unpack(message.vector).copy()
            vector[-1] += 1  # what must be zero
            return msgspec.structs.replace(message, vector=memoryview(suite.ring.pack(vector)))
        return message

    faults = [Fault(action="drop", message="Sum", to="p4", round=1)]
    faults += [Fault(action="silence", party="p0", round=number) for number in range(3, 7)]
    spoiler = {"p0": bent(secagg.SECAGG, "p0", spoil)}
    simulation = Simulation.of("secagg", PARTIES, 4, faults=faults, stand_ins=spoiler)
    ended = []
    for _ in range(6):
        try:
            ended.append(simulation.average({party: Update(SECRETS[party]) for party in PARTIES}).contributors)
        except tacit.TacitError as error:
            ended.append(type(error))
    assert ended[:2] == [PARTIES, tacit.WireError]
    assert ended[-1] == PARTIES[1:]


@pytest.mark.parametrize(("parties", "entries"), [(10, 4), (8, 4), (5, 6)])
def test_with_others_or_another_model_nobody_was_told_anything_yet(parties, entries):
    """States outlive sessions, but what some were told is no use among others, nor of a model of another length."""
    faults = [Fault(action="drop", message="Sum", to=party) for party in ("p1", "p2")]
    first = Simulation.of("secagg", PARTIES, 4, faults=faults)
    first.average({party: Update(SECRETS[party]) for party in PARTIES})
    names = tuple(f"p{place}" for place in range(parties))
    second = Simulation.of("secagg", names, entries)
    for party, state in first.states.items():
        second.participants[party].give_up(state)
    assert second.average({party: Update(np.ones(entries)) for party in names}).contributors == names
