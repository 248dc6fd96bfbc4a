"""Rounds while certificates expire and are replaced, and certificates that prove nobody."""

import asyncio
from functools import wraps
from time import time

import pytest

from support.authorities import Authority
from support.certified import AUTHORITY, ISSUED, PINNED, certified
from support.federations import HASTY, averaged
from support.outbound import until
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, ErrorText
from tacit.core.suite import SERVER
from tacit.net import party_courier
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import Deadlines
from tacit.net.membership.tls_sources import IssuedCertificates
from tacit.net.transport.tls import Tls

BRIEF = Deadlines(phase=20.0, start=20.0, connect=5.0, certificate=6.0)
"""Certificates of some seconds, so that several pass during a test. Connections are replaced every quarter of that."""
IMPATIENT = Deadlines(phase=2.5, start=4.0, connect=1.0)


def runs(test):
    """Runs an asynchronous test in a loop of its own."""

    @wraps(test)
    def run(**given):
        asyncio.run(test(**given))

    return run


async def play(made, nodes, rounds=1, pause=0.0, first=1):
    """Plays rounds, each of which has to end for everybody with everybody."""
    for number in range(first, first + rounds):
        endings = await averaged(nodes, made.updates(5, number))
        for ending in endings.values():
            assert ending.error is None
            assert set(ending.contributors) == set(made.roster.names)
        await asyncio.sleep(pause)


@pytest.mark.parametrize("listening", [None, (SERVER,)], ids=["all dial", "outbound-only"])
@runs
async def test_rounds_go_on_while_issued_certificates_are_replaced(tmp_path, listening):
    made = certified(tmp_path, "secagg", 3, ISSUED, BRIEF, listening)
    async with made.nodes() as nodes:
        before = {name: node.courier.tls.current().certificate for name, node in nodes.items()}
        began, first = time(), 1
        while time() < began + 1.5 * BRIEF.certificate:
            await play(made, nodes, 1, 0.2, first)
            first += 1
        after = {name: node.courier.tls.current().certificate for name, node in nodes.items()}
        dialled = nodes["p0"].courier.links[SERVER]._opened
    assert not set(before.values()) & set(after.values())
    assert dialled > 2


@runs
async def test_all_three_ways_work_in_one_federation(tmp_path):
    made = certified(tmp_path, "gossip", 4, {"p0": PINNED, "p1": ISSUED, "p2": AUTHORITY, "p3": AUTHORITY})
    async with made.nodes() as nodes:
        await play(made, nodes, 2)


@runs
async def test_files_of_an_authority_are_taken_over_when_both_are_right(tmp_path):
    made = certified(tmp_path, "gossip", 3, AUTHORITY, BRIEF)
    folder = made.credentials["p0"].tls_folder
    async with made.nodes() as nodes:
        await play(made, nodes)
        source, before = nodes["p0"].courier.tls, nodes["p0"].courier.tls.current()
        fresh = made.authorities["p0"].issue("p0.example")
        (folder / "tls.crt").write_bytes(fresh.pem)  # the tool has not written the key yet
        assert source.current() == before
        assert not source.problem
        await play(made, nodes, first=2)
        fresh.write(folder)
        assert source.current().certificate == fresh.pem
        await play(made, nodes, first=3)
        made.authorities["p0"].issue("other.example").write(folder)  # which is not ours, so the last one stays
        assert source.current().certificate == fresh.pem
        await play(made, nodes, first=4)


# --- certificates that prove nobody ----------------------------------------------------------------------------------


def refuse_start(made, party):
    """Returns the one line, and its remedy, with which a node does not start."""

    async def start():
        node = made.node(party)
        try:
            await node.start()
        finally:
            await node.close()

    with pytest.raises(ConfigError) as caught:
        asyncio.run(start())
    (problem,) = caught.value.problems
    assert problem.isprintable()
    return ErrorText.parse(problem)


def own(made, **dates):
    return made.authorities["p0"].issue("p0.example", **dates)


DAY = 86400.0


@pytest.mark.parametrize(
    ("leaf", "reason"),
    [
        (lambda made: own(made, since=time() - 9 * DAY, until=time() - DAY), "expired on"),
        (lambda made: own(made, since=time() + DAY, until=time() + 9 * DAY), "is valid from"),
        (lambda made: made.authorities["p0"].issue("p1.example"), "is for p1.example, and not for p0.example"),
        (lambda made: made.authorities["p1"].issue("p0.example"), "is not of the issuer on its card"),
        (lambda _: Authority("authority of p0").issue("p0.example"), "is not of the issuer on its card"),
    ],
    ids=["expired", "not yet valid", "another name", "another party's authority", "a namesake"],
)
def test_a_party_does_not_start_with_a_certificate_that_does_not_prove_it(tmp_path, leaf, reason):
    made = certified(tmp_path, "gossip", 3, AUTHORITY)
    leaf(made).write(made.credentials["p0"].tls_folder)
    found = refuse_start(made, "p0")
    assert found.message.startswith("p0 cannot prove itself in TLS: the certificate ")
    assert reason in found.message
    assert "p0.tls" in found.remedy
    assert "clock" in found.remedy


