"""What a node keeps with Flower, lost, changed, or handed out twice: the round is refused, and never begun again."""

import copy
import shutil

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")

from flwr.app import ConfigRecord, Context, Message, RecordDict

from support.flower_fleet import NODES, Trial, asked
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, JournalError
from tacit.core.suite import SERVER
from tacit.integrations.flower import api
from tacit.integrations.flower.averaging_grid import LEEWAY
from tacit.integrations.flower.driver import RECORD
from tacit.integrations.flower.party import JOURNAL, UPDATE
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round_numbers import AHEAD

pytestmark = pytest.mark.long

ENTRIES = 6
LATER = [1, 3]
"""Hops at which p1 finds that something is gone: before its vector has left, and afterwards."""


def flipped(data, place):
    place = place % len(data)
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def played(trial, before, rounds=3):
    """Plays rounds in which `before` meddles with the state of p1, and returns the grid and what was said of p1."""
    fleet, said = trial.fleet(ENTRIES), []
    fleet.before = lambda party, number, hop, state: before(number, hop, state) if party == "p1" else None
    grid = trial.grid(fleet)
    for number in range(1, rounds + 1):
        list(grid.send_and_receive(asked(fleet, ENTRIES, number)))
        said.append((grid.lost.get("p1"), grid.last.contributors))
    return said


def refused(said, why, log, summed=True):
    """Looks whether p1 was refused in round 1, the others went on, with its vector or without, and it was back."""
    (first, left), *_, (last, everybody) = said
    assert first == "journal"  # the code alone
    assert why in log.text
    assert ("p1" in left) == summed
    assert last is None
    assert everybody == ("p0", "p1", "p2", "p3", "p4")


@pytest.mark.parametrize("hop", LATER)
def test_a_round_whose_state_is_gone_is_refused(tmp_path, hop, caplog):
    def lose(number, at, state):
        if (number, at) == (1, hop):
            state.clear()

    said = played(Trial.of(tmp_path, "secagg", 5), lose)
    refused(said, "is lost, and the round must not begin again", caplog, summed=hop > 2)


