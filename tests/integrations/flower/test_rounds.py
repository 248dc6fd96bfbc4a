"""Rounds on Flower, without its engines: each protocol against the simulator, and what nodes give away."""

import itertools

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from support.flower_fleet import NODES, Trial, asked
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER
from tacit.integrations.flower.averaging_grid import AveragingGrid
from tacit.integrations.flower.driver import RECORD, _extract_update, make_mod, restore_arrays
from tacit.integrations.flower.party import SealedMessage, StepResult
from tacit.integrations.flower.router import Router
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.faults import Fault
from tacit.vectors.layout import Layout
from tacit.vectors.model_tree import ArraySelection

ENTRIES = 12


def averages(trial, fleet, grid, number):
    """Returns what a round leaves each party with: the strategy's average, or everybody's own."""
    (first, *_) = grid.send_and_receive(asked(fleet, ENTRIES, number))
    if trial.roster.entry.server is not None:
        return {SERVER: first.content["arrays"]["w"].numpy()}
    answers = grid.send_and_receive(asked(fleet, ENTRIES, number, "evaluate"))
    own = {f"p{answer.metadata.src_node_id - NODES}": answer.content["arrays"]["w"].numpy() for answer in answers}
    return {party: vector for party, vector in own.items() if vector.any()}  # without an average they have zeros


def expected(trial, played):
    endings = {party: ending for party, ending in played.endings.items() if ending.average is not None}
    if trial.roster.entry.server is not None:
        return {SERVER: endings[SERVER].average}
    return {party: ending.average for party, ending in endings.items()}


def same(found, wanted):
    assert wanted
    assert found.keys() == wanted.keys()
    for party, vector in wanted.items():
        assert np.array_equal(found[party], vector)


@pytest.mark.parametrize("protocol", REGISTRY)
def test_rounds_on_flower_are_those_of_the_simulator(tmp_path, protected, protocol):
    trial = Trial.of(tmp_path, protocol, 4, **protected.get(protocol, {}))
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    for number, played in enumerate(trial.played(ENTRIES, 2), 1):
        same(averages(trial, fleet, grid, number), expected(trial, played))
        assert grid.lost == {}


SAID = {1: "ShareKeys", 2: "MaskedInput", 4: "Unmask"}


@pytest.mark.parametrize("hop", SAID)
def test_whoever_drops_out_is_left_out_as_in_the_simulator(tmp_path, hop):
    trial = Trial.of(tmp_path, "secagg", 5)
    trial.forgetful = False  # all calls are to one process, which has rounds in memory
    fleet = trial.fleet(ENTRIES)
    fleet.fails = lambda party, number, at: party == "p1" and number == 1 and at >= hop
    grid = trial.grid(fleet)
    crash = Fault(action="crash", party="p1", message=SAID[hop], round=1)
    (played,) = trial.played(ENTRIES, 1, [crash])
    same(averages(trial, fleet, grid, 1), expected(trial, played))
    assert grid.last.contributors == played.endings[SERVER].contributors
    averages(trial, fleet, grid, 2)
    assert grid.last.contributors == trial.roster.names  # every message has the model, so it lacks nothing


DEAD = {"arrays": ArrayRecord({"w": Array(np.full(ENTRIES, 1e6))})}
ODD = {
    "another model": DEAD,
    "another configuration": {"config": ConfigRecord({"server-round": 1, "lr": 0.0})},
    "one more record": {"more": ConfigRecord({"lr": 0.0})},
    "one more array": {"arrays": ArrayRecord({"w": Array(np.zeros(ENTRIES)), "v": Array(np.zeros(1))})},
}


def change_message(message, records):
    content = RecordDict({**message.content, **records})
    about = message.metadata
    return Message(content, dst_node_id=about.dst_node_id, message_type=about.message_type)


@pytest.mark.parametrize("odd", ODD)
def test_nodes_do_not_mask_with_a_node_that_was_asked_something_else(tmp_path, odd):
    """A strategy that sends one node a live model, and the others a dead one, would learn that node's update."""
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    messages = asked(fleet, ENTRIES, 1)
    messages[2] = change_message(messages[2], ODD[odd])
    answers = list(grid.send_and_receive(messages))
    assert grid.lost == {"p2": "behind"}
    assert set(grid.last.contributors) == {"p0", "p1", "p3", "p4"}
    assert [answer.error.reason for answer in answers if answer.has_error()] == ["behind"]
    # All but one: nobody has anybody to mask with.
    messages = asked(fleet, ENTRIES, 2)
    messages[1:] = [change_message(message, ODD[odd]) for message in messages[1:]]
    list(grid.send_and_receive(messages))
    assert grid.last is None or "p0" not in grid.last.contributors