def test_a_party_does_not_start_without_the_files_of_its_authority(tmp_path):
    made = certified(tmp_path, "gossip", 3, AUTHORITY)
    (made.credentials["p0"].tls_folder / "tls.key").chmod(0o644)
    assert "can be read by others" in refuse_start(made, "p0").message
    (made.credentials["p0"].tls_folder / "tls.key").unlink()
    assert "has no tls.key and tls.crt" in refuse_start(made, "p0").message


FOREIGN = {
    "right authority, other name": lambda made: made.authorities["p1"].issue("p9.example"),
    "other authority, right name": lambda made: made.authorities["p2"].issue("p1.example"),
    "a stranger's authority": lambda _: Authority("authority of p1").issue("p1.example"),
    "expired": lambda made: made.authorities["p1"].issue("p1.example", since=time() - 9 * DAY, until=time() - DAY),
    "clock a day ahead": lambda made: made.authorities["p1"].issue(
        "p1.example", since=time() + DAY - 900, until=time() + 2 * DAY
    ),
}
LISTENER = {
    "right authority, other name": "shows a certificate of another issuer, or with another name",
    "other authority, right name": "shows a certificate of another issuer, or with another name",
    "a stranger's authority": "shows a certificate of another issuer, or with another name",
    "expired": "has expired by this clock; try: compare the clocks",
    "clock a day ahead": "is not valid yet by this clock; try: compare the clocks",
}
CALLER = {
    "right authority, other name": "of p1: the certificate is for p9.example, and not for p1.example",
    "other authority, right name": "of p2: the certificate is for p1.example, and not for p2.example",
    "a stranger's authority": "closed the connection",
    "expired": "closed the connection",
    "clock a day ahead": "closed the connection",
}


@pytest.mark.parametrize("case", LISTENER)
@runs
async def test_a_foreign_or_expired_certificate_is_named_on_both_sides(tmp_path, case, monkeypatch):
    made = certified(tmp_path, "gossip", 3, AUTHORITY, IMPATIENT)
    shown = FOREIGN[case](made)
    wrong = Tls(shown.key_pem, shown.pem)  # the own check of p1 is not there: it is malicious, or has another clock
    honest = party_courier.open_tls_source
    monkeypatch.setattr(
        party_courier, "open_tls_source", lambda mine, *more: wrong if mine.name == "p1" else honest(mine, *more)
    )
    async with made.nodes(["p0", "p1"]) as nodes:
        ours, theirs = nodes["p0"].courier.links["p1"], nodes["p1"].courier.links["p0"]

        def is_named():
            for node in nodes.values():  # as they do while they wait for each other
                node._hellos.say()
            return LISTENER[case] in ours.trouble and CALLER[case] in theirs.trouble

        await until(is_named)
        assert "p1 at 127.0.0.1" in ours.trouble
        assert "try: " in theirs.trouble
        assert not nodes["p0"]._rendezvous.others  # nothing of p1 was taken in
        assert not nodes["p1"]._rendezvous.others


@runs
async def test_a_node_whose_certificate_expires_says_so_and_sends_nothing(tmp_path):
    made = certified(tmp_path, "gossip", 3, {"p1": AUTHORITY}, BRIEF)
    made.authorities["p1"].issue("p1.example", until=time() + 4).write(made.credentials["p1"].tls_folder)
    async with made.nodes() as nodes:
        await play(made, nodes)
        source, link = nodes["p1"].courier.tls, nodes["p1"].courier.links["p0"]
        await until(lambda: source.problem)
        arrivals = link.arrivals
        nodes["p1"]._hellos.say(["p0"])
        await until(lambda: "p1 cannot prove itself in TLS: the certificate expired" in link.trouble)
        assert link.arrivals == arrivals
        there = nodes["p0"].courier.links["p1"]
        await asyncio.sleep(BRIEF.certificate / 4)  # by then the old connection has been replaced

        def is_noticed():
            nodes["p0"]._hellos.say()
            return "the certificate of p1 at" in there.trouble and "has expired" in there.trouble

        await until(is_noticed)
        made.authorities["p1"].issue("p1.example").write(made.credentials["p1"].tls_folder)
        await play(made, nodes, first=2)


@runs
async def test_a_held_stream_ends_with_its_certificate(tmp_path):
    made = certified(tmp_path, "secagg", 3, {"p1": AUTHORITY}, HASTY, listening=(SERVER,))
    made.authorities["p1"].issue("p1.example", until=time() + 4).write(made.credentials["p1"].tls_folder)
    async with made.nodes() as nodes:
        held = nodes[SERVER].courier.links["p1"].held
        await until(lambda: held.count("hello"))
        await until(lambda: not held.count("hello") and not held.count("frame"))
        # The party may not even dial any more, and its log says why.
        await until(lambda: "cannot prove itself" in nodes["p1"].courier.links[SERVER].trouble)


@runs
async def test_a_clock_that_is_set_back_by_a_day_gets_a_certificate_for_the_new_time():
    now = [1.8e9]
    mine = Credentials.generate("a", SeededEntropy("clock"), ISSUED)
    source = IssuedCertificates(mine, DAY, lambda: now[0])
    first = source.current()
    now[0] += DAY / 2 - 1
    assert source.current() is first
    now[0] += 2
    second = source.current()
    assert second is not first
    now[0] -= DAY
    assert source.current() is not second
