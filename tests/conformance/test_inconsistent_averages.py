"""A server that tells different parties different averages: they do not mask together until they were told the same."""

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.average import Average
from tacit.core.errors import Drop
from tacit.core.lineage import START
from tacit.core.suite import SERVER, Update
from tacit.protocols import secagg
from tacit.protocols.secagg import settings, user
from tacit.protocols.secagg.messages import LastSum, Sum
from tacit.protocols.shapes import star
from tacit.runtime.shards.sharded_simulation import ShardedSimulation
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
            total = sum(suite.ring.encode(Update(np.full(4, DEAD))) for _ in PARTIES)
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
    monkeypatch.setattr(settings, "extend_lineage", lambda *_: START)
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
    assert "continues from another model than we do" in complaints[VICTIM]
    assert all("continues from another model than we do" in text for text in complaints.values())
    assert all(text.startswith(VICTIM) for party, text in complaints.items() if party != VICTIM)


def _usable_whatever_they_were_told(_accord, advertised, _announced):
    return START, {u: (keys.c, keys.s, keys.signature) for u, keys in advertised.items()}


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
            ended.append(str(error))
    assert ended[0] == PARTIES
    heard = tuple(party for party in PARTIES if party not in lost)
    assert (
        ended[1]
        == {
            1: heard,
            3: "round 2 aborted: 2 users who can mask together, 4 needed (threshold=4); "
            "without the last average: p1, p2, p3; "
            "try: run it again: they have been sent the last average",
            4: tuple(lost),  # enough to go on with, as if there had been no first round
        }[len(lost)]
    )
    assert ended[2] == PARTIES


def test_a_sum_that_is_sent_again_reaches_only_those_who_lack_it():
    """A party that had it already would add a change twice, or take it for the sum of the round."""
    faults = [Fault(action="drop", message="Sum", to="p1", round=1)]
    simulation = Simulation.of("secagg", PARTIES[:3], 4, faults=faults, record=True)
    updates = {party: Update(SECRETS[party]) for party in PARTIES[:3]}
    first = simulation.average(updates)
    with pytest.raises(tacit.NotEnough):
        simulation.average(updates)
    sent = {each.envelope.address.kind for each in simulation.last.transcript if each.envelope.address.round == 2}
    assert sent >= {"LastSum"}
    endings = {party: simulation.participants[party].round.ending for party in PARTIES[:3]}
    assert [party for party, ending in endings.items() if ending.average is not None] == ["p1"]
    np.testing.assert_array_equal(endings["p1"].average, first.average["p0"])
    assert endings["p1"].replaces
    assert "2 parties with the last average, 3 needed; without the last average: p1" in str(endings["p0"].error)
    lineages = {simulation.participants[party].state.lineage for party in PARTIES[:3]}
    assert lineages == {simulation.participants["server"].state.lineage}


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


@pytest.mark.parametrize("parties", [10, 8])
def test_new_parties_get_the_last_sum_first(parties):
    """A lineage outlives the roster: whoever has another one, or none, is brought up to date before it is summed."""
    faults = [Fault(action="drop", message="Sum", to=party) for party in ("p1", "p2")]
    first = Simulation.of("secagg", PARTIES, 4, faults=faults)
    first.average({party: Update(SECRETS[party]) for party in PARTIES})
    names = tuple(f"p{place}" for place in range(parties))
    second = move(first, Simulation.of("secagg", names, 4))
    updates = {party: Update(np.ones(4)) for party in names}
    ended = [outcome.contributors for outcome in play(second, [updates] * 3) if outcome is not None]
    assert ended[-1] == names


def test_a_party_that_missed_a_sum_stays_behind_while_models_have_another_length():
    """It gets the averages of these rounds, and takes part again after a round of the length that it lacks."""
    missed = Simulation.of("secagg", PARTIES, 4, faults=[Fault(action="drop", message="Sum", to="p1")])
    missed.average({party: Update(SECRETS[party]) for party in PARTIES})
    others = tuple(party for party in PARTIES if party != "p1")
    longer = move(missed, Simulation.of("secagg", PARTIES, 6))
    for _ in range(2):
        outcome = longer.average({party: Update(np.ones(6)) for party in PARTIES})
        assert outcome.contributors == others
        assert outcome.dropped == {"p1": Drop.BEHIND}
        np.testing.assert_array_equal(outcome.average["p1"], outcome.average["p0"])
    back = move(longer, Simulation.of("secagg", PARTIES, 4))
    updates = {party: Update(SECRETS[party]) for party in PARTIES}
    assert [outcome.contributors for outcome in play(back, [updates] * 2)] == [others, PARTIES]
    again = move(back, Simulation.of("secagg", PARTIES, 6))
    assert again.average({party: Update(np.ones(6)) for party in PARTIES}).contributors == PARTIES


