"""Journals: what is written, and that nothing is gone on from but what was."""

import hashlib
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from support.replay_cases import CASES, journals, seat_and_journal
from tacit.auditing.symbolic.forms import unknowns
from tacit.core.errors import JournalError
from tacit.core.suite import Update
from tacit.protocols import REGISTRY
from tacit.protocols.pushsum.masses import ALL, MassState
from tacit.runtime.journal import VERSION, Journal, Record, fingerprint_update
from tacit.runtime.round import Post


@pytest.fixture(scope="module")
def written():
    return journals(CASES["secagg"])[1]["p1"]


def changed(journal, change):
    """Returns a journal with its records changed, and its tip as it was."""
    records = [msgspec.msgpack.decode(data, type=Record) for data in journal.records]
    return Journal([msgspec.msgpack.encode(record) for record in change(records)], journal.tip)


def test_a_journal_comes_back_as_it_was(written):
    again = Journal.decode(written.encode(), written.tip)
    assert again == written
    assert again.read() == written.read()


def test_there_is_one_record_for_each_call_that_counts(written):
    beginning, *events = [record.event for record in written.read()]
    assert beginning.party == "p1"
    assert beginning.number == 2
    assert all(event is not None for event in events), "nobody was late"
    # Of the server: the list of keys, the shares, the chosen set, the consents, and the sum.
    assert len(events) == 5
    # With whom it may be summed is remembered before the vector leaves, and what was announced once it is heard.
    states = [record.state for record in written.read()]
    assert [state is not None for state in states] == [False, False, True, False, False, True]
    masked, heard = (REGISTRY["secagg"].decode_state(states[place]) for place in (2, 5))
    assert masked.batch == heard.batch == ("p1",)
    assert masked.lineage != heard.lineage


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
        *records[:2],
        msgspec.structs.replace(records[2], state=records[2].state + b"\x00"),
        *records[3:],
    ],
    "another last state": lambda records: [
        *records[:5],
        msgspec.structs.replace(records[5], state=records[5].state + b"\x00"),
    ],
    "no last state": lambda records: [*records[:5], msgspec.structs.replace(records[5], state=None)],
    "other messages": lambda records: [*records[:-1], msgspec.structs.replace(records[-1], outbox=bytes(32))],
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
        with pytest.raises(JournalError, match="journal is incomplete"):
            Journal(journal.records, tip).read()


def test_an_older_copy_is_not_taken_for_the_journal(written):
    """Restored from a backup, or what was left of the last write. What is said from there on may be something else."""
    for length in range(len(written.records)):
        older = Journal(written.records[:length]).encode()
        with pytest.raises(JournalError, match="restore the journal"):
            Journal.decode(older, written.tip).read()
    assert written.tip not in written.encode(), "who copies the one has not copied the other"


def test_a_journal_copied_in_mid_round_is_refused_after_it():
    """In `cesar`, whoever comes late has another place in a party's masks the second time."""
    simulation = CASES["cesar"].simulation()
    update, agreement = CASES["cesar"].updates(1), simulation.agreement
    seats, journal = simulation.participants, Journal()

    def posts(party, actions):
        if party == "p1":
            journal.record(agreement.protocol, agreement.session, party, actions)
        return [action for action in actions if isinstance(action, Post)]

    mail = [post for party, seat in seats.items() for post in posts(party, seat.begin(update[party], bytes(32)))]
    turns = [more for post in mail for more in posts(post.to, seats[post.to].deliver(post.data))]
    older = journal.encode()
    masked = [more for post in turns if post.to == "p1" for more in posts("p1", seats["p1"].deliver(post.data))]
    assert {post.kind for post in masked} == {"Masked"}
    with pytest.raises(JournalError, match="journal is incomplete"):
        seats["p1"].rebuild().resume(Journal.decode(older, journal.tip), update["p1"])
    again = seats["p1"].rebuild()
    said = again.resume(Journal.decode(journal.encode(), journal.tip), update["p1"])
    assert [post.data for post in said][-len(masked) :] == [post.data for post in masked]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"\xc0",
        msgspec.msgpack.encode([VERSION]),
        msgspec.msgpack.encode([VERSION, 7]),
        b"\x91" * 2000,
    ],
)
def test_what_is_no_journal(data):
    with pytest.raises(JournalError, match="the journal cannot be read"):
        Journal.decode(data, b"")


def test_a_journal_of_another_version():
    with pytest.raises(JournalError, match="version 99"):
        Journal.decode(msgspec.msgpack.encode((99, [], "and more")), b"")


