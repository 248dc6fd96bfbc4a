"""Fixtures for tests of whole rounds: input vectors, expected averages, and roles with changed messages."""

from dataclasses import dataclass

import numpy as np
import pytest

from support.bent_roles import rewrite_messages
from support.checkout_guard import describe_new_files, list_files
from support.tiers import is_left_out, mark_cases
from tacit.core.errors import TacitError
from tacit.core.suite import SERVER, Update
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.simulator import Simulation

LEFT_FILES = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks which cases of parametrized tests are slow or long."""
    mark_cases(items)


def pytest_ignore_collect(collection_path, config):
    """Leaves out whole files of test tiers that do not run."""
    return True if is_left_out(collection_path, config.option.markexpr) else None


def pytest_sessionstart(session):
    """Records the files of the checkout, once for all workers."""
    if not hasattr(session.config, "workerinput"):
        session.files_before = list_files()


def pytest_sessionfinish(session):
    """Fails a run that left a file in the checkout."""
    if hasattr(session, "files_before") and (left := describe_new_files(session.files_before, list_files())):
        session.config.stash[LEFT_FILES] = left
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    """Prints which files were left behind."""
    if LEFT_FILES in config.stash:
        terminalreporter.write_line(config.stash[LEFT_FILES], red=True)


@dataclass
class Result:
    """Result of a round: an outcome or an error, and the simulated round."""

    outcome: object
    error: TacitError | None
    played: object

    def errors(self):
        """Returns the error of each party that gave up."""
        return {party: ending.error for party, ending in self.played.endings.items() if ending.error is not None}


def _updates_for(parties, entries, weights=None, seed=0):
    rng = np.random.default_rng(seed)
    weights = dict.fromkeys(parties, 1.0) if weights is None else dict(zip(parties, weights, strict=True))
    return {party: Update(rng.normal(size=entries), weights[party]) for party in parties}


def _ring_mean(simulation, updates, contributors):
    # Noise and rounding follow from the seed with which a party began its round.
    begun = {party: simulation.last.rounds[party].begun for party in contributors}
    hands = {
        party: simulation.participants[party].suite(begun[party].number, begun[party].seed) for party in contributors
    }
    encoded = np.array([hands[party].ring.encode(updates[party]) for party in contributors])
    ring = simulation.agreement.ring()
    return ring.mean(encoded.sum(axis=0, dtype=ring.dtype))


def _play(simulation, updates):
    # Only errors that Tacit raises on purpose count as a result; others fail the test.
    outcome = error = None
    try:
        outcome = simulation.average(updates)
    except TacitError as caught:
        error = caught
    return Result(outcome, error, simulation.last)


def _bent(protocol, party, change):
    honest = protocol.server if party == SERVER else protocol.party

    def role(link, *rest):
        return rewrite_messages(honest(link, *rest), lambda message, to: change(message, to, link, rest[-2]))

    return role


PROTECTED = {"admm": {"masked": True, "group_size": None}, "pushsum": {"masked": True}}
"""Settings without which a protocol refuses small numbers of parties."""


def _bent_simulation(protocol, parties, entries, party, change, **options):
    stand_ins = {party: _bent(REGISTRY[protocol], party, change)}
    options = PROTECTED.get(protocol, {}) | {"seed": 0} | options
    return Simulation.of(protocol, parties, entries, stand_ins=stand_ins, **options)


@pytest.fixture(scope="session")
def protected():
    """Returns, by protocol, the settings without which it refuses small numbers of parties."""
    return PROTECTED


@pytest.fixture(scope="session")
def updates_for():
    """Returns the function that makes a vector for each party: `updates_for(parties, entries, weights, seed)`."""
    return _updates_for


@pytest.fixture(scope="session")
def ring_mean():
    """Returns the function that computes the expected average of some contributors without any protocol."""
    return _ring_mean


@pytest.fixture(scope="session")
def play():
    """Returns the function that runs one round, and catches only errors that Tacit raises on purpose."""
    return _play


@pytest.fixture(scope="session")
def bent():
    """Returns the function that changes the messages of a role: `bent(protocol, party, change)`."""
    return _bent


@pytest.fixture(scope="session")
def bent_simulation():
    """Returns the function that creates a simulation with one party whose messages are changed before they are sent.

    The party is honest except for `change(message, to, link, suite)`, which returns what is sent instead.
    """
    return _bent_simulation
