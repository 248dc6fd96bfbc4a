"""The simulator: its virtual clock, the order of events, deadlines, and planned faults."""

import contextlib
import gc
import traceback
import warnings
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tacit.core.average import Average
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, Drop, NotEnough, PeerFault, StepError, TacitError
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, Settings, Terms
from tacit.core.suite import SERVER, Parties, Update
from tacit.protocols import REGISTRY
from tacit.protocols.fedavg import Asked, Here
from tacit.protocols.shapes.star import PATIENCE
from tacit.runtime.simulation.faults import LATENCY, PHASE, Fault, flip_byte, plan_copies, sample_dropouts
from tacit.runtime.simulation.simulator import Simulation

PARTIES = ("p0", "p1", "p2", "p3", "p4")
with_server = pytest.mark.parametrize("protocol", [name for name, protocol in REGISTRY.items() if protocol.server])
every_protocol = pytest.mark.parametrize("protocol", REGISTRY)


def played(protocol, faults=(), parties=PARTIES, **options):
    if protocol == "admm":  # which refuses a handful of parties without masks
        options = {"masked": True, "group_size": None, **options}
    federation = Simulation.of(protocol, parties, 3, faults=faults, record=True, seed=0, twin=True, **options)
    rng = np.random.default_rng(1)
    updates = {party: Update(rng.normal(size=3)) for party in parties}
    outcome = error = None
    try:
        outcome = federation.average(updates)
    except TacitError as caught:
        error = caught
    return outcome, error, federation.last


def passed(simulation):
    return [(each.time, each.envelope.address, each.envelope.sealed, each.delivered) for each in simulation.transcript]


def discarded(simulation):
    return sum((each.inbox.discarded for each in simulation.rounds.values()), Counter())


# --- order and clock -----------------------------------------------------------------------------------------------

ASSORTED = (
    Fault(action="delay", party="p1", seconds=3.3),
    Fault(action="reorder", to="p2"),
    Fault(action="duplicate", number=4),
    Fault(action="corrupt", number=7),
    Fault(action="crash", party="p3", step=4),
    Fault(action="drop", party=SERVER, to="p4"),
)


@every_protocol
@pytest.mark.parametrize("faults", [(), ASSORTED], ids=["honest", "faults"])
def test_the_same_plan_gives_the_same_schedule(protocol, faults):
    if not REGISTRY[protocol].server:
        faults = [fault for fault in faults if SERVER not in (fault.party, fault.to)]
    (one, error, first), (two, again, second) = (played(protocol, faults) for _ in range(2))
    assert passed(first) == passed(second)
    assert first.clock == second.clock
    assert discarded(first) == discarded(second)
    assert first.endings.keys() == second.endings.keys()
    for party, ending in first.endings.items():
        assert repr(ending) == repr(second.endings[party])
    assert repr(error) == repr(again)
    if error is None:
        assert one.contributors == two.contributors
        assert one.dropped == two.dropped


def test_the_clock_is_virtual_and_a_message_takes_one_second_of_it():
    outcome, _, simulation = played("fedavg")
    times = {each.envelope.address.kind: each.time for each in simulation.transcript}
    assert times == {"Here": 0, "Asked": LATENCY, "Plain": 2 * LATENCY, "Sum": 3 * LATENCY}
    assert outcome.seconds == simulation.clock == 4 * LATENCY


def test_what_is_sent_in_the_same_moment_goes_in_the_order_of_the_roster():
    _, _, simulation = played("fedavg")
    parties = [each.envelope.address.sender for each in simulation.transcript]
    assert parties == [*PARTIES, *[SERVER] * 5, *PARTIES, *[SERVER] * 5]
    assert [each.envelope.address.to for each in simulation.transcript][15:] == list(PARTIES)


# --- deadlines -----------------------------------------------------------------------------------------------------


class Ping(Message, frozen=True):
    """A message."""


class Pong(Message, frozen=True):
    """Another message."""


class TalkSettings(Settings, frozen=True):
    """Settings of a protocol in which every party may send messages at some steps."""

    def bind(self, parties):
        return TalkTerms(self, parties)


class TalkTerms(Terms):
    def steps(self, kind):
        del kind
        return range(4)


async def done(link, *_):
    """A stand-in that ends at once, without sending anything."""
    return Average(np.zeros(3), link.parties)


TALK = Protocol("talk", "talks", TalkSettings, (Ping, Pong), done)