@pytest.mark.parametrize("protocol", ["secagg", "gossip"])
def test_a_node_cannot_introduce_itself_as_another_party(tmp_path, protocol):
    """What a node says of itself is signed by its party, for this hello alone."""
    trial = Trial.of(tmp_path, protocol, 4)
    fleet = trial.fleet(ENTRIES)
    honest = fleet.apps[NODES + 1]
    recorded = []

    def record(message, context):
        greets = "hello" in message.content[RECORD]
        answer = honest(message, context)
        if greets:
            recorded.append(answer.content[RECORD])
        return answer

    fleet.apps[NODES + 1] = record
    grid = AveragingGrid(fleet, trial.participant(SERVER) if protocol == "secagg" else None, trial.roster)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    (replayed,) = recorded

    def impostor(lie):
        return lambda message, _: Message(RecordDict({RECORD: ConfigRecord(dict(lie))}), reply_to=message)

    for lie in (replayed, {**replayed, "signature": bytes(64)}):
        fleet = trial.fleet(ENTRIES)
        fleet.apps[NODES] = impostor(lie)
        grid = AveragingGrid(fleet, trial.participant(SERVER) if protocol == "secagg" else None, trial.roster)
        answers = list(grid.send_and_receive(asked(fleet, ENTRIES, 2)))
        (failed,) = [answer for answer in answers if answer.has_error()]
        assert failed.error.reason == "its introduction is invalid: p1 has not signed it"
        assert "p1" not in grid.lost, "the party itself takes part"


def test_neighbours_go_on_without_a_node_that_is_gone(tmp_path):
    trial = Trial.of(tmp_path, "gossip", 5)
    fleet = trial.fleet(ENTRIES)
    fleet.fails = lambda party, *_: party == "p1"
    crash = Fault(action="crash", party="p1", step=0)
    (played,) = trial.played(ENTRIES, 1, [crash])
    same(averages(trial, fleet, trial.grid(fleet), 1), expected(trial, played))


def test_a_node_that_fails_goes_on_from_its_last_average(tmp_path):
    trial = Trial.of(tmp_path, "gossip", 4)
    fleet = trial.fleet(ENTRIES)
    fleet.fails = lambda party, number, hop: party == "p1" and number == 2 and hop == 1
    grid = trial.grid(fleet)
    before, after = (averages(trial, fleet, grid, number) for number in (1, 2))
    assert grid.lost == {"p1": "no answer in time"}
    assert np.array_equal(before["p1"], after["p1"])
    assert not np.array_equal(before["p0"], after["p0"])
    averages(trial, fleet, grid, 3)
    assert grid.lost == {}


def test_a_strategy_gets_the_average_and_nothing_else(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    strategy = FedAvg(fraction_evaluate=0.0)
    start = asked(fleet, ENTRIES, 1)[0].content["arrays"]
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=2)
    *_, played = trial.played(ENTRIES, 2)
    assert np.array_equal(result.arrays["w"].numpy(), played.endings[SERVER].average)
    vectors = [update.vector.tobytes()[8:24] for n in (1, 2) for update in trial.brought(ENTRIES, n).values()]
    mail = [data for content in fleet.seen for data in content[RECORD].get("mail", ())]
    assert all(list(content) == [RECORD] for content in fleet.seen)
    assert len(mail) == 2 * 4 * 5
    assert not any(vector in data for vector in vectors for data in mail)
    # What nodes keep with Flower, and on disk, is sealed as well.
    kept = [value for context in fleet.contexts.values() for value in context.state.get(RECORD, {}).values()]
    kept += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(vector in data for vector in vectors for data in kept)


def test_counters_and_what_the_roster_excludes_are_not_brought(tmp_path):
    party = Trial.of(tmp_path, "secagg", 4, exclude=["head"]).participant("p1")
    model = {"w": np.ones(2, np.float32), "count": np.array([7]), "head": np.ones(3, np.float32)}
    content = RecordDict({"arrays": ArrayRecord({name: Array(array) for name, array in model.items()})})
    assert _extract_update(party, content).vector.tolist() == [1.0, 1.0]
    layout = Layout.of(model, ArraySelection(exclude=("head",)))
    back = restore_arrays(layout, np.array([2.0, 3.0]), model)
    assert {name: array.numpy().tolist() for name, array in back.items()} == {
        "w": [2.0, 3.0],
        "count": [7],
        "head": [1.0, 1.0, 1.0],
    }


