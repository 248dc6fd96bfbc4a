"""Journals: what is written, and that nothing is gone on from but what was."""

import hashlib

import msgspec
import numpy as np
import pytest
from settings_to_cut import CASES
from test_wrong_ways import journals, seat_and_journal

from tacit.core.errors import JournalError
from tacit.core.suite import Update
from tacit.drivers.journal import Journal, Record, fingerprint
from tacit.protocols import REGISTRY


@pytest.fixture(scope="module")
def written():
    return journals(CASES["secagg"])[1]["p1"]


def changed(journal, change):
    """Returns a journal with its records changed, and its tip as it was."""
    records = [msgspec.msgpack.decode(data, type=Record) for data in journal.records]
    return Journal([msgspec.msgpack.encode(record) for record in change(records)], journal.tip)


def test_a_journal_comes_back_as_it_was(written):
    again = Journal.decode(written.encode())
    assert again == written
    assert again.read() == written.read()


def test_there_is_one_record_for_each_call_that_counts(written):
    beginning, *events = [record.event for record in written.read()]
    assert beginning.party == "p1"
    assert beginning.number == 2
    assert all(isinstance(event, bytes) for event in events), "nobody was late"
    # Of the server: the list of keys, the shares, the chosen set, the consents, and the sum.
    assert len(events) == 5
    assert [record.state is not None for record in written.read()] == [False, False, False, False, True, False]


REFUSED = {
    "no beginning": lambda records: records[1:],
    "nothing": lambda _: [],
    "the last is missing": lambda records: records[:-1],
    "one is missing": lambda records: records[:2] + records[3:],
    "two are swapped": lambda records: [*records[:2], records[3], records[2], *records[4:]],
    "one is there twice": lambda records: [*records[:2], *records[1:]],
    "two beginnings": lambda records: [records[0], *records],
    "a deadline for a message": lambda records: [
        *records[:2],
        msgspec.structs.replace(records[2], event=None),
        *records[3:],
    ],
    "another seed": lambda records: [
        msgspec.structs.replace(records[0], event=msgspec.structs.replace(records[0].event, seed=bytes(32))),
        *records[1:],
    ],
    "another state": lambda records: [
        *records[:4],
        msgspec.structs.replace(records[4], state=records[4].state + b"\x00"),
        records[5],
    ],
    "other messages": lambda records: [*records[:-1], msgspec.structs.replace(records[-1], said=bytes(32))],
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_journal_that_is_cut_short_or_changed_is_refused(written, what):
    with pytest.raises(JournalError, match="restore the journal, or begin a new session") as caught:
        changed(written, REFUSED[what]).read()
    assert caught.value.code == "journal"


def test_every_changed_byte_is_found_by_reading_or_by_resuming(written):
    """The bulk of an envelope is not hashed; it does not open if it was changed."""
    seat, journal, update = seat_and_journal("secagg")
    assert journal == written
    rng = np.random.default_rng(0)
    for number, record in enumerate(journal.records):
        for place in rng.choice(len(record), size=min(len(record), 40), replace=False).tolist():
            records = list(journal.records)
            records[number] = record[:place] + bytes([record[place] ^ 1]) + record[place + 1 :]
            with pytest.raises(JournalError):
                seat.resume(Journal(records, journal.tip), update)
            assert seat.round is None
    for place in range(32):
        tip = journal.tip[:place] + bytes([journal.tip[place] ^ 1]) + journal.tip[place + 1 :]
        with pytest.raises(JournalError, match="ends before"):
            Journal(journal.records, tip).read()


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"\xc0", msgspec.msgpack.encode([1]), msgspec.msgpack.encode([1, [], 7]), b"\x91" * 2000]
)
def test_what_is_no_journal(data):
    with pytest.raises(JournalError, match="no journal"):
        Journal.decode(data)


def test_a_journal_of_another_version():
    with pytest.raises(JournalError, match="version 99"):
        Journal.decode(msgspec.msgpack.encode((99, [], b"", "and more")))


def test_a_journal_of_another_round_party_or_session():
    seat, journal, update = seat_and_journal("secagg")
    others = {
        "is of p1, not of p2": seat_and_journal("secagg", "p2")[0],
        "is of round 2, but p1 has finished 0": CASES["secagg"].simulation().seats["p1"],
        "another session": seat_and_journal("secagg-sampled")[0],
    }
    for complaint, other in others.items():
        with pytest.raises(JournalError, match=complaint):
            other.resume(journal, update)
        assert other.round is None
    assert seat.resume(journal, update)


def test_fingerprints_tell_updates_apart():
    vector = np.arange(3.0)
    prints = [
        fingerprint(update)
        for update in (None, Update(vector), Update(vector, 2.0), Update(vector + 1e-15), Update(vector.astype("f4")))
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint(Update(vector[::-1][::-1])) == fingerprint(Update(vector))


@pytest.mark.parametrize("title", CASES)
def test_states_come_back_as_they_were(title):
    case = CASES[title]
    protocol, simulation = REGISTRY[case.protocol], case.simulation()
    for number in (1, 2):
        simulation.average(case.updates(number))
        for party, state in simulation.states.items():
            data = protocol.encode_state(state)
            again = protocol.decode_state(data)
            assert again == state
            assert protocol.encode_state(again) == data, "the same bytes for the same state"
            assert type(again) is protocol.state, party


@pytest.mark.parametrize("protocol", REGISTRY.values(), ids=REGISTRY)
def test_states_of_others_are_refused(protocol):
    name, version = protocol.name, protocol.state.version
    fresh = protocol.encode_state(protocol.state())
    assert protocol.decode_state(fresh) == protocol.state()
    rest = msgspec.msgpack.decode(fresh)[2]
    for wrong, complaint in (
        ((name, version + 1, rest), f"version {version + 1}, not of {name}, version {version}"),
        (("other", version, rest), "state of other"),
        ((name, version, rest | {"more": 1}), "no state"),
        ((name, version), "no state"),
    ):
        with pytest.raises(JournalError, match=complaint) as caught:
            protocol.decode_state(msgspec.msgpack.encode(wrong))
        assert "new session" in str(caught.value)
    for length in range(len(fresh)):
        with pytest.raises(JournalError):
            protocol.decode_state(fresh[:length])
    assert len(hashlib.sha256(fresh).digest()) == 32
