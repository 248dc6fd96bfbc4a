"""A client's promised batch stays the same in every later round, whatever the settings are by then."""

import contextlib

import numpy as np
import pytest

import tacit
from tacit.core.suite import SERVER, Update
from tacit.designs import Batches, Everyone, Partition, Random, Sampled, multi_round_privacy
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

PARTIES = tuple(f"p{place}" for place in range(6))
BATCHES = Batches(6, 2)
"""The first promised batches: p0 p1, p2 p3, p4 p5."""


def vectors(parties=PARTIES):
    """Returns the models, which do not change from round to round."""
    return {party: Update(np.full(3, 2.0 ** int(party[1:]))) for party in parties}


def in_turn(*settings, parties=PARTIES):
    """Runs rounds one after the other, each with its own settings, faults and roster, and with the saved states.

    Returns the rounds.
    """
    states, played = {}, []
    for each in settings:
        options = dict(each)
        here = options.pop("parties", parties)
        simulation = Simulation.of("secagg", here, 3, record=True, seed=len(played), **options)
        for party in (*here, SERVER):
            if party in states:
                simulation.participants[party].give_up(states[party])
        with contextlib.suppress(tacit.TacitError):
            simulation.average(vectors(here))
        states |= dict(simulation.states)
        played.append(simulation.last)
    return played


def contributors(played):
    """Returns the parties whose vectors were summed; none if there is no sum."""
    return next((ending.contributors for ending in played.endings.values() if ending.average is not None), ())


def sent_by(played, party):
    """Returns the kinds of messages that a party sent."""
    return {passed.envelope.address.kind for passed in played.transcript if passed.envelope.address.sender == party}


def without(*parties):
    """Returns faults by which some never deliver."""
    return [Fault(action="drop", message="MaskedInput", party=party) for party in parties]


SPLITTING = {
    "everyone": {"participation": Everyone()},
    "everyone but one": {"participation": Everyone(), "threshold": 5},
    "partial": {"participation": Batches(6, 2, partial=True), "threshold": 4},
    "batches of one": {"participation": Batches(6, 1), "threshold": 4},
    "sampled": {"participation": Sampled(5)},
    "sampled of some": {"participation": Sampled(4, 5)},
    "random": {"participation": Random(5), "threshold": 4},
    "other batches": {"participation": Batches(6, 3)},
    "one batch": {"participation": Batches(6, 6)},
    "groups": {"participation": Partition(3)},
    "sparse": {"participation": Everyone(), "neighbours": 4},
}


@pytest.mark.parametrize("name", SPLITTING)
def test_no_later_policy_splits_a_batch_that_was_promised(name):
    """A sum without p1 once followed one with it where the new policy promised nothing, and the difference is p1."""
    first, second = in_turn({"participation": BATCHES}, {**SPLITTING[name], "faults": without("p1")})
    assert contributors(first) == PARTIES
    assert contributors(second) == ()
    refused = {
        party: str(ending.error) for party, ending in second.endings.items() if "summed with" in str(ending.error)
    }
    assert refused
    for party, error in refused.items():
        assert sent_by(second, party) == {"AdvertiseKeys", "Abort"}, "it refuses before anything of its own has left"
        assert "\n" not in error
        assert "go back to the earlier settings" in error
        assert "folder" not in error, "its state is what protects it"
        assert second.endings[party].error.code == "peer"


@pytest.mark.parametrize("name", [name for name in SPLITTING if name not in ("other batches", "one batch", "groups")])
def test_whoever_was_promised_nothing_goes_on_as_before(name):
    first, second = in_turn({"participation": Everyone()}, {**SPLITTING[name], "faults": without("p1")})
    assert contributors(first) == PARTIES
    assert "p1" not in contributors(second)
    assert not any("summed with" in str(ending.error) for ending in second.endings.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"participation": Everyone(), "threshold": 6},
        {"participation": Sampled(6)},
        {"participation": Random(6), "threshold": 6},
        {"participation": Batches(6, 2, partial=True), "threshold": 6},
        {"participation": Batches(6, 2)},
    ],
)
def test_a_round_that_sums_all_whom_it_asks_or_nobody_splits_no_batch(settings):
    played = in_turn({"participation": BATCHES}, settings, {"participation": BATCHES})
    assert [contributors(each) for each in played] == [PARTIES] * 3
    missing = in_turn({"participation": BATCHES}, {**settings, "faults": without("p1")})[1]
    assert contributors(missing) in ((), ("p2", "p3", "p4", "p5"))