def alone(stand_in, **others):
    """Runs the coroutine of one party, p0, among parties that send nothing by default."""
    terms = TalkSettings().bind(Parties(("p0", "p1", "p2")))
    talking = Simulation.on(TALK, terms, 3, seed=0, record=True, stand_ins={"p0": stand_in, **others})
    outcome = talking.average({party: Update(np.zeros(3)) for party in terms.parties})
    return outcome, None, talking.last


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_a_party_that_never_answers_is_named_when_patience_ends(patience):
    async def waits(link, *_):
        await link.receive("p1", Ping, patience=patience)

    outcome, _, simulation = alone(waits)
    error = simulation.endings["p0"].error
    assert isinstance(error, PeerFault)
    assert (error.peer, error.reason) == ("p1", Drop.SILENT)
    assert "no Ping from it" in str(error)
    assert simulation.clock == patience * PHASE
    assert outcome.dropped == {"p0": Drop.ABORTED}


def test_a_party_waits_two_phases_unless_told_otherwise():
    async def waits(link, *_):
        await link.receive("p1", Ping)

    assert alone(waits)[2].clock == 2 * PHASE


def test_a_gathering_ends_with_the_phase_and_names_the_missing():
    async def speaks(link, *_):
        await link.send("p0", Ping())
        return Average(np.zeros(3), link.parties)

    async def gathers(link, *_):
        return await link.gather(Ping, ("p1", "p2"), at_least=2)

    _, _, simulation = alone(gathers, p1=speaks)
    error = simulation.endings["p0"].error
    assert isinstance(error, NotEnough)
    assert (error.have, error.need, error.missing) == (1, 2, {"p2": Drop.SILENT})
    assert str(error) == "round 1 aborted: 1 of 2 parties delivered Ping, 2 needed; timed out: p2"
    assert simulation.rounds["p0"].link.dropped == {"p2": Drop.SILENT}
    assert simulation.clock == PHASE


def test_a_gathering_that_is_complete_does_not_wait_for_the_end_of_the_phase():
    async def speaks(link, *_):
        await link.send("p0", Ping())
        return Average(np.zeros(3), link.parties)

    async def gathers(link, *_):
        assert list(await link.gather(Ping, ("p2", "p1"))) == ["p2", "p1"], "in the order of the senders"
        return Average(np.zeros(3), link.parties)

    outcome, _, simulation = alone(gathers, p1=speaks, p2=speaks)
    assert outcome.dropped == {}
    assert simulation.clock == LATENCY


def test_a_deadline_of_an_earlier_wait_does_not_end_a_later_one():
    async def speaks(link, *_):
        await link.send("p0", Ping())
        return Average(np.zeros(3), link.parties)

    async def waits_twice(link, *_):
        await link.receive("p1", Ping, patience=1)
        await link.receive("p1", Pong, patience=1)

    _, _, simulation = alone(waits_twice, p1=speaks)
    assert "no Pong from it" in str(simulation.endings["p0"].error)
    assert simulation.clock == LATENCY + PHASE


def test_either_of_two_kinds_ends_a_wait_and_steps_are_told_apart():
    async def speaks(link, *_):
        await link.send("p0", Pong(), step=2)
        await link.send("p0", Ping(), step=1)
        return Average(np.zeros(3), link.parties)

    seen = []

    async def waits(link, *_):
        seen.append(await link.receive("p1", Ping, Pong, step=1))
        seen.append(await link.receive("p1", Ping, Pong, step=2))
        seen.append(await link.receive("p1", Ping, Pong, step=3))

    _, _, simulation = alone(waits, p1=speaks)
    assert seen == [Ping(), Pong()]
    assert simulation.endings["p0"].error.peer == "p1"


@pytest.mark.parametrize("effect", ["send", "receive", "gather"])
def test_a_step_that_the_terms_do_not_have_is_an_error_of_the_protocol_at_once(effect):
    async def party(link, *_):
        other = link.parties[link.place - 1]
        if effect == "send":
            await link.send(other, Ping(), step=4)
        elif effect == "receive":
            await link.receive(other, Ping, Pong, step=4)
        else:
            await link.gather(Pong, [other], step=4)

    terms = TalkSettings().bind(Parties(("p0", "p1", "p2")))
    talking = Simulation.on(replace(TALK, party=party), terms, 3, seed=0)
    with pytest.raises(StepError, match=r"talk uses step 4 of P[io]ng, and its terms have steps 0 to 3"):
        talking.average({party: Update(np.zeros(3)) for party in terms.parties})


