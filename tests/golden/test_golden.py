"""Golden files of earlier releases: what they wrote is read to the same content, or refused in a line with a cure.

`unreleased` has what changed since the last release: the messages, journals and states of secagg, which now sign the
lineage of a model. Of 0.2.0, states and finished rounds of secagg are read, and interrupted rounds are given up.
"""

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from golden_rounds import ENTRIES, FEDERATION, Desk, digest_of, fields_of, plain, play, update_of

from tacit.app.ui.run_folders import describe_run
from tacit.core import state_blobs
from tacit.core.errors import JournalError, TacitError, WireError
from tacit.core.messages import Abort, Address, Codec, Greeting
from tacit.core.values import normalize_value
from tacit.designs.graphs import graph_from
from tacit.designs.participation import participation_from
from tacit.integrations.flower.party import FlowerParty
from tacit.learn.scenario import Scenario
from tacit.learn.training.node_training import NodeCheckpoint
from tacit.learn.training.run_folder import CHECKPOINT, LEDGER, MODEL, SCENARIO
from tacit.learn.training.train import train
from tacit.net.membership.identity import Card, Credentials
from tacit.net.membership.rendezvous import Hello
from tacit.net.membership.roster import RosterFile
from tacit.net.observability.status import Status
from tacit.net.store.index import summarize_store
from tacit.net.store.round_store import RoundStore
from tacit.net.transport.framing import split_header
from tacit.privacy import Ledger
from tacit.protocols import REGISTRY
from tacit.protocols.pushsum.start_weights import StartKind
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.simulator import Simulation

GOLDEN = Path(__file__).parent / "0.2.0"
NEWER = {"secagg": GOLDEN.with_name("unreleased"), "control.json": GOLDEN.with_name("unreleased")}
NEWER["flower"] = NEWER["settings.json"] = NEWER["rotating"] = NEWER["secagg"]
"""Folders of specimens that replace those of 0.2.0, by the first part of their path."""
PROTOCOLS = ("fedavg", "secagg", "gossip", "admm", "pushsum", "cesar", "rotating")
STORES = {"secagg": state_blobs.LONG, "pushsum": 8}
"""Protocols with specimens of stores, and from how many bytes on a vector was written to a file of its own."""


def newest(name):
    """Returns the path of the newest specimen."""
    return NEWER.get(str(name).partition("/")[0], GOLDEN) / name


def told(name):
    return json.loads(newest(name).read_bytes())


@pytest.fixture
def copied(tmp_path):
    """Returns a function that copies a golden file or folder to where it may be written to."""

    def copy(name, path=None):
        path = path or newest(name)
        to = tmp_path / Path(name).name
        if path.is_dir():
            return shutil.copytree(path, to)
        shutil.copyfile(path, to)
        to.chmod(0o600)
        return to

    return copy


@pytest.fixture
def credentials(copied):
    folder = copied("identities")
    for path in folder.glob("*.identity"):
        path.chmod(0o600)  # which no version control keeps
    return {path.stem: Credentials.load(path) for path in folder.glob("*.identity")}


def agreement_of(protocol):
    return RosterFile.load(newest(f"{protocol}/federation.toml")).agreement(ENTRIES)


# --- membership ----------------------------------------------------------------------------------------------------


