"""The announcement of a round's average, which reaches a node beside the next message: no round waits for it.

Servers here withhold it, repeat it, send that of another round, or put other messages in its place.
"""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from support.flower_fleet import NODES, Trial, asked
from tacit.core.suite import SERVER
from tacit.integrations.flower.driver import RECORD, make_mod
from tacit.integrations.flower.party import JOURNAL, UPDATE

ENTRIES = 12
HOPS = {"fedavg": 2, "secagg": 5, "gossip": 2, "pushsum": 2}


def state(fleet, place):
    """Returns what a node keeps with Flower."""
    return fleet.contexts[NODES + place].state.get(RECORD, {})


def change_messages(fleet, change):
    """Lets `change` replace the fields of Tacit's record in every message to a node."""
    call = fleet.send_and_receive

    def send_and_receive(messages, *, timeout=None):
        changed = []
        for message in messages:
            fields = message.content.config_records.get(RECORD)
            if fields is not None:
                party = f"p{message.metadata.dst_node_id - NODES}"
                content = RecordDict({**message.content, RECORD: ConfigRecord(change(party, dict(fields)))})
                about = message.metadata
                message = Message(content, dst_node_id=about.dst_node_id, message_type=about.message_type)
            changed.append(message)
        return call(changed, timeout=timeout)

    fleet.send_and_receive = send_and_receive


def run_rounds(trial, fleet, rounds):
    """Runs rounds, each of which has to have the simulator's average of everybody, bit for bit."""
    grid = trial.grid(fleet)
    for number, played in enumerate(trial.played(ENTRIES, rounds), 1):
        (first, *failed) = grid.send_and_receive(asked(fleet, ENTRIES, number))
        assert failed == []
        assert np.array_equal(first.content["arrays"]["w"].numpy(), played.endings[SERVER].average)
        assert grid.last.contributors == trial.roster.names
    return grid


@pytest.mark.parametrize("protocol", HOPS)
def test_the_hops_of_a_round(tmp_path, protected, protocol):
    trial = Trial.of(tmp_path, protocol, 4, **protected.get(protocol, {}))
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    for number in (1, 2):
        list(grid.send_and_receive(asked(fleet, ENTRIES, number)))
        assert grid.hops == HOPS[protocol]
        assert grid.lost == {}


def watch_node(trial, fleet):
    """Returns what the app of p1 sees from now on, and how its rounds end."""
    contents, endings = [], []

    def spy(message, context, call_next):
        contents.append(list(message.content))
        return call_next(message, context)

    app = ClientApp(mods=[make_mod(lambda _: trial.participant("p1"), endings.append), spy])
    arrays = ArrayRecord({"w": Array(np.ones(ENTRIES))})

    @app.train()
    def train(message, context):
        del context
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        del context
        return Message(RecordDict(), reply_to=message)

    fleet.apps[NODES + 1] = app
    return contents, endings


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_the_next_message_ends_the_round_and_the_app_does_not_see_it(tmp_path, kind):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    contents, endings = watch_node(trial, fleet)
    grid = trial.grid(fleet)
    (first,) = grid.send_and_receive(asked(fleet, ENTRIES, 1))
    grid_average = first.content["arrays"]["w"].numpy()
    assert {JOURNAL, UPDATE} <= state(fleet, 1).keys(), "it waits for the announcement"
    assert endings == []
    messages = asked(fleet, ENTRIES, 2, kind)
    answers = list(grid.send_and_receive(messages))
    assert not any(answer.has_error() for answer in answers)
    assert all(list(message.content) == ["arrays", "config"] for message in messages)  # strategies use them again
    assert contents == [["arrays", "config"]] * 2
    (ending,) = endings
    assert ending.round == 1
    assert ending.error is None
    assert np.array_equal(ending.average, grid_average)
    assert (JOURNAL in state(fleet, 1)) == (kind == "train")
    list(grid.send_and_receive(asked(fleet, ENTRIES, 3, kind)))
    assert len(endings) == 1 + (kind == "train"), "it was delivered once"


def test_a_message_that_trains_outside_a_round_is_refused_with_an_announcement_too(tmp_path, caplog):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    fields = grid._take_announcement("p1")
    assert fields["announced"]
    message = asked(fleet, ENTRIES, 2)[1]
    message.content[RECORD] = ConfigRecord(fields)
    (answer,) = fleet.send_and_receive([message])
    assert answer.error.reason == "config"
    assert "accepts only rounds of Tacit" in caplog.text


# --- servers that lie ----------------------------------------------------------------------------------------------


ANNOUNCES = ("earlier", "announced")


def withhold(party, fields):
    """Withholds every announcement from two nodes."""
    return fields if party in ("p0", "p3") else {key: fields[key] for key in fields if key not in ANNOUNCES}


