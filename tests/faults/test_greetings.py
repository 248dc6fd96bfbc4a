"""Greetings in bad hands: padded, replayed, forged, too long, too early, and what each would have won."""

import json
from collections import deque

import msgspec
import networkx as nx
import numpy as np
import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, Drop, PeerFault
from tacit.core.messages import MAX_GREETING, Address, Envelope, Greeting
from tacit.core.suite import SERVER, Update
from tacit.crypto.keys import Identity, Member, Roster
from tacit.protocols import REGISTRY
from tacit.runtime.agreement import SHOWN, _statement, agree, name_problems, terms_for
from tacit.runtime.inbox import MAX_GREETINGS, Discard
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import GreetingPost, MessageDeferred, Post

NAMES = ("a", "b", "c", "d", "e")
change, pack = msgspec.structs.replace, msgspec.msgpack.encode


def person(name):
    return Identity.generate(name, SeededEntropy("identity", name))


def agreement(protocol="gossip", names=NAMES, entries=3, nonce=b"n" * 16, **options):
    entry = REGISTRY[protocol]
    terms = terms_for(entry, names, options)
    return agree(entry, terms, Roster(person(name).member() for name in entry.everyone(names)), entries, nonce)


def seats_of(ours, theirs, who):
    """Returns everybody's seat, one of them in another session."""
    return {name: KeyedParticipant(theirs if name == who else ours, person(name)) for name in ours.everyone}


def begun(seat):
    """Begins a round and returns what is to be sent."""
    update = None if seat.me == SERVER else Update(np.ones(seat.agreement.entries))
    return posts(seat.begin(update, bytes(32)))


def posts(actions):
    return [action for action in actions if isinstance(action, Post)]


def exchanged(seats, sent):
    """Delivers messages, and those that come of them, until nobody has anything to say."""
    under_way = deque(sent)
    while under_way:
        post = under_way.popleft()
        under_way.extend(posts(seats[post.to].deliver(post.data)))


def greeting(theirs, sender, heard, agreed=None, number=1):
    """Returns a greeting as its sender signs it, whatever it says."""
    suite = KeyedParticipant(theirs, person(sender)).suite(1, bytes(32))
    said = theirs.greeting(suite, number, heard)
    said = change(said, agreed=said.agreed if agreed is None else agreed)
    return pack(change(said, signature=suite.sign(_statement(said))))


def to(party, sent):
    return next(post for post in posts(sent) if post.to == party)


# --- what is kept of them ------------------------------------------------------------------------------------------


def test_greetings_padded_with_blanks_are_refused_and_leave_nothing_behind():
    ours = agreement()
    seat = KeyedParticipant(ours, person("a"))
    heard = to("b", begun(seat)).address
    agreed = msgspec.json.encode(ours.described)
    for blanks in range(2**19, 2**19 + 8):
        seat.deliver(greeting(ours, "b", heard, agreed + b" " * blanks))
    assert seat.round.inbox.why == {"b": "its agreement cannot be read"}
    assert seat.round.inbox.discarded == {Discard.EXCLUDED: 7}
    assert sum(map(len, ours.roster._verified)) < 100, "a roster remembers that it was signed, and not what"


def test_a_sender_is_heard_once_in_a_round_even_if_it_agrees():
    ours = agreement()
    seat = KeyedParticipant(ours, person("a"))
    heard = to("b", begun(seat)).address
    for number in range(5):
        assert seat.deliver(greeting(ours, "b", heard, number=number)) == []
    assert seat.round.inbox.discarded == {Discard.AGREES: 1, Discard.REPLAYED: 4}
    assert len(ours.roster._verified) == 1


def test_forged_greetings_do_not_take_the_place_of_the_real_one():
    ours, theirs = agreement(), agreement(clip=1.0)
    seat = KeyedParticipant(ours, person("a"))
    real = greeting(theirs, "b", to("b", begun(seat)).address)
    forged = pack(change(msgspec.msgpack.decode(real, type=Greeting), signature=bytes(64)))
    assert seat.deliver(forged) == []
    assert posts(seat.deliver(real))
    assert seat.round.inbox.gone == {"b": Drop.DISAGREES}


# --- replays -------------------------------------------------------------------------------------------------------


