"""When a round begins, and the limits of what one malicious peer can do about it."""

from types import SimpleNamespace

import msgspec
import pytest

from tacit.core.suite import SERVER
from tacit.net.membership.rendezvous import AHEAD, WIRE_VERSION, Hello, Rendezvous

OURS = SimpleNamespace(
    session=b"session",
    described={},
    protocol=SimpleNamespace(needs_everybody=False),
    terms=SimpleNamespace(fewest_present=2),
)


def meeting(me, peers, **begun):
    """Returns the rendezvous of a party that has hellos of peers whose last round is over."""
    made = Rendezvous(me, peers, lambda *known: known[-1], b"ours")
    made.sit(OURS)
    for peer, number in begun.items():
        made.listen(peer, Hello(peer, 4, b"i", b"session", 4, number, True, known=b"ours"), 0.0)
    return made


def test_whoever_is_behind_goes_on_where_the_others_are():
    assert meeting("a", ("b", "c"), b=6, c=6).next(2) == 7
    assert meeting("a", ("b", "c", "d"), b=6, c=6, d=1).next(2) == 7
    assert meeting("a", (SERVER,), server=6).next(2) == 7
    assert meeting("a", ("b", "c"), b=6, c=6).next(9) == 9, "nobody goes back"


@pytest.mark.parametrize("lie", [0, 5, 2**40])
def test_one_of_several_peers_that_lies_moves_nobody_ahead_of_the_rest(lie):
    assert meeting("a", ("b", "c"), b=6, c=lie).next(7) == 7
    assert meeting("a", ("b", "c", "d"), b=6, c=6, d=lie).next(7) == 7


@pytest.mark.parametrize("number", [-1, 2**48, 2**70])
def test_numbers_that_no_round_has_are_not_hellos(number):
    said = msgspec.msgpack.encode(("b", 4, b"i", b"session", 4, min(number, 2**63)))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(said, type=Hello)


def test_a_server_does_not_go_by_what_parties_say():
    assert meeting(SERVER, ("a", "b"), a=50, b=50).next(3) == 3


def said(party, known, incarnation=b"i"):
    return Hello(party, 4, incarnation, b"session", 4, 3, True, ready=4, known=known)


def test_nobody_counts_who_has_not_said_which_journal_of_ours_it_knows():
    made = meeting("a", ("b", "c"))
    made.listen("b", said("b", b""), 0.0)
    assert made.confirmed_hello("b") is None
    assert not made.may_begin_without_all()
    made.listen("b", said("b", b"ours"), 0.0)
    assert made.is_ready("b", 4)
    assert made.wrong is None


def test_whoever_is_known_as_another_has_lost_its_journal():
    made = meeting("a", ("b", "c"), b=3)
    made.listen("c", said("c", b"before"), 0.0)
    assert "c refuses messages of a, which has lost its journal" in str(made.wrong)


def test_a_server_goes_on_unless_most_know_it_as_another():
    made = meeting(SERVER, ("a", "b", "c"), a=3)
    made.listen("b", said("b", b"before"), 0.0)
    assert made.wrong is None
    assert made.confirmed_hello("b") is None
    made.listen("c", said("c", b"before"), 0.0)
    assert "server, which has lost its journal" in str(made.wrong)


def test_nobody_uses_up_all_numbers_at_once():
    assert meeting("a", (SERVER,), server=2**48 - 1).next(2) == 2 + AHEAD
    assert meeting("a", ("b", "c"), b=2**48 - 1, c=2**48 - 1).next(2) == 2 + AHEAD


def test_few_peers_do_not_have_us_begin():
    made = meeting("a", ("b", "c", "d"), b=9)
    assert not made.may_begin(3)
    made.listen("c", said("c", b"ours"), 0.0)
    assert made.may_begin(3)


def test_the_first_round_of_a_session_takes_more_than_may_collude():
    made = Rendezvous("a", ("b", "c"), lambda *known: known[-1], b"ours")
    made.sit(OURS, needed=2)
    made.listen("b", said("b", b"ours"), 0.0)
    assert not made.assured
    made.listen("c", said("c", b"ours"), 0.0)
    assert made.assured


def test_a_server_waits_for_parties_that_left_if_the_others_are_too_few():
    made = meeting(SERVER, ("a", "b", "c"), a=4, b=4, c=4)
    leaving = msgspec.structs.replace(said("c", b"ours"), left=True)
    made.listen("c", leaving, 0.0)
    assert made.may_begin(4), "two are enough, so nobody waits for the third"
    made.listen("b", msgspec.structs.replace(leaving, party="b"), 0.0)
    assert not made.may_begin(4)
    made.listen("b", said("b", b"ours"), 0.0)
    assert made.may_begin(4), "it has joined again"


@pytest.mark.parametrize(
    ("begun", "ready", "left", "absent"),
    [
        (1, 7, False, True),
        (6, 7, False, False),  # it may have sent its message
        (1, 6, False, False),  # it joins
        (1, 0, False, False),
        (6, 0, True, True),
    ],
)
def test_whoever_goes_on_at_a_later_round_sends_nothing_in_this_one(begun, ready, left, absent):
    made = meeting("a", ("b",))
    made.listen("b", msgspec.structs.replace(said("b", b"ours"), begun=begun, ready=ready, left=left), 0.0)
    assert made.is_absent("b", 6) is absent


# --- other releases and rosters ------------------------------------------------------------------------------------


def test_a_hello_of_a_later_release_may_have_more_fields():
    later = (*msgspec.structs.astuple(said("b", b"ours")), "something new")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=Hello) == said("b", b"ours")


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (4, "b uses version 4 (Tacit 0.2) of the wire format, and a version {ours}; try: install a newer {what} at b"),
        (9, "b uses version 9 of the wire format, and a version {ours}; try: install a newer {what} at a"),
    ],
)
def test_the_older_of_two_wire_versions_is_to_be_replaced(version, line):
    made = meeting("a", ("b",))
    made.foreign("b", version)
    assert str(made.wrong) == line.format(ours=WIRE_VERSION, what="release of Tacit")


@pytest.mark.parametrize(("theirs", "older"), [(2, "b"), (4, "a")])
def test_the_older_of_two_revisions_is_to_be_replaced(theirs, older):
    made = Rendezvous("a", ("b",), lambda *known: known[-1], b"ours", revision=3)
    made.sit(OURS)
    other = msgspec.structs.replace(said("b", b""), session=b"another", revision=theirs)
    made.listen("b", other, 0.0)
    assert str(made.wrong) == (
        f"b has revision {theirs} of federation.toml, and a revision 3; try: have {older} take the newest one, and "
        "start it again"
    )
    made.listen("b", msgspec.structs.replace(other, revision=3), 0.0)
    assert made.wrong is None, "it does not say what differs"
