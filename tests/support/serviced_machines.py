"""Federations of real processes that are stopped, killed and started again, each of a release of its own."""

import json
import signal
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from support.federations import written
from support.outbound import LONG
from support.paths import SUPPORT
from tacit.core.suite import SERVER
from tacit.net.observability.status import STATUS


class Machines:
    """The processes of a federation, each of one release."""

    def __init__(self, made):
        self.made, self.path, self.running = made, written(made), {}
        self.parties, self.starts = made.roster.names, Counter()

    def start(self, release, *names):
        for name in names:
            if name == SERVER:
                command = ("-m", "tacit", "serve", self.path)
            else:
                place = self.parties.index(name)
                log = self.made.folder / f"{name}.log"
                command = (SUPPORT / "serviced_party.py", self.path, name, place, len(self.parties), log)
            self.starts[name] += 1
            self.running[name] = release.start(self.error_log(name), *command)

    def error_log(self, name):
        return self.made.folder / f"{name}.err"

    def stop(self, *names):
        for name in names:
            # Until it has joined, a process has no handler of its own for the signal.
            self.until(lambda: self.joined(name) == self.starts[name])  # noqa: B023
            self.running[name].send_signal(signal.SIGTERM)
        for name in names:
            assert self.running.pop(name).wait(LONG) == 0, self.error_log(name).read_text()

    def joined(self, name):
        """Returns how often a process has come so far that it handles signals."""
        if name == SERVER:
            return self.error_log(name).read_text().count("listening at ")
        return sum("joined" in each for each in self.told(name))

    def kill(self, name):
        """Kills a process, which may not have joined yet."""
        self.running[name].kill()
        self.running.pop(name).wait()
        self.starts[name] = self.joined(name)

    def status(self, name):
        """Returns what a node wrote about its state, as text."""
        path = self.made.folder / f"{name}.rounds" / STATUS
        return path.read_text() if path.exists() else ""

    def told(self, name):
        log = self.made.folder / f"{name}.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def rounds(self, name, release=None):
        """Returns the numbers of the rounds that a party has averaged, or those of one of its releases."""
        found = [each for each in self.told(name) if "average" in each]
        return [each["round"] for each in found if release in (None, each["release"])]

    def until(self, true):
        end = time.monotonic() + LONG
        while not true():
            for name, process in self.running.items():
                assert process.poll() is None, self.error_log(name).read_text()
            assert time.monotonic() < end, {name: self.status(name) for name in self.running}
            time.sleep(0.05)

    def until_further(self, *names, rounds=3):
        """Waits until parties have averaged more rounds."""
        before = {name: len(self.rounds(name)) for name in names}
        self.until(lambda: all(len(self.rounds(name)) >= before[name] + rounds for name in names))


@contextmanager
def machines(made):
    found = Machines(made)
    try:
        yield found
    finally:
        for process in found.running.values():
            process.kill()
            process.wait()


def assert_right(told, with_server):
    """Asserts that each average is that of vectors that its contributors brought, each to one sum.

    With a server, a party that was away gets the last average once more, in the round in which it is back.
    Without a server, a party keeps the share of each neighbour that is missing for itself.
    """
    brought = {name: {each["brought"] for each in said if "brought" in each} for name, said in told.items()}
    used = {}
    for me, each in ((me, each) for me, said in told.items() for each in said if "average" in each):
        contributed = each["contributors"]
        missing = len(told) - len({me, *contributed})
        for party, value in zip(told, each["average"], strict=True):
            if party not in contributed and (with_server or party != me):
                assert value == pytest.approx(0.0, abs=1e-6), each
                continue
            share = 1 / len(contributed) if with_server else (1 + missing * (party == me)) / len(told)
            found = value / share
            nearest = min(brought[party], key=lambda one: abs(one - found))
            assert found == pytest.approx(nearest, abs=1e-5), (me, party, each)
            where = tuple(contributed) if with_server else each["round"]
            assert used.setdefault((party, nearest), where) == where, (me, party, each)
