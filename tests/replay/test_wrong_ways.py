"""Ways to rebuild a round that are wrong, each of which says two things under one address.

The tests of cuts look for just that, so these show that they would find it. A seat refuses each of the wrong ways that
it can notice, before anything is sent.
"""

from collections import defaultdict

import numpy as np
import pytest
from msgspec.structs import replace

from support.replay_cases import CASES, journals, seat_and_journal
from tacit.core.errors import ConfigError, JournalError
from tacit.core.suite import Update
from tacit.runtime.journal import Beginning, Journal
from tacit.runtime.round import Post, RoundBegun
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulated_round import SimulatedRound

DISTURBED = ("secagg", "pushsum-masked", "cesar-random", "admm-all-to-all", "gossip-topk", "fedavg")


def careless(seat, records, begun, events):
    """Rebuilds a round without looking, from any beginning and any events; returns what it says, by address."""
    records = list(records)
    round_ = seat._round(begun)
    said = defaultdict(list)
    try:
        calls = [round_.start(), *(round_.expire() if event is None else round_.deliver(event) for event in events)]
    finally:
        round_.close()
    for actions in calls:
        for action in actions:
            if isinstance(action, Post):
                said[action.address].append(action.data)
    return said


def two_things(simulation, said):
    """Returns how many addresses were now given another content than before."""
    before = {passed.envelope.address: passed.envelope.sealed for passed in simulation.last.transcript}
    return sum(
        1
        for address, contents in said.items()
        for data in contents
        if address in before and before[address] not in data
    )


def rebuild(title, wrong, faults=()):
    """Rebuilds every party's second round in a wrong way; returns how many addresses get a second content."""
    case = CASES[title]
    simulation, kept = journals(case, faults)
    count = 0
    for party, journal in kept.items():
        records = journal.read()
        beginning = records[0].event
        assert isinstance(beginning, Beginning)
        seat = simulation.participants[party].rebuild()
        state = simulation.agreement.protocol.decode_state(beginning.state)
        begun = RoundBegun(2, beginning.seed, state, case.updates(2).get(party))
        events = [record.event for record in records[1:]]
        count += two_things(simulation, careless(seat, records, *wrong(begun, events, simulation.states[party])))
    return count


def rightly(begun, events, after):
    del after
    return begun, events


def other_entropy(begun, events, after):
    del after
    return RoundBegun(begun.number, bytes(32), begun.state, begun.update), events


def other_vector(begun, events, after):
    del after
    vector = None if begun.update is None else Update(begun.update.vector + 1.0)
    return RoundBegun(begun.number, begun.seed, begun.state, vector), events


def state_not_rolled_back(begun, events, after):
    return RoundBegun(begun.number, begun.seed, after, begun.update), events


def deadlines_forgotten(begun, events, after):
    """What came later then ends a wait that was over, and is taken for an answer to something else."""
    del after
    return begun, [event for event in events if event is not None]


def reordered(begun, events, after):
    """What came just after a deadline is taken to have come before it."""
    del after
    moved = list(events)
    for place in range(len(moved) - 1):
        if moved[place] is None:
            moved[place : place + 2] = moved[place + 1], None
    return begun, moved


LATE = [Fault(action="delay", party="p2", to="p1", round=2), Fault(action="delay", party="p2", to="server", round=2)]


def late(title):
    server = CASES[title].protocol in ("fedavg", "secagg")
    return [fault for fault in LATE if server or fault.to != "server"]


@pytest.mark.parametrize("title", CASES)
def test_a_round_rebuilt_rightly_says_nothing_new(title):
    assert rebuild(title, rightly) == 0
    if title in DISTURBED and not title.startswith("admm"):
        assert rebuild(title, rightly, late(title)) == 0


@pytest.mark.parametrize(
    ("wrong", "titles"),
    [
        (other_entropy, ("secagg", "cesar-random", "pushsum", "admm-all-to-all")),
        (other_vector, tuple(CASES)),
        (state_not_rolled_back, ("pushsum", "pushsum-masked")),
        (deadlines_forgotten, ("secagg", "cesar-random")),
        (reordered, ("secagg", "cesar-random")),
    ],
)
def test_each_wrong_way_would_be_found_out(wrong, titles):
    for title in titles:
        faults = late(title) if wrong in (deadlines_forgotten, reordered) else ()
        assert rebuild(title, wrong, faults) > 0, title


# --- what a seat refuses -------------------------------------------------------------------------------------------


def test_a_seat_resumes_what_it_wrote_down():
    seat, journal, update = seat_and_journal()
    posts = seat.resume(journal, update)
    assert posts
    assert seat.round.over
    assert seat.number == 2


def test_a_seat_refuses_another_update():
    seat, journal, update = seat_and_journal()
    for other in (
        Update(update.vector + 1e-9),
        Update(update.vector, 2.0),
        Update(update.vector.astype(np.float32)),
        None,
    ):
        with pytest.raises(JournalError, match="begun with another update"):
            seat.resume(journal, other)
    assert seat.round is None
    assert seat.number == 2