def test_cards_are_those_of_their_identities(credentials):
    assert len(credentials) == 7
    for name, mine in credentials.items():
        card = Card.load(GOLDEN / "identities" / f"{name}.card")
        assert card == mine.card(card.address), "as it would be signed now"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_roster_gives_the_same_session(protocol):
    agreement, then = agreement_of(protocol), told(f"{protocol}/rounds.json")
    assert agreement.described == then["described"]
    assert plain(agreement.session) == then["session"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_roster_is_written_as_it_was(protocol, tmp_path):
    path = newest(f"{protocol}/federation.toml")
    RosterFile.load(path).save(tmp_path / "again.toml")
    uncommented = [
        [line for line in file.read_text().splitlines() if not line.startswith("#")]
        for file in (path, tmp_path / "again.toml")
    ]
    assert uncommented[0] == uncommented[1]


# --- messages, states, journals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_message_is_read_and_written_as_it_was(protocol):
    agreement, then = agreement_of(protocol), told(f"{protocol}/rounds.json")["messages"]
    codec = Codec(agreement.protocol.messages, len(agreement.parties), ENTRIES + 1)
    assert set(then) == set(codec.kinds) - {"Abort"}
    for kind, golden in then.items():
        data = bytes.fromhex(golden["data"])
        message = codec.decode(kind, data)
        assert fields_of(message) == golden["fields"]
        assert b"".join(codec.encode(message)) == data


def test_control_messages_are_read_and_written_as_they_were():
    then = {name: (bytes.fromhex(each["data"]), each["fields"]) for name, each in told("control.json").items()}
    codec = Codec((), 2, ENTRIES)
    data, fields = then.pop("Abort")
    assert codec.decode("Abort", data) == Abort(**fields)
    assert b"".join(codec.encode(Abort(**fields))) == data
    data, fields = then.pop("Greeting")
    greeting = codec.read(data)
    assert isinstance(greeting, Greeting)
    assert plain(msgspec.to_builtins(greeting, builtin_types=(bytes,))) == {"type": "Greeting", **fields}
    assert msgspec.msgpack.encode(greeting) == data
    data, fields = then.pop("Envelope")
    envelope = codec.read(data)
    assert plain([list(msgspec.structs.astuple(envelope.address)), bytes(envelope.sealed)]) == fields
    assert codec.wrap_sealed(envelope.address, bytes(envelope.sealed)) == data
    data, fields = then.pop("Hello")
    hello = msgspec.msgpack.decode(data, type=Hello)
    assert fields_of(hello) == fields
    assert msgspec.msgpack.encode(hello) == data
    data, fields = then.pop("Head")
    head, rest = split_header(memoryview(data))
    assert fields_of(head) == fields
    assert rest == b"bytes"
    assert not then


def test_a_greeting_is_signed_as_it_was_and_says_what_differs(credentials):
    data = bytes.fromhex(told("control.json")["Greeting"]["data"])
    greeting, agreement = Codec((), 2, ENTRIES).read(data), agreement_of("secagg")
    sender, receiver = (
        KeyedParticipant(agreement, credentials[name].identity).suite(1, bytes(32)) for name in ("p0", "p1")
    )
    heard = Address(greeting.session, greeting.round, 0, "MaskedInput", "p1", "p0")
    assert msgspec.msgpack.encode(agreement.greeting(sender, 1, heard)) == data
    assert agreement.difference(receiver, greeting) is None
    difference = agreement_of("fedavg").difference(receiver, greeting)
    assert all(word in difference for word in ("protocol", "secagg", "fedavg", "p0"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_rounds_send_the_same_bytes(protocol, credentials):
    agreement, then = agreement_of(protocol), told(f"{protocol}/rounds.json")
    desks = {name: Desk.of(agreement, credentials[name].identity) for name in agreement.everyone}
    sent = [post.data for number in (1, 2) for post in play(desks, number)]
    assert digest_of(sent) == then["said"]
    assert desks["p1"].seat.round.ending.average.tolist() == then["average"]
    for name, golden in then["states"].items():
        assert plain(agreement.protocol.encode_state(desks[name].seat.state, (name, 2))) == golden["data"]
    for name, golden in then["journals"].items():
        assert plain(desks[name].journal.encode()) == golden["journal"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_states_are_read(protocol):
    for name, golden in told(f"{protocol}/rounds.json")["states"].items():
        state = REGISTRY[protocol].decode_state(bytes.fromhex(golden["data"]), (name, 2))
        assert fields_of(state) == golden["fields"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_journals_are_read_and_resumed(protocol, credentials):
    agreement = agreement_of(protocol)
    for name, golden in told(f"{protocol}/rounds.json")["journals"].items():
        journal = Journal.decode(bytes.fromhex(golden["journal"]), bytes.fromhex(golden["tip"]))
        assert len(journal.read()) == len(golden["records"])
        state = agreement.protocol.decode_state(bytes.fromhex(golden["before"]), (name, 1))
        seat = KeyedParticipant(agreement, credentials[name].identity, number=2, state=state, unfinished=True)
        said = seat.resume(journal, update_of(name, 2))
        assert digest_of(post.data for post in said) == golden["said"]
        assert seat.round.over


# --- settings ------------------------------------------------------------------------------------------------------


def test_every_kind_of_a_setting_is_read_and_spelled_as_it_was():
    then = told("settings.json")
    readers = {
        "participation": participation_from,
        "graph": graph_from,
        "y0": lambda given: msgspec.convert(given, StartKind),
    }
    assert set(then) == set(readers)
    for name, golden in then.items():
        assert [normalize_value(readers[name](each)) for each in golden] == golden


def test_a_seed_gives_the_same_session_whatever_goes_wrong():
    parties = [f"p{place}" for place in range(4)]
    for golden in told("seeded.json").values():
        simulation = Simulation.of("fedavg", parties, ENTRIES, seed=1, faults=golden["faults"])
        outcome = simulation.average({party: update_of(party, 1) for party in parties})
        assert plain(simulation.agreement.session) == golden["session"]
        assert list(outcome.contributors) == golden["contributors"]


# --- folders -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", STORES)
def test_a_store_after_a_round_is_read(protocol, copied):
    folder, agreement = copied(f"{protocol}/store-finished"), agreement_of(protocol)
    golden = told(f"{protocol}/stores.json")["finished"]
    glance = summarize_store(folder)
    assert (glance.party, glance.federation, glance.number, glance.under_way) == ("p1", FEDERATION, 1, False)
    with closing(RoundStore(folder, "p1", FEDERATION)) as store:
        found = store.load(agreement.session)
        assert store.first_seen(agreement.session, "p2", b"another") == b"p" * 16
    ending = found.ending
    assert (found.number, found.journal) == (1, None)
    assert ending.average.tolist() == golden["average"]
    assert [list(ending.contributors), dict(ending.dropped)] == [golden["contributors"], golden["dropped"]]
    assert [dict(ending.sent), dict(ending.received)] == [golden["sent"], golden["received"]]
    assert [phase.kind for phase in ending.phases] == golden["phases"]
    state = found.state_of(agreement.protocol)
    assert plain(agreement.protocol.encode_state(state, ("p1", 1))) == golden["state"]


@pytest.mark.parametrize("protocol", STORES)
def test_a_store_in_the_middle_of_a_round_goes_on_to_the_same_average(protocol, copied, credentials):
    folder, agreement = copied(f"{protocol}/store-under-way"), agreement_of(protocol)
    golden = told(f"{protocol}/stores.json")["under_way"]
    with patch.object(state_blobs, "LONG", STORES[protocol]):
        desk = Desk.of(agreement, credentials["p1"].identity, folder)
        with closing(desk.store):
            assert desk.seat.unfinished
            assert desk.seat.number == golden["number"]
            assert len(desk.journal.records) == golden["records"]
            assert plain(desk.journal.tip) == golden["tip"]
            said = desk.seat.resume(desk.journal, desk.store.load(agreement.session).update)
            for data in golden["delivered_later"]:
                said += desk.deliver(bytes.fromhex(data))
            desk.finish()
            assert digest_of(post.data for post in said) == golden["said"]
            assert desk.store.load(agreement.session).ending.average.tolist() == golden["average"]


def test_a_node_on_flower_goes_on_from_its_mark_and_its_shelf(copied, credentials):
    golden, folder = told("flower/shelf.json"), copied("flower")
    roster = RosterFile.load(newest("secagg/federation.toml"))
    party = FlowerParty(roster, credentials["p1"], folder)
    assert plain(party.incarnation) == golden["company"]["p1"]
    assert party.rounds == 1
    shelf = {name: bytes.fromhex(data) for name, data in golden["shelf"].items()}
    said = party.advance(shelf, 1, [bytes.fromhex(data) for data in golden["mail"]])
    assert [[mail.to, plain(mail.data)] for mail in said.messages] == golden["said"]


def test_a_ledger_is_read_to_what_was_spent_and_goes_on(copied):
    path = copied("ledger") / "ledger.json"
    ledger = Ledger("golden run", budget=8.0, delta=1e-5, path=path)
    for party, golden in told("ledger/spent.json").items():
        assert ledger.rho(party) == golden["rho"]
        assert ledger.epsilon(party) == pytest.approx(golden["epsilon"])
        rounds = {str(number): msgspec.structs.asdict(event) for number, event in ledger.rounds(party).items()}
        assert rounds == golden["rounds"]
    assert ledger.encode() == path.read_bytes(), "as it would be written now"
    ledger.spend("p1", ledger.rounds("p1")[7], round=8)
    assert not ledger.lost


def test_a_run_with_noise_that_was_cut_off_is_refused_and_left_as_it_is(copied):
    """Its noise did not follow from what parties bring, so that another model could have the same."""
    folder = copied("run/cut-off")
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(TacitError, match=r"version 3, not 4; try: use the release that wrote it") as caught:
        train(Scenario.load(folder / SCENARIO), folder=folder, resume=True)
    assert "\n" not in str(caught.value)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def test_a_run_without_noise_that_was_cut_off_goes_on(tmp_path):
    """A checkpoint of that version is read where no noise is to come."""
    wanted = Scenario.of({"rounds": 3, "data": {"parties": 3, "train": 90}, "protocol": "secagg"})

    class CutError(Exception):
        pass

    def cut(metrics):
        if metrics.round == 2:
            raise CutError

    with pytest.raises(CutError):
        train(wanted, folder=tmp_path / "cut", on_round=cut)
    stored = msgspec.msgpack.decode((tmp_path / "cut" / CHECKPOINT).read_bytes()[32:])
    data = msgspec.msgpack.encode(stored | {"version": 3})
    (tmp_path / "cut" / CHECKPOINT).write_bytes(hashlib.sha256(data).digest() + data)
    run = train(wanted, folder=tmp_path / "cut", resume=True)
    assert np.array_equal(run.parameters, train(wanted, folder=tmp_path / "whole").parameters)


def test_a_run_that_is_over_is_read_and_has_nothing_left_to_do(copied):
    folder = copied("run/finished")
    before = {name: (folder / name).read_bytes() for name in (CHECKPOINT, LEDGER, MODEL)}
    run = train(Scenario.load(folder / SCENARIO), folder=folder, resume=True)
    assert len(run.history) == run.scenario.rounds == 3
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_the_audit_of_an_earlier_run_is_shown(copied):
    folder = copied("run/finished")
    for name in ("run/finished/audit.json", "run/exposed-audit.json"):
        shutil.copyfile(GOLDEN / name, folder / "audit.json")
        shown = describe_run("finished", folder)
        assert shown["state"] == "finished"
        assert shown["says"] == told(name)["says"]


def test_what_a_node_keeps_of_its_training_is_read():
    data = (GOLDEN / "node" / "checkpoint").read_bytes()
    kept = msgspec.msgpack.decode(data, type=NodeCheckpoint)
    assert (kept.digest, kept.session, kept.round, kept.ledger) == ("d" * 64, "ab" * 16, 4, b"{}")
    assert np.frombuffer(kept.model, np.float32).tolist() == [0, 1, 2]
    assert msgspec.msgpack.encode(kept) == data


def test_the_status_of_a_node_is_read():
    data = (GOLDEN / "node" / "status.json").read_bytes()
    status = msgspec.json.decode(data, type=Status)
    assert (status.party, status.round, status.waits_for) == ("p0", 4, "MaskedInput")
    assert msgspec.json.encode(status) == data


# --- secagg of 0.2.0, which signed the last sum in the place of a lineage ------------------------------------------


def old_rounds():
    return json.loads((GOLDEN / "secagg" / "rounds.json").read_bytes())


def test_states_of_0_2_get_a_lineage_from_the_last_sum():
    found = {}
    for name, golden in old_rounds()["states"].items():
        state = REGISTRY["secagg"].decode_state(bytes.fromhex(golden["data"]), (name, 2))
        assert (state.counts, plain(state.batch)) == (golden["fields"]["counts"], golden["fields"]["batch"])
        found.setdefault(golden["fields"]["last"], set()).add(state.continues_from())
    assert all(len(lineages) == 1 and lineages != {b""} for lineages in found.values())


def test_a_finished_store_of_0_2_gives_back_its_average(copied):
    folder, agreement = copied("secagg/store-finished", GOLDEN / "secagg/store-finished"), agreement_of("secagg")
    with closing(RoundStore(folder, "p1", FEDERATION)) as store:
        found = store.load(agreement.session)
        assert (found.number, found.journal) == (1, None)
        assert found.state_of(agreement.protocol).continues_from()
        number, average, lineage, _ = store.load_adopted()
    then = json.loads((GOLDEN / "secagg" / "stores.json").read_bytes())["finished"]
    assert (number, average.tolist(), lineage) == (1, then["average"], b"")


def test_a_round_of_0_2_that_was_interrupted_is_given_up(copied, credentials):
    """Parties of the two releases are in different sessions, so that none of its masks is used again."""
    folder, agreement = copied("secagg/store-under-way", GOLDEN / "secagg/store-under-way"), agreement_of("secagg")
    assert plain(agreement.session) != old_rounds()["session"]
    desk = Desk.of(agreement, credentials["p1"].identity, folder)
    with closing(desk.store):
        assert (desk.seat.unfinished, desk.seat.number) == (False, 2)
        desk.begin(3)
        assert desk.seat.number == 3


def test_messages_and_journals_of_0_2_are_refused(credentials):
    agreement, then = agreement_of("secagg"), old_rounds()
    codec = Codec(agreement.protocol.messages, len(agreement.parties), ENTRIES + 1)
    for kind in ("AdvertiseKeys", "LastSum", "Sum"):
        with pytest.raises(WireError):
            codec.decode(kind, bytes.fromhex(then["messages"][kind]["data"]))
    golden = then["journals"]["p1"]
    journal = Journal.decode(bytes.fromhex(golden["journal"]), bytes.fromhex(golden["tip"]))
    seat = KeyedParticipant(agreement, credentials["p1"].identity, number=2, unfinished=True)
    with pytest.raises(JournalError, match="belongs to another session"):
        seat.resume(journal, update_of("p1", 2))


# --- versions that cannot be read ----------------------------------------------------------------------------------


def _older_journal(_):
    golden = told("secagg/rounds.json")["journals"]["p1"]
    version, records = msgspec.msgpack.decode(bytes.fromhex(golden["journal"]))
    Journal.decode(msgspec.msgpack.encode((version - 1, records)), bytes.fromhex(golden["tip"]))


def _older_state(_):
    name, version, *rest = msgspec.msgpack.decode(bytes.fromhex(told("secagg/rounds.json")["states"]["p1"]["data"]))
    REGISTRY["secagg"].decode_state(msgspec.msgpack.encode((name, version - 2, *rest)), ("p1", 2))


def _older_store(copied):
    folder = copied("secagg/store-finished")
    with closing(sqlite3.connect(folder / "book.db")) as book:
        book.execute("PRAGMA user_version = 2")
    RoundStore(folder, "p1", FEDERATION)


def _older_checkpoint(copied):
    folder = copied("run/cut-off")
    fields = msgspec.msgpack.decode((folder / CHECKPOINT).read_bytes()[32:])
    data = msgspec.msgpack.encode(fields | {"version": fields["version"] - 1})
    (folder / CHECKPOINT).write_bytes(hashlib.sha256(data).digest() + data)
    train(Scenario.load(folder / SCENARIO), folder=folder, resume=True)


def _older_ledger(copied):
    path = copied("ledger") / "ledger.json"
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | {"version": 0}))
    Ledger("golden run", path=path)


@pytest.mark.parametrize("older", [_older_journal, _older_state, _older_store, _older_checkpoint, _older_ledger])
def test_what_is_of_a_version_that_is_not_read_is_refused_in_one_line_that_says_what_to_do(older, copied):
    with pytest.raises(
        TacitError, match=r"version \d+, not .*; .*(release that wrote it|release of it|roster renew)"
    ) as caught:
        older(copied)
    assert "\n" not in str(caught.value)