def test_too_few_with_the_last_sum_are_told_to_average_that_model_first():
    """A sum of another length cannot be sent in a round, and is kept for the next one of its own length."""
    faults = [Fault(action="drop", message="Sum", to=party) for party in ("p1", "p2")]
    missed = Simulation.of("secagg", PARTIES, 4, faults=faults)
    missed.average({party: Update(SECRETS[party]) for party in PARTIES})
    longer = move(missed, Simulation.of("secagg", PARTIES, 6))
    with pytest.raises(
        tacit.NotEnough, match="try: average the model of the last round first, which had another length"
    ):
        longer.average({party: Update(np.ones(6)) for party in PARTIES})
    back = move(longer, Simulation.of("secagg", PARTIES, 4))
    updates = {party: Update(SECRETS[party]) for party in PARTIES}
    ended = list(play(back, [updates] * 2))
    assert ended[0] is None
    assert ended[1].contributors == PARTIES
    assert move(back, longer).average({party: Update(np.ones(6)) for party in PARTIES}).contributors == PARTIES


# --- lies over several rounds --------------------------------------------------------------------------------------


def move(before, after):
    """Returns a simulation of another session whose parties have the states of an earlier one."""
    for party, state in before.states.items():
        if party in after.participants:
            after.participants[party].give_up(state)
    return after


def play(simulation, rounds):
    """Yields the outcome of each round, None for one that failed."""
    for updates in rounds:
        try:
            yield simulation.average(updates)
        except tacit.TacitError:
            yield None


def train_on(simulation, models, rounds):
    """Plays rounds in which everybody trains from the model that it holds, and adopts every average that it gets."""
    outcomes = []
    for _ in range(rounds):
        updates = {party: Update(trained(party, models[party])) for party in simulation.agreement.parties}
        outcomes += play(simulation, [updates])
        for party, ending in simulation.last.endings.items():
            if party in models and ending.average is not None:
                models[party] = np.asarray(ending.average)
    return outcomes


def exposes_victim(outcomes, parties):
    """Says whether some sum is the victim's update alone."""
    found = [outcome for outcome in outcomes if outcome is not None]
    sums = [outcome.average[next(iter(outcome.average))] * parties for outcome in found]
    return any(np.allclose(total, SECRETS[VICTIM], atol=1e-6) for total in sums)


@pytest.fixture
def lie_twice(partial):
    """Returns a server that gives the victim another sum in round 1, and everybody the same last sum in round 2."""

    async def repeat_dead_sum(link, terms, suite, _state):
        await link.gather(secagg.AdvertiseKeys, link.parties, len(PARTIES))
        dead = sum(suite.ring.encode(Update(np.full(4, DEAD))) for _ in PARTIES)
        members = terms.sets.bitmap(range(len(PARTIES)))
        await star.announce(link, LastSum(START, 1, PARTIES, members, memoryview(bytes(suite.ring.pack(dead)))))
        raise tacit.NotEnough("users who can mask together", 0, 1)

    return lambda link, *rest: (repeat_dead_sum if link.round == 2 else partial)(link, *rest)


def test_a_last_sum_is_only_signed_with_the_model_that_it_delivers(lie_twice, monkeypatch):
    """The last sum once moved what was signed and delivered no model, so round 3 summed a live model with dead ones."""
    simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: lie_twice}, bits=64, clip=64.0)
    models = {party: np.zeros(4) for party in PARTIES}
    assert not exposes_victim(train_on(simulation, models, 5), len(PARTIES))
    # What broke it: the lineage moves and the caller keeps its model.
    monkeypatch.setattr(user, "adopt", _adopt_without_model)
    simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: lie_twice}, bits=64, clip=64.0)
    models = {party: np.zeros(4) for party in PARTIES}
    assert exposes_victim(train_on(simulation, models, 5), len(PARTIES))