@pytest.mark.parametrize("what", [JOURNAL, UPDATE])
def test_a_round_whose_state_was_changed_is_refused(tmp_path, what):
    trial, storage = Trial.of(tmp_path, "gossip", 4), {}
    said = trial.participant("p0").begin(storage, 1, trial.brought(ENTRIES)["p0"], ENTRIES)
    kept = dict(storage)
    assert said.messages
    for place in (0, 11, 12, 30, len(kept[what]) // 2, -1):
        storage[what] = flipped(kept[what], place)
        with pytest.raises(JournalError, match="was changed, or is from another round"):
            trial.participant("p0").advance(storage, 1, [])
    trial.participant("p0").advance(kept, 1, [])


def test_an_older_copy_of_the_state_is_refused(tmp_path, caplog):
    copies = {}

    def older(number, at, state):
        if number == 1 and at == 1:
            copies[0] = copy.deepcopy(state[RECORD])
        if number == 1 and at == 3:
            state[RECORD] = copies[0]

    refused(played(Trial.of(tmp_path, "secagg", 5), older), "the journal is incomplete", caplog)


def test_the_state_of_another_round_is_refused(tmp_path, caplog):
    copies = {}

    def earlier(number, at, state):
        if number == 1 and at == 2:
            copies[0] = copy.deepcopy(state[RECORD])
        if number == 3 and at == 2:
            state[RECORD] = copies[0]

    said = played(Trial.of(tmp_path, "secagg", 5), earlier)
    assert said[2][0] == "journal"
    assert "was changed, or is from another round" in caplog.text


def test_the_state_of_another_party_is_refused(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)

    def swap(party, _, hop, state):
        if party == "p1" and hop == 2:
            state[RECORD] = fleet.contexts[NODES].state[RECORD]

    fleet.before = swap
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    assert grid.lost["p1"] == "journal"


def test_a_process_that_ends_before_its_state_is_kept_says_nothing_twice(tmp_path, caplog):
    copies = {}

    def cut(number, at, state):
        # The call before was cut off after it had written its mark, so Flower still has what there was before it.
        if number == 1 and at == 2:
            copies[0] = copy.deepcopy(state)
        if number == 1 and at == 3:
            state.clear()
            state.update(copies[0])

    refused(played(Trial.of(tmp_path, "secagg", 5), cut), "the journal is incomplete", caplog)


@pytest.mark.parametrize("lost", [False, True], ids=["with its state", "without"])
def test_no_number_is_begun_twice(tmp_path, lost):
    trial = Trial.of(tmp_path, "cesar", 5)
    p1, storage = trial.participant("p1"), {}
    first, second = (trial.brought(ENTRIES, number)["p1"] for number in (1, 2))
    p1.begin(storage, 1, first, ENTRIES)
    if lost:
        storage.clear()
    with pytest.raises(JournalError, match="does not begin round 1 again"):
        trial.participant("p1").begin(storage, 1, second, ENTRIES)
    trial.participant("p1").begin(storage, 2, second, ENTRIES)
    with pytest.raises(JournalError, match="p1 is not in round 1"):
        trial.participant("p1").advance(storage, 1, [])


def test_what_is_said_again_is_the_same(tmp_path):
    trial = Trial.of(tmp_path, "gossip", 4)
    storages = {party: {} for party in trial.roster.names}
    said = {}
    company = {party: trial.participant(party).incarnation for party in trial.roster.names}
    for party, update in trial.brought(ENTRIES).items():
        said[party] = trial.participant(party).begin(storages[party], 1, update, ENTRIES, company)
    kept = copy.deepcopy(storages["p0"])
    p0 = trial.participant("p0")
    assert p0.advance(storages["p0"], 1, []).messages == []  # a call with nothing in it changes nothing
    assert storages["p0"] == kept
    mail = [each.data for said_ in said.values() for each in said_.messages if each.to == "p0"]
    assert p0.advance(storages["p0"], 1, [*mail, *mail]).over
    assert trial.participant("p0").advance(storages["p0"], 1, mail).over  # and answers whoever calls again
    assert np.array_equal(p0.average(storages["p0"]), p0.last.average)


def test_an_average_that_was_changed_is_not_trained_on(tmp_path, caplog):
    trial = Trial.of(tmp_path, "gossip", 4)
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    storage = fleet.contexts[NODES].state[RECORD]
    storage["average"] = flipped(storage["average"], 20)
    first, *others = grid.send_and_receive(asked(fleet, ENTRIES, 1, "evaluate"))
    assert first.error.reason == "journal"
    assert "was changed; try: take part in a new run" in caplog.text
    assert not any(answer.has_error() for answer in others)


def test_a_mark_that_was_changed_ends_the_session(tmp_path):
    trial = Trial.of(tmp_path, "gossip", 4)
    trial.participant("p0").begin({}, 1, trial.brought(ENTRIES)["p0"], ENTRIES)
    mark = tmp_path / "p0.flower" / "mark"
    mark.write_bytes(flipped(mark.read_bytes(), 30))
    with pytest.raises(JournalError, match="tacit roster renew"):
        trial.participant("p0").begin({}, 2, trial.brought(ENTRIES)["p0"], ENTRIES)


# --- marks that are lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [("tip", "lock"), ("tip",), ("lock",)], ids=" ".join)
def test_a_mark_that_is_gone_alone_ends_the_session(tmp_path, left):
    trial = Trial.of(tmp_path, "pushsum", 4, masked=True)
    trial.participant("p0").begin({}, 1, trial.brought(ENTRIES)["p0"], ENTRIES)
    for path in (tmp_path / "p0.flower").iterdir():
        if path.name not in left:
            path.unlink()
    for number in (1, 2):
        with pytest.raises(
            JournalError, match=r"is lost, and with it the number of the last round.*tacit roster renew"
        ):
            trial.participant("p0").begin({}, number, trial.brought(ENTRIES, 2)["p0"], ENTRIES)


def test_a_process_that_ends_before_the_first_mark_is_written_leaves_nothing_lost(tmp_path, monkeypatch):
    trial = Trial.of(tmp_path, "gossip", 4)
    monkeypatch.setattr("tacit.integrations.flower.node_state.create_private", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trial.participant("p0").begin({}, 1, trial.brought(ENTRIES)["p0"], ENTRIES)
    monkeypatch.undo()
    trial.participant("p0").begin({}, 1, trial.brought(ENTRIES)["p0"], ENTRIES)


def opened(trial, party, said, company):
    """Returns the masked vector that a curious neighbour finds in what p0 said to it; None if it cannot read it."""
    agreement = trial.participant(party)._derive_agreement(ENTRIES, company)
    seat = KeyedParticipant(agreement, trial.credentials[party].identity)
    suite, codec = seat.suite(1, bytes(32)), seat.codec
    (mail,) = [each for each in said.messages if each.to == party]
    envelope = codec.read(mail.data)
    message = codec.open(suite, suite.channel("p0", agreement.session), envelope)
    return np.frombuffer(bytes(codec.decode(envelope.address.kind, message).vector), np.uint32)


def test_a_party_whose_folder_is_gone_masks_nothing_as_it_did_before(tmp_path):
    trial = Trial.of(tmp_path, "pushsum", 4, masked=True)
    company = {party: trial.participant(party).incarnation for party in trial.roster.names}
    first = trial.participant("p0").begin({}, 1, trial.brought(ENTRIES, 1)["p0"], ENTRIES, company)
    shutil.rmtree(tmp_path / "p0.flower")
    # Whoever carries mail says that nothing has changed, or knows what has.
    with pytest.raises(JournalError, match="from an earlier installation"):
        trial.participant("p0").begin({}, 1, trial.brought(ENTRIES, 2)["p0"], ENTRIES, company)
    renewed = {**company, "p0": trial.participant("p0").incarnation}
    again = trial.participant("p0").begin({}, 1, trial.brought(ENTRIES, 1)["p0"], ENTRIES, renewed)
    # The same model, the same seed and number: but for the incarnation, all would be the same to the last bit.
    one, two = opened(trial, "p1", first, company), opened(trial, "p1", again, renewed)
    assert not (one == two).any()


def test_a_server_remembers_whose_journal_was_lost(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    list(trial.grid(fleet).send_and_receive(asked(fleet, ENTRIES, 1)))
    shutil.rmtree(tmp_path / "p1.flower")
    grid = trial.grid(fleet)
    answers = list(grid.send_and_receive(asked(fleet, ENTRIES, 2)))
    (failed,) = [answer for answer in answers if answer.has_error()]
    assert "p1 has lost its journal" in failed.error.reason
    assert grid.last.contributors == ("p0", "p2", "p3", "p4")
    trial.roster = trial.roster.renew(SystemEntropy())
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    for number in (3, 4):  # in the first it hears the average that it has missed
        list(grid.send_and_receive(asked(fleet, ENTRIES, number)))
    assert grid.last.contributors == trial.roster.names


def test_one_that_speaks_for_another_does_not_have_it_taken_for_lost(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 5)
    fleet = trial.fleet(ENTRIES)
    honest = fleet.apps[NODES + 1]

    def liar(message, context):
        answer = honest(message, context)
        if "hello" in message.content.config_records.get(RECORD, {}):
            answer.content[RECORD]["incarnation"] = bytes(16)
        return answer

    fleet.apps[NODES + 1] = liar
    list(trial.grid(fleet).send_and_receive(asked(fleet, ENTRIES, 1)))
    fleet.apps[NODES + 1] = honest
    grid = trial.grid(fleet)
    for number in (2, 3):  # in the first it hears the average that it has missed
        list(grid.send_and_receive(asked(fleet, ENTRIES, number)))
    assert grid.last.contributors == trial.roster.names


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [2**64 - 2, 2**63 - 2, 2**48 - 1, 2**30, -1])
def test_one_that_lies_uses_up_nobodys_numbers(tmp_path, said):
    trial = Trial.of(tmp_path, "secagg", 4)
    fleet = trial.fleet(ENTRIES)
    honest = fleet.apps[NODES + 3]

    def liar(message, context):
        answer = honest(message, context)
        if "hello" in message.content.config_records.get(RECORD, {}):
            answer.content[RECORD]["rounds"] = said
        return answer

    fleet.apps[NODES + 3] = liar
    list(trial.grid(fleet).send_and_receive(asked(fleet, ENTRIES, 1)))
    assert all(0 < trial.participant(party).rounds <= LEEWAY + 1 for party in ("p0", "p1", "p2", SERVER))
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 2)))
    assert {"p0", "p1", "p2"} <= set(grid.last.contributors)