def test_a_seat_refuses_a_journal_whose_replay_says_something_else(monkeypatch):
    """As it would after an upgrade in mid-round, or on a machine that rounds differently."""
    from tacit.protocols.shapes import neighbourhood

    seat, journal, update = seat_and_journal("gossip-topk")
    monkeypatch.setattr(neighbourhood.GraphTerms, "weight", lambda *_: 0.25 + 1e-6)
    with pytest.raises(JournalError, match="does not reproduce round"):
        seat.resume(journal, update)
    assert seat.round is None


def test_a_round_is_begun_once():
    case = CASES["secagg"]
    simulation = case.simulation()
    simulation.average(case.updates(1))
    seat = simulation.participants["p1"]
    assert seat.number == 1
    seat.begin(case.updates(2)["p1"], bytes(32))
    assert seat.number == 2
    with pytest.raises(Exception, match="still in round 2"):
        seat.begin(case.updates(2)["p1"], bytes(32))
    seat.give_up()
    seat.begin(case.updates(2)["p1"], bytes(32))
    assert seat.number == 3, "a round that was given up is never begun again"


# --- what nobody does by mistake: a number is begun twice ----------------------------------------------------------


def in_mid_round(title="admm-all-to-all"):
    """Returns a seat in its first round, the journal of it, and the update that it was begun with."""
    case = CASES[title]
    seat, update, journal = case.simulation().participants["p1"], case.updates(1)["p1"], Journal()
    agreement = seat.agreement
    journal.record(agreement.protocol, agreement.session, "p1", seat.begin(update, bytes(32)))
    return seat, journal, update


def restarted(seat, *_):
    return seat.rebuild()


def restarted_twice(seat, *_):
    return seat.rebuild().rebuild()


def refused(seat, journal, update):
    again = seat.rebuild()
    with pytest.raises(JournalError, match="journal is incomplete"):
        again.resume(Journal(journal.records, bytes(32)), update)
    return again


def given_up_first(seat, *_):
    seat.give_up()
    return seat.rebuild()


def given_up_after(seat, *_):
    again = seat.rebuild()
    again.give_up()
    return again


def given_up_when_refused(seat, journal, update):
    again = refused(seat, journal, update)
    again.give_up()
    return again.rebuild()


@pytest.mark.parametrize("way", [restarted, restarted_twice, refused])
def test_a_seat_that_was_cut_off_begins_nothing_before_it_has_resumed(way):
    """Its masks would cover two vectors, and their difference show."""
    seat, journal, update = in_mid_round()
    again = way(seat, journal, update)
    assert (again.number, again.unfinished) == (1, True)
    with pytest.raises(ConfigError, match="p1 is still in round 1; try: finish, resume or abandon it"):
        again.begin(Update(update.vector + 1.0), bytes(32))
    assert [post.address.round for post in again.resume(journal, update)] == [1, 1, 1]


@pytest.mark.parametrize("way", [given_up_first, given_up_after, given_up_when_refused])
def test_a_number_that_was_given_up_is_used_up(way):
    seat, journal, update = in_mid_round()
    again = way(seat, journal, update)
    assert (again.number, again.unfinished) == (1, False)
    posts = [action for action in again.begin(Update(update.vector + 1.0), bytes(32)) if isinstance(action, Post)]
    assert [post.address.round for post in posts] == [2, 2, 2]


def test_a_round_that_is_over_may_be_said_again_or_followed_by_the_next():
    for goes_on in (False, True):
        seat, journal, update = seat_and_journal()
        assert (seat.number, seat.unfinished) == (2, False)
        if goes_on:
            assert seat.resume(journal, update)
        seat.begin(update, bytes(32))
        assert seat.number == 3
        with pytest.raises(JournalError, match="is of round 2, but p1 has begun 3"):
            seat.rebuild().resume(journal, update)


def test_what_was_saved_before_a_cut_is_there_after_it_was_given_up():
    """Of push-sum, that is the mass that is under way."""
    seat, _, _ = in_mid_round("pushsum")
    saved = seat.state
    assert saved.sent
    again = seat.rebuild()
    again.give_up()
    assert again.state == saved


@pytest.mark.parametrize("title", CASES)
def test_a_party_that_was_cut_off_before_anything_was_written_may_begin(title):
    """Nothing was said then. The disk has the seat as it was before the round, however often that happens."""
    case = CASES[title]
    cut = [Fault(action="restart", party="p1", round=2, step=0, seconds=2.0, unwritten=True)] * 3
    honest, disturbed = (
        case.simulation(),
        case.simulation(faults=[*cut[:1], *(replace(cut[1], seed=i) for i in (1, 2))]),
    )
    for number in (1, 2):
        expected, found = (each.average(case.updates(number)) for each in (honest, disturbed))
        np.testing.assert_array_equal(found.average["p1"], expected.average["p1"])
    assert disturbed.participants["p1"].number == 2


def test_played_rounds_are_journalled_only_where_somebody_is_to_come_back():
    case = CASES["secagg"]
    simulation = case.simulation()
    simulation.average(case.updates(1))
    assert isinstance(simulation.last, SimulatedRound)
    assert simulation.last._journals == {}