async def _adopt_without_model(accord, state, _lineage, announced):
    """Adopts as 0.2 did: a last sum is remembered as the whole lineage, and not given to the caller."""
    lineage = settings.extend_lineage(START, 0, (), b"", announced.vector)
    average = announced.average(accord.suite.ring)
    await accord.link.save(state.adopt_lineage(accord.suite.ring.length, lineage))
    if announced.round != accord.link.round:
        raise tacit.NotEnough("parties with the last average", 0, 1)
    return Average(average, announced.contributors)


def test_a_change_of_the_roster_does_not_forget_a_lie(partial, monkeypatch):
    """It once did: the next sum of an honest server was then the victim's update."""

    def leave_out_p4():
        simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: partial}, bits=64, clip=64.0)
        models = {party: np.zeros(4) for party in PARTIES}
        train_on(simulation, models, 1)
        rest = Simulation.of("secagg", PARTIES[:4], 4, bits=64, clip=64.0)
        return exposes_victim(train_on(move(simulation, rest), models, 3), 4)

    assert not leave_out_p4()
    monkeypatch.setattr(secagg.settings.Accord, "carry_over", _forget)
    assert leave_out_p4()


@pytest.mark.parametrize("sharded", [False, True])
def test_rounds_of_another_length_do_not_forget_a_lie(partial, monkeypatch, sharded):
    """They once began a new lineage, and so did the way back: the victim then masked with the others again."""

    def go_there_and_back():
        simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: partial}, bits=64, clip=64.0, **TWIN)
        models = {party: np.zeros(4) for party in PARTIES}
        train_on(simulation, models, 1)
        longer = carry(simulation, make(6))
        list(play(longer, [{party: Update(np.zeros(6)) for party in PARTIES}]))
        back = carry(longer, make(4))
        outcomes = train_on(back, models, 3)
        longer.close(), back.close()
        return exposes_victim(outcomes, len(PARTIES))

    def make(entries):
        kind = ShardedSimulation if sharded else Simulation
        return kind.of("secagg", PARTIES, entries, bits=64, clip=64.0, **TWIN)

    assert not go_there_and_back()
    if not sharded:  # a shard is another process
        monkeypatch.setattr(secagg.settings.Accord, "carry_over", _forget)
        assert go_there_and_back()


TWIN = {"seed": 1, "twin": True}
"""A run that can be continued from the states of another one."""


def carry(before, after):
    """Returns a simulation that continues after an earlier one, with the states of its parties."""
    after.continue_from(before.number, before.states)
    return after


def _forget(_accord, state):
    """Returns a state without a lineage, as 0.2 did for another roster; and for its second round, here."""
    return msgspec.structs.replace(state, lineages={}, announced=None)


@pytest.mark.parametrize("weight", [1, 2, 4])
def test_a_sum_that_its_contributors_cannot_weigh_is_not_adopted(bent, weight):
    """An average that no array can hold was remembered, while its caller kept the model from before."""

    def change(message, _to, _link, suite):
        if not isinstance(message, Sum):
            return message
        vector = suite.ring.unpack(message.vector).copy()
        vector[-2] = weight
        return msgspec.structs.replace(message, vector=memoryview(bytes(suite.ring.pack(vector))))

    simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: bent(secagg.SECAGG, SERVER, change)})
    assert list(play(simulation, [{party: Update(SECRETS[party]) for party in PARTIES}])) == [None]
    assert {simulation.participants[party].state.lineage for party in PARTIES} == {b""}
    assert "is impossible for 5 contributors" in str(simulation.last.endings["p0"].error)