def test_silence_of_a_client_that_is_needed_is_named_after_one_phase():
    _, error, simulation = played("fedavg", [Fault(action="silence", party="p1")], threshold=5)
    assert isinstance(error, NotEnough)
    assert (error.have, error.need, error.missing) == (4, 5, {"p1": Drop.SILENT})
    # The other parties receive the server's abort at once.
    assert simulation.clock == PHASE + LATENCY
    assert all(
        (ending.error.peer, ending.error.reason) == (SERVER, Drop.ABORTED)
        for party, ending in simulation.endings.items()
        if party != SERVER
    )


@with_server
def test_silence_of_the_server_is_named_when_the_clients_patience_ends(protocol):
    _, error, simulation = played(protocol, [Fault(action="crash", party=SERVER)])
    assert isinstance(error, PeerFault)
    assert (error.peer, error.reason) == (SERVER, Drop.SILENT)
    assert simulation.clock == PATIENCE * PHASE
    assert {ending.error.peer for party, ending in simulation.endings.items() if party != SERVER} == {SERVER}


def test_nobody_waits_for_a_party_that_gave_up():
    async def gives_up(*_):
        raise NotEnough("reasons to go on", 0, 1)

    for protocol in ("fedavg", "secagg"):
        outcome, _, simulation = played(protocol, stand_ins={"p1": gives_up})
        assert outcome.contributors == ("p0", "p2", "p3", "p4")
        assert outcome.dropped == {"p1": Drop.ABORTED}
        assert simulation.clock < 2 * PHASE
        assert simulation.rounds[SERVER].link.dropped == {"p1": Drop.ABORTED}


# --- programming errors --------------------------------------------------------------------------------------------


def test_what_goes_wrong_in_a_party_comes_out_with_its_name():
    async def divides(link, *_):
        await link.gather(Here, link.parties)
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        played("fedavg", stand_ins={SERVER: divides})
    assert caught.value.__notes__ == ["in party 'server', round 1, after 1 effects"]
    text = "".join(traceback.format_exception(caught.value))
    assert "return 1 / 0" in text
    assert "in party 'server'" in text


def test_a_coroutine_that_leaves_by_a_key_error_is_not_taken_for_a_fault():
    async def stumbles(link, *_):
        await link.send(SERVER, Here())
        await link.receive(SERVER, Asked)
        return {}["missing"]

    with pytest.raises(KeyError) as caught:
        played("fedavg", stand_ins={"p1": stumbles})
    assert caught.value.__notes__ == ["in party 'p1', round 1, after 2 effects"]


def test_a_programming_error_leaves_no_coroutine_behind():
    async def divides(*_):
        return 1 / 0

    def fails():
        with pytest.raises(ZeroDivisionError):
            played("fedavg", stand_ins={"p0": divides})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fails()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


# --- faults without consequences -----------------------------------------------------------------------------------


@cache
def undisturbed(protocol):
    return played(protocol)


def same(protocol, faults):
    """Runs a round with and without faults; the outcome must be the same for everyone. Returns the faulty one."""
    honest, _, _ = undisturbed(protocol)
    outcome, error, simulation = played(protocol, faults)
    assert error is None
    assert outcome.contributors == honest.contributors
    assert outcome.average.keys() == set(PARTIES)
    assert outcome.dropped == {}
    for party in PARTIES:
        np.testing.assert_array_equal(outcome.average[party], honest.average[party])
    return outcome, simulation


@every_protocol
def test_a_delay_shorter_than_a_phase_is_harmless(protocol):
    """To the server and back takes two seconds, and a phase ten."""
    _, _, simulation = undisturbed(protocol)
    kinds = {each.envelope.address.kind: number for number, each in enumerate(simulation.transcript)}
    for number in kinds.values():
        outcome, _ = same(protocol, [Fault(action="delay", number=number, seconds=PHASE - 2.5 * LATENCY)])
        assert simulation.clock < outcome.seconds <= simulation.clock + PHASE - 2.5 * LATENCY
    same(protocol, [Fault(action="delay", seconds=(PHASE - 2.5 * LATENCY) / 2)])


@with_server
def test_a_delay_longer_than_a_phase_is_a_loss(protocol):
    vector = next(kind.kind() for kind in REGISTRY[protocol].messages if kind.parameters and not kind.from_server)
    outcome, _, _ = played(protocol, [Fault(action="delay", party="p1", message=vector)])
    assert outcome.contributors == ("p0", "p2", "p3", "p4")


@every_protocol
def test_duplicates_are_harmless_and_count_once(protocol):
    outcome, simulation = same(protocol, [Fault(action="duplicate")])
    assert discarded(simulation).keys() <= {"replayed"}
    if REGISTRY[protocol].server:
        # The copies of the last messages come when their receivers are done.
        assert 0 < discarded(simulation)["replayed"] <= len(simulation.transcript)
    assert sum(row.total() for row in outcome.traffic.received.values()) == outcome.traffic.total