def test_a_greeting_of_an_old_session_excludes_nobody_in_a_new_one():
    old, mistaken, new = agreement(nonce=b"1" * 16), agreement(nonce=b"1" * 16, clip=1.0), agreement(nonce=b"2" * 16)
    recorded = greeting(mistaken, "b", to("b", begun(KeyedParticipant(old, person("a")))).address)
    seats = seats_of(new, new, "")
    sent = [post for seat in seats.values() for post in begun(seat)]
    assert seats["a"].deliver(recorded) == []
    exchanged(seats, sent)
    assert seats["a"].round.inbox.discarded == {Discard.OTHER_SESSION: 1}
    assert seats["a"].round.ending.contributors == NAMES


def test_a_greeting_of_an_old_round_excludes_nobody_in_a_new_one():
    ours, mistaken = agreement(), agreement(clip=1.0)
    seats = seats_of(ours, ours, "")
    sent = [post for seat in seats.values() for post in begun(seat)]
    recorded = greeting(mistaken, "b", to("b", [post for post in sent if post.address.sender == "a"]).address)
    exchanged(seats, sent)
    sent = [post for seat in seats.values() for post in begun(seat)]
    assert seats["a"].deliver(recorded) == []
    assert seats["a"].round.inbox.discarded == {Discard.OTHER_ROUND: 1}
    exchanged(seats, sent)
    assert seats["a"].round.ending.contributors == NAMES


@pytest.mark.parametrize("other", [{"session": bytes(32)}, {"round": 7}], ids=str)
def test_what_a_greeting_answers_is_signed(other):
    ours, theirs = agreement(), agreement(clip=1.0)
    seat = KeyedParticipant(ours, person("a"))
    heard = to("b", begun(seat)).address
    moved = msgspec.msgpack.decode(greeting(theirs, "b", change(heard, **other)), type=Greeting)
    assert seat.deliver(pack(change(moved, session=heard.session, round=heard.round))) == []
    assert seat.round.inbox.discarded == {Discard.NOT_AUTHENTIC: 1}


def test_mail_that_anybody_may_have_written_draws_a_few_greetings_and_no_more():
    ours, theirs = agreement(), agreement(clip=1.0)
    seat = KeyedParticipant(ours, person("a"))
    heard = to("b", begun(seat)).address
    forged = [Address(bytes([i]) * 32, 1, 0, "Entries", "b", "a") for i in range(9)]
    answers = [post for address in forged for post in posts(seat.deliver(pack(Envelope(address, b""))))]
    assert len(answers) == MAX_GREETINGS
    # Who is really in another session is answered all the same.
    answer = to("b", seat.deliver(greeting(theirs, "b", heard)))
    said = msgspec.msgpack.decode(answer.data, type=Greeting)
    assert (said.session, said.round) == (theirs.session, 1)
    stranger = KeyedParticipant(theirs, person("b"))
    begun(stranger)
    stranger.deliver(answer.data)
    assert stranger.round.inbox.why == {"a": "clip is 32.0 at a and 1.0 here"}


@pytest.mark.parametrize("session", [b"", bytes(31), bytes(33), bytes(2**19)], ids=len)
def test_nobody_is_made_to_sign_for_what_is_no_session(session):
    seat = KeyedParticipant(agreement(), person("a"))
    begun(seat)
    assert seat.deliver(pack(Envelope(Address(session, 1, 0, "Entries", "b", "a"), b""))) == []
    assert seat.round.inbox.discarded == {Discard.NOT_AN_ENVELOPE: 1}


# --- differences that nobody was told of ---------------------------------------------------------------------------


def test_parties_that_are_neighbours_in_one_graph_only_are_told():
    ours = agreement(graph=[(0, 2), (2, 4), (4, 1), (1, 3), (3, 0)])
    theirs = agreement(graph=[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])
    seats = seats_of(ours, theirs, "a")
    exchanged(seats, [post for seat in seats.values() for post in begun(seat)])
    for party in "bcde":
        assert seats[party].round.inbox.why["a"].startswith("graph is ")
        assert seats["a"].round.inbox.why[party].startswith("graph is ")
    assert all(seat.round.over for seat in seats.values()), "nobody waits for a deadline"


@pytest.mark.parametrize("party", ["mallory", SERVER, "a"])
def test_strangers_are_not_answered(party):
    seat = KeyedParticipant(agreement(), person("a"))
    begun(seat)
    assert seat.deliver(pack(Envelope(Address(bytes(32), 1, 0, "Entries", party, "a"), b""))) == []
    assert seat.round.inbox.discarded == {Discard.MISDIRECTED: 1}


