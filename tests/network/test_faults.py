"""Processes that are killed, frozen and cut off from each other: a short version of `python -m benchmarks faults`.

Whatever must not happen is looked for in what the processes wrote down, so each of these looks is tried here on
writings that were tampered with: one that has gone blind would find nothing either.
"""

import asyncio
import json
import shutil
from importlib import import_module
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from support.federations import Made
from support.paths import ROOT
from tacit.auditing.engine.algebra.linear import Echelon
from tacit.auditing.scope import Scope
from tacit.core.suite import SERVER
from tacit.net.transport.courier import Courier
from tacit.net.transport.framing import BytesFrame
from tacit.net.transport.peer_link import FIRST, LONGEST, PeerEndpoint
from tacit.net.transport.tls import Tls

pytestmark = pytest.mark.long

NEVER = ("wrong", "hung", "mass", "lost", "changed", "twice", "exposed", "strayed")
SHORT = {
    "secagg": {"parties": 4, "options": {"threshold": 3, "clip": 4.0}, "rounds": 10},
    "pushsum": {"parties": 4, "options": {"masked": True, "clip": 64.0}, "rounds": 15},
}


@pytest.fixture(scope="module")
def faults():
    """The module, which is found from the root of the repository alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield import_module("benchmarks.faults.run")


@pytest.fixture(scope="module")
def runs(faults, tmp_path_factory):
    """Runs, each with its folder and what was said of it."""
    made = {}

    def run(protocol):
        if protocol not in made:
            folder = tmp_path_factory.mktemp(protocol)
            made[protocol] = folder, faults.run_case(faults.Case(protocol, **SHORT[protocol]), folder, seed=2)
        return made[protocol]

    return run


def found(verdict):
    """Returns what must not happen, and did."""
    return {name: getattr(verdict, name) for name in NEVER if getattr(verdict, name)}


@pytest.mark.parametrize("protocol", SHORT)
def test_nothing_goes_wrong_that_must_not(protocol, runs):
    folder, verdict = runs(protocol)
    assert found(verdict) == {}
    assert json.loads((folder / "run.json").read_text())["faults"], "something befell them"
    assert verdict.rounds >= SHORT[protocol]["rounds"]
    assert verdict.finished
    assert verdict.finished + sum(verdict.aborted.values()) == verdict.rounds


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["secagg", "cesar", "pushsum", "admm"])
def test_nothing_goes_wrong_in_many_rounds(protocol, faults, tmp_path):
    case = next(each for each in faults.CASES if each.protocol == protocol)
    verdict = faults.run_case(faults.replace(case, rounds=60), tmp_path, seed=3)
    assert found(verdict) == {}
    assert verdict.rounds >= 60
    assert verdict.resumed


# --- that it would be noticed --------------------------------------------------------------------------------------


def spoilt(what, party, change):
    """Returns what changes the last line of a kind in the log of a party, or drops it, or adds some behind it."""

    def spoil(folder):
        path = folder / f"{party}.log"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        place = max(number for number, line in enumerate(lines) if line["what"] == what)
        lines[place : place + 1] = change(lines[place])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return spoil


def moved(numbers):
    return [number + 0.01 for number in numbers]


def forgotten(line):
    return [line, {**line, "what": "up", "resuming": False, "last": None}]


def with_another_model(line):
    return [line, {**line, "what": "resumes", "vector": moved(line["vector"]), "heard": []}]


def with_nobody(folder):
    """Has a party averaged with nobody for long, however long the run took, and no fault to excuse it."""
    for path in folder.glob("*.log"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line["at"] *= 100
            if (path.stem, line["what"]) == ("p1", "ends"):
                line["contributors"] = ["p1"]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"faults": []}))


TAMPERED = [
    ("secagg", "wrong", spoilt("ends", "p1", lambda line: [{**line, "average": moved(line["average"])}])),
    ("secagg", "wrong", spoilt("begins", "p1", lambda line: [{**line, "vector": moved(line["vector"])}])),
    ("secagg", "hung", spoilt("ends", "p1", lambda _: [])),
    ("pushsum", "hung", with_nobody),
    ("secagg", "lost", spoilt("ends", "p1", forgotten)),
    ("secagg", "lost", spoilt("ends", "p1", lambda line: [line, {**line, "contributors": []}])),
    ("secagg", "changed", spoilt("begins", "p1", with_another_model)),
    ("secagg", "changed", spoilt("ends", "p1", lambda line: [line, {**line, **BEGUN}])),
    ("secagg", "twice", spoilt("says", "p1", lambda line: [line, {**line, "hash": "another"}])),
    ("secagg", "strayed", spoilt("heard", "p1", lambda _: [])),
    ("pushsum", "mass", spoilt("begins", "p1", lambda line: [{**line, "vector": moved(line["vector"])}])),
    ("pushsum", "wrong", spoilt("ends", "p1", lambda line: [{**line, "average": moved(line["average"])}])),
]
BEGUN = {"what": "begins", "vector": [0.0] * 6, "before": "", "state": None}


@pytest.mark.parametrize(("protocol", "name", "spoil"), TAMPERED)
def test_what_must_not_happen_is_noticed(protocol, name, spoil, runs, faults, tmp_path):
    folder = shutil.copytree(runs(protocol)[0], tmp_path / "run")
    spoil(folder)
    assert name in found(faults.Judge(folder).judged())


def ended(value, contributors=("p0", "p1"), average=None):
    """Returns what a party brought to a round, and how the round ended for it."""
    ending = {"average": average, "contributors": list(contributors)}
    return SimpleNamespace(vector=np.full(2, value), ending=ending)


@pytest.mark.parametrize(
    ("average", "server", "wrong"),
    [
        ([0.5, 0.5], None, []),
        ([0.5, 0.500001], None, ["p2 in round 2"]),
        ([0.5, 0.5], [7.0, 7.0], ["p2 in round 2"]),  # who is given an old average in a round that has one is misled
    ],
)
def test_of_a_round_that_was_aborted_a_party_that_was_behind_may_have_the_last_average(average, server, wrong, faults):
    judge = faults.Judge.__new__(faults.Judge)
    judge.terms, judge.verdict = None, faults.Verdict()
    judge.agreement = SimpleNamespace(ring=lambda: SimpleNamespace(resolution=1e-9))
    first = {name: ended(value, average=[0.5, 0.5]) for name, value in (("p0", 0.0), ("p1", 1.0), (SERVER, 0.0))}
    second = {"p0": ended(7.0), "p2": ended(0.0, average=average), SERVER: ended(0.0, ("p0",), server)}
    rounds = {1: first, 2: second}
    judge.accounts = {
        name: SimpleNamespace(rounds={number: each[name] for number, each in rounds.items() if name in each})
        for name in ("p0", "p1", "p2", SERVER)
    }
    judge._compare_averages()
    assert judge.verdict.wrong == wrong


@pytest.mark.usefixtures("faults")
def test_an_exposure_is_noticed():
    """Neighbours who gossip show each other everything, in the order in which they happen to hear of it."""
    replayed = import_module("benchmarks.faults.replayed")
    names = ("p0", "p1", "p2")
    others = {name: [replayed.Place(other, "SharedEntries", 0) for other in names if other != name] for name in names}
    run, exposed = replayed.replay_rounds(Scope.of("gossip", names, {}, rounds=2, drift="free"), {1: others, 2: others})
    assert not run.stuck
    assert {each.coalition[0]: {victim for victim, _ in each.fresh} for each in exposed} == {
        name: set(names) - {name} for name in names
    }


def test_masses_show_as_much_as_the_code_does_on_unknowns(runs, faults):
    """The recurrence, which all rounds are audited by, against the deployed coroutines, which only some are."""
    masses, replayed = import_module("benchmarks.faults.masses"), import_module("benchmarks.faults.replayed")
    folder, _ = runs("pushsum")
    judge = faults.Judge(folder)
    lived = {number: {name: each.told for name, each in judge.lived(number).items()} for number in judge.numbers}
    scope = Scope.of("pushsum", judge.names, judge.roster.settings, rounds=max(judge.numbers), drift="free")
    run = replayed.ReplayedRun(scope, lived, together=True)
    rounds = {name: judge.accounts[name].rounds for name in judge.names}
    seen, _, columns = masses.Masses(judge.roster, folder, rounds)._recurrence()
    for name in judge.names:
        others = [place for (party, _), place in columns.items() if party != name]
        known = Echelon(len(others))
        new = [known.take(row[others]) for row in seen[name]]
        assert sum(new) == len(run.knowledge([name], scope.rounds).rows) > 0
        assert all(masses._follows(known, row[others]) for row in seen[name])
        assert not masses._follows(known, np.eye(len(others), dtype=np.int64)[0])


# --- what it found -------------------------------------------------------------------------------------------------


class Slow:
    """Takes what comes in once it is let, and every second time at once."""

    def __init__(self):
        self.taken, self.came = 0, asyncio.Event()

    def max_frame_bytes(self, _sender):
        return 1 << 16

    async def accept_frame(self, _sender, _data):
        self.taken += 1
        self.came.set()
        if self.taken == 1:
            await asyncio.sleep(60)
        return True

    def answer_hello(self, _sender, _hello):
        return b""


def calling(made, name, other, receiver, **more):
    """Returns the courier of a party that knows one other."""
    mine, roster = made.credentials[name], made.roster
    (card,) = (card for card in roster.parties if card.name == other)
    peer = PeerEndpoint(other, card.address, roster.certificate_of(other), roster.host_of(other))
    return Courier(name, Tls(mine.key_pem.reveal(), mine.certificate_pem), [peer], receiver, **more)


def test_a_line_outlives_a_channel_that_is_given_up_while_something_is_under_way(tmp_path):
    """A party that was cut off from all others never spoke to them again: what was under way had ended its lines."""
    made = Made.of(tmp_path, "gossip", 2)
    cards, slow = {card.name: card for card in made.roster.parties}, Slow()

    async def run():
        one, other = calling(made, "p0", "p1", slow), calling(made, "p1", "p0", slow)
        await other.start(cards["p1"].address)
        try:
            line, arrived = one.links["p1"], asyncio.Event()
            line.send(BytesFrame(memoryview(b"parcel")), 1, arrived.set)
            await slow.came.wait()
            # There was a sign of life while nothing arrived, and what is under way has no time left to end.
            line.trouble, one.patience = "it does not answer", 0.0
            line.retry_now()
            one.patience = 10.0
            await asyncio.wait_for(arrived.wait(), 20)
        finally:
            await one.close()
            await other.close()

    asyncio.run(run())
    assert slow.taken == 2


@pytest.mark.parametrize(("patience", "longest"), [(0.25, 0.25), (10.0, LONGEST), (0.001, FIRST)])
def test_no_pause_is_longer_than_a_connection_may_take(patience, longest, tmp_path):
    """Pauses grew to five seconds whatever the deadlines, so that one that was back was missed for several phases."""
    courier = calling(Made.of(tmp_path, "gossip", 2), "p0", "p1", Slow(), patience=patience)
    pauses = list(islice(courier.backoff(), 40))
    assert pauses[0] <= 1.5 * FIRST
    assert longest / 2 <= max(pauses) <= 1.5 * longest