@every_protocol
def test_reordering_is_harmless(protocol):
    _, _, honest = undisturbed(protocol)
    for number in range(0, len(honest.transcript), 7):
        outcome, _ = same(protocol, [Fault(action="reorder", number=number)])
        assert outcome.seconds > honest.clock, "a round waits for its last message"
        assert outcome.seconds <= honest.clock + LATENCY / 2
    same(protocol, [Fault(action="reorder")])
    same(protocol, [Fault(action="reorder", party="p1"), Fault(action="reorder", to="p3"), Fault(action="duplicate")])


# --- effects of faults ---------------------------------------------------------------------------------------------


def test_what_becomes_of_a_message():
    assert plan_copies([]) == [(LATENCY, None)]
    assert plan_copies([Fault(action="drop")]) == []
    assert plan_copies([Fault(action="delay", seconds=4)]) == [(5, None)]
    assert plan_copies([Fault(action="duplicate")]) == [(1, None), (1.5, None)]
    assert plan_copies([Fault(action="reorder")]) == [(1.5, None)]
    assert plan_copies([Fault(action="duplicate"), Fault(action="delay", seconds=2)]) == [(3, None), (3.5, None)]
    assert plan_copies([Fault(action="duplicate"), Fault(action="drop")]) == []
    assert plan_copies([Fault(action="corrupt", position=0.25)]) == [(LATENCY, 0.25)]


def test_a_corruption_changes_the_byte_that_it_names():
    data = bytes(range(100))
    for position, place in ((0.0, 0), (0.5, 50), (0.999, 99), (1.0, 99)):
        corrupted = flip_byte(data, position)
        assert [i for i in range(100) if corrupted[i] != data[i]] == [place]


def test_every_condition_of_a_fault_must_hold():
    fault = Fault(action="drop", party="p1", to=SERVER, message="Here", number=3, round=2)
    assert fault.hits(2, 3, "p1", SERVER, "Here")
    for other in (
        (1, 3, "p1", SERVER, "Here"),
        (2, 4, "p1", SERVER, "Here"),
        (2, 3, "p2", SERVER, "Here"),
        (2, 3, "p1", "p0", "Here"),
        (2, 3, "p1", SERVER, "Asked"),
    ):
        assert not fault.hits(*other)
    assert Fault(action="drop").hits(7, 8, "x", "y", "z")


def test_a_fault_hits_what_it_names_and_nothing_else():
    _, _, simulation = played("fedavg", [Fault(action="drop", message="Asked", to="p2")])
    lost = [each.envelope.address for each in simulation.transcript if not each.delivered]
    assert [(address.kind, address.sender, address.to) for address in lost] == [("Asked", SERVER, "p2")]


def test_a_fault_of_one_round_leaves_the_others_alone():
    federation = Simulation.of("fedavg", PARTIES, 1, faults=[Fault(action="crash", party="p2", round=2)], seed=0)
    updates = {party: Update(np.ones(1)) for party in PARTIES}
    assert [len(federation.average(updates).contributors) for _ in range(3)] == [5, 4, 5]


def test_a_corrupted_message_is_discarded_where_it_arrives():
    _, _, simulation = played("fedavg", [Fault(action="corrupt", party="p2", message="Plain")])
    assert discarded(simulation) == {"not authentic": 1}
    assert simulation.rounds[SERVER].inbox.discarded.total() == 1
    assert simulation.rounds[SERVER].inbox.gone == {}
    assert simulation.rounds[SERVER].link.dropped == {"p2": Drop.SILENT}


