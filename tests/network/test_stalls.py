"""Who hangs in a fault run, on logs that are made up: by which faults were in force, and whom a party needs."""

import math
from importlib import import_module

import pytest

from support.paths import ROOT
from tacit.auditing.scope import Scope
from tacit.net.membership.roster import Deadlines

NAMES = tuple(f"p{place}" for place in range(6))
OPTIONS = {
    "pushsum": {"masked": True, "graph": "exponential", "clip": 64.0},
    "cesar": {"masking": 2, "clip": 4.0},
    "admm": {"masked": True, "group_size": "all", "rho": 0.01, "iterations": 4, "clip": 4.0},
    "secagg": {"threshold": 4, "clip": 4.0},
}
DEADLINES = Deadlines(phase=1.0, start=2.0, connect=1.0)
END = 80.0
APART, LASTS = 0.5, 0.2
"""Seconds from one round to the next, and that each takes."""


@pytest.fixture(scope="module")
def stalls():
    """The module, which is found from the root of the repository alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield import_module("benchmarks.faults.stalls")


def a_log(party, contributors, alone=(), still=()):
    """Yields the lines of a party that is in a round all the time, but for times when it is alone or stands still."""

    def within(at, times):
        return any(begun <= at < over for begun, over in times)

    yield {"what": "up", "at": 0.0, "resuming": False}
    for number in range(1, int(END / APART)):
        at = number * APART
        if not within(at, still):
            yield {"what": "begins", "at": at, "round": number}
            ended = {"average": None if within(at, alone) else [0.0]}
            ended["contributors"] = [party] if within(at, alone) else list(contributors)
            yield {"what": "ends", "at": at + LASTS, "round": number, **ended}
    yield {"what": "done", "at": END}


def fault(kind, who, at, over):
    return {"kind": kind, "who": who.split(), "at": at, "over": over}


class Told:
    """Who hung, by what was done and what everybody wrote."""

    def __init__(self, stalls, protocol, faults=(), logs=None, **alone):
        scope = Scope.of(protocol, NAMES, OPTIONS[protocol])
        everyone = scope.protocol.everyone(NAMES)
        lines = {name: list(a_log(name, NAMES, alone.get(name, ()))) for name in everyone} | (logs or {})
        courses = {name: stalls.Course.of(name, lines[name]) for name in everyone}
        self.courses = stalls.Courses(scope.terms, DEADLINES, courses, faults)
        self.hung = [name for name in everyone if self.words(name)]

    def words(self, name):
        return self.courses.told(self.courses.stretches(name), 0.0)


PROTOCOLS = pytest.mark.parametrize("protocol", OPTIONS)
ALONE = [(20.0, 36.0)]


@PROTOCOLS
def test_nobody_hangs_where_everybody_is_averaged(protocol, stalls):
    assert Told(stalls, protocol).hung == []
    assert Told(stalls, protocol, [fault("freeze", "p1", 20.0, 26.0)]).hung == []


@PROTOCOLS
def test_who_is_alone_with_nothing_in_force_hangs(protocol, stalls):
    told = Told(stalls, protocol, p1=ALONE)
    assert told.hung == ["p1"]
    (words,) = told.words("p1")
    assert words.startswith("p1 was averaged with nobody from 19.7 s to 36.2 s"), "rounds that ended with others"


@PROTOCOLS
def test_a_stall_of_seconds_with_nothing_in_force_is_one(protocol, stalls):
    """Not a round is begun, so that there is none to be alone in."""
    turn = stalls.AllowedStall.of(
        DEADLINES, stalls.Needs.of(Scope.of(protocol, NAMES, OPTIONS[protocol]).terms, "p1").phases
    )
    for seconds, hung in ((turn.turn - APART, []), (turn.turn + APART, ["p1"])):
        assert (
            Told(stalls, protocol, logs={"p1": list(a_log("p1", NAMES, still=[(20.0, 20.0 + seconds)]))}).hung == hung
        )


@PROTOCOLS
def test_who_is_ill_is_excused(protocol, stalls):
    faults = [fault("cut off", "p1", 20.0, 26.0), fault("part", "p1 p2", 25.0, 31.0), fault("stall", "p1", 31.5, 36.0)]
    assert Told(stalls, protocol, faults, p1=ALONE).hung == []


def test_one_after_another_of_those_it_needs_are_ill(stalls):
    """Eight faults in a row, as there once were: of the three that push to it, and its own."""
    who = ["p0", "p5", "p1", "p3", "p0", "p5", "p3", "p1"]
    faults = [fault("freeze", name, 20.0 + 2 * place, 22.5 + 2 * place) for place, name in enumerate(who)]
    assert Told(stalls, "pushsum", faults, p1=ALONE).hung == []
    others = [each | {"who": ["p2" if each["who"] == ["p1"] else "p4"]} for each in faults]
    assert Told(stalls, "pushsum", others, p1=ALONE).hung == ["p1"], "nobody of them pushes to it"


@pytest.mark.parametrize(
    ("protocol", "who", "hung"),
    [
        ("pushsum", "p0", False),
        ("pushsum", "p4", True),
        ("admm", "p4", False),
        ("cesar", "p0 p2", True),
        ("cesar", "p0 p2 p3", False),
        ("secagg", "p0 p2", True),
        ("secagg", "p0 p2 p3", False),
        ("secagg", "server", False),
    ],
)
def test_whose_illness_excuses_a_party(protocol, who, hung, stalls):
    """Neighbours, enough of them, everybody, or the server and enough others."""
    faults = [fault("freeze", name, ALONE[0][0], ALONE[0][1] - APART) for name in who.split()]
    assert ("p1" in Told(stalls, protocol, faults, p1=ALONE).hung) == hung


@PROTOCOLS
def test_recovery_may_take_what_follows_from_deadlines_and_no_longer(protocol, stalls):
    needs = stalls.Needs.of(Scope.of(protocol, NAMES, OPTIONS[protocol]).terms, "p1")
    back, turn = stalls.AllowedStall.of(DEADLINES, needs.phases)
    assert back == 1.5 + 1.0 + stalls.OFTEN
    assert turn == 2.0 + needs.phases * 1.0 + stalls.BUSY
    faults = [fault("freeze", "p1", 20.0, 26.0)]
    assert Told(stalls, protocol, faults, p1=[(20.0, 26.0 + back + turn - APART)]).hung == []
    assert Told(stalls, protocol, faults, p1=[(20.0, 26.0 + back + turn + 2 * APART)]).hung == ["p1"]


def test_each_change_for_those_it_needs_takes_its_time(stalls):
    """What strikes may cost a round of whoever can do without it, once."""
    once = [fault("cut off", "p0", 20.0, 60.0)]
    many = [fault("cut off", "p0", at, at + 3.0) for at in range(20, 36, 6)]
    assert Told(stalls, "cesar", once, p1=ALONE).hung == ["p1"]
    assert Told(stalls, "cesar", many, p1=ALONE).hung == []


def test_who_is_killed_is_ill_until_its_process_is_up(stalls):
    up, kill = {"what": "up", "at": 33.0, "resuming": False}, fault("kill", "p1", 20.0, 24.0)
    lines = [line for line in a_log("p1", NAMES) if not 20.0 <= line["at"] < 36.0]
    later = [line for line in lines if not 20.0 <= line["at"] < 46.0]
    assert Told(stalls, "pushsum", [kill], {"p1": lines}).hung == []
    assert Told(stalls, "pushsum", [kill | {"kind": "freeze"}], {"p1": lines}).hung == ["p1"], "which is over at once"
    for each in (later, sorted([*later, up], key=lambda line: line["at"])):
        assert Told(stalls, "pushsum", [kill], {"p1": each}).hung == ["p1"], "it must be up before long, and go on"


def test_a_round_that_is_under_way_may_wait_for_as_long_as_it_does(stalls):
    """It was begun while somebody was ill, and waits for it by its own deadlines."""
    long = {"what": "begins", "at": 25.0, "round": 50}, {"what": "ends", "at": 38.0, "round": 50}
    ended = {"average": [0.0], "contributors": ["p0"]}
    lines = [line for line in a_log("p0", NAMES) if not 24.9 < line["at"] < 38.0]
    logs = {"p0": sorted([*lines, long[0], long[1] | ended], key=lambda line: line["at"])}
    faults = [fault("freeze", "p3", 24.0, 26.0)]
    assert Told(stalls, "cesar", faults, logs, p1=[(24.0, 40.0)]).hung == []
    assert Told(stalls, "cesar", faults, p1=[(24.0, 40.0)]).hung == ["p1"]
    assert Told(stalls, "cesar", faults, logs, p1=[(24.0, 49.0)]).hung == ["p1"]


def test_nobody_waits_for_those_who_have_begun_all_rounds(stalls):
    early = [line for line in a_log("p0", NAMES) if line["at"] < 50.0] + [{"what": "done", "at": 50.0}]
    assert Told(stalls, "pushsum", logs={"p0": early}, p1=[(50.0, END)]).hung == []
    assert Told(stalls, "pushsum", logs={"p0": early}, p1=[(30.0, END)]).hung == ["p1"]


def test_a_server_that_has_no_average_hangs(stalls):
    assert Told(stalls, "secagg", server=ALONE).hung == ["server"]


# --- while it runs -------------------------------------------------------------------------------------------------


def test_a_process_goes_on_by_its_own_deadlines(stalls):
    now = 0.0
    pulse = stalls.Pulse(lambda: now)
    assert not pulse.stopped
    pulse.started()
    assert pulse.by == stalls.LATE, "or it is not up"
    pulse.heard({"what": "waits", "seconds": 8.0})
    now = 8.0 + stalls.LATE
    pulse.heard({"what": "says"})
    assert not pulse.stopped
    now += 0.1
    assert pulse.stopped, "whatever it says meanwhile"
    pulse.thawed()
    assert not pulse.stopped
    pulse.heard({"what": "waits", "seconds": 90.0})
    pulse.thawed()
    assert pulse.by == now + 90.0 + stalls.LATE, "its deadlines went on"
    for line in ({"what": "waits", "seconds": None}, {"what": "done"}):
        pulse.started()
        pulse.heard(line)
        assert pulse.by == math.inf