def test_who_speaks_before_a_round_is_told_and_the_round_knows():
    ours, theirs = agreement("fedavg"), agreement("fedavg", clip=1.0)
    seats = seats_of(ours, theirs, "b")
    (greets,) = seats[SERVER].deliver(begun(seats["b"])[0].data)
    assert isinstance(greets, GreetingPost)
    answer = to(SERVER, seats["b"].deliver(greets.data))
    assert seats["b"].round.inbox.why == {SERVER: "clip is 32.0 at server and 1.0 here"}
    assert seats[SERVER].deliver(answer.data) == [MessageDeferred()]
    begun(seats[SERVER])
    for early in seats[SERVER].early.take():
        seats[SERVER].deliver(early)
    assert seats[SERVER].round.inbox.why == {"b": "clip is 1.0 at b and 32.0 here"}
    assert seats[SERVER].round.inbox.gone == {"b": Drop.DISAGREES}


def test_who_speaks_between_rounds_is_told_and_the_next_round_knows():
    ours, theirs = agreement(), agreement(clip=1.0)
    seats = seats_of(ours, ours, "")
    exchanged(seats, [post for seat in seats.values() for post in begun(seat)])
    assert seats["a"].round.over
    stranger = KeyedParticipant(theirs, person("b"))
    (greets,) = seats["a"].deliver(to("a", begun(stranger)).data)
    assert seats["a"].deliver(to("a", stranger.deliver(greets.data)).data) == [MessageDeferred()]
    begun(seats["a"])
    for early in seats["a"].early.take():
        seats["a"].deliver(early)
    assert seats["a"].round.inbox.why == {"b": "clip is 1.0 at b and 32.0 here"}


def test_mail_of_a_round_to_be_resumed_is_kept_for_it():
    ours = agreement()
    seats = seats_of(ours, ours, "")
    mail = {name: to("a", begun(seats[name])).data for name in "bcde"}
    begun(seats["a"])
    again = seats["a"].rebuild()
    assert [again.deliver(data) for data in mail.values()] == [[MessageDeferred()]] * 4
    assert again.early.take() == list(mail.values())


def test_mail_that_is_too_long_here_is_answered_if_it_is_from_another_session():
    ring = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])  # so that c cannot answer b but with greetings
    ours, theirs = (agreement("pushsum", entries=size, graph=ring) for size in (3, 100_000))
    seats = seats_of(ours, theirs, "b")
    exchanged(seats, [post for seat in seats.values() for post in begun(seat)])
    assert seats["c"].round.inbox.why == {"b": "entries is 100000 at b and 3 here"}
    assert seats["b"].round.inbox.why["c"] == "entries is 3 at c and 100000 here"
    assert seats["c"].round.inbox.discarded == {Discard.OTHER_SESSION: 1}


def test_mail_that_is_too_long_is_no_envelope_in_its_own_session():
    seat = KeyedParticipant(agreement(), person("a"))
    address = to("b", begun(seat)).address
    own = Address(address.session, 1, 0, "Entries", "b", "a")
    assert seat.deliver(pack(Envelope(own, bytes(10_000)))) == []
    assert seat.round.inbox.discarded == {Discard.NOT_AN_ENVELOPE: 1}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("other", [{"clip": 1.0}, {"graph": "complete"}, {"nonce": b"o" * 16}], ids=str)
def test_an_agreement_that_is_too_long_for_a_greeting_is_compared_by_digests(other):
    many = tuple(f"organisation-number-{i:03d}.example.org" for i in range(190))
    edges = [(many[i], many[j]) for i in range(190) for j in range(i)]
    ours = agreement(names=many, graph=edges)
    theirs = agreement(names=many, **{"graph": edges, **other})
    assert len(msgspec.json.encode(ours.described)) > MAX_GREETING
    a, b = KeyedParticipant(ours, person(many[0])), KeyedParticipant(theirs, person(many[1]))
    begun(a)
    (greets,) = a.deliver(to(many[0], begun(b)).data)
    assert len(greets.data) <= MAX_GREETING
    _, answer = b.deliver(greets.data)
    a.deliver(answer.data)
    words = {"clip": "clip is ", "graph": "graph is ", "nonce": f"{many[0]} is in another session"}
    (name,) = other
    assert b.round.inbox.why[many[0]].startswith(words[name])
    assert a.round.inbox.why[many[1]].startswith(words[name].replace(many[0], many[1]))


