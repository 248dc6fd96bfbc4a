"""Which peers the status of a node lists as missing, and for how long."""

from types import SimpleNamespace

import pytest

from tacit.core.suite import SERVER
from tacit.net.membership.rendezvous import Hello, Rendezvous
from tacit.net.observability.status import ABSENT, PeerStatus

NOW, NEVER = 100.0, None
AGREED = SimpleNamespace(session=b"s", described={}, protocol=SimpleNamespace(needs_everybody=False))


def missing(peer="b", *, heard, since, pending=False, ready=3, its=0):
    """Returns for how long a peer is missing, that was heard of and is awaited since some time."""
    made = Rendezvous("a", (peer,), lambda *known: known[-1], b"ours")
    made.sit(AGREED)
    made.ready = ready
    if heard is not NEVER:
        made.listen(peer, Hello(peer, 4, b"i", b"s", 4, 2, True, ready=its, known=b"ours"), heard)
    link = SimpleNamespace(waiting=0, trouble="")
    return PeerStatus.of(peer, made, link, NOW, since, pending).missing


@pytest.mark.parametrize("heard", [NOW, NOW - ABSENT + 0.1])
def test_a_peer_that_only_trains_is_not_missing(heard):
    assert missing(heard=heard, since=NOW - 60) is None


def test_a_peer_is_missing_since_it_was_last_heard():
    assert missing(heard=NOW - 47, since=NOW - 60) == 47
    assert missing(heard=NOW - 47, since=NOW - 1) == 47
    assert missing(heard=NEVER, since=NOW - 60) == 60
    assert missing(heard=NEVER, since=NOW - 1) is None


def test_nobody_is_missing_who_is_not_awaited():
    assert missing(heard=NOW - 47, since=NOW - 60, ready=0) is None
    assert missing(heard=NOW - 47, since=NOW - 60, its=3) is None, "a party that is ready says nothing more"


def test_a_server_that_was_ready_and_died_is_missing():
    assert missing(SERVER, heard=NOW - 47, since=NOW - 60, its=3) == 47
    assert missing(SERVER, heard=NOW - 1, since=NOW - 60, its=3) is None


def test_in_a_round_the_wait_counts_because_no_hellos_are_sent():
    assert missing(heard=NOW - 47, since=NOW - 1, pending=True, ready=0) is None
    assert missing(heard=NOW - 47, since=NOW - 12, pending=True, ready=0) == 12