def test_whoever_was_asked_more_often_than_most_is_still_in(tmp_path):
    trial = Trial.of(tmp_path, "gossip", 5)
    trial.participant("p0").begin({}, 30, trial.brought(ENTRIES)["p0"], ENTRIES)
    fleet = trial.fleet(ENTRIES)
    grid = trial.grid(fleet)
    list(grid.send_and_receive(asked(fleet, ENTRIES, 1)))
    assert grid.lost == {}
    assert trial.participant("p1").rounds == 31


@pytest.mark.parametrize("number", [AHEAD + 1, 2**48, 2**64 - 1, 2**70])
def test_no_server_moves_a_node_further_than_so_far(tmp_path, number):
    trial = Trial.of(tmp_path, "secagg", 4)
    p0 = trial.participant("p0")
    with pytest.raises(JournalError, match="is too far ahead of round"):
        p0.begin({}, number, trial.brought(ENTRIES)["p0"], ENTRIES)
    p0.begin({}, AHEAD, trial.brought(ENTRIES)["p0"], ENTRIES)
    assert p0.rounds == AHEAD


# --- by files ------------------------------------------------------------------------------------------------------


def asked_by(config, node_config):
    """Returns what the mod of a user's app answers to a hello."""
    context = Context(1, NODES, node_config, RecordDict(), config)
    hello = Message(
        RecordDict({RECORD: ConfigRecord({"hello": True, "challenge": bytes(16)})}),
        dst_node_id=NODES,
        message_type="train",
    )
    return api.mod(hello, context, lambda *_: pytest.fail("nothing was to be trained"))


