"""Processes that are killed in the middle of rounds, started again, and never average anything wrong."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.federations import Made, written
from support.outbound import outbound
from support.paths import SUPPORT
from tacit.core.suite import SERVER
from tacit.net.membership.roster import Deadlines

PARTY = SUPPORT / "party_process.py"
TACIT = Path(sys.executable).with_name("tacit")
QUICK = Deadlines(phase=3.0, start=4.0, connect=2.0)


class Processes:
    """The processes of a federation, and what they wrote."""

    def __init__(self, folder, protocol, parties, rounds, only_dial=False, **options):
        self.made = Made.of(folder, protocol, parties, QUICK, **options)
        if only_dial:
            self.made.roster = outbound(self.made, SERVER)
        self.folder, self.rounds, self.path = folder, rounds, written(self.made)
        self.running = {}

    def start(self, name):
        if name == SERVER:
            command = [str(TACIT), "serve", str(self.path), "--json"]
        else:
            names = self.made.roster.names
            place, log = names.index(name), self.folder / f"{name}.log"
            command = [sys.executable, str(PARTY), self.path, name, place, len(names), self.rounds, log]
        with (self.folder / f"{name}.err").open("ab") as said:
            self.running[name] = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=said)  # noqa: S603

    def kill(self, name):
        self.running[name].kill()
        self.running[name].wait()

    def logged(self, name):
        path = self.folder / f"{name}.log"
        # The last line may be cut short.
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def close(self):
        for name in self.running:
            self.kill(name)

    def averages(self):
        """Yields who got which average of whom in which round."""
        for name in self.made.roster.names:
            for each in self.logged(name):
                if "round" in each:
                    yield name, each["round"], tuple(each["contributors"]), each["average"]


@pytest.fixture
def processes():
    made = []

    def make(*given, **options):
        made.append(Processes(*given, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def wrong(found):
    """Returns averages that are not the mean of what their contributors brought."""
    names = found.made.roster.names
    brought = {name: [each["brought"] for each in found.logged(name) if "brought" in each] for name in names}
    bad = []
    for name, number, contributors, average in found.averages():
        for place, other in enumerate(names):
            value = average[place] * len(contributors)
            expected = brought[other] if other in contributors else [0.0]
            if min(abs(value - each) for each in expected) > 1e-4:
                bad.append((name, number, other, value))
    return bad


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "only_dial"), [*((seed, False) for seed in range(9)), (9, True), (10, True)])
def test_whoever_is_killed_goes_on_and_nothing_wrong_is_averaged(seed, only_dial, tmp_path, processes):
    found = processes(tmp_path, "secagg", 4, 6, only_dial=only_dial, threshold=3)
    rng, names = random.Random(seed), (*found.made.roster.names, SERVER)
    for name in names:
        found.start(name)
    deadline = time.monotonic() + 150
    kills = [SERVER, "p1", rng.choice(found.made.roster.names)]
    while time.monotonic() < deadline:
        alive = [name for name in found.made.roster.names if found.running[name].poll() is None]
        if not alive:
            break
        if kills and len(list(found.averages())) >= 3 * (4 - len(kills)):
            time.sleep(rng.uniform(0, 0.3))
            victim = kills.pop()
            if victim == SERVER or victim in alive:
                found.kill(victim)
                found.start(victim)
        time.sleep(0.1)
    codes = {name: found.running[name].poll() for name in found.made.roster.names}
    assert codes == dict.fromkeys(found.made.roster.names, 0), [
        (tmp_path / f"{n}.err").read_text()[-500:] for n in names
    ]
    assert not kills, "there was time for all of them"
    assert wrong(found) == []
    whole = {number for _, number, contributors, _ in found.averages() if len(contributors) == 4}
    assert whole, "some rounds had everybody"
    by_round = {}
    for _, number, contributors, average in found.averages():
        assert by_round.setdefault((number, contributors), average) == average, "one average a round"
