"""When a round begins, and what one peer that lies can do about it."""

from types import SimpleNamespace

import msgspec
import pytest

from tacit.core.suite import SERVER
from tacit.drivers.network.meeting import Hello, Meeting

OURS = SimpleNamespace(session=b"session", described={})


def meeting(me, peers, **begun):
    """Returns what a party knows after hellos of peers whose last round is over."""
    made = Meeting(me, peers, lambda *_: True)
    made.sit(OURS)
    for peer, number in begun.items():
        made.listen(peer, Hello(peer, 4, b"i", b"session", 4, number, True), 0.0)
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