def test_nodes_find_their_party_by_configuration(tmp_path, caplog):
    path = api.trial(tmp_path / "keys" / "federation.toml", "secagg", 4)
    assert api.trial(path, "secagg", 4) == path  # it is there, and keys are never made anew
    with pytest.raises(ConfigError, match="belongs to secagg between 4 parties, not secagg between 9"):
        api.trial(path, "secagg", 9)
    run = {"tacit-federation": str(path)}
    assert asked_by(run, {"partition-id": 2}).content[RECORD]["party"] == "p2"
    assert asked_by({}, {**run, "tacit-me": "p3"}).content[RECORD]["party"] == "p3"
    # What the node's own configuration says comes before that of whoever started the run.
    assert asked_by({"tacit-federation": "/nowhere"}, {**run, "tacit-me": "p1"}).content[RECORD]["party"] == "p1"
    for config, node_config, said in (
        ({}, {"partition-id": 2}, "where is the roster?"),
        (run, {"partition-id": 4}, "which party is this?"),
        (run, {}, "which party is this?"),
    ):
        caplog.clear()
        assert asked_by(config, node_config).error.reason == "config"
        assert said in caplog.text


def test_keys_that_others_can_read_are_refused(tmp_path, caplog):
    path = api.trial(tmp_path / "federation.toml", "secagg", 4)
    (tmp_path / "p2.identity").chmod(0o640)
    assert asked_by({"tacit-federation": str(path)}, {"partition-id": 2}).error.reason == "config"
    assert "chmod 600" in caplog.text


def test_settings_that_leak_are_refused_before_anything_is_sent(tmp_path):
    path = api.trial(tmp_path / "federation.toml", "secagg", 2)
    assert asked_by({"tacit-federation": str(path)}, {"partition-id": 0}).error.reason == "leak"