def test_the_promise_outlives_rounds_under_other_policies_and_rounds_that_fail():
    """It was once replaced by what the last policy promised, which was nothing."""
    whole = {"participation": Everyone(), "threshold": 6}
    played = in_turn(
        {"participation": BATCHES},
        whole,
        whole | {"faults": without("p3")},
        {"participation": Everyone(), "threshold": 4},
        {"participation": BATCHES},
        {"participation": Everyone(), "threshold": 4, "faults": without("p1")},
    )
    assert [contributors(each) for each in played] == [PARTIES, PARTIES, (), (), PARTIES, ()]


def test_a_promise_of_a_round_without_a_sum_counts():
    """The server may have one all the same: a client that has sent its masked vector cannot know."""
    lost = [Fault(action="drop", message="Sum", to=party) for party in PARTIES]
    second = in_turn({"participation": BATCHES, "faults": lost}, {"participation": Everyone(), "threshold": 4})[1]
    assert contributors(second) == ()


@pytest.mark.parametrize(
    "roster",
    [("p0", "p2", "p3", "p4", "p5"), ("p0", "p7", "p2", "p3", "p4", "p5"), ("p0", "p2", "p1", "p3", "p4", "p5")],
    ids=["removed", "renamed", "reordered"],
)
@pytest.mark.parametrize("policy", ["everyone", "all or nobody", "batches"])
def test_a_changed_roster_splits_no_batch_under_any_policy(roster, policy):
    settings = {
        "everyone": {"participation": Everyone(), "threshold": 4},
        "all or nobody": {"participation": Everyone(), "threshold": len(roster)},
        "batches": {"participation": Batches(len(roster), 2 if len(roster) % 2 == 0 else 5)},
    }[policy]
    # A second round, because a new party receives the last sum first if all parties are needed.
    first, *_, second = in_turn({"participation": BATCHES}, *[settings | {"parties": roster}] * 2)
    assert contributors(first) == PARTIES
    if set(roster) == set(PARTIES) and policy == "all or nobody":
        assert contributors(second) == roster, "the same are summed, whatever their order"
    else:
        assert "p0" not in contributors(second)
        assert "summed with" in str(second.endings["p0"].error)


def test_a_party_that_begins_anew_takes_part_in_what_it_is_asked_for():
    """Emptying a state folder is the operator's own decision, which nobody else can make."""
    first, second = in_turn({"participation": BATCHES}, {"participation": Everyone(), "threshold": 4})
    assert contributors(first) == PARTIES
    assert contributors(second) == ()
    (anew,) = in_turn({"participation": Everyone(), "threshold": 4})
    assert contributors(anew) == PARTIES


@pytest.mark.parametrize("seed", range(12))
def test_no_sequence_of_policies_makes_the_promise_smaller(seed):
    """After a first round in batches, parties that are summed stay in their batches, whatever later rounds ask for."""
    rng = np.random.default_rng(seed)
    menu = [*SPLITTING.values(), {"participation": BATCHES}, {"participation": Everyone(), "threshold": 6}]
    rounds = [{"participation": BATCHES}]
    for _ in range(6):
        lost = without(*(party for party in PARTIES if rng.random() < 0.2))
        rounds.append({**menu[rng.integers(len(menu))], "faults": lost})
    summed = [contributors(each) for each in in_turn(*rounds)]
    matrix = [[party in names for party in PARTIES] for names in summed if names]
    assert multi_round_privacy(matrix) >= 2


def test_the_state_under_a_policy_without_a_promise_is_as_it_was():
    """The format of earlier releases: the party itself, alone."""
    simulation = Simulation.of("secagg", PARTIES, 3)
    simulation.average(vectors())
    assert {party: state.batch for party, state in simulation.states.items() if party in PARTIES} == {
        party: (party,) for party in PARTIES
    }