def test_a_sum_of_an_earlier_round_is_not_adopted_again():
    """A replayed last sum would take a party back to a model that it has left."""
    kept = {}

    async def replay(link, terms, suite, state):
        if link.round < 3:
            kept[link.round] = state.last_sum(suite.ring.length)
            return await secagg.SECAGG.server(link, terms, suite, state)
        await link.gather(secagg.AdvertiseKeys, link.parties, len(PARTIES))
        first = kept[2]  # what the server kept before round 2: the sum of round 1
        members = terms.sets.bitmap(range(len(PARTIES)))
        await star.announce(link, LastSum(first.before, first.round, first.contributors, members, first.vector))
        raise tacit.NotEnough("users who can mask together", 0, 1)

    simulation = Simulation.of("secagg", PARTIES, 4, stand_ins={SERVER: replay})
    updates = {party: Update(SECRETS[party]) for party in PARTIES}
    outcomes = list(play(simulation, [updates] * 2))
    before = {party: simulation.participants[party].state for party in PARTIES}
    assert list(play(simulation, [updates])) == [None]
    assert all(outcome is not None for outcome in outcomes)
    assert {party: simulation.participants[party].state for party in PARTIES} == before, "nothing is remembered"
    error = simulation.last.endings["p0"].error
    assert error.code == "peer"
    assert "the sum of round 1, but we have already adopted the sum of round 2" in str(error)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_smaller_roster_can_read_the_last_sum(bits):
    """A sum may weigh more than all parties of the next roster together."""
    faults = [Fault(action="drop", message="Sum", to="p1")]
    first = Simulation.of("secagg", PARTIES, 4, faults=faults, bits=bits)
    first.average({party: Update(SECRETS[party]) for party in PARTIES})
    names = PARTIES[:3]
    second = move(first, Simulation.of("secagg", names, 4, bits=bits))
    outcomes = list(play(second, [{party: Update(np.ones(4)) for party in names}] * 3))
    assert outcomes[-1].contributors == names


def test_a_sum_is_not_a_model_under_one_roster_and_a_change_under_the_next():
    """A party that adds it, and one whose model it replaces, continue from different models."""
    updates = {party: Update(SECRETS[party]) for party in PARTIES}
    lineages = set()
    for norm in (None, 8.0):
        simulation = Simulation.of("secagg", PARTIES, 4, seed=1, norm=norm)
        outcome = simulation.average(updates)
        lineages.add(outcome.endings["p0"].lineage)
        assert outcome.endings["p0"].is_change == (norm is not None)
    assert len(lineages) == 2


@pytest.mark.parametrize("norm", [None, 8.0])
def test_a_party_that_lacks_a_change_does_not_sign_the_next_one(norm):
    """Averages of changes add up, so a party without one of them has another model than the rest."""
    faults = [Fault(action="drop", message="Sum", to="p1", round=1)]
    simulation = Simulation.of("secagg", PARTIES, 4, faults=faults, norm=norm)
    outcomes = list(play(simulation, [{party: Update(SECRETS[party]) for party in PARTIES}] * 3))
    assert ("p1" in outcomes[2].contributors) == (norm is None)
    error = simulation.last.endings["p1"].error
    assert error is None if norm is None else error.code == "behind"


@pytest.mark.parametrize("seed", range(4))
def test_whoever_masks_together_holds_the_same_models_of_every_length(bent, seed):
    """Random sums go to one party changed, or not at all, in rounds of three lengths in any order."""
    rng = np.random.default_rng(seed)
    plan = {}

    def lie(message, to, _link, suite):
        if to != plan["victim"] or not isinstance(message, Sum | LastSum):
            return message
        vector = suite.ring.unpack(message.vector).copy()
        vector[0] += 1
        return msgspec.structs.replace(message, vector=memoryview(bytes(suite.ring.pack(vector))))

    held = {party: {} for party in PARTIES}
    simulation, left_out = None, 0
    for _ in range(24):
        entries, plan["victim"] = int(rng.choice([4, 6, 9])), str(rng.choice([*PARTIES, "nobody", "nobody"]))
        lost = [Fault(action="drop", message="Sum", to=plan["victim"])] if rng.random() < 0.3 else []
        faults = lost if plan["victim"] != "nobody" else []
        roles = {SERVER: bent(secagg.SECAGG, SERVER, lie)}
        after = Simulation.of("secagg", PARTIES, entries, faults=faults, stand_ins=roles)
        simulation = after if simulation is None else move(simulation, after)
        for outcome in play(simulation, [{party: Update(rng.normal(size=entries)) for party in PARTIES}]):
            if outcome is not None:
                assert len({str(sorted(held[party].items())) for party in outcome.contributors}) == 1
                left_out += len(PARTIES) - len(outcome.contributors)
        for party, ending in simulation.last.endings.items():
            if party in held and ending.average is not None:
                held[party][entries] = np.asarray(ending.average).tobytes().hex()
    assert left_out > 0, "lies were told"
