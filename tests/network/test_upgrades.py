"""Two releases in one federation: one node after the other is upgraded while rounds go on, and 0.2 is refused."""

import msgspec
import pytest

from support.federations import HASTY, Made
from support.outbound import outbound
from support.releases import Release
from support.serviced_machines import assert_right, machines
from tacit.core.suite import SERVER
from tacit.net.membership.rendezvous import WIRE_VERSION
from tacit.net.membership.roster import Deadlines

pytestmark = pytest.mark.slow

PARTIES = ("p0", "p1", "p2", "p3")
BRISK = Deadlines(phase=8.0, start=60.0, connect=5.0)
"""A party that is back in the middle of a round may cost the others one phase."""
LAST_HELLO_FIELD = '    """The revision of the party\'s roster."""\n\n\nclass Rendezvous'
LATER = (
    "net/membership/rendezvous.py",
    LAST_HELLO_FIELD,
    LAST_HELLO_FIELD.replace("\n\n\n", '\n    mood: str = "fine"\n\n\n'),
)
"""What the later release adds: one more field in every hello."""
BEFORE = "648203e"
"""A commit of release 0.2."""


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    return [Release.of_this_tree(folder, "0.3.0"), Release.of_this_tree(folder, "0.4.0", [LATER])]


@pytest.mark.parametrize(("protocol", "listening"), [("secagg", (SERVER,)), ("gossip", PARTIES)])
def test_one_node_after_the_other_is_upgraded_while_rounds_go_on(protocol, listening, releases, tmp_path, capsys):
    before, after = releases
    made = Made.of(tmp_path, protocol, PARTIES, BRISK, **({"threshold": 3} if protocol == "secagg" else {}))
    made.roster = outbound(made, *listening)
    server = (SERVER,) if protocol == "secagg" else ()
    with machines(made) as found:
        found.start(before, *server, *PARTIES)
        found.until_further(*PARTIES)
        for name in ("p0", *server, *PARTIES[1:]):
            found.stop(name)
            if name not in server:
                found.until_further(*(party for party in PARTIES if party != name))
            found.start(after, name)
            found.until_further(*PARTIES)
        found.stop(*PARTIES)
        found.stop(*server)
    told = {name: found.told(name) for name in PARTIES}
    assert_right(told, bool(server))
    for name in PARTIES:
        assert len(found.rounds(name, "0.3.0")) >= 3
        assert len(found.rounds(name, "0.4.0")) >= 3
        assert found.rounds(name) == sorted(set(found.rounds(name)))
    failed = {name: [each for each in told[name] if "error" in each] for name in PARTIES}
    everyone = {number for name in PARTIES for number in found.rounds(name)}
    with capsys.disabled():
        print(f"\n{protocol}: {len(everyone)} rounds, {len(set(range(1, max(everyone) + 1)) - everyone)} lost")  # noqa: T201
    assert failed == {name: [] for name in PARTIES}, "nodes were stopped between rounds, or finished theirs"
    assert everyone == set(range(1, max(everyone) + 1))


# --- release 0.2 ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return Release.of_commit(tmp_path_factory.mktemp("old"), "0.2.0", BEFORE)


PROGRAM = """
import sys, time, numpy as np, tacit
with tacit.join(sys.argv[1], me=sys.argv[2]) as peer:
    try:
        peer.average(np.ones(3))
    except tacit.TacitError as error:
        print(error, file=sys.stderr, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("protocol", ["secagg", "gossip"])
def test_a_node_of_release_0_2_is_refused_in_one_line_on_both_sides(protocol, old, releases, tmp_path):
    settings = {"threshold": 3} if protocol == "secagg" else {}
    made = Made.of(tmp_path, protocol, PARTIES, HASTY, **settings)
    made.roster = msgspec.structs.replace(made.roster, revision=0)  # which rosters of 0.2 do not have
    server = (SERVER,) if protocol == "secagg" else ()
    others = PARTIES[1:]
    with machines(made) as found:
        found.start(releases[0], *server, *others)
        process = old.start(found.error_log("p0"), "-c", PROGRAM, found.path, "p0")
        try:
            found.until(lambda: "speaks version" in found.error_log("p0").read_text())
            if server:
                found.until_further(*others, rounds=2)
            else:
                found.until(lambda: all(any("error" in each for each in found.told(name)) for name in others))
        finally:
            process.kill()
            process.wait()
        found.stop(*others)
        found.stop(*server)
    theirs = found.error_log("p0").read_text()
    assert f"speaks version {WIRE_VERSION} of what is sent, and p0 version 4" in theirs
    line = "p0 uses version 4 (Tacit 0.2) of the wire format, and {} version {}; try: install a newer release of Tacit"
    for name in others:
        told = found.told(name)
        assert "p0" not in [party for each in told for party in each.get("contributors", ())]
        if not server:
            assert {each["text"] for each in told if "text" in each} == {f"{line.format(name, WIRE_VERSION)} at p0"}
    if server:
        assert line.format(SERVER, WIRE_VERSION).partition("; try")[0] in found.error_log(SERVER).read_text()