def test_weights_are_examples_if_the_roster_has_a_largest(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4, max_weight=100.0)
    weights = {"p0": 10, "p1": 20, "p2": 30, "p3": 40}
    fleet = trial.fleet(ENTRIES, weights)
    found = averages(trial, fleet, trial.grid(fleet), 1)[SERVER]
    mean = sum(weights[party] * update.vector for party, update in trial.brought(ENTRIES).items()) / 100
    assert np.allclose(found, mean, atol=1e-4)
    assert not np.allclose(found, np.mean([each.vector for each in trial.brought(ENTRIES).values()], axis=0), atol=1e-4)


def test_too_large_a_weight_leaves_its_node_out_and_stays_there(tmp_path, caplog):
    trial = Trial.of(tmp_path, "secagg", 5, max_weight=100.0)
    fleet = trial.fleet(ENTRIES, {"p2": 4711})
    grid = trial.grid(fleet)
    answers = list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    (failed,) = [answer for answer in answers if answer.has_error()]
    assert failed.error.reason == grid.lost["p2"] == "config"
    assert "not 4711; try: raise max_weight in the roster" in caplog.text  # on the node
    assert grid.last.contributors == ("p0", "p1", "p3", "p4")


def test_a_round_that_fails_tells_the_strategy_why(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    fleet.fails = lambda party, *_: party in ("p1", "p2", "p3")
    answers = list(trial.grid(fleet).send_and_receive(asked(fleet, ENTRIES, 1)))
    assert len(answers) == 4
    assert all(answer.has_error() for answer in answers)


def test_training_is_not_answered_without_a_round(tmp_path, caplog):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    for answer in fleet.send_and_receive(asked(fleet, ENTRIES, 1)):
        assert answer.error.reason == "config"
    assert "accepts only rounds of Tacit" in caplog.text


def test_a_protocol_with_a_server_needs_one(tmp_path):
    fleet = Trial.of(tmp_path, "secagg", 4).fleet(ENTRIES)
    with pytest.raises(ConfigError, match="tacit-federation"):
        AveragingGrid(fleet).send_and_receive(asked(fleet, ENTRIES, 1))


def test_of_two_nodes_with_one_name_one_takes_part(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    twin = NODES + 4
    fleet.apps[twin], fleet.contexts[twin] = fleet.apps[NODES], fleet.contexts[NODES]
    grid = trial.grid(fleet)
    answers = list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    (failed,) = [answer for answer in answers if answer.has_error()]
    assert failed.error.reason == "another node is p0"
    assert grid.last.contributors == trial.roster.names


def test_time_is_up_only_when_nothing_is_under_way_and_for_the_least_patient_first():
    router = Router(["a", "b", "c"])
    router.record_result(
        "a", StepResult([SealedMessage("b", b"x"), SealedMessage("nobody", b"y")], waits=1, patience=1.0)
    )
    router.record_result("b", StepResult([], waits=1, patience=2.0))
    router.record_result("c", StepResult([], waits=3, patience=1.5))
    calls = router.next_calls()
    assert {party: (call.messages, call.expired) for party, call in calls.items()} == {"b": ([b"x"], 0)}
    router.record_result("b", StepResult([], waits=1, patience=2.0))  # it was not what it waits for
    assert {party: call.expired for party, call in router.next_calls().items()} == {"a": 1}
    router.record_result("a", StepResult([], over=True))
    assert {party: call.expired for party, call in router.next_calls().items()} == {"c": 3}
    router.drop_party("c")
    assert {party: call.expired for party, call in router.next_calls().items()} == {"b": 1}
    assert router.clock == 20.0  # and not later for messages that came in between
    router.record_result("b", StepResult([], over=True))
    assert router.next_calls() == {}


def without_mod(message, context):
    del context
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def lying(app, begins, **lies):
    """Returns an app that says something else of itself, or in rounds, than it should."""

    def lied(message, context):
        now = ("hello" in message.content[RECORD]) == begins
        answer = app(message, context)
        if now:
            for name, value in lies.items():
                answer.content[RECORD][name] = value
        return answer

    return lied


@pytest.mark.parametrize(
    "change",
    [
        lambda _: without_mod,
        lambda app: lying(app, True, party=""),
        lambda app: lying(app, True, place="first"),
        lambda app: lying(app, True, party="somebody"),
        lambda app: lying(app, True, party=SERVER),
        lambda app: lying(app, False, to=["p0", "p1"], mail=[b"one"]),
        lambda app: lying(app, False, waits="many"),
        lambda app: lying(app, False, patience=float("nan")),
        lambda app: lying(app, False, patience=-1.0),
        lambda app: lying(app, False, patience=0.0, over=False),
        lambda app: lying(app, False, to=["p0"], mail=[5]),
    ],
)
def test_whatever_a_node_answers_the_others_get_their_average(tmp_path, change):
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    fleet.apps[NODES + 2] = change(fleet.apps[NODES + 2])
    grid = trial.grid(fleet)
    average, failed = grid.send_and_receive(asked(fleet, ENTRIES, 1))
    assert not average.has_error()
    assert failed.has_error()
    assert "is invalid" in failed.error.reason or "did not introduce itself" in failed.error.reason
    assert set(grid.last.contributors) == {"p0", "p1", "p3", "p4"}


def endless(app, **lies):
    """Returns an app that goes on for ever."""
    count = itertools.count(1000)

    def lied(message, context):
        answer = app(message, context)
        if "waits" in answer.content[RECORD]:
            record = {"over": False, "waits": next(count), "patience": 1.0, "to": [], "mail": []} | lies
            for name, value in record.items():
                answer.content[RECORD][name] = value
        return answer

    return lied


ENDLESS = [{}, {"waits": 7}, {"to": ["p2"], "mail": [b"to myself"]}, {"to": ["p0"], "mail": [b"nonsense"]}]


@pytest.mark.parametrize("lies", ENDLESS)
def test_a_round_with_a_server_does_not_wait_for_a_node_that_goes_on_for_ever(tmp_path, lies):
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    fleet.apps[NODES + 2] = endless(fleet.apps[NODES + 2], **lies)
    grid = trial.grid(fleet)
    average, failed = grid.send_and_receive(asked(fleet, ENTRIES, 1))
    assert not average.has_error()
    assert failed.error.reason == ("it does not finish" if "waits" in lies else "silent")
    assert set(grid.last.contributors) == {"p0", "p1", "p3", "p4"}
    assert grid.hops <= 7


@pytest.mark.parametrize("lies", ENDLESS)
def test_a_node_that_goes_on_for_ever_without_a_server_is_given_up(tmp_path, lies):
    trial = Trial.of(tmp_path, "gossip", 5)
    fleet = trial.fleet(ENTRIES)
    fleet.apps[NODES + 2] = endless(fleet.apps[NODES + 2], **lies)
    grid = trial.grid(fleet)
    average, failed = grid.send_and_receive(asked(fleet, ENTRIES, 1))
    assert not average.has_error()
    assert failed.error.reason == "it does not finish"
    assert grid.hops < 100


def test_that_there_is_a_server_is_not_taken_from_one_node(tmp_path):
    trial = Trial.of(tmp_path, "gossip", 4)
    fleet = trial.fleet(ENTRIES)
    fleet.apps[NODES + 2] = lying(fleet.apps[NODES + 2], True, server=True)
    average, failed = trial.grid(fleet).send_and_receive(asked(fleet, ENTRIES, 1))
    assert not average.has_error()
    assert "give its roster" in failed.error.reason


def test_nodes_are_called_by_the_function_that_the_strategy_asked_for(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    for place, party in enumerate(trial.roster.names):
        app = fleet.apps[NODES + place] = ClientApp(mods=[make_mod(lambda _, party=party: trial.participant(party))])

        @app.train("longer")
        def longer(message, context):
            del context
            return Message(RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(ENTRIES))})}), reply_to=message)

        @app.query()
        def query(message, context):
            del context
            return Message(RecordDict(), reply_to=message)

    mixed = [*asked(fleet, ENTRIES, 1, "train.longer"), *asked(fleet, ENTRIES, 1, "query")[:1]]
    plain, average = trial.grid(fleet).send_and_receive(mixed)
    assert not plain.content
    assert average.content["arrays"]["w"].numpy() == pytest.approx(1.0)


def test_a_message_without_a_number_is_refused_in_words(tmp_path, caplog):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    message = asked(fleet, ENTRIES, 1)[0]
    message.content[RECORD] = ConfigRecord({"parties": []})
    (answer,) = fleet.send_and_receive([message])
    assert answer.error.reason == "config"
    assert "has no round" in caplog.text
