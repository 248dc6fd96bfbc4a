"""Processes whose certificates are replaced and whose roster is revised while they average."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.certified import AUTHORITY, ISSUED, PINNED, certified
from support.paths import SUPPORT
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import SERVER
from tacit.net.membership.identity import TLS_FOLDER
from tacit.net.membership.roster import Deadlines

PARTY = SUPPORT / "party_process.py"
TACIT = Path(sys.executable).with_name("tacit")
BRIEF = Deadlines(phase=8.0, start=30.0, connect=4.0, certificate=6.0)
"""Certificates last for some seconds, so that several pass during a test."""
LONG = 240
PROOFS = {SERVER: AUTHORITY, "p0": ISSUED, "p1": ISSUED, "p2": AUTHORITY, "p3": ISSUED, "p4": PINNED}
REMOVED = "p3"


class Machines:
    """The processes of a federation, each with a folder of its own, and what they wrote."""

    def __init__(self, folder, protocol, rounds, pause, listening=None):
        self.made = certified(folder, protocol, 5, PROOFS, BRIEF, listening)
        self.folder, self.rounds, self.pause, self.running = folder, rounds, pause, {}
        self.roster = self.sign(self.made.roster, quorum="all-but-one")
        for name, mine in self.made.credentials.items():
            (folder / name).mkdir(mode=0o700)
            mine.create(folder / name / f"{name}.identity")
            self.give(name, self.roster)
            self.renew(name)

    def sign(self, roster, signers=None, **changes):
        fields = {name: getattr(roster, name) for name in roster.__struct_fields__}
        made = type(roster)(**{**fields, **changes})
        for name in signers or [card.name for card in made.parties]:
            made = made.sign(self.made.credentials[name])
        return made

    def give(self, name, roster):
        """Puts a roster into the place of a party's file."""
        roster.save(self.folder / name / "federation.toml")

    def renew(self, name, **dates):
        """Replaces the certificate of a party that has an authority."""
        if name in self.made.authorities:
            leaf = self.made.authorities[name].issue(f"{name}.example", **dates)
            leaf.write(self.folder / name / f"{name}{TLS_FOLDER}")

    def start(self, name):
        path = self.folder / name / "federation.toml"
        if name == SERVER:
            command = [TACIT, "serve", path, "--json"]
        else:
            names = self.made.roster.names
            log = self.folder / f"{name}.log"
            place = names.index(name)
            command = [sys.executable, PARTY, path, name, place, len(names), self.rounds, log, self.pause]
        with (self.folder / f"{name}.err").open("ab") as said:
            self.running[name] = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=said)  # noqa: S603

    def logged(self, name):
        path = self.folder / f"{name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def averages(self, name):
        return [each for each in self.logged(name) if "round" in each]

    def errors(self, name):
        return [each["text"] for each in self.logged(name) if "error" in each]

    def said(self, name):
        return (self.folder / f"{name}.err").read_text()

    def until(self, true):
        end = time.monotonic() + LONG
        while not true():
            ended = {name: each.returncode for name, each in self.running.items() if each.poll()}
            assert not ended, {name: (code, self.said(name)[-600:]) for name, code in ended.items()}
            assert time.monotonic() < end, {name: self.said(name)[-600:] for name in self.made.everyone}
            time.sleep(0.1)

    def close(self):
        for each in self.running.values():
            each.kill()
            each.wait()


@pytest.fixture
def machines():
    made = []

    def make(*given, **options):
        made.append(Machines(*given, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def play_and_revise(found, before, rounds):
    """Runs a federation, removes a party after some rounds, and renews the certificates of authorities meanwhile."""
    for name in found.made.everyone:
        found.start(name)
    stay = [name for name in found.made.roster.names if name != REMOVED]
    found.until(lambda: all(len(found.averages(name)) >= before for name in found.made.roster.names))
    for name in found.made.authorities:
        found.renew(name)
    revised = found.roster.remove_party(REMOVED, SeededEntropy("revision"))
    remaining = [name for name in found.made.everyone if name != REMOVED]
    revised = found.sign(revised, remaining)
    for name in reversed(remaining):  # one after another, as people take a new file
        found.give(name, revised)
        time.sleep(0.4)
    found.until(lambda: all(found.averages(name)[-1]["round"] >= rounds for name in stay))
    return stay


def check_rounds(found, stay, rounds):
    """Asserts that nobody who stayed lost a round, that all averages are right, and that the removed party is out."""
    names = found.made.roster.names
    first_without = None
    for name in stay:
        assert found.errors(name) == []
        averages = found.averages(name)
        numbers = [each["round"] for each in averages]
        assert numbers == list(range(1, rounds + 1))
        for each in averages:
            who = each["contributors"]
            expected = [
                (1 + place + each["round"] / 1024) / len(who) if party in who else 0.0
                for place, party in enumerate(names)
            ]
            assert each["average"] == pytest.approx(expected, abs=1e-3)
            if REMOVED not in who:
                first_without = first_without or each["round"]
        assert [REMOVED in each["contributors"] for each in averages] == [
            number < first_without for number in range(1, rounds + 1)
        ]
    assert first_without is not None
    lost = {number: set(stay) - set(found.averages(stay[0])[number - 1]["contributors"]) for number in numbers}
    assert sum(map(bool, lost.values())) <= 1  # the round that was under way
    if SERVER in found.running:
        assert f"without {REMOVED}" in found.said(SERVER)
    return first_without


@pytest.mark.long
def test_certificates_rotate_and_a_party_is_removed_while_processes_average(tmp_path, machines):
    found = machines(tmp_path, "secagg", 16, 0.5)
    stay = play_and_revise(found, 6, 16)
    removed_at = check_rounds(found, stay, 16)
    assert max(each["round"] for each in found.averages(REMOVED)) < removed_at


@pytest.mark.slow
@pytest.mark.parametrize("listening", [None, (SERVER,)], ids=["all dial", "outbound-only"])
@pytest.mark.parametrize("protocol", ["secagg", "fedavg"])
def test_fifty_rounds_with_rotated_certificates_and_a_removed_party(tmp_path, machines, protocol, listening):
    found = machines(tmp_path, protocol, 50, 0.5, listening)
    stay = play_and_revise(found, 20, 50)
    removed_at = check_rounds(found, stay, 50)
    assert max(each["round"] for each in found.averages(REMOVED)) < removed_at


@pytest.mark.slow
def test_fifty_rounds_without_a_server(tmp_path, machines):
    found = machines(tmp_path, "gossip", 50, 0.5)
    stay = play_and_revise(found, 20, 50)
    check_rounds(found, stay, 50)