def test_thousands_of_parties_fit_a_greeting():
    many = tuple(f"{i:064d}" for i in range(20_000))
    members = person("x").member()
    roster = Roster(Member(name, members.verify_key, members.channel_key) for name in many)
    ours = agree(REGISTRY["gossip"], terms_for(REGISTRY["gossip"], many, {"graph": "ring"}), roster, 3, b"n")
    assert len(msgspec.json.encode(ours.described)) > MAX_GREETING
    assert len(ours._greeting_text) <= MAX_GREETING


# --- what they say -------------------------------------------------------------------------------------------------


def bent(text, **fields):
    return msgspec.json.encode({**json.loads(text), **fields})


def raw(text, value):
    return text.replace(b'"clip":32.0', b'"clip":' + value)


SAID = {
    "a newline and colours": lambda text: bent(text, protocol="x\n\x1b[31mp2: bad share\n"),
    "a name of many lines": lambda text: bent(text, **{"x\n" * 1000: 1}),
    "letters that run backwards": lambda text: bent(text, protocol="\u202eabc\u2028"),
    "a long value": lambda text: bent(text, protocol="\x00" * 5000),
    "a list of them": lambda text: bent(text, parties=["\n" * 90, *NAMES[1:]]),
    "a table of them": lambda text: bent(text, graph={"\x1b[2J": "\x7f" * 90}),
    "a huge number": lambda text: raw(text, b"9" * 6000),
    "a large number": lambda text: raw(text, str(2**70).encode()),
    "infinity": lambda text: raw(text, b"1e999"),
    "not a number": lambda text: raw(text, b"NaN"),
    "half a letter": lambda text: raw(text, rb'"\ud800"'),
    "no text": lambda text: raw(text, b'"\xff"'),
    "something deep": lambda text: raw(text, b"[" * 900 + b"]" * 900),
    "something deeper": lambda text: raw(text, b"[" * 90_000 + b"]" * 90_000),
    "tables in tables": lambda text: raw(text, b'{"a":' * 950 + b"1" + b"}" * 950),
    "a name twice": lambda text: text[:-1] + b',"clip":1.0}',
    "blanks": lambda text: text.replace(b":", b": "),
    "another way to write a number": lambda text: raw(text, b"3.2e1"),
    "a whole number": lambda text: raw(text, b"32"),
    "fewer keys": lambda text: bent(text, keys=["0"]),
    "more keys": lambda text: bent(text, keys=[*json.loads(text)["keys"], "0"]),
    "no nonce": lambda text: bent(text, nonce=None),
    "a table": lambda _: b"{}",
    "a list": lambda _: b"[]",
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("what", SAID)
def test_whatever_a_greeting_says_is_told_in_one_line_that_prints(what):
    ours = agreement()
    seat = KeyedParticipant(ours, person("a"))
    heard = to("b", begun(seat)).address
    seat.deliver(greeting(ours, "b", heard, SAID[what](msgspec.json.encode(ours.described))))
    assert seat.round.inbox.gone == {"b": Drop.DISAGREES}
    why = seat.round.inbox.why["b"]
    assert why.isprintable()
    assert 10 < len(why) < 4 * SHOWN


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "tab\t", "\x00", "\u202e", "\u2028", "\ud800", "x" * 65, "", 3])
def test_names_print_on_one_line(name):
    assert "is no name" in name_problems([name, "b"])[0]
    assert name_problems(["Zürich", "b c", "日本", "-"]) == []


# --- keys that nobody can use --------------------------------------------------------------------------------------

KEYS = {
    "a zero point": {"channel_key": bytes(32)},
    "a point of small order": {"channel_key": b"\x01" + bytes(31)},
    "a short channel key": {"channel_key": b"x"},
    "a short key to verify with": {"verify_key": b"x"},
    "no keys": {"verify_key": b"", "channel_key": b""},
    "text": {"verify_key": "x" * 32},
}


@pytest.mark.parametrize("what", KEYS)
def test_whose_keys_cannot_be_used_is_named_before_anything_is_sent(what):
    entry, members = REGISTRY["gossip"], {name: person(name).member() for name in NAMES}
    good = members["c"]
    keys = {"verify_key": good.verify_key, "channel_key": good.channel_key, **KEYS[what]}
    roster = Roster((members | {"c": Member("c", **keys)}).values())
    with pytest.raises(ConfigError, match="the keys of c cannot be used"):
        agree(entry, terms_for(entry, NAMES, {}), roster, 3, b"")
    if isinstance(keys["verify_key"], bytes):
        with pytest.raises(PeerFault):
            roster.verify("c", b"statement", bytes(64))