def test_a_journal_of_another_round_party_or_session():
    seat, journal, update = seat_and_journal("secagg")
    others = {
        "belongs to p1, not to p2": seat_and_journal("secagg", "p2")[0],
        "is of round 2, but p1 has begun 0": CASES["secagg"].simulation().participants["p1"],
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
        fingerprint_update(update)
        for update in (None, Update(vector), Update(vector, 2.0), Update(vector + 1e-15), Update(vector.astype("f4")))
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint_update(Update(vector[::-1][::-1])) == fingerprint_update(Update(vector))


@pytest.mark.parametrize("weight", [1, np.float64(1.0), np.float32(1.0), np.int8(1), Fraction(1)], ids=repr)
def test_the_same_weight_of_another_type_is_the_same_update(weight):
    vector = np.arange(3.0)
    assert fingerprint_update(Update(vector, weight)) == fingerprint_update(Update(vector))


def test_weights_that_are_no_floats_are_told_apart_all_the_same():
    symbols, vector = unknowns("input", "p1", 2), np.arange(3.0)
    weights = (1.0, 10**400, 10**401, *symbols)
    assert len({fingerprint_update(Update(vector, weight)) for weight in weights}) == len(weights)
    assert fingerprint_update(Update(vector, symbols[0])) == fingerprint_update(
        Update(vector, unknowns("input", "p1", 2)[0])
    )


@pytest.mark.parametrize("title", CASES)
def test_states_come_back_as_they_were(title):
    case = CASES[title]
    protocol, simulation = REGISTRY[case.protocol], case.simulation()
    for number in (1, 2):
        simulation.average(case.updates(number))
        for party, state in simulation.states.items():
            data = protocol.encode_state(state, (party, number))
            again = protocol.decode_state(data, (party, number))
            assert again == state
            assert protocol.encode_state(again, (party, number)) == data, "the same bytes for the same state"
            assert type(again) is protocol.state, party
            for other in (("p9", number), (party, number + 1), None):
                with pytest.raises(JournalError, match=f"the state of {party} after {number} rounds?, not of"):
                    protocol.decode_state(data, other)


@pytest.mark.parametrize("protocol", REGISTRY.values(), ids=REGISTRY)
def test_states_of_others_are_refused(protocol):
    name, version = protocol.name, protocol.state.version
    fresh = protocol.encode_state(protocol.state())
    assert protocol.decode_state(fresh) == protocol.state()
    rest = msgspec.msgpack.decode(fresh)[3]
    for wrong, complaint, advice in (
        (
            (name, version + 1, None, rest),
            f"state of {name}, version {version + 1}, not {version};",
            "release that wrote",
        ),
        (("other", version, None, rest), f"state of other, not of {name}", "another folder"),
        ((name, version, ("p1", 3), rest), "state of p1 after 3 rounds, not of nobody", "new session"),
        ((name, version, None, rest | {"more": 1}), "saved state cannot be read", "new session"),
        ((name, version, "p1", rest), "saved state cannot be read", "new session"),
        ((name, version, None), "saved state cannot be read", "new session"),
    ):
        with pytest.raises(JournalError, match=complaint) as caught:
            protocol.decode_state(msgspec.msgpack.encode(wrong))
        assert advice in str(caught.value)
    for length in range(len(fresh)):
        with pytest.raises(JournalError):
            protocol.decode_state(fresh[:length])
    assert len(hashlib.sha256(fresh).digest()) == 32


GOOD, LONG = np.full(4, 1 << 20, "<i4").data.cast("B"), np.ones(7, "<i4").data.cast("B")
NONSENSE = {
    "half an element": (MassState(x=GOOD[:1]), "a mass takes 16 bytes, not 1"),
    "nothing": (MassState(x=GOOD[:0]), "not 0"),
    "shorter": (MassState(x=GOOD[:12]), "not 12"),
    "longer": (MassState(x=LONG), "not 28"),
    "one number for all that was sent": (MassState(x=GOOD, sent={"p1": GOOD[:4]}), "not 4"),
    "shorter than what was sent": (MassState(x=GOOD, sent={"p1": LONG}), "not 28"),
    "longer than what was taken": (MassState(x=GOOD, taken={"p1": GOOD[:4]}), "not 4"),
    "sent to a stranger": (MassState(x=GOOD, sent={"p9": GOOD}), "masses of 'p9', who is nobody here"),
    "taken from a stranger": (MassState(x=GOOD, taken={"p9": GOOD}), "masses of 'p9'"),
    "taken under a mask": (MassState(x=GOOD, taken={ALL: GOOD}), "masses of '[*]'"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_a_round_is_not_begun_from_masses_that_cannot_be(what):
    state, complaint = NONSENSE[what]
    seat = CASES["pushsum"].simulation().participants["p0"].rebuild()
    seat.give_up(REGISTRY["pushsum"].decode_state(REGISTRY["pushsum"].encode_state(state)))
    with pytest.raises(JournalError, match=f"cannot continue from the saved state before round 1: .*{complaint}"):
        seat.begin(CASES["pushsum"].updates(1)["p0"], bytes(32))
    assert (seat.number, seat.round) == (0, None)
    seat.give_up(MassState(x=GOOD, sent={"p1": GOOD}, taken={"p1": GOOD}))
    assert seat.begin(CASES["pushsum"].updates(1)["p0"], bytes(32))


def test_whatever_a_replay_comes_to_is_a_refusal(monkeypatch):
    """Who has the disk can make digests fit. The round then meets what it was never told."""
    seat, journal, update = seat_and_journal("pushsum")
    first, *others = journal.read()
    state = REGISTRY["pushsum"].encode_state(MassState(x=GOOD, sent=dict.fromkeys(("p0", "p2"), LONG)))
    forged, tip = [], b""
    for record in (msgspec.structs.replace(first, event=msgspec.structs.replace(first.event, state=state)), *others):
        forged.append(msgspec.structs.replace(record, before=tip))
        tip = forged[-1].digest()
    forged = Journal([msgspec.msgpack.encode(record) for record in forged], tip)
    with pytest.raises(JournalError, match="a mass takes 16 bytes, not 28"):
        seat.resume(forged, update)
    monkeypatch.setattr(MassState, "problems", lambda *_: [])
    with pytest.raises(JournalError, match="does not reproduce round") as caught:
        seat.resume(forged, update)
    assert isinstance(caught.value.__cause__, ValueError)
    assert seat.round is None