def test_nodes_without_an_announcement_take_part_in_the_next_round(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    change_messages(fleet, withhold)
    run_rounds(trial, fleet, 3)


class Repeater:
    """A server that sends each node the announcements of all rounds so far, the newest or the oldest first."""

    def __init__(self, *, newest_first):
        self.newest_first, self.sent = newest_first, {}

    def __call__(self, party, fields):
        if "announced" in fields:
            now, before = fields["announced"], self.sent.get(party, [])
            fields["announced"] = self.sent[party] = [*now, *before] if self.newest_first else [*before, *now]
        return fields


@pytest.mark.parametrize("newest_first", [True, False])
def test_repeated_announcements_change_nothing(tmp_path, newest_first):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    change_messages(fleet, Repeater(newest_first=newest_first))
    run_rounds(trial, fleet, 4)


class Delayer:
    """A server that announces each round a round too late, as that round or as the last one."""

    def __init__(self, *, renumber):
        self.renumber, self.late = renumber, {}

    def __call__(self, party, fields):
        if "announced" in fields:
            now = {key: fields.pop(key) for key in ANNOUNCES}
            late = self.late.get(party)
            self.late[party] = now
            if late is not None:
                fields |= late | ({"earlier": now["earlier"]} if self.renumber else {})
        return fields


@pytest.mark.parametrize("renumber", [True, False])
def test_announcements_of_other_rounds_change_nothing(tmp_path, renumber):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    change_messages(fleet, Delayer(renumber=renumber))
    run_rounds(trial, fleet, 4)


@pytest.mark.parametrize(
    "lie",
    [
        {"earlier": "one"},
        {"earlier": -1},
        {"earlier": 2**62},
        {"announced": [1, 2]},
        {"announced": "mail"},
        {"announced": [b"nonsense", b""]},
        {"announced": []},
    ],
    ids=str,
)
def test_announcements_that_cannot_be_read_change_nothing(tmp_path, lie):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    change_messages(fleet, lambda _, fields: fields | lie if "announced" in fields else fields)
    run_rounds(trial, fleet, 3)


@pytest.mark.parametrize("hop", [1, 2, 3, 4])
def test_messages_of_mid_round_in_place_of_an_announcement_get_no_answer(tmp_path, hop):
    """A server lets a node process the messages of a hop beside the next request: what it would send is dropped."""
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    held = {}

    def hold_back(party, fields):
        if party == "p1" and fields.get("round") == 1 and "mail" in fields and (held or fleet.hop + 1 == hop):
            held.setdefault("announced", fields["mail"])
            fields["mail"], fields["expired"] = [], 0
        if party == "p1" and fields.get("round") == 2 and "parties" in fields:
            assert held["announced"]
            fields |= held | {"earlier": 1}
        return fields

    change_messages(fleet, hold_back)
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    said = len(fleet.seen)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 2)))
    assert grid.last.contributors == trial.roster.names
    begun = [content[RECORD] for content in fleet.seen[said : said + 5]]
    assert [each["to"] for each in begun] == [[SERVER]] * 5, "only the first message of the new round"
    assert len({len(each["mail"][0]) for each in begun}) == 1


def test_of_two_rounds_at_once_the_older_one_is_given_up(tmp_path, caplog):
    """A server begins a round while another one is under way, and then goes on with the older one."""
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    copies = []

    def keep(party, fields):
        if party == "p1" and fields.get("round") == 1:
            copies.append(dict(fields))
        return fields

    change_messages(fleet, keep)
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    fleet.fails = lambda party, number, hop: party != "p1" and number == 2 and hop > 0
    list(grid.send_and_receive(asked(fleet, ENTRIES, 2)))
    assert len(copies) == HOPS["secagg"]
    for again in list(copies):
        content = RecordDict({**asked(fleet, ENTRIES, 1)[1].content, RECORD: ConfigRecord(again)})
        (answer,) = fleet.send_and_receive([Message(content, dst_node_id=NODES + 1, message_type="train")])
        assert answer.error.reason == "journal"
    assert "has begun round 2 and does not begin round 1 again" in caplog.text
    assert "p1 is not in round 1" in caplog.text
    fleet.fails = lambda *_: False
    list(grid.send_and_receive(asked(fleet, ENTRIES, 3)))
    assert grid.last.contributors == trial.roster.names


def test_a_server_that_restarts_before_it_announces_goes_on(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    for number in (1, 2, 3):
        grid = trial.grid(fleet)  # has no announcement of the round before
        list(grid.send_and_receive(asked(fleet, ENTRIES, number)))
        assert grid.last.contributors == trial.roster.names
        assert grid.last.round == number


def test_a_node_that_was_not_asked_takes_part_in_the_next_round(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    for number, absent in enumerate((2, 0, 4, None), 1):
        messages = asked(fleet, ENTRIES, number)
        list(grid.send_and_receive([each for place, each in enumerate(messages) if place != absent]))
        assert len(grid.last.contributors) == 5 - (absent is not None)