@pytest.mark.parametrize("step", range(4))
def test_a_crash_comes_before_the_effect_that_it_names(step):
    _, _, simulation = played("fedavg", [Fault(action="crash", party="p2", step=step)])
    sent = [each.envelope.address.kind for each in simulation.transcript if each.envelope.address.sender == "p2"]
    assert sent == ["Here", "Plain"][: (step + 1) // 2]
    assert "p2" in simulation.crashed
    assert simulation.rounds["p2"].effects >= step


def test_a_silent_party_listens():
    outcome, _, simulation = played("fedavg", [Fault(action="silence", party="p2")])
    assert "p2" in outcome.average
    assert "p2" not in outcome.contributors
    assert "p2" not in outcome.traffic.sent
    assert outcome.traffic.received["p2"].total() > 0
    assert all(each.envelope.address.sender != "p2" for each in simulation.transcript)


@pytest.mark.parametrize("action", ["crash", "silence"])
def test_a_fault_of_nobody_in_particular_is_one_of_everybody(action):
    """Otherwise the fault is refused. It must never be ignored."""
    if action in ("crash", "restart"):
        with pytest.raises(ConfigError, match=f"who is to {action}"):
            played("fedavg", [Fault(action=action)])
        return
    _, error, _ = played("fedavg", [Fault(action=action)])
    assert error is not None


def test_a_plan_may_be_written_as_plain_dictionaries():
    given = [{"action": "drop", "party": "p1", "seconds": 3}, Fault(action="crash", party="p2")]
    federation = Simulation.of("fedavg", PARTIES, 1, faults=given, seed=0)
    assert federation.faults == (Fault(action="drop", party="p1", seconds=3.0), Fault(action="crash", party="p2"))
    assert Simulation.of("fedavg", PARTIES, 1, faults=[], seed=0).faults == ()
    for wrong in ({"action": "explode"}, {"party": "p1"}, {"action": "drop", "step": "one"}):
        with pytest.raises(ConfigError, match=r"faults\[0\]"):
            Simulation.of("fedavg", PARTIES, 1, faults=[wrong], seed=0)


def test_chance_decides_anew_each_time_but_the_same_in_every_run():
    def hits(fault):
        return [fault.hits(round_, 0, f"p{i}", "server", "Plain") for round_ in range(1, 101) for i in range(10)]

    half = Fault(action="drop", message="Plain", chance=0.5)
    assert 440 < sum(hits(half)) < 560
    assert hits(half) == hits(Fault(action="drop", message="Plain", chance=0.5))
    assert hits(half) != hits(Fault(action="drop", message="Plain", chance=0.5, seed=1))
    assert not any(hits(Fault(action="drop", chance=0.0)))
    assert all(hits(Fault(action="drop")))
    silent = Fault(action="silence", chance=0.2)
    assert 140 < sum(silent.mutes(round_, f"p{i}") for round_ in range(1, 101) for i in range(10)) < 260
    assert not any(Fault(action="silence", party="p1").mutes(1, party) for party in ("p0", "p2", "server"))


def test_dropouts_are_as_many_as_asked_and_the_same_every_time():
    one, two = (sample_dropouts(PARTIES, 0.4, 6, SeededEntropy("dropouts")) for _ in range(2))
    assert one == two
    assert len({fault.party for fault in one}) == len(one) == 2
    assert all(fault.action == "crash" and 0 <= fault.step < 6 for fault in one)
    assert sample_dropouts(PARTIES, 0.0, 6, SeededEntropy("dropouts")) == []
    assert len(sample_dropouts(PARTIES, 1.0, 6, SeededEntropy("dropouts"))) == 5
    plans = {tuple(sample_dropouts(PARTIES, 0.4, 6, SeededEntropy(seed))) for seed in range(20)}
    assert len(plans) > 10


# --- every party is in the round after a failed one ----------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["fedavg", "secagg", "gossip"])
def test_an_interrupt_while_a_round_is_begun_leaves_nobody_behind(protocol):
    simulation = Simulation.of(protocol, PARTIES, 3, seed=0)
    updates = {party: Update(np.full(3, float(place))) for place, party in enumerate(PARTIES)}
    simulation.average(updates)
    seat = simulation.participants["p1"]

    def interrupted(*_):
        raise KeyboardInterrupt

    seat.begin = interrupted
    with pytest.raises(KeyboardInterrupt):
        simulation.average(updates)
    del seat.begin
    assert {seat.number for seat in simulation.participants.values()} == {2}
    outcome = simulation.average(updates)
    assert outcome.dropped == {}
    assert all(len(ending.contributors) == len(PARTIES) for ending in outcome.endings.values())


@pytest.mark.parametrize("protocol", ["secagg", "pushsum"])
def test_a_crash_after_a_restart_leaves_what_was_saved_before_it(protocol):
    updates = {party: Update(np.ones(3)) for party in PARTIES}

    def left(step, *actions):
        faults = [Fault(action=action, party="p1", round=1, step=step, seconds=2.0) for action in actions]
        simulation = Simulation.of(protocol, PARTIES, 3, faults=faults, seed=0, twin=True)
        with contextlib.suppress(TacitError):
            simulation.average(updates)
        return simulation.states["p1"]

    crashed = [left(step, "crash") for step in range(14)]
    saved = [state for place, state in enumerate(crashed) if state not in crashed[:place]]
    assert len(saved) > 1, "nothing is saved, and the test says nothing"
    for step, state in enumerate(crashed):
        # A call's state is on disk with its record, so a restart may find a newer state, never an older one.
        assert saved.index(left(step, "restart", "crash")) >= saved.index(state)
